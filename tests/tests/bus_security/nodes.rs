//! Nodes run with exactly the permissions of their roles: a gateway and two workers that joined by
//! token stream a turn, live through the loss of its owner, and are never refused anything.

use std::time::Duration;

use bytes::Bytes;
use clawnode_cluster::{Storage, StoreError};
use clawnode_nats::{
    NatsOptions,
    auth::{Authority, BusRole},
    connect,
};
use clawnode_proto::{
    CallId, EventId, JobId, Position, ProcessId, SessionKey, TurnId,
    job::Job,
    subject::{Prefix, job_key},
    tool::EffectClass,
    view::{ParkedList, ParkedWhere, QuarantineView, StatusView},
};
use clawnode_tests::{
    model::{ModelServer, Reply, Script, Setup, Step},
    process::{Client, Home, Message, Node, Start},
};
use serde_json::{Value, json};

use crate::support::{Operator, PATIENCE, Result, host, node, now};

/// A host with a token of this role, and a model server.
async fn joining(operator: &Operator, role: &str, model: &ModelServer) -> Result<Home> {
    let token = operator.token(role).await?;
    let home = host(token["token"].as_str().unwrap())?.anthropic(model);
    let settings = home.path().join(".config/clawnode");
    std::fs::create_dir_all(&settings)?;
    let tools = "[agents.default]\ntools = [\"http_fetch\"]\n";
    std::fs::write(settings.join("config.toml"), tools)?;
    Ok(home)
}

/// The process that owns the session.
async fn owner(client: &Client, session: &str) -> Result<ProcessId> {
    let journal: Vec<Value> = client.journal(session).await?;
    let claim = journal.iter().rev().find(|event| event["kind"] == "claim").unwrap();
    Ok(serde_json::from_value(claim["incarnation"]["process"].clone())?)
}

/// A model whose first answer to `slow` stops in the middle, for ever.
async fn model() -> ModelServer {
    let steps = vec![
        Step::Text { text: "reply to: slow".to_owned() },
        Step::Gate { name: "never".to_owned() },
    ];
    let replies = [("slow".to_owned(), [Reply::steps(steps).into()].into())].into();
    let setup = Setup {
        api_key: Some(Home::key().to_owned()),
        ..Setup::from(Script { on: replies, ..Script::default() })
    };
    ModelServer::start(setup).await.unwrap()
}

#[tokio::test]
async fn joined_nodes_of_nats_stream_a_turn_and_survive_its_owner() -> Result {
    let operator = Operator::new(1).await?;
    let model = model().await;
    let storage = joining(&operator, "gateway", &model).await?;
    let (one, two) =
        (joining(&operator, "worker", &model).await?, joining(&operator, "worker", &model).await?);
    let gateway = node(&storage, "gateway").await?;
    let mut workers: Vec<Node> = vec![node(&one, "worker").await?, node(&two, "worker").await?];
    let client = gateway.client()?;
    let message = Message::new("ada", "slow");
    let mut turn = client.send(&message).await?;
    turn.begun().await?;
    let owner = owner(&client, &message.session()).await?;
    let at = workers.iter().position(|worker| worker.process() == Some(owner)).unwrap();
    workers.remove(at).kill().await?;
    assert_eq!(turn.completed().await?, "reply to: slow");
    // A job goes from its session to whichever worker, and its result back.
    let asks = r#"/tool http_fetch {"url":"http://127.0.0.1/"}"#;
    let reply = client.chat(&Message::new("bob", asks)).await?;
    assert!(reply.contains("loopback"), "{reply}");
    // So do the steps of a plan, which a gateway reads from the journal.
    let step = json!({ "action": "http_fetch", "params": { "url": "http://127.0.0.1/" } });
    let spec = json!({ "steps": [step] });
    let plan = json!({ "execution_spec": spec, "request_id": "one", "wait_ms": 10_000 });
    for _ in 0..2 {
        let view: Value = client.call("execute", plan.clone()).await?;
        assert_eq!(view["status"], "FAILED", "{view}");
        assert!(view["error"]["message"].as_str().unwrap().contains("loopback"), "{view}");
        let shown = json!({ "execution_id": view["execution_id"] });
        assert_eq!(client.call::<Value>("execute.show", shown).await?, view);
    }
    // What else a gateway may: a long message goes through a blob, and agents are paused.
    let large = "long ".repeat(100_000);
    client.chat(&Message { content: large, key: "long".to_owned(), ..message.clone() }).await?;
    for method in ["agents.pause", "agents.resume"] {
        let _: Value = client.call(method, json!({ "agent": "default" })).await?;
    }
    let session = json!({ "session": message.session() });
    let _: Value = client.call("sessions.delete", session).await?;

    // A node that has joined needs no token, and no host's clock, to come back.
    gateway.stop().await?;
    let gateway = node(&storage.var("CLAWNODE_JOIN", ""), "gateway").await?;
    gateway.client()?.chat(&Message::new("ada", "again")).await?;
    gateway.stop().await?;
    for worker in workers {
        worker.stop().await?;
    }
    let log = operator.nats.log();
    assert!(!log.contains("Violation") && !log.contains("authentication error"), "{log}");
    Ok(())
}

