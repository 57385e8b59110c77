//! The load: clients that talk without a pause, each with one turn under way.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, timeout},
};

use super::{
    ChaosError,
    client::{Client, Entrance, Told},
    transcript::{Sight, Transcript},
    wait::{PATIENCE, eventually},
};

/// Messages of one session; then its client begins the next.
const SESSION: usize = 20;
/// How long a client is after one answer.
const GIVES_UP: Duration = Duration::from_mins(3);

/// All that the clients of a stage see.
#[derive(Debug, Default)]
pub struct Board(Mutex<Vec<Transcript>>);

/// Clients that talk.
#[derive(Debug)]
pub struct Load {
    board: Arc<Board>,
    over: watch::Sender<bool>,
    clients: JoinSet<()>,
    count: usize,
}

// === impl Board ===

impl Board {
    fn lock(&self) -> MutexGuard<'_, Vec<Transcript>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn with<T: Default>(
        &self,
        index: usize,
        act: impl FnOnce(&mut Transcript) -> T,
    ) -> T {
        self.lock().get_mut(index).map(act).unwrap_or_default()
    }

    pub(super) fn add(&self, transcript: Transcript) -> usize {
        let mut all = self.lock();
        all.push(transcript);
        all.len() - 1
    }

    /// What was seen so far.
    pub fn all(&self) -> Vec<Transcript> {
        self.lock().clone()
    }

    /// How many answers were heard to their end.
    pub fn answers(&self) -> usize {
        self.lock().iter().filter(|one| one.outcome().is_some()).count()
    }

    /// Sessions whose turn is under way, and has said something.
    pub fn speaking(&self) -> Vec<String> {
        let speaks = |one: &&Transcript| {
            one.outcome().is_none() && one.seen.iter().any(|it| matches!(it.sight, Sight::Text(_)))
        };
        self.lock().iter().filter(speaks).map(Transcript::session).collect()
    }
}

// === impl Load ===

impl Load {
    /// Starts clients, spread over the gateways, or all of them at the first.
    pub fn start(entrance: &Arc<Entrance>, clients: usize, crowd: bool) -> Self {
        let (over, heard) = watch::channel(false);
        let board = Arc::new(Board::default());
        let mut tasks = JoinSet::new();
        for number in 0..clients {
            let door = if crowd { 0 } else { number % entrance.gateways.len().max(1) };
            let client = Client::new(Arc::clone(entrance), door);
            tasks.spawn(talk(client, number, Arc::clone(&board), heard.clone()));
        }
        Self { board, over, clients: tasks, count: clients }
    }

    /// What its clients see.
    pub fn board(&self) -> &Arc<Board> {
        &self.board
    }

    /// Waits until each client has had one more answer, on the average.
    pub async fn round(&self) -> Result<(), ChaosError> {
        let wanted = self.board.answers() + self.count;
        eventually("an answer for each client", PATIENCE, async || {
            let now = self.board.answers();
            if now >= wanted { Ok(()) } else { Err(format!("{now} of {wanted}")) }
        })
        .await
    }

    /// Waits until all that was under way at `then` has come to an end.
    pub async fn settled(&self, then: Instant) -> Result<(), ChaosError> {
        eventually("the end of the turns that were under way", PATIENCE, async || {
            let open = self.board.all();
            let open = open.iter().filter(|one| one.sent <= then && one.outcome().is_none());
            match open.clone().next() {
                None => Ok(()),
                Some(one) => Err(format!(
                    "{} are open, such as `{}` of `{}` ({:?})",
                    open.count(),
                    one.content,
                    one.session(),
                    one.refusals.last()
                )),
            }
        })
        .await
    }

    /// Lets the turns that are under way end, within `patience`, and returns all that was seen.
    pub async fn finish(mut self, patience: Duration) -> Vec<Transcript> {
        self.over.send_replace(true);
        let ends = async {
            while let Some(ended) = self.clients.join_next().await {
                if let Err(error) = ended {
                    tracing::error!(%error, "a client died");
                }
            }
        };
        if timeout(patience, ends).await.is_err() {
            tracing::error!("clients still wait for their answers");
        }
        self.board.all()
    }
}

/// Sends one message after another, each under one key until answered.
async fn talk(mut client: Client, number: usize, board: Arc<Board>, over: watch::Receiver<bool>) {
    let mut said = 0;
    while !*over.borrow() {
        let peer = format!("client{number}-{}", said / SESSION);
        let content = format!("message {said} of {number}");
        let index = board.add(Transcript::new(&peer, &content, Instant::now()));
        let answered = client.turn(&Told::new(&board, index), Instant::now() + GIVES_UP).await;
        if !answered {
            // What it could not get will be found missing; it asks for no more.
            return;
        }
        said += 1;
    }
}
