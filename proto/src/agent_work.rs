//! What agents did: the counts that a follower of the feed keeps for each day. They are numbers, and names from the
//! configuration; no text of a conversation is in them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{feedback::Thumb, id::AgentName, limits, outcome::TurnOutcome, usage::Followed};

/// The row of all tools that clients offer and run: clients choose their names. No [`crate::ToolName`] has parentheses.
pub const TOOLS_OF_CLIENTS: &str = "(client)";
/// The row of tools or skills that a day has no room to name.
pub const OTHER_NAMES: &str = "(other)";

/// The longest time that has a bucket of its own, in milliseconds: six days.
const LONGEST_MS: u64 = (1 << 29) - 1;

/// What the agents did in one day, as stored. It counts everything up to `upto`, so records that are followed again add
/// nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkDay {
    /// How far the feed is counted in here.
    pub upto: Followed,
    /// The agents, by name.
    pub agents: BTreeMap<AgentName, AgentWork>,
    /// What was not counted, because the day has no room for a further agent.
    #[serde(default)]
    pub left_out: u64,
}

/// What a day may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkBounds {
    /// Agents. What further ones do is not counted.
    pub agents: usize,
    /// Tools and skills of all agents. Further ones count as [`OTHER_NAMES`] of their agent.
    pub rows: usize,
}

/// What one agent did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentWork {
    /// How its turns ended.
    pub turns: TurnEnds,
    /// The same by the name of the outcome.
    pub outcomes: BTreeMap<String, u64>,
    /// How long the turns took that succeeded or failed, if something was begun in them.
    pub times: TurnTimes,
    /// Calls of tools that were begun, by the tool, [`TOOLS_OF_CLIENTS`] or [`OTHER_NAMES`].
    pub tools: BTreeMap<String, ToolEnds>,
    /// Tool calls that were never begun: there is no such tool, its arguments do not fit, or it was refused.
    pub not_run: u64,
    /// The turns whose message activated a skill, by the skill or [`OTHER_NAMES`].
    pub skills: BTreeMap<String, TurnEnds>,
    /// What people said of turns.
    pub thumbs: Thumbs,
    /// What models said of turns that they looked back at.
    #[serde(skip_serializing_if = "RatingSum::is_none")]
    pub ratings: RatingSum,
}

/// How turns ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TurnEnds {
    /// With a reply that fits.
    pub succeeded: u64,
    /// Without one.
    pub failed: u64,
    /// So that it says nothing about the agent: a person, a hook or a limit of spending ended them.
    pub neither: u64,
}

/// How calls of a tool ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolEnds {
    /// Well.
    pub done: u64,
    /// With an error: the tool reported it, ran too long or broke, or no node could run it.
    pub failed: u64,
    /// A person, a client or an operator stopped them, or the time of their turn was over.
    pub cancelled: u64,
    /// The end is unknown, because the process died that ran them.
    pub uncertain: u64,
}

/// What people said of turns. The last feedback of a turn counts, on the day on which it was given: a changed thumb takes
/// the earlier one away on that day, so the count of a day may be negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thumbs {
    /// Good.
    pub up: i64,
    /// Bad.
    pub down: i64,
}

/// What models said of turns that they looked back at, each 1 to 5. It counts on the day on which it was said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RatingSum {
    /// How many ratings.
    pub count: u64,
    /// All of them together.
    pub sum: u64,
}

/// How long turns took: a histogram with four buckets for each doubling, so that days can be added up. A bucket is at
/// most 25 % wide.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TurnTimes(BTreeMap<u8, u64>);

// === impl WorkDay ===

impl WorkDay {
    /// Adds what an agent did.
    pub fn add(&mut self, agent: &AgentName, work: &AgentWork, most: WorkBounds) {
        if !self.agents.contains_key(agent) && self.agents.len() >= most.agents {
            self.left_out = self.left_out.saturating_add(1);
            return;
        }
        let rows: usize = self.agents.values().map(AgentWork::rows).sum();
        let room = most.rows.saturating_sub(rows);
        self.agents.entry(agent.clone()).or_default().add(work, room);
    }
}

