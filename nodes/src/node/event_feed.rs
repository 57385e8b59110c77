//! Remembers the last events of the cluster that this process received, for people.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use clawnode_cluster::{BusEvent, Clock, Storage, SystemClock};
use clawnode_proto::{
    Cursor, CursorError, NodeName, ProcessId,
    api::Method,
    codec,
    cursor::Pair,
    feed::{ClusterEvent, EventBatch, EventBody},
    limits::EVENTS_KEPT,
    overview::{FeedRow, FeedView, TurnCounts},
};
use futures_util::StreamExt;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

/// The list that its pages are of.
const LIST: Method = Method::EventsList;

/// The last [`EVENTS_KEPT`] cluster events. Cheap to clone.
#[derive(Clone, Debug)]
pub struct EventLog {
    /// Whose log it is: numbers of events mean nothing elsewhere.
    process: ProcessId,
    ring: Arc<Mutex<Ring>>,
    /// The number of the last event, for requests that wait.
    last: watch::Sender<u64>,
    /// All waits end, because the process ends.
    stopping: CancellationToken,
}

/// The part of it in one answer.
#[derive(Debug)]
struct Page {
    events: Vec<FeedRow>,
    /// The number of the last event that was looked at.
    next: u64,
    missed: u64,
    turns: TurnCounts,
}

#[derive(Debug, Default)]
struct Ring {
    rows: VecDeque<FeedRow>,
    last: u64,
    turns: TurnCounts,
}

// === impl EventLog ===

impl EventLog {
    /// The empty log of a process; waits for events end at `stopping`.
    pub fn new(process: ProcessId, stopping: CancellationToken) -> Self {
        Self { process, ring: Arc::default(), last: watch::Sender::new(0), stopping }
    }

    /// Receives events on the bus, until that is closed.
    pub async fn run(self, storage: Storage) {
        let mut heard = match storage.bus.subscribe(storage.prefix.events()).await {
            Ok(heard) => heard,
            Err(failure) => {
                warn!(%failure, "cannot listen for cluster events; trying again");
                return;
            }
        };
        while let Some(event) = heard.next().await {
            match event {
                BusEvent::Message(message) => match codec::decode(&message.payload) {
                    Ok(batch) => self.hear(batch),
                    Err(failure) => debug!(%failure, "cluster events are not readable"),
                },
                // How many is not known; one is enough to show that there is a gap.
                BusEvent::Lagged => self.hear(EventBatch { events: Vec::new(), dropped: 1 }),
            }
        }
    }

    fn hear(&self, batch: EventBatch) {
        let last = {
            let mut ring = self.lock();
            // An unused number is a gap that readers see.
            ring.last += batch.dropped;
            for event in batch.events {
                ring.push(event);
            }
            ring.last
        };
        self.last.send_replace(last);
    }

    /// At most `limit` events after `after`, or the newest; if there are none, waits for one for
    /// at most `wait`. After a cursor of another process, which heard other events or the same ones in
    /// another order, it has all that it remembers.
    pub async fn read(
        &self,
        after: Option<&Cursor>,
        limit: usize,
        wait: Duration,
    ) -> Result<FeedView, CursorError> {
        let after = after.map(|cursor| cursor.read::<Pair<ProcessId, u64>>(LIST)).transpose()?;
        let after = after.map(|Pair(process, n)| (process == self.process).then_some(n));
        if let Some(Some(after)) = after
            && !wait.is_zero()
        {
            let mut last = self.last.subscribe();
            let more = last.wait_for(|last| *last != after);
            tokio::select! {
                waited = tokio::time::timeout(wait, more) => {
                    debug_assert!(!matches!(waited, Ok(Err(_))), "the log outlives its readers");
                }
                () = self.stopping.cancelled() => {}
            }
        }
        let page = self.lock().read(after.map(Option::unwrap_or_default), limit);
        let Page { events, next, missed, turns } = page;
        Ok(FeedView { events, next: Cursor::new(LIST, Pair(self.process, next)), missed, turns })
    }

    /// The name of a process, from its own events or from events about its death.
    pub fn name_of(&self, process: ProcessId) -> Option<NodeName> {
        self.lock().rows.iter().rev().find_map(|row| match &row.event {
            ClusterEvent { process: teller, node, .. } if *teller == process => Some(node.clone()),
            ClusterEvent { what: EventBody::NodeDead { process: dead, node }, .. }
                if *dead == process =>
            {
                node.clone()
            }
            _ => None,
        })
    }

