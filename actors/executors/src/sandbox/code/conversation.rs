//! A program's calls, answered while it runs, and its result in the end.

use std::{collections::BTreeMap, convert::Infallible, fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use clawnode_proto::{
    ToolName,
    tool::{ToolFailure, ToolOutcome},
};
use clawnode_tool::{CallBack, Caller, Nested, append::append};
use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use serde_json::Value;
use tokio::{
    sync::mpsc,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, info_span};

use super::frame::{FRAME_BYTES, HostMessage, Lines, ProgramMessage};
use crate::sandbox::{
    command_output::{CommandEnd, OutputStream},
    dialogue::Talk,
};

/// Calls of one program: beyond it each is refused.
const CALLS_MAX: u32 = 100;
/// Lines of one program, with those of refused calls: beyond it, it is ended.
const LINES_MAX: u32 = 1_000;
/// Bytes of all its lines (64 MiB).
const HEARD_MAX: usize = 64 << 20;
/// Bytes of the last output that go into an error.
const TAIL_BYTES: usize = 2_000;
/// Bytes of the error that a program reports.
const ERROR_BYTES: usize = 8_000;
/// How long calls that were running when their program ended may take to end; only a moment if an
/// operator waits for all of it to be dead.
const GRACE: (Duration, Duration) = (Duration::from_secs(6), Duration::from_millis(500));

/// How a program ended, as far as it says.
#[derive(Debug, PartialEq)]
pub(in crate::sandbox) enum ProgramEnd {
    /// It returned this.
    Returned(Value),
    /// Its code failed so.
    Raised(String),
    /// It said what no program says.
    Broke(String),
    Silent,
}

/// A program and the calls that it makes.
pub(in crate::sandbox) struct ProgramSession {
    back: Arc<CallBack>,
    caller: Caller,
    talk: Talk,
    lines: Lines,
    heard: usize,
    said: u32,
    /// How long a program may take, and when it was first heard of.
    longest: Duration,
    since: Option<Instant>,
    tail: OutputTail,
    calls: CallCounts,
    /// Each ends as the name of the tool that it called.
    running: FuturesUnordered<BoxFuture<'static, String>>,
    stop: CancellationToken,
}

/// What was called, by tool: how often, and how many of these have not ended.
#[derive(Debug, Default)]
struct CallCounts {
    count: u32,
    by_tool: BTreeMap<String, (u32, u32)>,
}

/// The end of the output.
#[derive(Debug, Default)]
struct OutputTail {
    bytes: Vec<u8>,
    printed: u64,
}

// === impl ProgramSession ===

impl ProgramSession {
    /// With a program that may take so long.
    pub(in crate::sandbox) fn new(
        back: CallBack,
        caller: Caller,
        talk: Talk,
        longest: Duration,
        cancelled: &CancellationToken,
    ) -> Self {
        Self {
            back: Arc::new(back),
            caller,
            talk,
            lines: Lines::default(),
            heard: 0,
            said: 0,
            longest,
            since: None,
            tail: OutputTail::default(),
            calls: CallCounts::default(),
            running: FuturesUnordered::new(),
            stop: cancelled.child_token(),
        }
    }

    /// The first line that the program reads.
    pub(in crate::sandbox) fn begin(&self, code: &str) -> Bytes {
        let tools: Vec<&ToolName> = self.back.offered();
        HostMessage::Begin { code, tools }.line()
    }

    /// Answers calls until the program says how it ended, or nothing any more. Dropping it loses
    /// nothing.
    pub(in crate::sandbox) async fn verdict(&mut self) -> ProgramEnd {
        loop {
            while self.has_room() {
                match self.lines.next() {
                    Ok(None) => break,
                    Ok(Some(line)) => {
                        if let Some(verdict) = self.take(&line) {
                            return verdict;
                        }
                    }
                    Err(_too_long) => {
                        let most = FRAME_BYTES;
                        return broke(format!("a line of more than {most} bytes"));
                    }
                }
            }
            let has_room = self.has_room();
            tokio::select! {
                Some(tool) = self.running.next(), if !self.running.is_empty() => {
                    self.calls.ended(&tool);
                }
                heard = self.talk.heard.recv(), if has_room => match heard {
                    None => return ProgramEnd::Silent,
                    Some((OutputStream::Stderr, bytes)) => self.tail.push(&bytes),
                    Some((OutputStream::Stdout, bytes)) => {
                        self.since.get_or_insert_with(Instant::now);
                        self.heard += bytes.len();
                        if self.heard > HEARD_MAX {
                            return broke(format!("more than {HEARD_MAX} bytes in all"));
                        }
                        self.lines.push(&bytes);
                    }
                },
            }
        }
    }

    /// The program has ended: nothing is called for it any more, what is running is ended, and what
    /// it said last is heard.
    pub(in crate::sandbox) async fn close(&mut self, is_cancelled: bool) -> ProgramEnd {
        self.stop.cancel();
        let grace = if is_cancelled { GRACE.1 } else { GRACE.0 };
        let running = async {
            while let Some(tool) = self.running.next().await {
                self.calls.ended(&tool);
            }
        };
        if timeout(grace, running).await.is_err() {
            debug!("calls that code has made are dropped");
        }
        self.running.clear();
        let end = self.verdict().await;
        // What it printed has a stream of its own, and may have been read after its last line.
        while let Ok((stream, bytes)) = self.talk.heard.try_recv() {
            if stream == OutputStream::Stderr {
                self.tail.push(&bytes);
            }
        }
        end
    }

    /// It has said all that counts: what it called is ended, and what else it says goes nowhere. What
    /// it prints has a stream of its own, and may come later. Never returns.
    pub(in crate::sandbox) async fn hear_out(&mut self) -> Infallible {
        self.stop.cancel();
        while let Some((stream, bytes)) = self.talk.heard.recv().await {
            if stream == OutputStream::Stderr {
                self.tail.push(&bytes);
            }
        }
        std::future::pending().await
    }

    fn has_room(&self) -> bool {
        // A program that was stopped gets no more answers: there is always room to refuse.
        self.stop.is_cancelled() || self.running.len() < self.back.at_once()
    }

    /// What one line asks for.
    fn take(&mut self, line: &[u8]) -> Option<ProgramEnd> {
        self.said += 1;
        if self.said > LINES_MAX {
            return Some(broke(format!("more than {LINES_MAX} lines")));
        }
        match serde_json::from_slice(line) {
            Ok(ProgramMessage::Return { value }) => Some(ProgramEnd::Returned(value)),
            Ok(ProgramMessage::Raise { error }) => Some(ProgramEnd::Raised(error)),
            Ok(ProgramMessage::Call { id, tool, arguments }) => {
                let nested = Nested { index: self.calls.count, tool, arguments, left: self.left() };
                self.call(id, nested);
                None
            }
            // What it was is content, and may be anything.
            Err(_garbage) => Some(broke("a line that is not a message".to_owned())),
        }
    }

    /// What is left of the program's time.
    fn left(&self) -> Duration {
        let gone = self.since.map_or(Duration::ZERO, |since| since.elapsed());
        self.longest.saturating_sub(gone)
    }

    /// Begins a call; its answer is part of it, so one that does not read has fewer calls.
    fn call(&mut self, id: u64, nested: Nested) {
        if self.stop.is_cancelled() || nested.left.is_zero() {
            return;
        }
        let tell = self.talk.tell.clone();
        let shown: String = nested.tool.chars().take(80).collect();
        if self.calls.count >= CALLS_MAX {
            let why = format!("code may call tools {CALLS_MAX} times, and it has");
            let outcome = ToolOutcome::failed(ToolFailure::Refused, why);
            let tool = String::new();
            self.running.push(Box::pin(async move {
                answer(&tell, id, &outcome).await;
                tool
            }));
            return;
        }
        self.calls.began(&shown);
        let (back, caller, stop) = (Arc::clone(&self.back), self.caller.clone(), self.stop.clone());
        let span =
            info_span!("tool.nested", call = %caller.call, index = nested.index, tool = shown);
        let run = async move {
            let outcome = back.call(&caller, nested, stop).await;
            debug!(failure = ?outcome.failure, "a call from code has ended");
            answer(&tell, id, &outcome).await;
            shown
        };
        self.running.push(Box::pin(run.instrument(span)));
    }

    /// The outcome for the model.
    pub(in crate::sandbox) fn outcome(&self, verdict: ProgramEnd, end: CommandEnd) -> ToolOutcome {
        debug!(calls = self.calls.count, printed = self.tail.printed, ?end, "code has ended");
        let (failure, mut text) = match (verdict, end) {
            (ProgramEnd::Returned(value), _) => return self.returned(value),
            (ProgramEnd::Raised(error), _) => {
                let cut = error.len().saturating_sub(ERROR_BYTES);
                let from = error.ceil_char_boundary(cut);
                (ToolFailure::Failed, error.get(from..).unwrap_or_default().trim_end().to_owned())
            }
            (ProgramEnd::Broke(what), _) => {
                let text = format!(
                    "the code was ended: it wrote {what} where only calls of tools and its value \
                     belong; use `clawnode` and `return`"
                );
                (ToolFailure::Failed, text)
            }
            (ProgramEnd::Silent, CommandEnd::TimedOut(after)) => {
                let text = format!("timed_out: the code was ended after {} s", after.as_secs_f64());
                (ToolFailure::TimedOut, text)
            }
            (ProgramEnd::Silent, CommandEnd::OutOfMemory(most)) => {
                let text =
                    format!("out of memory: the code was ended when it wanted more than {most}");
                (ToolFailure::Crashed, text)
            }
            (ProgramEnd::Silent, CommandEnd::Exited(code)) => {
                let text = format!("the code ended with exit code {code} and returned nothing");
                (ToolFailure::Failed, text)
            }
            (ProgramEnd::Silent, CommandEnd::Cancelled) => {
                (ToolFailure::Cancelled, "cancelled: the code was ended".to_owned())
            }
        };
        self.calls.tell(&mut text);
        self.tail.tell(&mut text);
        ToolOutcome::failed(failure, text)
    }

    fn returned(&self, value: Value) -> ToolOutcome {
        let mut text = match value {
            Value::Null if self.tail.printed > 0 => {
                "null\n[what code prints is not shown: `return` a value]".to_owned()
            }
            Value::String(text) => text,
            value => value.to_string(),
        };
        // It has ended, and what it left running has been ended with it.
        if self.calls.open() > 0 {
            self.calls.tell(&mut text);
        }
        ToolOutcome::done(text)
    }
}

impl fmt::Debug for ProgramSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What was said is content of a conversation, which is in no log.
        f.debug_struct("ProgramSession")
            .field("caller", &self.caller)
            .field("calls", &self.calls.count)
            .finish_non_exhaustive()
    }
}

