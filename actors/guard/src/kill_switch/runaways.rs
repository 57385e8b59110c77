//! Agents that exceed a limit: the gate counts what they do, and stops them until they are resumed.

use std::{collections::BTreeMap, sync::atomic::Ordering};

use clawnode_proto::{
    AgentName, ProcessId, SwitchId, Timestamp,
    agents::{AgentCounts, AgentLimit, AgentLimits, AgentPause, ExceededLimit},
    kill_switch::{KillSwitch, SwitchScope},
};
use tokio::{sync::watch, time::Instant};
use tracing::{info, warn};

use super::{SwitchGate, handle::Board};

// === impl SwitchGate ===

impl SwitchGate {
    /// Takes the limits of all agents. What was counted stays.
    pub fn limit(&self, limits: &BTreeMap<AgentName, AgentLimits>) {
        let mut board = self.board();
        let counted = board.counters.told();
        for gone in counted.iter().filter(|counted| !limits.contains_key(&counted.agent)) {
            board.counters.forget(&gone.agent);
        }
        board.unstored.retain(|agent, _| limits.contains_key(agent));
        for (agent, limits) in limits {
            board.counters.limit(agent, *limits);
        }
        let has_limits = !board.counters.told().is_empty();
        self.0.has_limits.store(has_limits, Ordering::Relaxed);
    }

    /// What this process counted for each agent that has limits.
    pub fn counts(&self) -> Vec<AgentCounts> {
        self.board().counters.told()
    }

    /// Counts what an agent does now. An agent that exceeds a limit by it is stopped at once, and what it
    /// wanted to do must not begin.
    pub fn count(
        &self,
        agent: &AgentName,
        limit: AgentLimit,
        amount: u64,
    ) -> Result<(), KillSwitch> {
        if !self.0.has_limits.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut board = self.board();
        let now = board.now_ms();
        board.counters.add(agent, limit, amount, now).map_err(|exceeded| {
            let stop = stop_of(agent, exceeded.limit, &exceeded.to_string());
            self.exceed(&mut board, agent, exceeded);
            stop
        })
    }

    /// Takes in what the processes that are alive counted, as their heartbeats say it.
    pub fn hear<'a>(&self, alive: impl IntoIterator<Item = (ProcessId, &'a [AgentCounts])>) {
        let mut board = self.board();
        let now = board.now_ms();
        let mut processes = std::collections::BTreeSet::new();
        for (process, counts) in alive {
            processes.insert(process);
            let heard = board.counters.hear(process, counts, now);
            for (agent, exceeded) in heard.exceeded {
                self.exceed(&mut board, &agent, exceeded);
            }
            for (agent, exceeded) in heard.stopped {
                board.unstored.insert(agent, exceeded);
                self.0.exceeded.send_modify(|count| *count = count.wrapping_add(1));
            }
        }
        board.counters.keep(&processes);
    }

    /// Changes whenever an agent exceeds a limit, here or in another process.
    pub fn exceeded(&self) -> watch::Receiver<u64> {
        self.0.exceeded.subscribe()
    }

    /// Agents that exceeded a limit, here or in another process, and whose pause is not stored yet.
    pub fn unstored(&self) -> BTreeMap<AgentName, ExceededLimit> {
        self.board().unstored.clone()
    }

    /// The pause of this agent need not be stored any more.
    pub fn forget_unstored(&self, agent: &AgentName) {
        self.board().unstored.remove(agent);
    }

    /// Takes in what is stored: why the agent is paused, or that it is not. One that a limit paused is stopped
    /// until it is resumed; then its counts start from 0 again.
    pub fn paused(&self, agent: &AgentName, pause: Option<&AgentPause>) {
        let mut board = self.board();
        board.unstored.remove(agent);
        board.counters.stored(agent);
        let stop =
            pause.and_then(|pause| pause.limit.map(|limit| stop_of(agent, limit, &pause.why)));
        let stops = stop.is_some();
        if !board.switches.run_away(agent, stop) {
            return;
        }
        if !stops {
            board.counters.resume(agent);
        }
        let running = self.judge(&mut board);
        drop(board);
        if stops {
            warn!(%agent, running, "an agent exceeded a limit on another node: its turns end");
        } else {
            info!(%agent, "an agent that exceeded a limit was resumed; its counts start from 0 again");
        }
    }

    fn exceed(&self, board: &mut Board, agent: &AgentName, exceeded: ExceededLimit) {
        let stop = stop_of(agent, exceeded.limit, &exceeded.to_string());
        if !board.switches.run_away(agent, Some(stop)) {
            return;
        }
        board.unstored.insert(agent.clone(), exceeded);
        board.counters.stop(agent, exceeded);
        let running = self.judge(board);
        self.0.exceeded.send_modify(|count| *count = count.wrapping_add(1));
        warn!(%agent, limit = %exceeded.limit, allowed = exceeded.allowed, running,
            "an agent exceeded a limit: its turns end, and it is paused on every node");
    }
}

