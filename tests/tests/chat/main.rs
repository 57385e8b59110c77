//! The chat as a person meets it: a real node and a real terminal, of which the tests type the keys
//! and read the screen.
#![expect(clippy::unwrap_used, reason = "helpers of tests: their panic is the test's failure")]

mod approvals;
mod attachments;
mod budgets;
mod conversations;
mod input;
mod losses;
mod screens;
mod warnings;

use clawnode_tests::{
    model::{ModelServer, Script},
    process::{Home, ProcessError, Terminal, TestBackend},
};

type Outcome = Result<(), ProcessError>;

/// Columns and rows of a usual window.
const WINDOW: (u16, u16) = (80, 40);
/// A node and a chat.
const UP: [&str; 4] = ["--listen", "127.0.0.1:0", "up", "--chat"];

/// A home whose nodes ask a scripted model.
async fn scene(script: Script) -> (ModelServer, Home) {
    scene_on(TestBackend::Local, script).await
}

/// The same on this storage backend.
async fn scene_on(backend: TestBackend, script: Script) -> (ModelServer, Home) {
    let server = ModelServer::start(script).await.unwrap();
    let home = Home::new(backend).unwrap().anthropic(&server);
    (server, home)
}

/// A node and a chat at a terminal, at their prompt.
async fn chat(home: &Home) -> Result<Terminal, ProcessError> {
    let mut terminal = Terminal::start(home, &UP, &[], WINDOW)?;
    terminal.prompts().await?;
    Ok(terminal)
}

/// The same with further arguments.
async fn chat_with(home: &Home, args: &[&str]) -> Result<Terminal, ProcessError> {
    Terminal::start(home, &[&UP[..], args].concat(), &[], WINDOW)
}

/// What the model was asked, in order.
fn asked(server: &ModelServer) -> Vec<String> {
    server.calls().into_iter().map(|call| call.last_user).collect()
}

/// A screen as a snapshot has it: addresses and times are others each time.
fn stable(screen: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in screen.trim_end().lines() {
        let mut rest = line.split(' ').peekable();
        let words = std::iter::from_fn(|| {
            let word = rest.next()?;
            let seconds = word.parse::<f64>().is_ok() && rest.peek() == Some(&"s");
            Some(match word {
                _ if seconds => "N",
                word if word.starts_with("http://127.0.0.1:") => "http://127.0.0.1:PORT",
                word => word,
            })
        });
        lines.push(words.collect::<Vec<&str>>().join(" ").trim_end().to_owned());
    }
    lines.join("\n")
}
