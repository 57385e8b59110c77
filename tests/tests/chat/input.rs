//! What is typed and pasted arrives whole, once, and only when it is sent.

use clawnode_tests::model::{Act, Script};
use rustix::process::Signal;

use super::{Outcome, asked, chat, scene, stable};

#[tokio::test]
async fn a_paste_of_four_lines_is_one_turn() -> Outcome {
    let (server, home) = scene(Script::default()).await;
    let mut terminal = chat(&home).await?;
    terminal.pastes(b"line one\rline two\r\nline three\nline four").await?;
    terminal.shows("line four").await?;
    assert!(asked(&server).is_empty(), "nothing is sent before Enter");
    terminal.types("\r").await?;
    terminal.shows("reply to:").await?;
    terminal.prompts().await?;
    assert_eq!(asked(&server), ["line one\nline two\nline three\nline four"]);
    // Nor does a terminal without marks send each line of a paste.
    terminal.types("a\rb\rc").await?;
    terminal.shows("  c").await?;
    terminal.types("\r").await?;
    terminal.until("the reply", |screen| screen.matches("reply to:").count() == 2).await?;
    assert_eq!(asked(&server)[1], "a\nb\nc");
    Ok(())
}

#[tokio::test]
async fn long_lines_arrive_whole() -> Outcome {
    let (server, home) = scene(Script::default()).await;
    let mut terminal = chat(&home).await?;
    let texts = [
        format!("{}THE-END", "x".repeat(5_990)),
        "é".repeat(3_000),
        // Together with the next one, less than a message may have.
        "0123456789abcde\n".repeat((1 << 16) - 1),
    ];
    for (at, text) in texts.iter().enumerate() {
        server.turn(text.trim_end(), [Act::say("taken")]);
        terminal.pastes(text.as_bytes()).await?;
        terminal.shows("[pasted ").await?;
        terminal.types("\x1b[F").await?;
        terminal.types("\r").await?;
        let calls = server.answered(at as u64 + 1).await;
        assert_eq!(calls[at].last_user.len(), text.trim_end().len());
        assert_eq!(calls[at].last_user, text.trim_end());
        terminal.types("\x0c").await?;
        terminal.prompts().await?;
    }
    // Typed without marks, and longer than what a kernel keeps of a line.
    let typed = format!("{}THE-END", "y ".repeat(3_000));
    terminal.types(&typed).await?;
    // Wherever it is wrapped.
    let whole = |screen: &str| screen.replace("\n  ", "").contains("THE-END");
    terminal.until("the end of the line", whole).await?;
    terminal.types("\r").await?;
    assert_eq!(server.answered(4).await[3].last_user, typed);
    Ok(())
}

#[tokio::test]
async fn a_binary_paste_harms_nothing_and_is_told() -> Outcome {
    let (server, home) = scene(Script::default()).await;
    let mut terminal = chat(&home).await?;
    let mut bytes: Vec<u8> = (0..=255u8).filter(|byte| *byte != 0x1b).collect();
    bytes.extend(b"\x1b[2Jthe end");
    terminal.pastes(&bytes).await?;
    terminal.shows("are not UTF-8").await?;
    terminal.types("\r").await?;
    terminal.shows("reply to:").await?;
    terminal.prompts().await?;
    assert!(asked(&server)[0].ends_with("\x1b[2Jthe end"));
    // What no message may have is refused, and the line goes on.
    terminal.types("kept").await?;
    terminal.pastes(&vec![b'z'; (1 << 20) + 1]).await?;
    terminal.shows("the paste was refused").await?;
    terminal.types("\r").await?;
    terminal.until("its reply", |screen| screen.contains("reply to: kept")).await?;
    Ok(())
}

#[tokio::test]
async fn lines_are_edited_and_remembered() -> Outcome {
    let (server, home) = scene(Script::default()).await;
    let mut terminal = chat(&home).await?;
    terminal.types("helo\x1b[D").await?;
    terminal.types("l\r").await?;
    terminal.shows("reply to: hello").await?;
    terminal.prompts().await?;
    terminal.types("/new\r").await?;
    terminal.shows("a new conversation").await?;
    terminal.prompts().await?;
    // Enter at an empty line does nothing.
    terminal.types("\r").await?;
    terminal.types("\x04").await?;
    assert!(terminal.ended().await?.success());
    let mut terminal = chat(&home).await?;
    terminal.types("\x1b[A").await?;
    terminal.shows("> /new").await?;
    terminal.types("\x1b[A").await?;
    terminal.shows("> hello").await?;
    terminal.types(" again\r").await?;
    terminal.shows("reply to: hello again").await?;
    assert_eq!(asked(&server), ["hello", "hello again"]);
    let file = home.path().join(".local/state/clawnode/chat_history");
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(file).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    Ok(())
}

#[tokio::test]
async fn unknown_commands_are_not_sent_and_help_lists_those_there_are() -> Outcome {
    let (server, home) = scene(Script::default()).await;
    let mut terminal = chat(&home).await?;
    terminal.types("/hlep\r").await?;
    terminal.shows("Did you mean /help?").await?;
    terminal.prompts().await?;
    terminal.types("/he\t\r").await?;
    terminal.shows("/quit").await?;
    let screen = terminal.prompts().await?;
    insta::assert_snapshot!(stable(&screen));
    terminal.types("//etc is what?\r").await?;
    terminal.shows("reply to: /etc is what?").await?;
    assert_eq!(asked(&server), ["/etc is what?"]);
    terminal.prompts().await?;
    terminal.types("exit\r").await?;
    assert!(terminal.ended().await?.success());
    Ok(())
}

#[tokio::test]
async fn the_terminal_is_as_before_on_every_way_out() -> Outcome {
    let (_server, home) = scene(Script::default()).await;
    for way in ["\x04", "\x03\x03", "/quit\r", "TERM"] {
        let mut terminal = chat(&home).await?;
        assert!(!terminal.is_cooked()?);
        if way == "TERM" {
            terminal.signal(Signal::TERM)?;
        } else {
            for key in way.split_inclusive('\x03') {
                terminal.types(key).await?;
            }
        }
        terminal.ended().await?;
        assert!(terminal.is_cooked()?, "{way:?}");
        let written = terminal.written();
        let end = String::from_utf8_lossy(&written).into_owned();
        assert!(end.contains("\x1b[?2004l"), "{end:?}");
        // The shell's prompt begins a line.
        let last = end.rsplit('\n').next().unwrap_or_default().replace("\x1b[?2004l\x1b[?25h", "");
        assert_eq!(last, "", "{way:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_paste_without_an_end_is_in_the_line_after_a_while() -> Outcome {
    let (server, home) = scene(Script::default()).await;
    let mut terminal = chat(&home).await?;
    terminal.types("\x1b[200~half a paste").await?;
    terminal.shows("> half a paste").await?;
    terminal.types(" and more\r").await?;
    terminal.shows("reply to: half a paste and more").await?;
    assert_eq!(asked(&server), ["half a paste and more"]);
    Ok(())
}
