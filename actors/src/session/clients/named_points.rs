//! The points that calls of `forget` name by their ids, in words: for the people who decide about these calls.
//!
//! They are read from the memory each time that they are shown. A copy with the question would outlast the point.

use std::time::Duration;

use clawnode_kernel::{Entity, Service};
use clawnode_memory::{Memory, points::MemoryState};
use clawnode_proto::{
    AgentName, ErrorChain, MemoryPointId,
    id::KeyPart,
    json,
    memory::{FORGET, MemoryKey, MemoryLayer, MemoryTrust},
    memory_point::PointContent,
    policy::{Action, Approval},
};
use tokio::time::{Instant, timeout_at};

use super::sessions::Sessions;
use crate::session::turn::tools::memory_tool_calls::{MemoryCall, target};

/// How long those who ask, and those who show questions, wait for memories.
const LOOK_WITHIN: Duration = Duration::from_secs(5);

/// Characters of a point's text that people are shown.
const ABOUT_CHARS: usize = 200;

/// A memory as its journal has it; nothing if it has not begun.
pub(in crate::session) type FoundMemory = Option<Box<Entity<Memory>>>;

/// What is left of a point that nothing shows any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) enum PointRemnant {
    /// Its id alone.
    Id,
    /// Its text, until the journal of the memory is purged within the hour.
    TextUntilPurge,
    /// Its text, in the journal alone: it left the memory long ago, and no purge is due.
    TextInJournal,
}

// === impl PointRemnant ===

impl PointRemnant {
    /// Nothing if the memory shows the point, or does not know it.
    pub(in crate::session) fn of(state: &MemoryState, point: MemoryPointId) -> Option<Self> {
        state.is_gone(point).then(|| {
            if state.is_to_be_purged() {
                Self::TextUntilPurge
            } else if state.has_text(point) {
                Self::TextInJournal
            } else {
                Self::Id
            }
        })
    }

    /// For models and people. Only what its journal does not have is called forgotten.
    pub(in crate::session) fn words(self, point: MemoryPointId) -> String {
        match self {
            Self::Id => format!("`{point}` is forgotten"),
            Self::TextUntilPurge => format!(
                "`{point}` is not recalled any more, and its text leaves the journal of the memory within an hour"
            ),
            Self::TextInJournal => {
                format!("`{point}` left the memory long ago, and the journal may have its text")
            }
        }
    }
}

// === impl Sessions ===

impl Sessions {
    /// Adds to these calls what their arguments only name. `shared`: the memories that an agent has in common with
    /// others; nothing if it has no memory.
    pub async fn name_points(
        &self,
        approvals: &mut [Approval],
        shared: impl Fn(&AgentName) -> Option<Vec<KeyPart>> + Send,
    ) {
        let until = Instant::now() + LOOK_WITHIN;
        for approval in approvals {
            if let Some(shared) = shared(&approval.action.session.agent) {
                let named = self.named_point(&approval.action, &shared, until).await;
                // What is gone by now, people read in the place of the point.
                approval.about = named.unwrap_or_else(Some);
            }
        }
    }

    /// Why a call of `forget` could not take anything away, for the model to read.
    pub(in crate::session) async fn takes_nothing(
        &self,
        action: &Action,
        shared: &[KeyPart],
    ) -> Option<String> {
        self.named_point(action, shared, Instant::now() + LOOK_WITHIN).await.err()
    }

    /// A memory as its journal has it, or why that cannot be read.
    pub(in crate::session) async fn memory(&self, key: &MemoryKey) -> Result<FoundMemory, String> {
        let loaded = self.entities().load(key.entity()).await;
        let loaded = loaded.map_err(|failure| ErrorChain(&failure).to_string())?;
        if loaded.records.is_empty() {
            return Ok(None);
        }
        let memory = Entity::<Memory>::of(key.entity(), &loaded);
        let memory = memory.map_err(|failure| ErrorChain(&failure).to_string())?;
        match &memory.core.service {
            Service::Active => Ok(Some(Box::new(memory))),
            Service::Deleted => Ok(None),
            Service::Quarantined { reason } => {
                Err(format!("the memory is out of service: {reason}"))
            }
        }
    }

