//! What the server answers, as data: the same in a test and in a file.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

/// Everything that a server will answer.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Script {
    /// Acts for requests whose last user text is exactly this, used up in order.
    pub on: BTreeMap<String, VecDeque<Act>>,
    /// Acts for any other request, used up in order.
    pub queue: VecDeque<Act>,
    /// What remains.
    pub default: DefaultReply,
}

/// The reply when nothing is scripted: `reply to: ` and the last user text.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DefaultReply {
    /// In so many pieces, numbered from the second on; 0 for one piece a word.
    pub tokens: u32,
    /// Milliseconds before each piece.
    pub delay_ms: u64,
    /// Whether each piece leaves on its own also without a delay; else they leave together.
    pub flush: bool,
}

/// The answer to one request.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum Act {
    /// A reply.
    Reply(Reply),
    /// An HTTP error in the wire's own shape.
    Status(Status),
    /// Closes the connection without a byte of an answer.
    Hangup,
    /// Takes the request and never answers.
    Stall,
    /// Exactly these bytes, as one body.
    Raw {
        /// The `Content-Type`; an event stream if it is left out.
        #[serde(default = "event_stream")]
        content_type: String,
        /// The body.
        body: String,
    },
}

fn event_stream() -> String {
    "text/event-stream".to_owned()
}

/// An HTTP error.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Status {
    /// The status.
    pub status: u16,
    /// The provider's message.
    pub message: String,
    /// Further headers, `Retry-After` above all.
    pub headers: BTreeMap<String, String>,
    /// A body instead of the wire's own.
    pub body: Option<String>,
}

/// A reply, step by step. Faults are steps, or the lack of a part.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Reply {
    /// What happens in order.
    pub steps: Vec<Step>,
    /// Why it stops, in the wire's own word; its usual one if it is left out.
    pub stop: Option<String>,
    /// Whether usage is reported.
    pub usage: bool,
    /// Whether the wire's proper end is sent.
    pub end: bool,
    /// Whether lines end in CR LF.
    pub crlf: bool,
}

/// One step of a reply.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum Step {
    /// One piece of text.
    Text {
        /// The piece.
        text: String,
    },
    /// One piece of text, its event written a byte at a time, also within characters.
    Split {
        /// The piece.
        text: String,
    },
    /// A piece of thinking, which is no part of the reply.
    Thinking {
        /// The thought.
        text: String,
    },
    /// A piece of a refusal (on Anthropic's wire it is a stop reason, and this is text).
    Refusal {
        /// The piece.
        text: String,
    },
    /// A request for a tool that nobody offered.
    Tool,
    /// A sign of life: Anthropic's `ping`, a comment elsewhere.
    Ping,
    /// A kind of event that clients do not know.
    Unknown,
    /// Waits.
    Delay {
        /// Milliseconds.
        ms: u64,
    },
    /// Lets what was said so far leave before anything else is.
    Flush,
    /// Waits until the test opens the gate of this name.
    Gate {
        /// The gate.
        name: String,
    },
    /// Never goes on.
    Stall,
    /// Breaks the connection.
    Cut,
    /// The wire's error in mid-stream.
    Error {
        /// The vendor's word for its kind.
        kind: String,
        /// The message.
        message: String,
    },
    /// An event that is no JSON.
    BadJson,
    /// JSON of a shape that no event has.
    BadShape,
    /// Bytes that are no text.
    Garble,
    /// Exactly this, between events.
    Raw {
        /// The text.
        text: String,
    },
}

// === impl Reply ===

impl Default for Reply {
    fn default() -> Self {
        Self { steps: Vec::new(), stop: None, usage: true, end: true, crlf: false }
    }
}

impl Reply {
    /// A proper reply in these pieces.
    pub fn text<S: Into<String>>(pieces: impl IntoIterator<Item = S>) -> Self {
        let step = |piece: S| Step::Text { text: piece.into() };
        Self { steps: pieces.into_iter().map(step).collect(), ..Self::default() }
    }

    /// A reply with these steps.
    pub fn steps(steps: impl Into<Vec<Step>>) -> Self {
        Self { steps: steps.into(), ..Self::default() }
    }
}

impl From<Reply> for Act {
    fn from(reply: Reply) -> Self {
        Self::Reply(reply)
    }
}

// === impl Act ===

impl Act {
    /// A proper reply of one piece.
    pub fn say(text: &str) -> Self {
        Reply::text([text]).into()
    }

    /// An HTTP error.
    pub fn status(status: u16, message: &str) -> Self {
        Self::Status(Status { status, message: message.to_owned(), ..Status::default() })
    }

    /// An HTTP error with a header.
    pub fn status_with(status: u16, message: &str, header: &str, value: &str) -> Self {
        Self::Status(Status {
            status,
            message: message.to_owned(),
            headers: BTreeMap::from([(header.to_owned(), value.to_owned())]),
            body: None,
        })
    }
}

// === impl Script ===

impl Script {
    /// These acts, one a request.
    pub fn queue(acts: impl IntoIterator<Item = Act>) -> Self {
        Self { queue: acts.into_iter().collect(), ..Self::default() }
    }

    /// The next act for this user text.
    pub(super) fn next(&mut self, last_user: &str) -> Act {
        let keyed = self.on.get_mut(last_user).and_then(VecDeque::pop_front);
        keyed
            .or_else(|| self.queue.pop_front())
            .unwrap_or_else(|| Act::Reply(self.default.reply(last_user)))
    }
}

impl DefaultReply {
    fn reply(&self, last_user: &str) -> Reply {
        let first = format!("reply to: {last_user}");
        let pieces: Vec<String> = match self.tokens {
            0 => first.split_inclusive(' ').map(str::to_owned).collect(),
            n => std::iter::once(first).chain((2..=n).map(|n| format!(" {n}"))).collect(),
        };
        let mut steps = Vec::with_capacity(pieces.len() * 3);
        for text in pieces {
            if self.delay_ms > 0 {
                steps.push(Step::Delay { ms: self.delay_ms });
            }
            steps.push(Step::Text { text });
            if self.flush {
                steps.push(Step::Flush);
            }
        }
        Reply::steps(steps)
    }
}
