//! A person approves only the call that they have read.

use std::{os::unix::fs::PermissionsExt as _, path::PathBuf};

use clawnode_tests::{
    model::{Act, ModelServer, Reply, Script, Step, ToolCall},
    process::{Home, Node, Terminal, TestBackend},
};
use serde_json::json;

use super::{Outcome, chat, chat_with, scene_on, stable};

/// Has the file written.
pub(super) const WRITE: &str =
    r#"/tool file_write {"path":"notes.txt","content":"one\ntwo\nthree\n"}"#;

/// A home whose agent writes files, and the file that it is asked to write.
pub(super) async fn writer() -> (ModelServer, Home, PathBuf) {
    writer_on(TestBackend::Local, Script::default()).await
}

/// The same on this storage backend, with a model that answers so.
pub(super) async fn writer_on(
    backend: TestBackend,
    script: Script,
) -> (ModelServer, Home, PathBuf) {
    let (server, home) = scene_on(backend, script).await;
    let root = home.path().join("files");
    std::fs::create_dir_all(settings(&home).parent().unwrap()).unwrap();
    let file = root.join("default/notes.txt");
    let root = root.display();
    let config = format!(
        "[workspace]\nroot = \"{root}\"\n[agents.default]\ntools = [\"file_write\", \"calculate\"]\n"
    );
    std::fs::write(settings(&home), config).unwrap();
    (server, home, file)
}

/// Clears the screen at the prompt.
async fn wipe(terminal: &mut Terminal) -> Outcome {
    terminal.types("\x0c").await?;
    terminal.until("a clear screen", |screen| screen.trim() == ">").await?;
    Ok(())
}

/// The configuration file of this home.
fn settings(home: &Home) -> PathBuf {
    home.path().join(".config/clawnode/config.toml")
}

#[tokio::test]
async fn what_was_typed_before_the_question_approves_nothing() -> Outcome {
    let (server, home, file) = writer().await;
    let call = ToolCall::new(
        "file_write",
        json!({ "path": "notes.txt", "content": "one\ntwo\nthree\n" }).to_string(),
    );
    let steps = vec![
        Step::Gate { name: "typed".to_owned() },
        Step::Tools { calls: vec![call], interleaved: false },
    ];
    server.turn("write it", [Act::from(Reply::steps(steps)), Act::say("reply to: it")]);
    let mut terminal = chat(&home).await?;
    let root = file.ancestors().nth(2).unwrap().metadata().unwrap();
    assert_eq!(root.permissions().mode() & 0o777, 0o700, "the node made it, for its user alone");
    terminal.types("write it\r").await?;
    server.asked(1).await;
    terminal.types("y\r").await?;
    server.open("typed");
    terminal.shows("run it?").await?;
    assert!(!file.exists());
    // Nor does what is pasted.
    terminal.pastes(b"y\n").await?;
    terminal.types("\r").await?;
    terminal.types("why\r").await?;
    terminal.shows("runs exactly this call, once").await?;
    terminal.until("the question", |screen| screen.matches("run it?").count() == 2).await?;
    assert!(!file.exists());
    terminal.types("y\r").await?;
    terminal.shows("reply to:").await?;
    assert_eq!(std::fs::read_to_string(file).unwrap(), "one\ntwo\nthree\n");
    Ok(())
}

#[tokio::test]
async fn a_write_is_shown_as_a_difference_and_always_as_a_rule() -> Outcome {
    let (_server, home, file) = writer().await;
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, "one\n2\nthree\n").unwrap();
    let before = std::fs::read_to_string(settings(&home)).unwrap();
    let mut terminal = chat(&home).await?;
    terminal.types(&format!(" {WRITE}\r")).await?;
    terminal.shows("run it?").await?;
    terminal.types("always\r").await?;
    terminal.shows("[[agents.default.rules]]").await?;
    terminal.shows("write the rule and run it?").await?;
    terminal.types("n\r").await?;
    terminal.shows("is not written").await?;
    terminal.until("the question", |screen| screen.matches("run it? y, n, a").count() == 2).await?;
    terminal.types("n\r").await?;
    terminal.shows("reply to:").await?;
    let screen = terminal.prompts().await?;
    insta::assert_snapshot!(stable(&screen));
    assert_eq!(std::fs::read_to_string(file).unwrap(), "one\n2\nthree\n");
    assert_eq!(std::fs::read_to_string(settings(&home)).unwrap(), before, "nothing is written");
    Ok(())
}