    /// What a call of `forget` takes away, in a line; nothing for other calls. `Err`: why it can take nothing away.
    async fn named_point(
        &self,
        action: &Action,
        shared: &[KeyPart],
        until: Instant,
    ) -> Result<Option<String>, String> {
        if action.capability.is_some() || action.tool.as_str() != FORGET {
            return Ok(None);
        }
        let asked = json::read_object(&action.arguments).map(|all| MemoryCall::of(FORGET, all));
        let Some(Ok(MemoryCall::Forget { point, scope })) = asked else { return Ok(None) };
        let key = target(&action.session, shared, scope.as_deref())?;
        match timeout_at(until, self.memory(&key)).await {
            Ok(Ok(found)) => {
                in_a_line(found.as_ref().map(|found| &found.state), &key, point, scope.is_some())
                    .map(Some)
            }
            // A person may know better what is to be done now.
            Ok(Err(_)) | Err(_) => {
                Ok(Some(format!("a point of `{key}`, which cannot be read now")))
            }
        }
    }
}

/// What a point says that is shown.
pub(in crate::session) fn content_of(
    state: &MemoryState,
    id: MemoryPointId,
) -> Option<&PointContent> {
    let live = state.live().map(|kept| (kept.id, &kept.point));
    let mut all = live.chain(state.past().map(|past| (past.id, &past.point)));
    all.find(|(one, _)| *one == id).map(|(_, point)| &point.content)
}

/// Why a call does not take away what this one said, if that is so. `is_for_others`: it names what others are shown, too.
pub(in crate::session) fn protection(
    point: MemoryPointId,
    trust: MemoryTrust,
    is_for_others: bool,
) -> Option<String> {
    (trust == MemoryTrust::Operator && !is_for_others)
        .then(|| format!("an operator wrote `{point}`, and only operators make it forgotten"))
}

/// A point in a line, or why it cannot be forgotten.
fn in_a_line(
    state: Option<&MemoryState>,
    key: &MemoryKey,
    point: MemoryPointId,
    is_for_others: bool,
) -> Result<String, String> {
    if let Some(content) = state.and_then(|state| content_of(state, point)) {
        if let Some(why) = protection(point, content.trust, is_for_others) {
            return Err(why);
        }
        let layer = match content.layer {
            MemoryLayer::Semantic => "semantic",
            MemoryLayer::Procedural => "procedural",
            MemoryLayer::Social => "social",
            MemoryLayer::Episode => "episode",
        };
        let line = content.text.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut text: String = line.chars().take(ABOUT_CHARS).collect();
        if text.len() < line.len() {
            text.push('…');
        }
        return Ok(format!("{layer} point of `{key}`: {text}"));
    }
    match state.and_then(|state| PointRemnant::of(state, point)) {
        // The call has the journal purged.
        Some(PointRemnant::TextInJournal) => {
            Ok(format!("a point of `{key}` that left it long ago; its journal may have the text"))
        }
        Some(remnant) => Err(remnant.words(point)),
        None => {
            Err(format!("there is no point `{point}` in `{key}`: `recall` shows the ids there are"))
        }
    }
}

#[cfg(test)]
mod tests {
    use clawnode_kernel::EntityKind as _;
    use clawnode_proto::{
        EntityId, Epoch, EventId, Head, Incarnation, ProcessId, Seq, Timestamp,
        limits::MEMORY_PAST_POINTS,
        memory::MemorySource,
        memory_point::{LearnedPoint, MemoryInput},
    };

    use super::*;

    fn source(event: u64) -> MemorySource {
        MemorySource { entity: EntityId::from_u128(7), event, part: 0, at: Timestamp(1) }
    }

    fn said(event: u64, text: &str, trust: MemoryTrust) -> LearnedPoint {
        let content = PointContent {
            layer: MemoryLayer::Social,
            text: text.to_owned(),
            subject: None,
            predicate: None,
            object: None,
            confidence: 100,
            importance: 5,
            trust,
        };
        LearnedPoint { content, source: Some(source(event)) }
    }

