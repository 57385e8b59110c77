//! What a person finds again: titles, the newest first, and nothing that requests leave behind.

use clawnode_proto::view::{SessionList, SessionRow};
use clawnode_tests::{
    model::{Act, ModelServer, Reply, Script, Step},
    nats::{NatsServer, ServerOptions},
    process::{Client, Home, Message, Node, TestBackend},
};
use serde_json::{Value, json};

use super::Outcome;

/// A request to OpenAI's API; what was answered.
async fn complete(client: &Client, user: Option<&str>, text: &str) -> Value {
    let mut body = json!({ "model": "default", "messages": [{ "role": "user", "content": text }] });
    if let Some(user) = user {
        body["user"] = json!(user);
    }
    let request = reqwest::Client::new()
        .post(format!("{}/v1/chat/completions", client.url()))
        .bearer_auth(client.token())
        .json(&body);
    let answer: Value = request.send().await.unwrap().json().await.unwrap();
    answer["choices"][0]["message"]["content"].clone()
}

async fn list(client: &Client, stateless: bool) -> Result<SessionList, super::ProcessError> {
    client.call("sessions.list", json!({ "stateless": stateless })).await
}

fn titles(list: &SessionList) -> Vec<&str> {
    list.sessions.iter().filter_map(|row| row.title.as_deref()).collect()
}

/// Requests without a user leave nothing behind, and one that is still being answered is answered.
async fn go_by_themselves(home: Home, server: &ModelServer) -> Outcome {
    let home = home.var("CLAWNODE_SESSION__KEEP_STATELESS", "1s");
    let node = Node::up(&home).await?;
    let client = node.client()?;
    let slow = node.client()?;
    let waiting = tokio::spawn(async move { complete(&slow, None, "take your time").await });
    let begun = |list: &SessionList| !list.sessions.is_empty();
    let all = json!({ "stateless": true });
    let _: SessionList = client.call_when("sessions.list", all.clone(), begun).await?;
    server.asked(1).await;
    assert_eq!(complete(&client, Some("ada"), "who am I?").await, "You are ada.");
    assert_eq!(complete(&client, None, "what is up?").await, "Nothing.");
    let shown = list(&client, false).await?;
    assert_eq!(titles(&shown), ["who am I?"]);
    let gone = |list: &SessionList| titles(list) == ["who am I?", "take your time"];
    let left: SessionList = client.call_when("sessions.list", all.clone(), gone).await?;
    let running: Vec<&SessionRow> = left.sessions.iter().filter(|row| row.stateless).collect();
    assert_eq!(running.len(), 1, "{left:?}");
    assert_eq!(running[0].state, "running", "{left:?}");
    server.open("go");
    assert_eq!(waiting.await.unwrap(), "Here I am.");
    let gone = |list: &SessionList| titles(list) == ["who am I?"];
    let _: SessionList = client.call_when("sessions.list", all, gone).await?;
    // A person's session stays, and knows what was said.
    let ada = json!({ "session": "default:openai:default:ada" });
    let history: Value = client.call("sessions.history", ada).await?;
    assert!(history.to_string().contains("You are ada."), "{history}");
    node.stop().await
}

fn script() -> Script {
    Script::queue([
        Act::Reply(Reply::steps([
            Step::Gate { name: "go".to_owned() },
            Step::Text { text: "Here I am.".to_owned() },
        ])),
        Act::say("You are ada."),
        Act::say("Nothing."),
    ])
}

#[tokio::test]
async fn stateless_sessions_go_by_themselves() -> Outcome {
    let (server, home) = super::scene(script()).await;
    go_by_themselves(home, &server).await
}

#[tokio::test]
async fn stateless_sessions_go_by_themselves_in_a_cluster() -> Outcome {
    let nats = NatsServer::start(ServerOptions::default()).await.unwrap();
    let server = ModelServer::start(script()).await.unwrap();
    let backend = TestBackend::Nats { url: nats.url(), prefix: "lists".to_owned() };
    let home = Home::new(backend)?.anthropic(&server).var("CLAWNODE_CLUSTER__PARTITIONS", "8");
    go_by_themselves(home, &server).await
}

/// The same without a node.
#[tokio::test]
async fn a_directory_lists_its_sessions_as_a_node_does() -> Outcome {
    let (_server, home) = super::scene(Script::default()).await;
    let node = Node::up(&home).await?;
    let client = node.client()?;
    for peer in ["ada", "bob", "eve"] {
        client.chat(&Message::new(peer, &format!("I  am {peer}"))).await?;
    }
    let online = list(&client, false).await?;
    assert_eq!(titles(&online), ["I am eve", "I am bob", "I am ada"]);
    node.stop().await?;
    let offline = home.run(&["sessions", "list", "--json", "--limit", "2"]).await?;
    let first: SessionList = serde_json::from_str(&offline.out).unwrap();
    assert_eq!(first.sessions.len(), 2, "{first:?}");
    let next = first.next.as_ref().unwrap();
    let rest = home.run(&["sessions", "list", "--json", "--cursor", next.as_str()]).await?;
    let rest: SessionList = serde_json::from_str(&rest.out).unwrap();
    assert!(rest.next.is_none(), "{rest:?}");
    // In what order they were handed over at the stop is no matter.
    let mut all: Vec<&str> = titles(&first).into_iter().chain(titles(&rest)).collect();
    all.sort_unstable();
    assert_eq!(all, ["I am ada", "I am bob", "I am eve"]);
    // A cursor may begin like a flag: one in 64 does.
    let cut = home.run(&["sessions", "list", "--cursor", "-cursor"]).await?;
    assert!(cut.err.contains("it is not a cursor of `sessions.list`"), "{}", cut.err);
    let refused = home.run(&["sessions", "list", "--since", "monday"]).await?;
    assert!(refused.err.contains("`monday` is not a time"), "{}", refused.err);
    Ok(())
}
