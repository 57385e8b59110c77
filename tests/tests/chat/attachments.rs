//! A picture that a person asks about.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use clawnode_tests::model::{Act, ModelServer, Script};
use rustix::process::Signal;
use serde_json::Value;

use super::{Outcome, chat, chat_with, scene};

/// One red pixel.
const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVQI12P4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC";

/// The pictures of the model call at this place, by the place of their message.
fn pictures(server: &ModelServer, at: usize) -> Vec<(usize, String)> {
    let body: Value = serde_json::from_slice(&server.calls()[at].body).unwrap();
    let messages = body["messages"].as_array().unwrap().iter().enumerate();
    let blocks = messages.flat_map(|(at, message)| {
        message["content"].as_array().into_iter().flatten().map(move |block| (at, block))
    });
    let images = blocks.filter(|(_, block)| block["type"] == "image");
    let data = |block: &Value| block["source"]["data"].as_str().unwrap().to_owned();
    images.map(|(at, block)| (at, data(block))).collect()
}

/// The model is shown the picture with each message of the conversation, also after a kill.
#[tokio::test]
async fn a_picture_is_asked_about_and_stays_in_the_conversation() -> Outcome {
    let script = Script::default().turn("what color is it?", [Act::say("It is red.")]);
    let (server, home) = scene(script).await;
    std::fs::write(home.path().join("red.png"), STANDARD.decode(PNG).unwrap()).unwrap();
    let mut terminal = chat(&home).await?;
    terminal.types("/attach gone.png\r").await?;
    terminal.shows("cannot read").await?;
    terminal.prompts().await?;
    terminal.types("/attach red.png\r").await?;
    terminal.shows("goes with your next message").await?;
    terminal.prompts().await?;
    terminal.types("what color is it?\r").await?;
    terminal.shows("It is red.").await?;
    terminal.prompts().await?;
    assert_eq!(pictures(&server, 0), [(0, PNG.to_owned())], "byte for byte");
    terminal.types("/attach\r").await?;
    terminal.shows("nothing is attached").await?;
    terminal.signal(Signal::KILL)?;
    terminal.ended().await?;

    let mut terminal = chat_with(&home, &["--continue"]).await?;
    terminal.shows("It is red.").await?;
    terminal.prompts().await?;
    terminal.types("are you sure?\r").await?;
    terminal.shows("reply to: are you sure?").await?;
    assert_eq!(pictures(&server, 1), [(0, PNG.to_owned())]);
    Ok(())
}
