//! `budget`: limits of spending; what is spent of them, and by whom.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use clawnode_proto::{
    ProcessId,
    api::{ListParams, SessionParams, calls},
    budget::{
        AccountKey, AccountView, BudgetAllowParams, BudgetExplainView, BudgetList, BudgetParams,
        BudgetReconcileParams, BudgetSetParams, CallForecast, CountedLanes, ExplainedLimit,
        LimitKey, LimitOrigin, LimitView, ReconcileView, WantedLimit, amount_text, limit_flag,
        read_amount, reconcile_command,
    },
};

use super::{
    budget_changes::{self, limit_text},
    budget_flags::{LimitAmounts, LimitChoices},
    command_context::CliContext,
    output::{Output, Tone, clean, count, time},
};
use crate::failure::{Exit, Failure};

/// Accounts of one page: the most that a node gives.
const PAGE: u32 = 1_000;

/// What `budget --help` ends with.
const EXAMPLES: &str = "\
An account is `cluster`, `agent:NAME` or `user:CHANNEL:ACCOUNT:PEER`. Dollars are written as `5.00`.
Hours, days and months are those of UTC. A limit that a person sets has effect until `budget reset`,
whatever is configured.

Examples:
  clawnode budget list
  clawnode budget show cluster
  clawnode budget set cluster --usd-per-day 5.00 --warn-at 75 --ask-at 90
  clawnode budget set agent:research --tokens-per-day 2000000
  clawnode budget set cluster --loops-per-hour none
  clawnode budget set cluster --loops-per-hour 200 --lanes background
  clawnode budget reset cluster
  clawnode budget allow cluster --usd-per-day
  clawnode budget explain default:web:site:ada
  clawnode budget reconcile cluster --node worker-2 --gone";

/// What no session spends.
const WITHOUT_SESSION: &str = "embeddings and `models test`, which spend from it, have no session: \
`clawnode usage` does not show them";

/// The amount that takes a limit away.
const NONE: &str = "none";
/// What amounts look like.
const AMOUNTS: &str = "write for example `5.00` for dollars, `2000000` for tokens, or `none`";
/// What `--lanes` takes.
const LANES: [&str; 2] = ["all", BACKGROUND];
/// Only calls in the background count.
const BACKGROUND: &str = "background";

#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(super) enum BudgetCommand {
    /// List the accounts that have limits, with what is spent
    List,
    /// Show an account: its limits, what each process has of them, and who changed it
    Show {
        /// The account
        account: AccountKey,
    },
    /// Set limits of an account; those that you do not name stay as they are
    Set(SetArgs),
    /// Take away what a person has set, so that the configuration has effect again
    Reset {
        /// The account
        account: AccountKey,
    },
    /// Allow more to be spent than `ask_at`, up to the limit, until its window ends
    Allow(AllowArgs),
    /// Say which limits hold for the next call of a session, and whether it could be made now
    Explain {
        /// The session's key or id
        session: String,
    },
    /// Give back what a dead process has of an account, except for what its calls have cost
    Reconcile(ReconcileArgs),
}

/// `budget set`.
#[derive(Debug, Args)]
pub(super) struct SetArgs {
    /// The account
    account: AccountKey,
    #[command(flatten)]
    limits: LimitAmounts,
    /// Warn when this share is spent, in percent (default: as it is, or 75)
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=100))]
    warn_at: Option<u8>,
    /// Ask a person before more than this share is spent, in percent; 100 asks no person (default: as it
    /// is, or 90)
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=100))]
    ask_at: Option<u8>,
    /// Count only calls in the background, or all calls (default: as it is, or all)
    #[arg(long, value_name = "LANES", value_parser = LANES)]
    lanes: Option<String>,
    /// Take away all limits that are not named
    #[arg(long)]
    only: bool,
}

/// `budget allow`.
#[derive(Debug, Args)]
pub(super) struct AllowArgs {
    /// The account
    account: AccountKey,
    #[command(flatten)]
    limits: LimitChoices,
}

/// `budget reconcile`.
#[derive(Debug, Args)]
pub(super) struct ReconcileArgs {
    /// The account
    account: AccountKey,
    /// The node whose process has died, or the id of the process
    #[arg(long, value_name = "NODE")]
    node: String,
    /// Confirm that the process is gone and will not run again
    #[arg(long)]
    gone: bool,
}

