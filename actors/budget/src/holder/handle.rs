//! What calls of a process use to reserve, and to say what they cost.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock},
    time::Duration,
};

use clawnode_cluster::{Bucket, Peek as _};
use clawnode_proto::{
    ProcessId, Timestamp,
    budget::{AccountKey, BudgetInput, BudgetLimit, BudgetView, LimitKey, ProcessStanding},
};
use tokio::{
    sync::{Notify, oneshot, watch},
    time::{Instant, sleep, timeout},
};
use tracing::{error, warn};

use super::{
    AccountsView, CallHold, CallNeeds, CallUsage, ConfiguredBudgets, EndHold, Holder, HolderInput,
    HolderOptions, HolderOutput, KnownAccounts, Refusal, Reservation, WaitReason,
    unjournaled::UnjournaledMarks,
};

/// The most that the holder's time goes on between two looks, in milliseconds. A process that did not run
/// for longer than that has not heard accounts meanwhile: its calls did not wait for them in vain.
const STEP_MOST: u64 = 1_000;
/// Asks without an answer after which an account may not exist any more.
const UNANSWERED: u32 = 2;

/// How long an orderly end waits until accounts have what goes back: a store that works has it at once, but
/// an account gets 4 inputs a second at most.
const LEAVES_WITHIN: Duration = Duration::from_secs(3);
/// Between two looks of it.
const LEAVES_EVERY: Duration = Duration::from_millis(50);

/// Where the answer to a reservation goes.
pub trait ReservePort: Send + 'static {
    /// The call may be made.
    fn reserved(self: Box<Self>, hold: CallHold);
    /// The call waits, and why. Said once for each limit and reason.
    fn waits(&self, account: &AccountKey, limit: LimitKey, why: WaitReason);
    /// The call may not be made.
    fn refused(self: Box<Self>, refusal: Refusal);
    /// Whether the call is not wanted any more. One that waits is then forgotten with the next tick.
    fn is_closed(&self) -> bool {
        false
    }
}

/// Brings the answer to who waits for it. A wait that is dropped takes nothing.
struct AwaitedPort(oneshot::Sender<Result<CallHold, Refusal>>);

/// The holder of a process. Cheap to clone.
#[derive(Clone)]
pub struct HolderHandle {
    shared: Arc<HolderShared>,
}

struct HolderShared {
    state: Mutex<HolderState>,
    accounts: RwLock<Arc<AccountsView>>,
    /// What was read of accounts. The view follows from it and the configuration.
    known: Mutex<KnownAccounts>,
    configured: watch::Sender<Arc<ConfiguredBudgets>>,
    /// Wakes the task that sends what the machine wants to send.
    wake: Notify,
    is_dead: OnceLock<DeadLookup>,
    marks: OnceLock<UnjournaledMarks>,
}

/// Whether membership holds a process dead.
type DeadLookup = Box<dyn Fn(ProcessId) -> bool + Send + Sync>;

struct HolderState {
    holder: Holder,
    last: u64,
    ports: BTreeMap<Reservation, Box<dyn ReservePort>>,
    /// At most one for each account: the machine sends the next one after `Stored`. It stays here until
    /// then, so that a task that starts again sends it once more, under the same number.
    outbox: BTreeMap<AccountKey, (u64, BudgetInput)>,
    /// The number of the last message to an account.
    messages: u64,
    /// Asks since an account was heard, for those that were asked.
    unanswered: BTreeMap<AccountKey, u32>,
    /// The time of the machine, and when it was looked at last.
    now: Timestamp,
    looked: Instant,
    /// The task sleeps until something happens.
    sleeps: bool,
}

/// What is said to calls once the lock is free: ports may call the holder.
enum HolderAnswer {
    Reserved(Box<dyn ReservePort>, CallHold),
    Refused(Box<dyn ReservePort>, Refusal),
}

// === impl HolderHandle ===

