//! What the model calls of one session used, and what its agent did: a fold over its events that keeps only what that
//! takes.

use clawnode_cluster::Record;
use clawnode_kernel::{Entity, FoldError, LoadedJournal};
use clawnode_proto::{
    AgentName, Attempt, CallId, CodecError, EntityId, Kind, Position, Sealed, SessionKey,
    Timestamp, TurnId,
    agent_work::AgentWork,
    api::CONVERSATION,
    event::decode_record,
    kernel::KernelEvent,
    llm::{ModelRef, Usage},
    money::MicroUsd,
    session::SessionEvent,
    usage::{CallEnd, Calls, NO_USER, UsageKey},
};
use tracing::warn;

use super::{agent_work::WorkMeter, cost::AttemptPrice};
use crate::session::{Session, turn::state_parts::compaction_state::Compaction};

/// Events of a session that are read here; all others are passed over unread.
const READ: [&str; 24] = [
    "born",
    ACCEPTED,
    "configured",
    "skills_activated",
    "budget_held",
    "compaction_begun",
    "compacted",
    "compaction_failed",
    "reflection_begun",
    "reflected",
    "reflection_failed",
    "model_begun",
    "model_done",
    "model_failed",
    "model_gave_way",
    "step_limit_reached",
    "step_planned",
    "approval_asked",
    "approval_given",
    "tool_asked",
    "tool_done",
    "tool_uncertain",
    "turn_done",
    "feedback_given",
];
/// An input, which may bring the result of a tool call.
const ACCEPTED: &str = "accepted";

/// Where a journal is, as far as its usage and the work of its agent go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Meter {
    /// The number of the last event that was taken.
    pub(super) n: u64,
    of: Of,
    /// The model as configured last.
    model: Option<ModelRef>,
    /// What the attempt that follows has reserved.
    held: Option<AttemptPrice>,
    /// The attempt under way.
    open: Option<OpenCall>,
    pub(super) work: WorkMeter,
}

/// Whose journal it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Of {
    #[default]
    Unborn,
    Session(SessionKey),
    /// An entity that calls no models.
    Other,
}

/// How an attempt has ended.
struct MeteredEnd {
    call: CallId,
    attempt: Attempt,
    /// The model that has answered; empty if none has.
    answered: String,
    end: CallEnd,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct OpenCall {
    turn: TurnId,
    call: CallId,
    attempt: Attempt,
    model: ModelRef,
    held: Option<AttemptPrice>,
}

/// What is to be counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CountedEvent {
    Call(CountedCall),
    Work(CountedWork),
}

/// What an agent did, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CountedWork {
    pub(super) at: Timestamp,
    pub(super) agent: AgentName,
    pub(super) work: AgentWork,
}

/// An attempt that is to be counted, and when it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CountedCall {
    pub(super) at: Timestamp,
    pub(super) key: UsageKey,
    /// Absent if it was never begun.
    pub(super) turn: Option<TurnId>,
    pub(super) call: CallId,
    pub(super) attempt: Attempt,
    pub(super) end: CallEnd,
    pub(super) usage: Usage,
    /// Absent if its price is not journaled.
    pub(super) cost: Option<MicroUsd>,
}

// === impl CountedEvent ===

impl CountedEvent {
    pub(super) fn call(self) -> Option<CountedCall> {
        match self {
            Self::Call(call) => Some(call),
            Self::Work(_) => None,
        }
    }
}

// === impl OpenCall ===

impl OpenCall {
    /// The call of a summary or a reflection, if it is under way.
    fn aside(turn: TurnId, open: &Compaction) -> Option<Self> {
        let (call, attempt, model) = (open.call, open.attempt, open.asked.as_ref()?.model.clone());
        open.end.is_none().then_some(Self { turn, call, attempt, model, held: None })
    }
}

// === impl CountedCall ===

impl CountedCall {
    /// It as a count.
    pub(super) fn calls(&self) -> Calls {
        let (cost, unpriced) = (self.cost.unwrap_or_default(), u64::from(self.cost.is_none()));
        let counted = Calls { cost, unpriced, ..Calls::default() };
        match self.end {
            CallEnd::Done => Calls { done: 1, usage: self.usage, ..counted },
            CallEnd::Failed => Calls { failed: 1, wasted: self.usage, ..counted },
            CallEnd::GaveWay => Calls { gave_way: 1, wasted: self.usage, ..counted },
            CallEnd::Lost => Calls { lost: 1, ..counted },
        }
    }
}

