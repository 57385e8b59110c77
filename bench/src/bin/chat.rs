//! `chat`: the chat at a terminal.
//!
//! `start` is the time from the start of `clawnode up --chat` to its prompt, in a directory of its own
//! and in one that was used before. `echo` is the time from a key to its character on the screen, in a
//! chat whose node is idle and in one whose node serves clients that chat without a pause; the node is
//! the same process. `stream` is what a chat of its own process needs of a core while it shows a reply in
//! Markdown, and how far behind the model it ends. The terminal is a pseudo-terminal of 80 columns that
//! this process reads; the model is this process too. Run with `CLAWNODE_BIN=target/release/clawnode
//! cargo run --release -p clawnode-bench --bin chat`.

use std::time::{Duration, Instant};

use clap::Parser;
use clawnode_bench::{Error, Row, Table, cpu, percentile};
use clawnode_tests::{
    model::{Act, ModelServer, Reply, Script, Step},
    process::{Home, Node, Terminal, TestBackend},
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

const WINDOW: (u16, u16) = (80, 24);
const UP: [&str; 4] = ["--listen", "127.0.0.1:0", "up", "--chat"];
/// The target of `stream`: percent of a core.
const TARGET: f64 = 10.0;
/// Keys of a line before it is cleared.
const LINE: usize = 60;
/// What asks for the long reply.
const LONG: &str = "write much";
/// Words of a paragraph, and how the paragraphs of a reply alternate.
const PARAGRAPH: usize = 50;

/// Measures the chat at a terminal.
#[derive(Debug, Parser)]
struct Args {
    /// Starts of each kind
    #[arg(long, default_value_t = 20)]
    starts: usize,
    /// Keys of each kind
    #[arg(long, default_value_t = 600)]
    keys: usize,
    /// Clients that chat meanwhile
    #[arg(long, default_value_t = 8)]
    clients: usize,
    /// Words of the long reply
    #[arg(long, default_value_t = 10_000)]
    words: usize,
    /// Words in a second
    #[arg(long, default_value_t = 200)]
    rate: u64,
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    // Installing fails only if it was installed before, which serves as well.
    drop(rustls::crypto::ring::default_provider().install_default());
    let args = Args::parse();
    let mut table = Table::default();
    table.add(starts(&args).await?);
    for clients in [0, args.clients] {
        table.add(echo(&args, clients).await?);
    }
    table.add(stream(&args).await?);
    Ok(table.json()?)
}

async fn starts(args: &Args) -> Result<Row, Error> {
    let model = ModelServer::start(Script::default()).await?;
    let (mut first, mut again) = (Vec::new(), Vec::new());
    for _ in 0..args.starts {
        let home = Home::new(TestBackend::Local).map_err(other)?.openai(&model);
        for took in [&mut first, &mut again] {
            let began = Instant::now();
            let mut terminal = Terminal::start(&home, &UP, &[], WINDOW).map_err(other)?;
            terminal.prompts().await.map_err(other)?;
            took.push(began.elapsed());
            leave(terminal).await?;
        }
    }
    let mut row = Row::new("chat::start");
    for (p50, p99, mut took) in
        [("p50 ms", "p99 ms", first), ("again p50 ms", "again p99 ms", again)]
    {
        took.sort_unstable();
        row = row.figure(p50, ms(percentile(&took, 500))).figure(p99, ms(percentile(&took, 990)));
    }
    Ok(row)
}

async fn echo(args: &Args, clients: usize) -> Result<Row, Error> {
    let model = ModelServer::start(Script::default()).await?;
    let home = Home::new(TestBackend::Local).map_err(other)?.openai(&model);
    let mut terminal = Terminal::start(&home, &UP, &[], WINDOW).map_err(other)?;
    let screen = terminal.prompts().await.map_err(other)?;
    let url = screen.split_whitespace().find(|word| word.starts_with("http://"));
    let url = url.ok_or("the chat does not say where its node is")?.to_owned();
    let token = std::fs::read_to_string(home.data().join("token"))?;
    let mut talk = JoinSet::new();
    for client in 0..clients {
        talk.spawn(chats(url.clone(), token.trim().to_owned(), client));
    }
    let mut took = Vec::with_capacity(args.keys);
    while took.len() < args.keys {
        let mut line = "> ".to_owned();
        for _ in 0..LINE {
            line.push('k');
            let began = Instant::now();
            terminal.types("k").await.map_err(other)?;
            let shown = |screen: &str| screen.trim_end().ends_with(&line);
            terminal.until("the key", shown).await.map_err(other)?;
            took.push(began.elapsed());
        }
        terminal.types("\u{15}").await.map_err(other)?;
        terminal.prompts().await.map_err(other)?;
        // What ended has failed: each goes on for ever.
        if let Some(ended) = talk.try_join_next() {
            ended??;
        }
    }
    talk.shutdown().await;
    leave(terminal).await?;
    took.sort_unstable();
    Ok(Row::new(format!("chat::echo/clients={clients}"))
        .figure("p50 ms", ms(percentile(&took, 500)))
        .figure("p99 ms", ms(percentile(&took, 990))))
}

/// Chats without a pause.
async fn chats(url: String, token: String, client: usize) -> Result<(), Error> {
    let http = reqwest::Client::builder().no_proxy().build()?;
    for turn in 0_u64.. {
        let body = json!({
            "model": "default",
            "user": format!("bench-{client}-{}", turn / 10),
            "messages": [{ "role": "user", "content": format!("what is {turn}?") }],
        });
        let post = http.post(format!("{url}/v1/chat/completions")).bearer_auth(&token).json(&body);
        let answer: Value = post.send().await?.error_for_status()?.json().await?;
        if answer["choices"][0]["message"]["content"].as_str().is_none() {
            return Err(format!("a turn went wrong: {answer}").into());
        }
    }
    Ok(())
}

async fn stream(args: &Args) -> Result<Row, Error> {
    let every_ms = 1_000 / args.rate.max(1);
    let pieces =
        (0..args.words).flat_map(|n| [Step::Delay { ms: every_ms }, Step::Text { text: piece(n) }]);
    let end = Step::Text { text: "\n\nthe end\n".to_owned() };
    let reply = Reply::steps(pieces.chain([end]).collect::<Vec<_>>());
    let model = ModelServer::start(Script::default().turn(LONG, [Act::from(reply)])).await?;
    let home = Home::new(TestBackend::Local).map_err(other)?.openai(&model);
    let node = Node::up(&home).await.map_err(other)?;
    let mut terminal = Terminal::start(&home, &["chat"], &[], WINDOW).map_err(other)?;
    terminal.prompts().await.map_err(other)?;
    let pid = terminal.process().ok_or("the chat has ended")?;
    let (before, began) = (cpu(pid).await?, Instant::now());
    terminal.types(&format!("{LONG}\r")).await.map_err(other)?;
    model.answered(1).await;
    let answered = Instant::now();
    terminal.shows("the end").await.map_err(other)?;
    terminal.prompts().await.map_err(other)?;
    let behind = answered.elapsed();
    let took = began.elapsed();
    let used = cpu(pid).await?.saturating_sub(before);
    let share = used.as_secs_f64() / took.as_secs_f64() * 100.0;
    leave(terminal).await?;
    node.stop().await.map_err(other)?;
    let rate = f64::from(u32::try_from(args.words)?) / took.as_secs_f64();
    Ok(Row::new(format!("chat::stream/words={}", args.words))
        .figure("words/s", rate)
        .figure("cpu %", share)
        .figure("behind ms", ms(behind))
        .at_most("percent of a core", share, TARGET))
}

/// A word of a text with headings, lists, paragraphs and code.
fn piece(n: usize) -> String {
    let word = format!("word{n} ");
    match (n / PARAGRAPH % 4, n % PARAGRAPH) {
        (0, 0) => format!("\n\n```\n\n## {word}\n\n"),
        (1, at) if at % 10 == 0 => format!("\n- **{}** ", word.trim()),
        (2, 0) => format!("\n\n{word}"),
        (3, 0) => format!("\n\n```rust\nlet {word}= "),
        (3, at) if at % 8 == 0 => format!("{};\nlet ", word.trim()),
        _ => word,
    }
}

async fn leave(mut terminal: Terminal) -> Result<(), Error> {
    terminal.types("\u{4}").await.map_err(other)?;
    terminal.ended().await.map_err(other)?;
    Ok(())
}

fn ms(took: Duration) -> f64 {
    took.as_secs_f64() * 1_000.0
}

fn other(error: impl std::fmt::Display) -> Error {
    Error::from(std::io::Error::other(error.to_string()))
}
