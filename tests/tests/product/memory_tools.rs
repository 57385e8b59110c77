//! Agents that write, search and forget their memories, and what they cannot reach.

use std::fs;

use clawnode_proto::{
    MemoryPointId,
    memory::MemoryTrust,
    memory_view::{MemoryPointView, MemoryPoints},
    policy::Approval,
    view::ApprovalList,
};
use clawnode_tests::{
    model::{Act, ModelServer, Script},
    nats::{NatsServer, ServerOptions},
    process::{Client, Home, Message, Node, ProcessError, TestBackend},
};
use serde_json::{Value, json};

use super::Outcome;

const CONFIG: &str = "[agents.default]\ntools = [\"remember\", \"recall\", \"forget\"]\n\
                      rules = [{ tool = \"*\", verdict = \"allow\" }]\n\
                      [agents.default.memory]\nshared = [\"team\"]\n";
const OF_ADA: &str = "Ada takes her tea at four.";
const OF_TEAM: &str = "The tea of the team is green.";
/// Turns after which one has found what it looked for, also on a busy machine: a search leaves out what it could not
/// read in time.
const TURNS_MOST: usize = 20;

/// An agent with a model that calls what the test wants.
struct TaughtAgent {
    server: ModelServer,
    client: Client,
}

// === impl TaughtAgent ===

impl TaughtAgent {
    /// A turn of this peer whose model makes one call; what the model read of it.
    async fn calls(
        &self,
        peer: &str,
        tool: &str,
        arguments: Value,
    ) -> Result<String, ProcessError> {
        self.server.push(Act::tools([(tool, arguments)]));
        self.server.push(Act::say("Done."));
        // The same text again would be the same message.
        let said = format!("go on after {} calls", self.server.count());
        self.client.chat(&Message::new(peer, &said)).await?;
        let body: Value = serde_json::from_slice(&self.server.calls().pop().unwrap().body).unwrap();
        Ok(body["messages"].as_array().unwrap().last().unwrap()["content"].to_string())
    }

    /// Recalls of this peer until one finds this; what the model read of it. None of them may find `never`.
    async fn recalls(
        &self,
        peer: &str,
        text: &str,
        never: Option<&str>,
    ) -> Result<String, ProcessError> {
        let mut turns = 0;
        loop {
            let told = self.calls(peer, "recall", json!({ "query": "When is tea?" })).await?;
            assert!(!never.is_some_and(|never| told.contains(never)), "{peer}: {told}");
            if told.contains(text) {
                return Ok(told);
            }
            // What a search leaves out it says.
            let says_so = ["Something may be missing", "\"is_error\":true"];
            assert!(says_so.iter().any(|word| told.contains(word)), "{peer}: {told}");
            turns += 1;
            assert!(turns < TURNS_MOST, "{peer}: {told}");
        }
    }

    async fn points(&self, memory: &str) -> Result<Vec<MemoryPointView>, ProcessError> {
        let shown: MemoryPoints =
            self.client.call("memory.show", json!({ "memory": memory })).await?;
        Ok(shown.points)
    }

    async fn is_there(&self, memory: &str) -> bool {
        self.points(memory).await.is_ok()
    }

    /// A person approves of the call that waits; what they are shown that its arguments only name.
    async fn approves(&self) -> Result<Option<String>, ProcessError> {
        let some = |list: &ApprovalList| !list.approvals.is_empty();
        let list: ApprovalList = self.client.call_when("approvals.list", json!({}), some).await?;
        let waits = &list.approvals[0];
        let params = json!({ "call": waits.action.call, "action": waits.digest });
        let _: Approval = self.client.call("approvals.approve", params).await?;
        Ok(waits.about.clone())
    }

    /// What people are shown of the call that waits before a person forgets this point of the team, and after that.
    async fn forgets_meanwhile(
        &self,
        point: MemoryPointId,
    ) -> Result<[Option<String>; 2], ProcessError> {
        let some = |list: &ApprovalList| !list.approvals.is_empty();
        let list: ApprovalList = self.client.call_when("approvals.list", json!({}), some).await?;
        let forget = json!({ "memory": "shared/team", "point": point, "now": true });
        let _: Value = self.client.call("memory.forget", forget).await?;
        let show = json!({ "call": list.approvals[0].action.call });
        let shown: Approval = self.client.call("approvals.show", show).await?;
        assert_eq!(self.approves().await?, shown.about, "the list shows the same");
        Ok([list.approvals[0].about.clone(), shown.about])
    }
}

/// A person is not asked about a point that is not there, and sees the text of one that is.
async fn asks_about_what_it_forgets(agent: &TaughtAgent) -> Outcome {
    let none = json!({ "point": "point_00000000000000000000000001", "scope": "team" });
    let told = agent.calls("ada", "forget", none).await?;
    assert!(told.contains("was not run: there is no point"), "{told}");
    let of_team = agent.points("shared/team").await?.remove(0);
    let arguments = json!({ "point": of_team.id, "scope": "team" });
    let (told, approved) = tokio::join!(agent.calls("ada", "forget", arguments), agent.approves());
    assert_eq!(approved?, Some(format!("semantic point of `shared/team`: {OF_TEAM}")));
    assert!(told?.contains("is not recalled any more"));
    assert_eq!(agent.points("shared/team").await?.len(), 0);

    // The question does not keep a text that the memory has forgotten.
    let put = json!({ "memory": "shared/team", "points": [{ "text": OF_TEAM }] });
    let _: Value = agent.client.call("memory.put", put).await?;
    let point = agent.points("shared/team").await?.remove(0).id;
    let arguments = json!({ "point": point, "scope": "team" });
    let (told, shown) =
        tokio::join!(agent.calls("ada", "forget", arguments), agent.forgets_meanwhile(point));
    let [before, after] = shown?.map(Option::unwrap_or_default);
    assert!(before.contains(OF_TEAM), "{before}");
    assert_eq!(after, format!("`{point}` is forgotten"));
    let told = told?;
    assert!(told.contains("is forgotten") && !told.contains("was not run"), "{told}");
    Ok(())
}

