//! Feedback: what people think of turns, and how it moves the importance of the points that those turns recalled.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{
    id::{InputId, MemoryPointId, TurnId},
    memory::MemoryKey,
    memory_point::IMPORTANCE,
};

/// Whether a person finds a turn good or bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Thumb {
    /// Good: what the turn recalled matters more.
    Up,
    /// Bad: what the turn recalled matters less.
    Down,
}

/// What a session is sent about one of its turns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FeedbackInput {
    /// The turn. It has no effect on one that has not ended.
    pub turn: TurnId,
    /// Good or bad.
    pub thumb: Thumb,
    /// What the person says about it, at most 1,000 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
}

/// A person has said what they think of a turn. The last feedback of a turn counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FeedbackGiven {
    /// The turn that it is about.
    pub turn: TurnId,
    /// The input that brought it. Memories know it by this id.
    pub feedback: InputId,
    /// Good or bad.
    pub thumb: Thumb,
    /// What the person says about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// By how much the importance of points moves: the difference to the feedback before, -2 to 2.
    pub step: i8,
    /// The points that move: those that the turn was shown. Absent if none moves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moves: Vec<RatedPoints>,
}

/// Points of one memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RatedPoints {
    /// The memory that has them.
    pub memory: MemoryKey,
    /// Their ids.
    pub points: Vec<MemoryPointId>,
}

/// How feedback has moved the importance of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PointFeedback {
    /// The importance that the point came with, 1 to 10.
    pub given: u8,
    /// The sum of all feedback: 1 for each turn with a thumb up, -1 for each with a thumb down.
    pub sum: i32,
}

// === impl Thumb ===

impl Thumb {
    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
        }
    }

    /// What it adds to the importance of a point.
    pub const fn worth(self) -> i8 {
        match self {
            Self::Up => 1,
            Self::Down => -1,
        }
    }

    /// By how much points move when it takes the place of this one. From nothing, it is the whole.
    pub const fn after(self, before: Option<Self>) -> i8 {
        match before {
            Some(before) => self.worth().saturating_sub(before.worth()),
            None => self.worth(),
        }
    }
}

impl FromStr for Thumb {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "up" => Ok(Self::Up),
            "down" => Ok(Self::Down),
            _ => Err(format!("`{text}` is neither `up` nor `down`")),
        }
    }
}

// === impl PointFeedback ===

impl PointFeedback {
    /// A point that no feedback has moved.
    pub const fn none(given: u8) -> Self {
        Self { given, sum: 0 }
    }

    /// After a further step.
    #[must_use]
    pub fn and(self, step: i8) -> Self {
        Self { sum: self.sum.saturating_add(i32::from(step)), ..self }
    }

    /// The importance that follows, 1 to 10. What an operator said does not fall below what it came with. The sum has no
    /// bounds, so the order of feedback makes no difference.
    pub fn importance(self, is_of_operator: bool) -> u8 {
        let (least, most) = IMPORTANCE;
        let sum = if is_of_operator { self.sum.max(0) } else { self.sum };
        let moved = i32::from(self.given).saturating_add(sum);
        u8::try_from(moved.clamp(i32::from(least), i32::from(most))).unwrap_or(self.given)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thumb_is_named_alike_in_json_and_on_a_command_line() {
        for thumb in [Thumb::Up, Thumb::Down] {
            assert_eq!(serde_json::to_value(thumb).unwrap(), thumb.as_str());
            assert_eq!(thumb.as_str().parse(), Ok(thumb));
        }
        assert!("Up".parse::<Thumb>().unwrap_err().contains("neither"));
    }

    #[test]
    fn a_changed_thumb_moves_by_the_difference() {
        let steps = [
            (Thumb::Up, None, 1),
            (Thumb::Down, None, -1),
            (Thumb::Down, Some(Thumb::Up), -2),
            (Thumb::Up, Some(Thumb::Down), 2),
            (Thumb::Up, Some(Thumb::Up), 0),
        ];
        for (thumb, before, step) in steps {
            assert_eq!(thumb.after(before), step, "{thumb:?} {before:?}");
        }
    }

    #[test]
    fn importance_stays_within_its_bounds_and_an_operator_is_not_lowered() {
        let moved =
            |given, sum, is_of_operator| PointFeedback { given, sum }.importance(is_of_operator);
        assert_eq!([moved(5, -1, false), moved(5, 2, false)], [4, 7]);
        assert_eq!([moved(5, -9, false), moved(5, 9, false)], [1, 10]);
        assert_eq!([moved(5, i32::MIN, false), moved(5, i32::MAX, true)], [1, 10]);
        assert_eq!([moved(5, -3, true), moved(5, 3, true)], [5, 8]);
        let back = PointFeedback::none(10).and(1).and(-2);
        assert_eq!(back.importance(false), 9, "what was above the bound is not lost");
    }
}