impl HolderHandle {
    /// The holder of a process that begins. Its task (`actor`) has to run.
    pub fn new(process: ProcessId, options: HolderOptions) -> Self {
        let state = HolderState {
            holder: Holder::new(process, options),
            last: 0,
            ports: BTreeMap::new(),
            outbox: BTreeMap::new(),
            messages: 0,
            unanswered: BTreeMap::new(),
            now: Timestamp(0),
            looked: Instant::now(),
            sleeps: false,
        };
        let shared = HolderShared {
            state: Mutex::new(state),
            accounts: RwLock::default(),
            known: Mutex::default(),
            configured: watch::Sender::default(),
            wake: Notify::new(),
            is_dead: OnceLock::new(),
            marks: OnceLock::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// The process whose slices these are.
    pub fn process(&self) -> ProcessId {
        self.state().holder.process()
    }

    /// From now on, calls that wait for a process hear whether `is_dead` holds it dead. Only the first one that
    /// is given counts.
    pub fn asks_for_dead(&self, is_dead: impl Fn(ProcessId) -> bool + Send + Sync + 'static) {
        self.shared.is_dead.get_or_init(|| Box::new(is_dead));
    }

    /// From now on, the process is marked in this bucket before it makes a call that no journal shows. Only the first one
    /// that is given counts.
    pub fn marks_unjournaled_in(&self, bucket: Arc<dyn Bucket>) {
        self.shared.marks.get_or_init(|| UnjournaledMarks::new(bucket));
    }

    pub(super) fn marks(&self) -> Option<&UnjournaledMarks> {
        self.shared.marks.get()
    }

    /// Which accounts there are, as this process knows it.
    pub fn accounts(&self) -> Arc<AccountsView> {
        Arc::clone(&self.shared.accounts.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reserves what a call needs. Returns it if there is enough at hand; else the port hears of it later.
    pub fn reserve(&self, needs: CallNeeds, port: Box<dyn ReservePort>) -> Option<CallHold> {
        let reservation = {
            let mut state = self.state();
            state.last += 1;
            let reservation = Reservation(state.last);
            state.ports.insert(reservation, port);
            reservation
        };
        let said = self.takes(HolderInput::Reserve(reservation, needs));
        let mut at_once = None;
        for one in said {
            match one {
                HolderAnswer::Reserved(_, hold) if hold.reservation == reservation => {
                    at_once = Some(hold);
                }
                other => other.say(),
            }
        }
        at_once
    }

    /// The same for a call that waits here until it is answered; nothing if the process ends before that.
    pub async fn reserved(&self, needs: CallNeeds) -> Option<Result<CallHold, Refusal>> {
        let (tell, answer) = oneshot::channel();
        if let Some(hold) = self.reserve(needs, Box::new(AwaitedPort(tell))) {
            return Some(Ok(hold));
        }
        answer.await.ok()
    }

    /// Takes what happened, and says what follows.
    pub(super) fn hears(&self, input: HolderInput) {
        self.takes(input).into_iter().for_each(HolderAnswer::say);
    }

    fn takes(&self, input: HolderInput) -> Vec<HolderAnswer> {
        let mut said = Vec::new();
        let mut state = self.state();
        let is_tick = matches!(input, HolderInput::Tick);
        let now = state.looks();
        if let Some(is_dead) = self.shared.is_dead.get().filter(|_| is_tick) {
            let waits_for = state.holder.waits_for().into_iter();
            state.holder.set_dead(waits_for.filter(|process| is_dead(*process)).collect());
        }
        let mut wakes = std::mem::take(&mut state.sleeps);
        let mut outputs = state.holder.handle(now, input);
        // Both are dropped once the lock is free: they call the holder.
        let closed = if is_tick { state.forget_closed(now, &mut outputs) } else { Vec::new() };
        let mut orphans = Vec::new();
        for output in outputs {
            match output {
                HolderOutput::Send(account, body) => {
                    state.puts_out(account, body);
                    wakes = true;
                }
                HolderOutput::Granted(granted) => {
                    let reservation = granted.reservation;
                    let hold = CallHold::of(granted, Box::new(self.clone()));
                    match state.ports.remove(&reservation) {
                        Some(port) => said.push(HolderAnswer::Reserved(port, hold)),
                        None => orphans.push(hold),
                    }
                }
                HolderOutput::Waits(reservation, account, limit, why) => {
                    if let Some(port) = state.ports.get(&reservation) {
                        port.waits(&account, limit, why);
                    }
                }
                HolderOutput::Refused(reservation, refusal) => {
                    let port = state.ports.remove(&reservation);
                    said.extend(port.map(|port| HolderAnswer::Refused(port, refusal)));
                }
            }
        }
        drop(state);
        drop((closed, orphans));
        if wakes {
            self.shared.wake.notify_one();
        }
        said
    }

    fn state(&self) -> MutexGuard<'_, HolderState> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// For tests, which are its accounts and its task.
#[cfg(feature = "test-util")]
impl HolderHandle {
    /// These accounts there are.
    pub fn has_accounts(&self, accounts: AccountsView) {
        *self.shared.accounts.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(accounts);
    }

    /// What it has sent.
    pub fn asked(&self) -> Vec<(AccountKey, BudgetInput)> {
        let outbox = std::mem::take(&mut self.state().outbox);
        outbox.into_iter().map(|(account, (_, body))| (account, body)).collect()
    }

    /// This happened.
    pub fn happens(&self, input: HolderInput) {
        self.hears(input);
    }
}

// === for its task ===

impl HolderHandle {
    /// An account says how things stand between it and this process.
    pub fn tells(&self, standing: ProcessStanding) {
        self.state().unanswered.remove(&standing.account);
        self.hears(HolderInput::Told(standing));
    }

    /// What is to be put into accounts' inboxes, with its number. It is the same until it is stored.
    pub(super) fn outbox(&self) -> Vec<(AccountKey, u64, BudgetInput)> {
        let state = self.state();
        let all = state.outbox.iter();
        all.map(|(account, (number, body))| (account.clone(), *number, body.clone())).collect()
    }

    /// A message is in an account's inbox, or may not be there.
    pub(super) fn sent(&self, account: &AccountKey, number: u64, stored: bool) {
        {
            let mut state = self.state();
            if state.outbox.get(account).is_none_or(|(now, _)| *now != number) {
                return;
            }
            state.outbox.remove(account);
        }
        self.hears(HolderInput::Stored(account.clone(), stored));
    }

    /// A number for one more message.
    pub(super) fn numbers(&self) -> u64 {
        let mut state = self.state();
        state.messages += 1;
        state.messages
    }

    /// Whether nothing is to be done until something happens; `woken` says when.
    pub(super) fn sleeps(&self) -> bool {
        let mut state = self.state();
        state.sleeps = state.holder.is_at_rest() && state.outbox.is_empty();
        if state.sleeps {
            state.unanswered.clear();
        }
        state.sleeps
    }

    /// Gives back what no call uses, so that it does not count as spent until its window ends. Waits until
    /// accounts have it in their inboxes, or as long as it is useful to wait.
    pub async fn leave(&self) {
        let left = async {
            loop {
                // Again each time: a call may have ended.
                self.hears(HolderInput::Leave);
                if self.state().holder.is_at_rest() {
                    return;
                }
                sleep(LEAVES_EVERY).await;
            }
        };
        if timeout(LEAVES_WITHIN, left).await.is_err() {
            warn!("a part of the budgets stays with this process until their windows end");
        }
        // Dropped without the lock: a port may call the holder.
        let ports = std::mem::take(&mut self.state().ports);
        drop(ports);
    }

    /// Waits until something has happened, perhaps before this.
    pub(super) async fn woken(&self) {
        self.shared.wake.notified().await;
    }

    /// What has to be said to an account first, so that it exists.
    pub(super) fn birth_of(&self, account: &AccountKey) -> Option<BudgetInput> {
        let silent = self.state().unanswered.get(account).is_some_and(|asks| *asks > UNANSWERED);
        let configured = self.configured();
        let is_born = self.known().contains(account) && !silent;
        let has_limits = !configured.limits_of(account).is_empty();
        (has_limits && !is_born).then(|| configured.input_for(account))
    }
}

// === which accounts there are ===

impl HolderHandle {
    /// What the configuration says from now on.
    pub fn configure(&self, configured: ConfiguredBudgets, options: HolderOptions) {
        self.state().holder.set_options(options);
        self.shared.configured.send_replace(Arc::new(configured));
        self.shows(&self.known());
    }

    /// What the configuration says.
    pub fn configured(&self) -> Arc<ConfiguredBudgets> {
        self.shared.configured.peek(Arc::clone)
    }

    /// The same, for those who wait for it to change.
    pub(super) fn configurations(&self) -> watch::Receiver<Arc<ConfiguredBudgets>> {
        self.shared.configured.subscribe()
    }

    /// The limits of an account, if a person set them: they win over the configuration.
    pub fn set_by_person(&self, account: &AccountKey) -> Option<Vec<BudgetLimit>> {
        self.known().set_by_person(account)
    }

    /// Which accounts have to hear what the configuration says.
    pub(super) fn hearers(&self) -> Vec<AccountKey> {
        self.known().hearers(&self.configured())
    }

    /// An account shows its limits.
    pub fn knows(&self, view: BudgetView) {
        let (mut known, account) = (self.known(), view.account.clone());
        if known.take(view) && !known.is_shown(&account, &self.accounts()) {
            self.shows(&known);
        }
    }

    /// The limits of an account cannot be read; `None` if it is not even known whose they are.
    pub(super) fn cannot_read(&self, account: Option<AccountKey>, key: &str) {
        let Some(account) = account else {
            error!(key, "cannot read whose limits these are: they are not kept here");
            return;
        };
        let mut known = self.known();
        warn!(%account, "cannot read the limits of a budget: the last known ones are in force");
        if known.take_unreadable(account) {
            self.shows(&known);
        }
    }

    /// The limits under this key of the bucket are gone with their account.
    pub(super) fn forgets(&self, key: &str) {
        let mut known = self.known();
        if known.forget(key) {
            self.shows(&known);
        }
    }

    fn shows(&self, known: &KnownAccounts) {
        let view = Arc::new(known.view(&self.configured()));
        *self.shared.accounts.write().unwrap_or_else(PoisonError::into_inner) = view;
    }

    fn known(&self) -> MutexGuard<'_, KnownAccounts> {
        self.shared.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReservePort for AwaitedPort {
    fn reserved(self: Box<Self>, hold: CallHold) {
        // If it is not wanted any more, it is released as it is dropped.
        drop(self.0.send(Ok(hold)));
    }

    fn waits(&self, _: &AccountKey, _: LimitKey, _: WaitReason) {}

    fn refused(self: Box<Self>, refusal: Refusal) {
        drop(self.0.send(Err(refusal)));
    }

    fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

// === impl HolderState ===

impl HolderState {
    /// The time of the machine. It goes on only while the process runs, and never jumps.
    fn looks(&mut self) -> Timestamp {
        let since = u64::try_from(self.looked.elapsed().as_millis()).unwrap_or(u64::MAX);
        if since <= STEP_MOST {
            // What is less than a millisecond counts next time.
            self.looked += Duration::from_millis(since);
        } else {
            self.looked = Instant::now();
        }
        self.now = Timestamp(self.now.0.saturating_add(since.min(STEP_MOST)));
        self.now
    }

    fn puts_out(&mut self, account: AccountKey, body: BudgetInput) {
        if matches!(body, BudgetInput::Ask { .. }) {
            let asks = self.unanswered.entry(account.clone()).or_default();
            *asks = asks.saturating_add(1);
        }
        self.messages += 1;
        self.outbox.insert(account, (self.messages, body));
    }
}

impl fmt::Debug for HolderHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HolderHandle").finish_non_exhaustive()
    }
}

impl EndHold for HolderHandle {
    fn ends(&self, reservation: Reservation, usage: Option<CallUsage>) {
        self.hears(match usage {
            Some(usage) => HolderInput::Settle(reservation, usage),
            None => HolderInput::Release(reservation),
        });
    }
}

// === impl HolderState ===

impl HolderState {
    /// Calls that wait and are not wanted any more do not hold others up.
    fn forget_closed(
        &mut self,
        now: Timestamp,
        outputs: &mut Vec<HolderOutput>,
    ) -> Vec<Box<dyn ReservePort>> {
        let closed = self.ports.extract_if(.., |_, port| port.is_closed());
        let closed: Vec<_> = closed.collect();
        for (reservation, _) in &closed {
            outputs.extend(self.holder.handle(now, HolderInput::Release(*reservation)));
        }
        closed.into_iter().map(|(_, port)| port).collect()
    }
}

// === impl HolderAnswer ===

impl HolderAnswer {
    fn say(self) {
        match self {
            Self::Reserved(port, hold) => port.reserved(hold),
            Self::Refused(port, refusal) => port.refused(refusal),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use clawnode_proto::budget::{
        BudgetUnit, GrantedSlice, ProcessStanding, WindowLength, WindowNumber,
    };

    use super::*;
    use crate::holder::{CallCost, Need};

    const LIMIT: LimitKey = LimitKey { unit: BudgetUnit::Tokens, window: WindowLength::Day };

    struct FlaggedPort(Arc<AtomicBool>);

    impl ReservePort for FlaggedPort {
        fn reserved(self: Box<Self>, _: CallHold) {}

        fn waits(&self, _: &AccountKey, _: LimitKey, _: WaitReason) {}

        fn refused(self: Box<Self>, _: Refusal) {}

        fn is_closed(&self) -> bool {
            self.0.load(Ordering::Relaxed)
        }
    }

    fn port() -> (Arc<AtomicBool>, Box<FlaggedPort>) {
        let is_closed = Arc::new(AtomicBool::new(false));
        (Arc::clone(&is_closed), Box::new(FlaggedPort(is_closed)))
    }

    /// A call that needs 100 tokens.
    fn needs() -> CallNeeds {
        let cost = CallCost { fixed: 100, per_million: 0 };
        let needs = vec![Need { account: AccountKey::Cluster, limit: LIMIT, cost, beside: 0 }];
        CallNeeds { needs, least_output: 1, most_output: 1 }
    }

    #[test]
    fn a_call_that_is_not_wanted_any_more_does_not_wait() {
        let handle = HolderHandle::new(ProcessId::from_u128(1), HolderOptions::default());
        let (is_closed, port) = port();
        assert!(handle.reserve(needs(), port).is_none());
        handle.hears(HolderInput::Tick);
        assert_eq!((Arc::strong_count(&is_closed), handle.state().holder.waiting()), (2, 1));
        is_closed.store(true, Ordering::Relaxed);
        handle.hears(HolderInput::Tick);
        let waiting = handle.state().holder.waiting();
        assert_eq!((Arc::strong_count(&is_closed), waiting), (1, 0), "its place is given back");
    }

    #[test]
    fn what_was_about_to_be_sent_and_was_not_is_given_back() {
        let handle = HolderHandle::new(ProcessId::from_u128(1), HolderOptions::default());
        assert!(handle.reserve(needs(), port().1).is_none());
        let (number, amount, window) = (1, 100, WindowNumber(7));
        let slice = GrantedSlice { number, limit: LIMIT, window, amount, recalled: false };
        handle.hears(HolderInput::Told(ProcessStanding {
            account: AccountKey::Cluster,
            version: 1,
            begun: None,
            slices: vec![slice],
            answers: Vec::new(),
        }));
        // The port has dropped the first hold, which was never sent.
        let hold = handle.reserve(needs(), port().1).expect("the slice is enough for one");
        hold.sent();
        hold.release();
        drop(hold);
        assert_eq!(handle.state().holder.holds().count(), 0);
        let again = handle.reserve(needs(), port().1).expect("nothing of it is spent");
        again.sent();
        drop(again);
        assert!(handle.reserve(needs(), port().1).is_none(), "a call without an end counts whole");
    }
}