// === impl Meter ===

impl Meter {
    /// Where a journal was before the snapshot that it begins with.
    pub(super) fn at_snapshot(id: EntityId, begin: &LoadedJournal) -> Result<Self, FoldError> {
        let entity = Entity::<Session>::of(id, begin)?;
        let snapshot = begin.records.first().and_then(|record| decode_record(&record.bytes).ok());
        let n = snapshot.and_then(|events| Some(events.first()?.head.n.0));
        let state = entity.state;
        let work = WorkMeter::of(&state);
        let model = state.profile.map(|profile| profile.model);
        let running = state.open.front();
        let step = running.and_then(|turn| Some((turn.id, turn.steps.last()?)));
        let open = step.filter(|(_, step)| step.end.is_none() && !step.has_given_way(step.attempt));
        let open = open.and_then(|(turn, step)| {
            // The configuration may have changed since that call began.
            let model = step.model.clone().or_else(|| model.clone())?;
            let (call, attempt) = (step.call, step.attempt);
            // A state has no price: `find_hold` looks for it in what the snapshot replaced.
            Some(OpenCall { turn, call, attempt, model, held: None })
        });
        let asked = running.and_then(|turn| OpenCall::aside(turn.id, turn.compaction.as_deref()?));
        let reflecting = state.reflections.open();
        let reflecting =
            reflecting.and_then(|open| OpenCall::aside(open.asked.as_ref()?.upto, open));
        let open = open.or(asked).or(reflecting);
        Ok(Self {
            n: n.unwrap_or_default().saturating_sub(1),
            of: state.key.map_or(Of::Unborn, Of::Session),
            open,
            held: None,
            model,
            work,
        })
    }

    /// An entity of another kind.
    pub(super) fn other(n: u64) -> Self {
        Self { n, of: Of::Other, ..Self::default() }
    }

