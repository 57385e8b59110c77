//! What an agent has done, counted from journals on a real node: over a kill, and without what was deleted.

use std::fs;

use clawnode_proto::{
    agent_profile::AgentProfile,
    agent_work::{ToolEnds, TurnEnds},
};
use clawnode_tests::{
    model::{Act, ModelServer, Script},
    nats::{NatsServer, ServerOptions},
    process::{Client, Home, Message, Node, ProcessError, TestBackend},
};
use serde_json::{Value, json};

use super::Outcome;

const CONFIG: &str = "[agents.default]\ntools = [\"calculate\", \"time_now\"]\n";
const SKILL: &str = "---\nname: sums\ndescription: Adds up.\nmetadata:\n  triggers: add it up\n---\n\
                     Add one by one.\n";
/// A comment is personal, and no part of a profile.
const COMMENT: &str = "Words of a person.";

fn home(backend: TestBackend, server: &ModelServer) -> Result<Home, ProcessError> {
    let home = Home::new(backend)?.anthropic(server);
    let settings = home.path().join(".config/clawnode");
    fs::create_dir_all(settings.join("skills/sums")).unwrap();
    fs::write(settings.join("config.toml"), CONFIG).unwrap();
    fs::write(settings.join("skills/sums/SKILL.md"), SKILL).unwrap();
    Ok(home)
}

/// The profile once all is counted.
async fn counted(client: &Client) -> Result<AgentProfile, ProcessError> {
    let all = |profile: &AgentProfile| profile.behind_ms == 0;
    client.call_when("agents.profile", json!({ "agent": "default" }), all).await
}

/// Turns of each kind: with tools that end well and badly, with a skill, one that is cancelled, and one whose session is
/// deleted.
async fn works(client: &Client, server: &ModelServer) -> Outcome {
    let calls = "/tool calculate {\"expression\":\"6*7\"}\n/tool calculate {\"expression\":\"6*\"}\n\
                 /tool nothing {}";
    client.chat(&Message { key: "calls".to_owned(), ..Message::new("ada", calls) }).await?;
    client.chat(&Message::new("ada", "please add it up")).await?;
    let before = server.count();
    let waits = client.send(&Message::new("bob", "wait")).await?;
    server.asked(before + 1).await;
    let cancelled = json!({ "session": waits.session, "turn": waits.turn });
    let _: Value = client.call("chat.cancel", cancelled).await?;
    client.finished(&waits.session, 1).await?;
    let gone = Message::new("eve", "hello");
    client.chat(&gone).await?;
    counted(client).await?;
    let _: Value = client.call("sessions.delete", json!({ "session": gone.session() })).await?;
    Ok(())
}

async fn refusals(home: &Home, client: &Client) -> Outcome {
    let unknown = home.run(&["agents", "profile", "defualt"]).await?;
    assert!(
        unknown.code != 0 && unknown.err.contains("no agent is named `defualt`"),
        "{unknown:?}"
    );
    assert!(unknown.err.contains("did you mean `default`?"), "{unknown:?}");
    let soon = home.run(&["agents", "profile", "default", "--since", "soon"]).await?;
    assert!(soon.code != 0 && soon.err.contains("`soon` is not a time"), "{soon:?}");
    let future = home.run(&["agents", "profile", "default", "--since", "2999-01-01"]).await?;
    assert!(future.code == 0 && future.out.contains("none are counted"), "{future:?}");
    let wrong: Result<Value, _> =
        client.call("agents.profile", json!({ "agent": "no name" })).await;
    assert!(wrong.unwrap_err().to_string().contains("agent"));
    Ok(())
}

/// Asks over HTTP.
async fn over_http(client: &Client) -> Value {
    let url = format!("{}/v1/agents/default/profile?since=1d", client.url());
    let request = reqwest::Client::builder().no_proxy().build().unwrap().get(url);
    request.bearer_auth(client.token()).send().await.unwrap().json().await.unwrap()
}

async fn all_that_was_done_is_counted_once(backend: TestBackend) -> Outcome {
    let script = Script::default().turn("wait", [Act::Stall]);
    let server = ModelServer::start(script).await.unwrap();
    let home = home(backend, &server)?;
    let node = Node::up(&home).await?;
    let client = node.client()?;
    works(&client, &server).await?;
    let session = Message::new("ada", "").session();
    let rated = client.history(&session).await?.turns;
    for (turn, thumb) in [(&rated[0], "up"), (&rated[0], "down"), (&rated[1], "up")] {
        let turn = turn.turn.to_string();
        let given = home.run(&["feedback", &session, &turn, thumb, "--comment", COMMENT]).await?;
        assert_eq!(given.code, 0, "{given:?}");
    }
    let all = |profile: &AgentProfile| {
        profile.behind_ms == 0 && (profile.feedback.up, profile.feedback.down) == (1, 1)
    };
    let params = json!({ "agent": "default" });
    let profile: AgentProfile = client.call_when("agents.profile", params, all).await?;
    assert_eq!(profile.turns, TurnEnds { succeeded: 3, failed: 0, neither: 1 }, "{profile:?}");
    assert_eq!((profile.success_rate, profile.time.unwrap().turns), (Some(1.0), 3));
    let ends = ToolEnds { done: 1, failed: 1, ..ToolEnds::default() };
    let tools: Vec<_> = profile.tools.iter().map(|row| (&*row.name, row.ends)).collect();
    assert_eq!((tools, profile.not_run), (vec![("calculate", ends)], 1));
    let skill = &profile.skills[..];
    assert!(matches!(skill, [row] if row.name == "sums" && row.ends.succeeded == 1), "{skill:?}");
    assert_eq!((profile.feedback.up, profile.feedback.down), (1, 1));
    assert_eq!((profile.models.len(), profile.calls.done), (1, 4), "{profile:?}");

    // Another process follows the same journals from where that is saved, or further back.
    node.kill().await?;
    let node = Node::up(&home).await?;
    let client = node.client()?;
    assert_eq!(counted(&client).await?, profile);
    let answer = over_http(&client).await;
    assert_eq!(answer["turns"], json!({ "succeeded": 3, "failed": 0, "neither": 1 }), "{answer}");
    assert!(!answer.to_string().contains(COMMENT));
    let shown = home.run(&["agents", "profile", "default", "--since", "1d"]).await?;
    for part in ["100.0% of 3 turns", "3 completed, 1 cancelled", "1 up, 1 down (50.0% up)"] {
        assert!(shown.out.contains(part), "{part}: {shown:?}");
    }
    let json = home.run(&["agents", "profile", "default", "--json"]).await?.json()?;
    assert_eq!((&json["tools"][0]["failed"], &json["not_run"]), (&json!(1), &json!(1)), "{json}");
    refusals(&home, &client).await?;
    node.stop().await
}

#[tokio::test]
async fn what_an_agent_did_is_counted_over_a_kill() -> Outcome {
    all_that_was_done_is_counted_once(TestBackend::Local).await
}

#[tokio::test]
async fn what_an_agent_did_is_counted_over_a_kill_on_nats() -> Outcome {
    let nats = NatsServer::start(ServerOptions::default()).await.unwrap();
    let backend = TestBackend::Nats { url: nats.url(), prefix: "profile".to_owned() };
    all_that_was_done_is_counted_once(backend).await
}
