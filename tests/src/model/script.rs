//! What the server answers, as data: the same in a test and in a file.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::check::Asked;

/// What begins a line of the user's text that is a tool call.
const TOOL: &str = "/tool ";
/// The line between the calls of one reply and those of the next.
const THEN: &str = "/then";

/// Everything that a server will answer.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Script {
    /// Acts for requests whose last user text is exactly this, by how often tools have answered
    /// since: the first for the words themselves. They are not used up, so that a request that is
    /// sent once more is answered by the same.
    pub turns: BTreeMap<String, Vec<Act>>,
    /// Acts for requests whose last user text is exactly this, used up in order.
    pub on: BTreeMap<String, VecDeque<Act>>,
    /// Acts for any other request, used up in order.
    pub queue: VecDeque<Act>,
    /// What remains.
    pub default: DefaultReply,
}

/// The reply when nothing is scripted: `reply to: ` and the last user text, and if tools have
/// answered, ` with ` and what they answered.
///
/// If tools are offered and lines of that text are of the form `/tool NAME {…}`, it calls those
/// first; what follows a line `/then` is called when the tools before it have answered.
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
        body: String,
    },
    /// The same with bytes that are no text.
    Bytes {
        content_type: String,
        body: Vec<u8>,
    },
}

fn event_stream() -> String {
    "text/event-stream".to_owned()
}

/// An HTTP error.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Status {
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
#[expect(clippy::struct_excessive_bools, reason = "each switch is a fault of its own")]
pub struct Reply {
    /// What happens in order.
    pub steps: Vec<Step>,
    /// Why it stops, in the wire's own word; its usual one if it is left out.
    pub stop: Option<String>,
    /// Whether usage is reported.
    pub usage: bool,
    /// What a stream reports instead of the tokens that this server counts.
    pub reports: Option<ReportedTokens>,
    /// Whether the wire's proper end is sent.
    pub end: bool,
    /// Whether lines end in CR LF.
    pub crlf: bool,
    /// Whether it stops at the limit of tokens, if `stop` does not say why.
    pub cut_off: bool,
    /// The bytes of a stream that leave together, wherever that cuts it; 0 for whole events.
    pub chunk: usize,
    /// Whether thoughts on `OpenAI`'s wire come as `reasoning_details`, and are wanted back so: as
    /// `OpenRouter` does.
    pub details: bool,
}

/// Numbers of tokens as a provider reports them, right or wrong: any JSON.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReportedTokens {
    pub input: Value,
    pub output: Value,
}

/// One step of a reply.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum Step {
    /// One piece of text.
    Text { text: String },
    /// One piece of text, its event written a byte at a time, also within characters.
    Split { text: String },
    /// A piece of thinking, which is no part of the reply.
    Thinking {
        /// The thought.
        text: String,
    },
    /// A thought that only the server can read; only Anthropic's wire has such.
    Redacted {
        /// What it is made of.
        data: String,
    },
    /// A piece of a refusal (on Anthropic's wire it is a stop reason, and this is text).
    Refusal { text: String },
    /// Tool calls.
    Tools {
        calls: Vec<ToolCall>,
        /// Whether the pieces of their arguments come in turns. Anthropic's do not.
        #[serde(default)]
        interleaved: bool,
    },
    /// A sign of life: Anthropic's `ping`, a comment elsewhere.
    Ping,
    /// A kind of event that clients do not know.
    Unknown,
    /// Waits.
    Delay {
        /// Milliseconds.
        ms: u64,
    },
    /// One piece of text: ` @` and the time at which it leaves, in nanoseconds since 1970.
    Clock,
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
        message: String,
    },
    /// An event that is no JSON.
    BadJson,
    /// JSON of a shape that no event has.
    BadShape,
    /// Bytes that are no text.
    Garble,
    /// Exactly this, between events.
    Raw { text: String },
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ToolCall {
    /// Its id; one that no other call has if it is left out.
    pub id: Option<String>,
    /// The tool's name.
    pub name: String,
    /// Its arguments, right or wrong.
    pub arguments: String,
    /// Bytes of the arguments in a piece, wherever that cuts them (but for characters); 0 for all.
    pub piece: usize,
}

// === impl ToolCall ===

impl ToolCall {
    /// A call with these arguments, right or wrong.
    pub fn new(name: &str, arguments: impl Into<String>) -> Self {
        Self { name: name.to_owned(), arguments: arguments.into(), ..Self::default() }
    }

    /// The pieces of its arguments.
    pub(super) fn pieces(&self) -> Vec<&str> {
        let (mut pieces, mut rest) = (Vec::new(), self.arguments.as_str());
        while !rest.is_empty() {
            let most = if self.piece == 0 { rest.len() } else { self.piece.min(rest.len()) };
            let (piece, more) = rest.split_at(rest.ceil_char_boundary(most));
            pieces.push(piece);
            rest = more;
        }
        pieces
    }
}