    /// Whether the price of the attempt under way may be in records before these.
    pub(super) fn lacks_hold(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.held.is_none())
    }

    /// Looks for what the attempt under way has reserved; says whether its beginning is in these records.
    pub(super) fn find_hold(&mut self, records: &[Record]) -> bool {
        let Some(open) = &mut self.open else { return true };
        let mut last = None;
        let events = records.iter().flat_map(|record| decode_record(&record.bytes));
        for sealed in events.flatten().filter(|event| READ.contains(&event.head.kind.as_str())) {
            let Ok(Some(event)) = sealed.event::<SessionEvent>() else { continue };
            let begun = match event {
                SessionEvent::BudgetHeld(held) => {
                    last = Some(AttemptPrice::of(&held));
                    continue;
                }
                SessionEvent::ModelBegun(begun) => (begun.call, begun.attempt),
                SessionEvent::CompactionBegun(begun) => (begun.call, begun.attempt),
                SessionEvent::ReflectionBegun(begun) => (begun.call, begun.attempt),
                _ => continue,
            };
            if begun == (open.call, open.attempt) {
                open.held = last.filter(|held| held.is_of(open.call, open.attempt));
                return true;
            }
        }
        false
    }

    /// Takes one event, and says what is to be counted by it.
    pub(super) fn take(&mut self, sealed: &Sealed) -> Result<Vec<CountedEvent>, CodecError> {
        self.n = sealed.head.n.0;
        let kind = sealed.head.kind.as_str();
        let is_passed_over = kind == ACCEPTED && !self.work.awaits_result();
        if is_passed_over || matches!(self.of, Of::Other) || !READ.contains(&kind) {
            return Ok(Vec::new());
        }
        match sealed.event()? {
            Some(KernelEvent::Born(born)) => {
                let key = Some(born.key).filter(|_| born.kind == Kind::SESSION);
                self.of = key.and_then(|key| key.parse().ok()).map_or(Of::Other, Of::Session);
                return Ok(Vec::new());
            }
            Some(KernelEvent::Accepted(accepted)) => {
                self.work.accepted(&accepted.input)?;
                return Ok(Vec::new());
            }
            _ => {}
        }
        let Some(event) = sealed.event::<SessionEvent>()? else { return Ok(Vec::new()) };
        let at = sealed.head.ts;
        let work = self.work.take(&sealed.head, &event).zip(self.agent());
        let work = work.map(|(work, agent)| CountedEvent::Work(CountedWork { at, agent, work }));
        let calls = self.judge(at, event).into_iter().map(CountedEvent::Call);
        Ok(calls.chain(work).collect())
    }

    fn judge(&mut self, at: Timestamp, event: SessionEvent) -> Vec<CountedCall> {
        let mut counted = Vec::new();
        match event {
            SessionEvent::Configured(profile) => self.model = Some(profile.model),
            SessionEvent::BudgetHeld(held) => self.held = Some(AttemptPrice::of(&held)),
            SessionEvent::ModelBegun(begun) => {
                counted.extend(self.lose(at));
                let (turn, call, attempt) = (begun.turn, begun.call, begun.attempt);
                let held = self.held.take().filter(|held| held.is_of(call, attempt));
                let open = |model| OpenCall { turn, call, attempt, model, held };
                self.open = self.model.clone().map(open);
            }
            SessionEvent::CompactionBegun(begun) => {
                counted.extend(self.lose(at));
                let (turn, call, attempt) = (begun.turn, begun.call, begun.attempt);
                let held = self.held.take().filter(|held| held.is_of(call, attempt));
                self.open = Some(OpenCall { turn, call, attempt, model: begun.model, held });
            }
            SessionEvent::Compacted(compacted) => {
                let (call, attempt, answered) = (compacted.call, compacted.attempt, String::new());
                let ended = MeteredEnd { call, attempt, answered, end: CallEnd::Done };
                counted.extend(self.end(at, ended, compacted.usage));
            }
            SessionEvent::CompactionFailed(failed) => {
                counted.extend(self.fail(at, failed.call, failed.attempt, failed.usage));
            }
            SessionEvent::ReflectionBegun(begun) => {
                counted.extend(self.lose(at));
                let (turn, call, attempt) = (begun.turn, begun.call, begun.attempt);
                let held = self.held.take().filter(|held| held.is_of(call, attempt));
                self.open = Some(OpenCall { turn, call, attempt, model: begun.model, held });
            }
            SessionEvent::Reflected(done) => {
                let (call, attempt, answered) = (done.call, done.attempt, String::new());
                let ended = MeteredEnd { call, attempt, answered, end: CallEnd::Done };
                counted.extend(self.end(at, ended, done.usage));
            }
            SessionEvent::ReflectionFailed(failed) => {
                counted.extend(self.fail(at, failed.call, failed.attempt, failed.usage));
            }
            SessionEvent::ModelDone(done) => {
                let (call, attempt, answered) = (done.call, done.attempt, done.model);
                let ended = MeteredEnd { call, attempt, answered, end: CallEnd::Done };
                counted.extend(self.end(at, ended, done.usage));
            }
            SessionEvent::ModelFailed(failed) => {
                let (call, attempt, answered) = (failed.call, failed.attempt, String::new());
                let ended = MeteredEnd { call, attempt, answered, end: CallEnd::Failed };
                counted.extend(self.end(at, ended, failed.usage));
            }
            SessionEvent::ModelGaveWay(gave_way) => {
                let (call, attempt, answered) = (gave_way.call, gave_way.attempt, String::new());
                let ended = MeteredEnd { call, attempt, answered, end: CallEnd::GaveWay };
                counted.extend(self.end(at, ended, gave_way.usage));
            }
            // A turn that waits may end before the one that runs.
            SessionEvent::TurnDone(done)
                if self.open.as_ref().is_some_and(|open| open.turn == done.turn) =>
            {
                counted.extend(self.lose(at));
            }
            _ => {}
        }
        counted
    }

    /// The attempt under way has no outcome and will have none. It counts where that shows, which is the
    /// same wherever a follower begins.
    fn lose(&mut self, at: Timestamp) -> Option<CountedCall> {
        let OpenCall { turn, call, attempt, model, held } = self.open.take()?;
        let key = self.key(model, String::new())?;
        let cost = AttemptPrice::cost(held.as_ref(), None);
        let (turn, end, usage) = (Some(turn), CallEnd::Lost, Usage::default());
        Some(CountedCall { at, key, turn, call, attempt, end, usage, cost })
    }

    /// A call of a summary or a reflection fails.
    fn fail(
        &mut self,
        at: Timestamp,
        call: CallId,
        attempt: Attempt,
        usage: Usage,
    ) -> Option<CountedCall> {
        if attempt == Attempt(0) {
            // None was made, or the last one was interrupted and no other one is made.
            return self.lose(at);
        }
        let (answered, end) = (String::new(), CallEnd::Failed);
        self.end(at, MeteredEnd { call, attempt, answered, end }, usage)
    }

    fn end(&mut self, at: Timestamp, ended: MeteredEnd, usage: Usage) -> Option<CountedCall> {
        let MeteredEnd { call, attempt, answered, end } = ended;
        // A call may be refused before it was begun.
        let begun = self.open.take().filter(|open| open.call == call);
        let (turn, model, held) = match begun {
            Some(OpenCall { turn, model, held, .. }) => (Some(turn), model, held),
            None => (None, self.model.clone()?, None),
        };
        let key = self.key(model, answered)?;
        let cost = AttemptPrice::cost(held.as_ref(), Some(&usage));
        Some(CountedCall { at, key, turn, call, attempt, end, usage, cost })
    }

    fn agent(&self) -> Option<AgentName> {
        let Of::Session(key) = &self.of else { return None };
        Some(key.agent.clone())
    }

    fn key(&self, model: ModelRef, answered: String) -> Option<UsageKey> {
        let Of::Session(key) = &self.of else { return None };
        Some(UsageKey { agent: key.agent.clone(), user: user_of(key), model, answered })
    }
}

