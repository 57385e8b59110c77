//! One subscription to the frames of a session for all that follow its turns in this process, also for
//! hundreds of readers. The only sender of a session reads the bus itself: most turns have one reader, and
//! what is shared has room for [`SUBSCRIPTION_CAPACITY`] messages, which took a twentieth of a turn's
//! processor time.
//!
//! A listener hears everything that is sent after it has joined. A listener that is too slow gets
//! [`BusEvent::Lagged`] and delays no other: messages are kept once for all of them. The sender of a turn
//! and the first [`PROMPT`] followers receive each frame at once. Further followers receive what has
//! arrived every [`PACE`], each in its own time slot, so that they do not delay the first ones.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU32, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use clawnode_cluster::{BusEvent, Storage, StoreError, Subscription, bus::SUBSCRIPTION_CAPACITY};
use clawnode_proto::EntityId;
use futures_util::{Stream, StreamExt};
use tokio::{
    sync::broadcast::{
        self,
        error::{RecvError, TryRecvError},
    },
    time::Instant,
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::single_flight::SharedReadsOf;

/// Followers of one session in this process that receive each frame at once.
const PROMPT: u32 = 16;
/// How often the other followers receive what has arrived.
const PACE: Duration = Duration::from_millis(100);
/// Time slots in one [`PACE`].
const SLOTS: u32 = 100;

/// All subscriptions to frames of this process; one is here for as long as it has listeners.
#[derive(Default)]
pub(in crate::session) struct FrameSubscriptions {
    all: Mutex<HashMap<EntityId, Weak<FrameSubscription>>>,
    /// Sessions with a [`LoneListener`].
    alone: Mutex<HashSet<EntityId>>,
    opening: Arc<SharedReadsOf<EntityId, Option<Arc<FrameSubscription>>>>,
}

/// One subscription. It ends with its last listener.
struct FrameSubscription {
    of: EntityId,
    /// The task that forwards frames holds it: it ends with the bus.
    heard: broadcast::WeakSender<BusEvent>,
    ears: Weak<FrameSubscriptions>,
    /// How many followers there are; senders of turns are not counted.
    followers: AtomicU32,
    /// How many followers ever joined: each further one gets the next time slot.
    joined: AtomicU32,
    /// When it was opened: time slots are counted from then.
    opened: Instant,
    _stop: DropGuard,
}

/// How a listener receives.
#[derive(Clone, Copy)]
enum ListenerRole {
    /// It sent a turn, and receives each frame at once.
    Sender,
    /// It is one of the first followers, and receives each frame at once.
    Prompt,
    /// It is a further follower with this number, and receives in its time slot.
    Paced(u32),
}

/// One listener.
struct FrameListener {
    receiver: broadcast::Receiver<BusEvent>,
    ear: Arc<FrameSubscription>,
    role: ListenerRole,
}

/// The only sender of a session in this process: what it hears is shared with no other.
struct LoneListener {
    frames: Subscription,
    _place: LonePlace,
}

/// Until it is dropped, further senders of the session share a subscription.
struct LonePlace {
    of: EntityId,
    ears: Arc<FrameSubscriptions>,
}

// === impl FrameSubscriptions ===

impl FrameSubscriptions {
    /// Listens; registered when this returns. Without a listener that shares, the subscription is asked for
    /// before this first waits, so that what its caller sends next comes after it.
    pub(in crate::session) async fn listen(
        self: &Arc<Self>,
        storage: &Storage,
        session: EntityId,
    ) -> Result<Subscription, StoreError> {
        let subscribe = || storage.bus.subscribe(storage.prefix.frames(session));
        self.listen_by(session, subscribe).await
    }

    async fn listen_by<R>(
        self: &Arc<Self>,
        session: EntityId,
        subscribe: impl FnOnce() -> R,
    ) -> Result<Subscription, StoreError>
    where
        R: Future<Output = Result<Subscription, StoreError>>,
    {
        if let Some(joined) = self.known(session).and_then(FrameSubscription::listen) {
            return Ok(joined);
        }
        let place = self.lone_place(session);
        let frames = subscribe().await?;
        Ok(match (self.known(session), place) {
            // Another was first; this one heard all since it asked.
            (Some(_), _) => frames,
            (None, Some(place)) => LoneListener { frames, _place: place }.boxed(),
            (None, None) => self.open(session, frames).1,
        })
    }

    /// `None` while the session has a lone listener.
    fn lone_place(self: &Arc<Self>, entity: EntityId) -> Option<LonePlace> {
        self.lone().insert(entity).then(|| LonePlace { of: entity, ears: Arc::clone(self) })
    }

    fn lone(&self) -> MutexGuard<'_, HashSet<EntityId>> {
        self.alone.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same, together with all others that begin to listen now. It may miss frames that are sent while it
    /// waits.
    pub(in crate::session) async fn listen_together(
        self: &Arc<Self>,
        storage: &Storage,
        session: EntityId,
    ) -> Result<Subscription, StoreError> {
        let shared = storage.clone();
        let subscribe = move || {
            let shared = shared.clone();
            async move { shared.bus.subscribe(shared.prefix.frames(session)).await.ok() }
        };
        match self.together(session, subscribe).await.and_then(FrameSubscription::follow) {
            Some(joined) => Ok(joined),
            // It says why that cannot be.
            None => self.listen(storage, session).await,
        }
    }

    /// The subscription that exists, or one that is opened for all callers together.
    async fn together<R>(
        self: &Arc<Self>,
        session: EntityId,
        subscribe: impl Fn() -> R + Clone + Send + Sync + 'static,
    ) -> Option<Arc<FrameSubscription>>
    where
        R: Future<Output = Option<Subscription>> + Send + 'static,
    {
        if let Some(known) = self.known(session) {
            return Some(known);
        }
        let ears = Arc::clone(self);
        let open = move || {
            let (ears, subscribe) = (Arc::clone(&ears), subscribe.clone());
            async move {
                if let Some(known) = ears.known(session) {
                    return Some(known);
                }
                let frames = subscribe().await?;
                Some(ears.known(session).unwrap_or_else(|| ears.open(session, frames).0))
            }
        };
        self.opening.share(session, open).await.flatten()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<EntityId, Weak<FrameSubscription>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self, session: EntityId) -> Option<Arc<FrameSubscription>> {
        self.lock().get(&session).and_then(Weak::upgrade)
    }

    /// Shares a subscription; also returns its first listener, which gets everything that is in it.
    fn open(
        self: &Arc<Self>,
        entity: EntityId,
        frames: Subscription,
    ) -> (Arc<FrameSubscription>, Subscription) {
        let (heard, receiver) = broadcast::channel(SUBSCRIPTION_CAPACITY);
        let stop = CancellationToken::new();
        let ear = Arc::new(FrameSubscription {
            of: entity,
            heard: heard.downgrade(),
            ears: Arc::downgrade(self),
            followers: AtomicU32::new(0),
            joined: AtomicU32::new(0),
            opened: Instant::now(),
            _stop: stop.clone().drop_guard(),
        });
        // A listener that was there before goes on with its own.
        self.lock().insert(entity, Arc::downgrade(&ear));
        // Detached: it ends with the last listener, or with the bus.
        drop(tokio::spawn(hand_on(frames, heard, stop)));
        (Arc::clone(&ear), FrameListener { receiver, ear, role: ListenerRole::Sender }.events())
    }
}

impl fmt::Debug for FrameSubscriptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameSubscriptions")
            .field("open", &self.lock().len())
            .finish_non_exhaustive()
    }
}

