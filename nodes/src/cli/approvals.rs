//! `approvals`: tool calls, and limits of budgets, that wait for a person.

use clap::Subcommand;
use clawnode_proto::{
    api::{ApprovalDecide, ApprovalParams, ListParams, calls},
    budget::{AccountKey, AskingBudget, BudgetAllowParams, BudgetParams, amount_text},
    policy::Approval,
    view::ApprovalList,
};

use super::{
    budget, budget_changes,
    command_context::CliContext,
    id_prefix,
    output::{Output, brief, exact, time},
};
use crate::failure::{Exit, Failure};

/// Characters of the arguments in a list; `show` has all.
const BRIEF: usize = 60;
/// Calls of one page: the most that a node gives.
const PAGE: u32 = 1_000;

/// What `approvals --help` ends with.
const EXAMPLES: &str = "\
An approval is for one call, exactly as shown. A call that no person approves before it expires
does not run. The first characters of an id are enough. A budget that waits is named by its account:
to approve it is `budget allow`.

Examples:
  clawnode approvals list
  clawnode approvals show CALL
  clawnode approvals approve CALL
  clawnode approvals approve cluster
  clawnode approvals deny CALL --reason 'not on a Friday'";

#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(super) enum ApprovalsCommand {
    /// List the calls and the budgets that wait for a person
    List,
    /// Show a call with all of its arguments
    Show {
        /// The call's id, or its first characters; or the account of a budget
        call: String,
    },
    /// Let a call run, once; or allow more of a budget
    Approve {
        /// The call's id, or its first characters; or the account of a budget
        call: String,
        /// Approve only if the action has this digest (`list -o wide` shows it)
        #[arg(long, value_name = "DIGEST")]
        action: Option<String>,
    },
    /// Refuse a call; the turn continues, and the model reads the reason
    Deny {
        /// The call's id, or its first characters
        call: String,
        /// The reason, for the model
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
}

/// `approvals`.
pub(super) async fn run(command: ApprovalsCommand, context: &CliContext) -> Result<Exit, Failure> {
    let out = context.out;
    match command {
        ApprovalsCommand::List => {
            let list = read_all(context).await?;
            out.document(&list, |list| tables(out, list))?;
        }
        ApprovalsCommand::Show { call } => {
            if let Ok(account) = call.parse::<AccountKey>() {
                let view = context.call(calls::BudgetShow, &BudgetParams { account }).await?;
                out.document(&view, |view| budget::detail(out, view))?;
                return Ok(Exit::Ok);
            }
            let approval = show(context, whole(context, call).await?).await?;
            out.document(&approval, card)?;
        }
        ApprovalsCommand::Approve { call, action } => {
            if let Ok(account) = call.parse::<AccountKey>() {
                let params = BudgetAllowParams { account, limits: Vec::new() };
                let view = context.call(calls::BudgetAllow, &params).await?;
                out.document(&view, |view| budget::detail(out, view))?;
                return Ok(Exit::Ok);
            }
            let call = whole(context, call).await?;
            let action = match action {
                Some(action) => action,
                None => show(context, call.clone()).await?.digest.to_string(),
            };
            let params = ApprovalDecide { call, action, reason: None };
            out.document(&context.call(calls::ApprovalsApprove, &params).await?, card)?;
        }
        ApprovalsCommand::Deny { call, reason } => {
            if let Ok(account) = call.parse::<AccountKey>() {
                let what = format!(
                    "the budget `{account}` cannot be denied: its calls wait, and then end"
                );
                let hint =
                    format!("to stop them now, set its limits: `clawnode budget show {account}`");
                return Err(Failure::new(Exit::Usage, "usage", what).hint(hint));
            }
            let call = whole(context, call).await?;
            let action = show(context, call.clone()).await?.digest.to_string();
            let params = ApprovalDecide { call, action, reason };
            out.document(&context.call(calls::ApprovalsDeny, &params).await?, card)?;
        }
    }
    Ok(Exit::Ok)
}