/// Follows a journal by records that go on where it is; nothing, if they do not, or are damaged.
pub(super) fn gone_on(
    mut meter: Meter,
    records: &[Record],
) -> Option<(Meter, Vec<(Position, CountedEvent)>)> {
    let mut all = Vec::new();
    for record in records {
        for sealed in decode_record(&record.bytes).ok()? {
            // A snapshot has a number of its own, so it goes on if all before it was followed.
            if sealed.head.n.0 != meter.n + 1 {
                return None;
            }
            match meter.take(&sealed) {
                Ok(counted) => all.extend(counted.into_iter().map(|one| (record.position, one))),
                Err(failure) => skip(&failure),
            }
        }
    }
    Some((meter, all))
}

fn skip(failure: &CodecError) {
    warn!(%failure, "an event is not counted: a newer build wrote it");
}

/// Who speaks in a session. All conversations of a person are one user's.
fn user_of(key: &SessionKey) -> String {
    if key.is_stateless() {
        return NO_USER.to_owned();
    }
    let peer = key.peer.as_str();
    let person = peer.split_once(CONVERSATION).map_or(peer, |(person, _)| person);
    format!("{}:{}:{person}", key.channel, key.account)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::played::PlayedActivation;

    /// A call is counted for the model that was asked, however soon another is configured.
    #[test]
    fn a_reload_in_mid_call_changes_no_name() {
        let mut run = PlayedActivation::new(&[], Vec::new());
        run.says("hi");
        run.reload("sim/other");
        // No tool takes that, so the model is asked again.
        run.replies(&[("look", "{}")]);
        run.replies(&[]);
        let mut meter = Meter::default();
        let events = run.journal.iter().flat_map(|record| decode_record(&record.bytes).unwrap());
        let counted = events.flat_map(|sealed| meter.take(&sealed).unwrap());
        let calls = counted.filter_map(CountedEvent::call);
        let models: Vec<String> = calls.map(|call| call.key.model.to_string()).collect();
        assert_eq!(models, ["sim/model", "sim/other"]);
    }

    #[test]
    fn conversations_of_a_person_are_one_users() {
        let once = format!("default:openai:default:once-{}", "0".repeat(32));
        for (key, user) in [
            ("default:cli:local:ada", "cli:local:ada"),
            ("default:cli:local:ada~20261125-1", "cli:local:ada"),
            ("default:openai:default:ada", "openai:default:ada"),
            (once.as_str(), NO_USER),
        ] {
            assert_eq!(user_of(&key.parse().unwrap()), user, "{key}");
        }
    }
}