// === impl FrameSubscription ===

impl FrameSubscription {
    /// A further listener that receives each frame at once; `None` after the bus has closed.
    fn listen(self: Arc<Self>) -> Option<Subscription> {
        let receiver = self.heard.upgrade()?.subscribe();
        Some(FrameListener { receiver, ear: self, role: ListenerRole::Sender }.events())
    }

    /// A further follower; `None` after the bus has closed.
    fn follow(self: Arc<Self>) -> Option<Subscription> {
        let receiver = self.heard.upgrade()?.subscribe();
        let number = self.joined.fetch_add(1, Ordering::Relaxed);
        let is_prompt = self.followers.fetch_add(1, Ordering::Relaxed) < PROMPT;
        let role = if is_prompt { ListenerRole::Prompt } else { ListenerRole::Paced(number) };
        Some(FrameListener { receiver, ear: self, role }.events())
    }

    /// When the next time slot of a follower begins.
    fn next_slot(&self, number: u32) -> Instant {
        let mut slot = self.opened + PACE / SLOTS * (number % SLOTS);
        let late = Instant::now().saturating_duration_since(slot);
        if late > Duration::ZERO {
            let rounds = late.as_nanos().div_ceil(PACE.as_nanos());
            slot += PACE * u32::try_from(rounds).unwrap_or(u32::MAX);
        }
        slot
    }
}

impl Drop for FrameSubscription {
    fn drop(&mut self) {
        let Some(ears) = self.ears.upgrade() else { return };
        let mut all = ears.lock();
        // Another one may be there by now.
        if all.get(&self.of).is_some_and(|one| one.strong_count() == 0) {
            all.remove(&self.of);
        }
    }
}

// === impl LoneListener ===

