//! `events`: what happens in the cluster.

use clap::Args;
use clawnode_proto::{
    api::{EventsParams, Method},
    feed::{ClusterEvent, EventBody},
    overview::{FeedRow, FeedView},
};
use serde_json::json;

use super::{
    context::Context,
    nodes::role_name,
    output::{Output, Tone, clean, time},
};
use crate::{
    client::Client,
    failure::{Exit, Failure},
};

/// How long one question waits for an event, in milliseconds.
const WAIT_MS: u32 = 10_000;
/// Events of one answer while following.
const PAGE: u32 = 1_000;

/// What `events --help` ends with.
const EXAMPLES: &str = "\
Nothing of a conversation is in the feed. It is told in passing: what happened while nobody
listened is not in it, and a journal says what really was.

Examples:
  clawnode events
  clawnode events --follow
  clawnode events -f -n 0 --json | jq -c 'select(.event.what.type == \"node_dead\")'";

/// `events`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct EventsArgs {
    /// Go on until Ctrl-C
    #[arg(long, short)]
    follow: bool,
    /// Events to begin with: the newest ones that the node remembers
    #[arg(long, short = 'n', default_value_t = 100, value_name = "N",
          value_parser = clap::value_parser!(u32).range(0..=1_000))]
    last: u32,
}

/// `events`. With `--json` one event a line, so that a program can follow as well.
pub(super) async fn run(args: EventsArgs, context: &Context) -> Result<Exit, Failure> {
    let client = context.client().await?;
    let first = EventsParams { limit: Some(args.last.max(1)), ..EventsParams::default() };
    let mut page = read(&client, &first).await?;
    if args.last == 0 {
        page.events.clear();
    }
    // A beginning is not a gap.
    page.missed = 0;
    loop {
        print(context.out, &page)?;
        if !args.follow {
            return Ok(Exit::Ok);
        }
        let next =
            EventsParams { after: Some(page.next), limit: Some(PAGE), wait_ms: Some(WAIT_MS) };
        page = read(&client, &next).await?;
    }
}

/// What happened, as the node remembers it.
pub(super) async fn read(client: &Client, params: &EventsParams) -> Result<FeedView, Failure> {
    let answer = client.call(Method::EventsList, json!(params)).await?;
    super::context::read(Method::EventsList, answer)
}

fn print(out: Output, page: &FeedView) -> Result<(), Failure> {
    if page.missed > 0 && !out.json {
        out.talk(&format!("{} events are missing here", page.missed));
    }
    for row in &page.events {
        if out.json {
            out.json_line(row)?;
        } else {
            out.line(&human(out, row))?;
        }
    }
    Ok(())
}

fn human(out: Output, row: &FeedRow) -> String {
    let ClusterEvent { at, node, what, .. } = &row.event;
    let name = format!("{:<14}", what.name());
    let name = tone(what).map_or_else(|| name.clone(), |tone| out.paint(tone, &name));
    format!("{}  {:<16} {name} {}", time(*at), node.as_str(), clean(&detail(what)))
        .trim_end()
        .to_owned()
}

/// How an event looks; most are nothing special.
pub(super) const fn tone(what: &EventBody) -> Option<Tone> {
    match what {
        EventBody::NodeDead { .. } | EventBody::Quarantined { .. } => Some(Tone::Bad),
        EventBody::NodeCordoned { .. }
        | EventBody::NodeDraining
        | EventBody::Claimed { .. }
        | EventBody::Fenced { .. }
        | EventBody::Warning { .. } => Some(Tone::Warn),
        EventBody::NodeJoined { .. } => Some(Tone::Good),
        EventBody::NodeLeft
        | EventBody::TurnStarted { .. }
        | EventBody::TurnEnded { .. }
        | EventBody::Unknown => None,
    }
}

/// What an event says beside its name.
pub(super) fn detail(what: &EventBody) -> String {
    match what {
        EventBody::NodeJoined { version, roles } => {
            let roles: Vec<_> = roles.iter().map(|&role| role_name(role)).collect();
            format!("{} {version}", roles.join(","))
        }
        EventBody::NodeCordoned { on } => (if *on { "on" } else { "off" }).to_owned(),
        EventBody::NodeDraining | EventBody::NodeLeft | EventBody::Unknown => String::new(),
        EventBody::NodeDead { process, node } => match node {
            Some(node) => format!("{node} ({process})"),
            None => process.to_string(),
        },
        EventBody::TurnStarted { session, turn } => format!("{session} {turn}"),
        EventBody::TurnEnded { session, turn, outcome } => format!("{session} {turn} {outcome}"),
        EventBody::Claimed { session, from, epoch } => {
            format!("{session} from {from}, epoch {epoch}")
        }
        EventBody::Fenced { session } => session.to_string(),
        EventBody::Quarantined { session, reason } => format!("{session}: {reason}"),
        EventBody::Warning { name, message } => format!("{name}: {message}"),
    }
}
