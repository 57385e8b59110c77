//! Membership on the bus: sends heartbeats, listens, asks.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use clawnode_proto::{
    ProcessId, codec,
    node::{Hearsay, Heartbeat, NodeRequest},
};
use futures_util::{StreamExt, future::BoxFuture};
use tokio::{
    sync::{Notify, broadcast, watch},
    task::JoinSet,
    time::{Instant, MissedTickBehavior},
};
use tracing::{debug, warn};

use super::{ClusterClock, Members, MembershipOptions, doubt::Probed, state::MembershipState};
use crate::{BusEvent, RequestError, Storage};

/// How long one request may take; a process that needs longer is slow, not gone.
const ASK_WITHIN: Duration = Duration::from_secs(1);
/// The shortest time between two heartbeats, for any reason.
const BEAT_LEAST: Duration = Duration::from_millis(50);

/// Sends a heartbeat at once instead of at its time. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Announcer(Arc<Notify>);

/// One process's part in the cluster.
#[derive(Clone)]
pub struct Membership {
    /// The storage that it shares with the others.
    pub storage: Storage,
    pub me: ProcessId,
    /// How the processes watch each other.
    pub options: MembershipOptions,
    /// The time of day, by the heartbeats of all.
    pub clock: Arc<ClusterClock>,
    /// Its heartbeat now; the server and the time are added.
    pub heartbeat: Arc<dyn Fn() -> Heartbeat + Send + Sync>,
    /// Where its view of the cluster goes.
    pub view: watch::Sender<Members>,
    /// Makes it send a heartbeat at once.
    pub announcer: Announcer,
}

/// Its knowledge and its requests; forgotten when it is started again.
struct MembershipRun {
    state: MembershipState,
    /// At most one request for each process.
    asked: JoinSet<(ProcessId, Probed)>,
    /// The time of its last heartbeat.
    beaten: Option<Instant>,
    /// The time of its next heartbeat, if that is sooner than usual.
    due: Option<Instant>,
}

// === impl Announcer ===

impl Announcer {
    /// The heartbeat of the process has changed.
    pub fn announce(&self) {
        self.0.notify_one();
    }
}

// === impl Membership ===

impl Membership {
    /// Sends heartbeats, listens for the others and asks after them, until the bus is closed.
    pub fn run(self) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let bus = &self.storage.bus;
            let (heard, said) = tokio::join!(
                bus.subscribe(self.storage.prefix.heartbeats()),
                bus.subscribe(self.storage.prefix.all_hearsay()),
            );
            let (mut heard, mut said) = match (heard, said) {
                (Ok(heard), Ok(said)) => (heard, said),
                (Err(failure), _) | (_, Err(failure)) => {
                    warn!(%failure, "cannot listen for heartbeats of other nodes; trying again");
                    return;
                }
            };
            let mut partings = bus.partings();
            let mut life = MembershipRun {
                state: MembershipState::new(self.me, self.options.clone(), Instant::now()),
                asked: JoinSet::new(),
                beaten: None,
                due: None,
            };
            let mut beat = tokio::time::interval(self.options.heartbeat);
            beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                let wake = life.wake();
                tokio::select! {
                    _ = beat.tick() => life.due = Some(Instant::now()),
                    () = self.announcer.0.notified() => life.beat_soon(),
                    event = heard.next() => match event {
                        Some(event) => life.heard(event, &self.clock),
                        None => return,
                    },
                    event = said.next() => match event {
                        Some(event) => life.said(event),
                        None => return,
                    },
                    parted = parted(&mut partings) => life.state.parted(Instant::now(), parted),
                    Some(Ok((process, came_to))) = life.asked.join_next() => {
                        life.state.probed(Instant::now(), process, came_to);
                    }
                    () = tokio::time::sleep_until(wake) => {}
                }
                self.act(&mut life).await;
            }
        })
    }

    /// Acts on what was heard.
    async fn act(&self, life: &mut MembershipRun) {
        let now = Instant::now();
        life.state.attached(now, self.storage.bus.attached());
        if life.due.is_some_and(|due| due <= now) {
            (life.beaten, life.due) = (Some(now), None);
            self.beat().await;
            life.state.judge(now);
        }
        for process in life.state.asks(now) {
            life.asked.spawn(ask(self.storage.clone(), process));
        }
        for said in life.state.tells() {
            self.tell(&said).await;
        }
        let members = life.state.members(now, self.clock.apart());
        // Before that, it may have heard too few to change the time that it knows.
        if members.heard_all {
            self.clock.agree(|process| life.state.holds_alive(process));
        } else {
            self.clock.agree_at_first();
        }
        self.view.send_if_modified(|known| {
            let changed = *known != members;
            *known = members;
            changed
        });
    }

    async fn beat(&self) {
        let server = self.storage.bus.attached().server;
        let time = Some(self.clock.machine());
        let heartbeat = Heartbeat { server, time, ..(self.heartbeat)() };
        let Ok(bytes) = codec::encode(&heartbeat) else { return };
        let subject = self.storage.prefix.heartbeat(self.me);
        if let Err(failure) = self.storage.bus.publish(subject, None, Bytes::from(bytes)).await {
            debug!(%failure, "cannot publish a heartbeat");
        }
    }

    async fn tell(&self, said: &Hearsay) {
        let Ok(bytes) = codec::encode(said) else { return };
        let subject = self.storage.prefix.hearsay(self.me);
        if let Err(failure) = self.storage.bus.publish(subject, None, Bytes::from(bytes)).await {
            debug!(%failure, "cannot publish what this node knows of others");
        }
    }
}

