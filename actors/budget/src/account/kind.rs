//! The kind `budget`: what follows from the state of an account.

use std::{convert::Infallible, time::Duration};

use clawnode_cluster::Timer;
use clawnode_kernel::{Begun, EffectKind, EntityKind, InputMemory, Violation};
use clawnode_proto::{
    EntityId, Head, IdempotencyKey, Input, Kind, ProcessId, TimerId, Timestamp, TurnId,
    budget::{AccountKey, BudgetEvent, BudgetInput, BudgetView, ProcessStanding},
    codec,
    feed::EventBody,
};
use serde_json::Value;

use super::BudgetState;

/// Events that one look at the state may decide. They go into one append, which has room for more; what
/// is left is decided in the next look.
const DECIDED_MOST: usize = 256;

/// The budget entity kind.
#[derive(Debug)]
pub struct Budget;

/// What must be under way for an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BudgetEffect {
    /// The account tells a process how things stand, because of something new at this event.
    Tell(ProcessId, u64),
    /// A timer for the end of a window.
    Timer(Timestamp),
    /// All processes can read the limits that this event has set.
    Show(u64),
    /// Operators hear of this event.
    News(u64),
}

/// What that takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BudgetJob {
    /// Sent once, best effort: who hears nothing asks again.
    Tell(ProcessId, ProcessStanding),
    /// Stored.
    Timer(Timer),
    /// Stored, unless there is a later one.
    Show(BudgetView),
    /// Sent once on the feed of the cluster, best effort.
    News(EventBody),
}

impl Budget {
    /// An input for this account.
    pub fn input(
        account: &AccountKey,
        name: IdempotencyKey,
        sent: Timestamp,
        body: &BudgetInput,
    ) -> Result<Input, codec::CodecError> {
        Input::new(Self::KIND, &account.to_string(), name, sent, body)
    }
}

impl EntityKind for Budget {
    const KIND: Kind = Kind::BUDGET;
    /// A holder reports each second. What it says is known by its numbers, so an input needs to be
    /// remembered only as long as it may be delivered again.
    const MEMORY: InputMemory = InputMemory { least: 64, age: Duration::from_mins(5) };
    type State = BudgetState;
    type Event = BudgetEvent;
    type Effect = BudgetEffect;
    type Want = Infallible;
    type Grant = ();
    type Made = Infallible;
    type Job = BudgetJob;
    type Outcome = Infallible;

    fn born(state: &mut BudgetState, key: &str) -> Result<(), Violation> {
        key.parse::<AccountKey>().map_err(|error| Violation(error.to_string()))?;
        key.clone_into(&mut state.key);
        Ok(())
    }

    fn fold(state: &mut BudgetState, head: &Head, event: &BudgetEvent) -> Result<(), Violation> {
        state.n = head.n.0;
        let only_follows = state.only_follows(event);
        state.fold(event)?;
        if !only_follows {
            state.note_change(head.ts, event);
        }
        state.note_news(head, event);
        Ok(())
    }

    fn accept(state: &mut BudgetState, head: &Head, input: &Input) -> Result<(), Violation> {
        let body = codec::decode(&input.body).map_err(|error| Violation(error.to_string()))?;
        state.accept(head.n.0, head.ts, body);
        Ok(())
    }

    fn emitted(_: &mut BudgetState, _: TurnId) {}

    fn deleted(state: &mut BudgetState) {
        *state = BudgetState::default();
    }

    fn doomed(_: &BudgetState) -> bool {
        false
    }

    fn understands(input: &Input) -> bool {
        let key = input.key.parse::<AccountKey>();
        input.order.is_some() || key.is_ok() && codec::decode::<BudgetInput>(&input.body).is_ok()
    }

    /// An account that was never set answers no process: it would have no limit to hold.
    fn begins(input: &Input) -> bool {
        matches!(codec::decode(&input.body), Ok(BudgetInput::Set { .. }))
    }

    fn admits(_: &BudgetState, _: &Input) -> bool {
        true
    }

    fn advance(state: &BudgetState) -> Vec<BudgetEvent> {
        let Some(first) = state.next() else { return Vec::new() };
        let (mut events, mut next) = (vec![first], state.clone());
        while let Some(event) = events.last().filter(|_| events.len() < DECIDED_MOST) {
            if next.fold(event).is_err() {
                break;
            }
            let Some(event) = next.next() else { break };
            events.push(event);
        }
        events
    }

    fn decide(state: &BudgetState) -> Vec<BudgetEffect> {
        let told = state.told().into_iter().map(|(process, n)| BudgetEffect::Tell(process, n));
        let timer = state.due().map(BudgetEffect::Timer);
        let news = state.news().map(BudgetEffect::News);
        let shown = state.changed().map(BudgetEffect::Show);
        told.chain(timer).chain(shown).chain(news).collect()
    }

    fn class(_: &BudgetEffect) -> EffectKind {
        EffectKind::Publish
    }

    fn want(
        _: &BudgetState,
        _: &BudgetEffect,
        _: Option<&()>,
        _: &mut Option<Infallible>,
    ) -> Option<Infallible> {
        None
    }

    fn begin(
        _: &BudgetState,
        _: &BudgetEffect,
        (): &(),
        _: Option<Infallible>,
    ) -> Option<Begun<BudgetEvent, BudgetJob>> {
        None
    }

    fn prepare(state: &BudgetState, effect: &BudgetEffect, _: bool) -> Option<BudgetJob> {
        let account: AccountKey = state.key.parse().ok()?;
        match *effect {
            BudgetEffect::Tell(process, _) => {
                let (slices, answers) = (state.slices_of(process), state.answers_to(process));
                let (version, begun) = (state.n, state.begun);
                let standing = ProcessStanding { account, version, begun, slices, answers };
                Some(BudgetJob::Tell(process, standing))
            }
            BudgetEffect::Show(_) => Some(BudgetJob::Show(state.view(account))),
            BudgetEffect::News(n) => state.news_of(n).map(BudgetJob::News),
            BudgetEffect::Timer(due) => {
                let id = TimerId::of_window(EntityId::derive(Self::KIND, &state.key), due);
                let name = IdempotencyKey::of_timer(id);
                let fired = BudgetInput::TimerFired { due };
                let input = Self::input(&account, name, due, &fired).ok()?;
                Some(BudgetJob::Timer(Timer { id, due, input }))
            }
        }
    }

    fn refuse(_: &BudgetState, _: &BudgetEffect, outcome: Infallible) -> Vec<BudgetEvent> {
        match outcome {}
    }

    fn conclude(_: &BudgetState, _: &BudgetEffect, outcome: Infallible) -> Vec<BudgetEvent> {
        match outcome {}
    }

    fn view(input: &Input) -> Value {
        let input: Option<BudgetInput> = codec::decode(&input.body).ok();
        serde_json::to_value(input).unwrap_or_default()
    }
}
