//! Talking with a command while it runs, over its own standard input and output.
//!
//! Its own streams and not a socket: they belong to this one command, no other process can connect
//! to them, nothing of the host is mounted for them, and they end with it. Both directions are
//! queues of [`WAITING`] pieces: a command that writes faster than it is read, or reads slower than
//! it is written to, waits.

use bytes::Bytes;
use clawnode_proto::archive::LogStream;
use clawnode_tool::RunSink;
use tokio::sync::mpsc;

use super::command_output::{Capture, OutputStream};

/// Pieces that wait in one direction.
const WAITING: usize = 8;

/// The end for the one that talks with a command.
#[derive(Debug)]
pub(super) struct Talk {
    /// What it says; closed once it has ended.
    pub(super) heard: mpsc::Receiver<(OutputStream, Bytes)>,
    /// What it reads, after its standard input.
    pub(super) tell: mpsc::Sender<Bytes>,
}

/// The end for the one that runs the command.
#[derive(Debug)]
pub(super) struct Wires {
    heard: mpsc::Sender<(OutputStream, Bytes)>,
    told: mpsc::Receiver<Bytes>,
}

/// Where what a command says goes.
#[derive(Debug, Default)]
pub(super) struct OutputListener {
    capture: Capture,
    wire: Option<CommandPipe>,
}

#[derive(Debug)]
struct CommandPipe {
    heard: mpsc::Sender<(OutputStream, Bytes)>,
    /// What there was no room for yet.
    waiting: Option<(OutputStream, Bytes)>,
    /// Gets errors too; the output goes only to the one that talks with the command.
    sink: RunSink,
}

/// Both ends.
pub(super) fn talk() -> (Talk, Wires) {
    let (says, heard) = mpsc::channel(WAITING);
    let (tell, told) = mpsc::channel(WAITING);
    (Talk { heard, tell }, Wires { heard: says, told })
}

// === impl OutputListener ===

impl OutputListener {
    /// A listener that keeps output and sends it to `sink`, or sends it to the other end of
    /// `wires`, which also supplies input.
    pub(super) fn new(
        wires: Option<Wires>,
        sink: &RunSink,
    ) -> (Self, Option<mpsc::Receiver<Bytes>>) {
        let capture = Capture::told_to(sink);
        let Some(Wires { heard, told }) = wires else {
            return (Self { capture, wire: None }, None);
        };
        let wire = Some(CommandPipe { heard, waiting: None, sink: sink.clone() });
        (Self { capture, wire }, Some(told))
    }

    /// Whether more can be taken in.
    pub(super) fn are_open(&self) -> bool {
        self.wire.as_ref().is_none_or(|wire| wire.waiting.is_none())
    }

    /// Takes in what was said. What comes while they are not open is lost: the command has ended.
    pub(super) fn add(&mut self, stream: OutputStream, bytes: &[u8]) {
        let Some(wire) = &mut self.wire else { return self.capture.add(stream, bytes) };
        if stream == OutputStream::Stderr {
            wire.sink.said(LogStream::Stderr, bytes);
        }
        let piece = (stream, Bytes::copy_from_slice(bytes));
        if let Err(mpsc::error::TrySendError::Full(piece)) = wire.heard.try_send(piece) {
            wire.waiting.get_or_insert(piece);
        }
    }

    /// Waits until they are open.
    pub(super) async fn open(&mut self) {
        let Some(wire) = &mut self.wire else { return };
        // Without a reader it goes nowhere.
        let permit = wire.heard.reserve().await;
        if let (Some(piece), Ok(permit)) = (wire.waiting.take(), permit) {
            permit.send(piece);
        }
    }

    /// What was kept.
    pub(super) fn into_capture(self) -> Capture {
        self.capture
    }
}
