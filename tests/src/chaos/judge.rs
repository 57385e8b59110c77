//! The judge: from all that was left behind to counts and violations. Pure.

use std::collections::{BTreeMap, BTreeSet};

use clawnode_proto::{FrameKey, kernel::CLAIM, llm::Role, session::TurnOutcome};

use super::{
    account::Account,
    evidence::{Evidence, Stored},
    transcript::{Sight, Transcript},
};

/// What a kind of violation is called, and counted as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Breach {
    /// Something accepted is not there, or its client never got it.
    Lost,
    /// Something is there twice.
    Duplicated,
    /// A recorded call was made again.
    Repeated,
    /// An invariant does not hold.
    Invariant,
    /// Something was left at the end.
    Orphan,
}

/// Something that must not be, with the evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub breach: Breach,
    /// What exactly.
    pub what: String,
}

/// The judge's word.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Turns that ended well.
    pub turns: usize,
    /// Model calls that were made again because their process was lost.
    pub remade_inflight_calls: usize,
    /// Claims since the first fault by which a session was taken over.
    pub takeovers: usize,
    /// Those by which an owner without a fault lost a session in mid-turn.
    pub robberies: usize,
    /// What the errands came to; what is wrong with them is among the violations.
    pub account: Account,
    /// All that must not be.
    pub violations: Vec<Violation>,
}

// === impl Verdict ===

impl Verdict {
    /// How many violations of this kind there are.
    pub fn count(&self, breach: Breach) -> usize {
        self.violations.iter().filter(|one| one.breach == breach).count()
    }

    fn blame(&mut self, breach: Breach, what: String) {
        self.violations.push(Violation { breach, what });
    }
}

/// The reply to a message in so many pieces, as the model server gives it.
pub fn reply(content: &str, tokens: u32) -> String {
    let more = (2..=tokens).map(|n| format!(" {n}"));
    std::iter::once(format!("reply to: {content}")).chain(more).collect()
}

/// Holds what happened against what is promised.
pub fn judge(evidence: &Evidence) -> Verdict {
    let mut verdict = Verdict::default();
    let mut sessions: BTreeMap<String, Vec<&Transcript>> = BTreeMap::new();
    for one in &evidence.transcripts {
        let session = one.session();
        if !evidence.excused.contains(&session) {
            sessions.entry(session).or_default().push(one);
        }
    }
    for (key, sent) in &sessions {
        for one in sent {
            heard(&mut verdict, one, evidence.tokens);
        }
        match evidence.sessions.get(key) {
            Some(stored) => transcript(&mut verdict, key, stored, sent, evidence.tokens),
            None => {
                for one in sent.iter().filter(|one| one.is_accepted()) {
                    let what = format!("`{key}` is gone, and `{}` with it", one.content);
                    verdict.blame(Breach::Lost, what);
                }
            }
        }
    }
    for one in &evidence.followed {
        heard(&mut verdict, one, evidence.tokens);
    }
    calls(&mut verdict, evidence);
    verdict.account = Account::of(evidence);
    verdict.violations.extend(verdict.account.violations.iter().cloned());
    let takeovers = evidence.takeovers();
    verdict.takeovers = takeovers.len();
    let robbed = takeovers.iter().filter(|one| one.in_mid_turn && !evidence.is_victim(one.from));
    verdict.robberies = robbed.count();
    for what in &evidence.unsound {
        verdict.blame(Breach::Invariant, what.clone());
    }
    for what in &evidence.complaints {
        verdict.blame(Breach::Invariant, what.clone());
    }
    for what in &evidence.leftovers {
        verdict.blame(Breach::Orphan, what.clone());
    }
    verdict
}

