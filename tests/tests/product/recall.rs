//! What the turns of an agent are reminded of, and what the files of a store keep.

use std::{fs, path::Path};

use clawnode_proto::{
    memory_view::{MemoryPutView, MemorySearchView},
    overview::NodeList,
};
use clawnode_tests::{
    model::{Act, ModelServer, Reply, Script, Step},
    nats::{NatsServer, ServerOptions},
    process::{Client, Home, Message, Node, ProcessError, TestBackend, Turn},
    wait::until,
};
use serde_json::json;

use super::Outcome;

const CONFIG: &str = "[agents.default.memory]\n";
const OF_ADA: &str = "Tea is at the lighthouse.";
const OF_BEN: &str = "Tea is at the harbour.";
const LATER: &str = "Tea smells of smoke.";
/// Turns after which one was shown what it was looked for, also on a busy machine: a search that takes more than 150 ms
/// shows nothing.
const TURNS_MOST: usize = 20;

/// An agent with memory.
struct RemindedAgent {
    home: Home,
    server: ModelServer,
    said: usize,
}

// === impl RemindedAgent ===

impl RemindedAgent {
    async fn new(backend: TestBackend) -> Result<Self, ProcessError> {
        let server = ModelServer::start(Script::default()).await.unwrap();
        let home = home(backend, &server)?;
        Ok(Self { home, server, said: 0 })
    }

    /// Puts a point by the command line; gives its id.
    async fn learns(&self, peer: &str, text: &str) -> Result<String, ProcessError> {
        let memory = memory(peer);
        let put = self.home.run(&["memory", "put", &memory, text, "--json"]).await?;
        Ok(put.json()?["added"][0].as_str().unwrap().to_owned())
    }

    /// Has turns of a peer until the call of one is shown this, and waits in it.
    async fn asks(
        &mut self,
        client: &Client,
        peer: &str,
        shown: &str,
    ) -> Result<(Turn, String), ProcessError> {
        let mut turns = 0;
        loop {
            assert!(turns < TURNS_MOST, "no turn of {peer} was shown `{shown}`: {}", self.last());
            turns += 1;
            self.said += 1;
            let gate = format!("gate {}", self.said);
            let (wait, text) = (Step::Gate { name: gate.clone() }, "Noted.".to_owned());
            self.server.push(Reply::steps([wait, Step::Text { text }]));
            let calls = self.server.count();
            let said = format!("{peer} asks {}: when is tea?", self.said);
            let turn = client.send(&Message::new(peer, &said)).await?;
            self.server.asked(calls + 1).await;
            let body = self.last();
            if body.contains(shown) {
                return Ok((turn, gate));
            }
            self.server.open(&gate);
            client.resume_from(&turn).await?.completed().await?;
        }
    }

    /// What the model was sent last.
    fn last(&self) -> String {
        self.bodies().pop().unwrap()
    }

    fn bodies(&self) -> Vec<String> {
        let calls = self.server.calls();
        calls.iter().map(|call| String::from_utf8_lossy(&call.body).into_owned()).collect()
    }

    /// Whether a file of the store has this text.
    fn keeps(&self, text: &str) -> bool {
        keeps(&self.home, text)
    }
}

/// A home whose agent has a memory.
fn home(backend: TestBackend, server: &ModelServer) -> Result<Home, ProcessError> {
    let home = Home::new(backend)?.anthropic(server);
    let settings = home.path().join(".config/clawnode");
    fs::create_dir_all(&settings).unwrap();
    fs::write(settings.join("config.toml"), CONFIG).unwrap();
    Ok(home)
}

fn memory(peer: &str) -> String {
    format!("default/peer/test:a:{peer}")
}

/// Whether a file of the store of a home has this text.
fn keeps(home: &Home, text: &str) -> bool {
    has(&home.data().join("memory"), text.as_bytes())
}

