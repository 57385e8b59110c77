//! Sessions on any storage backend: lists have them newest first, and pages lose none.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use clawnode_actors::session::{
    Sessions,
    clients::{session_list::SessionQuery, stateless_expiry::StatelessExpiry},
};
use clawnode_cluster::{Clock, Storage, SystemClock};
use clawnode_kernel::written::Written;
use clawnode_proto::{
    CallId, Digest, Input, Kind, Position, Timestamp, TurnId,
    kernel::{Accepted, KernelEvent, Snapshot, SnapshotState},
    limits::LAST_ERROR_CHARS,
    policy::{Action, Approval},
    session::{SessionEvent, SessionInput, TurnDone, TurnOutcome, UserMessage},
    stateless::Once,
    subject::approval_key,
    tool::{EffectClass, Risk},
    view::SessionList,
};

use super::{
    BackendFixture, Result,
    support::{holds, same},
};

/// A session that is born at this time, and has heard nothing yet.
async fn born(storage: &Storage, key: &str, at: u64) -> Result<Written> {
    Written::born(storage, Kind::SESSION, key, at).await
}

/// A message comes in, and begins a turn.
async fn hears(written: &mut Written, text: &str, at: u64) -> Result {
    let said = SessionInput::UserMessage(UserMessage::text(text));
    let named = format!("k{at}").parse()?;
    let input = Input::new(Kind::SESSION, &written.key, named, Timestamp(at), &said)?;
    written.append::<KernelEvent>(at, &[Accepted { input }.into()]).await
}

/// Its tombstone is stored.
async fn is_deleted(written: &mut Written, at: u64) -> Result {
    let tail = written.tail;
    let state = SnapshotState::Inline { bytes: Vec::new().into() };
    let (archive, superseded, positions) = (None, None, Vec::new());
    let tombstone = Snapshot { tail, archive, state, superseded, positions };
    written.append::<KernelEvent>(at, &[tombstone.into()]).await
}

/// A message came in long ago, and its turn has ended.
async fn heard(storage: &Storage, key: &str, at: u64) -> Result<Written> {
    let mut written = born(storage, key, at).await?;
    let said = SessionInput::UserMessage(UserMessage::text("hello"));
    let input = Input::new(Kind::SESSION, key, "k".parse()?, Timestamp(at), &said)?;
    let turn = TurnId::from(input.id);
    written.append::<KernelEvent>(at, &[Accepted { input }.into()]).await?;
    let outcome = TurnOutcome::Cancelled;
    written.append::<SessionEvent>(at, &[TurnDone { turn, outcome }.into()]).await?;
    Ok(written)
}

fn stateless(number: u128) -> Result<String> {
    Ok(format!("default:openai:default:{}", Once::Random(number).peer()?))
}

fn sessions_of(storage: &Storage) -> Sessions {
    Sessions::new(storage.clone(), Arc::new(SystemClock))
}

/// What a page is to have; at most three.
fn page() -> SessionQuery {
    SessionQuery { limit: 3, ..SessionQuery::default() }
}

fn peers(list: &SessionList) -> Vec<&str> {
    list.sessions.iter().filter_map(|row| row.key.as_deref()?.rsplit(':').next()).collect()
}