    /// How long ago a process was reported dead, by the clocks of the reporter and of this one.
    pub fn dead_for(&self, process: ProcessId) -> Option<Duration> {
        let ring = self.lock();
        let told = ring.rows.iter().rev().find(|row| {
            matches!(row.event.what, EventBody::NodeDead { process: dead, .. } if dead == process)
        })?;
        let now = SystemClock.now().0;
        Some(Duration::from_millis(now.saturating_sub(told.event.at.0)))
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Ring ===

impl Ring {
    fn push(&mut self, event: ClusterEvent) {
        match &event.what {
            EventBody::TurnStarted { .. } => self.turns.started += 1,
            EventBody::TurnEnded { outcome, .. } => {
                self.turns.ended += 1;
                self.turns.unsuccessful += u64::from(outcome != "completed");
            }
            _ => {}
        }
        self.last += 1;
        if self.rows.len() == EVENTS_KEPT {
            self.rows.pop_front();
        }
        self.rows.push_back(FeedRow { n: self.last, event });
    }

    fn read(&self, after: Option<u64>, limit: usize) -> Page {
        let (events, after): (Vec<FeedRow>, u64) = match after {
            None => {
                let from = self.rows.len().saturating_sub(limit);
                let events: Vec<_> = self.rows.iter().skip(from).cloned().collect();
                let before = events.first().map_or(self.last, |row| row.n - 1);
                (events, before)
            }
            Some(after) => {
                let rows = self.rows.iter().filter(|row| row.n > after);
                (rows.take(limit).cloned().collect(), after)
            }
        };
        let full = events.len() == limit;
        let next = if full { events.last().map_or(after, |row| row.n) } else { self.last };
        let missed = (next - after).saturating_sub(events.len() as u64);
        Page { events, next, missed, turns: self.turns }
    }
}

#[cfg(test)]
mod tests {
    use clawnode_proto::Timestamp;

    use super::*;

    fn batch(count: usize, dropped: u64) -> EventBatch {
        let event = ClusterEvent {
            at: Timestamp(1),
            node: "n".parse().unwrap(),
            process: ProcessId::from_u128(1),
            what: EventBody::NodeDraining,
        };
        EventBatch { events: vec![event; count], dropped }
    }

    fn numbers(view: &FeedView) -> Vec<u64> {
        view.events.iter().map(|row| row.n).collect()
    }

    const OWN: ProcessId = ProcessId::from_u128(9);

    /// What comes after an event of this process: the numbers, that of `next`, and what is missed.
    async fn read(log: &EventLog, after: Option<u64>, limit: usize) -> (Vec<u64>, u64, u64) {
        let after = after.map(|n| Cursor::new(LIST, Pair(OWN, n)));
        let view = log.read(after.as_ref(), limit, Duration::ZERO).await.unwrap();
        let Pair(process, next) = view.next.read::<Pair<ProcessId, u64>>(LIST).unwrap();
        assert_eq!(process, OWN);
        (numbers(&view), next, view.missed)
    }

    #[tokio::test]
    async fn a_reader_misses_nothing_or_is_told() {
        let log = EventLog::new(OWN, CancellationToken::new());
        log.hear(batch(3, 0));
        assert_eq!(log.name_of(ProcessId::from_u128(1)), Some("n".parse().unwrap()));
        assert_eq!(log.name_of(ProcessId::from_u128(2)), None);
        assert_eq!(read(&log, None, 2).await, (vec![2, 3], 3, 0));
        // In pages.
        assert_eq!(read(&log, Some(0), 2).await, (vec![1, 2], 2, 0));
        assert_eq!(read(&log, Some(2), 2).await, (vec![3], 3, 0));
        // What was not told.
        log.hear(batch(1, 5));
        assert_eq!(read(&log, Some(3), 10).await, (vec![9], 9, 5));
        // What is not remembered.
        log.hear(batch(EVENTS_KEPT, 0));
        let (late, _, missed) = read(&log, Some(9), 10).await;
        assert_eq!((late.len(), missed), (10, 0));
        let (late, _, missed) = read(&log, Some(3), 10).await;
        assert_eq!((late[0], missed), (10, 6));
        // A cursor of another process: everything that is here, without a wait for more.
        let stranger = Cursor::new(LIST, Pair(ProcessId::from_u128(1), log.lock().last));
        let all = log.read(Some(&stranger), 5_000, Duration::from_mins(5)).await.unwrap();
        assert_eq!(all.events.len(), EVENTS_KEPT);
        let foreign = Cursor::new(Method::ParkedList, Pair(OWN, 3));
        assert!(log.read(Some(&foreign), 10, Duration::ZERO).await.is_err());
    }

    #[test]
    fn it_is_known_how_long_somebody_is_dead() {
        let log = EventLog::new(OWN, CancellationToken::new());
        let (gone, other) = (ProcessId::from_u128(7), ProcessId::from_u128(8));
        let mut told = batch(1, 0);
        let a_minute_ago = Timestamp(SystemClock.now().0 - 60_000);
        told.events[0].at = a_minute_ago;
        told.events[0].what = EventBody::NodeDead { process: gone, node: None };
        log.hear(told);
        assert_eq!(log.dead_for(gone).unwrap().as_secs(), 60);
        assert_eq!(log.dead_for(other), None);
    }

    #[tokio::test]
    async fn who_waits_is_woken_by_an_event_and_by_the_end() {
        let log = EventLog::new(OWN, CancellationToken::new());
        let (waiting, patience) = (log.clone(), Duration::from_mins(5));
        let at = |n: u64| Cursor::new(LIST, Pair(OWN, n));
        let reader = tokio::spawn(async move { waiting.read(Some(&at(0)), 10, patience).await });
        log.hear(batch(1, 0));
        assert_eq!(numbers(&reader.await.unwrap().unwrap()), [1]);
        log.stopping.cancel();
        assert_eq!(log.read(Some(&at(1)), 10, patience).await.unwrap().next, at(1));
    }
}
