//! What was revoked is refused, live connections are closed, and a server that starts again does
//! not forget it. A tenant's credential opens nothing of another tenant.

use async_nats::Event;
use clawnode_cluster::Lost;
use clawnode_nats::{
    ConnectError,
    auth::{BusRole, Credential, push},
    connect,
};
use serde_json::json;

use crate::support::{Operator, Result, now, told};

/// The servers must refuse this credential at the login.
async fn must_be_refused(operator: &Operator, credential: &Credential) {
    let told = connect(operator.options(credential)).await.map(drop);
    let log = || operator.nats.log();
    assert!(matches!(told, Err(ConnectError::Login { .. })), "{told:?}\n{}", log());
}

/// Waits until the connection was closed, and nothing opened it again.
async fn closed(user: &mut crate::support::User) -> Result {
    told(user, |event| matches!(event, Event::Disconnected).then_some(())).await
}

#[tokio::test]
async fn a_revoked_credential_is_refused_and_cut_off_from_nats() -> Result {
    let mut operator = Operator::new(1).await?;
    operator.token("worker").await?;
    let mut authority = operator.authority()?;
    let one = authority.issue(BusRole::Worker, "one", now(), 3_600)?;
    let two = authority.issue(BusRole::Worker, "two", now(), 3_600)?;
    std::fs::write(operator.home.data().join("cluster/authority.json"), authority.to_json()?)?;
    let mut user = operator.user(&one).await?;
    let stays = connect(operator.options(&two)).await?;

    operator.run(&["cluster", "revoke", "one"]).await?;
    closed(&mut user).await?;
    must_be_refused(&operator, &one).await;
    assert!(stays.health.ready().await.is_ok(), "no other node is touched");
    let users = operator.run(&["cluster", "users", "--json"]).await?.json()?;
    let state = |name: &str| {
        let all = users["users"].as_array().into_iter().flatten();
        all.clone().find(|user| user["name"] == name).map(|user| user["state"].clone())
    };
    assert_eq!((state("one"), state("two")), (Some(json!("revoked")), Some(json!("good"))));

    // The server was started with the account as it was before.
    operator.nats.restart(0).await?;
    must_be_refused(&operator, &one).await;
    drop(connect(operator.options(&two)).await?);

    // A whole role; the node that holds one learns why.
    operator.run(&["cluster", "revoke", "--role", "worker"]).await?;
    let why = tokio::time::timeout(crate::support::PATIENCE, stays.health.lost()).await?;
    assert!(matches!(&why, Lost::Refused(text) if text.contains("revoked")), "{why:?}");
    must_be_refused(&operator, &two).await;
    let unknown = operator.home.run(&["cluster", "revoke", "absent"]).await?;
    assert_eq!(unknown.code, 2, "{unknown:?}");
    Ok(())
}

#[tokio::test]
async fn an_expired_credential_is_told_from_a_wrong_one_on_nats() -> Result {
    let operator = Operator::new(1).await?;
    let authority = operator.authority()?;
    let over = authority.brief(BusRole::Worker, None, now() - 100, 10)?;
    let error = connect(operator.options(&over)).await.err().unwrap();
    assert!(matches!(error, ConnectError::Expired { .. }), "{error}");
    assert!(error.to_string().contains("cluster join-token"), "{error}");
    Ok(())
}

#[tokio::test]
async fn another_tenant_of_the_same_nats_sees_and_reaches_nothing() -> Result {
    let operator = Operator::new(1).await?;
    operator.token("worker").await?;
    let ours = operator.authority()?;
    let theirs = ours.neighbour("theirs")?;
    let node = ours.brief(BusRole::Node, None, now(), 600)?;
    let spy = theirs.brief(BusRole::Node, None, now(), 600)?;
    // The servers do not know that account yet.
    must_be_refused(&operator, &spy).await;
    push(&theirs, &operator.options(&spy), 1, now()).await?;

    // It is let in now, to an account of its own, with nothing in it.
    let error = connect(operator.options(&spy)).await.err().unwrap();
    assert!(matches!(error, ConnectError::Unborn { .. }), "{error}");
    let storage = connect(operator.options(&node)).await?;
    let mut spying = operator.user(&spy).await?;
    let mut heard = spying.client.subscribe("cn.hb.*").await?;
    spying.client.flush().await?;
    let mut own = storage.bus.subscribe("cn.hb.*".to_owned()).await?;
    spying.client.publish("cn.hb.spy", "from them".into()).await?;
    spying.client.flush().await?;
    storage.bus.publish("cn.hb.us".to_owned(), None, "from us".into()).await?;
    // Ours comes, and theirs, which was sent before, did not.
    let first = futures_util::StreamExt::next(&mut own).await;
    let Some(clawnode_cluster::BusEvent::Message(first)) = first else {
        return Err(format!("{first:?}").into());
    };
    assert_eq!(first.subject, "cn.hb.us");
    let echo = futures_util::StreamExt::next(&mut heard).await.unwrap();
    assert_eq!(echo.subject.as_str(), "cn.hb.spy", "nothing of ours came before their own");
    let answer = spying.client.request("$JS.API.STREAM.INFO.CN_JOURNAL", "{}".into()).await?;
    let answer = String::from_utf8_lossy(&answer.payload).into_owned();
    assert!(answer.contains("not found"), "{answer}");
    while let Ok(event) = spying.told.try_recv() {
        assert!(!matches!(event, Event::Disconnected), "{event}");
    }
    Ok(())
}
