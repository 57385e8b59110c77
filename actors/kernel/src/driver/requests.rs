//! The requests of other processes, answered by every node.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use clawnode_cluster::{BusEvent, BusMessage};
use clawnode_proto::{
    EntityId, ErrorBody, ErrorCode, Frame, JobId, Position, TurnId,
    archive::{CleanJobs, CleanView, LogPart},
    budget::ProcessStanding,
    codec,
    embed::{EmbedTexts, Embedded},
    kill_switch::SwitchScope,
    node::{NodeReply, NodeRequest},
    recall::{StoreFound, StoreSearch},
};
use futures_util::{StreamExt, future::BoxFuture};
use tokio::sync::{Semaphore, SemaphorePermit, oneshot};
use tracing::{debug, warn};

use super::{DispatcherHandle, Worker, WorkerContext};
use crate::dead_letters;

/// Requests of other processes that are answered at the same time.
const REQUESTS_MAX: usize = 256;
/// How many of these may wait for something to happen: requests that follow logs, or ask a provider, must
/// not keep a process from answering whether it lives.
const POLLS_MAX: usize = REQUESTS_MAX / 2;
/// How long each of the others waits at most.
const POLL_BRIEFLY: Duration = Duration::from_millis(100);
/// How many requests may be searches in the store of this process. They have places of their own, so that neither searches
/// nor what waits for a provider uses up the places of the other.
const SEARCHES_MAX: usize = REQUESTS_MAX / 4;
/// How long an answer may take: the caller has given up by then, and a store that does not answer
/// must not use up all places.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// How long at most an answer waits until the work that an operator stopped has ended.
const SWITCH_WAIT: Duration = Duration::from_secs(10);
/// How long at most a search in the store of this process waits for a vector.
const SEARCH_WAIT: Duration = Duration::from_secs(10);

/// What keeps some requests from the places of all others.
struct RequestPlaces {
    /// For those that wait for something to happen.
    polls: Semaphore,
    /// For searches.
    searches: Semaphore,
}

impl RequestPlaces {
    fn new() -> Self {
        Self { polls: Semaphore::new(POLLS_MAX), searches: Semaphore::new(SEARCHES_MAX) }
    }
}

/// Answers for the frames that this process still has of a turn.
pub trait AnswerFrames: Send + Sync + fmt::Debug + 'static {
    /// The turn's frames in order, and whether older ones are missing.
    fn frames(&self, entity: EntityId, turn: TurnId) -> (Vec<Frame>, bool);
}

/// Takes an operator's orders for this process.
#[async_trait]
pub trait TakeOrders: Send + Sync + fmt::Debug + 'static {
    /// The process is cordoned, or takes entities again: the others should know soon.
    fn cordon(&self, is_cordoned: bool);
    /// Hand everything over and end; returns at once.
    fn drain(&self);
    /// This job shall not run on; returns at once.
    fn cancel_job(&self, job: JobId);
    /// An operator set or cleared a kill switch of this scope. Answers with the position of its
    /// record, and how much that it stops still runs: as soon as that is nothing, or after `wait`.
    /// `None` if the store does not say.
    async fn read_switch(&self, scope: SwitchScope, wait: Duration) -> Option<(Position, u32)>;
    /// The output after a line of a job that runs here; waits for it, if there is none yet. `None`
    /// if the job does not run here.
    async fn job_log(&self, job: JobId, after: u64, wait: Duration) -> Option<LogPart>;
    /// Removes jobs from the archive; `None` if that is not possible here, or not now.
    async fn clean_jobs(&self, which: CleanJobs) -> Option<CleanView>;
    /// An account says how things stand between it and this process; returns at once.
    fn budget_standing(&self, standing: ProcessStanding);
    /// The vectors of these texts, from a provider of models.
    async fn embed(&self, request: EmbedTexts) -> Result<Embedded, ErrorBody>;
    /// What the store of this process finds; `None` if it cannot be searched for others.
    async fn search_store(&self, search: StoreSearch) -> Option<StoreFound>;
}

/// Answers the requests of other processes, for a node with or without a worker.
pub fn answer_requests(
    context: Arc<WorkerContext>,
    worker: Option<Worker>,
    frames: Arc<dyn AnswerFrames>,
    orders: Arc<dyn TakeOrders>,
) -> BoxFuture<'static, ()> {
    Box::pin(answer_all(context, worker, frames, orders))
}

async fn answer_all(
    context: Arc<WorkerContext>,
    worker: Option<Worker>,
    frames: Arc<dyn AnswerFrames>,
    orders: Arc<dyn TakeOrders>,
) {
    let subject = context.storage.prefix.rpc(context.process);
    let requests = match context.storage.bus.subscribe(subject).await {
        Ok(requests) => requests,
        Err(failure) => {
            warn!(%failure, "cannot listen for requests; trying again");
            return;
        }
    };
    let places = Arc::new(RequestPlaces::new());
    requests
        .for_each_concurrent(REQUESTS_MAX, |event| {
            let (worker, context) = (worker.clone(), Arc::clone(&context));
            let (frames, orders) = (Arc::clone(&frames), Arc::clone(&orders));
            let places = Arc::clone(&places);
            async move {
                if let BusEvent::Message(message) = event {
                    answer_one(worker.as_ref(), &context, &*frames, &*orders, &places, message)
                        .await;
                }
            }
        })
        .await;
}

