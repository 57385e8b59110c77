//! What is stopped as one process sees it, and what follows for a piece of work. Pure.

use std::{collections::BTreeMap, fmt};

use clawnode_proto::{
    AgentName, Position, SwitchId, Timestamp, ToolName,
    kill_switch::{KillSwitch, SwitchRecord, SwitchScope},
};

/// Keys of no scope that are kept in mind: one stops everything already.
const STRANGE_MAX: usize = 64;

/// A piece of work that a kill switch may stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoppableWork {
    /// A model call.
    Call {
        /// On whose behalf.
        agent: AgentName,
    },
    /// A run of a tool.
    Tool {
        /// On whose behalf.
        agent: AgentName,
        tool: ToolName,
        /// Whether it reaches for other machines.
        reaches_out: bool,
    },
    /// A request that leaves for another machine.
    Egress {
        /// On whose behalf; the node's own without one.
        agent: Option<AgentName>,
    },
}

/// Why a piece of work may not begin, or must end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkStopped {
    /// An operator stopped it.
    KillSwitch(KillSwitch),
    /// This process is out of touch with the store, so it would not hear of a kill switch.
    OutOfTouch,
}

/// What is stopped, as one process sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SwitchView {
    records: BTreeMap<SwitchScope, (Position, SwitchRecord)>,
    /// Records that cannot be read, under keys that no scope has.
    strange: BTreeMap<String, KillSwitch>,
    /// Agents that exceeded a limit, each with the stop that follows for its work.
    runaways: BTreeMap<AgentName, KillSwitch>,
    out_of_touch: bool,
}

// === impl StoppableWork ===

impl StoppableWork {
    /// On whose behalf it is done.
    const fn agent(&self) -> Option<&AgentName> {
        match self {
            Self::Call { agent } | Self::Tool { agent, .. } => Some(agent),
            Self::Egress { agent } => agent.as_ref(),
        }
    }

    /// Whether a kill switch of this scope stops it.
    pub fn is_of(&self, scope: &SwitchScope) -> bool {
        match scope {
            SwitchScope::All => true,
            SwitchScope::Egress => {
                matches!(self, Self::Egress { .. } | Self::Tool { reaches_out: true, .. })
            }
            SwitchScope::Tool(name) => matches!(self, Self::Tool { tool, .. } if tool == name),
            SwitchScope::Agent(name) => self.agent() == Some(name),
        }
    }
}

// === impl WorkStopped ===

impl fmt::Display for WorkStopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KillSwitch(switch) => switch.fmt(f),
            Self::OutOfTouch => f.write_str(
                "the node that ran it lost touch with the store, and stopped it because it could \
                 not have heard an operator",
            ),
        }
    }
}

// === impl SwitchView ===

impl SwitchView {
    /// Takes a record in, unless it knows a later one (KILL-3); whether anything changed.
    pub fn take(&mut self, position: Position, record: SwitchRecord) -> bool {
        let scope = record.switch().scope.clone();
        if self.records.get(&scope).is_some_and(|(known, _)| *known >= position) {
            return false;
        }
        self.records.insert(scope, (position, record));
        true
    }

    /// Takes in that what is under this key cannot be read (KILL-4); whether anything changed.
    pub(super) fn take_unreadable(&mut self, key: &str, position: Position) -> bool {
        let switch = unreadable(key, position);
        if SwitchScope::of_key(key).is_some() {
            return self.take(position, SwitchRecord::Set { switch });
        }
        let has_room = self.strange.len() < STRANGE_MAX || self.strange.contains_key(key);
        has_room && self.strange.insert(key.to_owned(), switch.clone()) != Some(switch)
    }

    /// Nothing is under this key any more; whether that is news. A scope's record says so itself.
    pub(super) fn forget_strange(&mut self, key: &str) -> bool {
        self.strange.remove(key).is_some()
    }

    /// The keys of no scope under which is what cannot be read.
    pub fn strange(&self) -> Vec<String> {
        self.strange.keys().cloned().collect()
    }

