//! Errands: turns that change something, beside the load of chats. Tools of every class as jobs,
//! calls that a person approves, plans, and commands in containers. No fault touches the counter of
//! their effects ([`crate::effects`]); [`account`](super::account) compares.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use clawnode_cluster::Peek;
use clawnode_proto::{execute::ExecutionView, view::ApprovalList};
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    task::{JoinHandle, JoinSet},
    time::{Instant, timeout},
};

use super::{
    ChaosError,
    client::Entrance,
    wait::{PATIENCE, eventually, pass},
};
use crate::process::{Client, Message, ProcessError};

/// Errands of one session; then the next begins. Each plan has a session of its own.
const SESSION: usize = 5;
/// How long one gateway is given for an errand, before another is asked for the same.
const ATTEMPT: Duration = Duration::from_secs(15);
/// How long a client is after one errand.
const GIVES_UP: Duration = Duration::from_mins(3);
/// Before the next try, and before the person looks again.
const LOOKS_AGAIN: Duration = Duration::from_millis(100);
/// How long a person's request may take.
const ANSWERS_IN: Duration = Duration::from_secs(3);

/// The tools of an errand that uses some: of every class but the one that asks what has happened.
pub const TOOLS: [&str; 3] = ["effect_once", "effect_safe", "effect_idempotent"];
/// The tool that a person is asked about; of class `once`.
pub const ASKED: &str = "effect_asked";
/// The tool whose commands run in containers; of class `once`.
pub const COMMAND: &str = "run_command";

/// What an errand is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One call of each class, at once.
    Tools,
    /// A call that a person approves.
    Approval,
    /// One step of each class, one after the other, without a model.
    Plan,
    /// A command in a container.
    Command,
}

/// One errand, and what its client knows of it.
#[derive(Clone, Debug)]
pub struct Errand {
    pub kind: Kind,
    /// The session that it went to.
    pub session: String,
    /// Makes sending again harmless.
    pub key: String,
    /// How it ended, once that was heard: well, or else how.
    pub ended: Option<Result<(), String>>,
    /// How often it was refused or lost, and why.
    pub refusals: Vec<String>,
}

/// Clients with errands, and the person who approves their calls.
#[derive(Debug)]
pub struct Errands {
    board: Arc<Board>,
    over: watch::Sender<bool>,
    clients: JoinSet<()>,
    person: JoinHandle<()>,
    count: usize,
}

#[derive(Debug, Default)]
struct Board(Mutex<Vec<Errand>>);

// === impl Kind ===

impl Kind {
    /// Which one a client of this number is on: each is, with three clients.
    const fn of(number: usize) -> Self {
        match number % 3 {
            0 => Self::Tools,
            1 => Self::Approval,
            _ => Self::Plan,
        }
    }
}

// === impl Board ===

impl Board {
    fn lock(&self) -> MutexGuard<'_, Vec<Errand>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ended(&self) -> usize {
        self.lock().iter().filter(|one| one.ended.is_some()).count()
    }
}

// === impl Errands ===

impl Errands {
    /// Starts `mixed` clients of the first three kinds, and `commands` of the last.
    pub fn start(entrance: &Arc<Entrance>, (mixed, commands): (usize, usize)) -> Self {
        let (over, heard) = watch::channel(false);
        let board = Arc::<Board>::default();
        let mut clients = JoinSet::new();
        for number in 0..mixed + commands {
            let kind = if number < mixed { Kind::of(number) } else { Kind::Command };
            let (entrance, board) = (Arc::clone(entrance), Arc::clone(&board));
            clients.spawn(run(entrance, (number, kind), board, heard.clone()));
        }
        let person = tokio::spawn(approve(Arc::clone(entrance), mixed > 0));
        Self { board, over, clients, person, count: mixed + commands }
    }

    /// The sessions of errands that have not ended.
    pub(super) fn open(&self) -> Vec<String> {
        let all = self.board.lock();
        let open = all.iter().filter(|one| one.ended.is_none());
        open.map(|one| one.session.clone()).collect()
    }

    /// Waits until each client has done one more errand, on the average.
    pub async fn round(&self) -> Result<(), ChaosError> {
        let wanted = self.board.ended() + self.count;
        eventually("an errand of each client", PATIENCE, async || {
            let now = self.board.ended();
            if now >= wanted { Ok(()) } else { Err(format!("{now} of {wanted}")) }
        })
        .await
    }

    /// Lets what is under way end, within `patience`; all errands.
    pub async fn finish(mut self, patience: Duration) -> Vec<Errand> {
        self.over.send_replace(true);
        let ends = async {
            while let Some(ended) = self.clients.join_next().await {
                if let Err(error) = ended {
                    tracing::error!(%error, "a client with errands died");
                }
            }
        };
        if timeout(patience, ends).await.is_err() {
            tracing::error!("clients still wait for their errands");
        }
        self.person.abort();
        self.board.lock().clone()
    }
}

