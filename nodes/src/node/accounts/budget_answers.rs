//! Answers the methods `budget.…`: reads journals of accounts, and stores inputs for them.

use std::{collections::BTreeSet, time::Duration};

use clawnode_actors::{
    agent::Agents,
    session::{SendError, Sessions},
};
use clawnode_budget::{Budget, BudgetState};
use clawnode_cluster::Storage;
use clawnode_gateway::{HandlerResult, SessionRef};
use clawnode_kernel::{Entity, EntityError, Service};
use clawnode_proto::{
    AgentName, Cursor, ErrorBody, ErrorCode, IdempotencyKey, InputId,
    api::Method,
    budget::{
        AccountKey, AccountView, AskingBudget, BudgetAllowParams, BudgetExplainView, BudgetInput,
        BudgetList, BudgetSetParams, BudgetView, CallForecast, LimitKey, LimitSource, LimitView,
        WindowNumber,
    },
    codec,
    subject::BUDGET_KEYS,
    view::WarningView,
};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tracing::warn;

use super::{
    account_view, cached_accounts::AccountScan, explain_budget, metrics_and_warnings,
    slice_owners::Peers, wanted_limits,
};
use crate::{config::nearest, node::overview::NodeInfo};

/// Journals of accounts that are read at the same time.
const READS_MOST: usize = 16;
/// Accounts of users that `status` and metrics look at; it looks at those of the cluster and of agents first.
const USERS_SCANNED: usize = 100;
/// How long a change may take before the person is asked to look again: an owner may have to be found
/// dead first.
const CHANGED_WITHIN: Duration = Duration::from_secs(20);
/// How often its end is looked for, at first and at most.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(250));

/// The accounts of a cluster, for people.
#[derive(Clone, Debug)]
pub struct BudgetAnswers {
    pub(super) sessions: Sessions,
    agents: Agents,
    pub(super) peers: Peers,
    scan: AccountScan,
}

// === impl BudgetAnswers ===

impl BudgetAnswers {
    /// At the node of these.
    pub(in crate::node) fn new(sessions: Sessions, agents: Agents, node: NodeInfo) -> Self {
        let peers = Peers::new(node, !sessions.storage().shared);
        Self { sessions, agents, peers, scan: AccountScan::default() }
    }

    pub(super) fn storage(&self) -> &Storage {
        self.sessions.storage()
    }

    // === Looking ===

    /// Answers `budget.list`: the accounts of one page of keys that have limits.
    pub(in crate::node) async fn list(
        &self,
        after: Option<&Cursor>,
        limit: usize,
    ) -> HandlerResult<BudgetList> {
        const LIST: Method = Method::BudgetList;
        let after = after.map(|cursor| cursor.read::<AccountKey>(LIST)).transpose()?;
        let keys = self.keys().await?.into_iter();
        let mut keys = keys.filter(|key| after.as_ref().is_none_or(|after| key > after));
        let page: Vec<_> = keys.by_ref().take(limit).collect();
        let last = page.last().cloned().filter(|_| keys.next().is_some());
        let next = last.map(|key| Cursor::new(LIST, key));
        let mut accounts = self.views(page).await?;
        for account in &mut accounts {
            account.changes.clear();
        }
        Ok(BudgetList { accounts, next })
    }

    /// Answers `budget.show`.
    pub(in crate::node) async fn show(&self, key: AccountKey) -> HandlerResult<AccountView> {
        let account = self.existing(&key).await?;
        Ok(self.seen(key, &account.state))
    }

    /// Answers `budget.explain`, by what the session's turn itself would reserve. `named` says what is wrong with
    /// the session.
    pub(in crate::node) async fn explain(
        &self,
        session: &SessionRef,
        named: impl Fn(SendError) -> ErrorBody,
    ) -> HandlerResult<BudgetExplainView> {
        let options = |agent: &AgentName| self.agents.options(agent);
        let next = self.sessions.next_needs(session.id, options, self.agents.budgets()).await;
        let next = next.map_err(named)?.ok_or_else(|| {
            ErrorBody::new(ErrorCode::NotFound, "the session's agent is not in the configuration")
                .hint("`clawnode agents list` shows the agents there are")
        })?;
        let mut keys: Vec<AccountKey> =
            next.needs.needs.iter().map(|need| need.account.clone()).collect();
        keys.dedup();
        let accounts = self.views(keys).await?;
        let limits = explain_budget::limits(accounts, &next.needs);
        Ok(BudgetExplainView {
            session: next.session.to_string(),
            agent: next.agent,
            model: next.model,
            priced: next.priced,
            prompt_tokens: next.input,
            possible: limits.iter().all(|limit| limit.forecast == CallForecast::Possible),
            limits,
        })
    }

    /// The limits that wait for a person: of the cluster, of agents, and of some users.
    pub(in crate::node) async fn asking(&self) -> HandlerResult<Vec<AskingBudget>> {
        Ok(metrics_and_warnings::asking(self.clone().scanned().await?))
    }

    /// What `status` warns about.
    pub(in crate::node) async fn warnings(&self) -> Vec<WarningView> {
        metrics_and_warnings::warnings(&self.scan.first(|| self.clone().scanned()).await)
    }

