//! What each limited agent has done lately, in this process and in the others.

use std::collections::{BTreeMap, BTreeSet};

use clawnode_proto::{
    AgentName, ProcessId,
    agents::{AgentCounts, AgentLimit, AgentLimits, ExceededLimit},
    limits::AGENT_COUNTS_TOLD,
};

use super::window::SlidingWindow;

/// The counts of one process: its own and those that it heard. Times are milliseconds of one clock that does
/// not go back.
#[derive(Debug, Default)]
pub struct AgentCounters {
    agents: BTreeMap<AgentName, AgentRecord>,
    /// The counts in the last heartbeat of each other process, by agent.
    heard: BTreeMap<ProcessId, BTreeMap<AgentName, AgentCounts>>,
}

#[derive(Debug)]
struct AgentRecord {
    limits: AgentLimits,
    /// Since the process started.
    total: AgentCounts,
    calls: SlidingWindow,
    egress: SlidingWindow,
    turns: SlidingWindow,
}

/// What follows from a heartbeat of another process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeardCounts {
    /// Agents that exceed a limit with what the other process counted.
    pub exceeded: Vec<(AgentName, ExceededLimit)>,
    /// Agents that the other process stopped, each once: a gateway stores a pause of them.
    pub stopped: Vec<(AgentName, ExceededLimit)>,
}

// === impl AgentCounters ===

impl AgentCounters {
    /// Takes the limits of an agent; it keeps what it counted. An agent without limits is not counted, and no
    /// more than `AGENT_COUNTS_TOLD` agents are.
    pub fn limit(&mut self, agent: &AgentName, limits: AgentLimits) {
        if limits.is_empty() {
            self.forget(agent);
        } else if let Some(record) = self.agents.get_mut(agent) {
            record.limits = limits;
        } else if self.agents.len() < AGENT_COUNTS_TOLD {
            self.agents.insert(agent.clone(), AgentRecord::new(agent, limits));
        }
    }

    /// The agent is not configured any more.
    pub fn forget(&mut self, agent: &AgentName) {
        self.agents.remove(agent);
    }

    /// Whether anything is counted for an agent.
    pub fn counts(&self, agent: &AgentName) -> bool {
        self.agents.contains_key(agent)
    }

    /// Counts what begins or has come now, unless that exceeds a limit. What is refused so is not counted.
    pub fn add(
        &mut self,
        agent: &AgentName,
        limit: AgentLimit,
        amount: u64,
        now_ms: u64,
    ) -> Result<(), ExceededLimit> {
        let Some(record) = self.agents.get_mut(agent) else { return Ok(()) };
        let Some(allowed) = record.limits.of(limit) else { return Ok(()) };
        let Some((window, total)) = record.of(limit) else { return Ok(()) };
        if window.sum(now_ms).saturating_add(amount) > allowed {
            return Err(ExceededLimit { limit, allowed });
        }
        window.add(now_ms, amount);
        *total = total.saturating_add(amount);
        Ok(())
    }

    /// Takes the counts of another process in. Its first word is where counting begins: what it counted before
    /// may be long ago.
    pub fn hear(&mut self, process: ProcessId, counts: &[AgentCounts], now_ms: u64) -> HeardCounts {
        let before = self.heard.remove(&process).unwrap_or_default();
        let (mut known, mut heard) = (BTreeMap::new(), HeardCounts::default());
        for said in counts.iter().take(AGENT_COUNTS_TOLD) {
            let before = before.get(&said.agent);
            if let Some(exceeded) = said.exceeded
                && before.is_none_or(|before| before.stops < said.stops)
            {
                heard.stopped.push((said.agent.clone(), exceeded));
            }
            if let (Some(record), Some(before)) = (self.agents.get_mut(&said.agent), before) {
                let exceeded = record.hear(before, said, now_ms);
                heard.exceeded.extend(exceeded.map(|limit| (said.agent.clone(), limit)));
            }
            known.insert(said.agent.clone(), said.clone());
        }
        if !known.is_empty() {
            self.heard.insert(process, known);
        }
        heard
    }

