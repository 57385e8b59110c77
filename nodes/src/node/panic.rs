//! Stops agents for operators: stores the kill switch, notifies every node at once, and
//! reports the answer of each.
//!
//! The record in the bucket counts: a node that does not answer follows it as soon as it
//! sees it, and one that cannot see it stops by itself ([`clawnode_guard::kill_switch`]). The
//! notice only makes nodes look sooner, and no node trusts it: each reads the record.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use clawnode_actors::agent::{AgentOptions, Agents};
use clawnode_cluster::{Feed, RequestError, Storage};
use clawnode_guard::kill_switch::{self, SwitchError, SwitchGate};
use clawnode_proto::{
    AgentName, EntityId, ErrorBody, ErrorChain, ErrorCode, Position, ProcessId, SwitchId,
    api::{PanicClear, PanicParams},
    codec,
    feed::EventBody,
    kill_switch::{KillSwitch, PanicView, SwitchAck, SwitchList, SwitchScope, reason},
    node::{NodeReply, NodeRequest},
    overview::NodeList,
    view::WarningView,
};
use futures_util::{StreamExt, stream::FuturesUnordered};
use ractor::SpawnErr;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, warn};

use super::base::NodeBase;
use crate::start_error::StartError;

/// How long nodes may take to answer, unless asked otherwise: longer than what runs is given to
/// clean up.
const WAIT: Duration = Duration::from_secs(2);
/// How soon a node is asked again that has not seen the record yet.
const ASK_AGAIN: Duration = Duration::from_millis(20);
/// How long a node tries to read the kill switches before it gives up starting.
const READ_WITHIN: Duration = Duration::from_secs(15);
/// How soon it tries again.
const READ_AGAIN: Duration = Duration::from_millis(500);
/// How long the store may take to return the kill switches before the node uses its own view.
const LIST_WITHIN: Duration = Duration::from_secs(1);

/// Sets and clears kill switches at one gateway.
#[derive(Clone, Debug)]
pub struct PanicControl {
    storage: Storage,
    switch_gate: SwitchGate,
    pub(super) feed: Feed,
}

/// The gate of a process that is about to start: no work begins before the process has read what is stopped.
/// If it cannot read that, it closes the storage backend.
pub async fn open(storage: &Storage) -> Result<SwitchGate, StartError> {
    let switch_gate = SwitchGate::default();
    let read = async {
        while let Err(failure) = kill_switch::read(&switch_gate, storage.bucket.as_ref()).await {
            warn!(%failure, "cannot read what operators have stopped; trying again");
            sleep(READ_AGAIN).await;
        }
    };
    if timeout(READ_WITHIN, read).await.is_err() {
        storage.health.close().await;
        let message = "cannot read from the store what operators have stopped, so this node takes \
                       no work";
        return Err(StartError::unreachable("latch_unreadable", message)
            .hint("check the servers with `clawnode doctor`, then start again"));
    }
    for switch in switch_gate.switches().on() {
        warn!(scope = %switch.scope, by = switch.by, why = switch.why, "an operator has stopped this");
    }
    Ok(switch_gate)
}

/// The agents behind this gate, whose view follows the store.
pub async fn agents(
    options: Vec<AgentOptions>,
    base: &NodeBase,
    lost_after: Duration,
) -> Result<Agents, SpawnErr> {
    keep(base, lost_after).await?;
    let (bucket, switch_gate) = (Arc::clone(&base.storage.bucket), base.switch_gate.clone());
    let (budgets, supervisor) = (base.budgets.clone(), base.supervisor.clone());
    Agents::spawn(options, bucket, switch_gate, budgets, supervisor).await
}

/// Keeps the gate's view like the store, as long as the process lives; shuts it while the
/// store does not answer for `lost_after`.
async fn keep(base: &NodeBase, lost_after: Duration) -> Result<(), SpawnErr> {
    let NodeBase { storage, switch_gate, supervisor, .. } = base;
    let (bucket, followed) = (Arc::clone(&storage.bucket), switch_gate.clone());
    let follow = move || kill_switch::follow(followed.clone(), Arc::clone(&bucket));
    supervisor.adopt_task("latch.follow", follow).await?;
    if !storage.shared {
        // No other process can stop anything, and the store is this process's own.
        return Ok(());
    }
    let (bucket, switch_gate) = (Arc::clone(&storage.bucket), switch_gate.clone());
    let contact =
        move || kill_switch::contact(switch_gate.clone(), Arc::clone(&bucket), lost_after);
    supervisor.adopt_task("latch.contact", contact).await
}

// === impl PanicControl ===

impl PanicControl {
    /// The switch of the process of `feed`.
    pub fn new(storage: &Storage, switch_gate: &SwitchGate, feed: &Feed) -> Self {
        Self { storage: storage.clone(), switch_gate: switch_gate.clone(), feed: feed.clone() }
    }

