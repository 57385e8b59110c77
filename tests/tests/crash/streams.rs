//! `up --chat` on both wires: killed in the middle of an answer, started again, and finished.

use std::process::Stdio;

use clawnode_tests::{
    model::{Reply, Script, Step},
    process::{Client, Home, Message, Node, ProcessError},
};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStderr},
};

use super::support::{Outcome, Scene};

/// The first answer to `text` stops at a gate.
pub(crate) fn stuck_script(gate: &str, text: &str) -> Script {
    let steps = vec![
        Step::Text { text: format!("reply to: {text}") },
        Step::Gate { name: gate.to_owned() },
    ];
    let acts = [Reply::steps(steps).into()];
    Script { on: [(text.to_owned(), acts.into())].into(), ..Script::default() }
}

/// A scene in which it does.
pub(crate) async fn stuck_at(gate: &str, text: &str) -> Scene {
    Scene::new(stuck_script(gate, text)).await
}

/// Starts `up --chat` in the session of [`Message::typed`] with these lines typed.
async fn chat(home: &Home, lines: &str) -> Result<Child, ProcessError> {
    let session = Message::typed("").session();
    let args = ["--listen", "127.0.0.1:0", "--log", "off", "up", "--chat", "--session", &session];
    let mut command = home.command(&args);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).await.unwrap();
    Ok(child)
}

/// The address that the chat says is ready.
async fn ready(stderr: &mut BufReader<ChildStderr>) -> String {
    loop {
        let mut line = String::new();
        assert!(stderr.read_line(&mut line).await.unwrap() > 0, "the chat ended");
        if let Some(url) = line.strip_prefix("ready ") {
            return url.trim().to_owned();
        }
    }
}

async fn killed_in_mid_answer(mut scene: Scene) -> Outcome {
    let [first, second] = [Message::typed("one"), Message::typed("two")];
    let mut child = chat(&scene.home, "one\n").await?;
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let client = Client::new(&ready(&mut stderr).await, &scene.home.data())?;
    let session = first.session();
    let history = client.history_when(&session, |history| !history.turns.is_empty()).await?;
    let turn = history.turns[0].turn.to_string();
    client.resume(&session, &turn).await?.begun().await?;
    child.kill().await.unwrap();
    scene.kills += 1;

    // The turn is finished before the next one, without a word from anybody.
    let ended = chat(&scene.home, "two\n").await?.wait_with_output().await.unwrap();
    let (out, err) = (String::from_utf8_lossy(&ended.stdout), ended.stderr);
    let err = String::from_utf8_lossy(&err);
    assert!(ended.status.success(), "{err}");
    assert_eq!(out, "reply to: two\n", "{err}");

    let node = Node::up(&scene.home).await?;
    let found = scene.judge(&node.client()?, &[first, second]).await?;
    assert_eq!((found.turns, found.requests, found.lost), (2, 3, 1));
    node.stop().await
}

#[tokio::test]
async fn a_chat_over_anthropics_wire_is_killed_in_mid_answer_and_finishes() -> Outcome {
    killed_in_mid_answer(stuck_at("never", "one").await).await
}

#[tokio::test]
async fn a_chat_over_openais_wire_is_killed_in_mid_answer_and_finishes() -> Outcome {
    let mut scene = stuck_at("never", "one").await;
    scene.home = Home::new(scene.backend.clone())?.openai(&scene.server);
    killed_in_mid_answer(scene).await
}