impl Board {
    /// The counters' time. It does not go back.
    fn now_ms(&mut self) -> u64 {
        let began = *self.began.get_or_insert_with(Instant::now);
        u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// The stop that follows for the work of an agent that exceeded a limit. It is no kill switch of an operator:
/// no record has it, and resuming the agent clears it.
fn stop_of(agent: &AgentName, limit: AgentLimit, why: &str) -> KillSwitch {
    KillSwitch {
        id: SwitchId::from_u128(0),
        scope: SwitchScope::Agent(agent.clone()),
        by: format!("its limit `{limit}`"),
        at: Timestamp(0),
        why: format!("{why}; `clawnode agents resume {agent}` lets it go on"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kill_switch::{StoppableWork, WorkStopped};

    const CALLS: AgentLimit = AgentLimit::ToolCallsPerMinute;

    fn ada() -> AgentName {
        "ada".parse().unwrap()
    }

    fn gate(calls: u64) -> SwitchGate {
        let gate = SwitchGate::default();
        let limits = AgentLimits { tool_calls_per_minute: Some(calls), ..AgentLimits::default() };
        gate.limit(&[(ada(), limits), ("bob".parse().unwrap(), AgentLimits::default())].into());
        gate
    }

    fn call(agent: &str) -> StoppableWork {
        StoppableWork::Call { agent: agent.parse().unwrap() }
    }

    fn pause(limit: Option<AgentLimit>) -> AgentPause {
        let (by, why) = ("node n".to_owned(), "more than 2 tool calls in a minute".to_owned());
        AgentPause { by, why, at: Timestamp(1), limit }
    }

    #[tokio::test]
    async fn an_agent_over_its_limit_is_stopped_at_once_and_no_other_one() {
        let gate = gate(2);
        let mut exceeded = gate.exceeded();
        exceeded.mark_unchanged();
        let (runs, bob) = (gate.enter(call("ada")).unwrap(), gate.enter(call("bob")).unwrap());
        assert_eq!((gate.count(&ada(), CALLS, 1), gate.count(&ada(), CALLS, 1)), (Ok(()), Ok(())));
        assert_eq!(runs.why(), None, "the limit itself is allowed");
        let stop = gate.count(&ada(), CALLS, 1).unwrap_err();
        assert_eq!(
            stop.to_string(),
            "agent `ada` was stopped by its limit `tool_calls_per_minute`: more than 2 tool calls \
             in a minute; `clawnode agents resume ada` lets it go on"
        );
        assert_eq!(runs.stopped().await, WorkStopped::KillSwitch(stop.clone()));
        assert_eq!(gate.enter(call("ada")).unwrap_err(), WorkStopped::KillSwitch(stop));
        assert!(bob.why().is_none() && gate.enter(call("bob")).is_ok());
        assert!(exceeded.has_changed().unwrap());
        assert_eq!(gate.unstored().len(), 1);
        assert_eq!(gate.switches().of_agent(&ada()), None, "no operator has stopped it");
        assert!(gate.switches().ends(&ada()).is_some());
    }

    #[test]
    fn a_resumed_agent_goes_on_and_its_counts_begin_anew() {
        let gate = gate(1);
        gate.count(&ada(), CALLS, 1).unwrap();
        gate.count(&ada(), CALLS, 1).unwrap_err();
        // The pause that this node stored.
        gate.paused(&ada(), Some(&pause(Some(CALLS))));
        assert!(gate.unstored().is_empty() && gate.enter(call("ada")).is_err());
        gate.paused(&ada(), None);
        assert!(gate.enter(call("ada")).is_ok());
        assert_eq!(gate.count(&ada(), CALLS, 1), Ok(()));
        // What says again that it is not paused changes no count.
        gate.paused(&ada(), None);
        assert!(gate.count(&ada(), CALLS, 1).is_err());
    }

    #[test]
    fn a_pause_of_another_node_stops_work_here_and_one_of_an_operator_does_not() {
        let gate = gate(1);
        let runs = gate.enter(call("ada")).unwrap();
        gate.paused(&ada(), Some(&pause(None)));
        assert_eq!(runs.why(), None);
        gate.paused(&ada(), Some(&pause(Some(AgentLimit::Unknown))));
        assert!(matches!(runs.why(), Some(WorkStopped::KillSwitch(_))));
        assert!(gate.unstored().is_empty(), "it is stored already");
    }

    #[test]
    fn what_others_counted_stops_an_agent_here_too() {
        let gate = gate(3);
        let other = ProcessId::from_u128(2);
        let mut said = vec![AgentCounts { tool_calls: 5, ..AgentCounts::new(ada()) }];
        gate.hear([(other, said.as_slice())]);
        gate.count(&ada(), CALLS, 1).unwrap();
        said[0].tool_calls = 7;
        gate.hear([(other, said.as_slice())]);
        assert!(gate.enter(call("ada")).is_ok(), "three of three");
        said[0].tool_calls = 8;
        gate.hear([(other, said.as_slice())]);
        assert!(gate.enter(call("ada")).is_err());
        assert_eq!(gate.counts()[0].tool_calls, 1, "it reports its own alone");
    }

    /// A gateway may store pauses and a worker may not: the worker says what it stopped, and the gateway hears
    /// it.
    #[test]
    fn a_stop_is_said_to_others_until_its_pause_is_seen() {
        let (worker, gateway) = (gate(1), SwitchGate::default());
        let process = ProcessId::from_u128(1);
        let say = || gateway.hear([(process, worker.counts().as_slice())]);
        say();
        worker.count(&ada(), CALLS, 1).unwrap();
        worker.count(&ada(), CALLS, 1).unwrap_err();
        say();
        assert_eq!(gateway.unstored()[&ada()].to_string(), "more than 1 tool calls in a minute");
        assert!(gateway.enter(call("ada")).is_ok(), "what it hears stops nothing: the record does");
        gateway.paused(&ada(), Some(&pause(Some(CALLS))));
        gateway.paused(&ada(), None);
        // The worker has seen neither record yet.
        say();
        assert!(gateway.unstored().is_empty(), "one stop is one pause");
        worker.paused(&ada(), None);
        assert_eq!(worker.counts()[0].exceeded, None);
    }
}