pub async fn a_list_has_the_newest_first(fixture: &dyn BackendFixture) -> Result {
    let storage = fixture.fresh().await?;
    let mut all = Vec::new();
    // Two of the same time, and none in the order of their ids.
    for (peer, at) in [("c", 300), ("e", 100), ("a", 500), ("d", 200), ("b", 400), ("f", 100)] {
        all.push(born(&storage, &format!("default:cli:local:{peer}"), at).await?);
    }
    let sessions = sessions_of(&storage);
    let first = sessions.list(&page()).await?;
    same("the first page", peers(&first), vec!["a", "b", "c"])?;
    let next = first.next.ok_or("there are more")?;
    // One that was shown and one that was not change meanwhile: the others are shown, once.
    for written in &mut all {
        if ["default:cli:local:b", "default:cli:local:d"].contains(&written.key.as_str()) {
            hears(written, "What is  this?\u{1b}\nTell me.", 600).await?;
        }
    }
    let second =
        sessions.list(&SessionQuery { after: Some((&next).try_into()?), ..page() }).await?;
    let found: BTreeSet<&str> = peers(&second).into_iter().collect();
    same("the second page", found, BTreeSet::from(["e", "f"]))?;
    same("the end", second.next, None)?;
    let again = sessions.list(&SessionQuery { limit: 2, ..page() }).await?;
    let found: BTreeSet<&str> = peers(&again).into_iter().collect();
    same("what changed comes first", found, BTreeSet::from(["b", "d"]))?;
    let row = again.sessions.first().ok_or("a row")?;
    same("its title", row.title.as_deref(), Some("What is this? Tell me."))?;
    same("its state", row.state.as_str(), "running")?;
    same("a page of its own", sessions.list(&SessionQuery { limit: 6, ..page() }).await?.next, None)
}

pub async fn a_list_has_what_is_wanted(fixture: &dyn BackendFixture) -> Result {
    let storage = fixture.fresh().await?;
    for (key, at) in [
        ("default:cli:local:ada", 100),
        ("other:cli:local:bob", 200),
        ("default:openai:default:eve", 300),
        (&stateless(7)?, 400),
    ] {
        born(&storage, key, at).await?;
    }
    let mut busy = born(&storage, "other:web:site:joe", 500).await?;
    hears(&mut busy, "hello", 600).await?;
    let sessions = sessions_of(&storage);
    let all = SessionQuery { limit: 9, ..SessionQuery::default() };
    let list = sessions.list(&all).await?;
    same("without stateless ones", peers(&list), vec!["joe", "eve", "bob", "ada"])?;
    same("and how many those are", list.hidden, 1)?;
    let list = sessions.list(&SessionQuery { stateless: true, ..all.clone() }).await?;
    same("with them", (list.sessions.len(), list.hidden), (5, 0))?;
    holds("it is marked", list.sessions.iter().filter(|row| row.stateless).count() == 1)?;
    for (wanted, expected) in [
        (SessionQuery { agent: Some("other".parse()?), ..all.clone() }, vec!["joe", "bob"]),
        (SessionQuery { channel: Some("openai".parse()?), ..all.clone() }, vec!["eve"]),
        (SessionQuery { state: Some("running".to_owned()), ..all.clone() }, vec!["joe"]),
        (SessionQuery { state: Some("deleted".to_owned()), ..all.clone() }, vec![]),
        (SessionQuery { since: Some(Timestamp(300)), ..all.clone() }, vec!["joe", "eve"]),
        (
            SessionQuery {
                agent: Some("other".parse()?),
                since: Some(Timestamp(300)),
                ..all.clone()
            },
            vec!["joe"],
        ),
    ] {
        same(&format!("{wanted:?}"), peers(&sessions.list(&wanted).await?), expected)?;
    }
    // What is left out is none of the rows that were asked for.
    let a_row = SessionQuery { limit: 1, agent: Some("default".parse()?), ..all };
    let first = sessions.list(&a_row).await?;
    same("the first of an agent", peers(&first), vec!["eve"])?;
    let next = first.next.ok_or("there are more")?;
    let second = sessions.list(&SessionQuery { after: Some((&next).try_into()?), ..a_row }).await?;
    same("the second of an agent", peers(&second), vec!["ada"])
}