impl std::fmt::Debug for Membership {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Membership").field("me", &self.me).finish_non_exhaustive()
    }
}

// === impl MembershipRun ===

impl MembershipRun {
    fn wake(&self) -> Instant {
        let wake = self.state.wake(Instant::now());
        self.due.map_or(wake, |due| due.min(wake))
    }

    /// A process wants a heartbeat of this one, or it has something to say.
    fn beat_soon(&mut self) {
        let soonest = self.beaten.map_or_else(Instant::now, |at| at + BEAT_LEAST);
        self.due.get_or_insert(soonest);
    }

    fn heard(&mut self, event: BusEvent, clock: &ClusterClock) {
        let BusEvent::Message(message) = event else { return };
        match codec::decode(&message.payload) {
            Ok(heartbeat) => {
                // Kept apart from the heartbeat: a later time alone is not a new view.
                let heartbeat: Heartbeat = heartbeat;
                let (process, said) = (heartbeat.process, heartbeat.time);
                if self.state.hear(Instant::now(), Heartbeat { time: None, ..heartbeat }) {
                    self.beat_soon();
                }
                if let Some(said) = said {
                    clock.hear(process, said);
                }
            }
            Err(failure) => debug!(%failure, "a heartbeat is not readable"),
        }
    }

    fn said(&mut self, event: BusEvent) {
        let BusEvent::Message(message) = event else { return };
        match codec::decode(&message.payload) {
            Ok(said) => self.state.hearsay(Instant::now(), &said),
            Err(failure) => debug!(%failure, "a message about other nodes is not readable"),
        }
    }
}

/// The next process that a server reports as gone; never, if servers do not report that.
async fn parted(partings: &mut Option<broadcast::Receiver<ProcessId>>) -> ProcessId {
    loop {
        let Some(receiver) = partings else { return std::future::pending().await };
        match receiver.recv().await {
            Ok(process) => return process,
            Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => *partings = None,
        }
    }
}

async fn ask(storage: Storage, process: ProcessId) -> (ProcessId, Probed) {
    let subject = storage.prefix.rpc(process);
    let Ok(request) = codec::encode(&NodeRequest::Ping) else { return (process, Probed::Unknown) };
    let came_to = match storage.bus.request(subject, Bytes::from(request), ASK_WITHIN).await {
        Ok(_) => Probed::Answered,
        Err(RequestError::NoResponders { .. }) => Probed::NoListener,
        Err(RequestError::Timeout { .. } | RequestError::Bus(_)) => Probed::Unknown,
    };
    (process, came_to)
}
