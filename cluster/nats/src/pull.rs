//! Pulling one partition: two overlapping pulls at its consumer.
//!
//! While one pull is answered or expires, the other waits at the server. So this rank always has a
//! pull waiting, and a message does not go to a higher one. Between messages this costs one small
//! request each [`EXPIRES`] / 2: a pull that the server forgot is sent again when
//! [`super::signals`] says so.
//!
//! A change of rank sends new pulls, with answers of their own. Old pulls of a worse rank may wait
//! out their time: they get only messages that no better rank takes. Old pulls of a better rank are
//! given up once the new ones are sent. Messages that they still bring are taken like the rest, but
//! the client stops listening without waiting for the server. So a message on its way at that
//! moment can be lost until it is delivered again: the caller that changed the rank must look at
//! what waits.
//!
//! Credit is how many messages the server may still send us; it bounds what is buffered here.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use async_nats::{
    Message, StatusCode, Subscriber,
    jetstream::{self, AckKind},
};
use async_trait::async_trait;
use clawnode_cluster::{Consumer, Delivery, StoreError};
use clawnode_proto::{Position, subject::entity_of};
use futures_util::StreamExt;
use serde_json::json;
use tokio::{sync::watch, time::Instant};
use tracing::{debug, warn};

use super::{
    ack::{self, Ack},
    api::{Api, RequestFailure},
    foreign_messages::is_foreign,
    topology::PULL_GROUP,
};

/// The name of the inbox in errors.
pub(super) const STORE: &str = "inbox";
/// Marks an input before which nothing of its entity waited when it was stored.
pub(super) const FOREMOST: &str = "Clawnode-Foremost";
/// Messages of one pull. Fewer cost more requests under load; more wait here, unseen by others.
const BATCH: usize = 64;
/// How long a pull waits at the server. Shorter costs more requests of idle partitions; longer
/// delays more if both the server forgets a pull and the word of it is lost.
const EXPIRES: Duration = Duration::from_secs(30);
/// How much longer than that we wait for the server's word that a pull is over.
const GRACE: Duration = Duration::from_secs(5);
/// How long to leave a consumer alone that has no leader or refuses.
const PAUSE: Duration = Duration::from_millis(250);
/// Pauses in a row before the caller gets an error (10 s; an election takes up to 8 s).
const PAUSES_MAX: u32 = 40;
/// Changes of rank whose answers may be under way at once; each takes a round trip.
const RETIRING_MAX: usize = 4;
/// The header in which the server says how much of an ended pull is left.
const PENDING_MESSAGES: &str = "Nats-Pending-Messages";

/// The stream of deliveries of one partition.
pub(super) struct Pull {
    api: Api,
    subject: String,
    /// The pulls of this rank.
    ranked: Option<Ranked>,
    /// Pulls of worse ranks that wait out their time, one of a rank.
    outdated: Vec<Ranked>,
    /// The answers to pulls that were given up, until messages on their way have come.
    retiring: Vec<Subscriber>,
    forgotten: watch::Receiver<u64>,
    pause: Option<Instant>,
    pauses: u32,
}

/// The pulls of one rank.
struct Ranked {
    rank: u8,
    reply: String,
    messages: Subscriber,
    waits: PendingPulls,
}

/// The pulls that wait at the server, as far as we know. Pure: no clock, no I/O.
#[derive(Debug, Default)]
struct PendingPulls {
    waiting: VecDeque<PendingPull>,
    credit: usize,
    serial: u64,
}

/// A pull that waits at the server.
#[derive(Clone, Copy, Debug)]
struct PendingPull {
    serial: u64,
    until: Instant,
}

/// Why a wait for messages ended.
enum PullWake {
    Message(Message),
    Outdated(Message, usize),
    Retired(Message),
    Forgotten,
    Time,
}

// === impl Ranked ===

impl Ranked {
    async fn listen(api: &Api, rank: u8) -> Result<Self, RequestFailure> {
        api.check_open()?;
        let reply = api.client.new_inbox();
        match api.client.subscribe(format!("{reply}.*")).await {
            Ok(messages) => Ok(Self { rank, reply, messages, waits: PendingPulls::default() }),
            Err(error) => Err(RequestFailure::Unknown(error.to_string())),
        }
    }

