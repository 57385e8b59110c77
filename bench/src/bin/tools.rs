//! `session::tool_turn`: a turn whose model asks for one tool, beside a chat turn of the same run.
//!
//! Kinds alternate turn by turn, so a slow moment of the machine falls on all of them: a chat turn; one
//! with a tool that runs beside its session (`calculate`); one with a tool that is given to the queue
//! of its capability as a job (`file_list`). A turn with a tool has two model calls. The model is this
//! process, and answers without delay. Run with `CLAWNODE_BIN=target/release/clawnode cargo run
//! --release -p clawnode-bench --bin tools`.

use std::time::{Duration, Instant};

use clap::Parser;
use clawnode_bench::{Error, Row, Table, percentile};
use clawnode_tests::{
    model::{DefaultReply, ModelServer, Script},
    nats::{NatsServer, ServerOptions},
    process::{Home, Node, TestBackend},
};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async_with_config,
    tungstenite::{Message, client::IntoClientRequest},
};

/// The target: a turn with a tool to a chat turn, at p50.
const TARGET: f64 = 2.0;
/// Turns of a session before the next begins.
const SESSION: usize = 10;
/// What the kinds are called, and what is said to the model.
const KINDS: [(&str, &str); 3] = [
    ("chat", "what is new?"),
    ("tool beside its session", "/tool calculate {\"expression\":\"6*7\"}"),
    ("tool as a job", "/tool file_list {}"),
];

/// Compares turns with a tool to chat turns.
#[derive(Debug, Parser)]
struct Args {
    /// Turns of each kind
    #[arg(long, default_value_t = 500)]
    turns: usize,
    /// Turns of each kind before them that do not count
    #[arg(long, default_value_t = 30)]
    warm_up: usize,
    /// Pieces of a reply
    #[arg(long, default_value_t = 16)]
    tokens: u32,
    /// On a NATS server of its own, instead of a data directory
    #[arg(long)]
    nats: bool,
}

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let args = Args::parse();
    let nats = if args.nats {
        Some(NatsServer::start(ServerOptions::default()).await.map_err(other)?)
    } else {
        None
    };
    let default = DefaultReply { tokens: args.tokens, delay_ms: 0, flush: true };
    let model = ModelServer::start(Script { default, ..Script::default() }).await?;
    let backend = nats.as_ref().map_or(TestBackend::Local, |nats| TestBackend::Nats {
        url: nats.url(),
        prefix: "bench".to_owned(),
    });
    let home = Home::new(backend).map_err(other)?.openai(&model);
    let settings = home.path().join(".config/clawnode");
    std::fs::create_dir_all(&settings)?;
    let root = home.path().join("files");
    std::fs::create_dir_all(&root)?;
    let config = format!(
        "[agents.default]\ntools = [\"calculate\", \"file_list\"]\n\
         [[agents.default.rules]]\nverdict = \"allow\"\n[workspace]\nroot = \"{}\"\n",
        root.display(),
    );
    std::fs::write(settings.join("config.toml"), config)?;
    let node = Node::up(&home).await.map_err(other)?;
    let client = node.client().map_err(other)?;
    let url = format!("{}/ws", client.url().replacen("http", "ws", 1));
    let mut request = url.into_client_request()?;
    request.headers_mut().insert("authorization", format!("Bearer {}", client.token()).parse()?);
    let mut socket = connect_async_with_config(request, None, true).await?.0;
    let mut took: [Vec<Duration>; KINDS.len()] = Default::default();
    for turn in 0..args.warm_up + args.turns {
        for (kind, (_, says)) in KINDS.iter().enumerate() {
            let began = Instant::now();
            let tools = run(&mut socket, (kind, turn), says).await?;
            let elapsed = began.elapsed();
            if tools != usize::from(kind > 0) {
                return Err(format!("a turn of `{}` used {tools} tools", KINDS[kind].0).into());
            }
            if turn >= args.warm_up {
                took[kind].push(elapsed);
            }
        }
    }
    socket.close(None).await?;
    node.stop().await.map_err(other)?;
    tell(took)
}

/// The figures of all kinds, beside those of the first.
fn tell(took: [Vec<Duration>; KINDS.len()]) -> Result<(), Error> {
    let mut table = Table::default();
    let mut chat = [0.0; 2];
    for ((name, _), mut took) in KINDS.into_iter().zip(took) {
        took.sort_unstable();
        let [p50, p99] = [500, 990].map(|at| percentile(&took, at).as_secs_f64() * 1_000.0);
        if chat[0] == 0.0 {
            chat = [p50, p99];
        }
        let ratio = p50 / chat[0];
        let row = Row::new(format!("session::turn/{name}"))
            .figure("p50 ms", p50)
            .figure("p99 ms", p99)
            .figure("p50 to chat", ratio)
            .figure("p99 to chat", p99 / chat[1]);
        let is_chat = name == KINDS[0].0;
        table.add(if is_chat { row } else { row.at_most("p50, to chat", ratio, TARGET) });
    }
    Ok(table.json()?)
}

/// One turn to its end; how many tools it used.
async fn run(
    socket: &mut Socket,
    (kind, turn): (usize, usize),
    says: &str,
) -> Result<usize, Error> {
    let request = json!({
        "id": turn,
        "method": "chat.send",
        "params": {
            "channel": "bench",
            "account": format!("kind-{kind}"),
            "peer": format!("{}", turn / SESSION),
            "content": says,
            "idempotency_key": format!("k-{turn}"),
        },
    });
    socket.send(Message::text(request.to_string())).await?;
    let mut tools = 0;
    loop {
        let message = socket.next().await.ok_or("the connection closed in a turn")??;
        let Message::Text(text) = message else { continue };
        let frame: Value = serde_json::from_str(&text)?;
        match frame["event"].as_str().unwrap_or("error") {
            "tool_result" if frame["data"]["failure"].is_null() => tools += 1,
            "done" if frame["data"]["outcome"]["type"] == "completed" => return Ok(tools),
            "tool_result" | "done" | "error" => {
                return Err(format!("a turn went wrong: {text}").into());
            }
            _ => {}
        }
    }
}

fn other(error: impl std::fmt::Display) -> Error {
    Error::from(std::io::Error::other(error.to_string()))
}
