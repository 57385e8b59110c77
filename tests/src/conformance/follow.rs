//! The feed of journals: every record once, in the order in which the store has them.

use std::sync::Arc;

use clawnode_cluster::{FeedPage, Journal};
use clawnode_proto::{EntityId, Position};
use tokio::task::JoinSet;

use super::{
    BackendFixture, Result,
    support::{append, entity, holds, same, soon, write},
};

const NONE: Position = Position(0);
/// Concurrent writers, and the records that each of them appends.
const WRITERS: usize = 6;
const RECORDS: usize = 30;

/// Follows until there is no more, and checks what holds of every page.
async fn follow(
    journal: &dyn Journal,
    mut after: Position,
    limit: usize,
) -> Result<Vec<(EntityId, Position, String)>> {
    let mut all = Vec::new();
    loop {
        let FeedPage { records, upto } = journal.follow(after, limit).await?;
        holds("a page is not over its limit", records.len() <= limit)?;
        holds("a page ends behind the page before", upto >= after)?;
        if records.is_empty() && upto == after {
            return Ok(all);
        }
        for (entity, record) in records {
            holds("a record is behind the page before", record.position > after)?;
            holds("a record is not behind its page", record.position <= upto)?;
            let behind = all.last().is_none_or(|(_, last, _)| record.position > *last);
            holds("records are in the order of the store", behind)?;
            all.push((entity, record.position, String::from_utf8(record.bytes.to_vec())?));
        }
        after = upto;
    }
}

fn texts(followed: &[(EntityId, Position, String)]) -> Vec<&str> {
    followed.iter().map(|(_, _, text)| text.as_str()).collect()
}

pub async fn records_of_all_journals_come_in_order(fixture: &dyn BackendFixture) -> Result {
    let journal = fixture.fresh().await?.journal;
    let page = journal.follow(NONE, 10).await?;
    same("a store without records", page, FeedPage { records: Vec::new(), upto: NONE })?;
    let (one, two) = (entity("one"), entity("two"));
    let a = append(&*journal, one, NONE, "a").await?;
    let b = append(&*journal, two, NONE, "b").await?;
    let c = append(&*journal, one, a, "c").await?;
    let d = append(&*journal, two, b, "d").await?;
    let expected = vec![
        (one, a, "a".to_owned()),
        (two, b, "b".to_owned()),
        (one, c, "c".to_owned()),
        (two, d, "d".to_owned()),
    ];
    for limit in [1, 2, 3, 4, 100] {
        same("all records", follow(&*journal, NONE, limit).await?, expected.clone())?;
    }
    same(
        "after the second",
        follow(&*journal, b, 10).await?,
        expected.into_iter().skip(2).collect(),
    )?;
    same("after the last", follow(&*journal, d, 10).await?, Vec::new())
}

pub async fn a_replaced_record_is_not_followed(fixture: &dyn BackendFixture) -> Result {
    let journal = fixture.fresh().await?.journal;
    let (one, two) = (entity("one"), entity("two"));
    let first = append(&*journal, one, NONE, "first").await?;
    let other = append(&*journal, two, NONE, "other").await?;
    let second = append(&*journal, one, first, "second").await?;
    let rolled = write(&*journal, one, second, "snapshot", true).await?;
    append(&*journal, one, rolled, "third").await?;
    same(
        "from the beginning",
        texts(&follow(&*journal, NONE, 2).await?),
        vec!["other", "snapshot", "third"],
    )?;
    same(
        "from a replaced record",
        texts(&follow(&*journal, first, 1).await?),
        vec!["other", "snapshot", "third"],
    )?;
    same("from another", texts(&follow(&*journal, other, 9).await?), vec!["snapshot", "third"])
}

/// A position that becomes visible after a later one would be missed for good.
pub async fn a_follower_beside_many_writers_misses_nothing(fixture: &dyn BackendFixture) -> Result {
    let journal = fixture.fresh().await?.journal;
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let journal = Arc::clone(&journal);
        writers.spawn(async move {
            let mut last = NONE;
            for n in 0..RECORDS {
                let name = format!("writer{writer}");
                last = append(&*journal, entity(&name), last, &format!("{writer}:{n}")).await?;
            }
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
        });
    }
    let mut found: Vec<String> = Vec::new();
    soon("all records", async {
        let mut after = NONE;
        while found.len() < WRITERS * RECORDS {
            let page = journal.follow(after, 7).await?;
            for (_, record) in page.records {
                found.push(String::from_utf8(record.bytes.to_vec())?);
            }
            after = page.upto;
            tokio::task::yield_now().await;
        }
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
    })
    .await??;
    while let Some(done) = writers.join_next().await {
        done??;
    }
    let mut expected: Vec<String> = (0..WRITERS)
        .flat_map(|writer| (0..RECORDS).map(move |n| format!("{writer}:{n}")))
        .collect();
    expected.sort_unstable();
    found.sort_unstable();
    same("each record, once", found, expected)
}
