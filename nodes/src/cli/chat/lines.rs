//! Lines from standard input, one at a time and of bounded length: of a script, or of a terminal
//! that cannot edit them.
//!
//! A line that cannot be a message is reported, and the next one is read.

use std::io::IsTerminal;

use clawnode_proto::limits;
use rustix::termios::{QueueSelector, tcflush};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader, Stdin};

use crate::failure::{Exit, Failure};

/// Bytes of a line after which a terminal's kernel drops what is typed, its line end included.
const COOKED_BYTES: usize = 4_096;

/// Standard input as lines.
#[derive(Debug)]
pub(super) struct InputLines {
    input: BufReader<Stdin>,
    /// Whether a person types them.
    interactive: bool,
}

/// What was read.
#[derive(Debug)]
pub(super) enum ReadLine {
    Line(String),
    /// A line that cannot be sent, and why.
    Bad(Failure),
    /// Nothing more can be read.
    Broken(Failure),
    End,
}

impl InputLines {
    /// Takes standard input.
    pub(super) fn open() -> Self {
        let interactive = std::io::stdin().is_terminal();
        Self { input: BufReader::new(tokio::io::stdin()), interactive }
    }

    /// The next line that says something.
    pub(super) async fn next(&mut self) -> ReadLine {
        loop {
            let mut line = Vec::new();
            let most = limits::MESSAGE_BYTES as u64 + 2;
            let read = (&mut self.input).take(most).read_until(b'\n', &mut line).await;
            match read {
                Ok(0) => return ReadLine::End,
                Ok(_) => {}
                Err(error) => {
                    let what = format!("cannot read standard input: {error}");
                    return ReadLine::Broken(Failure::new(Exit::Failed, "input", what));
                }
            }
            if !line.ends_with(b"\n") && line.len() as u64 == most {
                return self.too_long().await;
            }
            if self.interactive && line.len() >= COOKED_BYTES {
                let what = format!(
                    "the terminal takes {} bytes a line and dropped the rest; nothing was sent",
                    COOKED_BYTES - 1
                );
                return ReadLine::Bad(Failure::new(Exit::Failed, "too_large", what).hint(
                    "use a terminal that is not `TERM=dumb`, or a pipe: `clawnode chat < FILE`",
                ));
            }
            match String::from_utf8(line) {
                Ok(text) => {
                    let said = text.trim();
                    if said.len() > limits::MESSAGE_BYTES {
                        return ReadLine::Bad(too_large());
                    }
                    if !said.is_empty() {
                        return ReadLine::Line(said.to_owned());
                    }
                }
                Err(error) => {
                    let what = format!("a line is not UTF-8, and was not sent: {error}");
                    return ReadLine::Bad(Failure::new(Exit::Failed, "input", what));
                }
            }
        }
    }

    /// Throws away what a person has typed and the chat has not read.
    pub(super) fn forget(&mut self) {
        if self.interactive {
            let read = self.input.buffer().len();
            self.input.consume(read);
            if let Err(error) = tcflush(std::io::stdin(), QueueSelector::IFlush) {
                tracing::debug!(%error, "cannot discard typed text");
            }
        }
    }

    /// Reads on to the end of a line that is too long.
    async fn too_long(&mut self) -> ReadLine {
        loop {
            let mut part = Vec::new();
            let most = limits::MESSAGE_BYTES as u64;
            match (&mut self.input).take(most).read_until(b'\n', &mut part).await {
                Ok(0) | Err(_) => return ReadLine::Bad(too_large()),
                Ok(_) if part.ends_with(b"\n") => return ReadLine::Bad(too_large()),
                Ok(_) => {}
            }
        }
    }
}

fn too_large() -> Failure {
    let what = format!("a line is over {} bytes, and was not sent", limits::MESSAGE_BYTES);
    Failure::new(Exit::Failed, "too_large", what).hint("send it in several messages")
}
