//! `events`: what happens in the cluster.

use std::collections::VecDeque;

use clap::Args;
use clawnode_proto::{
    NodeName, TurnId,
    api::{EventsParams, Method},
    feed::{ClusterEvent, EventBody},
    overview::{FeedRow, FeedView},
};
use serde_json::json;

use super::{
    context::Context,
    link::Link,
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
/// Events that were read and are known again at another gateway.
const READ_KEPT: usize = 256;

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
    let gateways = context.reached().await?;
    let first = EventsParams { limit: Some(args.last.max(1)), ..EventsParams::default() };
    let mut page = read(gateways.current(), &first).await?;
    let mut place = Place::default();
    place.moved(gateways.current().url(), &mut page);
    if args.last == 0 {
        page.events.clear();
    }
    let mut told = VecDeque::new();
    print(context.out, &page, &mut told)?;
    if !args.follow {
        return Ok(Exit::Ok);
    }
    let mut link = Link::at(context.out, gateways);
    loop {
        let mut page: FeedView = link
            .call(Method::EventsList, |client| json!(place.next(client.url(), PAGE, Some(WAIT_MS))))
            .await?;
        if place.moved(link.gateways.current().url(), &mut page) && !context.out.json {
            context.out.aside("events may be missing here");
        }
        print(context.out, &page, &mut told)?;
    }
}

/// What happened, as the node remembers it.
pub(super) async fn read(client: &Client, params: &EventsParams) -> Result<FeedView, Failure> {
    let answer = client.call(Method::EventsList, json!(params)).await?;
    super::context::read(Method::EventsList, answer)
}

/// How far somebody has read. Each gateway has numbers of its own, so whoever comes to another one
/// knows what was read by the events themselves.
#[derive(Debug, Default)]
pub(super) struct Place {
    /// Whose number it is.
    gateway: String,
    after: u64,
    /// The last ones that were read, the newest last.
    read: VecDeque<ClusterEvent>,
}

impl Place {
    /// What to ask this gateway for.
    pub(super) fn next(&self, gateway: &str, limit: u32, wait_ms: Option<u32>) -> EventsParams {
        let here = self.gateway == gateway;
        EventsParams {
            after: here.then_some(self.after),
            limit: Some(limit),
            wait_ms: wait_ms.filter(|_| here),
        }
    }

    /// Takes this gateway's answer, and leaves what is new in it. Whether it is another gateway than
    /// before: some events may be lost in between.
    pub(super) fn moved(&mut self, gateway: &str, page: &mut FeedView) -> bool {
        let first = self.gateway.is_empty();
        let moved = self.gateway != gateway;
        if moved {
            gateway.clone_into(&mut self.gateway);
            // A beginning is not a gap.
            page.missed = 0;
        }
        if moved && !first {
            let known = |row: &FeedRow| self.read.contains(&row.event);
            let last = self.read.back().map(|event| event.at);
            match page.events.iter().rposition(known) {
                Some(at) => drop(page.events.drain(..=at)),
                None => page.events.retain(|row| last.is_none_or(|last| row.event.at >= last)),
            }
        }
        self.after = page.next;
        self.read.extend(page.events.iter().map(|row| row.event.clone()));
        let old = self.read.len().saturating_sub(READ_KEPT);
        self.read.drain(..old);
        moved && !first
    }
}

/// Prints what happened; programs are told all of it.
fn print(out: Output, page: &FeedView, told: &mut VecDeque<TurnId>) -> Result<(), Failure> {
    if page.missed > 0 && !out.json {
        out.talk(&format!("{} events are missing here", page.missed));
    }
    for row in &page.events {
        if out.json {
            out.json_line(row)?;
        } else if !is_retold(&row.event, told) {
            out.line(&human(out, row))?;
        }
    }
    Ok(())
}

/// Whether it is the end of a turn that was `told`: a crash may have it told again.
fn is_retold(event: &ClusterEvent, told: &mut VecDeque<TurnId>) -> bool {
    let Some(turn) = ended(event) else { return false };
    if told.contains(&turn) {
        return true;
    }
    if told.len() == READ_KEPT {
        told.pop_front();
    }
    told.push_back(turn);
    false
}

fn human(out: Output, row: &FeedRow) -> String {
    let ClusterEvent { at, what, .. } = &row.event;
    let node = subject(&row.event);
    let name = format!("{:<14}", what.name());
    let name = tone(what).map_or_else(|| name.clone(), |tone| out.paint(tone, &name));
    format!("{}  {:<16} {name} {}", time(*at), node.as_str(), clean(&detail(&row.event)))
        .trim_end()
        .to_owned()
}

/// How an event looks; most are nothing special.
pub(super) const fn tone(what: &EventBody) -> Option<Tone> {
    match what {
        EventBody::NodeDead { .. }
        | EventBody::Quarantined { .. }
        | EventBody::Latched { on: true, .. } => Some(Tone::Bad),
        EventBody::NodeCordoned { .. }
        | EventBody::NodeDraining
        | EventBody::Claimed { .. }
        | EventBody::Fenced { .. }
        | EventBody::ApprovalAsked { .. }
        | EventBody::Warning { .. } => Some(Tone::Warn),
        EventBody::NodeJoined { .. } | EventBody::Latched { on: false, .. } => Some(Tone::Good),
        EventBody::NodeLeft
        | EventBody::TurnStarted { .. }
        | EventBody::TurnEnded { .. }
        | EventBody::Unknown => None,
    }
}