/// What the client saw of one message.
fn heard(verdict: &mut Verdict, one: &Transcript, tokens: u32) {
    let name = format!("`{}` of `{}`", one.content, one.session());
    if one.turns.len() > 1 {
        verdict.blame(Breach::Duplicated, format!("{name} was accepted as {:?}", one.turns));
    }
    match one.outcome() {
        Some(TurnOutcome::Completed { .. }) => {
            let wanted = reply(&one.content, tokens);
            if one.text != wanted {
                let longer = one.text.len() > wanted.len();
                let breach = if longer { Breach::Duplicated } else { Breach::Lost };
                let what = format!("{name}: its client reads `{}`, not `{wanted}`", one.text);
                verdict.blame(breach, what);
            }
        }
        Some(other) => verdict.blame(Breach::Lost, format!("{name} ended {other:?}")),
        None if one.is_accepted() => {
            let what = format!("{name} was accepted; its client never heard the end");
            verdict.blame(Breach::Lost, what);
        }
        None => {
            let last = one.refusals.last().map_or("no answer", String::as_str);
            verdict.blame(Breach::Lost, format!("{name} was never accepted: {last}"));
        }
    }
    let ends = one.seen.iter().filter(|seen| matches!(seen.sight, Sight::Done(_))).count();
    if ends > 1 {
        verdict.blame(Breach::Duplicated, format!("{name} ended {ends} times at its client"));
    }
    repeats(verdict, one, &name);
}

/// No piece of text comes twice: each is beyond the last of its attempt, unless the reply began
/// again in between.
fn repeats(verdict: &mut Verdict, one: &Transcript, name: &str) {
    let mut last: Option<FrameKey> = None;
    for seen in &one.seen {
        match (&seen.sight, seen.cursor) {
            (Sight::Reset(_) | Sight::Lagged, _) => last = None,
            (Sight::Text(text), Some(at)) => {
                let again = last.is_some_and(|last| {
                    last.call == at.call && (at.attempt, at.index) <= (last.attempt, last.index)
                });
                if again {
                    let what = format!("{name}: its client got `{text}` again, at `{at}`");
                    verdict.blame(Breach::Duplicated, what);
                }
                last = Some(at);
            }
            _ => {}
        }
    }
}

/// What is stored of one session against what was sent to it.
fn transcript(
    verdict: &mut Verdict,
    key: &str,
    stored: &Stored,
    sent: &[&Transcript],
    tokens: u32,
) {
    let mut said: Vec<&str> = Vec::new();
    for turn in &stored.history.turns {
        let text = |role: Role| -> Vec<&str> {
            let all = turn.messages.iter().filter(|message| message.role == role);
            all.filter_map(|message| message.content.inline()).collect()
        };
        let (asked, answered) = (text(Role::User), text(Role::Assistant));
        let [content] = asked[..] else {
            let what = format!("`{key}`: turn `{}` has the messages {asked:?}", turn.turn);
            verdict.blame(Breach::Duplicated, what);
            continue;
        };
        said.push(content);
        match &turn.outcome {
            Some(TurnOutcome::Completed { .. }) => verdict.turns += 1,
            Some(other) => {
                verdict.blame(Breach::Lost, format!("`{key}`: `{content}` ended {other:?}"));
                continue;
            }
            None => {
                verdict.blame(Breach::Orphan, format!("`{key}`: `{content}` has not ended"));
                continue;
            }
        }
        let wanted = reply(content, tokens);
        if answered != [wanted.as_str()] {
            let breach = if answered.len() > 1 { Breach::Duplicated } else { Breach::Lost };
            verdict.blame(breach, format!("`{key}`: `{content}` is answered {answered:?}"));
        }
    }
    for one in sent {
        let times = said.iter().filter(|content| **content == one.content).count();
        if times == 0 && one.is_accepted() {
            let what = format!("`{key}`: `{}` was accepted and is not stored", one.content);
            verdict.blame(Breach::Lost, what);
        }
        if times > 1 {
            let what = format!("`{key}`: `{}` is stored {times} times", one.content);
            verdict.blame(Breach::Duplicated, what);
        }
    }
    let wanted: Vec<&str> = sent.iter().map(|one| one.content.as_str()).collect();
    if let Some(stranger) = said.iter().find(|content| !wanted.contains(content)) {
        let what = format!("`{key}`: no client sent `{stranger}`");
        verdict.blame(Breach::Invariant, what);
    }
    let ordered: Vec<&str> =
        wanted.iter().copied().filter(|content| said.contains(content)).collect();
    let mut once = BTreeSet::new();
    said.retain(|content| once.insert(*content) && wanted.contains(content));
    if said != ordered {
        let what = format!("`{key}`: sent in the order {ordered:?}, stored as {said:?} (SES-2)");
        verdict.blame(Breach::Invariant, what);
    }
}