/// What an operator does about sessions out of service is done through a gateway, which may read what
/// waits and may not remove it.
#[tokio::test]
async fn a_gateway_of_nats_serves_what_operators_do_about_sessions_out_of_service() -> Result {
    let operator = Operator::new(1).await?;
    let model = model().await;
    let storage = joining(&operator, "gateway", &model).await?;
    let one = joining(&operator, "worker", &model).await?;
    let gateway = node(&storage, "gateway").await?;
    let kill = Some("poison-panic:xyzzy".to_owned());
    let worker = Node::start(&one, Start { kill, ..Start::role("worker") }).await?;
    let client = gateway.client()?;
    let poisoned = Message::new("eve", "something xyzzy something");
    let refused = client.chat(&poisoned).await.unwrap_err();
    assert_eq!(
        refused.refusal().map(|refusal| refusal.code.as_str()),
        Some("quarantined"),
        "{refused}"
    );
    let session = json!({ "session": poisoned.session() });
    let shown: QuarantineView = client.call("quarantine.show", session.clone()).await?;
    assert_eq!(shown.session.state, "quarantined", "{shown:?}");
    // Waiting inputs are shown while no worker is there to take them.
    worker.kill().await?;
    let more = Message::new("eve", "are you there?");
    drop(client.send(&more).await?);
    let shown: QuarantineView = client.call("quarantine.show", session.clone()).await?;
    let [waits] = &shown.inputs[..] else { panic!("{shown:?}") };
    assert_eq!(waits.at, ParkedWhere::Inbox, "{shown:?}");

    // Bytes that no node can read, from a user that may write them.
    let authority = operator.authority()?;
    let user = operator.user(&authority.brief(BusRole::Gateway, None, now(), 3_600)?).await?;
    let entity = Message::new("ada", "").session().parse::<SessionKey>()?.entity();
    let partitions: StatusView = client.call("status", json!({})).await?;
    let subject = Prefix::default().input(entity.partition(partitions.partitions), entity);
    user.client.publish(subject, "no input at all".into()).await?;
    user.client.flush().await?;
    let worker = node(&one.var("CLAWNODE_JOIN", ""), "worker").await?;
    let letter = |list: &ParkedList| list.parked.iter().find_map(|row| row.letter.clone());
    let some = |list: &ParkedList| letter(list).is_some();
    let parked: ParkedList = client.call_when("parked.list", json!({}), some).await?;
    let name = json!({ "letter": letter(&parked).unwrap() });
    let _: Value = client.call("parked.drop", name.clone()).await?;
    let parked: ParkedList = client.call("parked.list", json!({})).await?;
    assert_eq!(letter(&parked), None, "{parked:?}");
    let refused = client.call::<Value>("parked.drop", name).await.unwrap_err();
    assert_eq!(
        refused.refusal().map(|refusal| refusal.code.as_str()),
        Some("not_found"),
        "{refused}"
    );

    let _: Value = client.call("quarantine.replay", session).await?;
    client.finished(&poisoned.session(), 2).await?;
    worker.stop().await?;
    gateway.stop().await?;
    let log = operator.nats.log();
    assert!(!log.contains("Violation"), "{log}");
    Ok(())
}

