//! Budgets on any backend: accounts served by the kernel, and processes that spend from them.

use clawnode_budget::{
    Budget, BudgetState,
    holder::{
        self, CallCost, CallHold, CallNeeds, CallUsage, ConfiguredBudgets, HolderHandle,
        HolderOptions, Need, Refusal, ReservePort, WaitReason,
    },
};
use clawnode_cluster::Storage;
use clawnode_kernel::{Entity, LoadedJournal};
use clawnode_proto::{
    Kind, Position, ProcessId, Timestamp,
    budget::{
        AccountKey, BudgetInput, BudgetLimit, BudgetUnit, LimitKey, LimitSource, WindowLength,
    },
};
use tokio::sync::mpsc;

use super::{
    BackendFixture, Result,
    process::Process,
    support::{eventually, holds, same, soon},
};

/// No window of it ends while a case runs.
const USD: LimitKey = LimitKey { unit: BudgetUnit::Usd, window: WindowLength::Forever };
const SERVED: &[Kind] = &[Kind::BUDGET];

/// What becomes of a reservation.
enum Heard {
    Reserved(CallHold),
    Waits,
    Refused(Refusal),
}

/// Tells it to the case.
struct CasePort(mpsc::Sender<Heard>);

impl ReservePort for CasePort {
    fn reserved(self: Box<Self>, hold: CallHold) {
        // A case that is over needs no answer; the hold is released.
        self.0.try_send(Heard::Reserved(hold)).ok();
    }

    fn waits(&self, _: &AccountKey, _: LimitKey, _: WaitReason) {
        self.0.try_send(Heard::Waits).ok();
    }

    fn refused(self: Box<Self>, refusal: Refusal) {
        self.0.try_send(Heard::Refused(refusal)).ok();
    }
}

/// A call that costs so much, whatever is said to it.
struct WaitingCall(mpsc::Receiver<Heard>);

impl WaitingCall {
    fn of(holder: &HolderHandle, usd: u64) -> Self {
        let cost = CallCost { fixed: usd, per_million: 0 };
        let needs = vec![Need { account: AccountKey::Cluster, limit: USD, cost, beside: 0 }];
        let (tell, heard) = mpsc::channel(8);
        let port = CasePort(tell.clone());
        let needs = CallNeeds { needs, least_output: 1, most_output: 1 };
        if let Some(hold) = holder.reserve(needs, Box::new(port)) {
            tell.try_send(Heard::Reserved(hold)).ok();
        }
        Self(heard)
    }

    async fn next(&mut self) -> Result<Heard> {
        soon("an answer to a call", self.0.recv()).await?.ok_or_else(|| "no answer".into())
    }

    /// It gets what it needs, perhaps after it waited.
    async fn granted(&mut self) -> Result<CallHold> {
        loop {
            match self.next().await? {
                Heard::Reserved(hold) => return Ok(hold),
                Heard::Waits => {}
                Heard::Refused(refusal) => return Err(format!("{refusal:?}").into()),
            }
        }
    }
}

fn limit(amount: u64) -> BudgetLimit {
    BudgetLimit { ask_at: 100, ..BudgetLimit::new(USD.unit, USD.window, amount) }
}

/// What every process has in its configuration: the cluster may spend 100.
pub(super) fn configured() -> ConfiguredBudgets {
    let accounts = [(AccountKey::Cluster, vec![limit(100)])].into();
    ConfiguredBudgets { accounts, ..ConfiguredBudgets::default() }
}

/// An account as its journal has it now.
async fn read(storage: &Storage, account: &AccountKey) -> Result<BudgetState> {
    let records = storage.journal.read(account.entity(), Position(0)).await?;
    let loaded = LoadedJournal { records, snapshot: None };
    Ok(Entity::<Budget>::of(account.entity(), &loaded)?.state)
}

/// What a process without slices and calls knows of an account.
fn knows(process: &Process, account: &AccountKey) -> Vec<LimitKey> {
    let view = process.holder.accounts();
    view.accounts.get(account).map(|view| view.limits.clone()).unwrap_or_default()
}