/// `budget`.
pub(super) async fn run(command: BudgetCommand, context: &CliContext) -> Result<Exit, Failure> {
    let out = context.out;
    let one = |view: &AccountView| table(out, std::slice::from_ref(view));
    match command {
        BudgetCommand::List => {
            out.document(&read_all(context).await?, |list| table(out, &list.accounts))?;
        }
        BudgetCommand::Show { account } => {
            let view = context.call(calls::BudgetShow, &BudgetParams { account }).await?;
            out.document(&view, |view| detail(out, view))?;
        }
        BudgetCommand::Set(args) => {
            let params = set_params(args)?;
            out.document(&context.call(calls::BudgetSet, &params).await?, one)?;
        }
        BudgetCommand::Reset { account } => {
            let view = context.call(calls::BudgetReset, &BudgetParams { account }).await?;
            out.document(&view, one)?;
        }
        BudgetCommand::Allow(AllowArgs { account, limits }) => {
            let params = BudgetAllowParams { account, limits: limits.0 };
            out.document(&context.call(calls::BudgetAllow, &params).await?, one)?;
        }
        BudgetCommand::Explain { session } => {
            let view = context.call(calls::BudgetExplain, &SessionParams { session }).await?;
            out.document(&view, |view| explained(out, view))?;
        }
        BudgetCommand::Reconcile(args) => {
            let params = reconcile_params(args)?;
            let view = context.call(calls::BudgetReconcile, &params).await?;
            out.document(&view, |view| reconciled(out, view))?;
        }
    }
    Ok(Exit::Ok)
}

fn set_params(args: SetArgs) -> Result<BudgetSetParams, Failure> {
    let SetArgs { account, limits, warn_at, ask_at, lanes, only } = args;
    if limits.0.is_empty() {
        let hint = format!("name at least one: `clawnode budget set {account} --usd-per-day 5.00`");
        return Err(Failure::new(Exit::Usage, "usage", "no limit is named").hint(hint));
    }
    amounts_fit(&limits.0)?;
    if let (Some(warn_at), Some(ask_at)) = (warn_at, ask_at)
        && warn_at > ask_at
    {
        let what = format!("`--warn-at {warn_at}` is more than `--ask-at {ask_at}`");
        return Err(Failure::new(Exit::Usage, "usage", what)
            .hint("give `--warn-at` a smaller number than `--ask-at`"));
    }
    let is_background = |lanes: String| lanes == BACKGROUND;
    let (all, background) = (CountedLanes::All, CountedLanes::Background);
    let lanes = lanes.map(|lanes| if is_background(lanes) { background } else { all });
    let limit = |(LimitKey { unit, window }, amount)| WantedLimit {
        unit,
        window,
        amount,
        warn_at,
        ask_at,
        lanes,
    };
    let limits = limits.0.into_iter().map(limit).collect();
    Ok(BudgetSetParams { account, limits, keep_others: !only })
}

/// Whether each is an amount: a node would name it by its place in the request, and not by its flag.
fn amounts_fit(limits: &[(LimitKey, String)]) -> Result<(), Failure> {
    for (key, amount) in limits.iter().filter(|(_, amount)| amount != NONE) {
        read_amount(key.unit, amount).map_err(|error| {
            let what = format!("`--{}`: {error}", limit_flag(*key));
            Failure::new(Exit::Usage, "usage", what).hint(AMOUNTS)
        })?;
    }
    Ok(())
}

fn reconcile_params(args: ReconcileArgs) -> Result<BudgetReconcileParams, Failure> {
    let ReconcileArgs { account, node, gone } = args;
    if !gone {
        let what = format!("nothing was given back: the process of `{node}` may still run");
        return Err(Failure::new(Exit::Usage, "not_confirmed", what)
            .hint("make sure that it is gone, then add `--gone`"));
    }
    Ok(BudgetReconcileParams { account, node, gone })
}

async fn read_all(context: &CliContext) -> Result<BudgetList, Failure> {
    let client = context.client().await?;
    let mut all = BudgetList::default();
    loop {
        let page = ListParams { cursor: all.next.take(), limit: Some(PAGE) };
        let page = client.call(calls::BudgetList, &page).await?;
        all.accounts.extend(page.accounts);
        all.next = page.next;
        if all.next.is_none() {
            return Ok(all);
        }
    }
}

// === Tables ===

