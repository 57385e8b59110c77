//! What was heard when, and what follows from it. Pure: time is an argument.

use std::collections::{BTreeMap, BTreeSet};

use clawnode_proto::{
    ProcessId,
    node::{Hearsay, Heartbeat, NodeRole},
};
use tokio::time::{Duration, Instant};
use tracing::info;

use super::{
    Members, MembershipOptions,
    doubt::{Doubt, Probed},
};
use crate::BusConnection;

/// How long a dead process is remembered.
const FORGET_AFTER: Duration = Duration::from_mins(10);
/// How recent a death must be to inform a newcomer of it. Older deaths are known to all other
/// processes, which have taken over the work of the dead one.
const TELL_WITHIN: Duration = Duration::from_mins(2);
/// How many recent deaths one process reports at once, the latest first.
const TELL_MOST: usize = 32;
/// The shortest time between two such messages of one process. A newcomer that joins in between hears
/// of the deaths from two other processes, or waits for `dead_after`.
const TELL_AGAIN: Duration = Duration::from_millis(250);
/// How many processes inform a newcomer: those that follow it in the ring of ids.
const TELLERS: usize = 3;
/// How many processes that were never heard can be in doubt at once. The others are dead after
/// `dead_after`, by their silence.
const STRANGERS_MOST: usize = 64;

/// One process's knowledge of the others.
#[derive(Debug)]
pub(super) struct MembershipState {
    me: ProcessId,
    options: MembershipOptions,
    heard: BTreeMap<ProcessId, LivePeer>,
    dead: BTreeMap<ProcessId, Death>,
    /// When this process last reported deaths to a newcomer.
    deaths_told: Option<Instant>,
    doubts: BTreeMap<ProcessId, Doubt>,
    /// The processes that are being asked routinely.
    asking: BTreeSet<ProcessId>,
    /// When the next few are asked again.
    ask_at: Instant,
    /// When its own heartbeat was heard first and last.
    first_echo: Option<Instant>,
    echo: Instant,
    quiet_until: Instant,
    attached: Option<BusConnection>,
    /// Until when a missing listener proves nothing of a process that was not heard since.
    broken_until: Instant,
    /// When its own connection broke last, or it heard again after a gap.
    shaken: Instant,
    /// Messages for the others.
    tell: Vec<Hearsay>,
}

/// A process that is held dead.
#[derive(Clone, Copy, Debug)]
struct Death {
    at: Instant,
    /// Whether this process had heard its heartbeats. Newcomers hear only of such deaths, so that
    /// no death is repeated without end.
    witnessed: bool,
}

/// A process that is held alive.
#[derive(Debug)]
struct LivePeer {
    heartbeat: Heartbeat,
    at: Instant,
    /// Whether it ever answered: one that never did may not listen yet.
    answered: bool,
}

// === impl MembershipState ===

impl MembershipState {
    pub(super) fn new(me: ProcessId, options: MembershipOptions, now: Instant) -> Self {
        Self {
            me,
            options,
            heard: BTreeMap::new(),
            dead: BTreeMap::new(),
            deaths_told: None,
            doubts: BTreeMap::new(),
            asking: BTreeSet::new(),
            ask_at: now,
            first_echo: None,
            echo: now,
            quiet_until: now,
            attached: None,
            broken_until: now,
            shaken: now,
            tell: Vec::new(),
        }
    }

    /// Takes the present state of its own connection.
    pub(super) fn attached(&mut self, now: Instant, attached: BusConnection) {
        if self.attached.as_ref().is_some_and(|known| *known != attached) {
            self.broken_until = now + self.options.quiet;
            self.shaken = now;
        }
        self.attached = Some(attached);
    }

    /// Takes a heartbeat. Returns whether it is a newcomer's: a newcomer needs the heartbeats of
    /// all.
    pub(super) fn hear(&mut self, now: Instant, heartbeat: Heartbeat) -> bool {
        let process = heartbeat.process;
        if process == self.me {
            if now - self.echo > self.options.echo_gap() {
                self.quiet_until = now + self.options.quiet;
                self.shaken = now;
            }
            self.echo = now;
            self.first_echo.get_or_insert(now);
        }
        self.dead.remove(&process);
        if heartbeat.leaving {
            // It has handed everything over: it is gone, and left no work behind.
            self.heard.remove(&process);
            self.doubts.remove(&process);
            return false;
        }
        if self.is_shaken(now) {
            // It is back as well: a missing listener before that proves nothing.
            self.doubts.remove(&process);
        }
        let known = self.heard.get(&process);
        let answered = known.is_some_and(|one| one.answered);
        // A process that joins sends its first heartbeat without a role, before it subscribes to
        // hearsay. It is a newcomer again when it sends its roles.
        let takes_part = !heartbeat.roles.is_empty();
        let joins = |known: &LivePeer| known.heartbeat.roles.is_empty() && takes_part;
        let is_newcomer = process != self.me && known.is_none_or(joins);
        if known.is_none() {
            // A probe that was answered before the first heartbeat proves nothing.
            self.doubts.remove(&process);
        }
        self.heard.insert(process, LivePeer { heartbeat, at: now, answered });
        if is_newcomer && takes_part && self.follows(process) {
            self.tell_deaths(now);
        }
        is_newcomer
    }

