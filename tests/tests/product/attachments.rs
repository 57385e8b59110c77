//! Pictures, documents and sound: from a client to a model, through a crash, and gone with their session.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use clawnode_tests::{
    model::{Act, Call, Script, Status},
    process::{Client, Message, Node},
    wait::until,
};
use reqwest::Method as Verb;
use serde_json::{Value, json};

use super::{
    Outcome,
    keeping::{SECRET, delete, has_secret},
    scene,
};

/// A picture as far as its first bytes go, with the secret of the test in it.
fn picture(bytes: usize) -> Vec<u8> {
    let mut picture = b"\x89PNG\r\n\x1a\n".to_vec();
    picture.extend_from_slice(SECRET.as_bytes());
    picture.resize(bytes.max(picture.len()), 7);
    picture
}

/// Asks over HTTP, and reads the answer as JSON.
async fn ask(client: &Client, verb: Verb, path: &str, body: Vec<u8>) -> (u16, Value) {
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let request = http.request(verb, format!("{}{path}", client.url())).bearer_auth(client.token());
    let answer = request.body(body).send().await.unwrap();
    let status = answer.status().as_u16();
    (status, answer.json().await.unwrap_or_default())
}

fn session() -> String {
    Message::new("ada", "").session()
}

async fn say(client: &Client, text: &str, attachments: Value) -> (u16, Value) {
    let path = format!("/v1/sessions/{}/messages", session());
    let body = json!({ "content": text, "attachments": attachments });
    ask(client, Verb::POST, &path, body.to_string().into_bytes()).await
}

