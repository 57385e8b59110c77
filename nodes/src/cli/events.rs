//! `events`: the event feed of the cluster.

use std::{
    collections::{HashMap, VecDeque},
    time::{Duration, Instant},
};

use clap::Args;
use clawnode_proto::{
    Cursor, EntityId, NodeName, TurnId,
    api::{EventsParams, SessionsList, calls},
    budget::{amount_text, limit_flag},
    feed::{ClusterEvent, EventBody},
    overview::{FeedRow, FeedView},
    view::SessionRow,
};

use super::{
    command_context::CliContext,
    nodes::role_name,
    output::{Output, Tone, clean, count, time},
    reconnection::Link,
};
use crate::{
    client::NodeClient,
    failure::{Exit, Failure},
};

/// How long one question waits for an event, in milliseconds.
const WAIT_MS: u32 = 10_000;
/// Events of one answer while following.
const PAGE: u32 = 1_000;
/// Events that were read and are known again at another gateway.
const READ_KEPT: usize = 256;
/// Keys of sessions that are kept.
const KEYS_KEPT: usize = 100_000;
/// How often keys of new sessions are asked for.
const ASK_KEYS_EVERY: Duration = Duration::from_secs(5);

/// What `events --help` ends with.
const EXAMPLES: &str = "\
The event feed contains no conversation content. Each gateway keeps the last 1,024 events that it
received; the journal of a session is complete.

Examples:
  clawnode events
  clawnode events --follow
  clawnode events -f -n 0 --json | jq -c 'select(.event.what.type == \"node_dead\")'";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct EventsArgs {
    /// Follow new events until Ctrl-C
    #[arg(long, short)]
    follow: bool,
    /// Show this many of the newest events first
    #[arg(long, short = 'n', default_value_t = 100, value_name = "N",
          value_parser = clap::value_parser!(u32).range(0..=1_000))]
    last: u32,
}

/// `events`. With `--json` one event a line, so that a program can follow as well.
pub(super) async fn run(args: EventsArgs, context: &CliContext) -> Result<Exit, Failure> {
    let gateways = context.reached().await?;
    let first = EventsParams { limit: Some(args.last.max(1)), ..EventsParams::default() };
    let mut page = gateways.current().call(calls::EventsList, &first).await?;
    let mut place = FeedCursor::default();
    place.moved(gateways.current().url(), &mut page);
    if args.last == 0 {
        page.events.clear();
    }
    let mut told = PrintedEvents::default();
    told.learn(gateways.current(), &page, context.out).await;
    told.print(context.out, &page)?;
    if !args.follow {
        return Ok(Exit::Ok);
    }
    let mut link = Link::at(context.out, gateways);
    loop {
        let next = |client: &NodeClient| place.next(client.url(), PAGE, Some(WAIT_MS));
        let mut page = link.call(calls::EventsList, next).await?;
        if place.moved(link.gateways.current().url(), &mut page) && !context.out.json {
            context.out.aside("events may be missing here");
        }
        told.learn(link.gateways.current(), &page, context.out).await;
        told.print(context.out, &page)?;
    }
}

/// How far a reader has read. Each gateway has cursors of its own, so a reader that comes to
/// another one compares the events themselves.
#[derive(Debug, Default)]
pub(super) struct FeedCursor {
    /// Whose number it is.
    gateway: String,
    /// `next` of its last answer.
    next: Option<Cursor>,
    /// The last ones that were read, the newest last.
    read: VecDeque<ClusterEvent>,
}

impl FeedCursor {
    /// What to ask this gateway for.
    pub(super) fn next(&self, gateway: &str, limit: u32, wait_ms: Option<u32>) -> EventsParams {
        let here = self.gateway == gateway;
        EventsParams {
            cursor: self.next.clone().filter(|_| here),
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
        self.next = Some(page.next.clone());
        self.read.extend(page.events.iter().map(|row| row.event.clone()));
        let old = self.read.len().saturating_sub(READ_KEPT);
        self.read.drain(..old);
        moved && !first
    }
}

/// The keys of sessions, as far as they are known. Events have ids alone.
#[derive(Clone, Debug, Default)]
pub(super) struct SessionKeys(HashMap<EntityId, String>);

impl SessionKeys {
    /// Takes those of a list.
    pub(super) fn take(&mut self, rows: &[SessionRow]) {
        if self.0.len() > KEYS_KEPT {
            self.0.clear();
        }
        self.0.extend(rows.iter().filter_map(|row| Some((row.id, row.key.clone()?))));
    }