#[tokio::test]
async fn one_node_with_both_roles_on_three_servers_of_nats() -> Result {
    let operator = Operator::new(3).await?;
    let token = operator.token("gateway,worker").await?;
    let home = host(token["token"].as_str().unwrap())?;
    let node = Node::up(&home).await?;
    let reply = node.client()?.chat(&Message::new("ada", "hello")).await?;
    assert!(reply.contains("hello"), "{reply}");
    let info: Value = node.client()?.call("status", json!({})).await?;
    assert!(info["substrate"].as_str().unwrap_or_default().contains("3 replicas"), "{info}");
    // All three servers take what the operator tells them.
    let told = operator.run(&["cluster", "revoke", "node-1", "--json"]).await?.json()?;
    assert_eq!(told["servers"].as_array().map(Vec::len), Some(3), "{told}");
    let mut node = node;
    assert_eq!(node.ended().await?.code(), Some(77));
    let log = operator.nats.log();
    assert!(!log.contains("Violation"), "{log}");
    Ok(())
}

fn job() -> Result<Job> {
    Ok(Job {
        id: JobId::from_u128(1),
        capability: "mcp:files.v1".parse()?,
        session: "a:cli:local:p".parse()?,
        turn: TurnId::from_u128(1),
        call: CallId::from_u128(1),
        nonce: EventId::from_u128(1),
        tool: "tool".parse()?,
        arguments: "{}".to_owned(),
        class: EffectClass::Safe,
        timeout_ms: 1_000,
        limit: None,
        action: None,
        callbacks: None,
        traceparent: None,
        not_after: None,
    })
}

/// The handles, as this role has them. What it may not ask takes `request_timeout`.
async fn storage(
    operator: &Operator,
    authority: &Authority,
    role: BusRole,
    request_timeout: Duration,
) -> Result<Storage> {
    let credential = authority.brief(role, None, now(), 3_600)?;
    Ok(connect(NatsOptions { request_timeout, ..operator.options(&credential) }).await?)
}

/// What is said to who asks. A refusal comes beside the answer that does not, and may come after
/// its time.
async fn told_at_last(asked: impl AsyncFn() -> Option<StoreError>) -> Result<Option<StoreError>> {
    let told = async {
        loop {
            match asked().await {
                Some(error) if error.is_transient() => {}
                told => return told,
            }
        }
    };
    Ok(tokio::time::timeout(PATIENCE, told).await?)
}

#[tokio::test]
async fn a_worker_of_nats_puts_and_takes_jobs_and_a_gateway_does_not() -> Result {
    let operator = Operator::new(1).await?;
    // Gives birth.
    operator.token("worker").await?;
    let authority = operator.authority()?;
    let worker = storage(&operator, &authority, BusRole::Worker, Duration::from_secs(5)).await?;
    let job = job()?;
    worker.jobs.put(&job).await?;
    worker.jobs.put(&job).await?;
    let mut consumer = worker.jobs.consume(&job.capability).await?;
    let first = tokio::time::timeout(PATIENCE, consumer.next()).await??;
    first.handle.progress().await?;
    first.handle.nak(Duration::ZERO).await?;
    let again = tokio::time::timeout(PATIENCE, consumer.next()).await??;
    assert!(again.redelivered && again.job_id == job.id, "{again:?}");
    let key = job_key(job.id);
    let put = async |expected, ttl| {
        worker.bucket.put(&key, expected, Bytes::from_static(b"state"), ttl).await
    };
    let started = put(Position(0), None).await?;
    put(started, Some(Duration::from_hours(1))).await?;
    assert!(worker.bucket.get(&key).await?.is_some());
    again.handle.ack().await?;
    tokio::time::timeout(PATIENCE, async {
        while worker.jobs.pending(&job.capability).await? > 0 {}
        Ok::<_, StoreError>(())
    })
    .await??;
    let log = operator.nats.log();
    assert!(!log.contains("Violation"), "{log}");

    let gateway = storage(&operator, &authority, BusRole::Gateway, Duration::from_secs(2)).await?;
    assert_eq!(gateway.jobs.pending(&job.capability).await?, 0, "it may look");
    let refused = told_at_last(async || gateway.jobs.put(&job).await.err()).await?;
    assert!(matches!(refused, Some(StoreError::Refused { .. })), "{refused:?}");
    let consume = async || gateway.jobs.consume(&job.capability).await.err();
    let refused = told_at_last(consume).await?;
    assert!(matches!(refused, Some(StoreError::Refused { .. })), "{refused:?}");
    assert!(gateway.bucket.put("js.x", Position(0), Bytes::new(), None).await.is_err());
    Ok(())
}
