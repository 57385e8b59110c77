//! The journal: the append is the lock.

use std::sync::Arc;

use bytes::Bytes;
use clawnode_cluster::{AppendAnswer, Write};
use clawnode_proto::{Position, limits};
use tokio::task::JoinSet;

use super::{
    BackendFixture, Result,
    support::{append, entity, holds, refused, same, texts, write},
};

const NONE: Position = Position(0);

pub async fn an_append_stands_where_it_was_expected(fixture: &dyn BackendFixture) -> Result {
    let journal = fixture.fresh().await?.journal;
    let one = entity("one");
    same("an empty journal's tail", journal.tail(one).await?, None)?;
    same("an empty journal", journal.read(one, NONE).await?, Vec::new())?;
    let first = append(&*journal, one, NONE, "first").await?;
    let second = append(&*journal, one, first, "second").await?;
    holds("positions increase", NONE < first && first < second)?;
    same("the journal", texts(&*journal, one, NONE).await?, vec!["first".into(), "second".into()])?;
    let tail = journal.tail(one).await?.ok_or("a tail")?;
    same("the tail's position", tail.position, second)?;
    same("the tail", tail.bytes, Bytes::from_static(b"second"))
}

pub async fn a_stale_append_is_refused(fixture: &dyn BackendFixture) -> Result {
    let journal = fixture.fresh().await?.journal;
    let one = entity("one");
    refused(&*journal, one, Position(1), false).await?;
    let first = append(&*journal, one, NONE, "first").await?;
    refused(&*journal, one, NONE, false).await?;
    refused(&*journal, one, first.next(), false).await?;
    let second = append(&*journal, one, first, "second").await?;
    refused(&*journal, one, first, false).await?;
    append(&*journal, one, second, "third").await?;
    let expected = ["first", "second", "third"].map(str::to_owned).to_vec();
    same("the journal", texts(&*journal, one, NONE).await?, expected)
}

pub async fn one_of_many_appenders_wins(fixture: &dyn BackendFixture) -> Result {
    let journal = fixture.fresh().await?.journal;
    let one = entity("one");
    let mut expected = NONE;
    for round in 0..5 {
        let mut racers = JoinSet::new();
        for racer in 0..8 {
            let journal = Arc::clone(&journal);
            racers.spawn(async move {
                let bytes = Bytes::from(format!("{round}/{racer}"));
                loop {
                    let write = Write { bytes: bytes.clone(), rollup: false };
                    match journal.append(one, expected, write).await {
                        // Proves nothing: the same bytes again, with the same expectation.
                        AppendAnswer::Unknown(_) => {}
                        answer => return (bytes, answer),
                    }
                }
            });
        }
        let mut winners = Vec::new();
        while let Some(raced) = racers.join_next().await {
            match raced? {
                (bytes, AppendAnswer::Stored(position)) => winners.push((position, bytes)),
                (_, AppendAnswer::Refused) => {}
                (_, other) => return Err(format!("neither stored nor refused: {other:?}").into()),
            }
        }
        same("winners", winners.len(), 1)?;
        let (position, bytes) = winners.remove(0);
        let tail = journal.tail(one).await?.ok_or("a tail")?;
        same("the winner is at the end", (tail.position, tail.bytes), (position, bytes))?;
        expected = position;
    }
    same("records", journal.read(one, NONE).await?.len(), 5)
}

pub async fn journals_do_not_mix(fixture: &dyn BackendFixture) -> Result {
    let journal = fixture.fresh().await?.journal;
    let (one, two) = (entity("one"), entity("two"));
    let first = append(&*journal, one, NONE, "one").await?;
    append(&*journal, two, NONE, "two").await?;
    append(&*journal, one, first, "one again").await?;
    let expected = vec!["one".to_owned(), "one again".to_owned()];
    same("the first", texts(&*journal, one, NONE).await?, expected)?;
    same("the second", texts(&*journal, two, NONE).await?, vec!["two".to_owned()])
}