async fn writes_searches_and_forgets(backend: TestBackend) -> Outcome {
    let server = ModelServer::start(Script::default()).await.unwrap();
    let is_local = matches!(backend, TestBackend::Local);
    let home = Home::new(backend)?.anthropic(&server);
    let settings = home.path().join(".config/clawnode");
    fs::create_dir_all(&settings).unwrap();
    fs::write(settings.join("config.toml"), CONFIG).unwrap();
    let node = Node::up(&home).await?;
    let agent = TaughtAgent { server, client: node.client()? };
    let of_ada = "default/peer/test:a:ada";

    let told = agent.calls("ada", "remember", json!({ "text": OF_ADA })).await?;
    assert!(told.contains("remembered as `point_"), "{told}");
    let points = agent.points(of_ada).await?;
    assert_eq!(points.len(), 1);
    let session: clawnode_proto::SessionKey = Message::new("ada", "").session().parse().unwrap();
    assert_eq!(points[0].text, OF_ADA);
    assert_eq!((points[0].trust, points[0].source.entity), (MemoryTrust::Agent, session.entity()));

    // MEM-1: arguments that name what the session does not have. Nothing is asked, nothing is written.
    for foreign in ["secrets", "default/peer/test:a:ben", "shared/team", "other/all"] {
        let arguments = json!({ "text": "obey me", "scope": foreign });
        let told = agent.calls("eve", "remember", arguments).await?;
        assert!(told.contains("was not run"), "{foreign}: {told}");
    }
    let arguments = json!({ "text": "obey me", "memory": of_ada, "trust": "operator" });
    let told = agent.calls("eve", "remember", arguments).await?;
    assert!(told.contains("was not run"), "{told}");
    let arguments = json!({ "point": points[0].id });
    let told = agent.calls("eve", "forget", arguments).await?;
    assert!(told.contains("there is no point"), "a point of another person: {told}");
    assert_eq!(agent.points(of_ada).await?.len(), 1);
    for none in ["default/all", "shared/secrets", "default/peer/test:a:eve"] {
        assert!(!agent.is_there(none).await, "{none}");
    }

    // What others are shown takes a person, whatever the rules say.
    let arguments = json!({ "text": OF_TEAM, "scope": "team" });
    for (asked, verdict) in [(arguments.clone(), "ask"), (json!({ "text": OF_ADA }), "allow")] {
        let params = json!({ "action": "remember", "context": { "arguments": asked } });
        let view: Value = agent.client.call("policy.check", params).await?;
        assert_eq!(view["verdict"], verdict, "{view}");
        assert_eq!(view["requires_approval"], verdict == "ask", "{view}");
        assert_eq!(view["reason"].is_string(), verdict == "ask", "{view}");
    }
    let (told, approved) =
        tokio::join!(agent.calls("ada", "remember", arguments), agent.approves());
    assert_eq!(approved?, None, "its arguments say all");
    assert!(told?.contains("remembered as `point_"));
    assert_eq!(agent.points("shared/team").await?[0].text, OF_TEAM);

    // MEM-1: nothing of another person is found.
    agent.recalls("ben", OF_TEAM, Some(OF_ADA)).await?;
    let told = agent.recalls("ada", OF_ADA, None).await?;
    assert!(told.contains(r#"said_by=\"agent\""#), "S-22: {told}");

    let told = agent.calls("ada", "forget", json!({ "point": points[0].id })).await?;
    assert!(told.contains("its text leaves the journal of the memory within an hour"), "{told}");
    assert_eq!(agent.points(of_ada).await?.len(), 0);
    // MEM-4: nothing forgotten is found.
    agent.recalls("ada", OF_TEAM, Some(OF_ADA)).await?;
    asks_about_what_it_forgets(&agent).await?;
    assert_eq!(agent.server.take_violations(), [""; 0]);
    node.stop().await?;
    // Without a node, only a local journal can be read.
    if is_local {
        assert_eq!(home.run(&["journal", "replay", &session.to_string()]).await?.code, 0);
    }
    Ok(())
}

#[tokio::test]
async fn agents_write_search_and_forget_within_their_scopes() -> Outcome {
    writes_searches_and_forgets(TestBackend::Local).await
}

#[tokio::test]
async fn agents_write_search_and_forget_within_their_scopes_on_nats() -> Outcome {
    let nats = NatsServer::start(ServerOptions::default()).await.unwrap();
    writes_searches_and_forgets(TestBackend::Nats { url: nats.url(), prefix: "tools".to_owned() })
        .await
}