    /// The metrics of accounts, as they were read last.
    pub(in crate::node) fn metrics(&self, out: &mut String) -> std::fmt::Result {
        metrics_and_warnings::metrics(&self.scan.known(|| self.clone().scanned()), out)
    }

    /// The accounts of the cluster and of agents, and some of users.
    async fn scanned(self) -> HandlerResult<Vec<AccountView>> {
        let is_user = |key: &AccountKey| matches!(key, AccountKey::User { .. });
        let keys = self.keys().await?.into_iter();
        let (users, mut keys): (Vec<_>, Vec<_>) = keys.partition(is_user);
        keys.extend(users.into_iter().take(USERS_SCANNED));
        self.views(keys).await
    }

    // === Changing ===

    /// Answers `budget.set`.
    pub(in crate::node) async fn set(&self, params: BudgetSetParams) -> HandlerResult<AccountView> {
        let BudgetSetParams { account: key, limits: wanted, keep_others } = params;
        let account = self.load(&key).await?;
        let begins = account.is_none();
        if begins {
            self.may_begin(&key)?;
        }
        let configured = self.agents.budgets().configured();
        let state = account.map(|account| account.state).unwrap_or_default();
        let current = if begins { configured.limits_of(&key) } else { state.limits() };
        let limits = Some(wanted_limits::limits(current, &wanted, keep_others)?);
        // The configuration goes on to decide on what no person has named.
        let named = wanted.iter().map(|one| LimitKey { unit: one.unit, window: one.window });
        let decides = keep_others.then(|| state.decides_also(named)).flatten();
        let own = BudgetInput::Set { source: self.person(), limits, decides };
        let has_limits = begins && !configured.limits_of(&key).is_empty();
        let first = has_limits.then(|| configured.input_for(&key));
        let inputs: Vec<BudgetInput> = first.into_iter().chain([own]).collect();
        self.change(key, &inputs).await
    }

    /// Answers `budget.reset`.
    pub(in crate::node) async fn reset(&self, key: AccountKey) -> HandlerResult<AccountView> {
        let account = self.existing(&key).await?;
        if !account.state.is_set_by_person() {
            return Ok(self.seen(key, &account.state));
        }
        let input = BudgetInput::Set { source: self.person(), limits: None, decides: None };
        self.change(key, &[input]).await
    }

    /// Answers `budget.allow`.
    pub(in crate::node) async fn allow(
        &self,
        params: BudgetAllowParams,
    ) -> HandlerResult<AccountView> {
        let BudgetAllowParams { account: key, limits } = params;
        let account = self.existing(&key).await?;
        let wanted_limit = |limit: LimitKey| {
            let book = account.state.book(limit).filter(|book| book.limit.is_some());
            book.map(|book| (limit, book.current.number)).ok_or_else(|| {
                let what = format!("`{key}` has no limit `{limit}`");
                ErrorBody::new(ErrorCode::InvalidParams, what)
                    .hint(format!("it has {}", wanted_limits::named(account.state.limits())))
            })
        };
        let limits = if limits.is_empty() {
            let view = self.seen(key.clone(), &account.state);
            view.limits.iter().filter(|limit| limit.state.asks()).map(LimitView::key).collect()
        } else {
            limits
        };
        if limits.is_empty() {
            let what = format!("no limit of `{key}` waits for a person");
            return Err(ErrorBody::new(ErrorCode::Conflict, what).hint(format!(
                "name one to allow it before: {}",
                wanted_limits::named(account.state.limits())
            )));
        }
        let limits: Vec<_> = limits.into_iter().map(wanted_limit).collect::<Result<_, _>>()?;
        let by = self.operator();
        let input = |(limit, window): (LimitKey, WindowNumber)| BudgetInput::Allow {
            by: by.clone(),
            limit,
            window,
        };
        let inputs: Vec<BudgetInput> = limits.into_iter().map(input).collect();
        self.change(key, &inputs).await
    }

    /// Stores inputs for an account, and waits until its journal has them.
    pub(super) async fn change(
        &self,
        key: AccountKey,
        inputs: &[BudgetInput],
    ) -> HandlerResult<AccountView> {
        let mut last = None;
        for body in inputs {
            let internal = |why: String| ErrorBody::new(ErrorCode::Internal, why);
            let name = format!("budget:{}", ulid::Ulid::generate()).parse();
            let name: IdempotencyKey = name.map_err(|error| internal(format!("{error}")))?;
            let input = Budget::input(&key, name, self.sessions.now(), body)
                .map_err(|error| internal(error.to_string()))?;
            self.storage().inbox.put(&input).await.map_err(EntityError::from)?;
            last = Some(input.id);
        }
        let state = match last {
            Some(input) => self.folded(&key, input).await?,
            None => self.existing(&key).await?.state,
        };
        Ok(self.seen(key, &state))
    }

