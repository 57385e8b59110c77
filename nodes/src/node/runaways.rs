//! Agents that exceed a limit: stores their pauses for all nodes, hears what other nodes counted, and says who is
//! paused.
//!
//! The gate of the process stops such an agent at once ([`clawnode_guard::runaway`]). Here follows what the
//! cluster has to know: a worker says it in its heartbeat, and a gateway stores the pause.

use std::{fmt::Write, time::Duration};

use clawnode_actors::agent::Agents;
use clawnode_cluster::{
    Feed, PeekSeen,
    membership::{Announcer, Members},
};
use clawnode_guard::kill_switch::SwitchGate;
use clawnode_proto::{
    AgentName, ErrorChain, ProcessId,
    agents::{AgentPause, ExceededLimit},
    feed::EventBody,
    view::WarningView,
};
use tokio::{sync::watch, time::sleep};
use tracing::warn;

/// The name of the warning about a paused agent.
pub const PAUSED: &str = "agent.paused";
/// How soon a pause is stored again that could not be.
const AGAIN: Duration = Duration::from_secs(1);

/// Says at once that an agent exceeds a limit here, as long as the process lives: only gateways may store pauses,
/// so that a stolen worker's credential resumes no agent.
pub async fn say(switch_gate: SwitchGate, announcer: Announcer) {
    let mut changed = switch_gate.exceeded();
    while changed.changed().await.is_ok() {
        announcer.announce();
    }
}

/// Stores a pause for each agent that exceeds a limit here or in another process, as long as the process lives.
pub async fn keep(switch_gate: SwitchGate, agents: Agents, feed: Feed) {
    let mut changed = switch_gate.exceeded();
    loop {
        changed.mark_unchanged();
        let mut is_stored = true;
        for (agent, exceeded) in switch_gate.unstored() {
            is_stored &= store(&agents, &feed, agent.clone(), exceeded).await;
            // The record of an agent that this node does not know is not followed here.
            if agents.options(&agent).is_none() {
                switch_gate.forget_unstored(&agent);
            }
        }
        if !is_stored {
            // The agent is stopped here meanwhile, but other nodes may not know.
            sleep(AGAIN).await;
        } else if changed.changed().await.is_err() {
            return;
        }
    }
}

async fn store(agents: &Agents, feed: &Feed, agent: AgentName, exceeded: ExceededLimit) -> bool {
    let by = format!("node `{}`", feed.teller().1);
    let limit = Some(exceeded.limit);
    let pause = AgentPause { by, why: exceeded.to_string(), at: feed.now(), limit };
    match agents.pause(&agent, Some(pause.clone())).await {
        Ok(true) => feed.tell(EventBody::AgentPaused { agent, pause }),
        // Another node was first, and reports it.
        Ok(false) => {}
        Err(failure) => {
            let failure = ErrorChain(&failure).to_string();
            warn!(%agent, failure, "cannot store that an agent is paused; trying again");
            return false;
        }
    }
    true
}

/// Counts what other nodes say in their heartbeats, as long as the process lives.
pub async fn hear(switch_gate: SwitchGate, me: ProcessId, mut members: watch::Receiver<Members>) {
    loop {
        members.peek_seen(|members| {
            let others = members.alive.iter().filter(|other| other.process != me);
            switch_gate.hear(others.map(|other| (other.process, other.agents.as_slice())));
        });
        if members.changed().await.is_err() {
            return;
        }
    }
}

/// A warning about each paused agent, with the reason and the command that resumes it.
pub fn warnings(paused: Vec<(AgentName, Option<AgentPause>)>) -> Vec<WarningView> {
    let warning = |(agent, pause): (AgentName, Option<AgentPause>)| {
        let why = pause.map_or_else(|| "paused".to_owned(), |pause| pause.to_string());
        WarningView {
            name: PAUSED.to_owned(),
            message: format!("agent `{agent}` is {why}"),
            hint: format!("`clawnode agents resume {agent}` lets it go on"),
        }
    };
    paused.into_iter().map(warning).collect()
}

/// How often agents were paused, as Prometheus reads it. A gateway counts the pauses of the whole cluster.
pub fn metrics(agents: &Agents, out: &mut String) -> std::fmt::Result {
    let pauses = agents.pauses();
    if pauses.iter().all(|(_, causes)| causes.is_empty()) {
        return Ok(());
    }
    out.write_str(
        "# HELP clawnode_agent_paused_total Pauses of agents, by the limit or operator that caused them.\n\
         # TYPE clawnode_agent_paused_total counter\n",
    )?;
    for (agent, causes) in pauses {
        for (reason, count) in causes {
            writeln!(
                out,
                "clawnode_agent_paused_total{{agent=\"{agent}\",reason=\"{reason}\"}} {count}"
            )?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{Timestamp, agents::AgentLimit};

    use super::*;

    #[test]
    fn a_warning_says_why_an_agent_is_paused_and_how_it_goes_on() {
        let limit = Some(AgentLimit::ToolCallsPerMinute);
        let (by, why) = ("node `a`".to_owned(), "more than 5 tool calls in a minute".to_owned());
        let pause = AgentPause { by, why, at: Timestamp(1), limit };
        let (ops, old) = ("ops".parse().unwrap(), "old".parse().unwrap());
        let told = warnings(vec![(ops, Some(pause)), (old, None)]);
        let told: Vec<_> =
            told.iter().map(|warning| (warning.message.as_str(), warning.hint.as_str())).collect();
        assert_eq!(
            told,
            [
                (
                    "agent `ops` is paused by node `a`: more than 5 tool calls in a minute",
                    "`clawnode agents resume ops` lets it go on"
                ),
                ("agent `old` is paused", "`clawnode agents resume old` lets it go on"),
            ]
        );
    }
}
