//! Points of memories: what is learned, what a memory is sent, and what it records.

use serde::{Deserialize, Serialize};

use crate::{
    grammar,
    id::{EntityId, InputId, MemoryPointId, TimerId, TurnId, derive},
    limits::{MEMORY_NAME_CHARS, MEMORY_TEXT_CHARS},
    memory::{MemoryLayer, MemorySource, MemoryTrust},
    timestamp::Timestamp,
};

/// The least and the most importance of a point.
pub const IMPORTANCE: (u8, u8) = (1, 10);
/// The importance of a point unless it is given.
pub const IMPORTANCE_DEFAULT: u8 = 5;
/// The most confidence in a point, in percent; also the default.
pub const CONFIDENCE_MOST: u8 = 100;

/// The bit that a part has which is of another cluster. An event gives fewer parts of its own.
const ASIDE: u32 = 1 << 31;
/// Points that one event gives at most.
const PARTS: u32 = 64;

/// What a point says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PointContent {
    /// What kind of thing it says.
    pub layer: MemoryLayer,
    /// The sentence that a model is shown.
    pub text: String,
    /// What it is about. A later point with the same subject and predicate supersedes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// What it says of the subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicate: Option<String>,
    /// The value that it gives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// How certain it is, in percent.
    pub confidence: u8,
    /// How much it matters, 1 to 10.
    pub importance: u8,
    /// Who said it.
    pub trust: MemoryTrust,
}

/// A point that a memory is to have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LearnedPoint {
    /// What it says.
    pub content: PointContent,
    /// The event that it was learned from. Absent: the input that brings it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<MemorySource>,
}

/// A point as a memory has it. Its id follows from its source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemoryPoint {
    /// What it says.
    pub content: PointContent,
    /// The event that it was learned from.
    pub source: MemorySource,
}

/// What a memory may be sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum MemoryInput {
    /// Adds points. One whose source has been told before adds nothing.
    Put {
        /// At most 64.
        points: Vec<LearnedPoint>,
    },
    /// Adds points whose sources a person names: those of an export. A source is known by its time, too: journals of two
    /// clusters have the same entities and small numbers of events. From this input on, `Put` looks at the time as well.
    Import {
        /// At most 64.
        points: Vec<LearnedPoint>,
    },
    /// Masks points: they are not shown and not recalled any more.
    Forget {
        /// Those to mask.
        points: Vec<MemoryPointId>,
        /// Who wants it.
        by: String,
        /// Whether the journal is purged at once. If not, it is purged within an hour.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        now: bool,
    },
    /// Masks the points that were learned from an entity: it was deleted.
    ForgetSource {
        /// The entity, a session.
        source: EntityId,
        /// Who wants it.
        by: String,
        /// When it began, since its last deletion. What was learned before is of an entity of another cluster. Absent: not
        /// known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        since: Option<Timestamp>,
        /// The time of its last event. What was learned later is of another cluster, too. Absent: not known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
    },
    /// Moves the importance of points: a person has said what they think of a turn that was shown them.
    Rate(PointsRating),
    /// Deletes the memory with its journal.
    Delete {},
    /// The timer of the daily consolidation or of a purge has fired.
    TimerFired {
        /// When it was due.
        due: Timestamp,
    },
}

grammar! {
    /// What happens to a memory. Its inputs are journaled by the kernel; an event is written where something is
    /// decided.
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    pub enum MemoryEvent {
        /// It has a point more, which may supersede others.
        Added(PointAdded) = "memory_added", required, progress;
        /// A point was not added.
        Refused(PointRefused) = "memory_refused", required, progress;
        /// Points are not shown and not recalled any more.
        Masked(PointsMasked) = "memory_masked", required, progress;
        /// Points have left the live ones, so that others have room.
        Consolidated(PointsConsolidated) = "memory_consolidated", required, progress;
        /// The importance of points has moved by feedback.
        Rated(PointsRated) = "memory_rated", required, progress;
    }
}