pub async fn a_read_starts_after_a_position(fixture: &dyn BackendFixture) -> Result {
    let journal = fixture.fresh().await?.journal;
    let one = entity("one");
    let mut positions = vec![NONE];
    for n in 0..6 {
        let last = positions.last().copied().unwrap_or(NONE);
        positions.push(append(&*journal, one, last, &n.to_string()).await?);
    }
    for (skip, after) in positions.iter().enumerate() {
        let expected: Vec<String> = (skip..6).map(|n| n.to_string()).collect();
        same("what follows", texts(&*journal, one, *after).await?, expected)?;
    }
    Ok(())
}

pub async fn a_rollup_replaces_the_past(fixture: &dyn BackendFixture) -> Result {
    let journal = fixture.fresh().await?.journal;
    let (one, two) = (entity("one"), entity("two"));
    append(&*journal, two, NONE, "other").await?;
    let first = append(&*journal, one, NONE, "first").await?;
    let second = append(&*journal, one, first, "second").await?;
    let rolled = write(&*journal, one, second, "snapshot", true).await?;
    holds("a rollup's position is a new one", rolled > second)?;
    same("the journal", texts(&*journal, one, NONE).await?, vec!["snapshot".to_owned()])?;
    // A reader that stopped before the rollup is given it, not silence.
    same("after", texts(&*journal, one, first).await?, vec!["snapshot".to_owned()])?;
    refused(&*journal, one, second, false).await?;
    append(&*journal, one, rolled, "third").await?;
    let expected = vec!["snapshot".to_owned(), "third".to_owned()];
    same("the journal", texts(&*journal, one, NONE).await?, expected)?;
    same("another journal", texts(&*journal, two, NONE).await?, vec!["other".to_owned()])
}

pub async fn a_stale_rollup_changes_nothing(fixture: &dyn BackendFixture) -> Result {
    let journal = fixture.fresh().await?.journal;
    let one = entity("one");
    let first = append(&*journal, one, NONE, "first").await?;
    append(&*journal, one, first, "second").await?;
    refused(&*journal, one, first, true).await?;
    let expected = vec!["first".to_owned(), "second".to_owned()];
    same("the journal", texts(&*journal, one, NONE).await?, expected)
}

pub async fn entities_come_in_pages(fixture: &dyn BackendFixture) -> Result {
    let journal = fixture.fresh().await?.journal;
    let mut all = Vec::new();
    for n in 0..7 {
        let one = entity(&format!("page{n}"));
        let first = append(&*journal, one, NONE, "first").await?;
        append(&*journal, one, first, "second").await?;
        all.push(one);
    }
    all.sort_unstable();
    let mut found = Vec::new();
    loop {
        let page = journal.entities(found.last().copied(), 3).await?;
        holds("a page is not over its limit", page.len() <= 3)?;
        if page.is_empty() {
            break;
        }
        found.extend(page);
    }
    same("how many there are", journal.count().await?, all.len() as u64)?;
    // In which order is the store's affair, as long as the pages follow each other.
    found.sort_unstable();
    same("all entities, once", found, all)
}

pub async fn an_oversized_append_is_a_defect(fixture: &dyn BackendFixture) -> Result {
    let journal = fixture.fresh().await?.journal;
    let one = entity("one");
    let bytes = Bytes::from(vec![b'x'; limits::APPEND_BYTES + 1]);
    match journal.append(one, NONE, Write { bytes, rollup: false }).await {
        AppendAnswer::Defect(_) => {}
        other => return Err(format!("not a defect: {other:?}").into()),
    }
    let most = "x".repeat(limits::APPEND_BYTES);
    append(&*journal, one, NONE, &most).await?;
    same("what just fits", texts(&*journal, one, NONE).await?, vec![most])
}

pub async fn a_large_journal_is_read_whole(fixture: &dyn BackendFixture) -> Result {
    let journal = fixture.fresh().await?.journal;
    let one = entity("one");
    let mut last = NONE;
    let mut expected = Vec::new();
    for n in 0..40 {
        let text = format!("{n}:").repeat(10_000);
        last = append(&*journal, one, last, &text).await?;
        expected.push(text);
    }
    holds("it is read as written", texts(&*journal, one, NONE).await? == expected)
}
