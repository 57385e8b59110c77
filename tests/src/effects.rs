//! An independent count of effects: each is written down and synced before it is answered. A `GET`
//! of `/KEY` or `/NAME/KEY` answers whether that effect has happened. A client that posts to
//! `/NAME` is known by that name while its effect is under way.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io::{self, Write as _},
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use clawnode_cluster::Peek as _;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    sync::{Mutex, watch},
    task::JoinHandle,
};

/// Counts what is posted to it, by the body, which is the effect's key.
#[derive(Debug)]
pub struct EffectCounter {
    addr: SocketAddr,
    log: PathBuf,
    /// Whether effects are not answered now.
    held: watch::Sender<bool>,
    /// Whether all questions about effects are refused.
    blind: watch::Sender<bool>,
    at_once: Arc<AtOnce>,
    under_way: Arc<UnderWay>,
    serving: JoinHandle<()>,
}

/// Who has asked for an effect and has not been answered, a name for each effect.
#[derive(Debug, Default)]
struct UnderWay(std::sync::Mutex<Vec<String>>);

/// One effect that is under way, until this is dropped.
struct Way<'a>(&'a UnderWay, &'a str);

/// Effects that were asked for and not answered: now, and at most so far.
#[derive(Debug, Default)]
struct AtOnce {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl EffectCounter {
    /// One that writes into `dir`.
    pub async fn start(dir: &Path) -> io::Result<Self> {
        Self::paced(dir, Duration::ZERO).await
    }

    /// The same, whose effects happen `pace` after they are asked for, and are answered `pace` after
    /// they happened: there is time to die on both sides.
    pub async fn paced(dir: &Path, pace: Duration) -> io::Result<Self> {
        Self::at(Ipv4Addr::LOCALHOST, dir, pace).await
    }

    /// The same, on this address.
    pub async fn at(ip: Ipv4Addr, dir: &Path, pace: Duration) -> io::Result<Self> {
        let log = dir.join("effects.log");
        let file = OpenOptions::new().create(true).append(true).open(&log)?;
        let file = Arc::new(Mutex::new(file));
        let listener = TcpListener::bind((ip, 0)).await?;
        let addr = listener.local_addr()?;
        let (held, blind) = (watch::Sender::new(false), watch::Sender::new(false));
        let (seen, dark, path) = (held.subscribe(), blind.subscribe(), log.clone());
        let (at_once, under_way) = (Arc::<AtOnce>::default(), Arc::<UnderWay>::default());
        let tallies = (Arc::clone(&at_once), Arc::clone(&under_way));
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (file, seen) = (Arc::clone(&file), (seen.clone(), dark.clone()));
                let (path, tallies) = (path.clone(), tallies.clone());
                // Who is killed in mid-request has had its effect or not; both are counted right.
                let work = async move {
                    serve(stream, (&file, &path), (&tallies.0, &tallies.1), pace, seen).await
                };
                drop(tokio::spawn(work));
            }
        });
        Ok(Self { addr, log, held, blind, at_once, under_way, serving })
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// From now on effects happen, and are answered only once this is over: runs that take long.
    pub fn hold(&self, is_held: bool) {
        self.held.send_replace(is_held);
    }

    /// From now on questions about effects are refused, until this is over.
    pub fn blind(&self, is_blind: bool) {
        self.blind.send_replace(is_blind);
    }

    /// How many effects were under way at the same time, at most.
    pub fn most_at_once(&self) -> usize {
        self.at_once.most.load(Ordering::SeqCst)
    }

    /// Who runs something now that has an effect here: the names that they post to, one a run.
    pub fn under_way(&self) -> Vec<String> {
        self.under_way.lock().clone()
    }

    /// How many effects happened.
    pub fn total(&self) -> io::Result<usize> {
        Ok(self.counts()?.values().sum())
    }

    /// How often each effect happened.
    pub fn counts(&self) -> io::Result<BTreeMap<String, usize>> {
        let mut counts = BTreeMap::new();
        for key in std::fs::read_to_string(&self.log)?.lines() {
            *counts.entry(key.to_owned()).or_default() += 1;
        }
        Ok(counts)
    }
}

impl Drop for EffectCounter {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

// === impl UnderWay ===

impl UnderWay {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn begin<'a>(&'a self, who: &'a str) -> Way<'a> {
        self.lock().push(who.to_owned());
        Way(self, who)
    }
}

impl Drop for Way<'_> {
    fn drop(&mut self) {
        let mut all = self.0.lock();
        if let Some(at) = all.iter().position(|who| who == self.1) {
            all.swap_remove(at);
        }
    }
}

async fn serve(
    stream: TcpStream,
    (file, path): (&Mutex<File>, &Path),
    (at_once, under_way): (&AtOnce, &UnderWay),
    pace: Duration,
    (mut held, blind): (watch::Receiver<bool>, watch::Receiver<bool>),
) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut length, mut line, mut asked) = (0, String::new(), None);
        let mut who = String::new();
        loop {
            line.clear();
            if stream.read_line(&mut line).await? == 0 {
                return Ok(());
            }
            if line == "\r\n" {
                break;
            }
            if let Some(path) = line.strip_prefix("GET /") {
                let path = path.split_whitespace().next();
                asked = path.and_then(|path| path.rsplit('/').next()).map(str::to_owned);
            }
            if let Some(path) = line.strip_prefix("POST /") {
                who = path.split_whitespace().next().unwrap_or_default().to_owned();
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().map_err(io::Error::other)?;
            }
        }
        if let Some(key) = asked {
            let happened = std::fs::read_to_string(path)?.lines().any(|line| line == key);
            let (status, word) = match (blind.peek(|is_blind| *is_blind), happened) {
                (true, _) => ("500 No", "nope"),
                (false, true) => ("200 OK", "done"),
                (false, false) => ("200 OK", "none"),
            };
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 4\r\n\r\n{word}");
            stream.write_all(answer.as_bytes()).await?;
            continue;
        }
        let mut key = vec![0; length];
        stream.read_exact(&mut key).await?;
        key.push(b'\n');
        let way = under_way.begin(&who);
        let now = at_once.now.fetch_add(1, Ordering::SeqCst) + 1;
        at_once.most.fetch_max(now, Ordering::SeqCst);
        tokio::time::sleep(pace).await;
        {
            let mut file = file.lock().await;
            file.write_all(&key)?;
            file.sync_data()?;
        }
        tokio::time::sleep(pace).await;
        held.wait_for(|held| !held).await.map_err(io::Error::other)?;
        at_once.now.fetch_sub(1, Ordering::SeqCst);
        drop(way);
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ndone").await?;
    }
}
