//! A long session: its requests stay within their budget as the provider counts, what was said early is recalled late,
//! what was superseded never, and the journal gives each request again, over restarts and changes of rules.

use std::fs;

use clawnode_proto::memory_view::{MemoryPointView, MemoryPoints, PointState};
use clawnode_tests::{
    model::{Act, ModelServer, Script},
    process::{Client, Home, Message, Node, ProcessError, TestBackend},
    wait::until,
};
use serde_json::{Value, json};

use super::Outcome;

const OF_ADA: &str = "default/peer/test:a:ada";
/// What is said in these turns.
const FACTS: [(usize, &str); 3] =
    [(5, "My name is Ada."), (8, "I live in Rome."), (20, "I live in Bonn.")];
const NAME: &str = "My name is Ada.";
const OLD_HOME: &str = "I live in Rome.";
const HOME: &str = "I live in Bonn.";
/// The turn in which what was said early is asked for last.
const TURNS: usize = 500;
/// Turns after which one was shown what it was looked for, also on a busy machine: a search that takes more than 150 ms
/// shows nothing.
const ASKS_MOST: usize = 20;

/// The rules of context of one part of the session.
#[derive(Clone, Copy)]
struct Rules {
    mode: &'static str,
    /// Tokens of a request beside its running turn.
    tokens: u64,
}

/// A session of one person, who says facts and asks for them.
struct LongTalk {
    server: ModelServer,
    home: Home,
    /// Turns so far.
    said: usize,
    /// The rules of each call, in order.
    rules: Vec<Rules>,
}

// === impl LongTalk ===

impl LongTalk {
    async fn new() -> Result<Self, ProcessError> {
        let server = ModelServer::start(Script::default()).await.unwrap();
        let home = Home::new(TestBackend::Local)?.anthropic(&server);
        fs::create_dir_all(home.path().join(".config/clawnode")).unwrap();
        Ok(Self { server, home, said: 0, rules: Vec::new() })
    }

    /// A node with these rules. The one before was killed.
    async fn up(&self, rules: Rules) -> Result<Node, ProcessError> {
        let Rules { mode, tokens } = rules;
        let config = format!(
            "[agents.default]\ncontext = \"{mode}\"\ncontext_tokens = {tokens}\nrecent_turns = 3\n\
             [agents.default.memory]\nlayers = [\"semantic\", \"procedural\"]\n"
        );
        fs::write(self.home.path().join(".config/clawnode/config.toml"), config).unwrap();
        Node::up(&self.home).await
    }

    /// One turn with this text; the body of its one request.
    async fn says(
        &mut self,
        client: &Client,
        rules: Rules,
        text: &str,
    ) -> Result<Value, ProcessError> {
        self.said += 1;
        self.rules.push(rules);
        self.server.push(Act::say("Noted."));
        // The text is longer than a key may be.
        let key = format!("turn-{}", self.said);
        client.chat(&Message { key, ..Message::new("ada", text) }).await?;
        Ok(serde_json::from_slice(&self.server.calls().pop().unwrap().body).unwrap())
    }

    /// Talks of other things and of facts up to this turn.
    async fn talks(&mut self, client: &Client, rules: Rules, upto: usize) -> Outcome {
        while self.said < upto {
            let turn = self.said + 1;
            let fact = FACTS.iter().find(|(at, _)| *at == turn).map(|(_, fact)| *fact);
            let other = format!("{turn} {}", "a heron counts grey pebbles ".repeat(20));
            self.says(client, rules, fact.unwrap_or(&other)).await?;
            if let Some(fact) = fact {
                until(&format!("`{fact}` is learned"), async || {
                    Ok(live(client).await?.iter().any(|known| known == fact).then_some(()))
                })
                .await?;
            }
        }
        Ok(())
    }