/// I6: two processes spend from one account, wait for each other, and end by what is spent.
pub async fn two_processes_share_an_account(fixture: &dyn BackendFixture) -> Result {
    let storage = fixture.fresh().await?;
    let first = Process::start(&storage, 1, SERVED, true).await?;
    let second = Process::start(&storage, 2, SERVED, false).await?;
    let unused = WaitingCall::of(&first.holder, 60).granted().await?;
    let mut other = WaitingCall::of(&second.holder, 60);
    holds("it waits for the other process", matches!(other.next().await?, Heard::Waits))?;
    // The first call was not made.
    drop(unused);
    let hold = other.granted().await?;
    hold.sent();
    hold.settle(CallUsage::Known { usd: 60, tokens: 0 });
    let mut third = WaitingCall::of(&first.holder, 60);
    let refusal = loop {
        match third.next().await? {
            Heard::Refused(refusal) => break refusal,
            Heard::Waits => {}
            Heard::Reserved(_) => return Err("I6: it was granted over the limit".into()),
        }
    };
    let (account, limit) = (AccountKey::Cluster, USD);
    let bankrupt = Refusal::Bankrupt { account, limit, used: 60, most: 100, needed: 60 };
    same("the end", refusal, bankrupt)?;
    // What is left is of use for a smaller call.
    drop(WaitingCall::of(&first.holder, 40).granted().await?);
    let account = AccountKey::Cluster;
    let spent = || async {
        let state = read(&storage, &account).await?;
        Ok(state.book(USD).map(|book| book.current.spent()) == Some(60))
    };
    eventually("the account knows what was spent", spent).await?;
    first.stop().await;
    second.stop().await;
    Ok(())
}

/// C18: an ask is answered by the next process that owns the account, and nothing is lost that waits.
pub async fn an_ask_waits_for_an_owner(fixture: &dyn BackendFixture) -> Result {
    let storage = fixture.fresh().await?;
    let asks = Process::start(&storage, 2, SERVED, false).await?;
    let mut call = WaitingCall::of(&asks.holder, 60);
    let inbox = &storage.inbox;
    let account = AccountKey::Cluster;
    // What the configuration says comes before the ask, so that the account exists.
    let waits = || async { Ok(inbox.pending(account.entity()).await? >= 2) };
    eventually("the ask waits in the inbox", waits).await?;
    let owner = Process::start(&storage, 1, SERVED, true).await?;
    let hold = call.granted().await?;
    same("what is held", hold.holds.iter().map(|hold| hold.amount).collect(), vec![60])?;
    hold.sent();
    // It is not known what the call used: all of it.
    drop(hold);
    owner.stop().await;
    // The next owner knows it, too.
    let next = Process::start(&storage, 3, SERVED, true).await?;
    let mut late = WaitingCall::of(&next.holder, 60);
    let refusal = loop {
        match late.next().await? {
            Heard::Refused(Refusal::Bankrupt { used, .. }) => break used,
            Heard::Waits => {}
            _ => return Err("I6: what a call may have used counts".into()),
        }
    };
    same("what is spent", refusal, 60)?;
    asks.stop().await;
    next.stop().await;
    Ok(())
}

/// A limit that a person sets is known to every process, and to one that starts, before any call.
pub async fn a_set_limit_is_known_everywhere(fixture: &dyn BackendFixture) -> Result {
    let storage = fixture.fresh().await?;
    let first = Process::start(&storage, 1, SERVED, true).await?;
    let second = Process::start(&storage, 2, SERVED, false).await?;
    let account: AccountKey = "agent:research".parse()?;
    let set = |name: &str, limits: Vec<BudgetLimit>| {
        let source = LimitSource::Person { name: "ada".to_owned() };
        let body = BudgetInput::Set { source, limits: Some(limits) };
        Budget::input(&account, name.parse()?, Timestamp(1), &body).map_err(Into::into)
    };
    let all_know = |limits: Vec<LimitKey>| {
        let (first, second, account) = (&first, &second, &account);
        async move {
            let look = || async {
                Ok(knows(first, account) == limits && knows(second, account) == limits)
            };
            eventually("both know the limits", look).await
        }
    };
    let input: Result<_> = set("one", vec![limit(5)]);
    storage.inbox.put(&input?).await?;
    all_know(vec![USD]).await?;
    let late = HolderHandle::new(ProcessId::from_u128(3), HolderOptions::default());
    holder::read(&late, storage.bucket.as_ref()).await?;
    let known = late.accounts().accounts.get(&account).map(|view| view.limits.clone());
    same("what a process reads at its start", known, Some(vec![USD]))?;
    let input: Result<_> = set("two", Vec::new());
    storage.inbox.put(&input?).await?;
    all_know(Vec::new()).await?;
    first.stop().await;
    second.stop().await;
    Ok(())
}