fn table(out: Output, accounts: &[AccountView]) -> String {
    let mut head = vec!["account", "limit", "spent", "held", "left", "state", "ends", "set by"];
    if out.wide {
        head.splice(7..7, ["stranded", "excess", "warn at", "ask at", "waiting"]);
    }
    let rows = accounts.iter().flat_map(|account| {
        account.limits.iter().map(move |limit| {
            let amount = |amount| amount_text(limit.unit, amount);
            let mut row = vec![
                account.account.to_string(),
                limit_text(limit.key(), limit.limit, limit.lanes),
                amount(limit.spent),
                amount(limit.held),
                amount(limit.left),
                state(limit),
                limit.ends.map_or_else(|| "never".to_owned(), time),
                set_by(account, limit),
            ];
            if out.wide {
                let percent = |share: u8| format!("{share} %");
                let more = [
                    amount(limit.stranded),
                    amount(limit.excess),
                    percent(limit.warn_at),
                    percent(limit.ask_at),
                    limit.waiting.to_string(),
                ];
                row.splice(7..7, more);
            }
            row
        })
    });
    let rows: Vec<Vec<String>> = rows.collect();
    if rows.is_empty() {
        let account = match accounts {
            [one] => one.account.clone(),
            _ => AccountKey::Cluster,
        };
        return format!(
            "no limits: set one with `clawnode budget set {account} --usd-per-day 5.00`"
        );
    }
    out.table(&head, rows)
}

fn state(limit: &LimitView) -> String {
    let allowed = if limit.allowed { ", allowed" } else { "" };
    format!("{}{allowed}", limit.state.as_str())
}

fn set_by(account: &AccountView, limit: &LimitView) -> String {
    match (limit.origin.unwrap_or(account.origin), &account.set_by) {
        (LimitOrigin::Person, Some(name)) => clean(name),
        (LimitOrigin::Person, None) => "a person".to_owned(),
        (LimitOrigin::Configured, _) => "configuration".to_owned(),
        (LimitOrigin::Default, _) => "built-in default".to_owned(),
    }
}

pub(super) fn detail(out: Output, account: &AccountView) -> String {
    let mut parts = vec![table(out, std::slice::from_ref(account))];
    let holders = account.limits.iter().flat_map(|limit| {
        limit.holders.iter().map(move |holder| {
            let amount = |amount| amount_text(limit.unit, amount);
            let state = if holder.dead { "dead" } else { "alive" };
            let node = holder.node.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
            let (key, process) = (limit.key().to_string(), holder.process.to_string());
            vec![key, node, process, state.to_owned(), amount(holder.held), amount(holder.running)]
        })
    });
    let holders: Vec<Vec<String>> = holders.collect();
    if !holders.is_empty() {
        let head = ["held of", "node", "process", "state", "amount", "by running calls"];
        parts.push(out.table(&head, holders));
        parts.extend(dead_holders(account).iter().map(|(node, ends)| {
            let command = reconcile_command(&account.account, node);
            let when = if *ends { "when the window ends; sooner with" } else { "with" };
            let text = format!("what a dead process has comes back {when} `{command}`");
            out.paint(Tone::Warn, &text)
        }));
    }
    if account.account == AccountKey::Cluster && !account.limits.is_empty() {
        parts.push(WITHOUT_SESSION.to_owned());
    }
    if !account.changes.is_empty() {
        parts.push(out.table(&["when", "who", "change"], budget_changes::rows(&account.changes)));
    }
    parts.join("\n\n")
}

/// The nodes, or processes, that died with parts of limits, and whether all these limits have a window that ends.
fn dead_holders(account: &AccountView) -> BTreeMap<String, bool> {
    let mut dead = BTreeMap::new();
    for limit in &account.limits {
        for holder in limit.holders.iter().filter(|holder| holder.dead) {
            *dead.entry(holder.named()).or_insert(true) &= limit.ends.is_some();
        }
    }
    dead
}

fn explained(out: Output, view: &BudgetExplainView) -> String {
    let priced = if view.priced { "" } else { " (no price is known: the dearest one is taken)" };
    let mut lines = vec![
        format!("session  {}", clean(&view.session)),
        format!("agent    {}", view.agent),
        format!("model    {}{priced}", clean(&view.model.to_string())),
        format!("prompt   at most {} tokens", view.prompt_tokens),
        String::new(),
    ];
    if view.limits.is_empty() {
        lines.push("no limit holds for its next call: it can be made now".to_owned());
        return lines.join("\n");
    }
    let head = ["account", "limit", "needs", "reserves", "spent", "held", "left", "the next call"];
    let row = |explained: &ExplainedLimit| {
        let amount = |amount| amount_text(explained.limit.unit, amount);
        vec![
            explained.account.to_string(),
            limit_text(explained.limit.key(), explained.limit.limit, explained.limit.lanes),
            amount(explained.needs),
            amount(explained.reserves),
            amount(explained.limit.spent),
            amount(explained.limit.held),
            amount(explained.limit.left),
            forecast(explained.forecast).to_owned(),
        ]
    };
    lines.push(out.table(&head, view.limits.iter().map(row)));
    lines.push(String::new());
    let hindered = view.limits.iter().filter(|limit| limit.forecast != CallForecast::Possible);
    lines.extend(hindered.map(|explained| {
        let limit = limit_text(explained.limit.key(), explained.limit.limit, explained.limit.lanes);
        out.paint(Tone::Warn, &clean(&format!("{} {limit}: {}", explained.account, explained.why)))
    }));
    let (tone, can) = if view.possible { (Tone::Good, "can") } else { (Tone::Bad, "cannot") };
    lines.push(out.paint(tone, &format!("the next call {can} be made now")));
    lines.join("\n")
}

