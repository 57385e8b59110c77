//! What the model calls of one session used: a fold over its events that keeps only what that takes.

use clawnode_kernel::{Entity, FoldError, LoadedJournal};
use clawnode_proto::{
    CallId, CodecError, EntityId, Kind, Sealed, SessionKey, Timestamp, TurnId,
    api::CONVERSATION,
    event::decode_record,
    kernel::KernelEvent,
    llm::ModelRef,
    session::SessionEvent,
    usage::{Calls, NO_USER, UsageKey},
};

use crate::session::Session;

/// Events of a session that are read here; all others are passed over unread.
const READ: [&str; 7] = [
    "born",
    "configured",
    "model_begun",
    "model_done",
    "model_failed",
    "model_gave_way",
    "turn_done",
];

/// Where a journal is, as far as its usage goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Meter {
    /// The number of the last event that was taken.
    pub(super) n: u64,
    of: Of,
    /// The model as configured last.
    model: Option<ModelRef>,
    /// The attempt under way.
    open: Option<OpenCall>,
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

#[derive(Clone, Debug, PartialEq, Eq)]
struct OpenCall {
    turn: TurnId,
    call: CallId,
    model: ModelRef,
}

/// Calls that are to be counted, and when they ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CountedCalls {
    pub(super) at: Timestamp,
    pub(super) key: UsageKey,
    pub(super) calls: Calls,
}

// === impl Meter ===

impl Meter {
    /// Where a journal was before the snapshot that it begins with.
    pub(super) fn at_snapshot(id: EntityId, begin: &LoadedJournal) -> Result<Self, FoldError> {
        let entity = Entity::<Session>::of(id, begin)?;
        let snapshot = begin.records.first().and_then(|record| decode_record(&record.bytes).ok());
        let n = snapshot.and_then(|events| Some(events.first()?.head.n.0));
        let state = entity.state;
        let model = state.profile.map(|profile| profile.model);
        let running = state.open.front();
        let step = running.and_then(|turn| Some((turn.id, turn.steps.last()?)));
        let open = step.filter(|(_, step)| step.end.is_none() && !step.has_given_way(step.attempt));
        let open = open.and_then(|(turn, step)| {
            // The configuration may have changed since that call began.
            let model = step.model.clone().or_else(|| model.clone())?;
            Some(OpenCall { turn, call: step.call, model })
        });
        Ok(Self {
            n: n.unwrap_or_default().saturating_sub(1),
            of: state.key.map_or(Of::Unborn, Of::Session),
            open,
            model,
        })
    }

    /// An entity of another kind.
    pub(super) const fn other(n: u64) -> Self {
        Self { n, of: Of::Other, model: None, open: None }
    }

    /// Takes one event, and says what is to be counted by it.
    pub(super) fn take(&mut self, sealed: &Sealed) -> Result<Vec<CountedCalls>, CodecError> {
        self.n = sealed.head.n.0;
        if matches!(self.of, Of::Other) || !READ.contains(&sealed.head.kind.as_str()) {
            return Ok(Vec::new());
        }
        if let Some(KernelEvent::Born(born)) = sealed.event()? {
            let key = Some(born.key).filter(|_| born.kind == Kind::SESSION);
            self.of = key.and_then(|key| key.parse().ok()).map_or(Of::Other, Of::Session);
            return Ok(Vec::new());
        }
        let Some(event) = sealed.event::<SessionEvent>()? else { return Ok(Vec::new()) };
        Ok(self.judge(sealed.head.ts, event))
    }

    fn judge(&mut self, at: Timestamp, event: SessionEvent) -> Vec<CountedCalls> {
        let mut counted = Vec::new();
        match event {
            SessionEvent::Configured(profile) => self.model = Some(profile.model),
            SessionEvent::ModelBegun(begun) => {
                counted.extend(self.lose(at));
                let open = |model| OpenCall { turn: begun.turn, call: begun.call, model };
                self.open = self.model.clone().map(open);
            }
            SessionEvent::ModelDone(done) => {
                let calls = Calls { done: 1, usage: done.usage, ..Calls::default() };
                counted.extend(self.end(at, done.call, done.model, calls));
            }
            SessionEvent::ModelFailed(failed) => {
                let calls = Calls { failed: 1, wasted: failed.usage, ..Calls::default() };
                counted.extend(self.end(at, failed.call, String::new(), calls));
            }
            SessionEvent::ModelGaveWay(it) => {
                let calls = Calls { gave_way: 1, wasted: it.usage, ..Calls::default() };
                counted.extend(self.end(at, it.call, String::new(), calls));
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
    fn lose(&mut self, at: Timestamp) -> Option<CountedCalls> {
        let open = self.open.take()?;
        let calls = Calls { lost: 1, ..Calls::default() };
        self.counted(at, open.model, String::new(), calls)
    }

    fn end(
        &mut self,
        at: Timestamp,
        call: CallId,
        answered: String,
        calls: Calls,
    ) -> Option<CountedCalls> {
        // A call may be refused before it was begun.
        let begun = self.open.take().filter(|open| open.call == call).map(|open| open.model);
        let model = begun.or_else(|| self.model.clone())?;
        self.counted(at, model, answered, calls)
    }

    fn counted(
        &self,
        at: Timestamp,
        model: ModelRef,
        answered: String,
        calls: Calls,
    ) -> Option<CountedCalls> {
        let Of::Session(key) = &self.of else { return None };
        let user = user_of(key);
        let key = UsageKey { agent: key.agent.clone(), user, model, answered };
        Some(CountedCalls { at, key, calls })
    }
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
        let models: Vec<String> = counted.map(|it| it.key.model.to_string()).collect();
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