pub async fn a_row_says_since_when_and_how_the_newest_turn_failed(
    fixture: &dyn BackendFixture,
) -> Result {
    let storage = fixture.fresh().await?;
    let key = "default:cli:local:ada";
    let mut written = born(&storage, key, 100).await?;
    let sessions = sessions_of(&storage);
    let row = async || -> Result<(String, Option<u64>, Option<String>)> {
        let row = sessions.list(&page()).await?.sessions.pop().ok_or("a row")?;
        Ok((row.state, row.since.map(|at| at.0), row.last_error))
    };
    same("it is born", row().await?, ("idle".to_owned(), Some(100), None))?;
    let said = SessionInput::UserMessage(UserMessage::text("hello"));
    let input = Input::new(Kind::SESSION, key, "k".parse()?, Timestamp(200), &said)?;
    let turn = TurnId::from(input.id);
    written.append::<KernelEvent>(200, &[Accepted { input }.into()]).await?;
    same("its turn runs", row().await?, ("running".to_owned(), Some(200), None))?;
    let detail = format!("by\u{1b} ada\nfor good {}", "x".repeat(LAST_ERROR_CHARS));
    let outcome = TurnOutcome::Stopped { detail };
    written.append::<SessionEvent>(300, &[TurnDone { turn, outcome }.into()]).await?;
    let (state, since, error) = row().await?;
    same("it rests", (state, since), ("idle".to_owned(), Some(300)))?;
    let error = error.ok_or("an error")?;
    let begin = "stopped: the turn was stopped: by ada for good xx";
    holds(&error, error.starts_with(begin) && error.chars().count() == LAST_ERROR_CHARS + 1)?;
    hears(&mut written, "again", 400).await?;
    same("the next one runs", row().await?, ("running".to_owned(), Some(400), None))
}

/// The entries of all pages: nothing twice, and all that was there `throughout`.
fn shown_once(shown: &[String], throughout: &BTreeSet<String>) -> Result {
    let once: BTreeSet<String> = shown.iter().cloned().collect();
    same("nothing is shown twice", once.len(), shown.len())?;
    let missed: Vec<&String> = throughout.difference(&once).collect();
    same("nothing is missed", missed, Vec::new())
}

pub async fn pages_have_each_session_once(fixture: &dyn BackendFixture) -> Result {
    let storage = fixture.fresh().await?;
    let mut all = Vec::new();
    for n in 0..16 {
        // Some are of the same time.
        let key = format!("default:cli:local:p{n}");
        all.push(born(&storage, &key, 100 + n / 3).await?);
    }
    let mut throughout: BTreeSet<String> = (0..16).map(|n| format!("p{n}")).collect();
    let sessions = sessions_of(&storage);
    let (mut wanted, mut shown) = (page(), Vec::new());
    for round in 0..9 {
        let list = sessions.list(&wanted).await?;
        shown.extend(peers(&list).into_iter().map(str::to_owned));
        let Some(next) = &list.next else { break };
        wanted.after = Some(next.try_into()?);
        // One begins; one goes that was shown (from the end), and one that was not (from the start).
        let at = 1_000 + round;
        born(&storage, &format!("default:cli:local:new{round}"), at).await?;
        for n in [15 - round, round] {
            let gone = all.get_mut(usize::try_from(n)?).ok_or("it is written")?;
            if throughout.remove(&format!("p{n}")) {
                is_deleted(gone, at).await?;
            }
        }
    }
    shown_once(&shown, &throughout)?;
    same("what came in front", shown.iter().filter(|name| name.starts_with("new")).count(), 0)?;
    holds("there were pages", shown.len() > 6)
}

fn approval(n: u64, at: u64) -> Result<Approval> {
    let action = Action {
        session: "default:cli:local:ada".parse()?,
        turn: TurnId::from_u128(1),
        call: CallId::from_u128(n.into()),
        tool: "wait".parse()?,
        pin: None,
        capability: None,
        class: EffectClass::Safe,
        timeout_ms: 1,
        arguments: "{}".to_owned(),
    };
    Ok(Approval {
        action,
        digest: Digest::ZERO,
        risk: Risk::Write,
        reason: None,
        about: None,
        asked: Timestamp(at),
        expires: Timestamp(u64::MAX),
        decided: None,
    })
}

