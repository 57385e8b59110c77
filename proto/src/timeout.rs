//! How long work may take: four limits, the least of which holds.
//!
//! **Global** is of a whole turn, **step** of a model call with the tools that it asks for,
//! **provider** of whatever runs a tool, **command** of one call. What a call has is known when it is
//! asked for, travels with it, and is said when it was not enough. Time for which a person is waited
//! for is no time of a turn or step.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Whose limit it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TimeLevel {
    /// Of one call of a tool.
    Command,
    /// Of the tool's runner.
    Provider,
    /// Of a step of a turn: a model call, and the tools that it asks for.
    Step,
    /// Of a whole turn.
    Global,
}

impl TimeLevel {
    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Provider => "provider",
            Self::Step => "step",
            Self::Global => "global",
        }
    }
}

/// A figure, and where a person finds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TimeBound {
    /// The figure, in milliseconds.
    pub ms: u32,
    /// Where it is set: a key of the configuration, or an argument.
    pub set_in: String,
}

/// How long calls of a tool may take, as far as that does not depend on the turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolTime {
    /// The most that what runs it gives any call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<TimeBound>,
    /// What a call has that asks for nothing else.
    pub command: TimeBound,
    /// The argument with which a call asks for something else, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argument: Option<String>,
    /// What a run may take beside, in milliseconds: a container is made, and removed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub margin_ms: u32,
}

/// The limits of an agent's turns, in milliseconds; 0: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct TurnTime {
    /// How long a whole turn may take, in milliseconds. 0: no limit.
    #[serde(skip_serializing_if = "is_zero")]
    pub global_ms: u32,
    /// How long one step may take, in milliseconds. 0: no limit.
    #[serde(skip_serializing_if = "is_zero")]
    pub step_ms: u32,
}

/// The limit that holds for something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TimeLimit {
    /// Whose it is.
    pub level: TimeLevel,
    /// The figure as it is set, in milliseconds.
    pub ms: u32,
    /// What is left of it for this, in milliseconds.
    pub left_ms: u32,
    /// Where it is set: a key of the configuration, or an argument.
    pub set_in: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

// === impl TimeLimit ===

impl TimeLimit {
    /// All of a figure.
    pub fn whole(level: TimeLevel, bound: TimeBound) -> Self {
        Self { level, ms: bound.ms, left_ms: bound.ms, set_in: bound.set_in }
    }

    /// What there is of it for this.
    pub const fn left(&self) -> Duration {
        Duration::from_millis(self.left_ms as u64)
    }

    /// The least of these; of equal ones the one that is about less.
    pub fn least(limits: impl IntoIterator<Item = Self>) -> Option<Self> {
        limits.into_iter().min_by_key(|limit| (limit.left_ms, limit.level))
    }
}

impl fmt::Display for TimeLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (level, set_in) = (self.level.as_str(), &self.set_in);
        let seconds = f64::from(self.ms) / 1_000.0;
        write!(f, "the {level} timeout of {seconds} s (set in `{set_in}`) was over")
    }
}

// === impl TurnTime ===

impl TurnTime {
    /// Whether nothing is limited.
    pub const fn is_none(&self) -> bool {
        self.global_ms == 0 && self.step_ms == 0
    }

    /// Whether one of these limits is over after so many milliseconds of the turn and step.
    pub const fn is_over(&self, turn_ms: u64, step_ms: u64) -> bool {
        (self.global_ms > 0 && turn_ms >= self.global_ms as u64)
            || (self.step_ms > 0 && step_ms >= self.step_ms as u64)
    }

    /// What is left of these limits of `agent` after so many milliseconds of the turn and step.
    pub fn left(&self, agent: &str, turn_ms: u64, step_ms: u64) -> Vec<TimeLimit> {
        let limit = |level: TimeLevel, ms: u32, spent: u64| {
            (ms > 0).then(|| TimeLimit {
                level,
                ms,
                left_ms: ms.saturating_sub(u32::try_from(spent).unwrap_or(u32::MAX)),
                set_in: format!("agents.{agent}.timeouts.{}", level.as_str()),
            })
        };
        let global = limit(TimeLevel::Global, self.global_ms, turn_ms);
        let step = limit(TimeLevel::Step, self.step_ms, step_ms);
        global.into_iter().chain(step).collect()
    }
}

// === impl ToolTime ===

impl ToolTime {
    /// That of a tool of which no more is known than the longest that one run may take.
    pub fn of_tool(tool: &str, longest_ms: u32) -> Self {
        let set_in = format!("tools.timeouts.{tool}");
        let command = TimeBound { ms: longest_ms, set_in };
        Self { provider: None, command, argument: None, margin_ms: 0 }
    }

    /// The seconds that a call with these arguments asks for.
    pub fn asked_s(&self, arguments: &str) -> Option<f64> {
        let name = self.argument.as_ref()?;
        serde_json::from_str::<Value>(arguments).ok()?.get(name)?.as_f64()
    }

