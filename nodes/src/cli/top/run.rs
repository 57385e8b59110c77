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
    view::{SessionList, StatusView},
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
    let client = context.client()?;
    // Before the terminal is taken: what is wrong from the start is said as by any command.
    let mut asker = Asker { client, after: None, listed: None };
    let mut screen = Screen::default();
    screen.take(asker.ask(screen.tab).await?);
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

type Answer = Result<Snapshot, Failure>;

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
                Some(Ok(snapshot)) => screen.take(snapshot),
                Some(Err(failure)) => screen.problem = Some(failure.message),
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
    listed: Option<Instant>,
}

impl Asker {
    /// Asks each time, and at once when another list is looked at, for as long as somebody takes
    /// the answers.
    async fn run(
        mut self,
        every: Duration,
        mut chosen: watch::Receiver<Tab>,
        answer: mpsc::Sender<Answer>,
    ) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(every) => {}
                changed = chosen.changed() => if changed.is_err() {
                    return;
                },
            }
            let tab = *chosen.borrow_and_update();
            let asked = tokio::time::timeout(ASK_WITHIN, self.ask(tab)).await;
            let late = |_elapsed| {
                let what = format!("the node does not answer within {ASK_WITHIN:?}");
                Err(Failure::new(Exit::Unreachable, "unreachable", what))
            };
            if answer.send(asked.unwrap_or_else(late)).await.is_err() {
                return;
            }
        }
    }

    async fn ask(&mut self, tab: Tab) -> Result<Snapshot, Failure> {
        let page =
            EventsParams { after: self.after, limit: Some(EVENTS), ..EventsParams::default() };
        let (status, stats, feed) = tokio::try_join!(
            self.client_call::<StatusView>(Method::Status, json!({})),
            self.client_call::<StatsView>(Method::StatsShow, json!({})),
            events::read(&self.client, &page)
        )?;
        let old = self.listed.is_none_or(|at| at.elapsed() >= SESSIONS_EVERY);
        let sessions = if tab == Tab::Sessions && old {
            let page = ListParams { limit: Some(SESSIONS), after: None };
            let list: SessionList = self.client_call(Method::SessionsList, json!(page)).await?;
            self.listed = Some(Instant::now());
            Some(list.sessions)
        } else {
            None
        };
        let FeedView { next, .. } = feed;
        self.after = Some(next);
        Ok(Snapshot { at: Instant::now(), status, stats, feed, sessions })
    }

    async fn client_call<T: serde::de::DeserializeOwned>(
        &self,
        method: Method,
        params: Value,
    ) -> Result<T, Failure> {
        context::read(method, self.client.call(method, params).await?)
    }
}