fn broke(what: String) -> ProgramEnd {
    ProgramEnd::Broke(what)
}

/// Sends the result of a call; a program that has ended does not hear it.
async fn answer(tell: &mpsc::Sender<Bytes>, id: u64, outcome: &ToolOutcome) {
    let text = outcome.content.inline().unwrap_or_default();
    let line = match outcome.failure {
        None => HostMessage::Result { id, text }.line(),
        Some(failure) => HostMessage::Error { id, failure, text }.line(),
    };
    if tell.send(line).await.is_err() {
        debug!("code ended before its call did");
    }
}

// === impl CallCounts ===

impl CallCounts {
    fn began(&mut self, tool: &str) {
        self.count += 1;
        let (all, open) = self.by_tool.entry(tool.to_owned()).or_default();
        *all += 1;
        *open += 1;
    }

    fn ended(&mut self, tool: &str) {
        if let Some((_, open)) = self.by_tool.get_mut(tool) {
            *open = open.saturating_sub(1);
        }
    }

    fn open(&self) -> u32 {
        self.by_tool.values().map(|(_, open)| open).sum()
    }

    /// The calls that the program made before it ended.
    fn tell(&self, text: &mut String) {
        if self.by_tool.is_empty() {
            return;
        }
        let list = |which: fn(&(u32, u32)) -> u32| {
            let some = self.by_tool.iter().filter(|(_, counts)| which(counts) > 0);
            let texts: Vec<String> =
                some.map(|(tool, counts)| format!("`{tool}` {}x", which(counts))).collect();
            texts.join(", ")
        };
        append(text, format_args!("\n[it called {}", list(|counts| counts.0)));
        if self.open() > 0 {
            append(
                text,
                format_args!("; the outcome of these is unknown: {}", list(|counts| counts.1)),
            );
        }
        text.push(']');
    }
}

