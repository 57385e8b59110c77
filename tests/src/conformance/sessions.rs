//! Sessions on any storage backend: lists have them newest first, and pages lose none.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use clawnode_actors::session::{
    Sessions,
    clients::{listing::Wanted, sweep::Sweep},
};
use clawnode_cluster::{Clock, Substrate, SystemClock};
use clawnode_kernel::written::Written;
use clawnode_proto::{
    Input, Kind, Timestamp, TurnId,
    kernel::{Accepted, KernelEvent},
    session::{SessionEvent, SessionInput, TurnDone, TurnOutcome, UserMessage},
    stateless::Once,
    view::SessionList,
};

use super::{
    Ground, Result,
    support::{holds, same},
};

/// A session that is born at this time, and has heard nothing yet.
async fn born(substrate: &Substrate, key: &str, at: u64) -> Result<Written> {
    Written::born(substrate, Kind::SESSION, key, at).await
}

/// A message comes in, and begins a turn.
async fn hears(written: &mut Written, text: &str, at: u64) -> Result {
    let said = SessionInput::UserMessage(UserMessage::text(text));
    let named = format!("k{at}").parse()?;
    let input = Input::new(Kind::SESSION, &written.key, named, Timestamp(at), &said)?;
    written.append::<KernelEvent>(at, &[Accepted { input }.into()]).await
}