    /// Whether this process is one of the next few after `process` in the ring of ids.
    fn follows(&self, process: ProcessId) -> bool {
        let (before, after) = (self.heard.range(..process), self.heard.range(process..).skip(1));
        after.chain(before).take(TELLERS).any(|(next, _)| *next == self.me)
    }

    /// Reports the processes that died lately. A newcomer has not heard them, and could otherwise
    /// hold them dead only after it has listened for `dead_after`.
    fn tell_deaths(&mut self, now: Instant) {
        if self.deaths_told.is_some_and(|at| now - at < TELL_AGAIN) {
            return;
        }
        let recent =
            self.dead.iter().filter(|(_, dead)| dead.witnessed && now - dead.at < TELL_WITHIN);
        let mut recent: Vec<_> = recent.map(|(process, death)| (death.at, *process)).collect();
        if recent.is_empty() {
            return;
        }
        self.deaths_told = Some(now);
        recent.sort_unstable_by(|one, other| other.cmp(one));
        let told = recent.into_iter().take(TELL_MOST);
        self.tell.extend(told.map(|(_, process)| Hearsay::Dead { process }));
    }

    /// Takes the word of another process. It is only a reason to ask.
    pub(super) fn hearsay(&mut self, now: Instant, said: &Hearsay) {
        let (process, vouched) = match *said {
            Hearsay::Suspected { process } => (process, false),
            Hearsay::Gone { process } => (process, true),
            Hearsay::Dead { process } => return self.doubt_stranger(now, process),
        };
        if let Some(doubt) = self.doubt(now, process) {
            doubt.vouched |= vouched;
            self.judge(now);
        }
    }

    /// Takes a server's word that the connection of a process has ended.
    pub(super) fn parted(&mut self, now: Instant, process: ProcessId) {
        if let Some(doubt) = self.doubt(now, process) {
            doubt.vouched = true;
            self.tell.push(Hearsay::Gone { process });
        }
    }

    fn doubt(&mut self, now: Instant, process: ProcessId) -> Option<&mut Doubt> {
        let doubted = process != self.me && self.heard.contains_key(&process);
        doubted.then(|| self.doubts.entry(process).or_insert_with(|| Doubt::new(now, false)))
    }

    /// Puts a process in doubt that was never heard, because another process holds it dead. This
    /// process sends it its own requests. After `dead_after`, silence alone is enough.
    fn doubt_stranger(&mut self, now: Instant, process: ProcessId) {
        let is_known = process == self.me
            || self.heard.contains_key(&process)
            || self.dead.contains_key(&process)
            || self.has_heard_all(now);
        let strangers = self.doubts.keys().filter(|one| !self.heard.contains_key(one)).count();
        if !is_known && strangers < STRANGERS_MOST {
            self.doubts.entry(process).or_insert_with(|| Doubt::new(now, true));
        }
    }

    /// Takes the result of a request.
    pub(super) fn probed(&mut self, now: Instant, process: ProcessId, came_to: Probed) {
        self.asking.remove(&process);
        let peer = self.heard.get_mut(&process);
        if peer.is_none() && !self.doubts.contains_key(&process) {
            return;
        }
        match came_to {
            Probed::Answered => {
                if let Some(peer) = peer {
                    peer.answered = true;
                }
                self.doubts.remove(&process);
            }
            // It has a listener and is slow; silence will decide.
            Probed::Unknown => {
                self.doubts.remove(&process);
            }
            Probed::NoListener => {
                let known = self.doubts.contains_key(&process);
                if !known && !peer.is_some_and(|peer| peer.answered) {
                    return;
                }
                if !known {
                    self.tell.push(Hearsay::Suspected { process });
                }
                let again = self.options.probe_again;
                let doubt = self.doubts.entry(process).or_insert_with(|| Doubt::new(now, false));
                doubt.no_listener(now, again);
                self.judge(now);
            }
        }
    }

    /// The processes to ask now.
    pub(super) fn asks(&mut self, now: Instant) -> Vec<ProcessId> {
        let mut asks: Vec<ProcessId> = Vec::new();
        for (process, doubt) in &mut self.doubts {
            if !doubt.asking && now >= doubt.next {
                doubt.asking = true;
                asks.push(*process);
            }
        }
        if now >= self.ask_at {
            self.ask_at = now + self.options.probe_every;
            let next: Vec<ProcessId> = self.next_in_the_ring().collect();
            for process in next {
                if !self.doubts.contains_key(&process) && self.asking.insert(process) {
                    asks.push(process);
                }
            }
        }
        asks
    }

