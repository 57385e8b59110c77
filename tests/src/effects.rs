//! An independent count of effects: each is written down and synced before it is answered.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io::{self, Write as _},
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

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
    serving: JoinHandle<()>,
}

impl EffectCounter {
    /// One that writes into `dir`.
    pub async fn start(dir: &Path) -> io::Result<Self> {
        Self::paced(dir, Duration::ZERO).await
    }

    /// The same, whose effects happen `pace` after they are asked for, and are answered `pace` after
    /// they happened: there is time to die on both sides.
    pub async fn paced(dir: &Path, pace: Duration) -> io::Result<Self> {
        let log = dir.join("effects.log");
        let file = OpenOptions::new().create(true).append(true).open(&log)?;
        let file = Arc::new(Mutex::new(file));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let addr = listener.local_addr()?;
        let held = watch::Sender::new(false);
        let seen = held.subscribe();
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (file, seen) = (Arc::clone(&file), seen.clone());
                // Who is killed in mid-request has had its effect or not; both are counted right.
                drop(tokio::spawn(async move { serve(stream, &file, pace, seen).await }));
            }
        });
        Ok(Self { addr, log, held, serving })
    }

    /// Where.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// From now on effects happen, and are answered only once this is over: runs that take long.
    pub fn hold(&self, on: bool) {
        self.held.send_replace(on);
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

async fn serve(
    stream: TcpStream,
    file: &Mutex<File>,
    pace: Duration,
    mut held: watch::Receiver<bool>,
) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut length, mut line) = (0, String::new());
        loop {
            line.clear();
            if stream.read_line(&mut line).await? == 0 {
                return Ok(());
            }
            if line == "\r\n" {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().map_err(io::Error::other)?;
            }
        }
        let mut key = vec![0; length];
        stream.read_exact(&mut key).await?;
        key.push(b'\n');
        tokio::time::sleep(pace).await;
        {
            let mut file = file.lock().await;
            file.write_all(&key)?;
            file.sync_data()?;
        }
        tokio::time::sleep(pace).await;
        held.wait_for(|held| !held).await.map_err(io::Error::other)?;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ndone").await?;
    }
}
