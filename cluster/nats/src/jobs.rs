//! Jobs: one work-queue stream, and one consumer for each capability that has runners.
//!
//! A job is published to its own literal subject, and only if nothing is there: so it waits once. A
//! runner pulls one job at a time, and only while it waits for one. If the server forgot a pull (it
//! was restarted, or the consumer has another leader), the server's advisory has it sent again. If
//! the advisory is lost too, it is sent again when its time is over.

use std::{sync::Arc, time::Duration};

use async_nats::{
    Message, StatusCode, Subscriber,
    jetstream::{self, AckKind},
};
use async_trait::async_trait;
use bytes::Bytes;
use clawnode_cluster::{
    JobConsumer, JobDelivery, Jobs, StoreError,
    clock::Backoff,
    jobs::{JOB_RANK_MAX, encode},
};
use clawnode_proto::{
    Capability, Position,
    job::Job,
    subject::{Prefix, job_of},
};
use futures_util::StreamExt;
use serde_json::json;
use tokio::{sync::watch, time::Instant};
use tracing::{debug, warn};

use super::{
    ack::{self, Ack},
    api::{Api, RequestFailure, until_answered},
    foreign_messages::is_foreign,
    journal::expecting,
    signals::elections,
    spec::{ConsumerSpec, TopologyError},
    stream::StreamReader,
    topology::{self, PULL_GROUP},
};

/// The name of this store in errors.
const STORE: &str = "jobs";
/// How long something is tried again that has no leader: an election takes up to 8 s.
const ELECTION_PATIENCE: Duration = Duration::from_secs(12);
/// No stream gets as long; servers read it as a signed number.
const NEVER: Position = Position(u64::MAX >> 1);
/// How long a job stays with a runner that sends no progress. Runners send it every second. Shorter
/// than for inputs: workers look for inputs when a process dies, but only the queue gives a job to
/// the next runner.
const ACK_WAIT: Duration = Duration::from_secs(4);
/// How long a pull waits at the server.
const EXPIRES: Duration = Duration::from_secs(30);
/// How much longer than that we wait for the server's word that it is over.
const GRACE: Duration = Duration::from_secs(5);
/// How long to leave a consumer alone that has no leader or refuses.
const PAUSE: Duration = Duration::from_millis(250);
/// Pauses in a row after which the consumer is made again, if it is gone (1 s).
const PAUSES_GONE: u32 = 4;
/// Pauses in a row before the caller gets an error (10 s; an election takes up to 8 s).
const PAUSES_MAX: u32 = 40;

/// Jobs on `JetStream`.
#[derive(Debug)]
pub(super) struct NatsJobs {
    api: Api,
    prefix: Prefix,
    ack_wait: Duration,
    reader: StreamReader,
}

/// Takes jobs of one capability.
struct NatsJobConsumer {
    api: Api,
    spec: ConsumerSpec,
    /// Where to ask for a job.
    subject: String,
    /// Where answers come; none while nothing is asked for.
    place: Option<PullInbox>,
    connected: watch::Receiver<u64>,
    elected: Subscriber,
    pause: Option<Instant>,
    pauses: u32,
    rank: u8,
}

/// Where answers to pulls come.
struct PullInbox {
    reply: String,
    messages: Subscriber,
    /// Until when a pull waits at the server, if one does.
    waits: Option<Instant>,
}

/// Why a wait ended.
enum JobWake {
    Message(Message),
    Forgotten,
    Time,
}

// === impl NatsJobs ===

impl NatsJobs {
    pub(super) fn new(api: Api, prefix: Prefix, ack_wait: Duration, reader: StreamReader) -> Self {
        Self { api, prefix, ack_wait: ack_wait.min(ACK_WAIT), reader }
    }