async fn read_all(context: &CliContext) -> Result<ApprovalList, Failure> {
    let client = context.client().await?;
    let mut all = ApprovalList::default();
    loop {
        let page = ListParams { cursor: all.next.take(), limit: Some(PAGE) };
        let page = client.call(calls::ApprovalsList, &page).await?;
        all.approvals.extend(page.approvals);
        all.budgets.extend(page.budgets);
        all.next = page.next;
        if all.next.is_none() {
            return Ok(all);
        }
    }
}

/// The id of the call that waits and is meant.
async fn whole(context: &CliContext, call: String) -> Result<String, Failure> {
    if !id_prefix::is_short(&call) {
        return Ok(call);
    }
    let list = read_all(context).await?;
    let found = id_prefix::find(
        &call,
        list.approvals.iter().map(|approval| approval.action.call.to_string()),
    )?;
    found.ok_or_else(|| id_prefix::none("waiting call", &call, "approvals list"))
}

async fn show(context: &CliContext, call: String) -> Result<Approval, Failure> {
    context.call(calls::ApprovalsShow, &ApprovalParams { call }).await
}

fn tables(out: Output, list: &ApprovalList) -> String {
    let calls = (!list.approvals.is_empty()).then(|| table(out, &list.approvals));
    let budgets = (!list.budgets.is_empty()).then(|| budgets(out, &list.budgets));
    let tables: Vec<String> = calls.into_iter().chain(budgets).collect();
    if tables.is_empty() { "no call waits for a person".to_owned() } else { tables.join("\n\n") }
}

fn budgets(out: Output, budgets: &[AskingBudget]) -> String {
    let row = |asking: &AskingBudget| {
        let limit = &asking.limit;
        let amount = |amount| amount_text(limit.unit, amount);
        vec![
            asking.account.to_string(),
            budget_changes::limit_text(limit.key(), limit.limit, limit.lanes),
            amount(limit.spent),
            limit.state.as_str().to_owned(),
            format!("clawnode approvals approve {}", asking.account),
        ]
    };
    out.table(&["budget", "limit", "spent", "state", "allow it with"], budgets.iter().map(row))
}

fn table(out: Output, approvals: &[Approval]) -> String {
    let mut head = vec!["call", "tool", "risk", "session", "asked", "expires", "arguments"];
    if out.wide {
        head.push("action");
    }
    let row = |approval: &Approval| {
        let mut row = vec![
            approval.action.call.to_string(),
            approval.action.tool.to_string(),
            approval.risk.as_str().to_owned(),
            approval.action.session.to_string(),
            time(approval.asked),
            time(approval.expires),
            // An id says less to a person than what it names.
            brief(approval.about.as_ref().unwrap_or(&approval.action.arguments), BRIEF),
        ];
        if out.wide {
            row.push(approval.digest.to_string());
        }
        row
    };
    out.table(&head, approvals.iter().map(row))
}

/// All of one, a line each.
fn card(approval: &Approval) -> String {
    let action = &approval.action;
    let mut lines = vec![
        format!("call       {}", action.call),
        format!("tool       {} ({})", action.tool, approval.risk.as_str()),
        format!("session    {}", exact(&action.session.to_string())),
        format!("turn       {}", action.turn),
        format!("arguments  {}", exact(&action.arguments)),
    ];
    lines.extend(approval.about.iter().map(|about| format!("about      {}", exact(about))));
    lines.extend([
        format!("action     {}", approval.digest),
        format!("asked      {}", time(approval.asked)),
        format!("expires    {}", time(approval.expires)),
    ]);
    if let Some(reason) = &approval.reason {
        lines.push(format!("reason     {}", exact(reason)));
    }
    if let Some(decided) = &approval.decided {
        let why =
            decided.reason.as_ref().map_or_else(String::new, |why| format!(": {}", exact(why)));
        let (what, by) = (decided.decision.as_str(), exact(&decided.by));
        lines.push(format!("decided    {what}, by {by}{why}"));
    }
    lines.join("\n")
}
