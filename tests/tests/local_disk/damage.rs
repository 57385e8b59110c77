//! Torn tails, flipped bits, a missing index.

use std::path::Path;

use bytes::Bytes;
use clawnode_cluster::{AppendAnswer, StoreError, Write};
use clawnode_local::{OpenError, inspect, repair};

use crate::support::{Home, NONE, Result, append, entity, everything, fill, find, job, texts};

#[tokio::test]
async fn a_torn_tail_is_cut() -> Result {
    for cut in [1, 30, 60] {
        let home = Home::new()?;
        let (store, _control) = home.open()?;
        let first = append(&store, "one", NONE, "first").await?;
        let second = append(&store, "one", first, "second").await?;
        append(&store, "one", second, "third, of which a part is missing").await?;
        home.close(store).await;
        let (path, mut bytes) = home.segment()?;
        bytes.truncate(bytes.len() - cut);
        std::fs::write(&path, &bytes)?;
        let (store, _control) = home.open()?;
        assert_eq!(texts(&store, "one").await?, ["first", "second"], "{cut} bytes missing");
        append(&store, "one", second, "third again").await?;
        home.close(store).await;
        // Garbage after the last record is a tail, too.
        let (path, mut bytes) = home.segment()?;
        bytes.extend_from_slice(b"CLR1 begun, and never ended");
        std::fs::write(&path, &bytes)?;
        let (store, _control) = home.open()?;
        assert_eq!(texts(&store, "one").await?, ["first", "second", "third again"]);
        home.close(store).await;
    }
    Ok(())
}

#[tokio::test]
async fn a_damaged_body_costs_one_entity() -> Result {
    for index_too in [false, true] {
        let home = Home::new()?;
        let (store, _control) = home.open()?;
        let first = append(&store, "one", NONE, "the needle").await?;
        let second = append(&store, "one", first, "second").await?;
        let other = append(&store, "two", NONE, "other").await?;
        home.close(store).await;
        let (path, mut bytes) = home.segment()?;
        let at = find(&bytes, b"needle").ok_or("the needle")?;
        bytes[at] ^= 1;
        std::fs::write(&path, &bytes)?;
        if index_too {
            std::fs::remove_dir_all(home.path().join("index"))?;
        }

        let (store, _control) = home.open()?;
        match store.journal.read(entity("one"), NONE).await {
            Err(StoreError::Corrupt { entity: found, position, detail }) => {
                assert_eq!((found, position), (entity("one"), first));
                assert!(detail.contains("offset"), "{detail}");
            }
            other => return Err(format!("expected damage, found {other:?}").into()),
        }
        let write = |rollup| Write { bytes: Bytes::from_static(b"x"), rollup };
        let answer = store.journal.append(entity("one"), second, write(false)).await;
        assert!(matches!(answer, AppendAnswer::Defect(_)), "{answer:?}");
        assert!(store.health.warnings().await.iter().any(|w| w.name == "local.damaged"));
        // The other is not concerned, and a rollup makes the first whole again.
        assert_eq!(texts(&store, "two").await?, ["other"]);
        append(&store, "two", other, "more").await?;
        let answer = store.journal.append(entity("one"), second, write(true)).await;
        assert!(matches!(answer, AppendAnswer::Stored(_)), "{answer:?}");
        assert_eq!(texts(&store, "one").await?, ["x"]);
        home.close(store).await;
        let (store, _control) = home.open()?;
        assert_eq!(texts(&store, "one").await?, ["x"]);
        home.close(store).await;
    }
    Ok(())
}

