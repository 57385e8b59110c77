//! A reply that does not fit its schema: a process dies between it and its correction, and another goes on
//! with the correction. The refused reply is not asked for again.

use clawnode_proto::session::TurnOutcome;
use clawnode_tests::{
    model::{Act, Reply, Script},
    process::{Message, Node},
};
use serde_json::{Value, json};

use super::support::{Outcome, Scene, Under};

/// What the agent wants: a schema that its provider takes.
const SCHEMA: &str = "[agents.default.response_schema]\ntype = \"object\"\nrequired = [\"age\"]\n\
                      properties.age = { type = \"integer\" }\nadditionalProperties = false\n";

/// A turn whose process dies once it has recorded that its first reply is refused.
async fn hit(under: Under) -> Outcome {
    // The words that ask for a correction are others, so its replies are those that are left.
    let fits: Act = Reply::text([r#"{"age": "#, "36}"]).into();
    let script = Script::queue([fits]);
    let script = script.turn("how old?", [Reply::text([r#"{"age": "#, r#""old"}"#]).into()]);
    let mut scene = Scene::on(under, script).await;
    let settings = scene.home.path().join(".config/clawnode");
    std::fs::create_dir_all(&settings).unwrap();
    std::fs::write(settings.join("config.toml"), SCHEMA).unwrap();

    let message = Message::new("ada", "how old?");
    scene.die_at("after-outcome", &message).await?;
    let node = Node::up(&scene.home).await?;
    let client = node.client()?;
    assert_eq!(client.chat(&message).await?, r#"{"age": 36}"#);
    let history = client.history(&message.session()).await?;
    let turn = &history.turns[0];
    assert!(matches!(turn.outcome, Some(TurnOutcome::Completed { .. })), "{turn:?}");
    assert_eq!(turn.structured, Some(json!({"age": 36})));
    assert_eq!(turn.notes, [2], "the history has what was refused: {turn:?}");
    node.stop().await?;

    let calls = scene.server.calls();
    let first = calls.iter().filter(|call| call.last_user == "how old?").count();
    assert_eq!((first, calls.len()), (1, 2), "what was recorded is not asked for again");
    let last: Value = serde_json::from_slice(&calls[1].body).unwrap();
    let format = &last["output_config"]["format"];
    assert_eq!(format["type"], "json_schema", "{last}");
    assert!(last["messages"].to_string().contains("`age` must be of type integer"), "{last}");
    assert_eq!(scene.server.take_violations(), Vec::<String>::new());
    Ok(())
}

#[tokio::test]
async fn a_correction_outlives_the_process_that_asked_for_it() -> Outcome {
    hit(Under::Local).await
}

#[tokio::test]
async fn a_correction_is_made_by_another_process_of_a_cluster() -> Outcome {
    hit(Under::Nats).await
}
