//! The gate that every piece of work passes, and that cancels work.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicBool},
};

use clawnode_proto::{
    AgentName, Position,
    agents::ExceededLimit,
    kill_switch::{KillSwitch, SwitchRecord, SwitchScope},
};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

#[cfg(feature = "test-util")]
use super::SwitchBug;
use super::{StoppableWork, SwitchView, WorkStopped};
use crate::runaway::AgentCounters;

/// The one gate of a process for all work that a kill switch may stop. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct SwitchGate(pub(super) Arc<Inner>);

#[derive(Debug, Default)]
pub(super) struct Inner {
    board: Mutex<Board>,
    /// Whether any agent has limits: most processes count nothing.
    pub(super) has_limits: AtomicBool,
    /// Changes whenever an agent exceeds a limit.
    pub(super) exceeded: watch::Sender<u64>,
    /// The view, for those who wait for it to change.
    view: watch::Sender<SwitchView>,
    /// Changes whenever a pass is given back.
    ended: watch::Sender<u64>,
    #[cfg(feature = "test-util")]
    planted: SwitchBug,
}

/// One lock over both, so that nothing begins between a check and a change.
#[derive(Debug, Default)]
pub(super) struct Board {
    pub(super) switches: SwitchView,
    pub(super) counters: AgentCounters,
    /// Agents that exceeded a limit here or in another process, until a pause of them is stored.
    pub(super) unstored: BTreeMap<AgentName, ExceededLimit>,
    /// From when the counters' time is.
    pub(super) began: Option<Instant>,
    passes: BTreeMap<u64, PermitsOut>,
    next: u64,
}

#[derive(Debug)]
struct PermitsOut {
    work: StoppableWork,
    stop: CancellationToken,
    /// Why it is to stop, once it is.
    why: Option<WorkStopped>,
}

/// The right to do a piece of work; dropping it means that the work has ended.
#[derive(Debug)]
pub struct WorkPermit {
    id: u64,
    switch_gate: SwitchGate,
    stop: CancellationToken,
}

// === impl SwitchGate ===

impl SwitchGate {
    /// A gate with a bug.
    #[cfg(feature = "test-util")]
    pub fn planted(planted: SwitchBug) -> Self {
        Self(Arc::new(Inner { planted, ..Inner::default() }))
    }

    pub(super) fn board(&self) -> MutexGuard<'_, Board> {
        self.0.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A pass for this, unless it is stopped now (KILL-1).
    pub fn enter(&self, work: StoppableWork) -> Result<WorkPermit, WorkStopped> {
        let mut board = self.board();
        let stopped = board.switches.stops(&work);
        #[cfg(feature = "test-util")]
        let stopped = match (self.0.planted, &work) {
            (SwitchBug::ToolsUnasked, StoppableWork::Tool { .. }) => None,
            _ => stopped,
        };
        if let Some(stopped) = stopped {
            return Err(stopped);
        }
        let (id, stop) = (board.next, CancellationToken::new());
        board.next += 1;
        board.passes.insert(id, PermitsOut { work, stop: stop.clone(), why: None });
        drop(board);
        Ok(WorkPermit { id, switch_gate: self.clone(), stop })
    }

    /// A pass for this, once the process is in touch with the store; the kill switch, if one stops it.
    pub async fn pass(&self, work: StoppableWork) -> Result<WorkPermit, KillSwitch> {
        let mut view = self.0.view.subscribe();
        loop {
            view.mark_unchanged();
            match self.enter(work.clone()) {
                Ok(pass) => return Ok(pass),
                Err(WorkStopped::KillSwitch(switch)) => return Err(switch),
                // The gate itself holds the sender.
                Err(WorkStopped::OutOfTouch) => drop(view.changed().await),
            }
        }
    }

