//! The streams of a command: what it is fed, and what it says.

use std::io;

use bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::ChildStdin,
    sync::mpsc,
};
use tracing::debug;

use crate::sandbox::{command_output::OutputStream, dialogue::OutputListener};

/// Bytes that are read at a time.
const PIECE: usize = 64 << 10;

/// Reading both streams of a command, each to its end.
pub(super) struct Listening {
    buffers: [Vec<u8>; 2],
    over: [bool; 2],
}

/// Hands a command what it reads; one that does not want it is no error. `go` is for who starts it.
pub(super) async fn feed(
    stdin: Option<ChildStdin>,
    go: &[u8],
    first: &[u8],
    mut told: Option<mpsc::Receiver<Bytes>>,
) {
    let Some(mut stdin) = stdin else { return };
    let fed = async {
        stdin.write_all(go).await?;
        stdin.write_all(first).await?;
        while let Some(told) = &mut told
            && let Some(bytes) = told.recv().await
        {
            stdin.write_all(&bytes).await?;
        }
        Ok::<(), io::Error>(())
    };
    if let Err(error) = fed.await {
        debug!(%error, "a command did not read all of its input");
    }
}

// === impl Listening ===

impl Listening {
    pub(super) fn new() -> Self {
        Self { buffers: [vec![0; PIECE], vec![0; PIECE]], over: [false; 2] }
    }

    pub(super) const fn is_over(&self) -> bool {
        self.over[0] && self.over[1]
    }

    /// Reads the next piece of either.
    pub(super) async fn next(
        &mut self,
        stdout: &mut (impl AsyncRead + Unpin),
        stderr: &mut (impl AsyncRead + Unpin),
        ears: &mut OutputListener,
    ) {
        if !ears.are_open() {
            return ears.open().await;
        }
        let [out, err] = &mut self.buffers;
        let (stream, at, bytes) = tokio::select! {
            read = stdout.read(out), if !self.over[0] => (OutputStream::Stdout, 0, said(out, read)),
            read = stderr.read(err), if !self.over[1] => (OutputStream::Stderr, 1, said(err, read)),
            else => return,
        };
        if bytes.is_empty() {
            self.over[at] = true;
        } else {
            ears.add(stream, bytes);
        }
    }
}

/// What was read; nothing at the end, and where nothing can be read any more.
fn said(buffer: &[u8], read: io::Result<usize>) -> &[u8] {
    read.ok().and_then(|count| buffer.get(..count)).unwrap_or_default()
}