pub async fn pages_have_each_approval_once(fixture: &dyn BackendFixture) -> Result {
    let storage = fixture.fresh().await?;
    let ask = async |n: u64, at: u64| -> Result<Position> {
        let approval = approval(n, at)?;
        let (key, bytes) = (approval_key(approval.action.call), approval.to_bytes()?.into());
        Ok(storage.bucket.put(&key, Position(0), bytes, None).await?)
    };
    let name = |n: u64| CallId::from_u128(n.into()).to_string();
    let (mut asked, mut throughout) = (BTreeMap::new(), BTreeSet::new());
    for n in 1..=10 {
        asked.insert(n, ask(n, 100 + n / 3).await?);
        throughout.insert(name(n));
    }
    let sessions = sessions_of(&storage);
    let (mut cursor, mut shown) = (None, Vec::new());
    for round in 1..=9 {
        let list = sessions.approvals(cursor.as_ref(), 3).await?;
        shown.extend(list.approvals.iter().map(|approval| approval.action.call.to_string()));
        cursor = list.next;
        if cursor.is_none() {
            break;
        }
        // One is asked about; one goes that was shown, and one that was not.
        ask(100 + round, 1_000).await?;
        for n in [round, 11 - round] {
            if let Some(position) = asked.remove(&n) {
                let key = approval_key(CallId::from_u128(n.into()));
                storage.bucket.delete(&key, position).await?;
                throughout.remove(&name(n));
            }
        }
    }
    shown_once(&shown, &throughout)?;
    holds("there were pages", shown.len() > 6)
}

/// A clock that does not move.
#[derive(Debug)]
struct At(u64);

impl Clock for At {
    fn now(&self) -> Timestamp {
        Timestamp(self.0)
    }
}

/// How many inputs wait for each of these.
async fn waiting(storage: &Storage, all: &[&Written]) -> Result<Vec<usize>> {
    let mut waiting = Vec::new();
    for written in all {
        waiting.push(storage.inbox.pending(written.id).await?);
    }
    Ok(waiting)
}

pub async fn only_stateless_sessions_at_rest_are_told_to_go(
    fixture: &dyn BackendFixture,
) -> Result {
    let storage = fixture.fresh().await?;
    let old = heard(&storage, &stateless(1)?, 1_000).await?;
    let young = heard(&storage, &stateless(2)?, 5_000).await?;
    let busy = heard(&storage, &stateless(3)?, 1_000).await?;
    let other = heard(&storage, "default:openai:default:ada", 1_000).await?;
    // What is not finished waits in the inbox for as long.
    let said = SessionInput::UserMessage(UserMessage::text("wait"));
    let input = Input::new(Kind::SESSION, &busy.key, "k".parse()?, Timestamp(1), &said)?;
    storage.inbox.put(&input).await?;
    let all = [&old, &young, &busy, &other];
    let at = |now| Sessions::new(storage.clone(), Arc::new(At(now)));
    let keep = Duration::from_secs(5);
    // A clock that is set forward makes no session old: it must have been seen at rest as well.
    let mut wary = StatelessExpiry::new(Duration::from_hours(1));
    same("not seen for long", wary.round(&at(9_000), keep, |_| true).await?, 0)?;
    let mut sweep = StatelessExpiry::default();
    same("too early", sweep.round(&at(5_999), keep, |_| true).await?, 0)?;
    holds("it went through all of them", sweep.is_through())?;
    same("of another process", sweep.round(&at(9_000), keep, |id| id != old.id).await?, 0)?;
    same("no input was stored", waiting(&storage, &all).await?, vec![0, 0, 1, 0])?;
    same("the old one", sweep.round(&at(9_000), keep, |_| true).await?, 1)?;
    same("it alone got an input", waiting(&storage, &all).await?, vec![1, 0, 1, 0])?;
    same("once", sweep.round(&at(9_000), keep, |_| true).await?, 0)?;
    same("and nothing more", waiting(&storage, &all).await?, vec![1, 0, 1, 0])?;
    same(
        "the young one, later",
        StatelessExpiry::default().round(&at(10_000), keep, |_| true).await?,
        1,
    )
}
