//! What a command printed and how it ended, as text for the model.

use std::time::Duration;

use clawnode_proto::{
    archive::LogStream,
    tool::{ToolFailure, ToolOutcome},
};
use clawnode_tool::{RunSink, append::append};

use super::resource_limits::MemorySize;

/// Bytes of output that are kept (1 MB), of both streams together; what is beyond is read and
/// dropped, so that nothing waits for it.
pub const KEPT_BYTES: usize = 1_000_000;
/// What the second stream has for sure of it, however much the first one says.
const STDERR_BYTES: usize = 100_000;

/// A stream of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputStream {
    Stdout,
    Stderr,
}

/// What was said so far.
#[derive(Clone, Debug, Default)]
pub struct Capture {
    stdout: KeptOutput,
    stderr: KeptOutput,
    sink: RunSink,
}

#[derive(Clone, Debug, Default)]
struct KeptOutput {
    bytes: Vec<u8>,
    /// How much was printed, kept or not.
    said: u64,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandEnd {
    /// By itself.
    Exited(i64),
    /// The kernel ended it, or a part of it: it wanted more memory than this.
    OutOfMemory(MemorySize),
    /// It was killed after so long.
    TimedOut(Duration),
    /// It was killed because its call was cancelled.
    Cancelled,
}

/// A command that has ended.
#[derive(Clone, Debug)]
pub struct Ran {
    pub capture: Capture,
    pub end: CommandEnd,
}

// === impl Capture ===

impl Capture {
    /// Nothing yet; new output goes to `sink` too.
    pub fn told_to(sink: &RunSink) -> Self {
        Self { sink: sink.clone(), ..Self::default() }
    }

    /// Whether nothing was said.
    pub const fn is_empty(&self) -> bool {
        self.stdout.said == 0 && self.stderr.said == 0
    }

    /// Keeps what fits.
    pub fn add(&mut self, stream: OutputStream, bytes: &[u8]) {
        let (kept, to) = match stream {
            OutputStream::Stdout => (&mut self.stdout, LogStream::Stdout),
            OutputStream::Stderr => (&mut self.stderr, LogStream::Stderr),
        };
        self.sink.said(to, bytes);
        kept.said += bytes.len() as u64;
        let room = KEPT_BYTES.saturating_sub(kept.bytes.len()).min(bytes.len());
        kept.bytes.extend_from_slice(bytes.get(..room).unwrap_or_default());
    }
}

impl Capture {
    /// Both streams as text.
    #[cfg(feature = "ssh")]
    pub fn text(&self) -> String {
        let (mut text, notes) = self.tell();
        note(&mut text, notes);
        text
    }

    /// Both streams as text, and notes about them.
    fn tell(&self) -> (String, Vec<String>) {
        let mut notes = Vec::new();
        let least = self.stderr.bytes.len().min(STDERR_BYTES);
        let mut text = self.stdout.tell("stdout", KEPT_BYTES - least, &mut notes);
        let room = KEPT_BYTES.saturating_sub(text.len());
        let stderr = self.stderr.tell("stderr", room, &mut notes);
        if !stderr.is_empty() {
            new_line(&mut text);
            append(&mut text, format_args!("[stderr]\n{stderr}"));
        }
        (text, notes)
    }
}

// === impl KeptOutput ===

impl KeptOutput {
    /// The stream as text of at most `most` bytes; adds its notes.
    fn tell(&self, name: &str, most: usize, notes: &mut Vec<String>) -> String {
        // A character that the limit cuts in two is no sign of bytes that are no text.
        let whole = match std::str::from_utf8(&self.bytes) {
            Err(error) if error.error_len().is_none() && self.said > self.bytes.len() as u64 => {
                self.bytes.get(..error.valid_up_to()).unwrap_or_default()
            }
            _ => &self.bytes,
        };
        let text = String::from_utf8_lossy(whole);
        if matches!(text, std::borrow::Cow::Owned(_)) {
            notes.push(format!(
                "some bytes of {name} were not UTF-8 and are shown as `\u{fffd}`; encode bytes \
                 (base64) to see them"
            ));
        }
        let mut text = text.into_owned();
        text.truncate(text.floor_char_boundary(most));
        if text.len() < whole.len() || (whole.len() as u64) < self.said {
            let (kept, said) = (text.len(), self.said);
            notes.push(format!("cut: the first {kept} of {said} bytes of {name}"));
        }
        text
    }
}

// === impl Ran ===

impl Ran {
    /// The outcome for the model: standard output as it is, then notes.
    pub fn outcome(self) -> ToolOutcome {
        let (mut text, mut notes) = self.capture.tell();
        let is_silent = text.is_empty();
        let failure = match self.end {
            CommandEnd::Exited(0) => {
                if is_silent {
                    notes.push("exit code 0, no output".to_owned());
                }
                None
            }
            CommandEnd::Exited(code) => {
                notes.push(format!("exit code {code}"));
                Some(ToolFailure::Failed)
            }
            CommandEnd::OutOfMemory(limit) => {
                notes.push(format!(
                    "out of memory: it was killed (137) when it wanted more than {limit}"
                ));
                Some(ToolFailure::Crashed)
            }
            CommandEnd::TimedOut(after) => {
                let part = if is_silent { "it printed nothing" } else { "its output is above" };
                let seconds = after.as_secs_f64();
                notes.push(format!("timed_out: it was killed after {seconds} s; {part}"));
                Some(ToolFailure::TimedOut)
            }
            CommandEnd::Cancelled => {
                notes.push("cancelled: it was killed".to_owned());
                Some(ToolFailure::Cancelled)
            }
        };
        note(&mut text, notes);
        match failure {
            None => ToolOutcome::done(text),
            Some(failure) => ToolOutcome::failed(failure, text),
        }
    }
}

fn note(text: &mut String, notes: Vec<String>) {
    for note in notes {
        new_line(text);
        append(text, format_args!("[{note}]"));
    }
}

fn new_line(text: &mut String) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(said: &[(OutputStream, &[u8])], end: CommandEnd) -> (Option<ToolFailure>, String) {
        let mut capture = Capture::default();
        for (stream, bytes) in said {
            capture.add(*stream, bytes);
        }
        let outcome = Ran { capture, end }.outcome();
        (outcome.failure, outcome.content.inline().unwrap().to_owned())
    }

