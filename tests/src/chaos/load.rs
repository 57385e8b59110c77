//! The load: clients that talk without a pause, each with one turn under way.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use clawnode_cluster::Peek;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, timeout},
};

use super::{
    ChaosError,
    client::{Client, Entrance, Told},
    transcript::{Sight, Transcript},
    wait::{PATIENCE, eventually, pass},
};

/// Messages of one session; then its client begins the next.
const SESSION: usize = 20;
/// How long a client is after one answer.
const GIVES_UP: Duration = Duration::from_mins(3);

/// When a follower looks again for a turn.
const LOOKS_AGAIN: Duration = Duration::from_millis(50);

/// All that the clients of a stage see.
#[derive(Debug, Default)]
pub struct Board(Mutex<Vec<Transcript>>);

/// Who takes part.
#[derive(Clone, Copy, Debug)]
pub struct Crowd {
    /// Clients that talk, each with one turn under way.
    pub talkers: usize,
    /// Clients that follow the turns of others.
    pub followers: usize,
    /// Whether all of them begin at the first gateway.
    pub at_one_gateway: bool,
}

/// Clients that talk, and clients that follow.
#[derive(Debug)]
pub struct Load {
    board: Arc<Board>,
    followed: Arc<Board>,
    over: watch::Sender<bool>,
    clients: JoinSet<()>,
    crowd: Crowd,
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

    /// A turn that is under way, to be followed; `number` chooses.
    fn turn_of_another(&self, number: usize) -> Option<Transcript> {
        let all = self.lock();
        let open = all.iter().filter(|one| one.is_accepted() && one.outcome().is_none());
        let open: Vec<&Transcript> = open.collect();
        let chosen = open.get(number.checked_rem(open.len())?)?;
        let mut own = Transcript::new(&chosen.peer, &chosen.content, Instant::now());
        own.turns.clone_from(&chosen.turns);
        Some(own)
    }

    /// The sessions of the last `count` messages.
    pub fn recent(&self, count: usize) -> BTreeSet<String> {
        self.lock().iter().rev().take(count).map(Transcript::session).collect()
    }

    /// Sessions whose turn is under way.
    pub(super) fn open(&self) -> Vec<String> {
        let all = self.lock();
        let open = all.iter().filter(|one| one.outcome().is_none());
        open.map(Transcript::session).collect()
    }

    /// Sessions whose turn is under way, and has said something.
    pub fn speaking(&self) -> Vec<String> {
        let speaks = |one: &&Transcript| {
            one.outcome().is_none()
                && one.seen.iter().any(|seen| matches!(seen.sight, Sight::Text(_)))
        };
        self.lock().iter().filter(speaks).map(Transcript::session).collect()
    }
}

// === impl Load ===

impl Load {
    /// Starts all of them.
    pub fn start(entrance: &Arc<Entrance>, crowd: Crowd) -> Self {
        let (over, heard) = watch::channel(false);
        let (board, followed) = (Arc::new(Board::default()), Arc::new(Board::default()));
        let mut tasks = JoinSet::new();
        let client = |number: usize| {
            let gateways = entrance.gateways.len().max(1);
            let gateway = if crowd.at_one_gateway { 0 } else { number % gateways };
            Client::new(Arc::clone(entrance), gateway)
        };
        for number in 0..crowd.talkers {
            tasks.spawn(talk(client(number), number, Arc::clone(&board), heard.clone()));
        }
        for number in 0..crowd.followers {
            let boards = (Arc::clone(&board), Arc::clone(&followed));
            tasks.spawn(follow(client(number), number, boards, heard.clone()));
        }
        Self { board, followed, over, clients: tasks, crowd }
    }

    /// What its clients see.
    pub fn board(&self) -> &Arc<Board> {
        &self.board
    }

    /// Waits until each client has had one more answer, on the average.
    pub async fn round(&self) -> Result<(), ChaosError> {
        let Crowd { talkers, followers, .. } = self.crowd;
        for (board, count) in [(&self.board, talkers), (&self.followed, followers)] {
            let wanted = board.answers() + count;
            eventually("an answer for each client", PATIENCE, async || {
                let now = board.answers();
                if now >= wanted { Ok(()) } else { Err(format!("{now} of {wanted}")) }
            })
            .await?;
        }
        Ok(())
    }

    /// Waits until all that was under way at `then` has come to an end.
    pub async fn settled(&self, then: Instant) -> Result<(), ChaosError> {
        eventually("the end of the turns that were under way", PATIENCE, async || {
            let (open, followed) = (self.board.all(), self.followed.all());
            let open = open.iter().chain(&followed);
            let open = open.filter(|one| one.sent <= then && one.outcome().is_none());
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

    /// Lets the turns that are under way end, within `patience`, and returns all that those saw who
    /// talked, and those who followed.
    pub async fn finish(mut self, patience: Duration) -> (Vec<Transcript>, Vec<Transcript>) {
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
        (self.board.all(), self.followed.all())
    }
}

/// Follows one turn of others after another, each from its beginning to its end.
async fn follow(
    mut client: Client,
    number: usize,
    (board, followed): (Arc<Board>, Arc<Board>),
    mut over: watch::Receiver<bool>,
) {
    while !over.peek(|over| *over) {
        let Some(turn) = board.turn_of_another(number) else {
            tokio::select! {
                () = pass(LOOKS_AGAIN) => {}
                _ = over.changed() => {}
            }
            continue;
        };
        let index = followed.add(turn);
        if !client.turn(&Told::new(&followed, index), Instant::now() + GIVES_UP).await {
            return;
        }
    }
}

/// Sends one message after another, each under one key until answered.
async fn talk(mut client: Client, number: usize, board: Arc<Board>, over: watch::Receiver<bool>) {
    let mut said = 0;
    while !over.peek(|over| *over) {
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