    /// Creates the consumer, unless it exists, and checks it; asks again while an election is under
    /// way.
    async fn create_consumer(&self, spec: &ConsumerSpec) -> Result<(), StoreError> {
        let until = Instant::now() + ELECTION_PATIENCE;
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));
        loop {
            match until_answered(|| spec.create(&self.api)).await {
                Err(TopologyError::Failed { failure, .. })
                    if failure.is_transient() && Instant::now() < until =>
                {
                    debug!(%failure, tries = backoff.tries(), "a consumer is created again");
                    let pause = backoff.next(&mut rand::rng());
                    tokio::time::sleep(pause).await;
                }
                created => return created.map_err(of_topology),
            }
        }
    }
}

#[async_trait]
impl Jobs for NatsJobs {
    async fn put(&self, job: &Job) -> Result<(), StoreError> {
        let bytes = encode(STORE, job)?;
        let subject = self.prefix.job(&job.capability, job.id);
        let until = Instant::now() + ELECTION_PATIENCE;
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));
        loop {
            let headers = expecting(Position(0));
            match self.api.publish_when_free(&subject, headers, bytes.clone()).await {
                Ok(_) => return Ok(()),
                // It waits already.
                Err(failure) if failure.is_wrong_last_sequence() => return Ok(()),
                Err(failure) if failure.is_transient() && Instant::now() < until => {
                    debug!(%failure, tries = backoff.tries(), "a job is put again");
                    let pause = backoff.next(&mut rand::rng());
                    tokio::time::sleep(pause).await;
                }
                Err(failure) => return Err(failure.of_store(STORE)),
            }
        }
    }

    async fn waits(&self, job: &Job) -> Result<bool, StoreError> {
        let subject = self.prefix.job(&job.capability, job.id);
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));
        let until = Instant::now() + ELECTION_PATIENCE;
        loop {
            // The stream's leader always refuses this, and its answer says whether the job waits:
            // any user that may put jobs may ask it so.
            let asked = self.api.publish(subject.clone(), expecting(NEVER), Bytes::new()).await;
            match asked {
                Ok(position) => {
                    let detail = format!("a job without content was stored at {position}");
                    return Err(StoreError::Refused { store: STORE, detail });
                }
                Err(failure) if failure.is_wrong_last_sequence() => {
                    return Ok(failure.last_sequence() != Some(0));
                }
                Err(failure) if failure.is_transient() && Instant::now() < until => {
                    let pause = backoff.next(&mut rand::rng());
                    tokio::time::sleep(pause).await;
                }
                Err(failure) => return Err(failure.of_store(STORE)),
            }
        }
    }

    async fn consume(&self, capability: &Capability) -> Result<Box<dyn JobConsumer>, StoreError> {
        let spec = topology::jobs_consumer(&self.prefix, capability, self.ack_wait);
        self.create_consumer(&spec).await?;
        // After that, because a consumer that is new has been elected a leader before it answers.
        let elections = elections(&spec.stream, &spec.name);
        let elected = self.api.client.subscribe(elections).await;
        let elected =
            elected.map_err(|error| RequestFailure::Unknown(error.to_string()).of_store(STORE))?;
        Ok(Box::new(NatsJobConsumer {
            subject: format!("$JS.API.CONSUMER.MSG.NEXT.{}.{}", spec.stream, spec.name),
            api: self.api.clone(),
            spec,
            place: None,
            connected: self.api.signals.connections(),
            elected,
            pause: None,
            pauses: 0,
            rank: 0,
        }))
    }

    async fn pending(&self, capability: &Capability) -> Result<u64, StoreError> {
        let filter = self.prefix.jobs_of(capability);
        let subjects =
            self.reader.subjects(&filter).await.map_err(|failure| failure.of_store(STORE))?;
        Ok(subjects.values().sum())
    }

    async fn list(&self) -> Result<Vec<Bytes>, StoreError> {
        let failed = |failure: RequestFailure| failure.of_store(STORE);
        let mut all = Vec::new();
        for subject in self.reader.subjects(&self.prefix.jobs()).await.map_err(failed)?.keys() {
            // It may have been acknowledged meanwhile.
            if let Some(message) = self.reader.last(subject).await.map_err(failed)? {
                all.push(message.payload);
            }
        }
        Ok(all)
    }
}

