//! What a model was shown by one call, part by part, and why: from the journal alone. Pure.

use std::collections::BTreeMap;

use clawnode_proto::{
    CallId, TurnId,
    context::ContextSettings,
    context_view::{
        ContextGap, ContextPart, ContextPartKind, ContextPlace, ContextView, TurnPlace,
    },
    llm::{Message, ModelFailure, TextBlob, Usage},
    recall::Recalled,
    session::{ModelBegun, Profile, SessionEvent},
};

use super::{
    context::model_input::{Assembled, Draft, PartOf, draft},
    context::token_estimate::{fixed_tokens, tokens},
    recorded::recorded_request,
    state::{SessionState, Turn},
    state_parts::settled_cost::AttemptBill,
};

/// Looks for one call in a session's journal, event by event.
#[derive(Debug)]
pub struct ContextReader {
    wanted: ContextPlace,
    /// The numbers of the turns that have ended, from 1.
    numbers: BTreeMap<TurnId, u64>,
    /// The request of the call before.
    before: Option<Assembled>,
    found: Option<ContextView>,
    /// What precedes its system prompt.
    prompt: Option<TextBlob>,
}

/// A request as it was sent, and by what it was made.
struct Sent<'a> {
    state: &'a SessionState,
    profile: &'a Profile,
    /// Its turn, as it was shown.
    turn: &'a Turn,
    draft: Draft,
    /// Whether the budget of its context held.
    is_bounded: bool,
}

// === impl ContextReader ===

impl ContextReader {
    /// Looks for this call.
    pub const fn new(wanted: ContextPlace) -> Self {
        Self { wanted, numbers: BTreeMap::new(), before: None, found: None, prompt: None }
    }

    /// Takes the session's next own event, before it is folded. Whether nothing more is to be found.
    pub fn see(&mut self, state: &SessionState, event: &SessionEvent) -> bool {
        match event {
            SessionEvent::ModelBegun(begun) => self.begun(state, begun),
            SessionEvent::ModelDone(done) => self.ended(state, done.call, &done.usage, None),
            SessionEvent::ModelFailed(failed) => {
                self.ended(state, failed.call, &failed.usage, Some(&failed.failure));
            }
            SessionEvent::ModelGaveWay(gave_way) => {
                self.ended(state, gave_way.call, &gave_way.usage, Some(&gave_way.why));
            }
            SessionEvent::TurnDone(done) => {
                let number = self.next_number();
                self.numbers.insert(done.turn, number);
                return self.found.as_ref().is_some_and(|found| found.turn == done.turn);
            }
            _ => {}
        }
        false
    }

    /// The part of its system prompt that is in the blob store. The view has what follows it.
    pub const fn prompt(&self) -> Option<TextBlob> {
        self.prompt
    }

    /// The last attempt at the call, if there was one.
    pub fn found(self) -> Option<ContextView> {
        self.found
    }

    /// The number of the running turn.
    fn next_number(&self) -> u64 {
        u64::try_from(self.numbers.len()).unwrap_or(u64::MAX).saturating_add(1)
    }

    fn begun(&mut self, state: &SessionState, begun: &ModelBegun) {
        let (Some(profile), Some(turn)) = (&state.profile, state.turn(begun.turn)) else { return };
        let (made, verified) = recorded_request(state, profile, turn, begun);
        let at = turn.steps.iter().position(|step| step.call == begun.call);
        let at = at.unwrap_or(turn.steps.len());
        let step = u32::try_from(at).unwrap_or(u32::MAX).saturating_add(1);
        let before = self.before.replace(made.request.clone());
        if !self.is_wanted(turn, step) {
            return;
        }
        let is_bounded = draft(state, profile, turn, None).is_bounded;
        let shown = turn.closed_upto(begun.closes_upto);
        let sent = Sent { state, profile, turn: &shown, draft: made, is_bounded };
        let common = before.as_ref().map_or(0, |before| sent.common_messages(before));
        let is_begun_alike = before.as_ref().is_some_and(|before| sent.begins_like(before));
        let request = &sent.draft.request;
        let beginning = request.messages.get(..common).unwrap_or_default();
        let repeated = if is_begun_alike { sent.fixed() + tokens(beginning) } else { 0 };
        let parts = sent.parts(&self.numbers, turn.id, self.next_number(), common);
        let parts = parts
            .into_iter()
            .map(|part| ContextPart { repeated: is_begun_alike && part.repeated, ..part });
        self.prompt = request.prompt;
        self.found = Some(ContextView {
            turn: turn.id,
            number: self.next_number(),
            step,
            call: begun.call,
            attempt: begun.attempt,
            model: request.model.clone(),
            window_tokens: profile.window_tokens,
            rules: profile.context,
            tokens: request.estimate(),
            reported: None,
            cost: None,
            repeated,
            verified,
            parts: parts.collect(),
            left_out: sent.left_out(&self.numbers, self.next_number()),
        });
    }

