//! The content of the screen: compared as a whole.

use clawnode_tests::{
    model::{Act, Reply, Script, Step},
    process::Terminal,
};

use super::{Outcome, UP, WINDOW, chat, scene, stable};

const PAGE: &str = "# Plan\n\nFirst **read** the `README`, then:\n\n1. build it\n2. run it, with a line \
                    that is long enough to be wrapped at the edge of the window, twice if need be\n\n\
                    | crate | lines |\n|---|--:|\n| proto | 8,029 |\n| nodes | 21,310 |\n\n```sh\ncargo \
                    run -- up --chat\n```\n\n> and *that* is all\n\x1b[2J";

fn page() -> Script {
    let pieces: Vec<Step> =
        PAGE.split_inclusive(' ').map(|text| Step::Text { text: text.to_owned() }).collect();
    Script::default().turn("plan", [Act::from(Reply::steps(pieces))])
}

#[tokio::test]
async fn a_page_is_rendered_as_it_streams() -> Outcome {
    let (_server, home) = scene(page()).await;
    let mut terminal = chat(&home).await?;
    terminal.types("plan\r").await?;
    terminal.shows("is all").await?;
    let screen = terminal.prompts().await?;
    insta::assert_snapshot!(stable(&screen));
    // A model gives the terminal no orders.
    assert!(screen.contains("\\u{1b}[2J"), "{screen}");
    Ok(())
}

#[tokio::test]
async fn twenty_columns_are_enough() -> Outcome {
    let (_server, home) = scene(page()).await;
    let mut terminal = Terminal::start(&home, &UP, &[], (20, 60))?;
    terminal.prompts().await?;
    terminal.types("plan and a question that is longer than the window").await?;
    terminal.shows("ndow").await?;
    terminal.types("\x15plan\r").await?;
    terminal.shows("is all").await?;
    let screen = terminal.prompts().await?;
    insta::assert_snapshot!(stable(&screen));
    Ok(())
}

#[tokio::test]
async fn without_colors_and_signs_it_is_plain() -> Outcome {
    let (_server, home) = scene(page()).await;
    let mut terminal = Terminal::start(&home, &UP, &[("NO_COLOR", "1"), ("LANG", "C")], WINDOW)?;
    terminal.prompts().await?;
    terminal.types("plan\r").await?;
    terminal.shows("is all").await?;
    let screen = terminal.prompts().await?;
    assert!(screen.is_ascii(), "{screen}");
    let written = String::from_utf8_lossy(&terminal.written()).into_owned();
    let styled = written.split("\x1b[").skip(1).filter(|part| {
        part.split_once(|c: char| c.is_ascii_alphabetic())
            .is_some_and(|(args, _)| part.chars().nth(args.chars().count()) == Some('m'))
    });
    assert_eq!(styled.count(), 0, "{written:?}");
    Ok(())
}

#[tokio::test]
async fn a_window_that_is_resized_in_mid_stream_loses_nothing() -> Outcome {
    let words: Vec<Step> = (0..60)
        .flat_map(|n| {
            let gate = (n == 30).then(|| Step::Gate { name: "half".to_owned() });
            gate.into_iter().chain([Step::Text { text: format!("word{n} ") }])
        })
        .collect();
    let script = Script::default().turn("count", [Act::from(Reply::steps(words))]);
    let (server, home) = scene(script).await;
    let mut terminal = chat(&home).await?;
    terminal.types("count\r").await?;
    terminal.shows("word28").await?;
    terminal.resize(33, 40)?;
    server.open("half");
    terminal.shows("word59").await?;
    terminal.prompts().await?;
    let written = String::from_utf8_lossy(&terminal.written()).into_owned();
    for n in 0..60 {
        assert_eq!(
            written.matches(&format!("word{n} ")).count()
                + written.matches(&format!("word{n}\r")).count(),
            1,
            "word{n}"
        );
    }
    // The line that is typed is drawn again where it is.
    terminal.types("a line that is longer than the window is wide now").await?;
    terminal.shows("now").await?;
    terminal.resize(25, 40)?;
    terminal.types("!").await?;
    let screen = terminal.shows("now!").await?;
    assert_eq!(screen.matches("a line that").count(), 1, "{screen}");
    Ok(())
}

#[tokio::test]
async fn the_first_screen_is_short() -> Outcome {
    let home = clawnode_tests::process::Home::new(clawnode_tests::process::TestBackend::Local)?;
    let mut terminal = chat(&home).await?;
    terminal.types("hello\r").await?;
    terminal.shows("hello").await?;
    terminal
        .until("the demo's reply", |screen| {
            screen.contains("no language model.") || screen.contains("demo")
        })
        .await?;
    let screen = terminal.prompts().await?;
    insta::assert_snapshot!(stable(&screen));
    Ok(())
}
