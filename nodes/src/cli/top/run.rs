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
use clawnode_cluster::Peek;
use clawnode_proto::{
    api::{Nothing, SessionsList, calls},
    view::SessionRow,
};
use ratatui::{
    DefaultTerminal,
    crossterm::event::{self, Event, KeyEvent, KeyEventKind},
};
use tokio::sync::{mpsc, watch};

use super::{
    draw::{TopStyle, draw},
    screen::{AfterKey, Tab, TopProblem, TopScreen, TopSnapshot},
};
use crate::{
    cli::{command_context::CliContext, events::FeedCursor, signals::EndSignals},
    client::{ClientError, Gateways, NodeClient},
    failure::{Exit, Failure},
};

/// How long to wait for a key before looking whether all is over.
const KEY_WAIT: Duration = Duration::from_millis(100);
/// Keys that wait to be acted on.
const KEYS_MAX: usize = 64;
/// How often it is drawn again, whatever happens.
const REDRAW: Duration = Duration::from_secs(1);
/// How soon another gateway is asked after one is lost.
const TRY_AGAIN: Duration = Duration::from_millis(500);
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
Keys: Tab and arrows navigate, ? shows help, q quits. Nothing can be changed here.

Examples:
  clawnode top
  clawnode top --every 5
  NO_COLOR=1 clawnode top";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct TopArgs {
    /// Refresh after this many seconds
    #[arg(long, default_value_t = 1, value_name = "SECONDS",
          value_parser = clap::value_parser!(u64).range(1..=3_600))]
    every: u64,
}

/// What came up.
enum TopEvent {
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
pub(in crate::cli) async fn run(args: TopArgs, context: &CliContext) -> Result<Exit, Failure> {
    let out = context.out;
    if out.json || !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        let what = "`top` needs a terminal";
        return Err(Failure::new(Exit::Failed, "not_a_terminal", what)
            .hint("use `clawnode status --json` in scripts"));
    }
    // Before the terminal is taken: what is wrong from the start is said as by any command.
    let mut asker = Asker::at(context.reached().await?);
    let mut screen = TopScreen::default();
    screen.take(asker.ask().await?);
    asker.gateways.found();
    let terminal = ratatui::try_init().map_err(|error| broken(&error))?;
    let _restore = Restore;
    let look = TopStyle { color: out.color() };
    Box::pin(look_on(terminal, screen, look, asker, Duration::from_secs(args.every))).await
}

fn broken(error: &std::io::Error) -> Failure {
    Failure::new(Exit::Failed, "terminal", format!("cannot use the terminal: {error}"))
        .hint("`clawnode status` prints the same once")
}

/// Draws, asks and listens until the person quits. A node that does not answer does not keep the
/// person from leaving.
async fn look_on(
    terminal: DefaultTerminal,
    screen: TopScreen,
    look: TopStyle,
    asker: Asker,
    every: Duration,
) -> Result<Exit, Failure> {
    let signals = EndSignals::take()?;
    let over = Arc::new(AtomicBool::new(false));
    let (tell, keys) = mpsc::channel(KEYS_MAX);
    let listening = tokio::task::spawn_blocking({
        let over = Arc::clone(&over);
        move || listen(&over, &tell)
    });
    let (tab, chosen) = watch::channel(screen.tab);
    let (answer, answers) = mpsc::channel(1);
    let shown = TopTerminal { terminal, look, keys, answers, tab };
    let ended = tokio::select! {
        ended = show(shown, screen, signals) => ended,
        () = asker.run(every, chosen, answer) => Ok(Exit::Ok),
    };
    over.store(true, Ordering::Relaxed);
    if listening.await.is_err() {
        tracing::debug!("the keyboard's listener panicked");
    }
    ended
}

/// What the node said.
enum TopAnswer {
    Pulse(Box<TopSnapshot>),
    Sessions(Vec<SessionRow>),
    /// Nothing, because of this.
    Nothing(TopProblem),
}