/// Recorded calls against what the model server was asked.
fn calls(verdict: &mut Verdict, evidence: &Evidence) {
    let mut asked: BTreeMap<&str, usize> = BTreeMap::new();
    for one in &evidence.asked {
        *asked.entry(one.key.as_deref().unwrap_or("no key")).or_default() += 1;
    }
    for (key, times) in asked.iter().filter(|(_, times)| **times > 1) {
        verdict.blame(Breach::Repeated, format!("request `{key}` was sent {times} times"));
    }
    let mut begun = BTreeSet::new();
    for (session, stored) in &evidence.sessions {
        let recorded = journal(verdict, session, stored, &mut begun);
        for (call, attempt) in &recorded {
            recorded_call(verdict, &asked, (session, call, *attempt));
        }
    }
    for key in asked.keys().filter(|key| !begun.contains(**key)) {
        let what = format!("request `{key}` was sent, and no journal has begun it (I8)");
        verdict.blame(Breach::Invariant, what);
    }
    let calls: BTreeSet<&str> =
        asked.keys().map(|key| key.rsplit_once('.').map_or(*key, |(call, _)| call)).collect();
    verdict.remade_inflight_calls = asked.len() - calls.len();
}

/// The calls in one journal: those begun are added, those with an outcome returned.
fn journal(
    verdict: &mut Verdict,
    session: &str,
    stored: &Stored,
    all: &mut BTreeSet<String>,
) -> BTreeMap<String, u64> {
    let mut recorded: BTreeMap<String, u64> = BTreeMap::new();
    let mut begun: BTreeMap<String, usize> = BTreeMap::new();
    let mut claims = 0;
    for event in &stored.events {
        let call = event.body["call"].as_str().unwrap_or_default();
        let attempt = event.body["attempt"].as_u64().unwrap_or(0);
        let name = || format!("`{session}`: call `{call}`");
        match event.kind.as_str() {
            CLAIM => claims += 1,
            "model_begun" => {
                all.insert(format!("{call}.{attempt}"));
                if recorded.contains_key(call) {
                    let what = format!("{} was begun after its outcome (I3)", name());
                    verdict.blame(Breach::Repeated, what);
                }
                // Only who takes a session over may make its call again.
                if begun.insert(call.to_owned(), claims) == Some(claims) {
                    let what = format!("{} was begun again by the owner that made it", name());
                    verdict.blame(Breach::Repeated, what);
                }
            }
            // The call goes on, and its owner may begin it again.
            "model_gave_way" => drop(begun.remove(call)),
            "model_done" | "model_failed" => {
                let before = recorded.insert(call.to_owned(), attempt);
                if before.is_some() {
                    let what = format!("{} has two outcomes (SES-1)", name());
                    verdict.blame(Breach::Duplicated, what);
                }
            }
            _ => {}
        }
    }
    recorded
}

