//! What the server was asked, in memory and in a file that outlives kills.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io::{self, Write},
    path::Path,
    sync::{Mutex, PoisonError},
};

use bytes::Bytes;
use clawnode_cluster::Peek;
use clawnode_proto::Digest;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// A wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WireName {
    /// Anthropic's Messages.
    Anthropic,
    /// `OpenAI`'s Chat Completions.
    Openai,
    /// `OpenAI`'s Responses.
    OpenaiResponses,
    /// Gemini's `generateContent`.
    Gemini,
    /// Ollama's own.
    Ollama,
    /// Amazon Bedrock's Converse.
    Bedrock,
}

/// One request.
#[derive(Clone, Debug)]
pub struct Call {
    /// Counts requests from 1.
    pub seq: u64,
    /// Where it came in.
    pub wire: WireName,
    /// Its `Idempotency-Key`.
    pub key: Option<String>,
    /// Of its body.
    pub digest: Digest,
    /// The last user text.
    pub last_user: String,
    /// What tools answered in the last message.
    pub results: Vec<String>,
    pub body: Bytes,
    /// Whether the whole answer, with the wire's proper end, was handed to the connection.
    pub full: bool,
}

/// Requests that no proper client sends.
#[derive(Debug, thiserror::Error)]
#[error("the model server was sent malformed requests: {0:?}")]
pub struct Violations(pub Vec<String>);

/// One line of the log.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Line {
    Asked {
        seq: u64,
        wire: WireName,
        key: Option<String>,
        digest: Digest,
        last_user: String,
        /// Left out where there are none.
        #[serde(default, skip_serializing_if = "is_zero")]
        results: usize,
    },
    Answered {
        seq: u64,
        full: bool,
    },
    Violation {
        what: String,
    },
}

/// One request as the log has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logged {
    /// Counts requests of one run of the server from 1.
    pub seq: u64,
    /// Where it came in.
    pub wire: WireName,
    /// Its `Idempotency-Key`.
    pub key: Option<String>,
    /// Of its body.
    pub digest: Digest,
    /// The last user text.
    pub last_user: String,
    /// How many tools answered in the last message.
    pub results: usize,
    /// Whether the whole answer was handed to the connection; `None` if the server does not know,
    /// because it was killed first.
    pub full: Option<bool>,
}

/// The server's book.
#[derive(Debug)]
pub(super) struct Book {
    inner: Mutex<Inner>,
    /// Whether calls stay in memory; a bench asks for too many.
    keep: bool,
    /// How many calls there were, and of those answered.
    pub(super) counts: watch::Sender<(u64, u64)>,
}

#[derive(Debug, Default)]
struct Inner {
    calls: BTreeMap<u64, Call>,
    violations: Vec<String>,
    log: Option<File>,
}

// === impl Book ===

impl Book {
    pub(super) fn open(log: Option<&Path>, keep: bool) -> io::Result<Self> {
        let open = |path| OpenOptions::new().create(true).append(true).open(path);
        let inner = Inner { log: log.map(open).transpose()?, ..Inner::default() };
        Ok(Self { inner: Mutex::new(inner), keep, counts: watch::Sender::new((0, 0)) })
    }

    /// Writes a request down, before a byte of its answer; `call.seq` is given here.
    pub(super) fn asked(&self, mut call: Call) -> io::Result<u64> {
        let mut inner = self.lock();
        let seq = self.counts.peek(|counts| counts.0) + 1;
        call.seq = seq;
        let (wire, key, digest) = (call.wire, call.key.clone(), call.digest);
        inner.write(|| Line::Asked {
            seq,
            wire,
            key,
            digest,
            last_user: call.last_user.clone(),
            results: call.results.len(),
        })?;
        if self.keep {
            inner.calls.insert(seq, call);
        }
        self.counts.send_modify(|counts| counts.0 = seq);
        Ok(seq)
    }

    /// Writes down that a request's answer has ended.
    pub(super) fn answered(&self, seq: u64, full: bool) -> io::Result<()> {
        let mut inner = self.lock();
        if let Some(call) = inner.calls.get_mut(&seq) {
            call.full = full;
        }
        let written = inner.write(|| Line::Answered { seq, full });
        self.counts.send_modify(|counts| counts.1 += 1);
        written
    }

    pub(super) fn violation(&self, what: String) -> io::Result<()> {
        let mut inner = self.lock();
        inner.violations.push(what.clone());
        inner.write(|| Line::Violation { what })
    }

    pub(super) fn calls(&self) -> Vec<Call> {
        self.lock().calls.values().cloned().collect()
    }

    pub(super) fn take_violations(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().violations)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Blocks for an fsync: the point of the log is to be there whatever dies next.
    fn write(&mut self, line: impl FnOnce() -> Line) -> io::Result<()> {
        let Some(log) = &mut self.log else { return Ok(()) };
        let mut bytes = serde_json::to_vec(&line())?;
        bytes.push(b'\n');
        log.write_all(&bytes)?;
        log.sync_data()
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// Reads a log; a torn last line is left out, a violation anywhere is an error.
pub fn read_log(path: &Path) -> io::Result<Vec<Logged>> {
    let text = std::fs::read_to_string(path)?;
    let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    let mut logged: Vec<Logged> = Vec::new();
    for line in lines {
        match serde_json::from_str(line)? {
            Line::Asked { seq, wire, key, digest, last_user, results } => {
                logged.push(Logged { seq, wire, key, digest, last_user, results, full: None });
            }
            Line::Answered { seq, full } => {
                // The newest of that number: a restarted server counts from 1 again.
                let call = logged.iter_mut().rev().find(|call| call.seq == seq);
                if let Some(call) = call {
                    call.full = Some(full);
                }
            }
            Line::Violation { what } => return Err(io::Error::other(Violations(vec![what]))),
        }
    }
    Ok(logged)
}
