//! The executors of one process: what it can run now, looked at again and again.
//!
//! An engine may start after the node, end, and come back. So executors are probed when the node
//! starts, whenever one says that it has changed, and every [`PROBE_EVERY`]. What others may ask of
//! this node follows from the last look.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use clawnode_cluster::Peek;
use clawnode_guard::kill_switch::SwitchGate;
use clawnode_proto::{Capability, ToolName};
use futures_util::{
    StreamExt,
    future::{BoxFuture, join_all},
    stream::FuturesUnordered,
};
use tokio::{sync::watch, time::timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::{
    Executor, Toolbox, ToolboxError,
    provider_health::{LOCAL, Providers},
};

/// How often executors are probed: how long jobs may go to an engine that is gone, unseen.
const PROBE_EVERY: Duration = Duration::from_secs(10);
/// How long a probe may take; an executor that takes longer is not well.
const PROBE_WAIT: Duration = Duration::from_secs(5);
/// How soon after a look the next one may be, however often executors say that they have changed.
const PROBE_PAUSE: Duration = Duration::from_millis(200);

/// How long a run waits for its tool to be there.
const TOOL_COMES: Duration = Duration::from_secs(3);

/// What a process can run now.
#[derive(Clone, Debug, Default)]
pub struct Available {
    /// All its tools, also those of executors that do not work: a run then reports what is wrong.
    pub toolbox: Toolbox,
    /// The capabilities that this node offers: those of its healthy executors.
    pub capabilities: BTreeSet<Capability>,
    /// How what runs them has fared, and who serves models.
    pub providers: Providers,
}

impl Available {
    /// What is available here once the tool is there, or after [`TOOL_COMES`] without it: agents may be
    /// given a tool a moment before its executor has it here.
    pub async fn having(
        available: &watch::Receiver<Self>,
        tool: &ToolName,
        cancelled: &CancellationToken,
    ) -> Self {
        let mut waits = available.clone();
        let comes = waits.wait_for(|available| available.toolbox.find(tool).is_some());
        tokio::select! {
            // Without it, the run says that the tool is not here.
            _ = tokio::time::timeout(TOOL_COMES, comes) => {}
            () = cancelled.cancelled() => {}
        }
        available.peek(Clone::clone)
    }
}

/// The executors of one process.
#[derive(Clone, Debug)]
pub struct Executors {
    list: Vec<Arc<dyn Executor>>,
    /// The kill switches that all their runs pass.
    switch_gate: SwitchGate,
    available: watch::Sender<Available>,
    providers: Providers,
    /// Whether the node stops.
    over: CancellationToken,
}

/// What a look at an executor has found.
struct ExecutorProbe {
    needed: BTreeSet<Capability>,
    health: Result<(), String>,
}

// === impl Executors ===

impl Executors {
    /// Looks for the first time at these executors, whose runs need a permit of `switch_gate`. Two tools of one name
    /// are refused.
    pub fn open(
        list: Vec<Arc<dyn Executor>>,
        switch_gate: SwitchGate,
    ) -> BoxFuture<'static, Result<Self, ToolboxError>> {
        Box::pin(async move {
            let providers = Providers::default();
            let toolbox =
                Toolbox::new(list.iter().map(Arc::clone))?.behind(&switch_gate).told(&providers);
            let available = watch::Sender::new(Available::default());
            let over = CancellationToken::new();
            let executors =
                Self { list, switch_gate, available, providers: providers.clone(), over };
            let looks = executors.look().await;
            for look in &looks {
                match &look.health {
                    Ok(()) => {}
                    // Most nodes do not have everything, and an MCP server has just been started. What an
                    // agent needs is named by `status`.
                    Err(why) => {
                        debug!(why, needed = ?look.needed, "this node takes no such tool calls");
                    }
                }
            }
            let capabilities = healthy(&looks);
            executors.available.send_replace(Available { toolbox, capabilities, providers });
            Ok(executors)
        })
    }

    /// The tools that can run now; notifies of each change.
    pub fn available(&self) -> watch::Receiver<Available> {
        self.available.subscribe()
    }

    /// How all that works for agents on this node fares.
    pub const fn providers(&self) -> &Providers {
        &self.providers
    }

    /// The node stops, and what runs its tools with it: that is no trouble.
    pub fn close(&self) {
        self.over.cancel();
    }

    /// Looks again and again; ends never.
    pub fn keep(self) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            loop {
                self.wait().await;
                let looks = self.look().await;
                self.tell(&looks);
            }
        })
    }

    /// Until it is time for another look.
    async fn wait(&self) {
        tokio::time::sleep(PROBE_PAUSE).await;
        let mut changes: FuturesUnordered<_> =
            self.list.iter().map(|executor| executor.changed()).collect();
        // Nothing is lost if it takes too long: the next look comes anyway.
        drop(timeout(PROBE_EVERY, changes.next()).await);
    }

    async fn look(&self) -> Vec<ExecutorProbe> {
        let looks = self.list.iter().map(|executor| async move {
            let specs = executor.tools();
            let own = executor.provider();
            let needed = specs.into_iter().filter_map(|spec| spec.capability).chain(own).collect();
            let health = match timeout(PROBE_WAIT, executor.health_check()).await {
                Ok(health) => health,
                Err(_elapsed) => {
                    Err(format!("a probe took longer than {} s", PROBE_WAIT.as_secs()))
                }
            };
            ExecutorProbe { needed, health }
        });
        let looks = join_all(looks).await;
        self.note(&looks);
        looks
    }

    /// A capability of several executors is healthy if one of them is.
    fn note(&self, looks: &[ExecutorProbe]) {
        let mut all: BTreeMap<String, &Result<(), String>> = BTreeMap::new();
        for look in looks {
            let mut names: Vec<String> = look.needed.iter().map(ToString::to_string).collect();
            if names.is_empty() {
                names.push(LOCAL.to_owned());
            }
            for name in names {
                let known = all.entry(name).or_insert(&look.health);
                if look.health.is_ok() {
                    *known = &look.health;
                }
            }
        }
        for (name, health) in all {
            self.providers.looked(&name, health);
        }
    }

    fn tell(&self, looks: &[ExecutorProbe]) {
        let capabilities = healthy(looks);
        let toolbox = match Toolbox::new(self.list.iter().map(Arc::clone)) {
            Ok(toolbox) => toolbox.behind(&self.switch_gate).told(&self.providers),
            Err(error) => {
                warn!(%error, "the tools stay as they were");
                self.available.peek(|available| available.toolbox.clone())
            }
        };
        self.available.send_if_modified(|now| {
            let gone: Vec<_> = now.capabilities.difference(&capabilities).cloned().collect();
            let new: Vec<_> = capabilities.difference(&now.capabilities).cloned().collect();
            if !gone.is_empty() {
                let told = |look: &ExecutorProbe| {
                    let why = look.health.as_ref().err()?;
                    look.needed.iter().find(|capability| gone.contains(capability))?;
                    let names: Vec<&str> = look.needed.iter().map(Capability::as_str).collect();
                    Some(format!("{}: {why}", names.join(", ")))
                };
                let why: Vec<String> = looks.iter().filter_map(told).collect();
                if self.over.is_cancelled() {
                    debug!(?gone, "this node takes no more tool calls");
                } else {
                    warn!(?gone, ?why, "this node no longer takes such tool calls");
                }
            }
            if !new.is_empty() {
                info!(?new, "this node takes such tool calls now");
            }
            let changed = now.capabilities != capabilities || !now.toolbox.is_like(&toolbox);
            *now = Available { toolbox, capabilities, providers: self.providers.clone() };
            changed
        });
    }
}