const fn forecast(forecast: CallForecast) -> &'static str {
    match forecast {
        CallForecast::Possible => "possible",
        CallForecast::Waits => "waits",
        CallForecast::Stranded => "waits: stranded",
        CallForecast::NeedsPerson => "needs a person",
        CallForecast::Bankrupt => "bankrupt",
    }
}

fn reconciled(out: Output, view: &ReconcileView) -> String {
    // A process has many parts of a limit: one for each time it asked for more.
    let mut sums: BTreeMap<(ProcessId, LimitKey), (u64, u64)> = BTreeMap::new();
    for slice in &view.closed {
        let (counted, spent) = sums.entry((slice.process, slice.limit)).or_default();
        *counted = counted.saturating_add(slice.counted);
        *spent = spent.saturating_add(slice.spent);
    }
    let row = |((process, limit), (counted, spent)): ((ProcessId, LimitKey), (u64, u64))| {
        let amount = |amount| amount_text(limit.unit, amount);
        vec![process.to_string(), limit.to_string(), amount(counted), amount(spent)]
    };
    let head = ["process", "limit", "counted", "counts now"];
    let unread = match view.unread {
        0 => String::new(),
        unread => format!("; {unread} could not be read, so running calls count whole"),
    };
    let read = format!("the journals of {} were read{unread}", count(view.sessions, "session"));
    let closed = out.table(&head, sums.into_iter().map(row));
    let account = table(out, std::slice::from_ref(&view.account));
    format!("{closed}\n{read}\n\n{account}")
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use clawnode_proto::{
        Timestamp,
        budget::{
            AccountChange, BudgetLimit, BudgetUnit, ChangeKind, ClosedSlice, LimitSource,
            LimitState, WindowLength,
        },
    };

    use super::{super::budget_flags::keys, *};
    use crate::config::Env;

    #[derive(Debug, Parser)]
    struct TestCommand {
        #[command(subcommand)]
        command: BudgetCommand,
    }

    fn parsed(line: &str) -> BudgetCommand {
        let words = std::iter::once("budget").chain(line.split(' '));
        TestCommand::try_parse_from(words).unwrap_or_else(|error| panic!("{line}\n{error}")).command
    }

    #[test]
    fn each_limit_has_the_flag_that_texts_name() {
        for (flag, key) in keys() {
            assert_eq!(flag, limit_flag(key));
        }
        let all: std::collections::BTreeSet<_> = keys().map(|(_, key)| key).collect();
        assert_eq!(all.len(), BudgetUnit::ALL.len() * WindowLength::ALL.len());
    }

    #[test]
    fn what_is_typed_becomes_limits() {
        let BudgetCommand::Set(args) =
            parsed("set agent:a --usd-per-day 5.00 --loops none --ask-at 80")
        else {
            panic!()
        };
        let params = set_params(args).unwrap();
        assert!(params.keep_others, "the others stay");
        let limits: Vec<_> = params
            .limits
            .iter()
            .map(|limit| (limit.unit, limit.window, &*limit.amount, limit.ask_at))
            .collect();
        assert_eq!(
            limits,
            [
                (BudgetUnit::Usd, WindowLength::Day, "5.00", Some(80)),
                (BudgetUnit::Loops, WindowLength::Forever, "none", Some(80)),
            ]
        );
        let BudgetCommand::Set(args) = parsed("set cluster --ask-at 80") else { panic!() };
        assert_eq!(set_params(args).unwrap_err().exit, Exit::Usage);
        for (line, says) in [
            ("--usd-per-day 5,00", "`--usd-per-day`: "),
            ("--loops 1.5", "`--loops`: `1.5`"),
            ("--usd -5", "`--usd`: `-5` is not an amount in USD"),
            ("--usd 5 --warn-at 90 --ask-at 80", "`--warn-at 90` is more than `--ask-at 80`"),
        ] {
            let BudgetCommand::Set(args) = parsed(&format!("set cluster {line}")) else { panic!() };
            let failure = set_params(args).unwrap_err();
            assert_eq!(failure.exit, Exit::Usage, "{line}");
            assert!(failure.message.starts_with(says), "{line}: {failure}");
        }
        let BudgetCommand::Allow(args) = parsed("allow cluster --usd-per-day") else { panic!() };
        let day = LimitKey { unit: BudgetUnit::Usd, window: WindowLength::Day };
        assert_eq!(args.limits.0, [day]);
        let BudgetCommand::Allow(args) = parsed("allow cluster") else { panic!() };
        assert_eq!(args.limits.0, []);
        let BudgetCommand::Reconcile(args) = parsed("reconcile cluster --node a") else { panic!() };
        assert_eq!(reconcile_params(args).unwrap_err().exit, Exit::Usage);
    }

    #[test]
    fn an_account_shows_its_limits_holders_and_changes() {
        let key = LimitKey { unit: BudgetUnit::Usd, window: WindowLength::Day };
        let process = clawnode_proto::ProcessId::from_u128(1);
        let dead = clawnode_proto::budget::SliceHolderView {
            process,
            node: None,
            dead: true,
            held: 500_000,
            running: 0,
        };
        let limit = LimitView {
            unit: key.unit,
            window: key.window,
            origin: None,
            limit: 5_000_000,
            warn_at: 75,
            ask_at: 90,
            lanes: CountedLanes::All,
            spent: 4_500_000,
            held: 500_000,
            stranded: 500_000,
            left: 0,
            state: LimitState::NeedsPerson,
            allowed: false,
            excess: 0,
            waiting: 2,
            ends: Some(Timestamp(86_400_000)),
            holders: vec![dead],
        };
        let by = LimitSource::Person { name: "ada".to_owned() };
        let limits = vec![BudgetLimit::new(key.unit, key.window, 5_000_000)];
        let set = AccountChange { at: Timestamp(0), by, what: ChangeKind::Set { limits } };
        let account = AccountView {
            account: AccountKey::Cluster,
            origin: LimitOrigin::Person,
            set_by: Some("ada".to_owned()),
            set_at: Some(Timestamp(0)),
            limits: vec![limit],
            changes: vec![set],
        };
        let out = Output::new(false, false, &Env::default());
        let text = detail(out, &account);
        for said in [
            "cluster  $5.00 per day  $4.50  $0.50  $0.00  needs a person  1970-01-02T00:00:00Z  ada",
            "usd per day  -     proc_00000000000000000000000001  dead   $0.50   $0.00",
            "what a dead process has comes back when the window ends; sooner with `clawnode budget \
             reconcile cluster --node proc_00000000000000000000000001 --gone`",
            "1970-01-01T00:00:00Z  ada  set $5.00 per day (warns at 75 %, asks at 90 %)",
            "`clawnode usage` does not show them",
        ] {
            assert!(text.contains(said), "{text}");
        }
        assert!(table(out, &[]).contains("`clawnode budget set cluster --"), "it says what to do");
        let limits =
            [Some(Timestamp(1)), None].map(|ends| LimitView { ends, ..account.limits[0].clone() });
        let text = detail(out, &AccountView { limits: limits.to_vec(), ..account.clone() });
        assert!(text.contains("a dead process has comes back with `"), "one never ends: {text}");
        let agent: AccountKey = "agent:default".parse().unwrap();
        let none = AccountView { account: agent, limits: Vec::new(), ..account.clone() };
        let text = table(out, &[none]);
        assert!(text.contains("`clawnode budget set agent:default --"), "its own account: {text}");

        let slice = |limit, counted| ClosedSlice { process, limit, counted, spent: 1_000_000 };
        let tokens = LimitKey { unit: BudgetUnit::Tokens, ..key };
        let closed = vec![slice(key, 2_000_000), slice(tokens, 2_000_000), slice(key, 3_000_000)];
        let view = ReconcileView { closed, sessions: 1, unread: 0, account };
        let text = reconciled(out, &view);
        assert!(text.contains("usd per day     $5.00    $2.00"), "their sum: {text}");
        assert_eq!(text.matches("proc_00000000000000000000000001  usd").count(), 1, "{text}");
    }
}