    /// Sees to it that two pulls wait and most of the credit is there.
    async fn refill(&mut self, api: &Api, subject: &str) -> Result<(), RequestFailure> {
        while let Some(expires) = self.waits.wanted() {
            let pull = json!({
                "batch": BATCH,
                "expires": u64::try_from(expires.as_nanos()).unwrap_or(u64::MAX),
                "group": PULL_GROUP,
                "priority": self.rank,
            });
            let reply = format!("{}.{}", self.reply, self.waits.serial);
            let sent =
                api.client.publish_with_reply(subject.to_owned(), reply, pull.to_string().into());
            match tokio::time::timeout(api.timeout, sent).await {
                Ok(Ok(())) => self.waits.sent(Instant::now(), expires),
                Ok(Err(error)) => return Err(RequestFailure::Unknown(error.to_string())),
                Err(elapsed) => return Err(RequestFailure::Unknown(elapsed.to_string())),
            }
        }
        Ok(())
    }

    /// Takes the server's word that one of the pulls is over.
    fn ended(&mut self, message: &Message) {
        let serial = message.subject.rsplit('.').next().and_then(|serial| serial.parse().ok());
        let left = message
            .headers
            .as_ref()
            .and_then(|headers| headers.get(PENDING_MESSAGES))
            .and_then(|left| left.as_str().parse().ok())
            .unwrap_or(BATCH);
        self.waits.ended(serial, left);
    }
}

/// The server's word about a pull or its consumer, if it is one and not a delivery.
fn status(message: &Message) -> Option<StatusCode> {
    message.status.filter(|status| *status != StatusCode::OK)
}

// === impl Pull ===

impl Pull {
    /// Listens for answers; the first pull is sent by the first `next`.
    pub(super) async fn open(
        api: Api,
        consumer: &str,
        rank: u8,
        mut forgotten: watch::Receiver<u64>,
    ) -> Result<Self, RequestFailure> {
        let ranked = Ranked::listen(&api, rank).await?;
        forgotten.mark_unchanged();
        Ok(Self {
            subject: format!("$JS.API.CONSUMER.MSG.NEXT.{consumer}"),
            api,
            ranked: Some(ranked),
            outdated: Vec::new(),
            retiring: Vec::new(),
            forgotten,
            pause: None,
            pauses: 0,
        })
    }

    async fn refill(&mut self) -> Result<(), RequestFailure> {
        match &mut self.ranked {
            Some(ranked) => ranked.refill(&self.api, &self.subject).await,
            None => Ok(()),
        }
    }

    /// Forgets pulls that must be over by now.
    fn expire(&mut self, now: Instant) {
        for ranked in self.ranked.iter_mut().chain(&mut self.outdated) {
            ranked.waits.expire(now);
        }
        // With no pull left at the server nothing is on its way.
        self.outdated.retain(|ranked| !ranked.waits.waiting.is_empty());
    }

    async fn wait(&mut self) -> Option<PullWake> {
        let Self { ranked, outdated, retiring, forgotten, api, pause, .. } = self;
        let ranked = ranked.as_mut()?;
        let until = pause.unwrap_or_else(|| ranked.waits.look_again(Instant::now()));
        tokio::select! {
            biased;
            message = retired(retiring), if !retiring.is_empty() => {
                Some(message.map_or(PullWake::Time, PullWake::Retired))
            }
            // Before new messages: their number is bounded, and their time runs.
            (message, at) = any(outdated), if !outdated.is_empty() => {
                message.map(|message| PullWake::Outdated(message, at))
            }
            message = ranked.messages.next() => message.map(PullWake::Message),
            changed = forgotten.changed() => changed.ok().map(|()| PullWake::Forgotten),
            () = api.closing.cancelled() => None,
            () = tokio::time::sleep_until(until) => Some(PullWake::Time),
        }
    }

    /// Takes the server's word about a pull that is over, or about its consumer.
    fn take_status(&mut self, status: StatusCode, message: &Message) -> Result<(), StoreError> {
        let description = message.description.as_deref().unwrap_or_default();
        let Some(ranked) = &mut self.ranked else { return Ok(()) };
        ranked.ended(message);
        match status {
            StatusCode::TIMEOUT => {
                self.pauses = 0;
                return Ok(());
            }
            StatusCode::NO_RESPONDERS => {
                ranked.waits.forget();
                debug!(subject = %self.subject, "consumer has no leader");
            }
            status => warn!(subject = %self.subject, %status, description, "pull was ended"),
        }
        // Both pulls are answered so: that is one pause.
        if self.pause.is_none() {
            self.pauses += 1;
        }
        self.pause = Some(Instant::now() + PAUSE);
        if self.pauses < PAUSES_MAX {
            return Ok(());
        }
        self.pauses = 0;
        Err(StoreError::Unavailable {
            store: STORE,
            detail: format!("`{}` is answered with {status} {description}", self.subject),
        })
    }