/// The blocks of the last message that a model was asked.
fn blocks(call: &Call) -> Vec<Value> {
    let body: Value = serde_json::from_slice(&call.body).unwrap();
    let last = body["messages"].as_array().unwrap().last().unwrap();
    last["content"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_picture_reaches_the_model_also_after_a_crash_and_goes_with_its_session() -> Outcome {
    let (server, home) = scene(Script::default()).await;
    let node = Node::up(&home).await?;
    let client = node.client()?;
    let picture = picture(100);
    // One that is uploaded ahead, one in the message, one that nothing names.
    let files = format!("/v1/sessions/{}/files", session());
    let path = format!("{files}?name=dir%2Fa.png");
    let (status, file) = ask(&client, Verb::POST, &path, picture.clone()).await;
    assert_eq!((status, &file["name"]), (201, &json!("a.png")), "{file}");
    assert_eq!((&file["media_type"], &file["bytes"]), (&json!("image/png"), &json!(100)));
    let (status, idle) = ask(&client, Verb::POST, &files, picture.clone()).await;
    assert_eq!(status, 201, "{idle}");
    let data = STANDARD.encode(&picture);
    let attachments = json!([{ "file": file["file"] }, { "data": data, "name": "b.png" }]);
    server.push(Act::Stall);
    let asking = tokio::spawn({
        let client = client.clone();
        async move { say(&client, "what is it?", attachments).await }
    });
    server.asked(1).await;
    node.kill().await?;
    asking.abort();
    let node = Node::up(&home).await?;
    let client = node.client()?;
    let calls = server.asked(2).await;
    assert_eq!(blocks(&calls[0]), blocks(&calls[1]), "the same, byte for byte");
    let source = json!({ "type": "base64", "media_type": "image/png", "data": data });
    let image = json!({ "type": "image", "source": source });
    let cached = json!({ "type": "ephemeral" });
    let text = json!({ "type": "text", "text": "what is it?", "cache_control": cached });
    assert_eq!(blocks(&calls[0]), [image.clone(), image, text]);
    let history = client.finished(&session(), 1).await?;
    let names: Vec<_> = history.turns[0].messages[0]
        .attachments
        .iter()
        .map(|attachment| &attachment.name)
        .collect();
    assert_eq!(names, [&Some("a.png".to_owned()), &Some("b.png".to_owned())]);
    let (status, _) =
        ask(&client, Verb::GET, &format!("{files}/{}", file["file"].as_str().unwrap()), Vec::new())
            .await;
    assert_eq!(status, 200);
    assert!(has_secret(&home.data()));
    delete(&client).await?;
    until("a data directory without the pictures", async || {
        Ok((!has_secret(&home.data())).then_some(()))
    })
    .await?;
    assert_eq!(std::fs::read_dir(home.data().join("blobs")).unwrap().count(), 0);
    node.stop().await?;
    for check in [["journal", "verify"], ["journal", "replay"]] {
        assert_eq!(home.run(&check).await?.code, 0, "{check:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_conversation_goes_on_without_a_picture_that_is_gone_or_was_refused() -> Outcome {
    let (server, home) = scene(Script::default()).await;
    let node = Node::up(&home).await?;
    let client = node.client()?;
    let pictures = |name: &str| json!([{ "data": STANDARD.encode([picture(100), name.into()].concat()), "name": name }]);
    let asked = || String::from_utf8_lossy(&server.calls().pop().unwrap().body).into_owned();
    // A model that is not there has not refused the picture.
    server.push(Act::Status(Status { status: 404, ..Status::default() }));
    assert_ne!(say(&client, "what is it?", pictures("a.png")).await.0, 200);
    assert_eq!(say(&client, "and with the right model?", json!([])).await.0, 200);
    assert!(asked().contains(r#""type":"image""#), "it is shown again");
    for blob in std::fs::read_dir(home.data().join("blobs")).unwrap() {
        std::fs::remove_file(blob.unwrap().path()).unwrap();
    }
    let (status, answer) = say(&client, "and now?", json!([])).await;
    assert_eq!(status, 200, "{answer}");
    let request = asked();
    assert!(request.contains(r#"a.png\", 105 bytes, which is not stored any more"#), "{request}");
    server.push(Act::Status(Status { status: 400, ..Status::default() }));
    let (status, answer) = say(&client, "and this?", pictures("b.png")).await;
    assert_ne!(status, 200, "{answer}");
    assert!(asked().contains(r#""type":"image""#), "it was shown once");
    let (status, answer) = say(&client, "never mind", json!([])).await;
    assert_eq!(status, 200, "{answer}");
    let request = asked();
    assert!(request.contains(r#"b.png\", 105 bytes, is not shown again"#), "{request}");
    assert!(!request.contains(r#""type":"image""#), "{request}");
    node.stop().await
}

#[tokio::test]
async fn what_cannot_be_attached_is_refused_and_nothing_is_lost() -> Outcome {
    let (server, home) = scene(Script::default()).await;
    let node = Node::up(&home).await?;
    let client = node.client()?;
    let data = |bytes: &[u8]| json!({ "data": STANDARD.encode(bytes), "name": "x.png" });
    let good = data(&picture(100));
    let missing = json!({ "file": "file_00000000000000000000000001" });
    for (attachments, expected, says) in [
        (json!([data(b"hello")]), 400, "not a PNG"),
        (json!([{ "data": "no base64!" }]), 400, "not base64"),
        (json!(vec![good.clone(); 9]), 400, "the limit is 8"),
        (json!([{}]), 400, "neither `file` nor `data`"),
        (json!([missing]), 404, "no file"),
        (json!([data(&picture(5_000_001))]), 413, "4194304 bytes"),
    ] {
        let (status, answer) = say(&client, "see", attachments).await;
        assert_eq!(status, expected, "{answer}");
        assert!(answer["detail"].as_str().unwrap().contains(says), "{answer}");
    }
    let files = format!("/v1/sessions/{}/files", session());
    for (body, expected, says) in
        [(b"hello, I am a text".to_vec(), 400, "not a PNG"), (Vec::new(), 400, "empty")]
    {
        let (status, answer) = ask(&client, Verb::POST, &files, body).await;
        assert_eq!(status, expected, "{answer}");
        assert!(answer["detail"].as_str().unwrap().contains(says), "{answer}");
    }
    let (status, large) = ask(&client, Verb::POST, &files, picture(5_000_001)).await;
    assert_eq!(status, 201, "{large}");
    let (status, answer) = say(&client, "see", json!([{ "file": large["file"] }])).await;
    assert_eq!(status, 413, "a file may be larger than an attachment: {answer}");
    assert_eq!(server.count(), 0, "nothing was said yet");
    // A nonsense data URL is refused in OpenAI's shape.
    let image = json!({ "type": "image_url", "image_url": { "url": "data:image/png;base64,%%%" } });
    let body = json!({ "model": "default", "messages": [{ "role": "user", "content": [image] }] });
    let path = "/v1/chat/completions";
    let (status, answer) = ask(&client, Verb::POST, path, body.to_string().into_bytes()).await;
    assert_eq!((status, &answer["error"]["param"]), (400, &json!("messages[0].content")));
    assert_eq!(answer["error"]["type"], "invalid_request_error", "{answer}");
    // A URL is an attack on what only this node can reach, until the opposite is known.
    let url = "https://127.0.0.1/secret.png";
    let image = json!({ "type": "image_url", "image_url": { "url": url } });
    let openai =
        json!({ "model": "default", "messages": [{ "role": "user", "content": [image] }] });
    let image = json!({ "type": "image", "source": { "type": "url", "url": url } });
    let anthropic = json!({ "model": "default", "max_tokens": 100,
        "messages": [{ "role": "user", "content": [image] }] });
    for (path, body) in [(path, openai), ("/v1/messages", anthropic)] {
        let (status, answer) = ask(&client, Verb::POST, path, body.to_string().into_bytes()).await;
        let said = answer["error"]["message"].as_str().unwrap();
        assert_eq!(status, 400, "{path}: {answer}");
        assert!(said.contains("a file at `127.0.0.1` cannot be attached"), "{path}: {said}");
        assert!(said.contains("loopback"), "{path}: {said}");
    }
    assert_eq!(server.count(), 0, "nothing was said yet");
    let (status, _) = say(&client, "", json!([good])).await;
    assert_eq!(status, 200, "a picture says enough");
    node.stop().await
}

#[tokio::test]
async fn a_file_and_a_model_that_there_are_not_are_told_apart() -> Outcome {
    let (server, home) = scene(Script::default()).await;
    let node = Node::up(&home).await?;
    let client = node.client()?;
    let file = json!({ "type": "file", "file": { "file_id": "file_00000000000000000000000001" } });
    for (model, part, code, says) in [
        ("default", file, "not_found", "the session has no file"),
        (
            "defualt",
            json!({ "type": "text", "text": "hi" }),
            "model_not_found",
            "nearest names: `default`",
        ),
    ] {
        let messages = json!([{ "role": "user", "content": [part] }]);
        let body = json!({ "model": model, "messages": messages }).to_string().into_bytes();
        let (status, answer) = ask(&client, Verb::POST, "/v1/chat/completions", body).await;
        let said = answer["error"]["message"].as_str().unwrap();
        assert_eq!((status, &answer["error"]["code"]), (404, &json!(code)), "{answer}");
        assert!(said.contains(says), "{answer}");
    }
    assert_eq!(server.count(), 0, "nothing was asked");
    node.stop().await
}

#[tokio::test]
async fn an_openai_client_sends_pictures_and_their_past() -> Outcome {
    let server = clawnode_tests::model::ModelServer::start(Script::default()).await.unwrap();
    let home = clawnode_tests::process::Home::new(clawnode_tests::process::TestBackend::Local)?;
    let home = home.openai(&server);
    let node = Node::up(&home).await?;
    let client = node.client()?;
    let url = format!("data:image/png;base64,{}", STANDARD.encode(picture(100)));
    let image = json!({ "type": "image_url", "image_url": { "url": url } });
    let pdf = format!("data:application/pdf;base64,{}", STANDARD.encode(b"%PDF-1.7"));
    let file = json!({ "type": "file", "file": { "filename": "x.pdf", "file_data": pdf } });
    let body = json!({ "model": "default", "messages": [
        { "role": "user", "content": [image, { "type": "text", "text": "what is it?" }] },
        { "role": "assistant", "content": "a walrus" },
        { "role": "user", "content": [{ "type": "text", "text": "and this?" }, file] },
    ]});
    let path = "/v1/chat/completions";
    let (status, answer) = ask(&client, Verb::POST, path, body.to_string().into_bytes()).await;
    assert_eq!(status, 200, "{answer}");
    let asked: Value = serde_json::from_slice(&server.asked(1).await[0].body).unwrap();
    let messages: Vec<_> = asked["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|message| message["role"] != "system")
        .collect();
    assert_eq!(messages[0]["content"][0], image);
    assert_eq!(messages[2]["content"], json!([{ "type": "text", "text": "and this?" }, file]));
    node.stop().await
}
