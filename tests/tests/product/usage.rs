//! What model calls used, as people are shown it, beside what the journals say.

use clawnode_proto::{llm::Usage, usage::UsageView};
use clawnode_tests::{
    model::{Act, ModelServer, Reply, Script, Setup, Step, WireName},
    nats::{NatsServer, ServerOptions},
    process::{Client, Home, Message, Node, ProcessError, TestBackend},
};
use serde_json::{Value, json};

use super::Outcome;

/// The sums by user, once all calls are counted.
async fn counted(client: &Client) -> Result<UsageView, ProcessError> {
    let all = |view: &UsageView| view.behind_ms == 0;
    client.call_when("usage.show", json!({ "by": "user" }), all).await
}

/// What the journals of these people say: tokens of calls with an outcome, and attempts without one.
async fn journaled(client: &Client, people: &[&str]) -> Result<(Usage, u32), ProcessError> {
    let (mut usage, mut lost) = (Usage::default(), 0);
    for peer in people {
        let history = client.history(&Message::new(peer, "").session()).await?;
        for turn in &history.turns {
            (usage, lost) = (usage.plus(turn.usage), lost + turn.lost_attempts);
        }
    }
    Ok((usage, lost))
}

fn script() -> Script {
    let gated = Reply::steps([
        Step::Gate { name: "go".to_owned() },
        Step::Text { text: "Here I am.".to_owned() },
    ]);
    let says = ["one", "two", "three"].map(Act::say);
    // The attempt that dies, the one that takes its place, and one after it.
    Script::queue(says.into_iter().chain([Act::Reply(gated), Act::say("four"), Act::say("five")]))
}

/// Counts over a kill in the middle of a call.
async fn every_call_is_counted_once(home: &Home, server: &ModelServer) -> Outcome {
    let node = Node::up(home).await?;
    let client = node.client()?;
    for (peer, text) in [("ada", "a"), ("bob", "b"), ("ada", "c")] {
        client.chat(&Message::new(peer, text)).await?;
    }
    let view = counted(&client).await?;
    assert_eq!(view.total.done, 3, "{view:?}");
    let rows: Vec<(&str, u64)> =
        view.rows.iter().map(|row| (row.name.as_str(), row.calls.done)).collect();
    assert_eq!(rows, [("test:a:ada", 2), ("test:a:bob", 1)]);
    assert_eq!(view.total.usage, journaled(&client, &["ada", "bob"]).await?.0);

    let begun = client.send(&Message::new("bob", "d")).await?;
    server.asked(4).await;
    node.kill().await?;
    let node = Node::up(home).await?;
    let client = node.client()?;
    client.resume_from(&begun).await?.completed().await?;
    client.chat(&Message::new("ada", "e")).await?;
    let view = counted(&client).await?;
    assert_eq!((view.total.done, view.total.lost), (5, 1), "{view:?}");
    let (usage, lost) = journaled(&client, &["ada", "bob"]).await?;
    assert_eq!((view.total.usage, lost), (usage, 1));

    let table = home.run(&["usage", "--by", "model"]).await?;
    let row = table.out.lines().nth(1).unwrap_or_default();
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(cells[1..5], ["5", "0", "0", "1"], "calls, failed, gave way, lost: {table:?}");
    let ended = home.run(&["usage", "--since", "1d", "--json"]).await?;
    assert_eq!(ended.json()?["total"]["done"], json!(5), "{ended:?}");
    let future = home.run(&["usage", "--since", "2999-01-01", "--json"]).await?;
    assert_eq!(future.json()?["rows"], json!([]), "{future:?}");
    let wrong: Result<Value, _> = client.call("usage.show", json!({ "since": "soon" })).await;
    assert!(wrong.unwrap_err().to_string().contains("`soon` is not a time"));
    let wrong: Result<Value, _> = client.call("usage.show", json!({ "by": "moon" })).await;
    assert!(wrong.unwrap_err().to_string().contains("moon"));
    node.stop().await
}

#[tokio::test]
async fn use_1_calls_are_counted_over_a_kill() -> Outcome {
    let (server, home) = super::scene(script()).await;
    every_call_is_counted_once(&home, &server).await
}

#[tokio::test]
async fn use_1_calls_are_counted_over_a_kill_on_nats() -> Outcome {
    let nats = NatsServer::start(ServerOptions::default()).await.unwrap();
    let server = ModelServer::start(script()).await.unwrap();
    let backend = TestBackend::Nats { url: nats.url(), prefix: "usage".to_owned() };
    let home = Home::new(backend)?.anthropic(&server);
    every_call_is_counted_once(&home, &server).await
}