    fn is_wanted(&self, turn: &Turn, step: u32) -> bool {
        let is_turn = match self.wanted.turn {
            TurnPlace::Number(number) => number == self.next_number(),
            TurnPlace::Id(id) => turn.id == id || turn.joined.contains(&id),
        };
        is_turn && self.wanted.step.is_none_or(|wanted| wanted == step)
    }

    /// An attempt ends, before the state has that.
    fn ended(
        &mut self,
        state: &SessionState,
        call: CallId,
        usage: &Usage,
        failure: Option<&ModelFailure>,
    ) {
        let Some(found) = self.found.as_mut().filter(|found| found.call == call) else { return };
        if usage.input_tokens > 0 && !usage.estimated {
            found.reported = Some(usage.input_tokens);
        }
        let turn = state.turn(found.turn);
        let step = turn.and_then(|turn| turn.steps.iter().find(|step| step.call == call));
        found.cost = step.and_then(|step| {
            let bill = AttemptBill::of(usage, failure);
            let last = step.held.as_ref().map(|held| held.spent(bill, usage));
            step.spent.plus(last.unwrap_or_default()).cost()
        });
    }
}

// === impl Sent ===

impl Sent<'_> {
    /// Tokens that come before the messages.
    fn fixed(&self) -> u64 {
        let request = &self.draft.request;
        fixed_tokens(request.system_bytes(), &request.tools, request.response_schema.as_ref())
    }

    /// Whether what comes before the messages is the same.
    fn begins_like(&self, before: &Assembled) -> bool {
        let request = &self.draft.request;
        request.model == before.model
            && (&request.system, request.prompt) == (&before.system, before.prompt)
            && request.tools == before.tools
            && request.response_schema == before.response_schema
    }

    /// How many messages the request has in common with the one before, from the first one on.
    fn common_messages(&self, before: &Assembled) -> usize {
        let pairs = self.draft.request.messages.iter().zip(&before.messages);
        pairs.take_while(|(one, other)| one == other).count()
    }

    /// The parts in order, of which the first messages are those of the request before.
    fn parts(
        &self,
        numbers: &BTreeMap<TurnId, u64>,
        running: TurnId,
        number: u64,
        common: usize,
    ) -> Vec<ContextPart> {
        let request = &self.draft.request;
        let mut parts: Vec<ContextPart> = Vec::new();
        let always = "it is sent with every call, and never cut";
        if request.system_bytes() > 0 {
            let size = fixed_tokens(request.system_bytes(), &[], None);
            let text = Some(request.system.clone());
            parts.push(ContextPart { text, ..part(ContextPartKind::System, size, always) });
        }
        if !request.tools.is_empty() {
            let size = fixed_tokens(0, &request.tools, None);
            let tools = request.tools.clone();
            parts.push(ContextPart { tools, ..part(ContextPartKind::Tools, size, always) });
        }
        if let Some(schema) = &request.response_schema {
            let size = fixed_tokens(0, &[], Some(schema));
            let text = Some(schema.schema.clone());
            parts.push(ContextPart { text, ..part(ContextPartKind::ResponseSchema, size, always) });
        }
        let mut newer = self.draft.spans.len();
        let mut rest = request.messages.as_slice();
        let mut at = 0;
        for (part_of, count) in &self.draft.spans {
            newer -= 1;
            let (messages, after) = rest.split_at_checked(*count).unwrap_or((rest, &[]));
            (rest, at) = (after, at + messages.len());
            let (kind, turn) = match part_of {
                PartOf::Seed => (ContextPartKind::Seed, None),
                PartOf::Summary => (ContextPartKind::Summary, None),
                PartOf::Earlier(id) => (ContextPartKind::Turn, Some(*id)),
                PartOf::Recalled => (ContextPartKind::Recalled, Some(running)),
                PartOf::Running => (ContextPartKind::Running, Some(running)),
            };
            let why = match kind {
                ContextPartKind::Summary => self.why_summarized(numbers),
                ContextPartKind::Recalled => self.why_recalled(running),
                _ => self.why(kind, newer),
            };
            let number_of = |id: TurnId| {
                if id == running { Some(number) } else { numbers.get(&id).copied() }
            };
            parts.push(ContextPart {
                turn,
                number: turn.and_then(number_of),
                repeated: at <= common,
                messages: messages.to_vec(),
                stubs: turn
                    .filter(|_| *part_of != PartOf::Recalled)
                    .and_then(|id| self.shown_turn(id))
                    .map_or_else(Vec::new, Turn::stubs),
                ..part(kind, tokens(messages), &why)
            });
        }
        if !rest.is_empty() {
            let (kind, why) = (ContextPartKind::Hook, "a hook added it");
            let repeated = request.messages.len() <= common;
            let (size, messages) = (tokens(rest), rest.to_vec());
            parts.push(ContextPart { messages, repeated, ..part(kind, size, why) });
        }
        parts
    }

    /// A turn as it was shown.
    fn shown_turn(&self, id: TurnId) -> Option<&Turn> {
        if id == self.turn.id { Some(self.turn) } else { self.state.turn(id) }
    }

    /// Why a part is there that is followed by so many others.
    fn why(&self, kind: ContextPartKind, newer: usize) -> String {
        if kind == ContextPartKind::Running {
            return "it is the running turn, which is never cut".to_owned();
        }
        let Some(ContextSettings { tokens, recent_turns, .. }) = self.profile.context else {
            return "it fits into the model's window".to_owned();
        };
        let recent = usize::try_from(recent_turns).unwrap_or(usize::MAX);
        if !self.is_bounded {
            "the conversation is short, so all that the session keeps of it is shown".to_owned()
        } else if newer <= recent {
            format!("it is one of the {recent_turns} newest turns")
        } else {
            format!("it fits into the context of {tokens} tokens")
        }
    }

    /// The number of the last turn that the summary is about; 0 if there is none.
    fn summarized(&self, numbers: &BTreeMap<TurnId, u64>) -> u64 {
        let upto = self.state.summary.as_ref().and_then(|summary| numbers.get(&summary.upto));
        upto.copied().unwrap_or_default()
    }

    /// Why a summary is there.
    fn why_summarized(&self, numbers: &BTreeMap<TurnId, u64>) -> String {
        let by = self.state.summary.as_ref().map(|summary| summary.by.to_string());
        let by = by.unwrap_or_default();
        format!("`{by}` made it of turns 1 to {}: the window was full", self.summarized(numbers))
    }

    /// Why something is recalled, and from where.
    fn why_recalled(&self, running: TurnId) -> String {
        let recalled = self.state.turn(running).and_then(|turn| turn.recalled.as_deref());
        let Some(Recalled { standing, points, passages, store, upto, degraded, .. }) = recalled
        else {
            return String::new();
        };
        let mut why = format!(
            "the store `{store}` found {} of memories and {} of conversations for the message",
            counted(points.len(), "point"),
            counted(passages.len(), "passage")
        );
        if !standing.is_empty() {
            why.push_str("; standing instructions, which are always shown: ");
            why.push_str(&standing.len().to_string());
        }
        let upto = upto.iter().map(|(scope, event)| format!("`{scope}` up to event {event}"));
        let upto: Vec<String> = upto.collect();
        if !upto.is_empty() {
            why.push_str("; it had ");
            why.push_str(&upto.join(", "));
        }
        if let Some(fault) = degraded {
            why.push_str("; something may be missing: ");
            why.push_str(fault.as_str());
        }
        why
    }

    /// What is left out in the running turn of this number.
    fn left_out(&self, numbers: &BTreeMap<TurnId, u64>, running: u64) -> Vec<ContextGap> {
        let request = &self.draft.request;
        let dropped = u64::from(request.dropped_turns);
        let first = self.draft.spans.iter().find_map(|(part, _)| match part {
            PartOf::Earlier(id) => numbers.get(id).copied(),
            PartOf::Seed | PartOf::Summary | PartOf::Recalled | PartOf::Running => None,
        });
        let turns = if dropped == 0 { 0 } else { first.unwrap_or(running).saturating_sub(1) };
        let why = match self.profile.context {
            None => "the model's window has no room for it, or had none before".to_owned(),
            Some(ContextSettings { tokens, .. }) if self.is_bounded => {
                format!(
                    "the context of {tokens} tokens has no room for it, or had none before, or \
                     the session does not keep so many turns"
                )
            }
            Some(_) => {
                "the session does not keep so many turns, or the model's window had no room for it"
                    .to_owned()
            }
        };
        let mut gaps = Vec::new();
        let gap = |what: &str, why: &str| ContextGap {
            what: what.to_owned(),
            turns: None,
            why: why.to_owned(),
        };
        let summarized = self.summarized(numbers).min(turns);
        let by_summary = "a summary is in its place";
        if dropped > turns {
            let why = if summarized > 0 { by_summary } else { &why };
            gaps.push(gap("what the session began with", why));
        }
        if summarized > 0 {
            gaps.push(ContextGap { turns: Some((1, summarized)), ..gap("turns", by_summary) });
        }
        if turns > summarized {
            let turns = Some((summarized.saturating_add(1), turns));
            gaps.push(ContextGap { turns, ..gap("turns", &why) });
        }
        if request.withheld_thoughts {
            let why = "another model said them, and each model is sent its own only";
            gaps.push(gap("thoughts", why));
        }
        if request.left_out_attachments {
            let why = "one request has at most so many bytes of attachments";
            gaps.push(gap("older attachments", why));
        }
        let recalled = self.turn.recalled.as_deref().filter(|recalled| !recalled.has_found());
        if let Some(fault) = recalled.and_then(|recalled| recalled.degraded) {
            gaps.push(gap("what may be remembered", fault.as_str()));
        }
        gaps
    }
}