    /// Forgets first what it knew of this scope.
    #[cfg(feature = "test-util")]
    pub(super) fn forget(&mut self, scope: &SwitchScope) {
        self.records.remove(scope);
    }

    /// The process lost touch with the store, or found it again; whether that is news.
    pub(super) fn touch(&mut self, lost: bool) -> bool {
        std::mem::replace(&mut self.out_of_touch, lost) != lost
    }

    /// Whether the process is out of touch with the store.
    pub const fn is_out_of_touch(&self) -> bool {
        self.out_of_touch
    }

    /// Why this may not be done now.
    pub fn stops(&self, work: &StoppableWork) -> Option<WorkStopped> {
        let runaway = || work.agent().and_then(|agent| self.runaways.get(agent));
        match self.on().find(|switch| work.is_of(&switch.scope)).or_else(runaway) {
            Some(switch) => Some(WorkStopped::KillSwitch(switch.clone())),
            None => self.out_of_touch.then_some(WorkStopped::OutOfTouch),
        }
    }

    /// The kill switch that stops everything, if it is on.
    pub fn all(&self) -> Option<&KillSwitch> {
        self.on().find(|switch| switch.scope == SwitchScope::All)
    }

    /// The kill switch of an agent, or the one that stops everything.
    pub fn of_agent(&self, agent: &AgentName) -> Option<&KillSwitch> {
        let call = StoppableWork::Call { agent: agent.clone() };
        self.on().find(|switch| call.is_of(&switch.scope))
    }

    /// What ends the turns of an agent: a kill switch, or a limit that the agent exceeded.
    pub fn ends(&self, agent: &AgentName) -> Option<&KillSwitch> {
        self.of_agent(agent).or_else(|| self.runaways.get(agent))
    }

    /// The agent exceeded a limit, or goes on (`None`); whether that is news.
    pub(super) fn run_away(&mut self, agent: &AgentName, stop: Option<KillSwitch>) -> bool {
        match stop {
            Some(stop) => self.runaways.insert(agent.clone(), stop).is_none(),
            None => self.runaways.remove(agent).is_some(),
        }
    }

    /// The kill switches that are on, the widest first.
    pub fn on(&self) -> impl Iterator<Item = &KillSwitch> {
        let records_on = self.records.values().filter(|(_, record)| record.is_on());
        self.strange.values().chain(records_on.map(|(_, record)| record.switch()))
    }

    /// The position of a scope's record.
    pub fn position(&self, scope: &SwitchScope) -> Option<Position> {
        self.records.get(scope).map(|(position, _)| *position)
    }

    /// Scopes of which it knows a record.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether it knows no record.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
}

