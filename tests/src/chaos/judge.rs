//! The judge: from all that was left behind to counts and violations. Pure.

use std::collections::{BTreeMap, BTreeSet};

use clawnode_proto::{FrameKey, llm::Role, session::TurnOutcome};

use super::{
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
    /// Of which kind.
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
    /// Claims by which a session was taken over.
    pub takeovers: usize,
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

/// Judges.
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
    calls(&mut verdict, evidence);
    let stored = evidence.sessions.values();
    verdict.takeovers = stored.map(|stored| stored.takeovers().count()).sum();
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
            let last = one.refusals.last().map_or("nobody answered", String::as_str);
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
/// anew in between.
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
        let what = format!("`{key}`: nobody sent `{stranger}`");
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
        let mut recorded: BTreeMap<String, u64> = BTreeMap::new();
        for event in &stored.events {
            let call = event.body["call"].as_str().unwrap_or_default();
            let attempt = event.body["attempt"].as_u64().unwrap_or(0);
            match event.kind.as_str() {
                "model_begun" => {
                    begun.insert(format!("{call}.{attempt}"));
                    if recorded.contains_key(call) {
                        let what =
                            format!("`{session}`: call `{call}` was begun after its outcome");
                        verdict.blame(Breach::Repeated, format!("{what} (I3)"));
                    }
                }
                "model_done" | "model_failed" => {
                    if recorded.insert(call.to_owned(), attempt).is_some() {
                        let what = format!("`{session}`: call `{call}` has two outcomes (SES-1)");
                        verdict.blame(Breach::Duplicated, what);
                    }
                }
                _ => {}
            }
        }
        for (call, attempt) in &recorded {
            recorded_call(verdict, evidence, &asked, (session, call, *attempt));
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

fn recorded_call(
    verdict: &mut Verdict,
    evidence: &Evidence,
    asked: &BTreeMap<&str, usize>,
    (session, call, attempt): (&str, &str, u64),
) {
    let name = format!("`{session}`: call `{call}`");
    if !asked.contains_key(format!("{call}.{attempt}").as_str()) {
        verdict.blame(Breach::Invariant, format!("{name} has an outcome that nobody gave"));
    }
    if asked.contains_key(format!("{call}.{}", attempt + 1).as_str()) {
        verdict.blame(Breach::Repeated, format!("{name} was recorded, and asked for again"));
    }
    let faults = evidence.faults.len() as u64;
    if attempt > faults + 1 {
        let what = format!("{name} took {attempt} attempts after {faults} faults");
        verdict.blame(Breach::Repeated, what);
    }
}
