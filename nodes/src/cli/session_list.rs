//! `sessions list`: the newest first, by title.

use clap::Args;
use clawnode_cluster::{Clock as _, SystemClock};
use clawnode_proto::{
    Cursor, Timestamp,
    api::{SessionsList, calls},
    view::{SessionList, SessionRow},
};

use super::{
    command_context::CliContext,
    output::{Output, count, span, time},
};
use crate::failure::{Exit, Failure};

/// Rows of one page.
const PAGE: u32 = 1_000;

/// Which sessions are listed.
#[derive(Debug, Args)]
pub(super) struct SessionsListArgs {
    /// Only sessions of this agent
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Only sessions of this channel: `cli`, `openai`
    #[arg(long, value_name = "NAME")]
    channel: Option<String>,
    /// Only sessions in this state: `idle`, `running`, `waiting`, `quarantined`, `deleted`, `corrupt`
    #[arg(long, value_name = "STATE")]
    state: Option<String>,
    /// Only sessions with activity since this time: `2h`, `2026-11-23`
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Also sessions of API requests without a `user`
    #[arg(long)]
    stateless: bool,
    /// At most this many
    #[arg(long, default_value_t = 100, value_name = "N")]
    limit: u32,
    /// Continue where an earlier list ended
    #[arg(long, value_name = "CURSOR", allow_hyphen_values = true)]
    cursor: Option<Cursor>,
}

/// `sessions list`.
pub(super) async fn run(context: &CliContext, args: SessionsListArgs) -> Result<Exit, Failure> {
    let source = context.source().await?;
    let SessionsListArgs { agent, channel, state, since, stateless, limit, cursor } = args;
    let wanted =
        SessionsList { cursor: None, limit: None, agent, channel, state, since, stateless };
    let mut all = SessionList { next: cursor, ..SessionList::default() };
    let mut left = limit.max(1);
    loop {
        let (limit, cursor) = (Some(left.min(PAGE)), all.next.take());
        let page = SessionsList { cursor, limit, ..wanted.clone() };
        let page = source.call(calls::SessionsList, &page).await?;
        left = left.saturating_sub(u32::try_from(page.sessions.len()).unwrap_or(u32::MAX));
        all.sessions.extend(page.sessions);
        all.hidden += page.hidden;
        all.partial |= page.partial;
        all.next = page.next;
        if left == 0 || all.next.is_none() {
            break;
        }
    }
    let (out, now) = (context.out, SystemClock.now());
    out.document(&all, |all| table(out, &all.sessions, now))?;
    if !out.json {
        beside(out, &all);
    }
    Ok(Exit::Ok)
}

/// What the table does not have.
fn beside(out: Output, all: &SessionList) {
    if all.hidden > 0 {
        let hidden = count(all.hidden, "session");
        out.talk(&format!(
            "{hidden} of requests without a `user` not shown; `--stateless` shows them"
        ));
    }
    if all.partial {
        out.talk("there are too many sessions or other entities to look at; some sessions are not in this list");
    }
    if let Some(next) = &all.next {
        out.talk(&format!("there are more: add `--cursor {next}`"));
    }
}

fn table(out: Output, sessions: &[SessionRow], now: Timestamp) -> String {
    let mut head = vec!["title", "age", "state", "turns", "session"];
    if out.wide {
        head.extend([
            "node",
            "events",
            "tokens in",
            "cached",
            "tokens out",
            "updated",
            "since",
            "last error",
            "id",
            "owner",
        ]);
    }
    let row = |session: &SessionRow| {
        let state = match &session.detail {
            Some(detail) => format!("{}: {detail}", session.state),
            None => session.state.clone(),
        };
        let age = match session.updated {
            Timestamp(0) => "-".to_owned(),
            updated => span(now.0.saturating_sub(updated.0) / 1_000 * 1_000),
        };
        let mut row = vec![
            session.title.clone().unwrap_or_else(|| "-".to_owned()),
            age,
            state,
            session.turns.to_string(),
            session.key.clone().unwrap_or_else(|| session.id.to_string()),
        ];
        if out.wide {
            row.extend(details(session));
        }
        row
    };
    out.table(&head, sessions.iter().map(row))
}

fn details(session: &SessionRow) -> [String; 10] {
    // An owner that is not heard of is dead, or does not know yet that it lives.
    let node = match (&session.node, session.owner) {
        (Some(node), _) => node.to_string(),
        (None, Some(_)) => "gone".to_owned(),
        (None, None) => "-".to_owned(),
    };
    [
        node,
        session.events.to_string(),
        session.usage.input_tokens.to_string(),
        session.usage.cached_percent().map_or_else(|| "-".to_owned(), |share| format!("{share}%")),
        session.usage.output_tokens.to_string(),
        time(session.updated),
        session.since.map_or_else(|| "-".to_owned(), time),
        session.last_error.clone().unwrap_or_else(|| "-".to_owned()),
        session.id.to_string(),
        session.owner.map_or_else(|| "-".to_owned(), |process| process.to_string()),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::Env;

    #[test]
    fn title_and_age_come_first() {
        let row = |title: Option<&str>, updated: u64| -> SessionRow {
            serde_json::from_value(json!({
                "id": "ent_00000000000000000000000001", "key": "default:cli:local:ada",
                "title": title, "state": "idle", "turns": 3, "events": 20, "updated": updated,
                "usage": { "input_tokens": 1, "output_tokens": 2 },
            }))
            .unwrap()
        };
        let rows = [row(Some("What is\u{1b} this?"), 940_500), row(None, 0)];
        let out = Output::new(false, false, &Env::default());
        insta::assert_snapshot!(table(out, &rows, Timestamp(1_000_000)), @r"
        TITLE                AGE  STATE  TURNS  SESSION
        What is\u{1b} this?  59s  idle   3      default:cli:local:ada
        -                    -    idle   3      default:cli:local:ada
        ");
        let error = "stopped: the turn was stopped: by ada";
        let failed = SessionRow {
            since: Some(Timestamp(60_000)),
            last_error: Some(error.to_owned()),
            ..row(None, 0)
        };
        let wide = table(Output::new(false, true, &Env::default()), &[failed], Timestamp(0));
        assert!(wide.contains(&format!("{}  {error}", time(Timestamp(60_000)))), "{wide}");
    }
}