/// Where the screen is shown, and what changes it.
struct TopTerminal {
    terminal: DefaultTerminal,
    look: TopStyle,
    keys: mpsc::Receiver<TopEvent>,
    answers: mpsc::Receiver<TopAnswer>,
    /// Which rows are asked for.
    tab: watch::Sender<Tab>,
}

async fn show(
    terminal: TopTerminal,
    mut screen: TopScreen,
    mut signals: EndSignals,
) -> Result<Exit, Failure> {
    let TopTerminal { mut terminal, look, mut keys, mut answers, tab } = terminal;
    let mut beat = tokio::time::interval(REDRAW);
    loop {
        screen.now = Some(Instant::now());
        terminal.draw(|frame| draw(frame, &screen, look)).map_err(|error| broken(&error))?;
        tokio::select! {
            happened = keys.recv() => match happened {
                Some(TopEvent::Key(key)) => {
                    if screen.key(key) == AfterKey::Quit {
                        return Ok(Exit::Ok);
                    }
                    tab.send_if_modified(|known| std::mem::replace(known, screen.tab) != screen.tab);
                }
                Some(TopEvent::Resized) => {}
                // The terminal is gone.
                None => return Ok(Exit::Ok),
            },
            answer = answers.recv() => match answer {
                Some(TopAnswer::Pulse(snapshot)) => screen.take(*snapshot),
                Some(TopAnswer::Sessions(sessions)) => screen.list(sessions),
                Some(TopAnswer::Nothing(problem)) => screen.problem = Some(problem),
                None => return Ok(Exit::Ok),
            },
            // What is old grows older.
            _ = beat.tick() => {}
            _ = signals.next() => return Ok(Exit::Ok),
        }
    }
}

/// Reads keys until all is over or the terminal is gone.
fn listen(over: &AtomicBool, tell: &mpsc::Sender<TopEvent>) {
    while !over.load(Ordering::Relaxed) {
        match event::poll(KEY_WAIT) {
            Ok(false) => continue,
            Ok(true) => {}
            Err(_) => return,
        }
        let happened = match event::read() {
            Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => TopEvent::Key(key),
            Ok(Event::Resize(..)) => TopEvent::Resized,
            Ok(_) => continue,
            Err(_) => return,
        };
        if tell.blocking_send(happened).is_err() {
            return;
        }
    }
}

/// Asks a gateway, and another one if that is lost.
struct Asker {
    gateways: Gateways,
    /// The one to ask, for those who ask it as well.
    current: watch::Sender<NodeClient>,
    place: FeedCursor,
    /// Whether the last question had no answer.
    lost: bool,
}

impl Asker {
    fn at(gateways: Gateways) -> Self {
        let current = watch::Sender::new(gateways.current().clone());
        Self { gateways, current, place: FeedCursor::default(), lost: false }
    }

    /// Asks each time, for as long as the receiver lives.
    async fn run(
        self,
        every: Duration,
        chosen: watch::Receiver<Tab>,
        answer: mpsc::Sender<TopAnswer>,
    ) {
        let current = self.current.subscribe();
        tokio::join!(self.pulses(every, answer.clone()), sessions(current, chosen, answer));
    }

    async fn pulses(mut self, every: Duration, answer: mpsc::Sender<TopAnswer>) {
        loop {
            tokio::time::sleep(if self.lost { TRY_AGAIN.min(every) } else { every }).await;
            let asked = tokio::time::timeout(ASK_WITHIN, self.ask()).await;
            let said = match asked.unwrap_or_else(|_elapsed| Err(self.late())) {
                Ok(snapshot) => {
                    if std::mem::take(&mut self.lost) {
                        self.gateways.found();
                    }
                    TopAnswer::Pulse(Box::new(snapshot))
                }
                Err(error) => TopAnswer::Nothing(self.turn_away(&error)),
            };
            if answer.send(said).await.is_err() {
                return;
            }
        }
    }

