//! `agents profile`: what an agent has done so far.

use clawnode_proto::{
    AgentName,
    agent_profile::{AgentProfile, AgentProfileParams, SkillProfile, ToolProfile},
    api::calls,
};

use super::{
    command_context::CliContext,
    output::{Output, clean, count, span},
    usage,
};
use crate::failure::{Exit, Failure};

/// `agents profile`.
pub(super) async fn run(
    agent: AgentName,
    since: Option<String>,
    context: &CliContext,
) -> Result<Exit, Failure> {
    let profile = context.call(calls::AgentsProfile, &AgentProfileParams { agent, since }).await?;
    let out = context.out;
    out.document(&profile, |profile| shown(out, profile))?;
    Ok(Exit::Ok)
}

/// The facts, and below them a table of each list that is not empty.
fn shown(out: Output, profile: &AgentProfile) -> String {
    let facts = facts(profile);
    let mut parts: Vec<String> = vec![
        facts
            .iter()
            .map(|(name, value)| format!("{name:<9}{value}"))
            .collect::<Vec<_>>()
            .join("\n"),
    ];
    if !profile.tools.is_empty() {
        let head = ["tool", "calls", "done", "failed", "cancelled", "uncertain"];
        parts.push(out.table(&head, profile.tools.iter().map(tool)));
    }
    if !profile.skills.is_empty() {
        let head = ["skill", "turns", "succeeded", "failed", "neither"];
        parts.push(out.table(&head, profile.skills.iter().map(skill)));
    }
    if !profile.models.is_empty() {
        let head: Vec<&str> = std::iter::once("model").chain(usage::COLUMNS).collect();
        let rows = profile.models.iter().map(|row| usage::cells(clean(&row.name), &row.calls));
        parts.push(format!("{}{}", out.table(&head, rows), usage::unpriced(&profile.calls)));
    }
    if profile.partial {
        parts.push(
            "a day had too many agents, tools or skills to count each by its name".to_owned(),
        );
    }
    if profile.behind_ms > 0 {
        let behind = span(profile.behind_ms);
        parts.push(format!("what happened in the last {behind} is not all counted yet"));
    }
    parts.join("\n\n")
}

fn facts(profile: &AgentProfile) -> Vec<(&'static str, String)> {
    let AgentProfile {
        agent, first_day, turns, outcomes, time, not_run, feedback, ratings, ..
    } = profile;
    let mut facts = vec![("agent", agent.to_string())];
    let Some(first_day) = first_day else {
        facts.push(("turns", "none are counted".to_owned()));
        return facts;
    };
    facts.push(("since", clean(first_day)));
    let each = outcomes.iter().map(|row| format!("{} {}", row.turns, clean(&row.outcome)));
    let each: Vec<String> = each.collect();
    let each = if each.is_empty() { String::new() } else { format!(": {}", each.join(", ")) };
    facts.push(("turns", format!("{}{each}", turns.total())));
    let judged = count(turns.succeeded.saturating_add(turns.failed), "turn");
    let success = profile.success_rate.map(|rate| format!("{} of {judged}", percent(rate)));
    facts.push(("success", success.unwrap_or_else(|| "-".to_owned())));
    if let Some(time) = time {
        let (median, p95) = (span(time.median_ms), span(time.p95_ms));
        let turns = count(time.turns, "turn");
        facts.push(("time", format!("about {median} (median) and {p95} (p95) of {turns}")));
    }
    let up = feedback.up_rate.map(|rate| format!(" ({} up)", percent(rate))).unwrap_or_default();
    facts.push(("feedback", format!("{} up, {} down{up}", feedback.up, feedback.down)));
    if let Some(mean) = ratings.mean {
        let ratings = count(ratings.count, "rating");
        facts.push(("rated", format!("{mean:.1} of 5 by models that looked back ({ratings})")));
    }
    if *not_run > 0 {
        let calls = count(*not_run, "tool call");
        facts.push(("not run", format!("{calls}: no such tool, wrong arguments, or refused")));
    }
    facts
}

fn percent(rate: f64) -> String {
    format!("{:.1}%", rate * 100.0)
}

fn tool(row: &ToolProfile) -> Vec<String> {
    let ends = [row.calls, row.ends.done, row.ends.failed, row.ends.cancelled, row.ends.uncertain];
    std::iter::once(clean(&row.name)).chain(ends.map(|number| number.to_string())).collect()
}

fn skill(row: &SkillProfile) -> Vec<String> {
    let ends = [row.turns, row.ends.succeeded, row.ends.failed, row.ends.neither];
    std::iter::once(clean(&row.name)).chain(ends.map(|number| number.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{
        agent_profile::TurnTimeProfile,
        agent_work::{AgentWork, ToolEnds},
        feedback::Thumb,
        llm::StopReason,
        session::TurnOutcome,
    };

    use super::*;

    fn lines(profile: &AgentProfile) -> Vec<String> {
        facts(profile).into_iter().map(|(name, value)| format!("{name}: {value}")).collect()
    }

    #[test]
    fn the_facts_say_what_counts_and_what_does_not() {
        let mut work = AgentWork::default();
        let completed = TurnOutcome::Completed { stop: StopReason::EndTurn };
        let looped = TurnOutcome::Looped { tool: "look".to_owned(), times: 30 };
        for outcome in [&completed, &completed, &looped, &TurnOutcome::Cancelled] {
            work.add(&AgentWork::of_turn(outcome, None, Vec::new()), 0);
        }
        work.add(&AgentWork::of_thumb(Thumb::Up, 1), 0);
        work.add(&AgentWork::of_rating(4), 0);
        work.add(&AgentWork::of_rating(3), 0);
        work.add(&AgentWork::of_call_not_run(), 0);
        let mut profile = AgentProfile::of("ops".parse().unwrap(), work);
        assert_eq!(lines(&profile), ["agent: ops", "turns: none are counted"]);
        profile.first_day = Some("2026-11-25".to_owned());
        profile.time = Some(TurnTimeProfile { turns: 4, median_ms: 2_500, p95_ms: 61_000 });
        assert_eq!(
            lines(&profile),
            [
                "agent: ops",
                "since: 2026-11-25",
                "turns: 4: 2 completed, 1 cancelled, 1 looped",
                "success: 66.7% of 3 turns",
                "time: about 2s (median) and 1m1s (p95) of 4 turns",
                "feedback: 1 up, 0 down (100.0% up)",
                "rated: 3.5 of 5 by models that looked back (2 ratings)",
                "not run: 1 tool call: no such tool, wrong arguments, or refused",
            ]
        );
    }

    #[test]
    fn a_row_has_each_end_of_its_calls() {
        let ends = ToolEnds { done: 4, failed: 3, cancelled: 2, uncertain: 1 };
        let row = ToolProfile { name: "look".to_owned(), calls: ends.total(), ends };
        assert_eq!(tool(&row), ["look", "10", "4", "3", "2", "1"]);
    }
}
