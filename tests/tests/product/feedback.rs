//! Thumbs: what people think of a turn moves the importance of the points that it recalled.

use std::fs;

use clawnode_proto::{
    TurnId,
    feedback::{PointFeedback, Thumb},
    feedback_view::{FeedbackRow, FeedbackView},
    memory_view::{MemoryPointView, MemoryPoints},
};
use clawnode_tests::{
    model::{ModelServer, Script},
    nats::{NatsServer, ServerOptions},
    process::{Client, Home, Message, Node, ProcessError, TestBackend},
    wait::until,
};
use serde_json::{Value, json};

use super::Outcome;

const CONFIG: &str = "[agents.default.memory]\nlayers = [\"semantic\"]\n";
const OF_ADA: &str = "default/peer/test:a:ada";
/// Turns after which one was shown what it was looked for, also on a busy machine.
const TURNS_MOST: usize = 20;

async fn point(client: &Client) -> Result<Option<MemoryPointView>, ProcessError> {
    // A memory begins with its first point.
    let shown = client.call::<MemoryPoints>("memory.show", json!({ "memory": OF_ADA })).await;
    Ok(shown.ok().and_then(|mut shown| shown.points.pop()))
}

/// The point once it matters so much.
async fn matters(client: &Client, importance: u8) -> Result<MemoryPointView, ProcessError> {
    until("the importance has moved", async || {
        Ok(point(client).await?.filter(|point| point.importance == importance))
    })
    .await
}

/// A turn that was shown the point.
async fn reminded(client: &Client) -> Result<TurnId, ProcessError> {
    let mut turns = 0;
    loop {
        assert!(turns < TURNS_MOST, "no turn was shown the name");
        turns += 1;
        let asks = Message::new("ada", &format!("{turns}: what is my name?"));
        client.chat(&asks).await?;
        let journal: Vec<Value> = client.journal(&asks.session()).await?;
        let mut recalled = journal.iter().filter(|event| event["kind"] == "recalled");
        let shown = recalled.find(|event| event["body"]["points"][0]["memory"] == OF_ADA);
        if let Some(shown) = shown {
            return Ok(shown["body"]["turn"].as_str().unwrap().parse().unwrap());
        }
    }
}

/// Asks over HTTP; the status, and the body.
async fn gives(client: &Client, body: Value) -> (u16, Value) {
    let url = format!("{}/v1/feedback", client.url());
    let request = reqwest::Client::builder().no_proxy().build().unwrap().post(url);
    let answer = request.bearer_auth(client.token()).json(&body).send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

async fn refusals(client: &Client, session: &str, turn: TurnId) {
    let given = |session: &str, turn: &str, comment: &str| json!({ "session": session, "turn": turn, "thumb": "up", "comment": comment });
    let (turn, long) = (turn.to_string(), "x".repeat(1_001));
    let unknown = TurnId::from_u128(7).to_string();
    for (body, status, code, said) in [
        (given(session, &unknown, ""), 404, "not_found", "has no turn"),
        (given("default:test:a:eve", &turn, ""), 404, "not_found", "eve"),
        (given(session, &turn, &long), 400, "invalid_params", "1000 characters"),
        (
            json!({ "session": session, "turn": turn, "thumb": "sideways" }),
            400,
            "invalid_params",
            "thumb",
        ),
    ] {
        let (found, answer) = gives(client, body).await;
        assert_eq!((found, &answer["code"]), (status, &json!(code)), "{answer}");
        assert!(answer.to_string().contains(said), "{answer}");
    }
}

async fn moves_what_was_recalled(backend: TestBackend) -> Outcome {
    let server = ModelServer::start(Script::default()).await.unwrap();
    let home = Home::new(backend)?.anthropic(&server);
    let settings = home.path().join(".config/clawnode");
    fs::create_dir_all(&settings).unwrap();
    fs::write(settings.join("config.toml"), CONFIG).unwrap();
    let node = Node::up(&home).await?;
    let client = node.client()?;
    let named = Message::new("ada", "My name is Ada.");
    let session = named.session();
    client.chat(&named).await?;
    assert_eq!(matters(&client, 7).await?.feedback, None);
    let turn = reminded(&client).await?;

    let down =
        json!({ "session": session, "turn": turn, "thumb": "down", "comment": "Too familiar." });
    assert_eq!(gives(&client, down.clone()).await, (200, json!({ "ok": true })));
    let lower = matters(&client, 6).await?;
    assert_eq!(lower.feedback, Some(PointFeedback { given: 7, sum: -1 }), "it says why");
    let shown = home.run(&["memory", "show", OF_ADA]).await?;
    assert!(shown.out.contains("6 (given 7, feedback -1)"), "{shown:?}");

    // The same one changes nothing; another one moves by the difference, and only points of its turn move.
    assert_eq!(gives(&client, down).await.0, 200);
    let up = home.run(&["feedback", &session, &turn.to_string(), "up"]).await?;
    assert_eq!(up.code, 0, "{up:?}");
    assert_eq!(matters(&client, 8).await?.feedback, Some(PointFeedback { given: 7, sum: 1 }));
    let view: FeedbackView = client.call("feedback.list", json!({ "session": session })).await?;
    assert_eq!(view.feedback.len(), 2, "{view:?}");
    let (first, second) = (&view.feedback[0], &view.feedback[1]);
    let seen = |row: &FeedbackRow| (row.turn, row.thumb, row.step, row.moves[0].points.clone());
    assert_eq!(seen(first), (turn, Thumb::Down, -1, vec![lower.id]));
    assert_eq!(first.comment.as_deref(), Some("Too familiar."));
    assert_eq!(seen(second), (turn, Thumb::Up, 2, vec![lower.id]));
    assert_eq!((second.moves[0].memory.to_string().as_str(), &view.next), (OF_ADA, &None));

    // Page by page, and as people read it; the export of the session has it, too.
    let page = json!({ "session": session, "limit": 1 });
    let page: FeedbackView = client.call("feedback.list", page).await?;
    let next = json!({ "session": session, "limit": 1, "cursor": page.next });
    let next: FeedbackView = client.call("feedback.list", next).await?;
    assert_eq!((&page.feedback[0], &next.feedback[0], next.next), (first, second, None));
    let listed = home.run(&["feedback", &session]).await?;
    assert!(listed.out.contains(&format!("-1: 1 point of {OF_ADA}")), "{listed:?}");
    let export = client.call::<Value>("sessions.export", json!({ "session": session })).await?;
    assert!(export.to_string().contains("Too familiar."));

    refusals(&client, &session, turn).await;
    assert_eq!(point(&client).await?.unwrap().importance, 8);
    node.stop().await
}

#[tokio::test]
async fn a_thumb_moves_the_importance_of_what_its_turn_recalled() -> Outcome {
    moves_what_was_recalled(TestBackend::Local).await
}

#[tokio::test]
async fn a_thumb_moves_the_importance_of_what_its_turn_recalled_on_nats() -> Outcome {
    let nats = NatsServer::start(ServerOptions::default()).await.unwrap();
    moves_what_was_recalled(TestBackend::Nats { url: nats.url(), prefix: "feedback".to_owned() })
        .await
}