/// Whether a file here has these bytes.
pub(super) fn has(path: &Path, text: &[u8]) -> bool {
    if path.is_dir() {
        return fs::read_dir(path).unwrap().any(|entry| has(&entry.unwrap().path(), text));
    }
    // A file that was there when the folder was read may have its last name by now.
    fs::read(path).unwrap_or_default().windows(text.len()).any(|window| window == text)
}

async fn reminds_and_forgets(backend: TestBackend) -> Outcome {
    let mut agent = RemindedAgent::new(backend).await?;
    let node = Node::up(&agent.home).await?;
    let client = node.client()?;
    let tea = agent.learns("ada", OF_ADA).await?;
    agent.learns("ben", OF_BEN).await?;
    let (turn, _) = agent.asks(&client, "ada", OF_ADA).await?;
    let first = agent.last();
    let label = r#"of=\"this person\" said_by=\"operator\""#;
    assert!(first.contains(&tea) && first.contains(label), "{first}");
    let session = Message::new("ada", "").session();
    let context = agent.home.run(&["sessions", "context", &session]).await?;
    assert!(context.out.contains("recalled"), "{context:?}");

    // The call is made again after a crash, and shown what it was shown, whatever was learned since.
    agent.learns("ada", LATER).await?;
    node.kill().await?;
    agent.server.push(Act::say("Noted."));
    let node = Node::up(&agent.home).await?;
    let client = node.client()?;
    client.resume_from(&turn).await?.completed().await?;
    assert_eq!(agent.last(), first, "MEM-2");
    let (turn, gate) = agent.asks(&client, "ada", LATER).await?;
    agent.server.open(&gate);
    client.resume_from(&turn).await?.completed().await?;

    // Another person is shown other things.
    let (turn, gate) = agent.asks(&client, "ben", OF_BEN).await?;
    agent.server.open(&gate);
    client.resume_from(&turn).await?.completed().await?;
    for body in agent.bodies() {
        let of_other = if body.contains("ada asks") { OF_BEN } else { OF_ADA };
        assert!(!body.contains(of_other), "MEM-1: {body}");
    }

    // The conversation can be found, because its agent has a memory.
    let asked = json!({ "session": session, "query": "ada asks" });
    until("what was said", async || {
        let view: MemorySearchView = client.call("memory.search", asked.clone()).await?;
        let is_said =
            view.found.iter().any(|found| found.point.is_none() && found.text.contains("ada asks"));
        Ok(is_said.then_some(()))
    })
    .await?;

    // What is forgotten is in no file of the store when the answer comes, and in no later request.
    assert!(agent.keeps(OF_ADA) && agent.keeps(LATER));
    let ended = agent.home.run(&["memory", "forget", &memory("ada"), &tea, "--now"]).await?;
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(!agent.keeps(OF_ADA) && agent.keeps(LATER), "MEM-4");
    let (turn, gate) = agent.asks(&client, "ada", LATER).await?;
    assert!(!agent.last().contains(OF_ADA), "MEM-4");
    agent.server.open(&gate);
    client.resume_from(&turn).await?.completed().await?;
    node.stop().await
}

#[tokio::test]
async fn turns_are_reminded_of_their_own_person_and_forget() -> Outcome {
    reminds_and_forgets(TestBackend::Local).await
}

#[tokio::test]
async fn turns_are_reminded_of_their_own_person_and_forget_on_nats() -> Outcome {
    let nats = NatsServer::start(ServerOptions::default()).await.unwrap();
    reminds_and_forgets(TestBackend::Nats { url: nats.url(), prefix: "recall".to_owned() }).await
}

/// Persons whose indexes two nodes share.
const PERSONS: [&str; 8] = ["ada", "ben", "cid", "dan", "eve", "fay", "gil", "hal"];
const SHARED_PARTITIONS: u16 = 16;

fn fact(peer: &str) -> String {
    format!("The tea of {peer} is green.")
}

/// What this node finds, once nothing is missing and there is so much of it.
async fn whole(
    client: &Client,
    asked: &serde_json::Value,
    count: usize,
) -> Result<String, ProcessError> {
    until("a search that finds all of it", async || {
        let view: MemorySearchView = client.call("memory.search", asked.clone()).await?;
        let is_whole = view.found.len() >= count && view.degraded.is_empty();
        Ok(is_whole.then(|| format!("{:?}", view.found)))
    })
    .await
}

