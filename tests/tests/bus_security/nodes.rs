//! Nodes run with exactly the permissions of their roles: a gateway and two workers that joined by
//! token stream a turn, live through the loss of its owner, and are never refused anything.

use clawnode_proto::ProcessId;
use clawnode_tests::{
    model::{ModelServer, Reply, Script, Setup, Step},
    process::{Client, Home, Message, Node},
};
use serde_json::{Value, json};

use crate::support::{Operator, Result, host, node};

/// A host with a token of this role, and a model server.
async fn joining(operator: &Operator, role: &str, model: &ModelServer) -> Result<Home> {
    let token = operator.token(role).await?;
    Ok(host(token["token"].as_str().unwrap())?.anthropic(model))
}

/// The process that owns the session.
async fn owner(client: &Client, session: &str) -> Result<ProcessId> {
    let journal: Vec<Value> = client.call("journal.show", json!({ "session": session })).await?;
    let claim = journal.iter().rev().find(|event| event["kind"] == "claim").unwrap();
    Ok(serde_json::from_value(claim["incarnation"]["process"].clone())?)
}

/// A model whose first answer to `slow` stops in the middle, for ever.
async fn model() -> ModelServer {
    let steps = vec![
        Step::Text { text: "reply to: slow".to_owned() },
        Step::Gate { name: "never".to_owned() },
    ];
    let on = [("slow".to_owned(), [Reply::steps(steps).into()].into())].into();
    let setup = Setup {
        api_key: Some(Home::key().to_owned()),
        ..Setup::from(Script { on, ..Script::default() })
    };
    ModelServer::start(setup).await.unwrap()
}

#[tokio::test]
async fn joined_nodes_of_nats_stream_a_turn_and_survive_its_owner() -> Result {
    let operator = Operator::new(1).await?;
    let model = model().await;
    let doors = joining(&operator, "gateway", &model).await?;
    let (one, two) =
        (joining(&operator, "worker", &model).await?, joining(&operator, "worker", &model).await?);
    let gateway = node(&doors, "gateway").await?;
    let mut workers: Vec<Node> = vec![node(&one, "worker").await?, node(&two, "worker").await?];
    let client = gateway.client()?;
    let message = Message::new("ada", "slow");
    let mut turn = client.send(&message).await?;
    turn.begun().await?;
    let owner = owner(&client, &message.session()).await?;
    let at = workers.iter().position(|it| it.process() == Some(owner)).unwrap();
    workers.remove(at).kill().await?;
    assert_eq!(turn.completed().await?, "reply to: slow");
    // What else a gateway may: a long message goes through a blob, and agents are paused.
    let large = "long ".repeat(100_000);
    client.chat(&Message { content: large, key: "long".to_owned(), ..message.clone() }).await?;
    for method in ["agents.pause", "agents.resume"] {
        let _: Value = client.call(method, json!({ "agent": "default" })).await?;
    }
    let session = json!({ "session": message.session() });
    let _: Value = client.call("sessions.delete", session).await?;

    // Whoever has joined needs no token, and no host's clock, to come back.
    gateway.stop().await?;
    let gateway = node(&doors.var("CLAWNODE_JOIN", ""), "gateway").await?;
    gateway.client()?.chat(&Message::new("ada", "again")).await?;
    gateway.stop().await?;
    for worker in workers {
        worker.stop().await?;
    }
    let log = operator.nats.log();
    assert!(!log.contains("Violation") && !log.contains("authentication error"), "{log}");
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
    // `cluster init` wrote it into the servers' configurations.
    assert!(!info.to_string().contains("bus.sync_interval"), "{info}");
    // All three servers take what the operator tells them.
    let told = operator.run(&["cluster", "revoke", "node-1", "--json"]).await?.json()?;
    assert_eq!(told["servers"].as_array().map(Vec::len), Some(3), "{told}");
    let mut node = node;
    assert_eq!(node.ended().await?.code(), Some(77));
    let log = operator.nats.log();
    assert!(!log.contains("Violation"), "{log}");
    Ok(())
}