/// A memory has a point more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PointAdded {
    /// Live from this event on, unless another one supersedes it.
    pub point: MemoryPoint,
    /// The live points that say something else of the same subject and predicate. From this event on they are not
    /// recalled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub supersedes: Vec<MemoryPointId>,
    /// The live point that says something else of the same subject and predicate, and was learned later: an import brought
    /// what is older. The point is never live then, and supersedes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superseded_by: Option<MemoryPointId>,
}

/// A point was not added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PointRefused {
    /// The point that the source would have given.
    pub point: MemoryPointId,
    /// Whether there is no room for it, or it breaks a limit.
    pub reason: PointRefusal,
}

/// Why a point was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PointRefusal {
    /// The memory is full of points that consolidation does not remove: persons and operators said them.
    Full,
    /// The point breaks a limit.
    Invalid,
}

/// Points are masked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PointsMasked {
    /// Not live from this event on. A purge of the journal removes their texts.
    pub points: Vec<MemoryPointId>,
    /// Who wanted it.
    pub by: String,
}

/// Points have left the live ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PointsConsolidated {
    /// Those that say the same as another one, with the one that stays.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub joined: Vec<JoinedPoint>,
    /// Those that mattered least.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub archived: Vec<MemoryPointId>,
    /// Whether it was the daily one, or the last of several of one day.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub daily: bool,
}

/// A point says the same as another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JoinedPoint {
    /// The one that leaves.
    pub point: MemoryPointId,
    /// The one that stays.
    pub into: MemoryPointId,
}

/// What a memory is sent about points that a turn was shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PointsRating {
    /// The input of the session that brought the feedback. The same one has no effect a second time.
    pub feedback: InputId,
    /// The session that has the turn.
    pub session: EntityId,
    /// The turn that was shown the points.
    pub turn: TurnId,
    /// By how much their importance moves, -2 to 2.
    pub step: i8,
    /// The points. It has no effect on those that are not live.
    pub points: Vec<MemoryPointId>,
}

/// The importance of points has moved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PointsRated {
    /// The input of the session that brought the feedback.
    pub feedback: InputId,
    /// The session that has the turn.
    pub session: EntityId,
    /// The turn that was shown the points.
    pub turn: TurnId,
    /// By how much each of them moves, within the bounds of importance.
    pub step: i8,
    /// Those that were live, and how much they matter from now on.
    pub points: Vec<RatedPoint>,
}

/// A point whose importance has moved, also if it was at its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RatedPoint {
    /// Which one.
    pub point: MemoryPointId,
    /// How much it matters from now on, 1 to 10.
    pub importance: u8,
}

// === impl PointContent ===

impl PointContent {
    /// What breaks a limit, in words.
    pub fn check(&self) -> Result<(), String> {
        let Self { text, subject, predicate, object, confidence, importance, .. } = self;
        if text.trim().is_empty() {
            return Err("`text` is empty".to_owned());
        }
        if text.chars().count() > MEMORY_TEXT_CHARS {
            return Err(format!("`text` is longer than {MEMORY_TEXT_CHARS} characters"));
        }
        for (name, part) in [("subject", subject), ("predicate", predicate), ("object", object)] {
            let Some(part) = part else { continue };
            if part.trim().is_empty() {
                return Err(format!("`{name}` is empty; leave it out"));
            }
            if part.chars().count() > MEMORY_NAME_CHARS {
                return Err(format!("`{name}` is longer than {MEMORY_NAME_CHARS} characters"));
            }
        }
        if *confidence > CONFIDENCE_MOST {
            return Err(format!("`confidence` is {confidence}, not 0 to {CONFIDENCE_MOST}"));
        }
        let (least, most) = IMPORTANCE;
        if !(least..=most).contains(importance) {
            return Err(format!("`importance` is {importance}, not {least} to {most}"));
        }
        Ok(())
    }