fn recorded_call(
    verdict: &mut Verdict,
    asked: &BTreeMap<&str, usize>,
    (session, call, attempt): (&str, &str, u64),
) {
    let name = format!("`{session}`: call `{call}`");
    if !asked.contains_key(format!("{call}.{attempt}").as_str()) {
        verdict.blame(Breach::Invariant, format!("{name} has an outcome that no model gave"));
    }
    if asked.contains_key(format!("{call}.{}", attempt + 1).as_str()) {
        verdict.blame(Breach::Repeated, format!("{name} was recorded, and asked for again"));
    }
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{
        CallId, Digest, EntityId, Epoch, EventId, Incarnation, ProcessId, Seq, Timestamp, TurnId,
        llm::{Message, StopReason, Text, Usage},
        view::{EventView, HistoryView, TurnView},
    };
    use serde_json::{Value, json};
    use tokio::time::Instant;

    use super::{
        super::{
            evidence::{Fault, Hits},
            transcript::Seen,
        },
        *,
    };
    use crate::model::{Logged, WireName};

    const TOKENS: u32 = 3;

    fn completed() -> TurnOutcome {
        TurnOutcome::Completed { stop: StopReason::EndTurn }
    }

    fn turn_of(n: u128) -> TurnId {
        TurnId::from_u128(n)
    }

    fn call_of(n: u128) -> String {
        CallId::derive(turn_of(n), 0).to_string()
    }

    fn cursor(n: u128, attempt: u32, index: u32) -> Option<FrameKey> {
        format!("{}.{}.{attempt}.{index}", turn_of(n), call_of(n)).parse().ok()
    }

    /// What the client of message `n` sees: the first attempt dies after a piece, the second ends.
    fn told(n: u128) -> Transcript {
        let now = Instant::now();
        let mut one = Transcript::new("ada", &format!("m{n}"), now);
        let first = format!("reply to: m{n}");
        for (cursor, sight) in [
            (None, Sight::Accepted(turn_of(n))),
            (cursor(n, 1, 0), Sight::Text(first.clone())),
            (cursor(n, 2, 0), Sight::Reset(String::new())),
            (cursor(n, 2, 0), Sight::Text(first)),
            (cursor(n, 2, 1), Sight::Text(" 2".to_owned())),
            (cursor(n, 2, 2), Sight::Text(" 3".to_owned())),
            (cursor(n, 2, u32::MAX), Sight::Done(completed())),
        ] {
            one.see(Seen { at: now, connection: 1, cursor, sight });
        }
        one
    }

    fn view(n: u128) -> TurnView {
        let message = |role, text: String| Message::text(role, text);
        TurnView {
            turn: turn_of(n),
            messages: vec![
                message(Role::User, format!("m{n}")),
                message(Role::Assistant, reply(&format!("m{n}"), TOKENS)),
            ],
            outcome: Some(completed()),
            usage: Usage::default(),
            lost_attempts: 1,
            asks: Vec::new(),
            wants_steps: false,
            waits_until: None,
            lane: None,
            notes: Vec::new(),
            structured: None,
        }
    }

    fn event(process: u128, kind: &str, body: Value) -> EventView {
        EventView {
            n: Seq(0),
            kind: kind.to_owned(),
            eid: EventId::from_u128(0),
            epoch: Epoch(1),
            incarnation: Incarnation { process: ProcessId::from_u128(process), counter: 1 },
            ts: Timestamp(0),
            hash: Digest::ZERO,
            body,
        }
    }

    fn call_event(process: u128, kind: &str, n: u128, attempt: u32) -> EventView {
        let turn = turn_of(n).to_string();
        event(process, kind, json!({ "turn": turn, "call": call_of(n), "attempt": attempt }))
    }

    fn asked(n: u128, attempt: u32) -> Logged {
        Logged {
            seq: 0,
            wire: WireName::Anthropic,
            key: Some(format!("{}.{attempt}", call_of(n))),
            digest: Digest::ZERO,
            last_user: format!("m{n}"),
            results: 0,
            full: Some(true),
        }
    }

    /// Two messages; the owner of each died in mid-turn, and another finished.
    fn sound() -> Evidence {
        let mut events = Vec::new();
        for n in [1, 2] {
            events.push(event(n, "claim", json!({})));
            events.push(event(n, "accepted", json!({})));
            events.push(call_event(n, "model_begun", n, 1));
            events.push(event(n + 1, "claim", json!({})));
            events.push(call_event(n + 1, "model_begun", n, 2));
            events.push(call_event(n + 1, "model_done", n, 2));
            events.push(event(n + 1, "turn_done", json!({})));
            events.push(event(n + 1, "released", json!({})));
        }
        let history = HistoryView {
            id: EntityId::from_u128(1),
            key: "default:chaos:a:ada".to_owned(),
            state: "idle".to_owned(),
            turns: vec![view(1), view(2)],
            next: None,
        };
        let fault = Fault {
            at: Instant::now(),
            wall: Timestamp(0),
            what: "kill".to_owned(),
            hits: Hits::Owners(vec![ProcessId::from_u128(1)]),
        };
        let transcripts = vec![told(1), told(2)];
        let key = transcripts[0].session();
        Evidence {
            transcripts,
            sessions: BTreeMap::from([(key, Stored { history, events })]),
            asked: vec![asked(1, 1), asked(1, 2), asked(2, 1), asked(2, 2)],
            faults: vec![fault],
            tokens: TOKENS,
            ..Evidence::default()
        }
    }

    #[test]
    fn what_is_sound_is_found_sound() {
        let verdict = judge(&sound());
        assert_eq!(verdict.violations, []);
        assert_eq!((verdict.turns, verdict.remade_inflight_calls), (2, 2));
        // Nothing was done to the second owner that lost its session.
        assert_eq!((verdict.takeovers, verdict.robberies), (2, 1));
    }

    /// A harm done to sound evidence.
    type Plant = fn(&mut Evidence);

    fn stored(evidence: &mut Evidence) -> &mut Stored {
        evidence.sessions.values_mut().next().unwrap()
    }

    /// Each is found, as what it is, and with these words.
    const PLANTED: &[(&str, Breach, &str, Plant)] = &[
        ("a message that is not stored", Breach::Lost, "is not stored", |evidence| {
            stored(evidence).history.turns.pop();
        }),
        ("a session that is gone", Breach::Lost, "is gone", |evidence| evidence.sessions.clear()),
        ("a turn without an end", Breach::Orphan, "has not ended", |evidence| {
            stored(evidence).history.turns[1].outcome = None;
        }),
        ("a turn that failed", Breach::Lost, "ended Cancelled", |evidence| {
            stored(evidence).history.turns[1].outcome = Some(TurnOutcome::Cancelled);
        }),
        ("a reply that is cut short", Breach::Lost, "is answered", |evidence| {
            stored(evidence).history.turns[0].messages[1].content =
                Text::from("reply to: m1".to_owned());
        }),
        ("a reply that is not there", Breach::Lost, "is answered", |evidence| {
            stored(evidence).history.turns[0].messages.pop();
        }),
        ("a reply twice", Breach::Duplicated, "is answered", |evidence| {
            let turn = &mut stored(evidence).history.turns[0];
            let again = turn.messages[1].clone();
            turn.messages.push(again);
        }),
        ("a message twice", Breach::Duplicated, "is stored 2 times", |evidence| {
            let again = stored(evidence).history.turns[1].clone();
            stored(evidence).history.turns.push(again);
        }),
        ("a message that no client sent", Breach::Invariant, "no client sent", |evidence| {
            let mut stranger = view(9);
            stranger.messages[0].content = Text::from("m9".to_owned());
            stored(evidence).history.turns.push(stranger);
        }),
        ("another order", Breach::Invariant, "SES-2", |evidence| {
            stored(evidence).history.turns.reverse();
        }),
        ("a message accepted as two turns", Breach::Duplicated, "was accepted as", |evidence| {
            evidence.transcripts[0].turns.push(turn_of(7));
        }),
        ("an end that its client never heard", Breach::Lost, "never heard", |evidence| {
            evidence.transcripts[1].seen.pop();
        }),
        ("a message that was never accepted", Breach::Lost, "never accepted", |evidence| {
            evidence.transcripts[1] = Transcript::new("ada", "m2", Instant::now());
            stored(evidence).history.turns.pop();
        }),
        ("a piece that its client missed", Breach::Lost, "its client reads", |evidence| {
            evidence.transcripts[0].text = "reply to: m1 3".to_owned();
        }),
        ("a piece that its client got twice", Breach::Duplicated, "got ` 3` again", |evidence| {
            let again = evidence.transcripts[0].seen[5].clone();
            evidence.transcripts[0].seen.insert(6, again);
        }),
        ("a piece of an older attempt", Breach::Duplicated, "again, at", |evidence| {
            let late = evidence.transcripts[0].seen[1].clone();
            evidence.transcripts[0].seen.insert(5, late);
        }),
        ("a piece that a follower missed", Breach::Lost, "its client reads", |evidence| {
            evidence.followed.push(told(1));
            evidence.followed[0].text = "reply to: m1 3".to_owned();
        }),
        ("an end that its client heard twice", Breach::Duplicated, "ended 2 times", |evidence| {
            let again = evidence.transcripts[0].seen[6].clone();
            evidence.transcripts[0].seen.push(again);
        }),
        ("a request sent twice", Breach::Repeated, "was sent 2 times", |evidence| {
            evidence.asked.push(asked(1, 2));
        }),
        ("a recorded call made again", Breach::Repeated, "asked for again", |evidence| {
            evidence.asked.push(asked(1, 3));
        }),
        ("a call begun after its outcome", Breach::Repeated, "I3", |evidence| {
            let again = call_event(3, "model_begun", 1, 3);
            stored(evidence).events.push(again);
        }),
        ("two outcomes of one call", Breach::Duplicated, "two outcomes", |evidence| {
            let again = call_event(3, "model_done", 1, 2);
            stored(evidence).events.push(again);
        }),
        ("an outcome that no model gave", Breach::Invariant, "no model gave", |evidence| {
            evidence.asked.retain(|one| one != &asked(2, 2));
        }),
        ("a call that no journal has begun", Breach::Invariant, "I8", |evidence| {
            evidence.asked.push(asked(5, 1));
        }),
        ("a call made again for no reason", Breach::Repeated, "begun again by", |evidence| {
            stored(evidence).events.retain(|event| event.kind != CLAIM);
        }),
        ("a broken journal", Breach::Invariant, "the chain", |evidence| {
            evidence.unsound.push("the chain breaks at 3".to_owned());
        }),
        ("a process that is left", Breach::Orphan, "left", |evidence| {
            evidence.leftovers.push("a process is left".to_owned());
        }),
        ("what the scenario saw", Breach::Invariant, "C16", |evidence| {
            evidence.complaints.push("C16 does not hold".to_owned());
        }),
    ];

    #[test]
    fn every_planted_violation_is_found() {
        for (name, breach, words, plant) in PLANTED {
            let mut evidence = sound();
            plant(&mut evidence);
            let verdict = judge(&evidence);
            let found = verdict
                .violations
                .iter()
                .any(|one| one.breach == *breach && one.what.contains(words));
            assert!(found, "{name}: {:?}", verdict.violations);
        }
    }

    #[test]
    fn who_takes_a_session_between_turns_robs_nobody() {
        let mut evidence = sound();
        // The last owner had not given it up, and had nothing to do.
        stored(&mut evidence).events.pop();
        stored(&mut evidence).events.push(event(9, "claim", json!({})));
        let verdict = judge(&evidence);
        assert_eq!((verdict.takeovers, verdict.robberies), (3, 1));
    }

    #[test]
    fn a_poisoned_session_is_left_to_its_scenario() {
        let mut evidence = sound();
        evidence.excused.insert(evidence.transcripts[0].session());
        evidence.transcripts[1].seen.pop();
        assert_eq!(judge(&evidence).violations, []);
    }
}