/// The stop that is seen in what cannot be read under this key; the same to all who look.
pub(super) fn unreadable(key: &str, position: Position) -> KillSwitch {
    KillSwitch {
        // A position is given once.
        id: SwitchId::from_u128(position.0.into()),
        scope: SwitchScope::of_key(key).unwrap_or(SwitchScope::All),
        by: "a record that cannot be read".to_owned(),
        at: Timestamp(0),
        why: format!("`{key}` in the bucket is not what an operator wrote"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switch(scope: &str) -> KillSwitch {
        KillSwitch {
            id: SwitchId::from_u128(1),
            scope: scope.parse().unwrap(),
            by: "token at a".to_owned(),
            at: Timestamp(1),
            why: String::new(),
        }
    }

    fn set(scope: &str) -> SwitchRecord {
        SwitchRecord::Set { switch: switch(scope) }
    }

    fn cleared(scope: &str) -> SwitchRecord {
        SwitchRecord::Cleared { switch: switch(scope), by: String::new(), at: Timestamp(2) }
    }

    fn call(agent: &str) -> StoppableWork {
        StoppableWork::Call { agent: agent.parse().unwrap() }
    }

    fn tool(agent: &str, tool: &str, reaches_out: bool) -> StoppableWork {
        StoppableWork::Tool {
            agent: agent.parse().unwrap(),
            tool: tool.parse().unwrap(),
            reaches_out,
        }
    }

    #[test]
    fn a_kill_switch_stops_what_is_of_its_scope_and_nothing_else() {
        let egress = StoppableWork::Egress { agent: Some("ada".parse().unwrap()) };
        for (scope, work, stops) in [
            ("all", call("ada"), true),
            ("all", tool("ada", "x", false), true),
            ("all", egress.clone(), true),
            ("egress", call("ada"), false),
            ("egress", tool("ada", "x", false), false),
            ("egress", tool("ada", "x", true), true),
            ("egress", egress.clone(), true),
            ("tool:x", call("ada"), false),
            ("tool:x", tool("ada", "x", false), true),
            ("tool:x", tool("ada", "y", true), false),
            ("tool:x", egress.clone(), false),
            ("agent:ada", call("ada"), true),
            ("agent:ada", tool("ada", "x", false), true),
            ("agent:ada", egress.clone(), true),
            ("agent:ada", call("bob"), false),
            ("agent:ada", tool("bob", "ada", true), false),
        ] {
            let mut switches = SwitchView::default();
            assert_eq!(switches.stops(&work), None);
            assert!(switches.take(Position(1), set(scope)));
            assert_eq!(switches.stops(&work).is_some(), stops, "{scope} {work:?}");
            assert!(switches.take(Position(2), cleared(scope)));
            assert_eq!(switches.stops(&work), None, "{scope} {work:?}");
        }
    }

    #[test]
    fn kill_3_what_comes_late_changes_nothing() {
        let mut switches = SwitchView::default();
        assert!(switches.take(Position(5), set("all")));
        assert!(!switches.take(Position(4), cleared("all")));
        assert!(!switches.take(Position(5), cleared("all")));
        assert!(switches.all().is_some(), "KILL-3");
        assert!(switches.take(Position(3), set("egress")), "another scope");
        assert!(switches.take(Position(6), cleared("all")));
        assert!(!switches.take(Position(5), set("all")));
        assert_eq!(switches.on().count(), 1, "KILL-3");
    }

    #[test]
    fn kill_4_what_cannot_be_read_stops_until_it_is_cleared() {
        let mut switches = SwitchView::default();
        let (known, nobodys) = ("latch.tool.x", "latch.zz");
        assert!(switches.take_unreadable(known, Position(5)));
        assert!(switches.stops(&tool("ada", "x", false)).is_some(), "KILL-4");
        assert_eq!(switches.stops(&call("ada")), None, "nothing but its scope");
        assert!(!switches.take_unreadable(known, Position(4)), "KILL-3");
        assert!(switches.take_unreadable(nobodys, Position(6)));
        assert!(!switches.take_unreadable(nobodys, Position(6)), "no news");
        assert!(switches.stops(&call("ada")).is_some(), "KILL-4");
        assert_eq!(switches.strange(), [nobodys]);
        let ids: Vec<_> = switches.on().map(|switch| switch.id).collect();
        assert_eq!(ids, [SwitchId::from_u128(6), SwitchId::from_u128(5)]);
        assert!(switches.forget_strange(nobodys) && !switches.forget_strange(known));
        assert!(switches.take(Position(7), cleared("tool:x")));
        assert_eq!(switches.on().count(), 0);
        // However many there are, what is kept of them is bounded.
        for number in 0..10_000 {
            switches.take_unreadable(&format!("latch.zz{number}"), Position(8 + number));
        }
        assert_eq!(switches.strange().len(), STRANGE_MAX);
    }

    #[test]
    fn an_operators_word_goes_before_a_lost_store() {
        let mut switches = SwitchView::default();
        assert!(switches.touch(true) && !switches.touch(true));
        assert_eq!(switches.stops(&call("ada")), Some(WorkStopped::OutOfTouch));
        switches.take(Position(1), set("agent:ada"));
        assert!(matches!(switches.stops(&call("ada")), Some(WorkStopped::KillSwitch(_))));
        assert_eq!(switches.stops(&call("bob")), Some(WorkStopped::OutOfTouch));
    }
}
