//! What one agent has done so far, as the API shows it.

use serde::{Deserialize, Serialize};

use crate::{
    agent_work::{AgentWork, ToolEnds, TurnEnds, TurnTimes, share},
    id::AgentName,
    usage::{Calls, UsageRow},
};

/// Parameters of `agents.profile`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct AgentProfileParams {
    /// The name of the agent.
    pub agent: AgentName,
    /// Only days since this time: a duration (`7d`: seven days ago), or a day in UTC (`2026-11-23`).
    /// Default: all days that are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
}

/// Answer of `agents.profile`: what an agent has done, counted from the journals some seconds after it happened. What
/// deleted sessions did stays, as numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgentProfile {
    /// The name of the agent.
    pub agent: AgentName,
    /// The first day on which it did something, in UTC, as `2026-11-25`. Absent if nothing is counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_day: Option<String>,
    /// How its turns ended. Those that are `neither` say nothing about the agent: a person, a hook or a limit of spending
    /// ended them.
    pub turns: TurnEnds,
    /// Which part of the turns that succeeded or failed has succeeded, 0 to 1. Absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub success_rate: Option<f64>,
    /// The turns by the name of their outcome, the most frequent first.
    pub outcomes: Vec<OutcomeCount>,
    /// How long turns took. Absent if none with a model call or a step has succeeded or failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<TurnTimeProfile>,
    /// The tools that it called, the most used first.
    pub tools: Vec<ToolProfile>,
    /// Tool calls that were never begun: there is no such tool, the arguments do not fit, or the call was refused.
    pub not_run: u64,
    /// The skills that messages activated, the most used first.
    pub skills: Vec<SkillProfile>,
    /// What people said of its turns.
    pub feedback: FeedbackProfile,
    /// What models said of turns that they looked back at.
    #[serde(default)]
    pub ratings: RatingProfile,
    /// The models that it called, by name, with what they used and cost.
    pub models: Vec<UsageRow>,
    /// The sum of all models.
    pub calls: Calls,
    /// The age of the oldest event that is not counted yet, in milliseconds. 0 if all are counted.
    pub behind_ms: u64,
    /// Whether something is missing: a day had too many agents, tools or skills to name each.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
}

/// How many turns ended so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OutcomeCount {
    /// The name of the outcome: `completed`, `failed`, `cancelled`, …
    pub outcome: String,
    /// How many.
    pub turns: u64,
}

/// How long the turns took that succeeded or failed, from their first model call to their end. Time in which they waited for a person, a client or
/// a provider is left out. The numbers are within 13 % of the exact ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TurnTimeProfile {
    /// How many turns that are.
    pub turns: u64,
    /// What half of them took at most, in milliseconds.
    pub median_ms: u64,
    /// What 95 of 100 took at most, in milliseconds.
    pub p95_ms: u64,
}

/// A tool that an agent called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolProfile {
    /// Its name. `(client)` are all tools that clients offer and run, `(other)` those that had no room on their day.
    pub name: String,
    /// How many calls were begun and have ended.
    pub calls: u64,
    /// How they ended.
    #[serde(flatten)]
    pub ends: ToolEnds,
}

/// A skill that messages to an agent activated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SkillProfile {
    /// Its name. `(other)` are those that had no room on their day.
    pub name: String,
    /// How many turns it was active in.
    pub turns: u64,
    /// How these turns ended.
    #[serde(flatten)]
    pub ends: TurnEnds,
}

/// What people said of an agent's turns. The last feedback of a turn counts, on the day on which it was given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FeedbackProfile {
    /// Turns with a thumb up.
    pub up: u64,
    /// Turns with a thumb down.
    pub down: u64,
    /// Which part of both has a thumb up, 0 to 1. Absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_rate: Option<f64>,
}

/// What models said of an agent's turns (`reflected`). It counts on the day on which it was said; no person has said so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RatingProfile {
    /// How many ratings there are.
    pub count: u64,
    /// Their mean, 1 to 5. Absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean: Option<f64>,
}

// === impl AgentProfile ===

impl AgentProfile {
    /// What is known of an agent by what it did. Its models, and how old that is, are for the caller to add.
    pub fn of(agent: AgentName, work: AgentWork) -> Self {
        let partial = work.has_other_names();
        let AgentWork { turns, outcomes, times, tools, not_run, skills, thumbs, ratings } = work;
        let outcomes = outcomes.into_iter();
        let mut outcomes: Vec<OutcomeCount> =
            outcomes.map(|(outcome, turns)| OutcomeCount { outcome, turns }).collect();
        outcomes.sort_by_key(|row| std::cmp::Reverse(row.turns));
        let tools = tools.into_iter();
        let mut tools: Vec<ToolProfile> =
            tools.map(|(name, ends)| ToolProfile { name, calls: ends.total(), ends }).collect();
        tools.sort_by_key(|row| std::cmp::Reverse(row.calls));
        let skills = skills.into_iter();
        let mut skills: Vec<SkillProfile> =
            skills.map(|(name, ends)| SkillProfile { name, turns: ends.total(), ends }).collect();
        skills.sort_by_key(|row| std::cmp::Reverse(row.turns));
        let (up, down) = thumbs.counts();
        Self {
            agent,
            first_day: None,
            turns,
            success_rate: turns.success_rate(),
            outcomes,
            time: TurnTimeProfile::of(&times),
            tools,
            not_run,
            skills,
            feedback: FeedbackProfile { up, down, up_rate: share(up, down) },
            ratings: RatingProfile { count: ratings.count, mean: ratings.mean() },
            models: Vec::new(),
            calls: Calls::default(),
            behind_ms: 0,
            partial,
        }
    }

    /// Whether nothing is counted of it.
    pub fn is_empty(&self) -> bool {
        self.first_day.is_none()
    }
}

// === impl TurnTimeProfile ===

impl TurnTimeProfile {
    fn of(times: &TurnTimes) -> Option<Self> {
        let (median_ms, p95_ms) = (times.percentile(50)?, times.percentile(95)?);
        Some(Self { turns: times.turns(), median_ms, p95_ms })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_most_comes_first() {
        let mut work = AgentWork::default();
        let done = ToolEnds { done: 1, ..ToolEnds::default() };
        for name in ["a", "b", "c", "b"] {
            work.add(&AgentWork::of_tool(name.to_owned(), done), 9);
        }
        let failed = ToolEnds { failed: 1, ..ToolEnds::default() };
        work.add(&AgentWork::of_tool("c".to_owned(), failed), 9);
        work.add(&AgentWork::of_tool("c".to_owned(), failed), 9);
        let profile = AgentProfile::of("ops".parse().unwrap(), work);
        let tools: Vec<_> =
            profile.tools.iter().map(|row| (&*row.name, row.calls, row.ends.failed)).collect();
        assert_eq!(tools, [("c", 3, 2), ("b", 2, 0), ("a", 1, 0)]);
        assert!(profile.is_empty() && profile.time.is_none() && profile.feedback.up_rate.is_none());
    }
}