#[tokio::test]
async fn a_damaged_header_refuses_to_open_until_repaired() -> Result {
    let home = Home::new()?;
    let (store, _control) = home.open()?;
    let first = append(&store, "one", NONE, "first").await?;
    append(&store, "one", first, "second").await?;
    append(&store, "two", NONE, "other").await?;
    home.close(store).await;
    let (path, mut bytes) = home.segment()?;
    let offset = find(&bytes, b"first").ok_or("the first record")? - 56;
    bytes[offset + 9] ^= 4;
    std::fs::write(&path, &bytes)?;

    for attempt in 0..2 {
        let error = home.open().expect_err("a damaged header is no log");
        let OpenError::Damaged { file, offset: found, .. } = &error else {
            return Err(format!("attempt {attempt}: {error}").into());
        };
        assert_eq!((file, *found), (&path, offset as u64));
        let text = error.to_string();
        assert!(text.contains("clawnode journal repair"), "{text}");
        assert!(text.contains(&offset.to_string()), "{text}");
    }
    let report = repair(home.path())?;
    assert_eq!(report.spans.len(), 1, "{report:?}");
    assert_eq!((report.spans[0].offset, report.records), (offset as u64, 2));
    assert_eq!(std::fs::read(&report.spans[0].kept)?.len() as u64, report.spans[0].len);
    assert_eq!(repair(home.path())?.spans, [], "what is sound is left alone");

    let (store, _control) = home.open()?;
    assert_eq!(texts(&store, "one").await?, ["second"]);
    assert_eq!(texts(&store, "two").await?, ["other"]);
    home.close(store).await;
    Ok(())
}

/// LOC-2.
#[tokio::test]
async fn a_missing_or_damaged_index_is_built_anew() -> Result {
    type Harm = fn(&Path) -> std::io::Result<()>;
    let remove: Harm = |home| std::fs::remove_dir_all(home.join("index"));
    let garble: Harm = |home| {
        for entry in std::fs::read_dir(home.join("index"))? {
            let path = entry?.path();
            if path.is_file() {
                std::fs::write(path, [0xa5; 4_096])?;
            }
        }
        Ok(())
    };
    let empty: Harm = |home| std::fs::write(home.join("index").join("db"), []);
    let untrusted: Harm = |home| std::fs::write(home.join("index.state"), "open another boot");
    for (harm, name) in
        [(remove, "remove"), (garble, "garble"), (empty, "empty"), (untrusted, "untrusted")]
    {
        let home = Home::new()?;
        let (store, _control) = home.open()?;
        let expected = fill(&store).await?;
        home.close(store).await;
        harm(home.path())?;
        let (store, _control) = home.open()?;
        assert_eq!(everything(&store).await?, expected, "{name}");
        home.close(store).await;
    }
    Ok(())
}

#[tokio::test]
async fn a_damaged_job_is_told_once_and_may_be_put_again() -> Result {
    for index_too in [false, true] {
        let home = Home::new()?;
        let (store, _control) = home.open()?;
        for number in [2, 4] {
            store.jobs.put(&job(number)?).await?;
        }
        home.close(store).await;
        let (path, mut bytes) = home.segment()?;
        let at = find(&bytes, b"\"number\":2").ok_or("the job")?;
        bytes[at] ^= 1;
        std::fs::write(&path, &bytes)?;
        let found = inspect(home.path())?;
        assert_eq!((found.damaged_jobs, found.damaged_entities), (vec![job(2)?.id], vec![]));
        if index_too {
            std::fs::remove_dir_all(home.path().join("index"))?;
        }

        let (store, _control) = home.open()?;
        let mut consumer = store.jobs.consume(&job(2)?.capability).await?;
        // Without the index it is unknown whose it was.
        if store.jobs.pending(&job(2)?.capability).await? == 2 {
            let error = consumer.next().await.expect_err("damaged");
            assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
        }
        let other = consumer.next().await?;
        assert_eq!(other.job_id, job(4)?.id, "the other is not concerned");
        store.jobs.put(&job(2)?).await?;
        let again = consumer.next().await?;
        assert_eq!(again.bytes, job(2)?.to_bytes()?);
        assert!(
            !store.health.warnings().await.iter().any(|warning| warning.name == "local.damaged")
        );
        home.close(store).await;
    }
    Ok(())
}