#[tokio::test]
async fn always_writes_a_rule_for_exactly_such_calls() -> Outcome {
    let (_server, home, file) = writer().await;
    let before = std::fs::read_to_string(settings(&home)).unwrap();
    let mut terminal = chat(&home).await?;
    terminal.types(&format!(" {WRITE}\r")).await?;
    terminal.shows("run it?").await?;
    terminal.types("always\r").await?;
    terminal.shows("write the rule and run it?").await?;
    terminal.types("y\r").await?;
    terminal.shows("reply to:").await?;
    terminal.shows("is active: such calls run").await?;
    terminal.prompts().await?;
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "one\ntwo\nthree\n");
    let after = std::fs::read_to_string(settings(&home)).unwrap();
    assert!(after.starts_with(&before) && after.contains("exact = true"), "{after}");

    // The same file with another text: the chat does not ask.
    wipe(&mut terminal).await?;
    terminal.types(" /tool file_write {\"path\":\"notes.txt\",\"content\":\"2\"}\r").await?;
    terminal.shows("reply to:").await?;
    let screen = terminal.prompts().await?;
    assert!(!screen.contains("run it?"), "{screen}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "2");
    // Another file is another call.
    wipe(&mut terminal).await?;
    terminal.types(" /tool file_write {\"path\":\"a.txt\",\"content\":\"3\"}\r").await?;
    terminal.shows("run it?").await?;
    terminal.types("n\r").await?;
    terminal.prompts().await?;
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "2");

    // A rule that cannot be written runs nothing by itself: broken after the offer, then before it.
    wipe(&mut terminal).await?;
    terminal.types(" /tool file_write {\"path\":\"b.txt\",\"content\":\"3\"}\r").await?;
    terminal.shows("run it?").await?;
    terminal.types("always\r").await?;
    terminal.shows("write the rule and run it?").await?;
    std::fs::write(settings(&home), "[[").unwrap();
    terminal.types("y\r").await?;
    terminal.shows("The rule is not written").await?;
    terminal.until("the question", |screen| screen.matches("run it? y, n, a").count() == 2).await?;
    terminal.types("always\r").await?;
    terminal.shows("the configuration is not valid now").await?;
    assert!(!file.with_file_name("b.txt").exists());
    Ok(())
}

#[tokio::test]
async fn no_rule_is_written_that_the_node_would_not_read() -> Outcome {
    let (_server, home, file) = writer().await;
    let node = Node::up(&home).await?;
    // The node has other rules than this machine's file: it was started with another one.
    let other = std::fs::read_to_string(settings(&home)).unwrap();
    let rule = "[[agents.default.rules]]\nverdict = \"ask\"\nreason = \"mine\"\n";
    let elsewhere = home.path().join("elsewhere.toml");
    std::fs::write(&elsewhere, format!("{other}{rule}")).unwrap();
    let url = node.url().to_owned();
    let token = node.client()?.token().to_owned();
    let elsewhere = elsewhere.to_str().unwrap().to_owned();
    for (args, why) in [
        (vec!["chat", "--config", &elsewhere], "differ from this machine"),
        (vec!["chat", "--url", &url], "was named by its address"),
    ] {
        let vars = [("CLAWNODE_TOKEN", token.as_str())];
        let mut terminal = Terminal::start(&home, &args, &vars, (80, 40))?;
        terminal.prompts().await?;
        terminal.types(&format!(" {WRITE}\r")).await?;
        terminal.shows("run it?").await?;
        terminal.types("always\r").await?;
        terminal.shows("exact = true").await?;
        let screen = terminal
            .until("the question", |screen| screen.matches("run it? y, n, a").count() == 2)
            .await?;
        let words = screen.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(why), "{screen}");
        assert!(!screen.contains("write the rule"), "{screen}");
        terminal.types("n\r").await?;
        terminal.prompts().await?;
        terminal.types("\x04").await?;
        assert!(terminal.ended().await?.success());
    }
    assert_eq!(std::fs::read_to_string(settings(&home)).unwrap(), other);
    assert_eq!(std::fs::read_to_string(&elsewhere).unwrap(), format!("{other}{rule}"));
    assert!(!file.exists());
    node.stop().await?;
    Ok(())
}

#[tokio::test]
async fn what_waits_is_asked_again_by_the_next_chat() -> Outcome {
    let (_server, home, file) = writer().await;
    let mut terminal = chat(&home).await?;
    terminal.types(&format!(" {WRITE}\r")).await?;
    terminal.shows("run it?").await?;
    // Later: the chat goes on, and asks again before it says anything else.
    terminal.types("\x04").await?;
    terminal.shows("still needs a decision").await?;
    terminal.prompts().await?;
    terminal.types("hello?\r").await?;
    terminal.until("the question", |screen| screen.matches("run it?").count() == 2).await?;
    terminal.types("\x04").await?;
    terminal.until("the text again", |screen| screen.matches("> hello?").count() == 2).await?;
    terminal.types("\x03").await?;
    terminal.types("\x04").await?;
    assert!(terminal.ended().await?.success());
    assert!(!file.exists());

    let mut terminal = chat_with(&home, &[]).await?;
    terminal.shows("continuing: /tool file_write").await?;
    terminal.shows("run it?").await?;
    terminal.types("y\r").await?;
    terminal.shows("reply to:").await?;
    terminal.prompts().await?;
    assert!(file.exists());
    terminal.types("/show\r").await?;
    terminal.shows("\"path\": \"notes.txt\"").await?;
    Ok(())
}

#[tokio::test]
async fn nobody_is_asked_about_what_cannot_run() -> Outcome {
    let (server, home, file) = writer().await;
    let mut terminal = chat(&home).await?;
    terminal.types(" /tool file_write {\"path\":\"../up.txt\",\"content\":\"a\"}\r").await?;
    terminal.shows("reply to:").await?;
    let screen = terminal.prompts().await?;
    assert!(!screen.contains("run it?"), "{screen}");
    let told = format!("{:?}", server.calls()[1].results);
    assert!(told.contains("it has `..` in it"), "{told}");
    assert!(!file.ancestors().nth(2).unwrap().join("up.txt").exists());
    Ok(())
}