    /// This process stopped the agent, and says so until [`Self::stored`].
    pub fn stop(&mut self, agent: &AgentName, exceeded: ExceededLimit) {
        if let Some(record) = self.agents.get_mut(agent) {
            record.total.stops = record.total.stops.saturating_add(1);
            record.total.exceeded = Some(exceeded);
        }
    }

    /// It is stored whether the agent is paused.
    pub fn stored(&mut self, agent: &AgentName) {
        if let Some(record) = self.agents.get_mut(agent) {
            record.total.exceeded = None;
        }
    }

    /// Forgets the processes that are not alive. What they counted stays in the windows.
    pub fn keep(&mut self, alive: &BTreeSet<ProcessId>) {
        self.heard.retain(|process, _| alive.contains(process));
    }

    /// The agent was resumed: its windows are empty. Its totals stay, since others compare them.
    pub fn resume(&mut self, agent: &AgentName) {
        if let Some(record) = self.agents.get_mut(agent) {
            record.clear();
        }
    }

    /// What this process counted since it started, of each agent that has limits, by name.
    pub fn told(&self) -> Vec<AgentCounts> {
        self.agents.values().map(|record| record.total.clone()).collect()
    }
}

// === impl AgentRecord ===

impl AgentRecord {
    fn new(agent: &AgentName, limits: AgentLimits) -> Self {
        Self {
            limits,
            total: AgentCounts::new(agent.clone()),
            calls: SlidingWindow::new(60_000),
            egress: SlidingWindow::new(86_400_000),
            turns: SlidingWindow::new(3_600_000),
        }
    }

    fn clear(&mut self) {
        let total = self.total.clone();
        *self = Self { total, ..Self::new(&self.total.agent, self.limits) };
    }

    /// The window and the total that a limit counts.
    const fn of(&mut self, limit: AgentLimit) -> Option<(&mut SlidingWindow, &mut u64)> {
        match limit {
            AgentLimit::ToolCallsPerMinute => Some((&mut self.calls, &mut self.total.tool_calls)),
            AgentLimit::EgressBytesPerDay => Some((&mut self.egress, &mut self.total.egress_bytes)),
            AgentLimit::TurnsPerHour => Some((&mut self.turns, &mut self.total.turns)),
            AgentLimit::Unknown => None,
        }
    }

    /// Counts what another process counted since its last word.
    fn hear(
        &mut self,
        before: &AgentCounts,
        said: &AgentCounts,
        now_ms: u64,
    ) -> Option<ExceededLimit> {
        let mut exceeded = None;
        for limit in AgentLimit::ALL {
            let allowed = self.limits.of(limit);
            let news = count(said, limit).saturating_sub(count(before, limit));
            let Some((window, _)) = self.of(limit).filter(|_| news > 0) else { continue };
            window.add(now_ms, news);
            let allowed = allowed.filter(|allowed| window.sum(now_ms) > *allowed);
            exceeded = exceeded.or(allowed.map(|allowed| ExceededLimit { limit, allowed }));
        }
        exceeded
    }
}