fn of_topology(error: TopologyError) -> StoreError {
    match error {
        TopologyError::Failed { failure, .. } => failure.of_store(STORE),
        TopologyError::Different { .. } => {
            StoreError::Refused { store: STORE, detail: error.to_string() }
        }
    }
}

// === impl PullInbox ===

impl PullInbox {
    async fn new(api: &Api) -> Result<Self, RequestFailure> {
        let reply = api.client.new_inbox();
        match api.client.subscribe(reply.clone()).await {
            Ok(messages) => Ok(Self { reply, messages, waits: None }),
            Err(error) => Err(RequestFailure::Unknown(error.to_string())),
        }
    }

    /// Asks for one job; of the pulls that wait, one of the lowest rank is given the next.
    async fn pull(&mut self, api: &Api, subject: &str, rank: u8) -> Result<(), RequestFailure> {
        let expires = u64::try_from(EXPIRES.as_nanos()).unwrap_or(u64::MAX);
        let pull = json!({ "batch": 1, "expires": expires, "group": PULL_GROUP, "priority": rank });
        let pull = pull.to_string();
        let sent =
            api.client.publish_with_reply(subject.to_owned(), self.reply.clone(), pull.into());
        match tokio::time::timeout(api.timeout, sent).await {
            Ok(Ok(())) => {
                self.waits = Some(Instant::now() + EXPIRES + GRACE);
                Ok(())
            }
            Ok(Err(error)) => Err(RequestFailure::Unknown(error.to_string())),
            Err(elapsed) => Err(RequestFailure::Unknown(elapsed.to_string())),
        }
    }

    async fn drain(&mut self) {
        if let Err(error) = self.messages.drain().await {
            debug!(%error, "cannot take back a pull");
        }
    }

    /// Stops listening, so that the server forgets a waiting pull, and gives back jobs that came.
    /// The client does not wait for the server to know: a job on its way at that moment is
    /// delivered again once its time is over.
    async fn leave(mut self, api: &Api) {
        self.drain().await;
        while let Some(message) = self.messages.next().await {
            if status(&message).is_some() {
                continue;
            }
            let message = jetstream::Message { message, context: api.context.clone() };
            if let Err(error) = message.ack_with(AckKind::Nak(None)).await {
                debug!(%error, "cannot give back a job");
            }
        }
    }
}

// === impl NatsJobConsumer ===

impl NatsJobConsumer {
    /// Sees to it that a pull waits at the server, if there is one to ask.
    async fn ask(&mut self) -> Result<(), RequestFailure> {
        if self.pause.is_some_and(|until| until > Instant::now()) {
            return Ok(());
        }
        self.pause = None;
        // No server can be asked while disconnected; the reconnect is signalled.
        match self.api.check_open() {
            Err(RequestFailure::Closed) => return Err(RequestFailure::Closed),
            Err(_) => return Ok(()),
            Ok(()) => {}
        }
        if self.place.is_none() {
            self.place = Some(PullInbox::new(&self.api).await?);
        }
        let Some(place) = &mut self.place else { return Ok(()) };
        if place.waits.is_some_and(|until| until > Instant::now()) {
            return Ok(());
        }
        place.pull(&self.api, &self.subject, self.rank).await
    }

