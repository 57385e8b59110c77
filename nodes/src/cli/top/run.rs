//! Owns the terminal, asks the node, and listens to keys.

use std::{
    io::IsTerminal,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use clap::Args;
use clawnode_proto::{
    api::{EventsParams, ListParams, Method},
    overview::{FeedView, StatsView},
    view::{SessionList, SessionRow, StatusView},
};
use ratatui::{
    DefaultTerminal,
    crossterm::event::{self, Event, KeyEvent, KeyEventKind},
};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

use super::{
    draw::{Look, draw},
    screen::{Screen, Snapshot, Tab, Then},
};
use crate::{
    cli::{context, context::Context, events, signals::Signals},
    client::Client,
    failure::{Exit, Failure},
};

/// How long to wait for a key before looking whether all is over.
const KEY_WAIT: Duration = Duration::from_millis(100);
/// Keys that wait to be acted on.
const KEYS_MAX: usize = 64;
/// Sessions that are listed; `clawnode sessions list` lists more.
const SESSIONS: u32 = 100;
/// How often they are listed, because that reads them.
const SESSIONS_EVERY: Duration = Duration::from_secs(5);
/// How long the node may take to answer before that is shown.
const ASK_WITHIN: Duration = Duration::from_secs(5);
/// How long it may take to list sessions.
const LIST_WITHIN: Duration = Duration::from_mins(1);
/// Events to begin with, and at most each time.
const EVENTS: u32 = 1_000;

/// What `top --help` ends with.
const EXAMPLES: &str = "\
Keys: tab and the arrows to look around, ? for help, q to leave. Nothing can be changed here.

Examples:
  clawnode top
  clawnode top --every 5
  NO_COLOR=1 clawnode top";

/// `top`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct TopArgs {
    /// Ask again after so many seconds
    #[arg(long, default_value_t = 1, value_name = "SECONDS",
          value_parser = clap::value_parser!(u64).range(1..=3_600))]
    every: u64,
}

/// What came up.
enum Happened {
    Key(KeyEvent),
    Resized,
}

/// Gives the terminal back, whatever happens in between.
struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// `top`.
pub(in crate::cli) async fn run(args: TopArgs, context: &Context) -> Result<Exit, Failure> {
    let out = context.out;
    if out.json || !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        let what = "`top` draws on a terminal, and this is none";
        return Err(Failure::new(Exit::Failed, "not_a_terminal", what)
            .hint("`clawnode status --json` says the same to programs"));
    }
    let client = context.client().await?;
    // Before the terminal is taken: what is wrong from the start is said as by any command.
    let mut asker = Asker { client, after: None };
    let mut screen = Screen::default();
    screen.take(asker.ask().await?);
    let terminal = ratatui::try_init().map_err(|error| broken(&error))?;
    let _restore = Restore;
    let look = Look { color: out.color() };
    Box::pin(look_on(terminal, screen, look, asker, Duration::from_secs(args.every))).await
}

fn broken(error: &std::io::Error) -> Failure {
    Failure::new(Exit::Failed, "terminal", format!("the terminal does not obey: {error}"))
        .hint("`clawnode status` prints the same once")
}

/// Draws, asks and listens until somebody has seen enough. A node that does not answer does not
/// keep anybody from leaving.
async fn look_on(
    terminal: DefaultTerminal,
    screen: Screen,
    look: Look,
    asker: Asker,
    every: Duration,
) -> Result<Exit, Failure> {
    let signals = Signals::take()?;
    let over = Arc::new(AtomicBool::new(false));
    let (tell, keys) = mpsc::channel(KEYS_MAX);
    let listening = tokio::task::spawn_blocking({
        let over = Arc::clone(&over);
        move || listen(&over, &tell)
    });
    let (tab, chosen) = watch::channel(screen.tab);
    let (answer, answers) = mpsc::channel(1);
    let ended = tokio::select! {
        ended = show((terminal, look), screen, (keys, answers, tab), signals) => ended,
        () = asker.run(every, chosen, answer) => Ok(Exit::Ok),
    };
    over.store(true, Ordering::Relaxed);
    if listening.await.is_err() {
        tracing::debug!("the keyboard's listener panicked");
    }
    ended
}

/// What the node said.
enum Answer {
    Pulse(Box<Snapshot>),
    Sessions(Vec<SessionRow>),
    /// Nothing, because of this.
    Nothing(Failure),
}