fn part(kind: ContextPartKind, tokens: u64, why: &str) -> ContextPart {
    ContextPart {
        kind,
        turn: None,
        number: None,
        tokens,
        repeated: true,
        why: why.to_owned(),
        text: None,
        tools: Vec::new(),
        messages: Vec::<Message>::new(),
        stubs: Vec::new(),
    }
}

fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use clawnode_kernel::Entity;
    use clawnode_proto::{
        Attempt,
        budget::SpendLimits,
        context::{ContextMode, ContextRules},
        event::decode_record,
        model::ModelPrice,
        money::MicroUsd,
        session::{SessionInput, UserMessage},
    };

    use super::*;
    use crate::{
        agent::{AgentOptions, Grant},
        llm::profile::{ModelOverride, ModelProfiles},
        session::{
            Session, SessionJob,
            played::{PlayedActivation, key},
        },
    };

    fn explained(run: &PlayedActivation, at: &str) -> Option<ContextView> {
        let mut entity = Entity::<Session>::unborn(key().entity());
        let mut reader = ContextReader::new(at.parse().unwrap());
        for sealed in run.journal.iter().flat_map(|record| decode_record(&record.bytes).unwrap()) {
            let event = sealed.event::<SessionEvent>().unwrap();
            if event.is_some_and(|event| reader.see(&entity.state, &event)) {
                break;
            }
            entity.apply(&sealed).unwrap();
        }
        reader.found()
    }

    fn request(run: &PlayedActivation) -> Assembled {
        let Some((_, SessionJob::Call(job))) = run.started.last() else { panic!("not called") };
        job.request.clone()
    }

    fn messages(view: &ContextView) -> Vec<Message> {
        view.parts.iter().flat_map(|part| part.messages.clone()).collect()
    }

    /// Under the rules of both versions.
    #[test]
    fn what_is_shown_of_a_call_is_what_its_model_was_sent() {
        let context = ContextSettings {
            rules: ContextRules::V2,
            mode: ContextMode::Bounded,
            tokens: 700,
            recent_turns: 2,
        };
        for context in [None, Some(context)] {
            let mut run = PlayedActivation::new(&[], Vec::new());
            let options = (*run.grant.options).clone();
            let (system, window_tokens) = ("Be brief.".to_owned(), Some(2_000));
            run.grant = Grant::free(AgentOptions { system, context, window_tokens, ..options });
            let mut sent = Vec::new();
            for turn in 1..=9 {
                let message = UserMessage::text(format!("m{turn} {}", "x".repeat(300)));
                run.hears(&format!("m{turn}"), &SessionInput::UserMessage(message));
                sent.push((format!("{turn}.1"), request(&run)));
                let input_tokens = request(&run).estimate();
                run.replies_for(Usage { input_tokens, ..Usage::default() }, &[("look", "{}")]);
                sent.push((format!("{turn}.2"), request(&run)));
                let input_tokens = request(&run).estimate();
                run.replies_for(Usage { input_tokens, ..Usage::default() }, &[]);
            }
            for (at, request) in &sent {
                let view = explained(&run, at).unwrap();
                assert_eq!(messages(&view), request.messages, "{at}");
                assert_eq!((view.tokens, view.verified), (request.estimate(), true));
                assert_eq!(view.reported, Some(request.estimate()), "{at}");
                assert_eq!(view.cost, None, "{at}: no limit held it, so its price is not known");
                assert_eq!(format!("{}.{}", view.number, view.step), *at);
                let all: u64 = view.parts.iter().map(|part| part.tokens).sum();
                assert!(all.abs_diff(view.tokens) <= 2, "{all} {}", view.tokens);
                let left_out = view.left_out.iter().find_map(|gap| gap.turns);
                let dropped = u64::from(request.dropped_turns);
                assert_eq!(left_out, (dropped > 0).then_some((1, dropped)), "{at}");
                let turns = view.parts.iter().filter_map(|part| part.number);
                assert!(turns.eq(dropped + 1..=view.number), "{at}");
            }
            assert!(sent.last().unwrap().1.dropped_turns > 0);
            // The second call of a turn begins with all of the first one.
            let (first, second) =
                (explained(&run, "9.1").unwrap(), explained(&run, "9.2").unwrap());
            assert_eq!(second.repeated, first.tokens);
            assert!(second.parts.iter().rev().skip(1).all(|part| part.repeated));
            assert!(!second.parts.last().unwrap().repeated, "it has grown");
            assert_eq!(explained(&run, "9").unwrap(), second, "the last call of its turn");
            assert_eq!(explained(&run, &format!("{}.1", first.turn)).unwrap(), first);
            assert_eq!(explained(&run, "9.3"), None);
            assert_eq!(explained(&run, "10"), None);
        }
    }

    /// A session whose turns have a limit, and whose model takes $3 and $15 for a million tokens.
    fn priced() -> PlayedActivation {
        let mut run = PlayedActivation::new(&[], Vec::new());
        let (input, output, cache_read, cache_write) = (3_000_000, 15_000_000, 300_000, 3_750_000);
        let price = Some(ModelPrice { input, output, cache_read, cache_write });
        let price = ModelOverride { price, ..ModelOverride::default() };
        let profiles = ModelProfiles::new([("sim/*".to_owned(), price)].into());
        let turn_usd = Some(MicroUsd(1_000_000));
        let spend = SpendLimits { turn_usd, ..SpendLimits::default() };
        let options = (*run.grant.options).clone();
        run.grant = Grant::free(AgentOptions { profiles, spend, ..options });
        run
    }

    #[test]
    fn a_call_that_a_limit_held_shows_what_it_cost_with_attempts_that_were_lost() {
        let used =
            |input_tokens, output_tokens| Usage { input_tokens, output_tokens, ..Usage::default() };
        let mut run = priced();
        run.says("hi");
        assert_eq!(explained(&run, "1").unwrap().cost, None, "it has no end yet");
        run.replies_for(used(1_000, 100), &[]);
        assert_eq!(explained(&run, "1").unwrap().cost, Some(MicroUsd(4_500)));
        run.says("then");
        let mut next = PlayedActivation::resumed(run);
        next.says("more");
        next.replies_for(used(1_000, 0), &[]);
        let sealed = next.journal.iter().flat_map(|record| decode_record(&record.bytes).unwrap());
        let most = sealed.filter_map(|sealed| match sealed.event::<SessionEvent>().unwrap() {
            Some(SessionEvent::BudgetHeld(held)) => Some(held.most()),
            _ => None,
        });
        let lost: MicroUsd = most.collect::<Vec<_>>()[1];
        let view = explained(&next, "2.1").unwrap();
        let cost = MicroUsd(lost.0 + 3_000);
        assert_eq!((view.attempt, view.cost), (Attempt(2), Some(cost)));
    }
}
