//! Who is there: heartbeats in, a view of the cluster out.
//!
//! Liveness only: a wrong guess costs a forwarded input or a wasted call, never safety. A process
//! is held dead after [`DEAD_AFTER`] of silence. Silence counts only while this process hears its
//! *own* heartbeats come back: one that is cut off or was frozen declares nobody dead, and for
//! [`QUIET_AFTER_GAP`] after such a gap neither.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use clawnode_proto::{
    ProcessId, codec,
    node::{Heartbeat, NodeRole},
};
use futures_util::StreamExt;
use tokio::{sync::watch, time::Instant};
use tracing::{debug, info, warn};

use crate::{BusEvent, Substrate};

/// How often a process says that it is alive.
pub const HEARTBEAT: Duration = Duration::from_secs(1);
/// Silence after which a process is held dead.
pub const DEAD_AFTER: Duration = Duration::from_secs(6);
/// Silence of one's own echo that makes one's ears doubtful.
const ECHO_GAP: Duration = Duration::from_secs(3);
/// How long after such a gap nobody is declared dead.
const QUIET_AFTER_GAP: Duration = Duration::from_secs(10);
/// How long a dead process is remembered.
const FORGET_AFTER: Duration = Duration::from_mins(10);

/// The cluster as one process sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// The processes that are held alive, this one included, by process id.
    pub alive: Vec<Heartbeat>,
    /// Processes that fell silent lately.
    pub dead: BTreeSet<ProcessId>,
}

impl Members {
    /// The workers that take work.
    pub fn workers(&self) -> Vec<ProcessId> {
        self.alive
            .iter()
            .filter(|one| one.roles.contains(&NodeRole::Worker) && !one.draining)
            .map(|one| one.process)
            .collect()
    }
}

/// The pure part: what was heard when.
#[derive(Debug)]
struct Ears {
    me: ProcessId,
    heard: BTreeMap<ProcessId, (Heartbeat, Instant)>,
    echo: Instant,
    quiet_until: Instant,
    dead: BTreeMap<ProcessId, Instant>,
}

impl Ears {
    fn new(me: ProcessId, now: Instant) -> Self {
        let (heard, dead) = (BTreeMap::new(), BTreeMap::new());
        Self { me, heard, echo: now, quiet_until: now, dead }
    }

    fn hear(&mut self, now: Instant, heartbeat: Heartbeat) {
        if heartbeat.process == self.me {
            if now - self.echo > ECHO_GAP {
                self.quiet_until = now + QUIET_AFTER_GAP;
            }
            self.echo = now;
        }
        self.dead.remove(&heartbeat.process);
        self.heard.insert(heartbeat.process, (heartbeat, now));
    }

    fn judge(&mut self, now: Instant) {
        if now - self.echo > ECHO_GAP || now < self.quiet_until {
            return;
        }
        let silent: Vec<ProcessId> = self
            .heard
            .iter()
            .filter(|(process, (_, at))| **process != self.me && now - *at >= DEAD_AFTER)
            .map(|(process, _)| *process)
            .collect();
        for process in silent {
            self.heard.remove(&process);
            self.dead.insert(process, now);
            info!(%process, "a process fell silent and is held dead");
        }
        self.dead.retain(|_, at| now - *at < FORGET_AFTER);
    }

    fn members(&self) -> Members {
        Members {
            alive: self.heard.values().map(|(heartbeat, _)| heartbeat.clone()).collect(),
            dead: self.dead.keys().copied().collect(),
        }
    }
}

/// Says that this process is alive and listens for the others, until the bus is closed.
/// `heartbeat` is asked once a second for what to say.
pub async fn run(
    substrate: Substrate,
    me: ProcessId,
    heartbeat: Arc<dyn Fn() -> Heartbeat + Send + Sync>,
    view: watch::Sender<Members>,
) {
    let mut heard = match substrate.bus.subscribe(substrate.prefix.heartbeats()).await {
        Ok(heard) => heard,
        Err(failure) => {
            warn!(%failure, "cannot listen for heartbeats; trying again");
            return;
        }
    };
    let mut ears = Ears::new(me, Instant::now());
    let mut beat = tokio::time::interval(HEARTBEAT);
    beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = beat.tick() => {
                say(&substrate, me, &heartbeat()).await;
                ears.judge(Instant::now());
            }
            event = heard.next() => match event {
                Some(BusEvent::Message(message)) => match codec::decode(&message.payload) {
                    Ok(heartbeat) => ears.hear(Instant::now(), heartbeat),
                    Err(failure) => debug!(%failure, "a heartbeat is not readable"),
                },
                Some(BusEvent::Lagged) => {}
                None => return,
            },
        }
        view.send_if_modified(|known| {
            let members = ears.members();
            let changed = *known != members;
            *known = members;
            changed
        });
    }
}

async fn say(substrate: &Substrate, me: ProcessId, heartbeat: &Heartbeat) {
    let Ok(bytes) = codec::encode(heartbeat) else { return };
    let subject = substrate.prefix.heartbeat(me);
    if let Err(failure) = substrate.bus.publish(subject, None, Bytes::from(bytes)).await {
        debug!(%failure, "a heartbeat was not heard");
    }
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{
        Digest, Timestamp,
        node::{Load, VersionRange},
    };

    use super::*;

    fn heartbeat(process: u128) -> Heartbeat {
        Heartbeat {
            process: ProcessId::from_u128(process),
            node: "n".parse().unwrap(),
            version: "0".to_owned(),
            roles: vec![NodeRole::Worker],
            started: Timestamp(0),
            draining: false,
            entities: 0,
            config: Digest::ZERO,
            cordoned: false,
            speaks: VersionRange::default(),
            capabilities: BTreeSet::new(),
            load: Load::default(),
            shed: 0,
            first_of: 0,
            url: None,
        }
    }

    fn at(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn silence_kills_only_while_the_own_echo_is_unbroken() {
        let start = Instant::now();
        let mut ears = Ears::new(ProcessId::from_u128(1), start);
        ears.hear(start, heartbeat(1));
        ears.hear(start, heartbeat(2));
        // Deaf to itself as well: nobody is dead.
        ears.judge(at(start, 20));
        assert!(ears.members().dead.is_empty());
        // The echo is back, but the gap is too fresh to judge by.
        ears.hear(at(start, 20), heartbeat(1));
        ears.judge(at(start, 21));
        assert!(ears.members().dead.is_empty());
        for second in 21..=31 {
            ears.hear(at(start, second), heartbeat(1));
        }
        ears.judge(at(start, 31));
        assert_eq!(ears.members().dead, BTreeSet::from([ProcessId::from_u128(2)]));
        // Whoever speaks again lives again.
        ears.hear(at(start, 32), heartbeat(2));
        assert!(ears.members().dead.is_empty());
        assert_eq!(ears.members().workers().len(), 2);
    }
}
