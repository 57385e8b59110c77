//! `up` and `run`: be a node.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use clawnode_proto::node::NodeRole;
use serde::Serialize;
use serde_json::json;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::{chat, command_context::CliContext, flags::RoleArg, signals::EndSignals};
use crate::{
    app::{self, NodeArgs, Ready},
    client::{Gateways, NodeClient},
    config::{Env, env, paths},
    failure::{Exit, Failure},
    offline_commands,
    secret::Secret,
};

/// How long the end of a node may take before its chat says what it waits for.
const SOON: Duration = Duration::from_secs(1);

const UP_EXAMPLES: &str = "\
Examples:
  clawnode up                                    serve on 127.0.0.1:3100
  clawnode up --chat                             the same, and talk to it here
  clawnode up --model anthropic/claude-sonnet-4-5
  clawnode up --listen 127.0.0.1:0 --json        a free port, named in the `ready` line";

const RUN_EXAMPLES: &str = "\
Examples:
  clawnode run --role gateway --nats nats://127.0.0.1:4222
  clawnode run --role worker  --nats nats://127.0.0.1:4222
  clawnode run --role gateway,worker
  clawnode run --role worker --join-file token   join the cluster of the token";

/// How a node joins a cluster.
#[derive(Debug, Default, Args)]
#[group(id = "joining")]
pub(super) struct JoinArgs {
    /// Join the cluster of this token; `CLAWNODE_JOIN` and `--join-file` keep the token out of process
    /// lists
    #[arg(long, value_name = "TOKEN", conflicts_with = "join_file")]
    pub join: Option<String>,
    /// Join the cluster of the token in this file
    #[arg(long, value_name = "FILE")]
    pub join_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = UP_EXAMPLES)]
pub(super) struct UpArgs {
    /// Talk to the agent in this terminal; if a node already runs, use that one
    #[arg(long)]
    pub chat: bool,
    #[command(flatten)]
    pub which: chat::Which,
    /// Use the data directory although its sessions were moved to a cluster; the two copies of each
    /// session then diverge
    #[arg(long)]
    pub take_back: bool,
    #[command(flatten)]
    pub join: JoinArgs,
}

#[derive(Debug, Args)]
#[command(after_help = RUN_EXAMPLES)]
pub(super) struct RunArgs {
    /// Roles of this node: gateway (serves clients), worker (owns sessions), or both
    #[arg(long, value_enum, value_delimiter = ',', required = true, value_name = "ROLE")]
    pub role: Vec<RoleArg>,
    #[command(flatten)]
    pub join: JoinArgs,
}

impl JoinArgs {
    /// The token, if there is one: of the command line, a file, or the environment.
    fn token(self, env: &Env) -> Result<Option<Secret>, Failure> {
        if let Some(path) = self.join_file {
            let text = std::fs::read_to_string(&path).map_err(|error| {
                let message = format!("cannot read `{}`: {error}", path.display());
                Failure::new(Exit::Config, "join_token_invalid", message)
                    .hint("name the file with the token")
            })?;
            return Ok(Some(Secret::new(text)));
        }
        let text = self.join.or_else(|| env.get(env::JOIN).map(str::to_owned));
        Ok(text.map(Secret::new))
    }
}

/// `up`: a node with all roles, perhaps with a chat.
pub(super) async fn up(args: UpArgs, context: &CliContext) -> Result<Exit, Failure> {
    let roles = vec![NodeRole::Gateway, NodeRole::Worker];
    if args.take_back
        && let Some(to) = offline_commands::take_back(&context.loaded.config).await?
    {
        context
            .out
            .aside(&format!("the data directory is in use again; its sessions were moved to {to}"));
    }
    if !args.chat {
        if args.which.is_given() {
            let what = "`--continue` and `--session` choose the conversation of a chat";
            return Err(Failure::new(Exit::Usage, "usage", what).hint("add `--chat`"));
        }
        return Box::pin(run(roles, args.join, context)).await;
    }
    let join = args.join.token(context.loaded.env())?;
    match context.running().await? {
        Some(client) => {
            let wishes = chat::ChatWishes::default();
            chat::talk(context, Gateways::alone(client), args.which, wishes).await
        }
        None => node_and_chat(roles, join, context, args.which).await,
    }
}

