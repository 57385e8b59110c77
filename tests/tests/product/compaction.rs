//! A conversation that is larger than its model's window: a second model makes a summary of its oldest turns.

use clawnode_proto::usage::UsageView;
use clawnode_tests::{
    model::{Act, ModelServer, Reply, Script, Step},
    nats::{NatsServer, ServerOptions},
    process::{Client, Home, Message, Node, ProcessError, TestBackend},
};
use serde_json::json;

use super::Outcome;

const CONFIG: &str = "\
[agents.default]
model = \"anthropic/claude-sonnet-4-5\"
compact_model = \"openai/gpt-4o-mini\"
context = \"window\"
window_tokens = 4000
";
/// What the first turn says, and what the summary makes of it.
const FACT: &str = "my cat is called Miro";
const SUMMARY: &str = "The user has a cat, Miro";
/// Turns after which the window is full, whatever the server reports.
const TURNS_MOST: usize = 30;

/// A session, and the servers of its two models.
struct Scene {
    home: Home,
    chats: ModelServer,
    summaries: ModelServer,
    said: usize,
}

impl Scene {
    async fn new(backend: TestBackend, summaries: Script) -> Result<Self, ProcessError> {
        let chats = ModelServer::start(Script::default()).await.unwrap();
        let summaries = ModelServer::start(summaries).await.unwrap();
        let home = Home::new(backend)?.anthropic(&chats).openai(&summaries);
        let settings = home.path().join(".config/clawnode");
        std::fs::create_dir_all(&settings).unwrap();
        std::fs::write(settings.join("config.toml"), CONFIG).unwrap();
        Ok(Self { home, chats, summaries, said: 0 })
    }

    fn next(&mut self) -> Message {
        self.said += 1;
        let said = if self.said == 1 { FACT.to_owned() } else { format!("and {}", self.said) };
        let message = Message::new("ada", &format!("{said} {}", "word ".repeat(400)));
        Message { key: format!("m{}", self.said), ..message }
    }

    /// Talks until the next summary is asked for, in a turn that is over then.
    async fn chats_until_asked(&mut self, client: &Client, times: usize) -> Outcome {
        while self.summaries.calls().len() < times {
            assert!(self.said < TURNS_MOST, "no summary was asked for");
            let message = self.next();
            let shown = client.chat(&message).await?;
            // The server echoes what it was sent, with the summary in it.
            assert!(shown.starts_with("reply to: "), "people are shown the reply alone: {shown}");
        }
        Ok(())
    }

    /// What the model was sent last.
    fn last(&self) -> String {
        let calls = self.chats.calls();
        String::from_utf8_lossy(&calls.last().unwrap().body).into_owned()
    }
}

fn session() -> String {
    Message::new("ada", "").session()
}

/// A provider that is down changes nothing, and the next turn has a summary.
async fn goes_on_with_a_summary(backend: TestBackend) -> Outcome {
    let acts = [Act::status(400, "no"), Act::say(SUMMARY)];
    let mut scene = Scene::new(backend, Script::queue(acts)).await?;
    let node = Node::up(&scene.home).await?;
    let client = node.client()?;
    scene.chats_until_asked(&client, 1).await?;
    assert!(!scene.last().contains("[A summary"), "COMP-1");
    scene.chats_until_asked(&client, 2).await?;
    let last = scene.last();
    assert!(last.contains(SUMMARY) && !last.contains(FACT), "{last}");
    let asked = scene.summaries.calls();
    assert!(String::from_utf8_lossy(&asked[1].body).contains(FACT));

    // It stays, and nothing else is asked for.
    let message = scene.next();
    client.chat(&message).await?;
    assert!(scene.last().contains(SUMMARY));
    assert_eq!(scene.summaries.calls().len(), 2);
    let history = serde_json::to_string(&client.history(&session()).await?).unwrap();
    assert!(history.contains(FACT), "people are shown everything");
    let usage: UsageView = client
        .call_when("usage.show", json!({ "by": "model" }), |view: &UsageView| view.behind_ms == 0)
        .await?;
    let row = usage.rows.iter().find(|row| row.name.contains("gpt-4o-mini"));
    assert_eq!(row.map(|row| (row.calls.done, row.calls.failed)), Some((1, 1)), "{usage:?}");
    let context = scene.home.run(&["sessions", "context", &session(), "--brief"]).await?;
    assert!(context.out.contains("summary of older turns"), "{context:?}");
    assert!(context.out.contains("a summary is in its place"), "{context:?}");
    node.stop().await?;
    // Without a node, only a data directory can be read.
    if matches!(scene.home.backend(), TestBackend::Local) {
        let replayed = scene.home.run(&["journal", "replay", &session()]).await?;
        assert_eq!(replayed.code, 0, "{replayed:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_long_conversation_goes_on_with_a_summary() -> Outcome {
    goes_on_with_a_summary(TestBackend::Local).await
}

#[tokio::test]
async fn a_long_conversation_goes_on_with_a_summary_on_nats() -> Outcome {
    let nats = NatsServer::start(ServerOptions::default()).await.unwrap();
    goes_on_with_a_summary(TestBackend::Nats { url: nats.url(), prefix: "compact".to_owned() })
        .await
}

/// The call of a summary that a crash interrupts is made once more, and one that is recorded never.
#[tokio::test]
async fn a_kill_in_the_middle_of_a_summary_loses_nothing() -> Outcome {
    let gated = Reply::steps([Step::Gate { name: "never".to_owned() }]);
    let script = Script::queue([Act::Reply(gated), Act::say(SUMMARY)]);
    let mut scene = Scene::new(TestBackend::Local, script).await?;
    let mut node = Node::up(&scene.home).await?;
    let client = node.client()?;
    let begun = loop {
        assert!(scene.said < TURNS_MOST, "no summary was asked for");
        let message = scene.next();
        let begun = client.send(&message).await?;
        let calls = scene.said as u64;
        tokio::select! {
            _ = scene.summaries.asked(1) => break begun,
            _ = scene.chats.asked(calls) => {
                client.resume_from(&begun).await?.completed().await?;
            }
        }
    };
    node.kill().await?;
    node = Node::up(&scene.home).await?;
    let client = node.client()?;
    client.resume_from(&begun).await?.completed().await?;
    assert_eq!(scene.summaries.calls().len(), 2);
    let last = scene.last();
    assert!(last.contains(SUMMARY) && !last.contains(FACT), "{last}");
    let history = client.history(&session()).await?;
    assert_eq!(history.turns.last().unwrap().lost_attempts, 1);

    // What is recorded is not asked for again after another crash.
    node.kill().await?;
    let node = Node::up(&scene.home).await?;
    let message = scene.next();
    node.client()?.chat(&message).await?;
    assert!(scene.last().contains(SUMMARY));
    assert_eq!(scene.summaries.calls().len(), 2);
    node.stop().await?;
    assert_eq!(scene.home.run(&["journal", "replay", &session()]).await?.code, 0);
    Ok(())
}