const fn count(counts: &AgentCounts, limit: AgentLimit) -> u64 {
    match limit {
        AgentLimit::ToolCallsPerMinute => counts.tool_calls,
        AgentLimit::EgressBytesPerDay => counts.egress_bytes,
        AgentLimit::TurnsPerHour => counts.turns,
        AgentLimit::Unknown => 0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CALLS: AgentLimit = AgentLimit::ToolCallsPerMinute;
    const MINUTE: u64 = 60_000;
    /// The slot that a window may miss.
    const SLOT: u64 = 2_000;

    fn ada() -> AgentName {
        "ada".parse().unwrap()
    }

    fn calls(most: u64) -> AgentLimits {
        AgentLimits { tool_calls_per_minute: Some(most), ..AgentLimits::default() }
    }

    fn counters(most: u64) -> AgentCounters {
        let mut counters = AgentCounters::default();
        counters.limit(&ada(), calls(most));
        counters
    }

    fn process(n: usize) -> ProcessId {
        ProcessId::from_u128(n as u128)
    }

    /// What happens in a cluster of three processes.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Call {
            at: usize,
            later: u64,
        },
        /// A heartbeat of `from` arrives at `to`. Others may be lost.
        Beat {
            from: usize,
            to: usize,
        },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            6 => (0..3_usize, prop_oneof![0..400_u64, 0..20_000_u64])
                .prop_map(|(at, later)| Step::Call { at, later }),
            3 => (0..3_usize, 0..3_usize).prop_map(|(from, to)| Step::Beat { from, to }),
        ];
        proptest::collection::vec(step, 1..250)
    }

    /// A call that began: where and when, and when each process knew of it.
    struct Begun {
        at: usize,
        when: u64,
        known: [Option<u64>; 3],
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

        /// A call begins exactly if what its process knows of the window allows it: so no more than the limit
        /// and what was not heard, and no call is refused below the limit.
        #[test]
        fn a_limit_holds_but_for_what_was_not_heard_and_refuses_nothing_below_it(
            most in 1..12_u64, steps in steps()
        ) {
            let mut cluster: Vec<AgentCounters> = (0..3).map(|_| counters(most)).collect();
            for to in 0..3 {
                for from in (0..3).filter(|from| *from != to) {
                    let told = cluster[from].told();
                    cluster[to].hear(process(from), &told, 0);
                }
            }
            let (mut now, mut begun) = (0, Vec::<Begun>::new());
            for step in steps {
                match step {
                    Step::Call { at, later } => {
                        now += later;
                        let allowed = cluster[at].add(&ada(), CALLS, 1, now).is_ok();
                        let known = |length: u64| {
                            let known = begun.iter().filter_map(|call| call.known[at]);
                            known.filter(|when| now - when < length).count() as u64
                        };
                        if allowed {
                            let all = begun.iter().filter(|call| now - call.when < MINUTE - SLOT);
                            let unheard = all.clone().filter(|call| call.known[at].is_none()).count();
                            let all = all.count() as u64 + 1;
                            prop_assert!(all <= most + unheard as u64, "{all} began");
                            let mut known = [None; 3];
                            known[at] = Some(now);
                            begun.push(Begun { at, when: now, known });
                        } else {
                            prop_assert!(known(MINUTE) + 1 > most, "refused below the limit");
                        }
                    }
                    Step::Beat { from, to } if from != to => {
                        let told = cluster[from].told();
                        let exceeded = cluster[to].hear(process(from), &told, now).exceeded;
                        for call in begun.iter_mut().filter(|call| call.at == from) {
                            call.known[to] = call.known[to].or(Some(now));
                        }
                        let known = begun.iter().filter_map(|call| call.known[to]);
                        let known = known.filter(|when| now - when < MINUTE).count() as u64;
                        prop_assert!(exceeded.is_empty() || known > most, "paused below the limit");
                    }
                    Step::Beat { .. } => {}
                }
            }
        }
    }

    #[test]
    fn each_limit_has_its_own_window_and_a_limit_that_is_not_set_counts_nothing() {
        let mut counters = AgentCounters::default();
        let limits = AgentLimits {
            egress_bytes_per_day: Some(100),
            turns_per_hour: Some(1),
            tool_calls_per_minute: None,
        };
        counters.limit(&ada(), limits);
        let mut add = |limit, amount, now| counters.add(&ada(), limit, amount, now);
        assert_eq!(add(CALLS, 1_000, 0), Ok(()));
        assert_eq!(add(AgentLimit::EgressBytesPerDay, 100, 0), Ok(()));
        assert_eq!(add(AgentLimit::TurnsPerHour, 1, 0), Ok(()));
        let exceeded = add(AgentLimit::TurnsPerHour, 1, 57 * MINUTE).unwrap_err();
        assert_eq!(exceeded.to_string(), "more than 1 turns in an hour");
        assert_eq!(add(AgentLimit::TurnsPerHour, 1, 60 * MINUTE), Ok(()));
        assert!(add(AgentLimit::EgressBytesPerDay, 1, 23 * 60 * MINUTE).is_err());
        assert_eq!(add(AgentLimit::EgressBytesPerDay, 1, 24 * 60 * MINUTE), Ok(()));
    }

    #[test]
    fn a_resumed_agent_begins_anew_and_others_still_count_only_what_is_new() {
        let (mut here, mut there) = (counters(2), counters(3));
        there.hear(process(1), &here.told(), 0);
        for _ in 0..2 {
            here.add(&ada(), CALLS, 1, 0).unwrap();
        }
        assert!(here.add(&ada(), CALLS, 1, 0).is_err());
        assert_eq!(there.hear(process(1), &here.told(), 0), HeardCounts::default());
        here.resume(&ada());
        for _ in 0..2 {
            here.add(&ada(), CALLS, 1, 1).unwrap();
        }
        assert_eq!(here.told()[0].tool_calls, 4, "a total never falls");
        let heard = there.hear(process(1), &here.told(), 1);
        assert_eq!(heard.exceeded, [(ada(), ExceededLimit { limit: CALLS, allowed: 3 })]);
        // The same word again is no news.
        there.resume(&ada());
        assert_eq!(there.hear(process(1), &here.told(), 1), HeardCounts::default());
        assert_eq!(there.add(&ada(), CALLS, 3, 1), Ok(()));
    }

    #[test]
    fn the_first_word_of_a_process_counts_nothing_and_a_dead_one_is_forgotten() {
        let mut counters = counters(2);
        let said = |tool_calls| vec![AgentCounts { tool_calls, ..AgentCounts::new(ada()) }];
        assert_eq!(counters.hear(process(1), &said(1_000), 0), HeardCounts::default());
        assert_eq!(counters.hear(process(1), &said(1_002), 0), HeardCounts::default());
        counters.keep(&BTreeSet::from([process(2)]));
        assert!(counters.heard.is_empty());
        assert!(counters.add(&ada(), CALLS, 1, 0).is_err(), "what it counted stays counted");
    }

    #[test]
    fn only_limited_agents_are_counted_and_told_and_no_more_than_fit() {
        let mut counters = AgentCounters::default();
        for n in 0..AGENT_COUNTS_TOLD + 3 {
            counters.limit(&format!("a{n}").parse().unwrap(), calls(1));
        }
        assert_eq!(counters.told().len(), AGENT_COUNTS_TOLD);
        let first: AgentName = "a0".parse().unwrap();
        counters.limit(&first, AgentLimits::default());
        assert!(!counters.counts(&first));
        assert_eq!(counters.add(&first, CALLS, 9, 0), Ok(()));
        for n in 0..200 {
            let stranger = AgentCounts::new(format!("b{n}").parse().unwrap());
            counters.hear(process(1), &[stranger], 0);
        }
        let known: usize = counters.heard.values().map(BTreeMap::len).sum();
        assert_eq!(known, 1, "names that another process makes up take no memory");
    }

    /// A gateway stores a pause for each stop of another process, once, whatever limits it has itself.
    #[test]
    fn a_stop_of_another_process_is_reported_once_until_it_stops_the_agent_again() {
        let (mut worker, mut gateway) = (counters(1), AgentCounters::default());
        let exceeded = ExceededLimit { limit: CALLS, allowed: 1 };
        let hear = |gateway: &mut AgentCounters, worker: &AgentCounters| {
            gateway.hear(process(1), &worker.told(), 0).stopped
        };
        assert_eq!(hear(&mut gateway, &worker), []);
        worker.stop(&ada(), exceeded);
        assert_eq!(hear(&mut gateway, &worker), [(ada(), exceeded)]);
        assert_eq!(hear(&mut gateway, &worker), [], "a late heartbeat pauses nothing again");
        worker.stored(&ada());
        assert_eq!(hear(&mut gateway, &worker), []);
        worker.stop(&ada(), exceeded);
        assert_eq!(hear(&mut gateway, &worker), [(ada(), exceeded)]);
        let mut newcomer = AgentCounters::default();
        assert_eq!(hear(&mut newcomer, &worker), [(ada(), exceeded)], "it is not stored yet");
    }
}