/// A node until a signal ends it.
pub(super) async fn run(
    mut roles: Vec<NodeRole>,
    join: JoinArgs,
    context: &CliContext,
) -> Result<Exit, Failure> {
    roles.sort_unstable();
    roles.dedup();
    let join = join.token(context.loaded.env())?;
    let mut signals = EndSignals::take()?;
    let (node, ready, stop) = node(roles, join, context);
    let mut node = std::pin::pin!(node);
    let mut ready = std::pin::pin!(ready);
    let (mut told, mut signalled) = (false, false);
    loop {
        tokio::select! {
            ended = &mut node => return ended.map(|()| Exit::Ok),
            ready = &mut ready, if !told => {
                told = true;
                // Without a word the node is about to end, and says why.
                if let Ok(ready) = ready {
                    announce(context, &ready, false)?;
                }
            }
            _ = signals.next() => {
                // A drain from afar is none: the first signal may still come after it.
                if signalled {
                    return Err(hurried());
                }
                signalled = true;
                tracing::info!("stopping; a second signal stops at once");
                stop.cancel();
            }
        }
    }
}

/// A node for as long as the chat lasts.
async fn node_and_chat(
    roles: Vec<NodeRole>,
    join: Option<Secret>,
    context: &CliContext,
    which: chat::Which,
) -> Result<Exit, Failure> {
    let (node, ready, stop) = node(roles, join, context);
    let mut node = tokio::spawn(node);
    let Ok(ready) = ready.await else {
        // It ended before it served, and says why.
        return joined(node.await).map(|()| Exit::Failed);
    };
    announce(context, &ready, true)?;
    let gateway = &context.loaded.config.gateway;
    let client = NodeClient::new(&ready.url, ready.token.clone(), gateway.tls_cert.as_ref())?;
    let wishes = chat::ChatWishes::default();
    let talked = tokio::select! {
        talked = chat::talk(context, Gateways::alone(client), which, wishes) => talked,
        // A node that ends by itself has failed; the chat cannot go on.
        ended = &mut node => return joined(ended).map(|()| Exit::Failed),
    };
    stop.cancel();
    let mut signals = EndSignals::take()?;
    let mut soon = std::pin::pin!(tokio::time::sleep(SOON));
    let mut told = false;
    loop {
        tokio::select! {
            ended = &mut node => {
                joined(ended)?;
                return talked;
            }
            () = &mut soon, if !told => {
                told = true;
                context.out.aside("waiting for running turns to end; Ctrl-C stops at once");
            }
            _ = signals.next() => return Err(hurried()),
        }
    }
}

fn hurried() -> Failure {
    Failure::new(Exit::Failed, "stopped", "stopped before the drain was complete")
        .hint("no accepted message is lost; the next start continues with them")
}

fn joined(ended: Result<Result<(), Failure>, tokio::task::JoinError>) -> Result<(), Failure> {
    match ended {
        Ok(ended) => ended,
        Err(error) => {
            Err(Failure::new(Exit::Failed, "internal", format!("the node died: {error}"))
                .hint("this is a bug; the log says where"))
        }
    }
}

/// The node as a future, its `ready`, and the way to stop it.
fn node(
    roles: Vec<NodeRole>,
    join: Option<Secret>,
    context: &CliContext,
) -> (
    impl Future<Output = Result<(), Failure>> + Send + 'static,
    oneshot::Receiver<Ready>,
    CancellationToken,
) {
    let (tell, ready) = oneshot::channel();
    let stop = CancellationToken::new();
    let loaded = context.loaded.clone();
    let args = NodeArgs { loaded, roles, join, ready: tell, stop: stop.clone() };
    (app::run(args), ready, stop)
}

/// Says that the node serves: one line, on standard output unless that is the chat's.
fn announce(context: &CliContext, ready: &Ready, chatting: bool) -> Result<(), Failure> {
    /// What `--json` prints.
    #[derive(Serialize)]
    struct Line<'a> {
        event: &'static str,
        url: &'a str,
        process: clawnode_proto::ProcessId,
        pid: u32,
        data_dir: String,
        model: &'a str,
    }
    let out = context.out;
    // The chat at a terminal has a head of its own.
    let has_head = chatting && chat::is_at_terminal(context);
    if !out.json && !has_head {
        for line in &ready.banner {
            out.talk(line);
        }
    }
    if let (true, Some(log)) = (has_head, &context.log_file) {
        let log = paths::shown(log, context.loaded.env());
        out.aside(&format!("The log of this node is in {log}."));
    }
    let line = if out.json {
        json!(Line {
            event: "ready",
            url: &ready.url,
            process: ready.process,
            pid: std::process::id(),
            data_dir: context.data_dir().display().to_string(),
            model: &ready.model,
        })
        .to_string()
    } else {
        // A node without a gateway has no address.
        let name = if ready.url.is_empty() { ready.process.to_string() } else { ready.url.clone() };
        format!("ready {name}")
    };
    if chatting {
        // The chat says `ready` itself, beside whichever node it talks to.
        Ok(())
    } else {
        out.line(&line)
    }
}