// === impl WorkBounds ===

impl WorkBounds {
    /// Those of each day that is kept.
    pub const MOST: Self = Self { agents: limits::PROFILE_AGENTS, rows: limits::PROFILE_ROWS };
}

// === impl AgentWork ===

impl AgentWork {
    /// A turn that ended, with the skills that its message activated.
    pub fn of_turn(outcome: &TurnOutcome, took_ms: Option<u64>, skills: Vec<String>) -> Self {
        let turns = TurnEnds::of(outcome);
        let took_ms = took_ms.filter(|_| turns.neither == 0);
        Self {
            turns,
            outcomes: BTreeMap::from([(outcome.name().to_owned(), 1)]),
            times: TurnTimes(took_ms.map(|took| (bucket(took), 1)).into_iter().collect()),
            skills: skills.into_iter().map(|skill| (skill, turns)).collect(),
            ..Self::default()
        }
    }

    /// A tool call that ended.
    pub fn of_tool(name: String, ends: ToolEnds) -> Self {
        Self { tools: BTreeMap::from([(name, ends)]), ..Self::default() }
    }

    /// A tool call that was not begun.
    pub fn of_call_not_run() -> Self {
        Self { not_run: 1, ..Self::default() }
    }

    /// Feedback on a turn, and the difference to what was said of it before, as [`Thumb::after`] has it.
    pub fn of_thumb(thumb: Thumb, step: i8) -> Self {
        let is_new = i64::from(step != 0);
        let is_changed = i64::from(step.unsigned_abs() > 1);
        let thumbs = match thumb {
            Thumb::Up => Thumbs { up: is_new, down: -is_changed },
            Thumb::Down => Thumbs { up: -is_changed, down: is_new },
        };
        Self { thumbs, ..Self::default() }
    }

    /// A model's rating of a turn.
    pub fn of_rating(rating: u8) -> Self {
        Self { ratings: RatingSum { count: 1, sum: rating.into() }, ..Self::default() }
    }

    /// Adds what else the agent did. At most `room` further tools and skills get a row.
    pub fn add(&mut self, more: &Self, room: usize) {
        self.turns = self.turns.plus(more.turns);
        self.not_run = self.not_run.saturating_add(more.not_run);
        self.thumbs.up = self.thumbs.up.saturating_add(more.thumbs.up);
        self.thumbs.down = self.thumbs.down.saturating_add(more.thumbs.down);
        self.ratings.count = self.ratings.count.saturating_add(more.ratings.count);
        self.ratings.sum = self.ratings.sum.saturating_add(more.ratings.sum);
        for (name, turns) in &more.outcomes {
            let sum = self.outcomes.entry(name.clone()).or_default();
            *sum = sum.saturating_add(*turns);
        }
        for (bucket, turns) in &more.times.0 {
            let sum = self.times.0.entry(*bucket).or_default();
            *sum = sum.saturating_add(*turns);
        }
        let room =
            room.saturating_sub(add_rows(&mut self.tools, &more.tools, room, ToolEnds::plus));
        add_rows(&mut self.skills, &more.skills, room, TurnEnds::plus);
    }

    /// Whether some tools or skills have lost their names.
    pub fn has_other_names(&self) -> bool {
        self.tools.contains_key(OTHER_NAMES) || self.skills.contains_key(OTHER_NAMES)
    }

    /// How many tools and skills have a row.
    pub fn rows(&self) -> usize {
        self.tools.len() + self.skills.len()
    }
}