async fn answer_one(
    worker: Option<&Worker>,
    context: &WorkerContext,
    frames: &dyn AnswerFrames,
    orders: &dyn TakeOrders,
    places: &RequestPlaces,
    message: BusMessage,
) {
    let request = codec::decode::<NodeRequest>(&message.payload)
        .inspect_err(|failure| debug!(%failure, "a request of another process is not readable"));
    let Ok(request) = request else { return };
    let partitions = context.storage.partitions;
    let dispatcher = |entity: EntityId| worker?.dispatcher(entity.partition(partitions));
    let reply = match request {
        NodeRequest::Ping => Some(NodeReply::Ok),
        NodeRequest::Fenced { entity, epoch } => {
            if let Some(dispatcher) = dispatcher(entity) {
                dispatcher.fenced(entity, epoch);
            }
            Some(NodeReply::Ok)
        }
        NodeRequest::Ask { entity, input, asker } => {
            of_dispatcher(dispatcher(entity), |to, reply| to.asked(entity, input, asker, reply))
                .await
        }
        NodeRequest::Ring { entity, input } => {
            of_dispatcher(dispatcher(entity), |to, reply| to.rung(entity, input, reply)).await
        }
        NodeRequest::Cordon { on: is_cordoned } => {
            if let Some(worker) = worker {
                worker.cordon(is_cordoned);
            }
            orders.cordon(is_cordoned);
            Some(NodeReply::Ok)
        }
        NodeRequest::CancelJob { job } => {
            orders.cancel_job(job);
            None
        }
        NodeRequest::KillSwitch { scope, wait_ms } => {
            let wait = Duration::from_millis(wait_ms.into()).min(SWITCH_WAIT);
            let took = orders.read_switch(scope, wait).await;
            took.map(|(position, running)| NodeReply::KillSwitch { position, running })
        }
        NodeRequest::JobLog { job, after, wait_ms } => {
            let (_place, wait) = patience(&places.polls, Duration::from_millis(wait_ms.into()));
            let part = orders.job_log(job, after, wait);
            Some(part.await.map_or(NodeReply::NotMine, |part| NodeReply::JobLog { part }))
        }
        NodeRequest::CleanJobs { which } => {
            orders.clean_jobs(which).await.map(|view| NodeReply::Cleaned { view })
        }
        // A gateway has no provider to ask, and does not remove what came in.
        NodeRequest::Embed { .. } | NodeRequest::DropLetter { .. } if worker.is_none() => None,
        NodeRequest::Embed { request } => Some(embed(&places.polls, orders, request).await),
        NodeRequest::SearchStore { search } => Some(search_store(places, orders, search).await),
        NodeRequest::BudgetStanding { standing } => {
            orders.budget_standing(standing);
            None
        }
        NodeRequest::DropLetter { letter } => drop_letter(context, &letter).await,
        NodeRequest::Drain => {
            orders.drain();
            Some(NodeReply::Ok)
        }
        // The node answers: a worker is only a part of the tree.
        NodeRequest::Tree => None,
        NodeRequest::Frames { entity, turn } => {
            let (frames, truncated) = frames.frames(entity, turn);
            Some(NodeReply::Frames { frames, truncated })
        }
    };
    if let (Some(reply), Some(to)) = (reply, message.answer_to()) {
        answer(context, to.to_owned(), &reply).await;
    }
}

/// How long a request may wait for something to happen, and its place among those that do.
fn patience(polls: &Semaphore, wanted: Duration) -> (Option<SemaphorePermit<'_>>, Duration) {
    if wanted <= POLL_BRIEFLY {
        return (None, wanted);
    }
    polls.try_acquire().map_or((None, POLL_BRIEFLY), |place| (Some(place), wanted))
}

/// A provider may take its time: this is one of the requests that wait.
async fn embed(polls: &Semaphore, orders: &dyn TakeOrders, request: EmbedTexts) -> NodeReply {
    let Ok(_place) = polls.try_acquire() else {
        let error = ErrorBody::new(ErrorCode::Overloaded, "the worker answers too many requests");
        return NodeReply::NotEmbedded { error };
    };
    match orders.embed(request).await {
        Ok(result) => NodeReply::Embedded { result },
        Err(error) => NodeReply::NotEmbedded { error },
    }
}