fn healthy(looks: &[ExecutorProbe]) -> BTreeSet<Capability> {
    let well = looks.iter().filter(|look| look.health.is_ok());
    well.flat_map(|look| look.needed.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use async_trait::async_trait;
    use clawnode_proto::{
        CallId, Position, SwitchId, Timestamp,
        kill_switch::{KillSwitch, SwitchRecord},
        tool::{EffectClass, Risk, ToolFailure, ToolOutcome, ToolSpec},
    };
    use tokio::sync::Notify;
    use tokio_util::sync::CancellationToken;

    use clawnode_cluster::PeekSeen;

    use super::*;
    use crate::ToolRun;

    /// An engine that can end and come back.
    #[derive(Debug, Default)]
    struct Engine {
        gone: Mutex<bool>,
        changed: Notify,
    }

    impl Engine {
        fn set(&self, gone: bool) {
            *self.gone.lock().unwrap() = gone;
            self.changed.notify_one();
        }
    }

    #[async_trait]
    impl Executor for Engine {
        fn tools(&self) -> Vec<ToolSpec> {
            vec![ToolSpec {
                name: "turn".parse().unwrap(),
                description: String::new(),
                input_schema: r#"{"type":"object"}"#.to_owned(),
                class: EffectClass::Once,
                risk: Risk::Write,
                capability: Some("engine".parse().unwrap()),
                timeout_ms: 1_000,
                pin: None,
                time: None,
            }]
        }

        async fn execute(&self, _: ToolRun, _: CancellationToken) -> ToolOutcome {
            ToolOutcome::done("turned")
        }

        async fn health_check(&self) -> Result<(), String> {
            if *self.gone.lock().unwrap() { Err("gone".to_owned()) } else { Ok(()) }
        }

        async fn changed(&self) {
            self.changed.notified().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_an_engine_needs_is_announced_while_it_is_well() {
        let (engine, switch_gate) = (Arc::new(Engine::default()), SwitchGate::default());
        engine.set(true);
        let list: Vec<Arc<dyn Executor>> = vec![engine.clone()];
        let executors = Executors::open(list, switch_gate.clone()).await.unwrap();
        let mut available = executors.available();
        assert!(available.peek_seen(|available| available.capabilities.is_empty()));
        let keeping = tokio::spawn(executors.keep());
        for gone in [false, true, false] {
            engine.set(gone);
            let now = available.wait_for(|now| now.capabilities.is_empty() == gone).await.unwrap();
            assert!(
                now.toolbox.find(&"turn".parse().unwrap()).is_some(),
                "a run tells what is wrong"
            );
        }
        // Its tools were made again, behind the same gate.
        let switch = KillSwitch {
            id: SwitchId::from_u128(1),
            scope: "tool:turn".parse().unwrap(),
            by: String::new(),
            at: Timestamp(1),
            why: String::new(),
        };
        switch_gate.take(Position(1), SwitchRecord::Set { switch });
        let run = ToolRun {
            call: CallId::from_u128(7),
            agent: "main".parse().unwrap(),
            tool: "turn".parse().unwrap(),
            arguments: serde_json::Map::new(),
            idempotency_key: "job_7".to_owned(),
            timeout: Duration::from_secs(1),
            sink: crate::RunSink::default(),
            shown: crate::ShownMedia::default(),
            limit: None,
        };
        let toolbox = available.peek(|available| available.toolbox.clone());
        let outcome = toolbox.execute(run, CancellationToken::new()).await;
        assert_eq!(outcome.failure, Some(ToolFailure::Refused), "KILL-1");
        keeping.abort();
    }

    #[tokio::test]
    async fn an_engine_that_does_not_say_so_is_seen_too() {
        tokio::time::pause();
        let engine = Arc::new(Engine::default());
        let list: Vec<Arc<dyn Executor>> = vec![engine.clone()];
        let executors = Executors::open(list, SwitchGate::default()).await.unwrap();
        let mut available = executors.available();
        let keeping = tokio::spawn(executors.keep());
        *engine.gone.lock().unwrap() = true;
        available.wait_for(|now| now.capabilities.is_empty()).await.unwrap();
        keeping.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_waits_a_moment_for_a_tool_that_its_agent_was_just_given() {
        let (name, never) = ("turn".parse().unwrap(), CancellationToken::new());
        let begun = tokio::time::Instant::now();
        let (tell, available) = watch::channel(Available::default());
        let without = Available::having(&available, &name, &never).await;
        assert!(without.toolbox.find(&name).is_none() && begun.elapsed() == TOOL_COMES);
        let stopped = CancellationToken::new();
        stopped.cancel();
        let begun = tokio::time::Instant::now();
        drop(Available::having(&available, &name, &stopped).await);
        assert_eq!(begun.elapsed(), Duration::ZERO, "a run that is cancelled waits for nothing");
        let engine: Arc<dyn Executor> = Arc::new(Engine::default());
        let toolbox = Toolbox::new([engine]).unwrap();
        let (with, ()) = tokio::join!(Available::having(&available, &name, &never), async {
            tell.send_modify(|available| available.toolbox = toolbox);
        });
        assert!(with.toolbox.find(&name).is_some() && begun.elapsed() == Duration::ZERO);
    }
}