/// A message came in long ago, and its turn has ended.
async fn heard(substrate: &Substrate, key: &str, at: u64) -> Result<Written> {
    let mut written = born(substrate, key, at).await?;
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

fn door(substrate: &Substrate) -> Sessions {
    Sessions::new(substrate.clone(), Arc::new(SystemClock))
}

/// What a page is to have; at most three.
fn page() -> Wanted {
    Wanted { limit: 3, ..Wanted::default() }
}

fn peers(list: &SessionList) -> Vec<&str> {
    list.sessions.iter().filter_map(|row| row.key.as_deref()?.rsplit(':').next()).collect()
}

pub async fn a_list_has_the_newest_first(ground: &dyn Ground) -> Result {
    let substrate = ground.fresh().await?;
    let mut all = Vec::new();
    // Two of the same time, and none in the order of their ids.
    for (peer, at) in [("c", 300), ("e", 100), ("a", 500), ("d", 200), ("b", 400), ("f", 100)] {
        all.push(born(&substrate, &format!("default:cli:local:{peer}"), at).await?);
    }
    let sessions = door(&substrate);
    let first = sessions.list(&page()).await?;
    same("the first page", peers(&first), vec!["a", "b", "c"])?;
    let next = first.next.ok_or("there are more")?;
    // One that was shown and one that was not change meanwhile: the others are shown, once.
    for written in &mut all {
        if ["default:cli:local:b", "default:cli:local:d"].contains(&written.key.as_str()) {
            hears(written, "What is  this?\u{1b}\nTell me.", 600).await?;
        }
    }
    let second = sessions.list(&Wanted { after: Some(next.parse()?), ..page() }).await?;
    let found: BTreeSet<&str> = peers(&second).into_iter().collect();
    same("the second page", found, BTreeSet::from(["e", "f"]))?;
    same("the end", second.next, None)?;
    let again = sessions.list(&Wanted { limit: 2, ..page() }).await?;
    let found: BTreeSet<&str> = peers(&again).into_iter().collect();
    same("what changed comes first", found, BTreeSet::from(["b", "d"]))?;
    let row = again.sessions.first().ok_or("a row")?;
    same("its title", row.title.as_deref(), Some("What is this? Tell me."))?;
    same("its state", row.state.as_str(), "running")?;
    same("a page of its own", sessions.list(&Wanted { limit: 6, ..page() }).await?.next, None)
}

pub async fn a_list_has_what_is_wanted(ground: &dyn Ground) -> Result {
    let substrate = ground.fresh().await?;
    for (key, at) in [
        ("default:cli:local:ada", 100),
        ("other:cli:local:bob", 200),
        ("default:openai:default:eve", 300),
        (&stateless(7)?, 400),
    ] {
        born(&substrate, key, at).await?;
    }
    let mut busy = born(&substrate, "other:web:site:joe", 500).await?;
    hears(&mut busy, "hello", 600).await?;
    let sessions = door(&substrate);
    let all = Wanted { limit: 9, ..Wanted::default() };
    let list = sessions.list(&all).await?;
    same("without stateless ones", peers(&list), vec!["joe", "eve", "bob", "ada"])?;
    same("and how many those are", list.hidden, 1)?;
    let list = sessions.list(&Wanted { stateless: true, ..all.clone() }).await?;
    same("with them", (list.sessions.len(), list.hidden), (5, 0))?;
    holds("it is marked", list.sessions.iter().filter(|row| row.stateless).count() == 1)?;
    for (wanted, expected) in [
        (Wanted { agent: Some("other".parse()?), ..all.clone() }, vec!["joe", "bob"]),
        (Wanted { channel: Some("openai".parse()?), ..all.clone() }, vec!["eve"]),
        (Wanted { state: Some("running".to_owned()), ..all.clone() }, vec!["joe"]),
        (Wanted { state: Some("deleted".to_owned()), ..all.clone() }, vec![]),
        (Wanted { since: Some(Timestamp(300)), ..all.clone() }, vec!["joe", "eve"]),
        (
            Wanted { agent: Some("other".parse()?), since: Some(Timestamp(300)), ..all.clone() },
            vec!["joe"],
        ),
    ] {
        same(&format!("{wanted:?}"), peers(&sessions.list(&wanted).await?), expected)?;
    }
    // What is left out is none of the rows that were asked for.
    let a_row = Wanted { limit: 1, agent: Some("default".parse()?), ..all };
    let first = sessions.list(&a_row).await?;
    same("the first of an agent", peers(&first), vec!["eve"])?;
    let after = first.next.as_deref().ok_or("there are more")?.parse()?;
    let second = sessions.list(&Wanted { after: Some(after), ..a_row }).await?;
    same("the second of an agent", peers(&second), vec!["ada"])
}

/// A clock that stands still.
#[derive(Debug)]
struct At(u64);

impl Clock for At {
    fn now(&self) -> Timestamp {
        Timestamp(self.0)
    }
}

/// How many inputs wait for each of these.
async fn waiting(substrate: &Substrate, all: &[&Written]) -> Result<Vec<usize>> {
    let mut waiting = Vec::new();
    for written in all {
        waiting.push(substrate.inbox.pending(written.id).await?);
    }
    Ok(waiting)
}

pub async fn only_stateless_sessions_at_rest_are_told_to_go(ground: &dyn Ground) -> Result {
    let substrate = ground.fresh().await?;
    let old = heard(&substrate, &stateless(1)?, 1_000).await?;
    let young = heard(&substrate, &stateless(2)?, 5_000).await?;
    let busy = heard(&substrate, &stateless(3)?, 1_000).await?;
    let other = heard(&substrate, "default:openai:default:ada", 1_000).await?;
    // What is not finished waits in the inbox for as long.
    let said = SessionInput::UserMessage(UserMessage::text("wait"));
    let input = Input::new(Kind::SESSION, &busy.key, "k".parse()?, Timestamp(1), &said)?;
    substrate.inbox.put(&input).await?;
    let all = [&old, &young, &busy, &other];
    let at = |now| Sessions::new(substrate.clone(), Arc::new(At(now)));
    let keep = Duration::from_secs(5);
    // A clock that is set forward makes no session old: it must have been seen at rest as well.
    let mut wary = Sweep::new(Duration::from_hours(1));
    same("not seen for long", wary.round(&at(9_000), keep, |_| true).await?, 0)?;
    let mut sweep = Sweep::default();
    same("too early", sweep.round(&at(5_999), keep, |_| true).await?, 0)?;
    holds("it went through all of them", sweep.is_through())?;
    same("of another process", sweep.round(&at(9_000), keep, |id| id != old.id).await?, 0)?;
    same("nothing was told", waiting(&substrate, &all).await?, vec![0, 0, 1, 0])?;
    same("the old one", sweep.round(&at(9_000), keep, |_| true).await?, 1)?;
    same("it was told alone", waiting(&substrate, &all).await?, vec![1, 0, 1, 0])?;
    same("once", sweep.round(&at(9_000), keep, |_| true).await?, 0)?;
    same("and nothing more", waiting(&substrate, &all).await?, vec![1, 0, 1, 0])?;
    same("the young one, later", Sweep::default().round(&at(10_000), keep, |_| true).await?, 1)
}
