//! What a program and its node say to each other: one line of JSON each.

use bytes::Bytes;
use clawnode_proto::{ToolName, json, tool::ToolFailure};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Bytes of one line from inside (1 MiB), its end included: as much as any result may have.
pub(super) const FRAME_BYTES: usize = 1 << 20;

/// What a program may say.
#[derive(Debug, Deserialize, PartialEq)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum ProgramMessage {
    /// Call a tool.
    Call {
        /// Repeated by the answer; the program's own matter.
        id: u64,
        tool: String,
        #[serde(deserialize_with = "json::fields")]
        arguments: Map<String, Value>,
    },
    /// This is the value; the last thing that is heard.
    Return { value: Value },
    /// The code failed so; the last thing that is heard.
    Raise { error: String },
}

/// A message to a program.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum HostMessage<'a> {
    /// What to run, and what it may call; the first line.
    Begin { code: &'a str, tools: Vec<&'a ToolName> },
    /// The result of a call.
    Result { id: u64, text: &'a str },
    /// Why a call has no result.
    Error { id: u64, failure: ToolFailure, text: &'a str },
}

/// Bytes as lines.
#[derive(Debug, Default)]
pub(super) struct Lines(Vec<u8>);

/// More bytes than a line may have.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

// === impl HostMessage ===

impl HostMessage<'_> {
    pub(super) fn line(&self) -> Bytes {
        // Text, numbers and names: all of it can be written.
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line.into()
    }
}

// === impl Lines ===

impl Lines {
    /// More was said.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// The next line, once it is whole.
    pub(super) fn next(&mut self) -> Result<Option<Vec<u8>>, TooLong> {
        let end = self.0.iter().take(FRAME_BYTES).position(|byte| *byte == b'\n');
        let Some(end) = end else {
            return if self.0.len() < FRAME_BYTES { Ok(None) } else { Err(TooLong) };
        };
        let rest = self.0.split_off(end + 1);
        let mut line = std::mem::replace(&mut self.0, rest);
        line.pop();
        Ok(Some(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_whole_and_bounded() {
        let mut lines = Lines::default();
        lines.push(b"a");
        assert_eq!(lines.next(), Ok(None));
        lines.push(b"b\n\nc");
        assert_eq!(lines.next(), Ok(Some(b"ab".to_vec())));
        assert_eq!(lines.next(), Ok(Some(Vec::new())));
        assert_eq!(lines.next(), Ok(None));
        lines.push(&vec![b'x'; FRAME_BYTES - 2]);
        assert_eq!(lines.next(), Ok(None));
        lines.push(b"y\n");
        assert_eq!(lines.next(), Err(TooLong));
        let mut lines = Lines::default();
        lines.push(&vec![b'x'; FRAME_BYTES - 1]);
        lines.push(b"\n");
        assert_eq!(
            lines.next().map(|line| line.map(|bytes| bytes.len())),
            Ok(Some(FRAME_BYTES - 1))
        );
    }

    #[test]
    fn only_what_can_be_said_is_read() {
        for (line, is_read) in [
            (r#"{"type":"return","value":1}"#, true),
            (r#"{"type":"raise","error":"e"}"#, true),
            (r#"{"type":"call","id":1,"tool":"t","arguments":{}}"#, true),
            (r#"{"type":"call","id":1,"tool":"t","arguments":{"a":1,"a":2}}"#, false),
            (r#"{"type":"call","id":1,"tool":"t","arguments":{"o":[{"a":1,"a":2}]}}"#, false),
            (r#"{"type":"call","id":-1,"tool":"t","arguments":{}}"#, false),
            (r#"{"type":"call","id":1,"tool":"t","arguments":[]}"#, false),
            (r#"{"type":"call","id":1,"tool":"t","arguments":{},"agent":"root"}"#, false),
            (r#"{"type":"begin","code":"","tools":[]}"#, false),
            (r#"{"type":"return","value":1}{"#, false),
            (&format!(r#"{{"type":"return","value":{}"#, "[".repeat(100_000)), false),
            ("", false),
        ] {
            assert_eq!(serde_json::from_str::<ProgramMessage>(line).is_ok(), is_read, "{line:.80}");
        }
    }
}
