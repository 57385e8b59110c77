//! A model that writes down its work: what its later requests have, and what people read.

use clawnode_tests::{
    model::{Act, ModelServer, Script, Setup},
    process::{Home, Message, Node, TestBackend},
};
use serde_json::json;

use super::Outcome;

const CONFIG: &str = "[agents.default]\ntools = [\"ledger_append\", \"calculate\"]\n";

/// On both wires, whose servers refuse a conversation in which calls and results are not paired.
#[tokio::test]
async fn a_step_takes_the_place_of_calls_and_people_still_see_all() -> Outcome {
    for openai in [false, true] {
        let acts = [
            Act::tools([("calculate", json!({ "expression": "6*7" }))]),
            Act::tools([(
                "ledger_append",
                json!({ "type": "step", "text": "I found the answer" }),
            )]),
            Act::say("all done"),
            Act::say("as I said"),
        ];
        let script = Script::queue(acts);
        let setup = Setup { api_key: Some(Home::key().to_owned()), ..Setup::from(script) };
        let server = ModelServer::start(setup).await.unwrap();
        let home = Home::new(TestBackend::Local)?;
        let home = if openai { home.openai(&server) } else { home.anthropic(&server) };
        let settings = home.path().join(".config/clawnode");
        std::fs::create_dir_all(&settings).unwrap();
        std::fs::write(settings.join("config.toml"), CONFIG).unwrap();

        let node = Node::up(&home).await?;
        let client = node.client()?;
        for said in ["go", "and now?"] {
            client.chat(&Message::new("ada", said)).await?;
        }
        let bodies = server.calls();
        let bodies: Vec<String> =
            bodies.iter().map(|call| String::from_utf8_lossy(&call.body).into_owned()).collect();
        let with = |text: &str| bodies.iter().map(|body| body.contains(text)).collect::<Vec<_>>();
        assert_eq!(with("6*7"), [false, true, false, false]);
        assert_eq!(with("#1 step: I found the answer"), [false, false, true, true]);
        assert_eq!(server.take_violations(), [""; 0]);

        let session = Message::new("ada", "go").session();
        let history = serde_json::to_string(&client.history(&session).await?).unwrap();
        assert!(history.contains("6*7"), "{history}");
        node.stop().await?;

        // Without a node, too.
        let show = ["ledger", "show", &session, "--type", "step", "--json"];
        let shown = home.run(&show).await?.json()?;
        assert_eq!(
            (&shown["total"], &shown["entries"][0]["text"]),
            (&json!(1), &json!("I found the answer"))
        );
        let context = ["sessions", "context", &session, "--at", "1.3", "--brief"];
        let context = home.run(&context).await?.out;
        assert!(context.contains("ledger: entry 1 closed calls 1 to 2"), "{context}");
        assert_eq!(home.run(&["journal", "replay", &session]).await?.code, 0);
    }
    Ok(())
}