    /// Bytes of its texts.
    pub fn bytes(&self) -> usize {
        let parts = [&self.subject, &self.predicate, &self.object];
        self.text.len() + parts.into_iter().flatten().map(String::len).sum::<usize>()
    }
}

// === impl MemoryPoint ===

impl MemoryPoint {
    /// Its id: that of its source.
    pub fn id(&self) -> MemoryPointId {
        self.source.point()
    }
}

// === impl MemorySource ===

impl MemorySource {
    /// The id of the point that it gives.
    pub fn point(&self) -> MemoryPointId {
        MemoryPointId::derive(self.entity, self.event, self.part)
    }

    /// The same source beside one of another cluster that has its entity, event and part: its time is in its part. The same
    /// source gives the same one.
    #[must_use]
    pub fn aside(&self) -> Self {
        let parts: [&[u8]; 2] = [&self.at.0.to_be_bytes(), &self.part.to_be_bytes()];
        let [.., a, b, c, d] = derive("clawnode memory source part v1", &parts).to_be_bytes();
        Self { part: ASIDE | u32::from_be_bytes([a, b, c, d]), ..self.clone() }
    }

    /// The source that it was before [`Self::aside`]; the same if it is none of those.
    #[must_use]
    pub fn original(&self) -> Self {
        let parts = if self.part & ASIDE == 0 { 0..0 } else { 0..PARTS };
        let mut originals = parts.map(|part| Self { part, ..self.clone() });
        originals.find(|original| original.aside() == *self).unwrap_or_else(|| self.clone())
    }
}

// === impl MemoryPointId ===

impl MemoryPointId {
    /// The id of the point that is the `part`th of those that an event of this entity gave: the same event gives
    /// the same ids.
    pub fn derive(entity: EntityId, event: u64, part: u32) -> Self {
        let parts: [&[u8]; 3] =
            [&entity.as_u128().to_be_bytes(), &event.to_be_bytes(), &part.to_be_bytes()];
        Self::from_u128(derive("clawnode memory point id v1", &parts))
    }
}

// === impl TimerId ===

impl TimerId {
    /// The timer that consolidates or purges a memory.
    pub fn of_memory(memory: EntityId, due: Timestamp) -> Self {
        let parts: [&[u8]; 2] = [&memory.as_u128().to_be_bytes(), &due.0.to_be_bytes()];
        Self::from_u128(derive("clawnode memory timer id v1", &parts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(text: &str) -> PointContent {
        PointContent {
            layer: MemoryLayer::Semantic,
            text: text.to_owned(),
            subject: None,
            predicate: None,
            object: None,
            confidence: CONFIDENCE_MOST,
            importance: IMPORTANCE_DEFAULT,
            trust: MemoryTrust::Person,
        }
    }

    #[test]
    fn a_point_within_its_limits_is_taken_and_one_beyond_them_named() {
        let most = "\u{e9}".repeat(MEMORY_TEXT_CHARS);
        assert_eq!(content(&most).check(), Ok(()), "characters are counted, not bytes");
        let too_long = content(&format!("{most}x"));
        let wrong = [
            (too_long, "`text` is longer than 1000 characters"),
            (content(" \n"), "`text` is empty"),
            (PointContent { subject: Some(String::new()), ..content("a") }, "`subject` is empty"),
            (PointContent { object: Some("x".repeat(201)), ..content("a") }, "`object` is longer"),
            (PointContent { confidence: 101, ..content("a") }, "`confidence` is 101, not 0 to 100"),
            (PointContent { importance: 0, ..content("a") }, "`importance` is 0, not 1 to 10"),
            (PointContent { importance: 11, ..content("a") }, "`importance` is 11"),
        ];
        for (content, said) in wrong {
            let problem = content.check().unwrap_err();
            assert!(problem.starts_with(said), "{problem}");
        }
    }
}
