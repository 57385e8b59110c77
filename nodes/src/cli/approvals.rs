//! `approvals`: tool calls that wait for a person.

use clap::Subcommand;
use clawnode_proto::{
    api::{ApprovalDecide, ApprovalParams, ListParams, calls},
    policy::Approval,
    view::ApprovalList,
};

use super::{
    context::CliContext,
    ids,
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
does not run. The first characters of an id are enough.

Examples:
  clawnode approvals list
  clawnode approvals show CALL
  clawnode approvals approve CALL
  clawnode approvals deny CALL --reason 'not on a Friday'";

/// `approvals`.
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(super) enum ApprovalsCommand {
    /// List the calls that wait for a person
    List,
    /// Show a call with all of its arguments
    Show {
        /// The call's id, or its first characters
        call: String,
    },
    /// Let a call run, once
    Approve {
        /// The call's id, or its first characters
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
            out.document(&list, |list| table(out, &list.approvals))?;
        }
        ApprovalsCommand::Show { call } => {
            let approval = show(context, whole(context, call).await?).await?;
            out.document(&approval, card)?;
        }
        ApprovalsCommand::Approve { call, action } => {
            let call = whole(context, call).await?;
            let action = match action {
                Some(action) => action,
                None => show(context, call.clone()).await?.digest.to_string(),
            };
            let params = ApprovalDecide { call, action, reason: None };
            out.document(&context.call(calls::ApprovalsApprove, &params).await?, card)?;
        }
        ApprovalsCommand::Deny { call, reason } => {
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
        all.next = page.next;
        if all.next.is_none() {
            return Ok(all);
        }
    }
}

/// The id of the call that waits and is meant.
async fn whole(context: &CliContext, call: String) -> Result<String, Failure> {
    if !ids::is_short(&call) {
        return Ok(call);
    }
    let list = read_all(context).await?;
    let found = ids::find(&call, list.approvals.iter().map(|it| it.action.call.to_string()))?;
    found.ok_or_else(|| ids::none("waiting call", &call, "approvals list"))
}

async fn show(context: &CliContext, call: String) -> Result<Approval, Failure> {
    context.call(calls::ApprovalsShow, &ApprovalParams { call }).await
}

fn table(out: Output, approvals: &[Approval]) -> String {
    if approvals.is_empty() {
        return "no call waits for a person".to_owned();
    }
    let mut head = vec!["call", "tool", "risk", "session", "asked", "expires", "arguments"];
    if out.wide {
        head.push("action");
    }
    let row = |it: &Approval| {
        let mut row = vec![
            it.action.call.to_string(),
            it.action.tool.to_string(),
            it.risk.as_str().to_owned(),
            it.action.session.to_string(),
            time(it.asked),
            time(it.expires),
            brief(&it.action.arguments, BRIEF),
        ];
        if out.wide {
            row.push(it.digest.to_string());
        }
        row
    };
    out.table(&head, approvals.iter().map(row))
}

/// All of one, a line each.
fn card(it: &Approval) -> String {
    let action = &it.action;
    let mut lines = vec![
        format!("call       {}", action.call),
        format!("tool       {} ({})", action.tool, it.risk.as_str()),
        format!("session    {}", exact(&action.session.to_string())),
        format!("turn       {}", action.turn),
        format!("arguments  {}", exact(&action.arguments)),
        format!("action     {}", it.digest),
        format!("asked      {}", time(it.asked)),
        format!("expires    {}", time(it.expires)),
    ];
    if let Some(reason) = &it.reason {
        lines.push(format!("reason     {}", exact(reason)));
    }
    if let Some(decided) = &it.decided {
        let why =
            decided.reason.as_ref().map_or_else(String::new, |why| format!(": {}", exact(why)));
        let (what, by) = (decided.decision.as_str(), exact(&decided.by));
        lines.push(format!("decided    {what}, by {by}{why}"));
    }
    lines.join("\n")
}