    #[test]
    fn an_end_is_told_after_what_was_said() {
        let out = (OutputStream::Stdout, b"a\n".as_slice());
        let err = (OutputStream::Stderr, b"b".as_slice());
        let memory = MemorySize::mib(64);
        let after = Duration::from_millis(1_500);
        for (said, end, failure, text) in [
            (vec![out], CommandEnd::Exited(0), None, "a\n"),
            (vec![], CommandEnd::Exited(0), None, "[exit code 0, no output]"),
            (vec![err, out], CommandEnd::Exited(0), None, "a\n[stderr]\nb"),
            (
                vec![err],
                CommandEnd::Exited(2),
                Some(ToolFailure::Failed),
                "[stderr]\nb\n[exit code 2]",
            ),
            (
                vec![out],
                CommandEnd::OutOfMemory(memory),
                Some(ToolFailure::Crashed),
                "a\n[out of memory: it was killed (137) when it wanted more than 64MiB]",
            ),
            (
                vec![out],
                CommandEnd::TimedOut(after),
                Some(ToolFailure::TimedOut),
                "a\n[timed_out: it was killed after 1.5 s; its output is above]",
            ),
            (
                vec![],
                CommandEnd::TimedOut(after),
                Some(ToolFailure::TimedOut),
                "[timed_out: it was killed after 1.5 s; it printed nothing]",
            ),
            (
                vec![out],
                CommandEnd::Cancelled,
                Some(ToolFailure::Cancelled),
                "a\n[cancelled: it was killed]",
            ),
        ] {
            assert_eq!(told(&said, end), (failure, text.to_owned()));
        }
    }

    #[test]
    fn long_output_is_cut_and_both_streams_are_heard() {
        let flood = vec![b'a'; 3 * KEPT_BYTES];
        let (_, text) = told(
            &[(OutputStream::Stdout, &flood), (OutputStream::Stderr, b"why")],
            CommandEnd::Exited(1),
        );
        assert!(text.len() < KEPT_BYTES + 500, "{}", text.len());
        assert!(text.contains("\n[stderr]\nwhy\n"));
        assert!(text.contains("[cut: the first 999997 of 3000000 bytes of stdout]"), "cut");
        let (_, text) = told(
            &[(OutputStream::Stdout, &flood), (OutputStream::Stderr, &flood)],
            CommandEnd::Exited(1),
        );
        assert!(text.contains("the first 100000 of 3000000 bytes of stderr"));
        assert!(text.ends_with("[exit code 1]"));
    }

    #[test]
    fn bytes_that_are_no_text_are_told() {
        let (_, text) = told(&[(OutputStream::Stdout, b"a\xff\xfeb")], CommandEnd::Exited(0));
        assert!(text.starts_with("a\u{fffd}\u{fffd}b\n[some bytes of stdout were not"), "{text}");
        let garbage = vec![0xff; KEPT_BYTES];
        let (_, text) = told(&[(OutputStream::Stdout, &garbage)], CommandEnd::Exited(0));
        assert!(text.len() < KEPT_BYTES + 500 && text.contains("[cut: "), "{}", text.len());
        // The limit falls into a character.
        let long = "é".repeat(KEPT_BYTES);
        let odd = [b"x", long.as_bytes()].concat();
        let (_, text) = told(&[(OutputStream::Stdout, &odd)], CommandEnd::Exited(0));
        assert!(!text.contains("UTF-8") && text.contains("[cut: "), "cut between characters");
    }
}