impl Stream for LoneListener {
    type Item = BusEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<BusEvent>> {
        self.frames.poll_next_unpin(cx)
    }
}

// === impl LonePlace ===

impl Drop for LonePlace {
    fn drop(&mut self) {
        self.ears.lone().remove(&self.of);
    }
}

// === impl FrameListener ===

impl FrameListener {
    fn events(self) -> Subscription {
        futures_util::stream::unfold(self, |mut listener| async {
            Some((listener.next().await?, listener))
        })
        .boxed()
    }

    /// The next message; `None` after the bus has closed.
    async fn next(&mut self) -> Option<BusEvent> {
        match self.receiver.try_recv() {
            Ok(event) => return Some(event),
            Err(TryRecvError::Lagged(_)) => return Some(BusEvent::Lagged),
            Err(TryRecvError::Closed) => return None,
            Err(TryRecvError::Empty) => {}
        }
        let event = match self.receiver.recv().await {
            Ok(event) => event,
            Err(RecvError::Lagged(_)) => BusEvent::Lagged,
            Err(RecvError::Closed) => return None,
        };
        if let ListenerRole::Paced(number) = self.role {
            tokio::time::sleep_until(self.ear.next_slot(number)).await;
        }
        Some(event)
    }
}

impl Drop for FrameListener {
    fn drop(&mut self) {
        if !matches!(self.role, ListenerRole::Sender) {
            self.ear.followers.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Forwards frames until the last listener has gone, or the bus ends.
async fn hand_on(
    mut frames: Subscription,
    heard: broadcast::Sender<BusEvent>,
    stop: CancellationToken,
) {
    while let Some(Some(event)) = stop.run_until_cancelled(frames.next()).await {
        // There may be no listener yet.
        heard.send(event).ok();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bytes::Bytes;
    use clawnode_cluster::BusMessage;
    use tokio::sync::mpsc;

    use super::*;

    fn session() -> EntityId {
        EntityId::from_u128(7)
    }

    fn said(n: usize) -> BusEvent {
        let payload = Bytes::from(n.to_string());
        BusEvent::Message(BusMessage {
            subject: "frames".to_owned(),
            reply: None,
            traceparent: None,
            payload,
        })
    }

    /// A subscription, what it hears, and whether it is still there.
    fn subscription() -> (mpsc::Sender<BusEvent>, Subscription) {
        let (tell, told) = mpsc::channel(8);
        let events = futures_util::stream::unfold(told, |mut told| async {
            Some((told.recv().await?, told))
        });
        (tell, events.boxed())
    }

    #[tokio::test]
    async fn all_hear_one_subscription_and_it_ends_with_the_last() {
        let ears = Arc::<FrameSubscriptions>::default();
        let (tell, frames) = subscription();
        tell.send(said(0)).await.unwrap();
        let (ear, mut first) = ears.open(session(), frames);
        drop(ear);
        let mut more: Vec<Subscription> = Vec::new();
        for _ in 0..100 {
            more.push(ears.known(session()).and_then(FrameSubscription::listen).unwrap());
        }
        tell.send(said(1)).await.unwrap();
        assert_eq!(first.next().await, Some(said(0)), "what came before it was shared");
        assert_eq!(first.next().await, Some(said(1)));
        for one in &mut more {
            let heard = one.next().await;
            let heard = if heard == Some(said(0)) { one.next().await } else { heard };
            assert_eq!(heard, Some(said(1)));
        }
        drop(first);
        drop(more.split_off(1));
        tell.send(said(2)).await.unwrap();
        assert_eq!(more[0].next().await, Some(said(2)));
        drop(more);
        tell.closed().await;
        assert!(ears.lock().is_empty() && ears.known(session()).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_followers_hear_at_once_and_the_others_in_time_slots() {
        let ears = Arc::<FrameSubscriptions>::default();
        let (tell, frames) = subscription();
        let (ear, mut owner) = ears.open(session(), frames);
        let follow = |_| Arc::clone(&ear).follow().unwrap();
        let mut all: Vec<Subscription> = (0..200).map(follow).collect();
        let hears = |mut one: Subscription| async move {
            let first = one.next().await;
            let at = Instant::now();
            (first, one.next().await, at, Instant::now())
        };
        let others = all.split_off(16).into_iter().map(|one| tokio::spawn(hears(one)));
        let others = futures_util::future::join_all(others.collect::<Vec<_>>());
        // All of them listen by now.
        tokio::task::yield_now().await;
        let begun = Instant::now();
        for n in 0..2 {
            tell.send(said(n)).await.unwrap();
            for prompt in all.iter_mut().chain([&mut owner]) {
                assert_eq!(prompt.next().await, Some(said(n)));
            }
        }
        assert_eq!(Instant::now(), begun, "no time has passed");
        let mut crowd: HashMap<Instant, u32> = HashMap::new();
        for heard in others.await {
            let (first, second, at, then) = heard.unwrap();
            assert_eq!((first, second), (Some(said(0)), Some(said(1))));
            assert_eq!(at, then, "what has come meanwhile comes with it");
            assert!(at - begun <= PACE, "{:?}", at - begun);
            *crowd.entry(at).or_default() += 1;
        }
        assert!(crowd.values().all(|many| *many <= 4), "{crowd:?}");
        // A follower that joins when the others have left is one of the first again.
        drop(all);
        let mut late = Arc::clone(&ear).follow().unwrap();
        let now = Instant::now();
        tell.send(said(2)).await.unwrap();
        assert_eq!(late.next().await, Some(said(2)));
        assert_eq!(Instant::now(), now);
    }

    #[tokio::test]
    async fn who_does_not_read_is_told_and_keeps_nobody_up() {
        let ears = Arc::<FrameSubscriptions>::default();
        let (tell, frames) = subscription();
        let (_, mut quick) = ears.open(session(), frames);
        let mut slow = ears.known(session()).and_then(FrameSubscription::listen).unwrap();
        for n in 0..2 * SUBSCRIPTION_CAPACITY {
            tell.send(said(n)).await.unwrap();
            assert_eq!(quick.next().await, Some(said(n)));
        }
        assert_eq!(slow.next().await, Some(BusEvent::Lagged));
        assert_eq!(slow.next().await, Some(said(SUBSCRIPTION_CAPACITY)));
    }

    #[tokio::test]
    async fn the_end_of_the_bus_ends_all_and_whoever_comes_later_asks_anew() {
        let ears = Arc::<FrameSubscriptions>::default();
        let (tell, frames) = subscription();
        let (ear, mut first) = ears.open(session(), frames);
        drop(tell);
        assert_eq!(first.next().await, None);
        assert!(ear.listen().is_none(), "no task hands on");
        let (tell, frames) = subscription();
        let (_, mut second) = ears.open(session(), frames);
        drop(first);
        tell.send(said(1)).await.unwrap();
        assert_eq!(second.next().await, Some(said(1)));
        assert!(ears.known(session()).is_some(), "the end of the old one is not its own");
    }

    #[tokio::test]
    async fn a_lone_sender_shares_with_no_other_and_the_next_ones_share() {
        let ears = Arc::<FrameSubscriptions>::default();
        let mut tells = Vec::new();
        let mut heard = Vec::new();
        for _ in 0..3 {
            let (tell, frames) = subscription();
            let subscribe = || {
                tells.push(tell);
                std::future::ready(Ok(frames))
            };
            heard.push(ears.listen_by(session(), subscribe).await.unwrap());
        }
        assert_eq!(tells.len(), 2, "one of the first, one that the others share");
        for (n, tell) in tells.iter().enumerate() {
            tell.send(said(n)).await.unwrap();
        }
        for (one, n) in heard.iter_mut().zip([0, 1, 1]) {
            assert_eq!(one.next().await, Some(said(n)));
        }
        drop(heard);
        tells[0].closed().await;
        tells[1].closed().await;
        assert!(ears.lone().is_empty() && ears.known(session()).is_none());
        let (_tell, frames) = subscription();
        let refused =
            || std::future::ready(Err(StoreError::Closed { store: "bus", detail: String::new() }));
        assert!(ears.listen_by(session(), refused).await.is_err());
        let subscribe = || std::future::ready(Ok(frames));
        let _alone = ears.listen_by(session(), subscribe).await.unwrap();
        assert!(
            ears.known(session()).is_none(),
            "the place was given back, and is taken once more"
        );
    }

    #[tokio::test]
    async fn those_who_come_together_subscribe_once() {
        let ears = Arc::<FrameSubscriptions>::default();
        let asked = Arc::new(AtomicUsize::new(0));
        let (tell, frames) = subscription();
        let frames = Arc::new(Mutex::new(Some(frames)));
        let counted = Arc::clone(&asked);
        let subscribe = move || {
            counted.fetch_add(1, Ordering::SeqCst);
            std::future::ready(frames.lock().unwrap().take())
        };
        let opens = (0..50).map(|_| ears.together(session(), subscribe.clone()));
        let opened = futures_util::future::join_all(opens).await;
        let mut all: Vec<Subscription> = opened
            .into_iter()
            .map(|ear| ear.and_then(FrameSubscription::follow).unwrap())
            .collect();
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        tell.send(said(1)).await.unwrap();
        for one in &mut all {
            assert_eq!(one.next().await, Some(said(1)));
        }
    }
}