    /// Takes a record in, and stops what it stops.
    pub fn take(&self, position: Position, record: SwitchRecord) {
        let switch = record.switch().clone();
        let is_on = record.is_on();
        let mut board = self.board();
        #[cfg(feature = "test-util")]
        if self.0.planted == SwitchBug::LastHeard {
            board.switches.forget(&switch.scope);
        }
        if !board.switches.take(position, record) {
            return;
        }
        let running = self.judge(&mut board);
        drop(board);
        let (scope, by, why) = (&switch.scope, &switch.by, &switch.why);
        if is_on {
            warn!(%scope, by, why, switch = %switch.id, running, "stopped by an operator");
        } else {
            info!(%scope, switch = %switch.id, "a kill switch is cleared");
        }
    }

    /// Takes in that what is under this key of the bucket cannot be read, which stops its scope
    /// (KILL-4); whether that is news.
    pub fn take_unreadable(&self, key: &str, position: Position) -> bool {
        let mut board = self.board();
        let is_news = board.switches.take_unreadable(key, position);
        if is_news {
            self.judge(&mut board);
        }
        is_news
    }

    /// Nothing is under this key of the bucket any more. What was under the key of a scope stays: a
    /// kill switch is cleared by a record that says so.
    pub fn forget(&self, key: &str) {
        let mut board = self.board();
        if board.switches.forget_strange(key) {
            self.judge(&mut board);
        }
    }

    /// The process lost touch with the store, or has found it again.
    pub fn touch(&self, lost: bool) {
        let mut board = self.board();
        if !board.switches.touch(lost) {
            return;
        }
        let running = self.judge(&mut board);
        drop(board);
        if lost {
            warn!(
                running,
                "this node is out of touch with the store: it stops its model calls and tools, \
                 because it would not hear of a kill switch"
            );
        } else {
            info!("this node reaches the store again; waiting work continues");
        }
    }

    /// Cancels the work that the view stops (KILL-2), and publishes the view; returns how much
    /// that was.
    pub(super) fn judge(&self, board: &mut Board) -> usize {
        let Board { switches, passes, .. } = board;
        let mut stopped = 0;
        #[cfg(feature = "test-util")]
        let cancels = self.0.planted != SwitchBug::NothingCancelled;
        #[cfg(not(feature = "test-util"))]
        let cancels = true;
        for out in passes.values_mut().filter(|out| out.why.is_none() && cancels) {
            if let Some(why) = switches.stops(&out.work) {
                out.why = Some(why);
                out.stop.cancel();
                stopped += 1;
            }
        }
        debug_assert!(
            !cancels
                || passes
                    .values()
                    .all(|out| out.why.is_some() || switches.stops(&out.work).is_none()),
            "KILL-2"
        );
        self.0.view.send_replace(switches.clone());
        stopped
    }

    /// What is stopped, now and from now on.
    pub fn view(&self) -> watch::Receiver<SwitchView> {
        self.0.view.subscribe()
    }

    /// What is stopped now.
    pub fn switches(&self) -> SwitchView {
        self.board().switches.clone()
    }

    /// Why this may not be done now.
    pub fn stops(&self, work: &StoppableWork) -> Option<WorkStopped> {
        self.board().switches.stops(work)
    }

    /// How much of a scope runs here.
    pub fn running(&self, scope: &SwitchScope) -> u32 {
        let board = self.board();
        let count = board.passes.values().filter(|out| out.work.is_of(scope)).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Waits until nothing of a scope runs here.
    pub async fn idle(&self, scope: &SwitchScope) {
        let mut ended = self.0.ended.subscribe();
        loop {
            ended.mark_unchanged();
            if self.running(scope) == 0 {
                return;
            }
            // The gate itself holds the sender.
            drop(ended.changed().await);
        }
    }
}

// === impl WorkPermit ===

impl WorkPermit {
    /// Waits until the work must stop, and says why.
    pub async fn stopped(&self) -> WorkStopped {
        self.stop.cancelled().await;
        // It is written before the token is cancelled.
        self.why().unwrap_or(WorkStopped::OutOfTouch)
    }