// === impl OutputTail ===

impl OutputTail {
    fn push(&mut self, bytes: &[u8]) {
        self.printed += bytes.len() as u64;
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() > 2 * TAIL_BYTES {
            self.bytes.drain(..self.bytes.len() - TAIL_BYTES);
        }
    }

    fn tell(&self, text: &mut String) {
        if self.printed == 0 {
            return;
        }
        let from = self.bytes.len().saturating_sub(TAIL_BYTES);
        let last = String::from_utf8_lossy(self.bytes.get(from..).unwrap_or_default());
        append(text, format_args!("\n[printed, its end]\n{}", last.trim_end()));
    }
}

#[cfg(test)]
mod tests {
    use clawnode_cluster::SystemClock;
    use clawnode_proto::{CallId, job::Callbacks, policy::Policy};

    use super::*;
    use crate::{Basics, sandbox::dialogue};
    use clawnode_tool::{Executor, RunSink, Toolbox};

    /// A conversation of so long, and the program's side of it.
    fn conversation(longest: Duration) -> (ProgramSession, dialogue::Wires) {
        let basics: Arc<dyn Executor> = Arc::new(Basics::new(Arc::new(SystemClock)));
        let toolbox = Toolbox::new([basics]).unwrap();
        let tools =
            toolbox.specs().map(|spec| (spec.name.clone(), spec.digest().unwrap())).collect();
        let callbacks = Callbacks { tools, policy: Policy::default(), at_once: 8 };
        let back = CallBack::new(toolbox, [].into(), Some(callbacks));
        let caller = Caller { call: CallId::from_u128(1), agent: "main".parse().unwrap() };
        let (talk, wires) = dialogue::talk();
        (ProgramSession::new(back, caller, talk, longest, &CancellationToken::new()), wires)
    }