    async fn wait(&mut self) -> Option<JobWake> {
        let Self { api, place, connected, elected, pause, .. } = self;
        let until = pause.or_else(|| place.as_ref()?.waits);
        let until = until.unwrap_or_else(|| Instant::now() + PAUSE);
        let message = async {
            match place {
                Some(place) => place.messages.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            message = message => message.map(JobWake::Message),
            changed = connected.changed() => changed.ok().map(|()| JobWake::Forgotten),
            election = elected.next() => election.map(|_| JobWake::Forgotten),
            () = api.closing.cancelled() => None,
            () = tokio::time::sleep_until(until) => Some(JobWake::Time),
        }
    }

    /// Takes the server's word about a pull that is over, or about its consumer.
    async fn take_status(
        &mut self,
        status: StatusCode,
        message: &Message,
    ) -> Result<(), StoreError> {
        if let Some(place) = &mut self.place {
            place.waits = None;
        }
        let description = message.description.as_deref().unwrap_or_default();
        if status == StatusCode::TIMEOUT {
            self.pauses = 0;
            return Ok(());
        }
        debug!(subject = %self.subject, %status, description, "a pull for jobs was ended");
        self.pause = Some(Instant::now() + PAUSE);
        self.pauses += 1;
        // A consumer without a leader does not answer, nor does one that is gone.
        if self.pauses.is_multiple_of(PAUSES_GONE) {
            match self.spec.create(&self.api).await {
                Err(TopologyError::Failed { failure, .. }) if failure.is_transient() => {}
                made => made.map_err(of_topology)?,
            }
        }
        if self.pauses < PAUSES_MAX {
            return Ok(());
        }
        self.pauses = 0;
        Err(StoreError::Unavailable {
            store: STORE,
            detail: format!("`{}` is answered with {status} {description}", self.subject),
        })
    }

    /// Withdraws the request, in the background.
    fn leave(&mut self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if let Some(place) = self.place.take() {
            let api = self.api.clone();
            runtime.spawn(async move { place.leave(&api).await });
        }
    }

    fn take(&mut self, message: Message) -> Option<JobDelivery> {
        self.pauses = 0;
        if let Some(place) = &mut self.place {
            place.waits = None;
        }
        let message = jetstream::Message { message, context: self.api.context.clone() };
        if is_foreign(message.headers.as_ref(), &message.payload) {
            ack::discard(&self.api, message);
            return None;
        }
        let Some(job_id) = job_of(&message.subject) else {
            // It stays where a person can see it; no runner could ever take it.
            warn!(subject = %message.subject, "a job's subject names no job");
            return None;
        };
        let redelivered = match message.info() {
            Ok(info) => info.delivered > 1,
            Err(error) => {
                warn!(%error, "a delivery's reply subject is not readable");
                return None;
            }
        };
        let bytes = message.payload.clone();
        let handle = Arc::new(Ack { api: self.api.clone(), store: STORE, message });
        Some(JobDelivery { job_id, bytes, redelivered, handle })
    }
}

#[async_trait]
impl JobConsumer for NatsJobConsumer {
    async fn next(&mut self) -> Result<JobDelivery, StoreError> {
        loop {
            self.ask().await.map_err(|failure| failure.of_store(STORE))?;
            match self.wait().await {
                Some(JobWake::Message(message)) => match status(&message) {
                    Some(status) => self.take_status(status, &message).await?,
                    None => {
                        if let Some(delivery) = self.take(message) {
                            return Ok(delivery);
                        }
                    }
                },
                Some(JobWake::Forgotten) => {
                    self.pause = None;
                    // At another place, so that a pull that was not forgotten brings no second job.
                    self.leave();
                }
                Some(JobWake::Time) => {}
                None => return Err(RequestFailure::Closed.of_store(STORE)),
            }
        }
    }

    fn set_rank(&mut self, rank: u8) {
        self.rank = rank.min(JOB_RANK_MAX);
    }

    async fn rest(&mut self) {
        // Nothing is under way without a pull.
        let Some(place) = self.place.as_mut().filter(|place| place.waits.is_some()) else { return };
        // The server hears of it before it hears of anything that we do next.
        place.drain().await;
        self.leave();
    }
}

impl Drop for NatsJobConsumer {
    fn drop(&mut self) {
        self.leave();
    }
}

/// The server's word about a pull or its consumer, if it is one and not a delivery.
fn status(message: &Message) -> Option<StatusCode> {
    message.status.filter(|status| *status != StatusCode::OK)
}