    /// What people call a session.
    fn name(&self, id: EntityId) -> String {
        self.0.get(&id).cloned().unwrap_or_else(|| id.to_string())
    }
}

/// What is known of events that are printed.
#[derive(Debug, Default)]
struct PrintedEvents {
    keys: SessionKeys,
    /// When the keys were asked for.
    asked: Option<Instant>,
    /// Turns whose end was printed, the newest last.
    ended: VecDeque<TurnId>,
}

impl PrintedEvents {
    /// Asks for keys, if a session without a known one is in the page and the last question is some time
    /// ago. Without an answer events have ids.
    async fn learn(&mut self, client: &NodeClient, page: &FeedView, out: Output) {
        let is_unknown = |row: &FeedRow| {
            session(&row.event).is_some_and(|session| !self.keys.0.contains_key(&session))
        };
        let is_late = self.asked.is_none_or(|asked| asked.elapsed() >= ASK_KEYS_EVERY);
        if out.json || !is_late || !page.events.iter().any(is_unknown) {
            return;
        }
        self.asked = Some(Instant::now());
        let all = SessionsList { limit: Some(PAGE), stateless: true, ..SessionsList::default() };
        if let Ok(list) = client.call(calls::SessionsList, &all).await {
            self.keys.take(&list.sessions);
        }
    }

    /// Prints events; programs get all of each.
    fn print(&mut self, out: Output, page: &FeedView) -> Result<(), Failure> {
        if page.missed > 0 && !out.json {
            out.talk(&format!("{} missing here", count(page.missed, "event")));
        }
        for row in &page.events {
            if out.json {
                out.json_line(row)?;
            } else if !self.is_retold(&row.event) {
                out.line(&human(out, row, &self.keys))?;
            }
        }
        Ok(())
    }