/// Does one errand after another, each under one key until its end is heard.
async fn run(
    entrance: Arc<Entrance>,
    (number, kind): (usize, Kind),
    board: Arc<Board>,
    over: watch::Receiver<bool>,
) {
    let mut done = 0;
    let mut gateway = number;
    while !over.peek(|over| *over) {
        let message = message(kind, number, done);
        let session = match kind {
            Kind::Plan => format!("default:execute:api:{}", message.key),
            Kind::Tools | Kind::Approval | Kind::Command => message.session(),
        };
        let key = message.key.clone();
        let at = {
            let mut all = board.lock();
            all.push(Errand { kind, session, key, ended: None, refusals: Vec::new() });
            all.len() - 1
        };
        let tell = |what: &dyn Fn(&mut Errand)| {
            if let Some(errand) = board.lock().get_mut(at) {
                what(errand);
            }
        };
        let deadline = Instant::now() + GIVES_UP;
        while Instant::now() < deadline {
            match attempt(&entrance, gateway, kind, &message).await {
                Ok(()) => {
                    tell(&|transcript| transcript.ended = Some(Ok(())));
                    break;
                }
                // A bad end is an end.
                Err(ProcessError::Broken(how)) => {
                    tell(&|transcript| transcript.ended = Some(Err(how.clone())));
                    break;
                }
                Err(error) => tell(&|transcript| transcript.refusals.push(error.to_string())),
            }
            gateway += 1;
            pass(LOOKS_AGAIN).await;
        }
        done += 1;
    }
}

fn message(kind: Kind, number: usize, done: usize) -> Message {
    let call = |tool: &str| format!("/tool {tool} {{\"n\":{done}}}");
    let content = match kind {
        Kind::Tools => TOOLS.map(call).join("\n"),
        Kind::Approval => call(ASKED),
        Kind::Plan => String::new(),
        Kind::Command => {
            // The effect is a line in a file that all containers of the agent see.
            let line = "echo $CLAWNODE_IDEMPOTENCY_KEY >> effects; sleep 0.5; echo done";
            format!("/tool {COMMAND} {}", json!({ "command": format!("{line} # {done}") }))
        }
    };
    let peer = format!("errand{number}-{}", done / SESSION);
    let key = format!("errand{number}-{done}");
    Message { channel: "chaos".to_owned(), key, ..Message::new(&peer, &content) }
}

/// Sends it, or asks for it again, and waits for its end.
async fn attempt(
    entrance: &Entrance,
    gateway: usize,
    kind: Kind,
    message: &Message,
) -> Result<(), ProcessError> {
    let client = client(entrance, gateway)?;
    let turn = async {
        if kind == Kind::Plan {
            plan(&client, &message.key).await
        } else {
            client.chat(message).await.map(drop)
        }
    };
    let elapsed = |_elapsed| ProcessError::Late("the end of an errand".to_owned());
    timeout(ATTEMPT, turn).await.map_err(elapsed)?
}

async fn plan(client: &Client, name: &str) -> Result<(), ProcessError> {
    let step = |tool: &str| {
        let params = json!({ "of": name });
        json!({ "action": tool, "params": params, "continue_on_failure": true })
    };
    let spec = json!({ "steps": TOOLS.map(step) });
    let request = json!({ "execution_spec": spec, "request_id": name });
    let begun: ExecutionView = client.call("execute", request).await?;
    let shown = json!({ "execution_id": begun.execution_id });
    let over = |view: &ExecutionView| view.status.is_over();
    let view: ExecutionView = client.call_when("execute.show", shown, over).await?;
    match view.status.as_str() {
        "SUCCEEDED" => Ok(()),
        other => Err(ProcessError::Broken(format!("the plan ends {other}"))),
    }
}

fn client(entrance: &Entrance, gateway: usize) -> Result<Client, ProcessError> {
    let at = gateway.checked_rem(entrance.gateways.len()).unwrap_or(0);
    let url = entrance.gateways.get(at).map(String::as_str).unwrap_or_default();
    Client::with_token(url, &entrance.token)
}

/// A person who approves of all that is asked, by any gateway that answers.
async fn approve(entrance: Arc<Entrance>, is_needed: bool) {
    if !is_needed {
        return;
    }
    let mut gateway = 0;
    loop {
        let looked = timeout(ANSWERS_IN, approve_all(&entrance, gateway)).await;
        if !matches!(looked, Ok(Ok(()))) {
            gateway += 1;
        }
        pass(LOOKS_AGAIN).await;
    }
}

async fn approve_all(entrance: &Entrance, gateway: usize) -> Result<(), ProcessError> {
    let client = client(entrance, gateway)?;
    let list: ApprovalList = client.call("approvals.list", json!({})).await?;
    for one in list.approvals.iter().filter(|one| one.decided.is_none()) {
        let params = json!({ "call": one.action.call, "action": one.digest });
        // Refused where it was decided meanwhile, or its session has left it: it is listed or not.
        match client.call::<Value>("approvals.approve", params).await {
            Err(error) if error.refusal().is_none() => return Err(error),
            Ok(_) | Err(_) => {}
        }
    }
    Ok(())
}