    const CALL: &[u8] =
        br#"{"type":"call","id":3,"tool":"calculate","arguments":{"expression":"6*7"}}
"#;

    #[tokio::test(start_paused = true)]
    async fn nothing_is_called_after_the_deadline() {
        let (mut code, wires) = conversation(Duration::from_secs(2));
        let (mut ears, told) = dialogue::OutputListener::new(Some(wires), &RunSink::default());
        let mut told = told.unwrap();
        let program = async {
            ears.add(OutputStream::Stdout, CALL);
            let answer = told.recv().await.unwrap();
            assert_eq!(answer, r#"{"type":"result","id":3,"text":"42"}"#.to_owned() + "\n");
            tokio::time::advance(Duration::from_secs(2)).await;
            ears.add(OutputStream::Stdout, CALL);
            assert!(timeout(Duration::from_mins(1), told.recv()).await.is_err(), "no answer");
            drop(ears);
        };
        let (verdict, ()) = tokio::join!(code.verdict(), program);
        assert_eq!(verdict, ProgramEnd::Silent);
        assert_eq!(code.calls.count, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_called_for_a_program_that_has_ended() {
        let (mut code, wires) = conversation(Duration::from_mins(1));
        let (mut ears, _told) = dialogue::OutputListener::new(Some(wires), &RunSink::default());
        ears.add(OutputStream::Stdout, CALL);
        ears.add(OutputStream::Stdout, b"{\"type\":\"return\",\"value\":\"said last\"}\n");
        drop(ears);
        let verdict = code.close(false).await;
        assert_eq!(verdict, ProgramEnd::Returned(Value::String("said last".to_owned())));
        assert_eq!(code.calls.count, 0);
    }

    #[tokio::test]
    async fn what_a_program_that_has_ended_printed_is_shown_whichever_stream_was_read_first() {
        let (mut code, wires) = conversation(Duration::from_mins(1));
        let (mut ears, _told) = dialogue::OutputListener::new(Some(wires), &RunSink::default());
        ears.add(OutputStream::Stdout, b"{\"type\":\"raise\",\"error\":\"it broke\"}\n");
        ears.add(OutputStream::Stderr, b"last words\n");
        drop(ears);
        let verdict = code.close(false).await;
        let told = code.outcome(verdict, CommandEnd::Exited(0));
        let text = told.content.inline().unwrap();
        assert!(text.ends_with("it broke\n[printed, its end]\nlast words"), "{text}");
    }

    #[tokio::test]
    async fn what_is_printed_counts_also_if_it_comes_after_the_value() {
        let (mut code, wires) = conversation(Duration::from_secs(9));
        let (mut ears, _told) = dialogue::OutputListener::new(Some(wires), &RunSink::default());
        ears.add(OutputStream::Stdout, b"{\"type\":\"return\",\"value\":null}\n");
        let verdict = code.verdict().await;
        ears.add(OutputStream::Stderr, b"x\n");
        drop(ears);
        tokio::select! {
            biased;
            never = code.hear_out() => match never {},
            () = std::future::ready(()) => {}
        }
        let told = code.outcome(verdict, CommandEnd::Exited(0));
        let text = told.content.inline().unwrap();
        assert_eq!(text, "null\n[what code prints is not shown: `return` a value]");
    }
}