    fn take(&mut self, message: Message) -> Option<Delivery> {
        self.pauses = 0;
        let message = jetstream::Message { message, context: self.api.context.clone() };
        if is_foreign(message.headers.as_ref(), &message.payload) {
            ack::discard(&self.api, message);
            return None;
        }
        let Some(entity) = entity_of(&message.subject) else {
            // It stays where a person can see it; no worker could ever take it.
            warn!(subject = %message.subject, "an input's subject names no entity");
            return None;
        };
        let (position, redelivered) = match message.info() {
            Ok(info) => (Position(info.stream_sequence), info.delivered > 1),
            Err(error) => {
                warn!(%error, "a delivery's reply subject is not readable");
                return None;
            }
        };
        let bytes = message.payload.clone();
        let foremost = message.headers.as_ref().is_some_and(|all| all.get(FOREMOST).is_some());
        let handle = Arc::new(Ack { api: self.api.clone(), store: STORE, message });
        Some(Delivery { entity, position, redelivered, foremost, bytes, handle })
    }
}

#[async_trait]
impl Consumer for Pull {
    async fn next(&mut self) -> Result<Delivery, StoreError> {
        loop {
            self.expire(Instant::now());
            let is_paused = self.pause.is_some_and(|until| until > Instant::now());
            if !is_paused {
                self.pause = None;
                // No server can be asked while disconnected; the reconnect is signalled.
                if self.api.check_open().is_ok() {
                    self.refill().await.map_err(|failure| failure.of_store(STORE))?;
                }
            }
            let message = match self.wait().await {
                Some(PullWake::Message(message)) => {
                    if let Some(status) = status(&message) {
                        self.take_status(status, &message)?;
                        continue;
                    }
                    self.ranked.iter_mut().for_each(|ranked| ranked.waits.answered());
                    message
                }
                Some(PullWake::Outdated(message, at)) => {
                    let Some(ranked) = self.outdated.get_mut(at) else { continue };
                    if status(&message).is_some() {
                        ranked.ended(&message);
                        continue;
                    }
                    ranked.waits.answered();
                    message
                }
                Some(PullWake::Retired(message)) => message,
                Some(PullWake::Forgotten) => {
                    self.ranked.iter_mut().for_each(|ranked| ranked.waits.forget());
                    self.pause = None;
                    continue;
                }
                Some(PullWake::Time) => continue,
                None => return Err(RequestFailure::Closed.of_store(STORE)),
            };
            if let Some(delivery) = self.take(message) {
                return Ok(delivery);
            }
        }
    }

    async fn set_rank(&mut self, rank: u8) -> Result<(), StoreError> {
        if self.ranked.as_ref().is_some_and(|ranked| ranked.rank == rank) {
            return Ok(());
        }
        let known = self.outdated.iter().position(|ranked| ranked.rank == rank);
        let next = match known {
            Some(at) => self.outdated.remove(at),
            None => {
                Ranked::listen(&self.api, rank).await.map_err(|failure| failure.of_store(STORE))?
            }
        };
        self.outdated.extend(self.ranked.replace(next));
        let sent = match self.pause {
            Some(_) => Ok(()),
            None => self.refill().await,
        };
        // Only now: the server has the new pulls by the time that it forgets these.
        for mut better in self.outdated.extract_if(.., |ranked| ranked.rank < rank) {
            if let Err(error) = better.messages.drain().await {
                debug!(%error, "cannot give up the pulls of an earlier rank");
            }
            if self.retiring.len() == RETIRING_MAX {
                self.retiring.remove(0);
            }
            self.retiring.push(better.messages);
        }
        sent.map_err(|failure| failure.of_store(STORE))
    }
}

/// The next message for one of several ranks, and for which.
async fn any(ranked: &mut [Ranked]) -> (Option<Message>, usize) {
    let each = ranked.iter_mut().map(|one| one.messages.next());
    let (message, at, _) = futures_util::future::select_all(each).await;
    (message, at)
}

/// The next message to a place that was given up; none when there is no such place any more.
async fn retired(retiring: &mut Vec<Subscriber>) -> Option<Message> {
    loop {
        let oldest = retiring.first_mut()?;
        match oldest.next().await {
            // The server's words about pulls that are given up mean nothing now.
            Some(message) if message.status.is_some_and(|status| status != StatusCode::OK) => {}
            Some(message) => return Some(message),
            None => drop(retiring.remove(0)),
        }
    }
}