/// Adds to rows by name; returns how many are new.
fn add_rows<T: Copy + Default>(
    rows: &mut BTreeMap<String, T>,
    more: &BTreeMap<String, T>,
    room: usize,
    plus: impl Fn(T, T) -> T,
) -> usize {
    let before = rows.len();
    for (name, ends) in more {
        let name = name.as_str();
        let has_place = rows.contains_key(name) || rows.len() - before < room;
        let name = if has_place || name == TOOLS_OF_CLIENTS { name } else { OTHER_NAMES };
        let sum = rows.entry(name.to_owned()).or_default();
        *sum = plus(*sum, *ends);
    }
    rows.len() - before
}

// === impl TurnEnds ===

impl TurnEnds {
    fn of(outcome: &TurnOutcome) -> Self {
        match outcome.is_success() {
            Some(true) => Self { succeeded: 1, ..Self::default() },
            Some(false) => Self { failed: 1, ..Self::default() },
            None => Self { neither: 1, ..Self::default() },
        }
    }

    /// Both together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            succeeded: self.succeeded.saturating_add(other.succeeded),
            failed: self.failed.saturating_add(other.failed),
            neither: self.neither.saturating_add(other.neither),
        }
    }

    /// All of them.
    pub const fn total(self) -> u64 {
        self.succeeded.saturating_add(self.failed).saturating_add(self.neither)
    }

    /// Which part of those that succeeded or failed has succeeded, 0 to 1. Absent if there are none.
    pub fn success_rate(self) -> Option<f64> {
        share(self.succeeded, self.failed)
    }
}

// === impl ToolEnds ===

impl ToolEnds {
    /// Both together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            done: self.done.saturating_add(other.done),
            failed: self.failed.saturating_add(other.failed),
            cancelled: self.cancelled.saturating_add(other.cancelled),
            uncertain: self.uncertain.saturating_add(other.uncertain),
        }
    }

    /// All of them.
    pub const fn total(self) -> u64 {
        let known = self.done.saturating_add(self.failed).saturating_add(self.cancelled);
        known.saturating_add(self.uncertain)
    }
}

// === impl Thumbs ===

impl Thumbs {
    /// How many turns have a thumb up, and how many a thumb down.
    pub fn counts(self) -> (u64, u64) {
        // Feedback that took another one away may be newer than the first day that is counted.
        let count = |sum: i64| u64::try_from(sum).unwrap_or_default();
        (count(self.up), count(self.down))
    }
}

// === impl RatingSum ===

impl RatingSum {
    /// Their mean. Absent if there are none.
    #[expect(clippy::cast_precision_loss, reason = "a mean has as many digits as people read")]
    pub fn mean(self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }

    /// Whether there are none.
    pub const fn is_none(&self) -> bool {
        self.count == 0
    }
}

/// Which part of both together the first one is, 0 to 1. Absent of nothing.
#[expect(clippy::cast_precision_loss, reason = "a share has as many digits as people read")]
pub(crate) fn share(part: u64, rest: u64) -> Option<f64> {
    let all = part.saturating_add(rest);
    (all > 0).then(|| part as f64 / all as f64)
}

// === impl TurnTimes ===

impl TurnTimes {
    /// How many turns these are.
    pub fn turns(&self) -> u64 {
        self.0.values().fold(0, |sum, turns| sum.saturating_add(*turns))
    }

    /// What so many of 100 turns took at most, in milliseconds: the middle of a bucket. Absent if there are no turns.
    pub fn percentile(&self, percent: u64) -> Option<u64> {
        let wanted = u128::from(self.turns()) * u128::from(percent.min(100));
        let wanted = wanted.div_ceil(100).max(1);
        let mut seen = 0_u128;
        self.0.iter().find_map(|(bucket, turns)| {
            seen += u128::from(*turns);
            (seen >= wanted).then(|| middle(*bucket))
        })
    }
}

/// The bucket of a time in milliseconds. Below 8 ms, each millisecond has its own.
fn bucket(ms: u64) -> u8 {
    let ms = ms.min(LONGEST_MS);
    let Some(octave) = ms.checked_ilog2().filter(|octave| *octave >= 2) else {
        return u8::try_from(ms).unwrap_or_default();
    };
    let part = (ms >> (octave - 2)) & 3;
    u8::try_from(u64::from(octave - 1) * 4 + part).unwrap_or(u8::MAX)
}

