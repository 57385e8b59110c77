//! Lines from standard input, one at a time and of bounded length.

use std::io::IsTerminal;

use clawnode_proto::limits;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader, Stdin};

use crate::failure::{Exit, Failure};

/// Standard input as lines.
pub(super) struct Lines {
    input: BufReader<Stdin>,
    /// Whether a person types them.
    pub interactive: bool,
}

impl Lines {
    /// Takes standard input.
    pub(super) fn open() -> Self {
        let interactive = std::io::stdin().is_terminal();
        Self { input: BufReader::new(tokio::io::stdin()), interactive }
    }

    /// The next line that says something; `None` at the end of input.
    pub(super) async fn next(&mut self) -> Result<Option<String>, Failure> {
        loop {
            let mut line = Vec::new();
            let most = limits::MESSAGE_BYTES as u64 + 2;
            let read = (&mut self.input).take(most).read_until(b'\n', &mut line).await;
            match read {
                Ok(0) => return Ok(None),
                Ok(_) => {}
                Err(error) => {
                    let what = format!("cannot read standard input: {error}");
                    return Err(Failure::new(Exit::Failed, "input", what));
                }
            }
            let text = match String::from_utf8(line) {
                Ok(text) => text,
                Err(error) => {
                    let what = format!("a line of standard input is not UTF-8: {error}");
                    return Err(Failure::new(Exit::Failed, "input", what));
                }
            };
            let said = text.trim();
            if said.len() > limits::MESSAGE_BYTES {
                let what = format!("a line is over {} bytes", limits::MESSAGE_BYTES);
                return Err(Failure::new(Exit::Failed, "too_large", what)
                    .hint("say it in several messages"));
            }
            if !said.is_empty() {
                return Ok(Some(said.to_owned()));
            }
        }
    }
}