impl Drop for Pull {
    /// Stops pulling, and gives back at once messages that were delivered but not taken.
    fn drop(&mut self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let context = self.api.context.clone();
        let mut places = std::mem::take(&mut self.retiring);
        let outdated = std::mem::take(&mut self.outdated);
        if let Some(ranked) = self.ranked.take() {
            runtime.spawn(async move {
                for mut ranked in outdated.into_iter().chain([ranked]) {
                    if let Err(error) = ranked.messages.drain().await {
                        debug!(%error, "cannot stop a pull");
                    }
                    places.push(ranked.messages);
                }
                while let Some(message) = retired(&mut places).await {
                    let message = jetstream::Message { message, context: context.clone() };
                    if let Err(error) = message.ack_with(AckKind::Nak(None)).await {
                        debug!(%error, "cannot give back a delivery");
                    }
                }
            });
        }
    }
}

// === impl PendingPulls ===

impl PendingPulls {
    /// How long the next pull should wait at the server, if one is to be sent.
    fn wanted(&self) -> Option<Duration> {
        if self.waiting.is_empty() {
            // The first pull of a pair lives half as long, so that they never end together.
            Some(EXPIRES / 2)
        } else if self.waiting.len() < 2 || self.credit <= BATCH {
            Some(EXPIRES)
        } else {
            None
        }
    }

    /// A pull was sent. It takes the place of the oldest, whose messages have come.
    fn sent(&mut self, now: Instant, expires: Duration) {
        if self.waiting.len() == 2 {
            self.waiting.pop_front();
        }
        self.waiting.push_back(PendingPull { serial: self.serial, until: now + expires + GRACE });
        self.serial += 1;
        self.credit += BATCH;
    }

    /// A message came.
    fn answered(&mut self) {
        self.credit = self.credit.saturating_sub(1);
    }

    /// The server says that a pull is over, with so much of it left.
    fn ended(&mut self, serial: Option<u64>, left: usize) {
        self.waiting.retain(|pull| Some(pull.serial) != serial);
        self.credit = self.credit.saturating_sub(left);
    }

    /// Forgets all waiting pulls, because the server did.
    fn forget(&mut self) {
        self.waiting.clear();
        self.credit = 0;
    }

    /// Forgets pulls of which the server's word is overdue, also while there is no server.
    fn expire(&mut self, now: Instant) {
        self.waiting.retain(|pull| pull.until > now);
        if self.waiting.is_empty() {
            self.credit = 0;
        }
    }

    /// When to look again if nothing happens before.
    fn look_again(&self, now: Instant) -> Instant {
        self.waiting.iter().map(|pull| pull.until).min().unwrap_or(now + EXPIRES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refilled(waits: &mut PendingPulls, now: Instant) -> Vec<Duration> {
        std::iter::from_fn(|| {
            let expires = waits.wanted()?;
            waits.sent(now, expires);
            Some(expires)
        })
        .collect()
    }

    #[test]
    fn two_pulls_wait_and_never_end_together() {
        let (mut waits, now) = (PendingPulls::default(), Instant::now());
        assert_eq!(refilled(&mut waits, now), [EXPIRES / 2, EXPIRES]);
        waits.ended(Some(0), BATCH);
        assert_eq!(refilled(&mut waits, now + EXPIRES / 2), [EXPIRES], "only the one that ended");
        assert_eq!(waits.credit, 2 * BATCH);
    }

    #[test]
    fn what_may_be_buffered_is_bounded_and_flows_on() {
        let (mut waits, now) = (PendingPulls::default(), Instant::now());
        for _ in 0..1_000 {
            refilled(&mut waits, now);
            assert!(waits.waiting.len() == 2 && waits.credit <= 2 * BATCH && waits.credit > BATCH);
            waits.answered();
        }
        waits.ended(Some(999_999), 10 * BATCH);
        assert_eq!(waits.credit, 0, "a word about a pull of long ago");
        assert!(!refilled(&mut waits, now).is_empty());
    }

    #[test]
    fn without_a_server_it_sleeps_and_does_not_spin() {
        let (mut waits, mut now) = (PendingPulls::default(), Instant::now());
        refilled(&mut waits, now);
        for _ in 0..5 {
            waits.expire(now);
            let next = waits.look_again(now);
            assert!(next > now);
            now = next;
        }
        assert_eq!((waits.waiting.len(), waits.credit), (0, 0));
    }
}