    /// The workers that follow this one in the ring of ids; none if it is not a worker.
    fn next_in_the_ring(&self) -> impl Iterator<Item = ProcessId> {
        let is_worker = |peer: &LivePeer| peer.heartbeat.roles.contains(&NodeRole::Worker);
        let takes_part = self.heard.get(&self.me).is_some_and(is_worker);
        let (before, after) = (self.heard.range(..self.me), self.heard.range(self.me..));
        after
            .chain(before)
            .filter(move |(process, peer)| takes_part && **process != self.me && is_worker(peer))
            .map(|(process, _)| *process)
            .take(MembershipOptions::PROBED)
    }

    /// When it has work again, if nothing happens before.
    pub(super) fn wake(&self, now: Instant) -> Instant {
        let doubts = self.doubts.values().filter(|doubt| !doubt.asking).map(|doubt| doubt.next);
        let settles = self.first_echo.map(|at| at + self.options.settle).filter(|at| *at > now);
        doubts.chain(settles).fold(self.ask_at, Instant::min)
    }

    /// Declares processes dead that are.
    pub(super) fn judge(&mut self, now: Instant) {
        if now - self.echo > self.options.echo_gap() {
            return;
        }
        let hears = self.hears(now);
        let silent = |peer: &LivePeer| hears && now - peer.at >= self.options.dead_after;
        let mut found: Vec<(ProcessId, &'static str)> = Vec::new();
        for (process, peer) in self.heard.iter().filter(|(process, _)| **process != self.me) {
            if silent(peer) {
                found.push((*process, "it sends no heartbeats"));
            } else if self.is_gone(now, *process, peer) {
                found.push((*process, "it has no listener"));
            }
        }
        for (process, doubt) in &self.doubts {
            let is_gone = doubt.twice && doubt.vouched && !self.is_shaken(now);
            if is_gone && !self.heard.contains_key(process) {
                found.push((*process, "another process considers it dead, and it has no listener"));
            }
        }
        for (process, why) in found {
            info!(%process, why, "a process is considered dead");
            let witnessed = self.heard.remove(&process).is_some();
            self.dead.insert(process, Death { at: now, witnessed });
            let doubt = self.doubts.remove(&process);
            // A process that heard it from others need not pass it on.
            if doubt.is_some_and(|doubt| doubt.twice && !doubt.vouched) {
                self.tell.push(Hearsay::Gone { process });
            }
        }
        self.dead.retain(|_, death| now - death.at < FORGET_AFTER);
    }

    /// Whether there was no listener twice, where a living server would have known of one.
    fn is_gone(&self, now: Instant, process: ProcessId, peer: &LivePeer) -> bool {
        let Some(doubt) = self.doubts.get(&process) else { return false };
        // A process that was heard since has connected again, and what was sent before has arrived
        // by then.
        let is_back = peer.at >= self.shaken + self.options.heartbeat;
        if !doubt.twice || self.is_shaken(now) && !is_back {
            return false;
        }
        let same =
            |own: &BusConnection| !own.server.is_empty() && own.server == peer.heartbeat.server;
        doubt.vouched || self.attached.as_ref().is_some_and(same)
    }

    /// The messages for the others since the last call.
    pub(super) fn tells(&mut self) -> Vec<Hearsay> {
        std::mem::take(&mut self.tell)
    }

    /// Whether a process is held alive.
    pub(super) fn holds_alive(&self, process: ProcessId) -> bool {
        self.heard.contains_key(&process)
    }

    /// The cluster as this process sees it, with the processes whose clocks differ from most others'.
    pub(super) fn members(&self, now: Instant, clocks: BTreeMap<ProcessId, i64>) -> Members {
        Members {
            clocks,
            alive: self.heard.values().map(|peer| peer.heartbeat.clone()).collect(),
            dead: self.dead.keys().copied().collect(),
            settled: self.first_echo.is_some_and(|at| now >= at + self.options.settle),
            heard_all: self.has_heard_all(now),
        }
    }

    /// Whether it has listened, without a gap, for as long as silence takes to make a process dead.
    fn has_heard_all(&self, now: Instant) -> bool {
        self.hears(now)
            && now >= self.broken_until
            && self.first_echo.is_some_and(|at| now >= at + self.options.dead_after)
    }

    /// Whether the break of its own connection or hearing may have hit the others as well.
    fn is_shaken(&self, now: Instant) -> bool {
        now < self.broken_until || now < self.quiet_until
    }

    /// Whether silence means anything: its own heartbeats come back.
    pub(super) fn hears(&self, now: Instant) -> bool {
        now - self.echo <= self.options.echo_gap() && now >= self.quiet_until
    }
}
