//! What does not work is said in the chat, once, and disturbs nothing; the log is elsewhere.

use std::{fs, os::unix::fs::PermissionsExt};

use clawnode_tests::{
    mcp::hostile,
    model::{Act, Reply, Script, Step},
    process::{Home, ProcessError, Terminal},
    wait::until,
};

use super::{Outcome, UP, WINDOW, asked, chat, scene};

/// How the log says that a server does not run.
const DOWN: &str = "an MCP server is down";

/// Gives the agent an MCP server that writes down each of its starts, and works once a file is there.
fn break_a_server(home: &Home) {
    let settings = home.path().join(".config/clawnode");
    fs::create_dir_all(&settings).unwrap();
    let server = hostile();
    let program = format!(
        "echo start >>starts; test -f mended || {{ echo 'no data' >&2; exit 3; }}; exec python3 {} well",
        server.display()
    );
    let config = format!(
        "[[mcp_servers]]\nname = \"nope\"\ncommand = \"sh\"\nargs = [\"-c\", \"{program}\"]\n\
         cwd = \"{}\"\nrestart_first = \"100ms\"\nrestart_most = \"200ms\"\n",
        home.path().display()
    );
    fs::write(settings.join("config.toml"), config).unwrap();
}

/// How often its program was started.
fn starts(home: &Home) -> usize {
    fs::read_to_string(home.path().join("starts")).unwrap_or_default().lines().count()
}

fn log(home: &Home) -> String {
    fs::read_to_string(home.data().join("node.log")).unwrap_or_default()
}

/// Waits until it was started so often.
async fn started(home: &Home, times: usize) -> Outcome {
    let what = format!("{times} starts of the MCP server");
    until(&what, async || Ok((starts(home) >= times).then_some(()))).await
}

#[tokio::test]
async fn what_does_not_work_is_told_once_above_the_line() -> Outcome {
    let (server, home) = scene(Script::default()).await;
    break_a_server(&home);
    let mut terminal = chat(&home).await?;
    terminal.types("half a li").await?;
    let screen = terminal.shows("warning: MCP server `nope`").await?;
    // The terminal wraps it somewhere.
    let words: Vec<&str> = screen.split_whitespace().collect();
    assert!(words.join(" ").contains("it said: no data"), "why\n{screen}");
    terminal.until("the line below", |screen| screen.trim_end().ends_with("\n> half a li")).await?;
    // It stays down, for the same reason.
    let before = starts(&home);
    started(&home, before + 3).await?;
    terminal.types("ne\r").await?;
    terminal.shows("reply to: half a line").await?;
    terminal.prompts().await?;
    assert_eq!(asked(&server), ["half a line"]);
    fs::write(home.path().join("mended"), "").unwrap();
    let screen = terminal.shows("works again: MCP server `nope`").await?;
    assert_eq!(screen.matches("warning:").count(), 1, "{screen}");
    // Nothing of the log is on the terminal, and the file has each reason once.
    let (log, written) = (log(&home), String::from_utf8_lossy(&terminal.written()).into_owned());
    assert_eq!(log.matches(DOWN).count(), 1, "{log}");
    assert!(!written.contains(DOWN) && !written.contains(" INFO "), "{written}");
    Ok(())
}

#[tokio::test]
async fn an_answer_is_not_interrupted_by_a_warning() -> Outcome {
    let steps = vec![
        Step::Gate { name: "gate".to_owned() },
        Step::Text { text: "the beginning of it ".to_owned() },
        Step::Text { text: "and its end".to_owned() },
    ];
    let (server, home) =
        scene(Script::default().turn("long", [Act::from(Reply::steps(steps))])).await;
    break_a_server(&home);
    let mut terminal = chat(&home).await?;
    terminal.types("long\r").await?;
    // Later than at the prompt it would have been told, and the node knows that it is broken.
    let waited = |screen: &str| {
        let words: Vec<&str> = screen.split_whitespace().collect();
        let is_long = |two: &[&str]| two[1] == "s" && two[0].parse().is_ok_and(|n: u32| n >= 4);
        words.windows(2).any(is_long)
    };
    terminal.until("a wait of 4 s", waited).await?;
    started(&home, 3).await?;
    let told = home.run(&["status"]).await?;
    assert!(told.out.contains("mcp.down"), "{}", told.out);
    assert!(!terminal.screen().contains("warning:"), "{}", terminal.screen());
    server.open("gate");
    terminal.shows("the beginning of it and its end").await?;
    let screen = terminal.shows("warning: MCP server `nope`").await?;
    let at = |what: &str| screen.find(what).unwrap();
    assert!(at("and its end") < at("warning:"), "{screen}");
    Ok(())
}

#[tokio::test]
async fn the_log_is_in_a_file_unless_one_is_asked_for() -> Outcome {
    let (_server, home) = scene(Script::default()).await;
    let screen = chat(&home).await?.screen();
    assert!(screen.contains("log of this node is in ~/.local/share/clawnode/node.log"), "{screen}");
    assert!(!screen.contains(" INFO "), "{screen}");
    let path = home.data().join("node.log");
    assert!(log(&home).contains("INFO"), "{}", log(&home));
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let folder = fs::metadata(home.data()).unwrap().permissions().mode();
    assert_eq!(folder & 0o777, 0o700);

    let (_server, home) = scene(Script::default()).await;
    let mut terminal = at_info(&home)?;
    let screen = terminal.shows(" INFO ").await?;
    assert!(!screen.contains("node.log"), "{screen}");
    terminal.shows("/help").await?;
    assert!(!home.data().join("node.log").exists());
    Ok(())
}

/// A node and a chat with `--log info`.
fn at_info(home: &Home) -> Result<Terminal, ProcessError> {
    Terminal::start(home, &[&["--log", "info"], &UP[..]].concat(), &[], WINDOW)
}