    /// The account once its journal has this input.
    async fn folded(&self, key: &AccountKey, input: InputId) -> HandlerResult<BudgetState> {
        let done = async {
            let mut wait = LOOK_AGAIN.0;
            loop {
                match self.load(key).await {
                    Ok(Some(account)) if account.core.has(input) => return Ok(account.state),
                    Ok(_) => {}
                    Err(failure) if failure.code == ErrorCode::Unavailable => {}
                    Err(failure) => return Err(failure),
                }
                tokio::time::sleep(wait).await;
                wait = LOOK_AGAIN.1.min(wait * 2);
            }
        };
        tokio::time::timeout(CHANGED_WITHIN, done).await.unwrap_or_else(|_elapsed| {
            let what = format!("the change of `{key}` is stored, and has no effect yet");
            Err(ErrorBody::new(ErrorCode::Unavailable, what).hint(format!(
                "a worker makes it: see `clawnode status`, then `clawnode budget show {key}`"
            )))
        })
    }

    /// Refuses the account of an agent that the configuration does not have.
    fn may_begin(&self, key: &AccountKey) -> HandlerResult<()> {
        let AccountKey::Agent(agent) = key else { return Ok(()) };
        let names = self.agents.names();
        if names.contains(agent) {
            return Ok(());
        }
        let near = nearest(agent.as_str(), names.iter().map(AgentName::as_str));
        let meant = near.map(|near| format!("did you mean `agent:{near}`? ")).unwrap_or_default();
        let what = format!("the configuration has no agent `{agent}`");
        Err(ErrorBody::new(ErrorCode::NotFound, what)
            .hint(format!("{meant}`clawnode agents list` shows the agents there are")))
    }

    fn operator(&self) -> String {
        // The holder of the gateway's token is the operator; where they came in is all that is known.
        let node = self.peers.own();
        format!("operator at {node}")
    }

    fn person(&self) -> LimitSource {
        LimitSource::Person { name: self.operator() }
    }

    // === Reading ===

    /// The account as its journal has it; nothing if it has none.
    pub(super) async fn load(&self, key: &AccountKey) -> HandlerResult<Option<Entity<Budget>>> {
        let id = key.entity();
        let loaded = self.sessions.entities().load(id).await.map_err(EntityError::from)?;
        if loaded.records.is_empty() {
            return Ok(None);
        }
        let account = Entity::<Budget>::of(id, &loaded).map_err(EntityError::from)?;
        match &account.core.service {
            Service::Active => Ok(Some(account)),
            Service::Deleted => Ok(None),
            Service::Quarantined { reason } => {
                let what = format!("the account `{key}` is out of service: {reason}");
                Err(ErrorBody::new(ErrorCode::Quarantined, what)
                    .hint(format!("`clawnode quarantine show {id}` shows why, and what waits")))
            }
        }
    }

    pub(super) async fn existing(&self, key: &AccountKey) -> HandlerResult<Entity<Budget>> {
        if let Some(account) = self.load(key).await? {
            return Ok(account);
        }
        let names: Vec<String> = self.keys().await?.iter().map(ToString::to_string).collect();
        let key = key.to_string();
        let near = nearest(&key, names.iter().map(String::as_str)).filter(|near| *near != key);
        let meant = near.map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
        let what = format!("the account `{key}` has no limits");
        Err(ErrorBody::new(ErrorCode::NotFound, what).hint(format!(
            "{meant}`clawnode budget list` shows the accounts there are; set a limit with \
             `clawnode budget set {key} --usd-per-day 5.00`"
        )))
    }

    /// The keys that accounts may have now.
    pub(super) async fn keys(&self) -> HandlerResult<BTreeSet<AccountKey>> {
        let agents = self.agents.names().into_iter().map(AccountKey::Agent);
        let mut keys: BTreeSet<AccountKey> = agents.chain([AccountKey::Cluster]).collect();
        let found = self.storage().bucket.list(BUDGET_KEYS).await.map_err(EntityError::from)?;
        for (name, entry) in found {
            match codec::decode::<BudgetView>(&entry.value) {
                Ok(view) => {
                    keys.insert(view.account);
                }
                Err(error) => warn!(name, %error, "cannot read which limits an account has"),
            }
        }
        Ok(keys)
    }

    /// By its journal alone: what the account shows all processes is written a moment later.
    fn seen(&self, key: AccountKey, state: &BudgetState) -> AccountView {
        let peers = |process| (self.peers.state(process), self.peers.name(process));
        account_view::account(key, state, self.sessions.now(), &peers)
    }

    /// Those of these accounts that have limits, in the same order. One that cannot be read is left out.
    async fn views(&self, keys: Vec<AccountKey>) -> HandlerResult<Vec<AccountView>> {
        let read = |key: AccountKey| async move {
            let account = match self.load(&key).await {
                Err(failure) if failure.code != ErrorCode::Unavailable => {
                    warn!(%key, failure = failure.message, "cannot read an account");
                    return Ok(None);
                }
                account => account?,
            };
            let view = account.map(|account| self.seen(key, &account.state));
            Ok::<_, ErrorBody>(view.filter(|view| !view.limits.is_empty()))
        };
        let read = stream::iter(keys.into_iter().map(read)).buffered(READS_MOST);
        read.try_filter_map(|view| async move { Ok(view) }).try_collect().await
    }
}