/// Whom an event is about: who tells it, except of the dead.
pub(super) fn subject(event: &ClusterEvent) -> &NodeName {
    match &event.what {
        EventBody::NodeDead { node: Some(dead), .. } => dead,
        _ => &event.node,
    }
}

/// The turn that ended.
pub(super) const fn ended(event: &ClusterEvent) -> Option<TurnId> {
    match &event.what {
        EventBody::TurnEnded { turn, .. } => Some(*turn),
        _ => None,
    }
}

/// What an event says beside its name.
pub(super) fn detail(event: &ClusterEvent) -> String {
    match &event.what {
        EventBody::NodeJoined { version, roles } => {
            let roles: Vec<_> = roles.iter().map(|&role| role_name(role)).collect();
            format!("{} {version}", roles.join(","))
        }
        EventBody::NodeCordoned { on } => (if *on { "on" } else { "off" }).to_owned(),
        EventBody::NodeDraining | EventBody::NodeLeft | EventBody::Unknown => String::new(),
        EventBody::NodeDead { process, node } => match node {
            Some(_) => format!("says {} ({process})", event.node),
            None => format!("{process}"),
        },
        EventBody::ApprovalAsked { session, call, tool } => format!("{session} {call} {tool}"),
        EventBody::TurnStarted { session, turn } => format!("{session} {turn}"),
        EventBody::TurnEnded { session, turn, outcome } => format!("{session} {turn} {outcome}"),
        EventBody::Claimed { session, from, epoch } => {
            format!("{session} from {from}, epoch {epoch}")
        }
        EventBody::Fenced { session } => session.to_string(),
        EventBody::Quarantined { session, reason } => format!("{session}: {reason}"),
        EventBody::Latched { scope, on, by, why } => {
            let what = if *on { "stopped" } else { "goes on" };
            let why = if why.is_empty() { String::new() } else { format!(": {why}") };
            format!("{scope} {what}, says {by}{why}")
        }
        EventBody::Warning { name, message } => format!("{name}: {message}"),
    }
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{EntityId, ProcessId, Timestamp};

    use super::*;

    fn row(n: u64, at: u64, session: u128) -> FeedRow {
        let what = EventBody::Fenced { session: EntityId::from_u128(session) };
        let (node, process) = ("n".parse().unwrap(), ProcessId::from_u128(1));
        FeedRow { n, event: ClusterEvent { at: Timestamp(at), node, process, what } }
    }

    #[test]
    fn the_end_of_a_turn_is_told_once_and_a_death_of_the_dead() {
        let mut told = VecDeque::new();
        let end = |turn| {
            let (session, turn) = (EntityId::from_u128(1), TurnId::from_u128(turn));
            let what = EventBody::TurnEnded { session, turn, outcome: "completed".to_owned() };
            ClusterEvent { what, ..row(1, 1, 1).event }
        };
        assert!(!is_retold(&end(1), &mut told) && !is_retold(&end(2), &mut told));
        assert!(is_retold(&end(1), &mut told));
        assert!(!is_retold(&row(1, 1, 1).event, &mut told));
        let (process, dead) = (ProcessId::from_u128(2), "worker-3".parse().ok());
        let what = EventBody::NodeDead { process, node: dead };
        let event = ClusterEvent { what, ..row(1, 1, 1).event };
        assert_eq!(subject(&event).as_str(), "worker-3");
        assert!(detail(&event).starts_with("says n ("));
    }

    fn page(rows: Vec<FeedRow>) -> FeedView {
        let next = rows.last().map_or(0, |row| row.n);
        FeedView { events: rows, next, missed: 3, ..FeedView::default() }
    }

    #[test]
    fn who_comes_to_another_gateway_reads_on_where_it_was() {
        let mut place = Place::default();
        let mut first = page(vec![row(4, 10, 1), row(5, 11, 2)]);
        assert!(!place.moved("a", &mut first));
        assert_eq!((first.events.len(), first.missed), (2, 0), "a beginning is not a gap");
        let next = place.next("a", 9, Some(7));
        assert_eq!((next.after, next.wait_ms), (Some(5), Some(7)));
        // A number of one gateway means nothing at another, and that is not waited at.
        let next = place.next("b", 9, Some(7));
        assert_eq!((next.after, next.wait_ms), (None, None));
        let mut other = page(vec![row(70, 10, 1), row(71, 11, 2), row(72, 11, 3)]);
        assert!(place.moved("b", &mut other));
        assert_eq!(other.events, [row(72, 11, 3)]);
        assert_eq!(place.next("b", 9, None).after, Some(72));
        let mut same = page(vec![row(73, 12, 3)]);
        assert!(!place.moved("b", &mut same));
        assert_eq!((same.events.len(), same.missed), (1, 3));
        // One that remembers nothing of it: what is older is not news.
        let mut strange = page(vec![row(1, 5, 9), row(2, 13, 9)]);
        assert!(place.moved("c", &mut strange));
        assert_eq!(strange.events, [row(2, 13, 9)]);
    }
}