    /// Turns to another gateway, if that may help.
    fn turn_away(&mut self, error: &ClientError) -> TopProblem {
        self.lost = true;
        if error.is_lost() || error.is_passing() {
            self.gateways.lost();
        } else if error.is_refused() {
            // One that was learnt, and asks for another token; the only one is asked again.
            self.gateways.forget();
        }
        self.current.send_replace(self.gateways.current().clone());
        let trying = self.gateways.current().url().to_owned();
        TopProblem { what: error.to_string(), trying }
    }

    fn late(&self) -> ClientError {
        let (url, detail) = (self.gateways.current().url().to_owned(), late(ASK_WITHIN));
        ClientError::Unreachable { url, detail }
    }

    async fn ask(&mut self) -> Result<TopSnapshot, ClientError> {
        let client = self.gateways.current().clone();
        let page = self.place.next(client.url(), EVENTS, None);
        let (status, measured, mut feed) = tokio::try_join!(
            client.call(calls::Status, &Nothing {}),
            client.call(calls::StatsShow, &Nothing {}),
            client.call(calls::EventsList, &page)
        )?;
        let moved = self.place.moved(client.url(), &mut feed);
        let gateway = client.url().to_owned();
        Ok(TopSnapshot { at: Instant::now(), gateway, moved, status, stats: measured, feed })
    }
}

/// Lists the sessions now and then, while their list is shown, or events that name them.
async fn sessions(
    current: watch::Receiver<NodeClient>,
    mut chosen: watch::Receiver<Tab>,
    answer: mpsc::Sender<TopAnswer>,
) {
    loop {
        if chosen.wait_for(|tab| *tab != Tab::Nodes).await.is_err() {
            return;
        }
        let page = SessionsList { limit: Some(SESSIONS), ..SessionsList::default() };
        let client = current.peek(Clone::clone);
        let listing = client.call(calls::SessionsList, &page);
        let problem = |what| TopProblem { what, trying: client.url().to_owned() };
        let said = match tokio::time::timeout(LIST_WITHIN, listing).await {
            Ok(Ok(list)) => Some(TopAnswer::Sessions(list.sessions)),
            // The request for the rest turns to another gateway, and says so.
            Ok(Err(error)) if error.is_lost() || error.is_passing() => None,
            Ok(Err(error)) => Some(TopAnswer::Nothing(problem(error.to_string()))),
            Err(_elapsed) => Some(TopAnswer::Nothing(problem(late(LIST_WITHIN)))),
        };
        if let Some(said) = said
            && answer.send(said).await.is_err()
        {
            return;
        }
        tokio::time::sleep(SESSIONS_EVERY).await;
    }
}

fn late(within: Duration) -> String {
    format!("it does not answer within {within:?}")
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{ErrorBody, ErrorCode};

    use super::*;
    use crate::client::NodeTarget;

    #[test]
    fn a_lost_gateway_is_left_for_another() {
        drop(rustls::crypto::ring::default_provider().install_default());
        let urls = ["http://127.0.0.1:1", "http://127.0.0.1:2"];
        let target = NodeTarget {
            data_dir: "none".into(),
            url: Some(urls.join(",")),
            token: None,
            token_file: None,
            certificate: None,
        };
        let mut asker = Asker::at(Gateways::find(&target).unwrap());
        let looks_on = asker.current.subscribe();
        let gone = ClientError::Unreachable { url: urls[0].to_owned(), detail: "x".to_owned() };
        assert_eq!(asker.turn_away(&gone).trying, urls[1]);
        assert_eq!(
            looks_on.peek(|client| client.url().to_owned()),
            urls[1],
            "also for the sessions"
        );
        let stops = ClientError::Answered(ErrorBody::new(ErrorCode::Unavailable, "it stops"));
        assert_eq!(asker.turn_away(&stops).trying, urls[0]);
        let odd = ClientError::Protocol { url: urls[0].to_owned(), detail: "x".to_owned() };
        assert_eq!(asker.turn_away(&odd).trying, urls[0], "it is there");
    }
}