    /// Asks until a request shows this fact, which is no part of the history that is sent any more.
    async fn is_reminded(&mut self, client: &Client, rules: Rules, fact: &str) -> Outcome {
        for ask in 0.. {
            assert!(ask < ASKS_MOST, "no turn was shown `{fact}`");
            let asks = format!("{} what is my name, and where do I live?", self.said + 1);
            let body = self.says(client, rules, &asks).await?;
            let messages = body["messages"].as_array().unwrap();
            let (last, history) = messages.split_last().unwrap();
            let is_in_history = history
                .iter()
                .any(|message| message["role"] == "user" && text_of(message).trim() == fact);
            assert!(!is_in_history, "turn {}: the history is not bounded", self.said);
            if text_of(last).contains(fact) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// CTX-2, by what the provider reported of each call.
    async fn is_within_budgets(&self, client: &Client) -> Outcome {
        let journal: Vec<Value> = client.journal(&session()).await?;
        let done = journal.iter().filter(|event| event["kind"] == "model_done");
        let counted: Vec<u64> =
            done.map(|event| event["body"]["usage"]["input_tokens"].as_u64().unwrap()).collect();
        let calls = self.server.calls();
        assert_eq!((counted.len(), calls.len()), (self.said, self.said), "one call each turn");
        for (turn, (call, counted)) in calls.iter().zip(&counted).enumerate() {
            let Rules { mode, tokens } = self.rules[turn];
            let body: Value = serde_json::from_slice(&call.body).unwrap();
            let running = text_of(body["messages"].as_array().unwrap().last().unwrap());
            let beside = counted - running.split_whitespace().count() as u64;
            // Tokens of this provider are words, of which bytes say nearly how many there are.
            let most = tokens + tokens / 20;
            assert!(mode != "bounded" || beside <= most, "turn {}: {beside} tokens", turn + 1);
        }
        // MEM-4: what a later fact superseded is recalled by no turn after it.
        let recalled = journal.iter().filter(|event| event["kind"] == "recalled");
        let shown: Vec<&str> = recalled
            .flat_map(|event| event["body"]["points"].as_array().into_iter().flatten())
            .filter_map(|point| point["text"].as_str())
            .skip_while(|text| *text != HOME)
            .collect();
        assert!(shown.contains(&HOME) && !shown.contains(&OLD_HOME), "MEM-4: {shown:?}");
        Ok(())
    }

    async fn is_replayed_alike(&self) -> Outcome {
        for check in ["verify", "replay"] {
            let ended = self.home.run(&["journal", check]).await?;
            assert_eq!(ended.code, 0, "CTX-1: {check}: {ended:?}");
        }
        Ok(())
    }
}

fn session() -> String {
    Message::new("ada", "").session()
}

async fn points(client: &Client) -> Result<Vec<MemoryPointView>, ProcessError> {
    // A memory begins with its first point.
    let shown = client.call::<MemoryPoints>("memory.show", json!({ "memory": OF_ADA })).await;
    Ok(shown.map(|shown| shown.points).unwrap_or_default())
}

async fn live(client: &Client) -> Result<Vec<String>, ProcessError> {
    let live = points(client).await?.into_iter().filter(|point| point.state == PointState::Live);
    Ok(live.map(|point| point.text).collect())
}

/// The text of a message on Anthropic's wire.
fn text_of(message: &Value) -> String {
    let content = &message["content"];
    if let Some(text) = content.as_str() {
        return text.to_owned();
    }
    let blocks = content.as_array().into_iter().flatten();
    let texts: Vec<&str> = blocks.filter_map(|block| block["text"].as_str()).collect();
    texts.join("\n")
}

/// The rules change twice, and the node is killed each time.
#[tokio::test]
async fn a_session_of_500_turns_stays_within_its_budget_and_remembers() -> Outcome {
    let mut talk = LongTalk::new().await?;
    let first = Rules { mode: "bounded", tokens: 1_500 };
    let node = talk.up(first).await?;
    let client = node.client()?;
    talk.talks(&client, first, 49).await?;
    talk.is_reminded(&client, first, NAME).await?;
    talk.is_reminded(&client, first, HOME).await?;
    node.kill().await?;

    // Other rules in mid-session.
    let second = Rules { mode: "bounded", tokens: 1_000 };
    let node = talk.up(second).await?;
    let client = node.client()?;
    talk.talks(&client, second, TURNS - 1).await?;
    talk.is_reminded(&client, second, NAME).await?;
    talk.is_reminded(&client, second, HOME).await?;
    node.kill().await?;
    talk.is_replayed_alike().await?;

    // And the newest turns that fit into the window, as sessions of the first builds have it.
    let third = Rules { mode: "window", tokens: 1_000 };
    let node = talk.up(third).await?;
    let client = node.client()?;
    let upto = talk.said + 5;
    talk.talks(&client, third, upto).await?;
    assert_eq!(live(&client).await?, [NAME, HOME]);
    talk.is_within_budgets(&client).await?;
    assert!(talk.said > TURNS, "{} turns", talk.said);
    node.stop().await?;
    talk.is_replayed_alike().await
}