/// A provider that caches prompts, and a home whose agent has a long system prompt.
async fn cached_scene(wire: WireName) -> (ModelServer, Home) {
    let setup = Setup { caches: true, ..Setup::from(Script::default()) };
    let server = ModelServer::start(setup).await.unwrap();
    let home = Home::new(TestBackend::Local).unwrap();
    let (home, model) = match wire {
        WireName::Anthropic => (home.anthropic(&server), "anthropic/claude-sonnet-4-5"),
        _ => (home.openai(&server), "openai/gpt-4o"),
    };
    let system = "You know the house and everything in it. ".repeat(200);
    let tools = "[\"time_now\", \"calculate\"]";
    let config =
        format!("[agents.default]\nmodel = \"{model}\"\ntools = {tools}\nsystem = \"{system}\"\n");
    let path = home.path().join("config.toml");
    std::fs::write(&path, config).unwrap();
    let home = home.var("CLAWNODE_CONFIG", path.to_str().unwrap());
    (server, home)
}

#[tokio::test]
async fn a_conversation_is_read_from_the_provider_s_cache_after_a_kill_too() -> Outcome {
    for wire in [WireName::Anthropic, WireName::Openai] {
        let (server, home) = cached_scene(wire).await;
        let node = Node::up(&home).await?;
        let client = node.client()?;
        client.chat(&Message::new("ada", "one")).await?;
        client.chat(&Message::new("ada", "/tool calculate {\"expression\":\"6*7\"}")).await?;
        node.kill().await?;
        let node = Node::up(&home).await?;
        let client = node.client()?;
        client.chat(&Message::new("ada", "three")).await?;
        let session = Message::new("ada", "").session();
        let turns = client.history(&session).await?.turns;
        let used: Vec<Usage> = turns.iter().map(|turn| turn.usage).collect();
        assert_eq!(used[0].cache_read_tokens, 0, "nothing is kept yet: {used:?}");
        for later in &used[1..] {
            let percent = later.cached_percent().unwrap_or(0);
            assert!((85..100).contains(&percent), "{wire:?}: {used:?}");
        }
        let total = used.iter().fold(Usage::default(), |sum, one| sum.plus(*one));
        assert_eq!(total.cache_write_tokens > 0, wire == WireName::Anthropic);
        let view = counted(&client).await?;
        assert_eq!(view.total.usage, total, "it is counted as it was used");
        let share = format!("{}% of them cached", total.cached_percent().unwrap_or(0));
        let shown = home.run(&["sessions", "show", &session]).await?;
        assert!(shown.out.contains(&share), "{share}: {}", shown.out);
        node.stop().await?;
        server.stop().await.unwrap();
    }
    Ok(())
}

/// Replies whose provider reports no tokens, or whose stream breaks off, are counted by what came.
#[tokio::test]
async fn what_a_provider_does_not_report_is_estimated_listed_and_audited() -> Outcome {
    let said = |text: &str| Step::Text { text: text.to_owned() };
    let silent = Reply { usage: false, ..Reply::steps([said("123456789")]) };
    let cut = || Act::Reply(Reply::steps([said("123456"), Step::Flush, Step::Cut]));
    // A reply that breaks off is asked for twice more.
    let acts = [Act::Reply(silent), Act::say("two"), cut(), cut(), cut()];
    let server = ModelServer::start(Script::queue(acts)).await.unwrap();
    let home = Home::new(TestBackend::Local)?.openai(&server);
    let node = Node::up(&home).await?;
    let client = node.client()?;
    client.chat(&Message::new("ada", "a")).await?;
    client.chat(&Message::new("ada", "b")).await?;
    client.send(&Message::new("ada", "c")).await?;
    let all = |view: &UsageView| view.behind_ms == 0 && view.total.failed == 1;
    let view: UsageView = client.call_when("usage.show", json!({}), all).await?;
    let session = Message::new("ada", "").session();
    let turns = client.history(&session).await?.turns;
    let [silent, reported, ..] = &turns[..] else { panic!("{turns:?}") };
    assert_eq!((silent.usage.output_tokens, silent.usage.estimated), (3, true), "{silent:?}");
    assert!(silent.usage.input_tokens > 0 && !reported.usage.estimated, "{turns:?}");
    assert_eq!((view.total.wasted.output_tokens, view.total.wasted.estimated), (6, true));
    assert_eq!(view.total.unpriced, 3, "no limit holds: {view:?}");

    let rows = home.run(&["usage", "--calls", "--json"]).await?.json()?;
    let ends: Vec<&str> =
        rows["calls"].as_array().unwrap().iter().filter_map(|row| row["end"].as_str()).collect();
    assert_eq!(ends, ["failed", "done", "done"], "the newest first: {rows}");
    assert_eq!(
        (&rows["calls"][0]["wasted"], &rows["calls"][0]["cost"]),
        (&json!(true), &json!(null))
    );
    let day = view.rows[0].name.clone();
    let audit = home.run(&["usage", "audit", &day]).await?;
    assert!(audit.code == 0 && audit.out.contains("as counted"), "{audit:?}");
    let future = home.run(&["usage", "audit", "2999-01-01"]).await?;
    assert!(future.code != 0 && future.err.contains("last 100 days"), "{future:?}");
    node.stop().await?;
    server.stop().await.unwrap();
    Ok(())
}