    /// Why a new message to this agent is not taken now.
    pub fn refusal(&self) -> Option<ErrorBody> {
        let switches = self.switch_gate.switches();
        switches.all().map(|switch| {
            ErrorBody::new(ErrorCode::Stopped, format!("new messages are refused: {switch}"))
                .hint("stored messages wait; `clawnode panic --clear` lets everything continue")
        })
    }

    /// Why an agent cannot be resumed.
    pub fn refusal_of(&self, agent: &AgentName) -> Option<ErrorBody> {
        let switches = self.switch_gate.switches();
        switches.of_agent(agent).map(|switch| {
            ErrorBody::new(ErrorCode::Stopped, format!("resuming does not help: {switch}"))
                .hint(format!("clear it with `clawnode panic --clear --id {}`", switch.id))
        })
    }

    /// Warnings about kill switches.
    pub fn warnings(&self) -> Vec<WarningView> {
        let switches = self.switch_gate.switches();
        let warnings = switches.on().map(|switch| WarningView {
            name: match switch.scope {
                SwitchScope::All => "panic.all",
                SwitchScope::Egress => "panic.egress",
                SwitchScope::Tool(_) => "panic.tool",
                SwitchScope::Agent(_) => "panic.agent",
            }
            .to_owned(),
            message: switch.to_string(),
            hint: format!("clear it with `clawnode panic --clear --id {}`", switch.id),
        });
        let lost = switches.is_out_of_touch().then(|| WarningView {
            name: "node.out_of_touch".to_owned(),
            message: "this node cannot reach the store: it runs no model calls and no tools, \
                      because it could miss a stop"
                .to_owned(),
            hint: "it continues by itself once the store answers; check the servers".to_owned(),
        });
        warnings.chain(lost).collect()
    }

    /// The kill switches in the store, or as this node saw them last.
    pub async fn list(&self) -> SwitchList {
        let read = kill_switch::read(&self.switch_gate, self.storage.bucket.as_ref());
        match timeout(LIST_WITHIN, read).await {
            Ok(Ok(())) => {}
            Ok(Err(failure)) => debug!(%failure, "cannot read from the store what is stopped"),
            Err(_elapsed) => debug!("the store does not answer in time what is stopped"),
        }
        SwitchList { switches: self.switch_gate.switches().on().cloned().collect() }
    }

    /// Sets a kill switch, and waits for the nodes.
    pub async fn stop(
        &self,
        nodes: &NodeList,
        params: PanicParams,
        credential: &str,
    ) -> Result<PanicView, ErrorBody> {
        let began = Instant::now();
        let switch = KillSwitch {
            id: SwitchId::from_u128(ulid::Ulid::generate().0),
            scope: params.scope.unwrap_or(SwitchScope::All),
            by: self.by(credential),
            at: self.feed.now(),
            why: reason(&params.why),
        };
        let id = switch.id;
        let set = kill_switch::set(&self.switch_gate, self.storage.bucket.as_ref(), switch).await;
        let (position, switch) = set.map_err(|error| unstored(&error))?;
        let already = switch.id != id;
        if !already {
            self.tell(&switch, true, &switch.by);
        }
        let asking =
            SwitchRequest { switch: self, scope: &switch.scope, position, on: true, began };
        let nodes = asking.all(nodes, wait_of(params.wait_ms)).await;
        Ok(PanicView { switch, on: true, already, nodes })
    }

    /// Clears a kill switch, and waits for the nodes.
    pub async fn clear(
        &self,
        nodes: &NodeList,
        params: PanicClear,
        credential: &str,
    ) -> Result<PanicView, ErrorBody> {
        let began = Instant::now();
        let by = self.by(credential);
        let (bucket, at) = (self.storage.bucket.as_ref(), self.feed.now());
        let cleared =
            kill_switch::clear(&self.switch_gate, bucket, params.switch, by.clone(), at).await;
        let (position, switch) = cleared.map_err(|error| unstored(&error))?;
        self.tell(&switch, false, &by);
        let asking =
            SwitchRequest { switch: self, scope: &switch.scope, position, on: false, began };
        let nodes = asking.all(nodes, wait_of(params.wait_ms)).await;
        Ok(PanicView { switch, on: false, already: false, nodes })
    }

    /// Tells operators that one of them deleted an entity that was out of service.
    pub fn tell_discarded(&self, session: EntityId, credential: &str) {
        let by = self.by(credential);
        self.feed.tell(EventBody::Discarded { session, by });
    }

    fn by(&self, credential: &str) -> String {
        format!("{credential} at {}", self.feed.teller().1)
    }

    fn tell(&self, switch: &KillSwitch, is_on: bool, by: &str) {
        let (scope, by, why) = (switch.scope.clone(), by.to_owned(), switch.why.clone());
        self.feed.tell(EventBody::KillSwitch { scope, on: is_on, by, why });
    }
}

fn wait_of(asked: Option<u32>) -> Duration {
    asked.map_or(WAIT, |wait| Duration::from_millis(wait.into()))
}