/// The worker that ranks first for a person has the person's index and searches for both. When it dies, the other one builds
/// the index from journals.
#[tokio::test]
async fn two_nodes_without_a_server_recall_the_same_and_one_goes_on() -> Outcome {
    let nats = NatsServer::start(ServerOptions::default()).await.unwrap();
    let server = ModelServer::start(Script::default()).await.unwrap();
    let mut homes = Vec::new();
    for _ in 0..2 {
        let backend = TestBackend::Nats { url: nats.url(), prefix: "ranks".to_owned() };
        let home = home(backend, &server)?;
        homes.push(home.var("CLAWNODE_CLUSTER__PARTITIONS", &SHARED_PARTITIONS.to_string()));
    }
    let (one, other) = (Node::up(&homes[0]).await?, Node::up(&homes[1]).await?);
    let (first, second) = (one.client()?, other.client()?);
    let share = |list: &NodeList| {
        let firsts: Vec<u16> = list.nodes.iter().map(|node| node.first_of).collect();
        firsts.len() == 2 && firsts.iter().sum::<u16>() == SHARED_PARTITIONS && !firsts.contains(&0)
    };
    let _: NodeList = first.call_when("nodes.list", json!({}), share).await?;

    for peer in PERSONS {
        let put = json!({ "memory": memory(peer), "points": [{ "text": fact(peer) }] });
        first.call::<MemoryPutView>("memory.put", put).await?;
    }
    let said = Message::new("ada", "The lamp of the tea house is broken.");
    first.chat(&said).await?;
    let talk = json!({ "session": said.session(), "query": "lamp of the tea house" });
    for peer in PERSONS {
        let asked = json!({ "memory": memory(peer), "query": "tea" });
        let found = whole(&first, &asked, 1).await?;
        assert!(found.contains(&fact(peer)), "{found}");
        assert_eq!(whole(&second, &asked, 1).await?, found, "the same, with the same scores");
    }
    // The message, and the point.
    let found = whole(&first, &talk, 2).await?;
    assert!(found.contains("lamp"), "{found}");
    until("the same on both", async || {
        let both = [whole(&first, &talk, 2).await?, whole(&second, &talk, 2).await?];
        Ok((both[0] == both[1]).then_some(()))
    })
    .await?;
    until("one node has the files of each person", async || {
        let counts =
            PERSONS.map(|peer| homes.iter().filter(|home| keeps(home, &fact(peer))).count());
        // A node that searched for itself, because the other one was too slow, lets go of them with the next event.
        for (peer, _) in PERSONS.iter().zip(counts).filter(|(_, count)| *count != 1) {
            let put = json!({ "memory": memory(peer), "points": [{ "text": "Time goes by." }] });
            first.call::<MemoryPutView>("memory.put", put).await?;
        }
        Ok((counts == [1; PERSONS.len()]).then_some(()))
    })
    .await?;

    one.kill().await?;
    for peer in PERSONS {
        let asked = json!({ "memory": memory(peer), "query": "tea" });
        let found = whole(&second, &asked, 1).await?;
        assert!(found.contains(&fact(peer)), "{found}");
    }
    let found = whole(&second, &talk, 2).await?;
    assert!(found.contains("lamp"), "{found}");
    let (shown, before) = (fact("ada"), server.calls().len());
    let mut turns = 0;
    loop {
        assert!(turns < TURNS_MOST, "no turn was shown `{shown}`");
        turns += 1;
        second.chat(&Message::new("ada", &format!("{turns}: what of my tea?"))).await?;
        let calls = server.calls();
        let mut bodies = calls.iter().skip(before).map(|call| String::from_utf8_lossy(&call.body));
        if bodies.any(|body| body.contains(&shown)) {
            break;
        }
    }
    other.stop().await
}