    /// What holds for a call that asks for so many seconds, of a turn that has so much left: the
    /// least.
    pub fn limit(&self, asked_s: Option<f64>, turn: Vec<TimeLimit>) -> TimeLimit {
        let asked = self.argument.as_ref().zip(asked_s).and_then(|(name, seconds)| {
            let wanted = Duration::try_from_secs_f64(seconds).ok()?;
            // Less than a millisecond is not no time: 0 would be over before it begins.
            let ms = u32::try_from(wanted.as_millis()).unwrap_or(u32::MAX).max(1);
            Some(TimeBound { ms, set_in: name.clone() })
        });
        let command = asked.unwrap_or_else(|| self.command.clone());
        let command = TimeLimit::whole(TimeLevel::Command, command);
        let provider = self.provider.clone();
        let provider = provider.map(|ms| TimeLimit::whole(TimeLevel::Provider, ms));
        let others = provider.into_iter().chain(turn);
        others.fold(command, |least, other| {
            let key = |limit: &TimeLimit| (limit.left_ms, limit.level);
            if key(&other) < key(&least) { other } else { least }
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bound(ms: u32, set_in: &str) -> TimeBound {
        TimeBound { ms, set_in: set_in.to_owned() }
    }

    fn tool(provider: Option<u32>, command: u32) -> ToolTime {
        ToolTime {
            provider: provider.map(|ms| bound(ms, "sandbox.max_timeout")),
            command: bound(command, "sandbox.docker.timeout"),
            argument: Some("timeout_s".to_owned()),
            margin_ms: 0,
        }
    }

    #[test]
    fn each_level_can_be_the_least_and_says_where_it_is_set() {
        let tool = tool(Some(300_000), 30_000);
        let turn = |global_ms, step_ms| TurnTime { global_ms, step_ms };
        for (arguments, turn, spent, level, left, said) in [
            ("{}", turn(0, 0), (0, 0), TimeLevel::Command, 30_000, "30 s (set in `sandbox.docker"),
            (r#"{"timeout_s":2.5}"#, turn(0, 0), (0, 0), TimeLevel::Command, 2_500, "`timeout_s`"),
            (
                r#"{"timeout_s":900}"#,
                turn(0, 0),
                (0, 0),
                TimeLevel::Provider,
                300_000,
                "the provider timeout of 300 s (set in `sandbox.max_timeout`)",
            ),
            (
                "{}",
                turn(60_000, 0),
                (50_000, 50_000),
                TimeLevel::Global,
                10_000,
                "the global timeout of 60 s (set in `agents.ops.timeouts.global`)",
            ),
            (
                "{}",
                turn(60_000, 10_000),
                (50_000, 9_000),
                TimeLevel::Step,
                1_000,
                "the step timeout of 10 s (set in `agents.ops.timeouts.step`)",
            ),
            ("{}", turn(30_000, 30_000), (0, 0), TimeLevel::Command, 30_000, "command"),
            ("{}", turn(1, 0), (u64::MAX, 0), TimeLevel::Global, 0, "global"),
            // What the schema refuses is not taken for a limit.
            (r#"{"timeout_s":-1}"#, turn(0, 0), (0, 0), TimeLevel::Command, 30_000, "docker"),
            ("not JSON", turn(0, 0), (0, 0), TimeLevel::Command, 30_000, "docker"),
        ] {
            let of_turn = turn.left("ops", spent.0, spent.1);
            let limit = tool.limit(tool.asked_s(arguments), of_turn);
            assert_eq!((limit.level, limit.left_ms), (level, left), "{arguments} {turn:?}");
            assert!(limit.to_string().contains(said), "{limit}");
        }
    }

    proptest! {
        #[test]
        fn the_least_wins_whatever_they_are(
            provider in proptest::option::of(1_u32..2_000),
            command in 1_u32..2_000,
            asked in proptest::option::of(1_u32..2_000),
            (global_ms, step_ms) in (0_u32..2_000, 0_u32..2_000),
            (turn_ms, step_spent) in (0_u64..3_000, 0_u64..3_000),
        ) {
            let asked_s = asked.map(|ms| f64::from(ms) / 1_000.0);
            let time = TurnTime { global_ms, step_ms };
            let limit = tool(provider, command)
                .limit(asked_s, time.left("a", turn_ms, step_spent));
            // By hand: each that there is, with what is left of it.
            let left = |all: u32, spent: u64| u64::from(all).saturating_sub(spent);
            let mut all = vec![(u64::from(asked.unwrap_or(command)), TimeLevel::Command)];
            all.extend(provider.map(|ms| (u64::from(ms), TimeLevel::Provider)));
            if step_ms > 0 {
                all.push((left(step_ms, step_spent), TimeLevel::Step));
            }
            if global_ms > 0 {
                all.push((left(global_ms, turn_ms), TimeLevel::Global));
            }
            let (least, level) = all.iter().copied().min().unwrap();
            // A figure in seconds is a float; it may lose a millisecond on its way.
            prop_assert!(u64::from(limit.left_ms).abs_diff(least) <= 1);
            if all.iter().all(|(ms, other)| *other == level || ms.abs_diff(least) > 1) {
                prop_assert_eq!(limit.level, level);
            }
            prop_assert!(limit.left_ms <= limit.ms);
        }

        #[test]
        fn less_of_anything_never_gives_more(
            (global_ms, step_ms, command) in (1_u32..9_000, 1_u32..9_000, 1_u32..9_000),
            (spent, more) in (0_u64..9_000, 0_u64..9_000),
        ) {
            let time = TurnTime { global_ms, step_ms };
            let limit = |command, spent| {
                tool(None, command).limit(None, time.left("a", spent, spent)).left_ms
            };
            prop_assert!(limit(command, spent + more) <= limit(command, spent));
            prop_assert!(limit(command / 2 + 1, spent) <= limit(command.max(command / 2 + 1), spent));
        }
    }
}