    /// Whether it is the end of a turn that was printed: a crash may have it told again.
    fn is_retold(&mut self, event: &ClusterEvent) -> bool {
        let Some(turn) = ended(event) else { return false };
        if self.ended.contains(&turn) {
            return true;
        }
        if self.ended.len() == READ_KEPT {
            self.ended.pop_front();
        }
        self.ended.push_back(turn);
        false
    }
}

fn human(out: Output, row: &FeedRow, keys: &SessionKeys) -> String {
    let ClusterEvent { at, what, .. } = &row.event;
    let node = subject(&row.event);
    let name = format!("{:<14}", what.name());
    let name = tone(what).map_or_else(|| name.clone(), |tone| out.paint(tone, &name));
    format!(
        "{}  {:<16} {name} {}",
        time(*at),
        node.as_str(),
        clean(&detail(&row.event, keys, out.wide))
    )
    .trim_end()
    .to_owned()
}

/// How an event looks; most are nothing special.
pub(super) const fn tone(what: &EventBody) -> Option<Tone> {
    match what {
        EventBody::NodeDead { .. }
        | EventBody::Quarantined { .. }
        | EventBody::AgentPaused { .. }
        | EventBody::KillSwitch { on: true, .. }
        | EventBody::BudgetAsked { .. }
        | EventBody::BudgetOver { .. } => Some(Tone::Bad),
        EventBody::NodeCordoned { .. }
        | EventBody::NodeDraining
        | EventBody::Claimed { .. }
        | EventBody::Fenced { .. }
        | EventBody::Discarded { .. }
        | EventBody::ApprovalAsked { .. }
        | EventBody::BudgetWarned { .. }
        | EventBody::Warning { .. } => Some(Tone::Warn),
        EventBody::NodeJoined { .. }
        | EventBody::AgentResumed { .. }
        | EventBody::KillSwitch { on: false, .. } => Some(Tone::Good),
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

/// The session that an event is about.
const fn session(event: &ClusterEvent) -> Option<EntityId> {
    match &event.what {
        EventBody::TurnStarted { session, .. }
        | EventBody::TurnEnded { session, .. }
        | EventBody::ApprovalAsked { session, .. }
        | EventBody::Claimed { session, .. }
        | EventBody::Fenced { session }
        | EventBody::Discarded { session, .. }
        | EventBody::Quarantined { session, .. } => Some(*session),
        _ => None,
    }
}

/// What an event says beside its name; `wide` has the ids of turns too.
pub(super) fn detail(event: &ClusterEvent, keys: &SessionKeys, wide: bool) -> String {
    let turn_id = |turn: &TurnId| if wide { format!(" {turn}") } else { String::new() };
    let name = |session: &EntityId| keys.name(*session);
    match &event.what {
        EventBody::NodeJoined { version, roles } => {
            let roles: Vec<_> = roles.iter().map(|&role| role_name(role)).collect();
            format!("{} {version}", roles.join(","))
        }
        EventBody::NodeCordoned { on: is_on } => (if *is_on { "on" } else { "off" }).to_owned(),
        EventBody::NodeDraining | EventBody::NodeLeft | EventBody::Unknown => String::new(),
        EventBody::NodeDead { process, node } => match node {
            Some(_) => format!("reported by {} ({process})", event.node),
            None => format!("{process}"),
        },
        EventBody::ApprovalAsked { session, call, tool } => {
            format!("{} {call} {tool}", name(session))
        }
        EventBody::TurnStarted { session, turn } => format!("{}{}", name(session), turn_id(turn)),
        EventBody::TurnEnded { session, turn, outcome } => {
            format!("{}{} {outcome}", name(session), turn_id(turn))
        }
        EventBody::Claimed { session, from, epoch } => {
            format!("{} from {from}, epoch {epoch}", name(session))
        }
        EventBody::Fenced { session } => name(session),
        EventBody::Quarantined { session, reason } => format!("{}: {reason}", name(session)),
        EventBody::Discarded { session, by } => format!("{} deleted by {by}", name(session)),
        EventBody::KillSwitch { scope, on: is_on, by, why } => {
            let what = if *is_on { "stopped" } else { "continues" };
            let why = if why.is_empty() { String::new() } else { format!(": {why}") };
            format!("{scope} {what}, by {by}{why}")
        }
        EventBody::AgentPaused { agent, pause } => format!("{agent} {pause}"),
        EventBody::AgentResumed { agent, by } => format!("{agent} resumed by {by}"),
        EventBody::BudgetWarned { account, of: limit_key, spent, limit } => {
            let (spent, limit) =
                (amount_text(limit_key.unit, *spent), amount_text(limit_key.unit, *limit));
            format!("{account} has spent {spent} of {limit} ({limit_key})")
        }
        EventBody::BudgetAsked { account, of: limit_key, spent, limit } => {
            let (spent, limit) =
                (amount_text(limit_key.unit, *spent), amount_text(limit_key.unit, *limit));
            let flag = limit_flag(*limit_key);
            format!(
                "{account} has spent {spent} of {limit}, and calls wait: `clawnode budget allow \
                 {account} --{flag}`"
            )
        }
        EventBody::BudgetOver { account, of: limit_key, excess } => {
            let (excess, flag) = (amount_text(limit_key.unit, *excess), limit_flag(*limit_key));
            format!(
                "calls of {account} have cost {excess} more than they had reserved, and calls \
                 wait: `clawnode budget allow {account} --{flag}`"
            )
        }
        EventBody::Warning { name, message } => format!("{name}: {message}"),
    }
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{ProcessId, Timestamp, api::Method, overview::TurnCounts};
    use serde_json::json;

    use super::*;

    fn row(n: u64, at: u64, session: u128) -> FeedRow {
        let what = EventBody::Fenced { session: EntityId::from_u128(session) };
        let (node, process) = ("n".parse().unwrap(), ProcessId::from_u128(1));
        FeedRow { n, event: ClusterEvent { at: Timestamp(at), node, process, what } }
    }

    #[test]
    fn the_end_of_a_turn_is_told_once_and_a_death_of_the_dead() {
        let mut told = PrintedEvents::default();
        let end = |turn| {
            let (session, turn) = (EntityId::from_u128(1), TurnId::from_u128(turn));
            let what = EventBody::TurnEnded { session, turn, outcome: "completed".to_owned() };
            ClusterEvent { what, ..row(1, 1, 1).event }
        };
        assert!(!told.is_retold(&end(1)) && !told.is_retold(&end(2)));
        assert!(told.is_retold(&end(1)));
        assert!(!told.is_retold(&row(1, 1, 1).event));
        let (process, dead) = (ProcessId::from_u128(2), "worker-3".parse().ok());
        let what = EventBody::NodeDead { process, node: dead };
        let event = ClusterEvent { what, ..row(1, 1, 1).event };
        assert_eq!(subject(&event).as_str(), "worker-3");
        assert!(detail(&event, &told.keys, false).starts_with("reported by n ("));
    }

    #[test]
    fn a_session_has_its_key_where_that_is_known() {
        let known = json!({
            "id": EntityId::from_u128(1), "key": "default:cli:local:ada", "state": "idle", "turns": 1,
            "events": 2, "updated": 1, "usage": { "input_tokens": 1, "output_tokens": 2 },
        });
        let mut keys = SessionKeys::default();
        keys.take(&[serde_json::from_value(known).unwrap()]);
        let end = |session| {
            let (session, turn) = (EntityId::from_u128(session), TurnId::from_u128(3));
            let what = EventBody::TurnEnded { session, turn, outcome: "completed".to_owned() };
            ClusterEvent { what, ..row(1, 1, 1).event }
        };
        assert_eq!(detail(&end(1), &keys, false), "default:cli:local:ada completed");
        let turn = TurnId::from_u128(3);
        assert_eq!(detail(&end(1), &keys, true), format!("default:cli:local:ada {turn} completed"));
        let unknown = EntityId::from_u128(2);
        assert_eq!(detail(&end(2), &keys, false), format!("{unknown} completed"));
    }

    fn page(rows: Vec<FeedRow>) -> FeedView {
        let next = at(rows.last().map_or(0, |row| row.n));
        FeedView { events: rows, next, missed: 3, turns: TurnCounts::default() }
    }

    fn at(n: u64) -> Cursor {
        Cursor::new(Method::EventsList, n)
    }

    #[test]
    fn who_comes_to_another_gateway_reads_on_where_it_was() {
        let mut place = FeedCursor::default();
        let mut first = page(vec![row(4, 10, 1), row(5, 11, 2)]);
        assert!(!place.moved("a", &mut first));
        assert_eq!((first.events.len(), first.missed), (2, 0), "a beginning is not a gap");
        let next = place.next("a", 9, Some(7));
        assert_eq!((next.cursor, next.wait_ms), (Some(at(5)), Some(7)));
        // A cursor of one gateway means nothing at another, and that is not waited at.
        let next = place.next("b", 9, Some(7));
        assert_eq!((next.cursor, next.wait_ms), (None, None));
        let mut other = page(vec![row(70, 10, 1), row(71, 11, 2), row(72, 11, 3)]);
        assert!(place.moved("b", &mut other));
        assert_eq!(other.events, [row(72, 11, 3)]);
        assert_eq!(place.next("b", 9, None).cursor, Some(at(72)));
        let mut same = page(vec![row(73, 12, 3)]);
        assert!(!place.moved("b", &mut same));
        assert_eq!((same.events.len(), same.missed), (1, 3));
        // One that remembers nothing of it: what is older is not news.
        let mut strange = page(vec![row(1, 5, 9), row(2, 13, 9)]);
        assert!(place.moved("c", &mut strange));
        assert_eq!(strange.events, [row(2, 13, 9)]);
    }
}