fn unstored(error: &SwitchError) -> ErrorBody {
    let text = ErrorChain(error).to_string();
    match error {
        SwitchError::Full => ErrorBody::new(ErrorCode::Overloaded, text)
            .hint("stop everything instead: `clawnode panic --all`"),
        SwitchError::NotOn(_) => ErrorBody::new(ErrorCode::NotFound, text)
            .hint("`clawnode panic --list` shows what is stopped"),
        SwitchError::Busy(_) => ErrorBody::new(ErrorCode::Conflict, text)
            .hint("`clawnode panic --list` shows what is stopped; try again"),
        SwitchError::Store(_) => {
            let message = format!("it is not known whether the stop was stored: {text}");
            ErrorBody::new(ErrorCode::Unavailable, message)
                .hint("send it again, which does no harm; or stop the nodes' processes")
        }
    }
}

/// One kill switch on its way to the nodes.
#[derive(Clone, Copy)]
struct SwitchRequest<'a> {
    switch: &'a PanicControl,
    scope: &'a SwitchScope,
    position: Position,
    on: bool,
    began: Instant,
}

// === impl SwitchRequest ===

impl SwitchRequest<'_> {
    /// How each node takes it within `wait`, in name order.
    async fn all(self, nodes: &NodeList, wait: Duration) -> Vec<SwitchAck> {
        let until = self.began + wait;
        let asked: FuturesUnordered<_> = nodes
            .nodes
            .iter()
            .map(|node| async move {
                let mut ack = SwitchAck { node: Some(node.node.clone()), ..unheard(node.process) };
                if node.process == self.switch.feed.teller().0 {
                    self.own(&mut ack, until).await;
                } else {
                    self.other(&mut ack, until).await;
                }
                ack
            })
            .collect();
        let mut acks: Vec<SwitchAck> = asked.collect().await;
        acks.extend(nodes.dead.iter().filter(|dead| !dead.replaced).map(|dead| SwitchAck {
            node: dead.node.clone(),
            problem: Some("its heartbeats have stopped, and it counts as dead".to_owned()),
            ..unheard(dead.process)
        }));
        acks.sort_by(|a, b| (&a.node, a.process).cmp(&(&b.node, b.process)));
        acks
    }

    fn elapsed(self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// This node's gate has the record already.
    async fn own(self, ack: &mut SwitchAck, until: Instant) {
        ack.acknowledged_ms = Some(self.elapsed());
        let switch_gate = &self.switch.switch_gate;
        if !self.on {
            return;
        }
        // What still runs at the deadline is counted below.
        tokio::time::timeout_at(until, switch_gate.idle(self.scope)).await.ok();
        self.counted(ack, switch_gate.running(self.scope));
    }

    async fn other(self, ack: &mut SwitchAck, until: Instant) {
        loop {
            match self.ask(ack.process, Duration::ZERO, until).await {
                // It read before the record was there.
                Ok((position, _)) if position < self.position => sleep(ASK_AGAIN).await,
                Ok((_, running)) => {
                    ack.acknowledged_ms = Some(self.elapsed());
                    self.counted(ack, running);
                    break;
                }
                Err(why) => {
                    ack.problem = Some(why);
                    return;
                }
            }
        }
        if self.on && ack.running > 0 {
            let left = until.saturating_duration_since(Instant::now());
            // It answers a little before the question is given up.
            let wait = left.saturating_sub(ASK_AGAIN * 5);
            match self.ask(ack.process, wait, until).await {
                Ok((_, running)) => self.counted(ack, running),
                Err(why) => ack.problem = Some(why),
            }
        }
    }

    fn counted(self, ack: &mut SwitchAck, running: u32) {
        ack.running = running;
        ack.dead_ms = (self.on && running == 0).then(|| self.elapsed());
    }

    /// The position of the record at a process, and how much of it runs there.
    async fn ask(
        self,
        process: ProcessId,
        wait: Duration,
        until: Instant,
    ) -> Result<(Position, u32), String> {
        let wait_ms = u32::try_from(wait.as_millis()).unwrap_or(u32::MAX);
        let request = NodeRequest::KillSwitch { scope: self.scope.clone(), wait_ms };
        let bytes = codec::encode(&request).map_err(|failure| failure.to_string())?;
        let storage = &self.switch.storage;
        let subject = storage.prefix.rpc(process);
        let left = until.saturating_duration_since(Instant::now());
        match storage.bus.request(subject, Bytes::from(bytes), left).await {
            Ok(answer) => match codec::decode::<NodeReply>(&answer) {
                Ok(NodeReply::KillSwitch { position, running }) => Ok((position, running)),
                Ok(other) => Err(format!("unexpected answer {other:?}")),
                Err(failure) => Err(failure.to_string()),
            },
            Err(RequestError::Timeout { .. }) => Err("no answer in time".to_owned()),
            Err(RequestError::NoResponders { .. }) => Err("no process listens there".to_owned()),
            Err(failure) => Err(ErrorChain(&failure).to_string()),
        }
    }
}

fn unheard(process: ProcessId) -> SwitchAck {
    let (node, acknowledged_ms, dead_ms, problem) = (None, None, None, None);
    SwitchAck { process, node, acknowledged_ms, dead_ms, running: 0, problem }
}