/// The time in the middle of a bucket.
fn middle(bucket: u8) -> u64 {
    let (octave, part) = (u32::from(bucket / 4) + 1, u64::from(bucket % 4));
    if octave < 2 {
        return part;
    }
    let width = 1_u64 << (octave - 2);
    (4 + part) * width + width / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        id::Position,
        llm::{FailureClass, ModelFailure, StopReason},
    };

    const DONE: ToolEnds = ToolEnds { done: 1, failed: 0, cancelled: 0, uncertain: 0 };

    fn completed() -> TurnOutcome {
        TurnOutcome::Completed { stop: StopReason::EndTurn }
    }

    fn agent(n: usize) -> AgentName {
        format!("agent{n}").parse().unwrap()
    }

    #[test]
    fn a_bucket_is_near_every_time_that_it_has() {
        assert_eq!([0, 1, 3, 4, 7].map(|ms| middle(bucket(ms))), [0, 1, 3, 4, 7]);
        let mut last = 0;
        for ms in (8..100_000).chain((100_000..LONGEST_MS).step_by(99_991)) {
            let (at, near) = (bucket(ms), middle(bucket(ms)));
            assert!(at == last || at == last + 1 || ms == 8 || ms > 100_000, "{ms}: no gap");
            assert!(near.abs_diff(ms) * 8 <= ms, "{ms}: {near}");
            last = at;
        }
        assert_eq!(bucket(u64::MAX), bucket(LONGEST_MS));
    }

    #[test]
    fn percentiles_are_those_of_all_days_together() {
        let mut all = AgentWork::default();
        for seconds in 1..=100 {
            all.add(&AgentWork::of_turn(&completed(), Some(seconds * 1_000), Vec::new()), 0);
        }
        assert_eq!((all.times.turns(), all.turns.succeeded), (100, 100));
        for percent in [1, 50, 95, 100] {
            let (exact, near) = (percent * 1_000, all.times.percentile(percent).unwrap());
            assert!(near.abs_diff(exact) * 4 <= exact, "{percent}: {near}");
        }
        assert_eq!(TurnTimes::default().percentile(50), None);
    }

    #[test]
    fn what_people_end_is_neither_success_nor_failure() {
        let failed = |class| TurnOutcome::Failed { failure: ModelFailure::new(class, "") };
        let mut all = AgentWork::default();
        for outcome in [
            completed(),
            completed(),
            completed(),
            failed(FailureClass::Overloaded),
            failed(FailureClass::NoAgent),
            TurnOutcome::Cancelled,
            TurnOutcome::Stopped { detail: String::new() },
        ] {
            all.add(&AgentWork::of_turn(&outcome, None, vec!["review".to_owned()]), 1);
        }
        assert_eq!(all.turns, TurnEnds { succeeded: 3, failed: 1, neither: 3 });
        assert_eq!(all.skills["review"], all.turns);
        assert_eq!((all.turns.total(), all.turns.success_rate()), (7, Some(0.75)));
        assert_eq!((all.outcomes["failed"], all.times.turns()), (2, 0));
        assert_eq!(TurnEnds { neither: 5, ..TurnEnds::default() }.success_rate(), None);
    }

    #[test]
    fn the_last_thumb_of_a_turn_counts() {
        let mut all = AgentWork::default();
        let mut says = |thumb: Thumb, before| {
            all.add(&AgentWork::of_thumb(thumb, thumb.after(before)), 0);
            all.thumbs.counts()
        };
        assert_eq!(says(Thumb::Up, None), (1, 0));
        assert_eq!(says(Thumb::Up, Some(Thumb::Up)), (1, 0), "another comment");
        assert_eq!(says(Thumb::Down, Some(Thumb::Up)), (0, 1));
        assert_eq!(says(Thumb::Down, None), (0, 2), "of another turn");
        let mut later = AgentWork::default();
        later.add(&AgentWork::of_thumb(Thumb::Up, 2), 0);
        assert_eq!(later.thumbs.counts(), (1, 0), "the day of the first one is not counted");
    }

    /// A day that an earlier build saved has no ratings, and one without ratings has the bytes of before.
    #[test]
    fn ratings_are_added_up_over_days_that_lack_them() {
        let before = AgentWork::of_thumb(Thumb::Up, 1);
        let bytes = crate::codec::encode(&before).unwrap();
        assert!(!bytes.windows(7).any(|part| part == b"ratings"));
        let mut all: AgentWork = crate::codec::decode(&bytes).unwrap();
        assert_eq!((all.ratings.mean(), &all), (None, &before));
        for rating in [5, 4, 1, 4] {
            all.add(&AgentWork::of_rating(rating), 0);
        }
        assert_eq!((all.ratings.count, all.ratings.mean()), (4, Some(3.5)));
        let bytes = crate::codec::encode(&all).unwrap();
        assert_eq!(crate::codec::decode::<AgentWork>(&bytes).unwrap(), all);
    }

    #[test]
    fn a_full_day_loses_names_and_says_what_it_leaves_out() {
        let (mut day, most) = (WorkDay::default(), WorkBounds { agents: 2, rows: 3 });
        for tool in 0..5 {
            day.add(&agent(0), &AgentWork::of_tool(format!("t{tool}"), DONE), most);
        }
        day.add(&agent(0), &AgentWork::of_tool("t1".to_owned(), DONE), most);
        let clients = AgentWork::of_tool(TOOLS_OF_CLIENTS.to_owned(), DONE);
        day.add(&agent(1), &clients, most);
        day.add(&agent(2), &clients, most);
        let first = &day.agents[&agent(0)];
        let tools: Vec<_> = first.tools.iter().map(|(name, ends)| (&**name, ends.done)).collect();
        assert_eq!(tools, [(OTHER_NAMES, 2), ("t0", 1), ("t1", 2), ("t2", 1)]);
        assert!(first.has_other_names() && !day.agents[&agent(1)].has_other_names());
        assert_eq!(day.agents[&agent(1)].tools[TOOLS_OF_CLIENTS], DONE);
        assert_eq!((day.agents.len(), day.left_out), (2, 1));
    }

    #[test]
    fn a_day_of_any_work_fits_in_a_value_of_the_bucket() {
        let (big, mut work) = (u64::MAX, AgentWork::default());
        work.turns = TurnEnds { succeeded: big, failed: big, neither: big };
        work.outcomes = (0..13).map(|n| (format!("schema_failed_{n}"), big)).collect();
        work.times = TurnTimes((0..=bucket(big)).map(|bucket| (bucket, big)).collect());
        (work.not_run, work.thumbs) = (big, Thumbs { up: i64::MAX, down: i64::MIN });
        work.ratings = RatingSum { count: big, sum: big };
        let ends = ToolEnds { done: big, failed: big, cancelled: big, uncertain: big };
        let mut day = WorkDay { upto: Followed(vec![Position(big)]), ..WorkDay::default() };
        for n in 0..500 {
            let name = format!("{n:064}");
            let tools = (0..20).map(|tool| (format!("{n:032}{tool:032}"), ends));
            work.tools = tools.chain([(TOOLS_OF_CLIENTS.to_owned(), ends)]).collect();
            work.skills = BTreeMap::from([(name.clone(), work.turns)]);
            day.add(&name.parse().unwrap(), &work, WorkBounds::MOST);
        }
        assert_eq!((day.agents.len(), day.left_out), (WorkBounds::MOST.agents, 372));
        let bytes = crate::codec::encode(&day).unwrap();
        assert!(bytes.len() <= limits::APPEND_BYTES, "{}", bytes.len());
        assert_eq!(crate::codec::decode::<WorkDay>(&bytes).unwrap(), day);
    }
}