    /// What a memory is that was sent these.
    fn sent(key: &MemoryKey, bodies: &[MemoryInput]) -> MemoryState {
        let mut state = MemoryState::default();
        Memory::born(&mut state, &key.to_string()).unwrap();
        for (n, body) in (1..).zip(bodies) {
            let incarnation = Incarnation { process: ProcessId::from_u128(1), counter: 1 };
            let head = Head {
                entity: key.entity(),
                n: Seq(n),
                v: 1,
                eid: EventId::derive(key.entity(), incarnation, Seq(n)),
                epoch: Epoch(1),
                incarnation,
                ts: Timestamp(n),
                kind: String::new(),
                required: true,
                progress: true,
            };
            let name = format!("input-{n}").parse().unwrap();
            let input = Memory::input(key, name, Timestamp(n), body).unwrap();
            Memory::accept(&mut state, &head, &input).unwrap();
            loop {
                let events = Memory::advance(&state);
                if events.is_empty() {
                    break;
                }
                for event in events {
                    Memory::fold(&mut state, &head, &event).unwrap();
                }
            }
        }
        state
    }

    #[test]
    fn people_read_a_point_in_a_line_and_models_why_there_is_none() {
        let key: MemoryKey = "shared/team".parse().unwrap();
        let long = format!("tea\n is\u{202e} {}", "x".repeat(ABOUT_CHARS));
        let points = vec![
            said(1, &long, MemoryTrust::Person),
            said(2, "Coffee is at six.", MemoryTrust::Operator),
            said(3, "Ada is the captain.", MemoryTrust::Agent),
        ];
        let [person, operator, gone] = [1, 2, 3].map(|event| source(event).point());
        let forget = MemoryInput::Forget { points: vec![gone], by: "ada".to_owned(), now: false };
        let state = sent(&key, &[MemoryInput::Put { points }, forget]);
        let line = |point, is_for_others| in_a_line(Some(&state), &key, point, is_for_others);

        let text = line(person, false).unwrap();
        let begins = "social point of `shared/team`: tea is\u{202e} xxx";
        assert!(text.starts_with(begins) && text.ends_with("x…"), "{text}");
        let (_, text) = text.split_once(": ").unwrap();
        assert_eq!(text.chars().count(), ABOUT_CHARS + 1);
        let coffee = "social point of `shared/team`: Coffee is at six.";
        assert_eq!(line(operator, true).unwrap(), coffee);
        for (refused, says) in [
            (line(operator, false), "only operators make it forgotten"),
            (line(gone, true), "its text leaves the journal of the memory within an hour"),
            (line(source(4).point(), true), "there is no point"),
            (in_a_line(None, &key, person, true), "there is no point"),
        ] {
            let why = refused.unwrap_err();
            let has_text = ["xxx", "Coffee", "captain"].iter().any(|text| why.contains(text));
            assert!(why.contains(says) && !has_text, "{why}");
        }
    }

    #[test]
    fn only_a_point_without_a_text_in_the_journal_is_called_forgotten() {
        let key: MemoryKey = "shared/team".parse().unwrap();
        let captain = |event: u64| {
            let mut learned = said(event, &format!("{event} is the captain."), MemoryTrust::Person);
            learned.content.subject = Some("team".to_owned());
            learned.content.predicate = Some("captain".to_owned());
            learned
        };
        // Each supersedes the one before, and more than the memory still shows are superseded.
        let most = u64::try_from(MEMORY_PAST_POINTS).unwrap() + 2;
        let all: Vec<LearnedPoint> = (1..=most).map(captain).collect();
        let puts = all.chunks(60).map(|some| MemoryInput::Put { points: some.to_vec() });
        let mut bodies: Vec<MemoryInput> = puts.collect();
        let first = source(1).point();
        let state = sent(&key, &bodies);
        assert!(content_of(&state, first).is_none());
        assert_eq!(PointRemnant::of(&state, first), Some(PointRemnant::TextInJournal));
        let line = in_a_line(Some(&state), &key, first, true).unwrap();
        assert!(line.contains("its journal may have the text"), "{line}");

        bodies.push(MemoryInput::Forget { points: vec![first], by: "ada".to_owned(), now: false });
        let mut state = sent(&key, &bodies);
        assert!(state.purge_due().is_some());
        assert_eq!(PointRemnant::of(&state, first), Some(PointRemnant::TextUntilPurge));
        Memory::purged(&mut state);
        assert_eq!(PointRemnant::of(&state, first), Some(PointRemnant::Id));
        let why = in_a_line(Some(&state), &key, first, true).unwrap_err();
        assert!(why.contains("is forgotten"), "{why}");
    }
}