/// A process whose search is refused is answered at once, and searches for itself. So is one that has given up: storage that
/// does not answer must not use up the places.
async fn search_store(
    places: &RequestPlaces,
    orders: &dyn TakeOrders,
    search: StoreSearch,
) -> NodeReply {
    let Ok(_place) = places.searches.try_acquire() else { return NodeReply::NotMine };
    let wait = Duration::from_millis(search.within_ms.into()).min(SEARCH_WAIT);
    let within_ms = u32::try_from(wait.as_millis()).unwrap_or(u32::MAX);
    let searching = orders.search_store(StoreSearch { within_ms, ..search });
    match tokio::time::timeout(wait + ANSWER_WITHIN, searching).await {
        Ok(Some(found)) => NodeReply::StoreFound { found },
        Ok(None) | Err(_) => NodeReply::NotMine,
    }
}

async fn answer(context: &WorkerContext, to: String, reply: &NodeReply) {
    match codec::encode(reply) {
        Ok(bytes) => {
            if let Err(failure) = context.storage.bus.publish(to, None, Bytes::from(bytes)).await {
                debug!(%failure, "an answer to another process was lost");
            }
        }
        Err(failure) => warn!(%failure, "an answer cannot be written"),
    }
}

/// Whether there was a dead letter, which is now dropped; `None` if that is unknown.
async fn drop_letter(context: &WorkerContext, letter: &str) -> Option<NodeReply> {
    match dead_letters::forget(&context.storage, letter).await {
        Ok(true) => Some(NodeReply::Ok),
        Ok(false) => Some(NodeReply::NotMine),
        Err(failure) => {
            warn!(letter, %failure, "a dead letter could not be dropped");
            None
        }
    }
}

/// The answer of an entity's dispatcher; `None` if there is no dispatcher now, or no answer in
/// time.
async fn of_dispatcher(
    dispatcher: Option<DispatcherHandle>,
    ask: impl FnOnce(&DispatcherHandle, oneshot::Sender<NodeReply>),
) -> Option<NodeReply> {
    let (reply, answer) = oneshot::channel();
    ask(&dispatcher?, reply);
    tokio::time::timeout(ANSWER_WITHIN, answer).await.ok().and_then(Result::ok)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clawnode_proto::memory::MemoryTrust;

    use super::*;

    /// A process whose storage does not answer.
    #[derive(Debug)]
    struct StuckOrders;

    #[async_trait]
    impl TakeOrders for StuckOrders {
        fn cordon(&self, _: bool) {}
        fn drain(&self) {}
        fn cancel_job(&self, _: JobId) {}
        async fn read_switch(&self, _: SwitchScope, _: Duration) -> Option<(Position, u32)> {
            None
        }
        async fn job_log(&self, _: JobId, _: u64, _: Duration) -> Option<LogPart> {
            None
        }
        async fn clean_jobs(&self, _: CleanJobs) -> Option<CleanView> {
            None
        }
        fn budget_standing(&self, _: ProcessStanding) {}
        async fn embed(&self, _: EmbedTexts) -> Result<Embedded, ErrorBody> {
            Err(ErrorBody::new(ErrorCode::Unsupported, "nothing asks a provider here"))
        }
        async fn search_store(&self, _: StoreSearch) -> Option<StoreFound> {
            std::future::pending().await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn searches_use_up_neither_all_places_nor_their_own_for_long() {
        let places = RequestPlaces::new();
        let search = || StoreSearch {
            scopes: Vec::new(),
            text: "tea".to_owned(),
            within_ms: u32::MAX,
            layers: BTreeSet::new(),
            passages: true,
            least_trust: MemoryTrust::Agent,
            most: 1,
        };
        let begins = tokio::time::Instant::now();
        let all = (0..SEARCHES_MAX).map(|_| search_store(&places, &StuckOrders, search()));
        let further = async {
            let refused = search_store(&places, &StuckOrders, search()).await;
            (refused, begins.elapsed())
        };
        let (stuck, (refused, waited)) = tokio::join!(futures_util::future::join_all(all), further);
        assert!(matches!(refused, NodeReply::NotMine) && waited.is_zero(), "{waited:?}");
        assert!(stuck.iter().all(|reply| matches!(reply, NodeReply::NotMine)));
        assert_eq!(begins.elapsed().as_secs(), (SEARCH_WAIT + ANSWER_WITHIN).as_secs());
        let (polls, free) = (places.polls.available_permits(), places.searches.available_permits());
        assert_eq!((polls, free), (POLLS_MAX, SEARCHES_MAX), "they are free again");
        assert!(polls + free < REQUESTS_MAX, "others are answered meanwhile");
    }

    #[test]
    fn those_who_wait_for_logs_leave_places_for_those_who_ask() {
        let polls = Semaphore::new(POLLS_MAX);
        let long = Duration::from_secs(10);
        let waiting: Vec<_> = (0..POLLS_MAX).map(|_| patience(&polls, long)).collect();
        assert!(waiting.iter().all(|(place, wait)| place.is_some() && *wait == long));
        // Requests beyond that are answered soon, and take no place for long.
        let (place, wait) = patience(&polls, long);
        assert!(place.is_none() && wait == POLL_BRIEFLY);
        assert!(POLLS_MAX < REQUESTS_MAX && wait < ANSWER_WITHIN);
        drop(waiting);
        assert_eq!(patience(&polls, long).1, long);
    }
}