async fn show(
    (mut terminal, look): (DefaultTerminal, Look),
    mut screen: Screen,
    (mut keys, mut answers, tab): (
        mpsc::Receiver<Happened>,
        mpsc::Receiver<Answer>,
        watch::Sender<Tab>,
    ),
    mut signals: Signals,
) -> Result<Exit, Failure> {
    loop {
        terminal.draw(|frame| draw(frame, &screen, look)).map_err(|error| broken(&error))?;
        tokio::select! {
            happened = keys.recv() => match happened {
                Some(Happened::Key(key)) => {
                    if screen.key(key) == Then::Quit {
                        return Ok(Exit::Ok);
                    }
                    tab.send_if_modified(|known| std::mem::replace(known, screen.tab) != screen.tab);
                }
                Some(Happened::Resized) => {}
                // The terminal is gone.
                None => return Ok(Exit::Ok),
            },
            answer = answers.recv() => match answer {
                Some(Answer::Pulse(snapshot)) => screen.take(*snapshot),
                Some(Answer::Sessions(sessions)) => screen.list(sessions),
                Some(Answer::Nothing(failure)) => screen.problem = Some(failure.message),
                None => return Ok(Exit::Ok),
            },
            _ = signals.next() => return Ok(Exit::Ok),
        }
    }
}

/// Reads keys until all is over or the terminal is gone.
fn listen(over: &AtomicBool, tell: &mpsc::Sender<Happened>) {
    while !over.load(Ordering::Relaxed) {
        match event::poll(KEY_WAIT) {
            Ok(false) => continue,
            Ok(true) => {}
            Err(_) => return,
        }
        let happened = match event::read() {
            Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => Happened::Key(key),
            Ok(Event::Resize(..)) => Happened::Resized,
            Ok(_) => continue,
            Err(_) => return,
        };
        if tell.blocking_send(happened).is_err() {
            return;
        }
    }
}

/// Asks the node.
struct Asker {
    client: Client,
    /// The last event that was read.
    after: Option<u64>,
}

impl Asker {
    /// Asks each time, for as long as somebody takes the answers.
    async fn run(
        self,
        every: Duration,
        chosen: watch::Receiver<Tab>,
        answer: mpsc::Sender<Answer>,
    ) {
        let lists = self.client.clone();
        tokio::join!(self.pulses(every, answer.clone()), sessions(lists, chosen, answer));
    }

    async fn pulses(mut self, every: Duration, answer: mpsc::Sender<Answer>) {
        loop {
            tokio::time::sleep(every).await;
            let asked = tokio::time::timeout(ASK_WITHIN, self.ask()).await;
            let said = asked.unwrap_or_else(|_elapsed| Err(late(ASK_WITHIN)));
            let said =
                said.map_or_else(Answer::Nothing, |snapshot| Answer::Pulse(Box::new(snapshot)));
            if answer.send(said).await.is_err() {
                return;
            }
        }
    }

    async fn ask(&mut self) -> Result<Snapshot, Failure> {
        let page =
            EventsParams { after: self.after, limit: Some(EVENTS), ..EventsParams::default() };
        let (status, measured, feed): (StatusView, StatsView, FeedView) = tokio::try_join!(
            call(&self.client, Method::Status, json!({})),
            call(&self.client, Method::StatsShow, json!({})),
            events::read(&self.client, &page)
        )?;
        self.after = Some(feed.next);
        Ok(Snapshot { at: Instant::now(), status, stats: measured, feed })
    }
}

/// Lists the sessions now and then, while somebody looks at them.
async fn sessions(client: Client, mut chosen: watch::Receiver<Tab>, answer: mpsc::Sender<Answer>) {
    loop {
        if chosen.wait_for(|tab| *tab == Tab::Sessions).await.is_err() {
            return;
        }
        let page = ListParams { limit: Some(SESSIONS), after: None };
        let listing = call::<SessionList>(&client, Method::SessionsList, json!(page));
        let said = match tokio::time::timeout(LIST_WITHIN, listing).await {
            Ok(Ok(list)) => Answer::Sessions(list.sessions),
            Ok(Err(failure)) => Answer::Nothing(failure),
            Err(_elapsed) => Answer::Nothing(late(LIST_WITHIN)),
        };
        if answer.send(said).await.is_err() {
            return;
        }
        tokio::time::sleep(SESSIONS_EVERY).await;
    }
}

fn late(within: Duration) -> Failure {
    let what = format!("the node does not answer within {within:?}");
    Failure::new(Exit::Unreachable, "unreachable", what)
}

async fn call<T: serde::de::DeserializeOwned>(
    client: &Client,
    method: Method,
    params: Value,
) -> Result<T, Failure> {
    context::read(method, client.call(method, params).await?)
}
