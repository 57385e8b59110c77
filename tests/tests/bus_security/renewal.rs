//! A cluster whose record of the birth is gone, and one that an older build made: the errors of its
//! nodes, and how its operator brings it back with the identity that it had.

use clawnode_nats::{
    ConnectError,
    auth::{BusRole, push},
    connect,
};
use serde_json::{Value, json};

use crate::support::{Operator, Result, User, host, node, now, refused};

/// A user with all rights on the servers, which no credential of the cluster has.
async fn root(operator: &Operator) -> Result<User> {
    let mut authority = operator.authority()?;
    let all = authority.brief(BusRole::Admin, None, now(), 3_600)?;
    authority.widen(BusRole::Admin, ">");
    push(&authority, &operator.options(&all), 1, now()).await?;
    operator.user(&all).await
}

async fn api(root: &User, subject: &str, question: Value) -> Result<Value> {
    let subject = format!("$JS.API.{subject}");
    let answer = root.client.request(subject, question.to_string().into()).await?;
    let answer: Value = serde_json::from_slice(&answer.payload)?;
    if answer["error"].is_null() { Ok(answer) } else { Err(answer.to_string().into()) }
}

#[tokio::test]
async fn a_lost_record_of_the_birth_of_nats_is_written_again_by_the_operator() -> Result {
    let operator = Operator::new(1).await?;
    let made = operator.token("worker").await?;
    let home = host(made["token"].as_str().unwrap())?;
    node(&home, "worker").await?.stop().await?;
    let root = root(&operator).await?;
    for lost in ["STREAM.PURGE.CN_BIRTH", "STREAM.DELETE.CN_BIRTH"] {
        api(&root, lost, json!({})).await?;
        let told = refused(&home, "worker").await?;
        assert!(told.err.contains("clawnode cluster"), "{lost}: {told:?}");
        let again = operator.token("worker").await?;
        assert_eq!(again["cluster"], made["cluster"], "{lost}: the same cluster");
        node(&home, "worker").await?.stop().await?;
    }
    // The servers themselves are others: that is another cluster, and no node takes it for this
    // one.
    for stream in ["JOURNAL", "INBOX", "JOBS", "TIMERS", "BUCKET", "BLOBS", "BIRTH", "OFFERS"] {
        api(&root, &format!("STREAM.DELETE.CN_{stream}"), json!({})).await?;
    }
    let other = operator.token("worker").await?;
    assert_ne!(other["cluster"], made["cluster"]);
    let told = refused(&home, "worker").await?;
    assert!(told.code == 78 && told.err.contains("belongs to"), "{told:?}");
    Ok(())
}

#[tokio::test]
async fn a_cluster_of_nats_with_logins_that_an_older_build_made_is_brought_over_by_a_push() -> Result
{
    let operator = Operator::new(1).await?;
    let made = operator.token("worker").await?;
    let home = host(made["token"].as_str().unwrap())?;
    node(&home, "worker").await?.stop().await?;
    let root = root(&operator).await?;
    // As older builds made it: the birth in the bucket, of which anybody might have emptied all.
    api(&root, "STREAM.DELETE.CN_BIRTH", json!({})).await?;
    let mut bucket = api(&root, "STREAM.INFO.CN_BUCKET", json!({})).await?["config"].clone();
    bucket["subjects"] = json!(["cn.kv.>", "cn.birth"]);
    bucket["allow_rollup_hdrs"] = json!(true);
    bucket["subject_delete_marker_ttl"] = json!(60_000_000_000_u64);
    api(&root, "STREAM.UPDATE.CN_BUCKET", bucket).await?;
    let older = json!({
        "format": 1, "partitions": 4, "cluster": made["cluster"], "complete": true, "streams": 1,
    });
    root.client.request("cn.birth", older.to_string().into()).await?;

    let told = refused(&home, "worker").await?;
    assert!(told.err.contains("clawnode cluster push"), "{told:?}");
    let worker = operator.authority()?.brief(BusRole::Worker, None, now(), 600)?;
    let error = connect(operator.options(&worker)).await.err().unwrap();
    assert!(matches!(error, ConnectError::Outdated { .. }), "{error}");
    for _ in 0..2 {
        operator.run(&["cluster", "push"]).await?;
        let opened = connect(operator.options(&worker)).await?;
        assert_eq!(opened.health.cluster().as_deref(), made["cluster"].as_str());
    }
    node(&home, "worker").await?.stop().await?;
    let info = operator.token("worker").await?;
    assert_eq!(info["cluster"], made["cluster"]);
    Ok(())
}