    /// Why the work must stop, if it must.
    pub fn why(&self) -> Option<WorkStopped> {
        self.switch_gate.board().passes.get(&self.id).and_then(|out| out.why.clone())
    }
}

impl Drop for WorkPermit {
    fn drop(&mut self) {
        self.switch_gate.board().passes.remove(&self.id);
        self.switch_gate.0.ended.send_modify(|count| *count = count.wrapping_add(1));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clawnode_proto::{SwitchId, Timestamp};
    use proptest::prelude::*;

    use super::*;

    const SCOPES: [&str; 5] = ["all", "egress", "tool:x", "tool:y", "agent:ada"];

    fn record(scope: usize, is_on: bool) -> SwitchRecord {
        let switch = KillSwitch {
            id: SwitchId::from_u128(1),
            scope: SCOPES[scope].parse().unwrap(),
            by: "token at a".to_owned(),
            at: Timestamp(1),
            why: String::new(),
        };
        if is_on {
            SwitchRecord::Set { switch }
        } else {
            SwitchRecord::Cleared { switch, by: String::new(), at: Timestamp(2) }
        }
    }

    fn work(kind: usize) -> StoppableWork {
        let agent = ["ada", "bob"][kind % 2].parse().unwrap();
        match kind / 2 {
            0 => StoppableWork::Call { agent },
            1 => StoppableWork::Tool { agent, tool: "x".parse().unwrap(), reaches_out: true },
            2 => StoppableWork::Tool { agent, tool: "y".parse().unwrap(), reaches_out: false },
            _ => StoppableWork::Egress { agent: Some(agent) },
        }
    }

    /// What happens at the gates of a cluster.
    #[derive(Clone, Copy, Debug)]
    enum Happens {
        /// An operator sets or clears a scope in the store.
        Change { scope: usize, on: bool },
        /// A node hears of a change, perhaps of an old one, perhaps again.
        Hear { node: usize, change: usize },
        /// A node loses touch with the store, or finds it.
        Touch { node: usize, lost: bool },
        /// Work wants to begin.
        Begin { node: usize, kind: usize },
        /// Work ends.
        End { which: usize },
    }

    fn happens() -> impl Strategy<Value = Happens> {
        prop_oneof![
            2 => (0..SCOPES.len(), any::<bool>())
                .prop_map(|(scope, is_on)| Happens::Change { scope, on: is_on }),
            4 => (0..3_usize, 0..64_usize).prop_map(|(node, change)| Happens::Hear { node, change }),
            1 => (0..3_usize, any::<bool>()).prop_map(|(node, lost)| Happens::Touch { node, lost }),
            4 => (0..3_usize, 0..8_usize).prop_map(|(node, kind)| Happens::Begin { node, kind }),
            2 => (0..64_usize).prop_map(|which| Happens::End { which }),
        ]
    }

    /// What each node has seen, kept apart from the code under test: the latest change of each
    /// scope that it heard of.
    fn forbids(heard: &[Option<(usize, bool)>], lost: bool, work: &StoppableWork) -> bool {
        let heard_on =
            heard.iter().enumerate().filter(|(_, change)| change.is_some_and(|(_, is_on)| is_on));
        lost || heard_on
            .map(|(scope, _)| SCOPES[scope].parse().unwrap())
            .any(|scope| work.is_of(&scope))
    }

    fn obeys(planted: SwitchBug, steps: &[Happens]) -> Result<(), String> {
        let gates: Vec<SwitchGate> = (0..3).map(|_| SwitchGate::planted(planted)).collect();
        let mut heard = vec![vec![None; SCOPES.len()]; 3];
        let mut lost = [false; 3];
        let mut changes: Vec<(usize, bool)> = Vec::new();
        let mut passes: Vec<(usize, WorkPermit, StoppableWork)> = Vec::new();
        for step in steps {
            match *step {
                Happens::Change { scope, on: is_on } => changes.push((scope, is_on)),
                Happens::Hear { node, change } => {
                    let Some(at) = change.checked_rem(changes.len()) else { continue };
                    let (scope, is_on) = changes[at];
                    gates[node].take(Position(at as u64 + 1), record(scope, is_on));
                    let known: &mut Option<(usize, bool)> = &mut heard[node][scope];
                    if known.is_none_or(|(before, _)| before < at) {
                        *known = Some((at, is_on));
                    }
                }
                Happens::Touch { node, lost: now } => {
                    gates[node].touch(now);
                    lost[node] = now;
                }
                Happens::Begin { node, kind } => {
                    let work = work(kind);
                    let may = !forbids(&heard[node], lost[node], &work);
                    match gates[node].enter(work.clone()) {
                        Ok(_) if !may => return Err(format!("KILL-1: {work:?} began at {node}")),
                        Ok(pass) => passes.push((node, pass, work)),
                        Err(why) if may => return Err(format!("{work:?} refused: {why}")),
                        Err(_) => {}
                    }
                }
                Happens::End { which } => {
                    if let Some(at) = which.checked_rem(passes.len()) {
                        drop(passes.swap_remove(at));
                    }
                }
            }
            for (node, pass, work) in &passes {
                if forbids(&heard[*node], lost[*node], work) && pass.why().is_none() {
                    return Err(format!("KILL-2: {work:?} goes on at {node}"));
                }
            }
        }
        for (node, switch_gate) in gates.iter().enumerate() {
            let running = passes.iter().filter(|(at, ..)| *at == node).count();
            if switch_gate.running(&SwitchScope::All) as usize != running {
                return Err(format!("{running} run at {node}"));
            }
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

        /// KILL-1, KILL-2, KILL-3: whatever a node hears, in any order.
        #[test]
        fn nothing_runs_that_the_nodes_own_view_forbids(
            steps in proptest::collection::vec(happens(), 0..80)
        ) {
            prop_assert_eq!(obeys(SwitchBug::None, &steps), Ok(()));
        }
    }

    /// The twin of the property: it finds what it is there for.
    #[test]
    fn planted_bugs_of_the_kill_switch_are_found() {
        use proptest::{strategy::ValueTree as _, test_runner::TestRunner};
        for planted in [SwitchBug::ToolsUnasked, SwitchBug::NothingCancelled, SwitchBug::LastHeard]
        {
            let mut runner = TestRunner::deterministic();
            let steps = proptest::collection::vec(happens(), 0..80);
            let found = (0..512).any(|_| {
                let steps = steps.new_tree(&mut runner).unwrap().current();
                obeys(planted, &steps).is_err()
            });
            assert!(found, "{planted:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_comes_while_out_of_touch_waits_and_a_kill_switch_answers_at_once() {
        let switch_gate = SwitchGate::default();
        switch_gate.touch(true);
        let mut waiting = tokio::spawn({
            let switch_gate = switch_gate.clone();
            async move { switch_gate.pass(work(1)).await }
        });
        let early = tokio::time::timeout(Duration::from_mins(1), &mut waiting).await;
        assert!(early.is_err(), "{early:?}");
        switch_gate.take(Position(1), record(4, true));
        assert!(
            switch_gate.pass(work(0)).await.is_err(),
            "a kill switch that is on refuses work, also out of touch"
        );
        switch_gate.touch(false);
        assert!(waiting.await.unwrap().is_ok(), "bob is not stopped");
    }

    #[tokio::test(start_paused = true)]
    async fn a_scope_is_idle_once_the_last_of_it_has_ended() {
        let switch_gate = SwitchGate::default();
        let (ada, bob) = (switch_gate.enter(work(0)).unwrap(), switch_gate.enter(work(1)).unwrap());
        switch_gate.take(Position(1), record(4, true));
        assert!(matches!(ada.stopped().await, WorkStopped::KillSwitch(_)));
        assert_eq!(bob.why(), None);
        let scope = "agent:ada".parse().unwrap();
        let idle = switch_gate.idle(&scope);
        tokio::pin!(idle);
        assert!(tokio::time::timeout(Duration::from_secs(1), &mut idle).await.is_err());
        drop(ada);
        idle.await;
        assert_eq!(switch_gate.running(&SwitchScope::All), 1);
        drop(bob);
    }
}