impl From<(&str, Value)> for ToolCall {
    fn from((name, arguments): (&str, Value)) -> Self {
        Self::new(name, arguments.to_string())
    }
}

// === impl Step ===

impl Step {
    /// Tool calls, one after the other.
    pub fn tools<C: Into<ToolCall>>(calls: impl IntoIterator<Item = C>) -> Self {
        let calls = calls.into_iter().map(C::into).collect();
        Self::Tools { calls, interleaved: false }
    }
}

// === impl Reply ===

impl Default for Reply {
    fn default() -> Self {
        Self {
            steps: Vec::new(),
            stop: None,
            usage: true,
            reports: None,
            end: true,
            crlf: false,
            cut_off: false,
            chunk: 0,
            details: false,
        }
    }
}

impl Reply {
    /// A proper reply in these pieces.
    pub fn text<S: Into<String>>(pieces: impl IntoIterator<Item = S>) -> Self {
        let step = |piece: S| Step::Text { text: piece.into() };
        Self { steps: pieces.into_iter().map(step).collect(), ..Self::default() }
    }

    /// A proper reply that calls these tools.
    pub fn tools<C: Into<ToolCall>>(calls: impl IntoIterator<Item = C>) -> Self {
        Self::steps([Step::tools(calls)])
    }

    /// A proper reply of one piece whose provider reports these numbers of tokens.
    pub fn reporting(text: &str, input: impl Into<Value>, output: impl Into<Value>) -> Self {
        let reports = Some(ReportedTokens { input: input.into(), output: output.into() });
        Self { reports, ..Self::text([text]) }
    }

    /// A report with the tokens that it is to have in these two fields.
    pub(super) fn reported(&self, mut usage: Value, (input, output): (&str, &str)) -> Value {
        let Some(reports) = &self.reports else { return usage };
        for (field, tokens) in [(input, &reports.input), (output, &reports.output)] {
            if let Some(place) = usage.get_mut(field) {
                place.clone_from(tokens);
            }
        }
        usage
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

    /// A proper reply that calls these tools.
    pub fn tools<C: Into<ToolCall>>(calls: impl IntoIterator<Item = C>) -> Self {
        Reply::tools(calls).into()
    }

    /// An HTTP error.
    pub fn status(status: u16, message: &str) -> Self {
        Self::Status(Status { status, message: message.to_owned(), ..Status::default() })
    }

    /// An HTTP error with this body.
    pub fn status_body(status: u16, body: &str) -> Self {
        Self::Status(Status { status, body: Some(body.to_owned()), ..Status::default() })
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

    /// The acts of a turn that begins with this user text: the first for the text itself, each
    /// further one when tools have answered the one before it.
    #[must_use]
    pub fn turn(mut self, text: &str, acts: impl IntoIterator<Item = Act>) -> Self {
        self.turns.insert(text.to_owned(), acts.into_iter().collect());
        self
    }

    /// The next act for this request.
    pub(super) fn next(&mut self, asked: &Asked) -> Act {
        let turn = self.turns.get(&asked.last_user).and_then(|acts| acts.get(asked.rounds));
        turn.cloned()
            .or_else(|| self.on.get_mut(&asked.last_user).and_then(VecDeque::pop_front))
            .or_else(|| self.queue.pop_front())
            .unwrap_or_else(|| Act::Reply(self.default.reply(asked)))
    }
}

impl DefaultReply {
    fn reply(&self, asked: &Asked) -> Reply {
        let calls = calls(asked);
        if !calls.is_empty() {
            return Reply::tools(calls);
        }
        let mut first = format!("reply to: {}", asked.last_user);
        if !asked.results.is_empty() {
            first = format!("{first} with {}", asked.results.join(", "));
        }
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

/// The calls that the user's text asks for now.
fn calls(asked: &Asked) -> Vec<ToolCall> {
    if !asked.offers {
        return Vec::new();
    }
    let lines: Vec<&str> = asked.last_user.lines().collect();
    let call = |line: &&str| {
        let (name, arguments) = line.strip_prefix(TOOL)?.split_once(' ')?;
        Some(ToolCall::new(name, arguments))
    };
    let now = lines.split(|line| *line == THEN).nth(asked.rounds);
    now.into_iter().flatten().filter_map(call).collect()
}

/// How many blocks of thoughts a reply has.
pub(super) fn thoughts(steps: &[Step]) -> usize {
    let (mut count, mut open) = (0, false);
    for step in steps {
        match step {
            Step::Thinking { .. } => {
                count += usize::from(!open);
                open = true;
            }
            Step::Redacted { .. } => {
                count += 1;
                open = false;
            }
            Step::Text { .. }
            | Step::Split { .. }
            | Step::Refusal { .. }
            | Step::Clock
            | Step::Tools { .. } => open = false,
            _ => {}
        }
    }
    count
}
