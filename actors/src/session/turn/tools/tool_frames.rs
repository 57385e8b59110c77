//! What clients see of a reply's tools, derived from what is recorded of them. Pure.

use clawnode_proto::{
    Attempt, CallId, Frame, FrameBody, FrameKey, TurnId,
    frame::{Notice, ToolFinished, ToolStarted},
    limits::FRAME_TOOL_CHARS,
    session::ToolEnd,
};

use super::super::state::{Step, Turn};
use super::{client_tools::client_calls, tool_calls::ToolCall};

/// What is recorded of a turn's tools, as clients see it.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolFrames {
    pub turn: TurnId,
    /// What a further frame belongs to.
    pub call: CallId,
    /// Whether it begins with the turn: no model call tells of a planned one.
    pub begins: bool,
    /// What clients see, in order.
    pub frames: Vec<Frame>,
}

// === impl ToolFrames ===

impl ToolFrames {
    /// What is recorded of the tools of this step and, if it is planned, of those before it: no model
    /// call told of them.
    pub(in crate::session) fn of(turn: &Turn, step: &Step) -> Self {
        let begins = turn.plan.is_some();
        let before = turn.steps.iter().take_while(|earlier| begins && earlier.call != step.call);
        let steps = before.chain([step]);
        let call = |step: &Step| turn.after.tools(step.call);
        let frames = steps.flat_map(|step| frames(turn.id, call(step), &step.tools)).collect();
        Self { turn: turn.id, call: call(step), begins, frames }
    }

    /// The same, unless that step has no tools.
    pub(in crate::session) fn of_last(turn: &Turn) -> Option<Self> {
        let last = turn.steps.last()?;
        (!last.tools.is_empty()).then(|| Self::of(turn, last))
    }

    /// The same, and a notice after the frames of its last step.
    #[must_use]
    pub(in crate::session) fn and_notice(mut self, name: &str, message: String) -> Self {
        let key = FrameKey {
            turn: self.turn,
            call: self.call,
            attempt: Attempt(1),
            index: u32::try_from(self.frames.len()).unwrap_or(u32::MAX / 2),
        };
        let body = FrameBody::Notice(Notice { name: name.to_owned(), message });
        self.frames.push(Frame { key, body });
        self
    }

    /// What is recorded of the tools that the call before this one asked for, if it did.
    pub(in crate::session) fn before(turn: &Turn, call: CallId) -> Option<Self> {
        let at = turn.steps.iter().position(|step| step.call == call).unwrap_or(turn.steps.len());
        let before = turn.steps.get(at.checked_sub(1)?)?;
        (!before.tools.is_empty()).then(|| Self::of(turn, before))
    }
}

/// The key of the frame that asks a client to run tools of this reply.
pub(in crate::session) fn client_key(turn: &Turn, step: &Step) -> FrameKey {
    let (turn, call) = (turn.id, turn.after.tools(step.call));
    let index = u32::try_from(step.tools.len()).unwrap_or(u32::MAX);
    FrameKey { turn, call, attempt: Attempt(1), index }
}

/// What clients see of a reply's tools: all that were asked for, and the results of those
/// before the first that has none. They belong to `call`, and their keys follow from the reply alone, so that a
/// process that sends them again sends the same.
pub(in crate::session) fn frames(turn: TurnId, call: CallId, tools: &[ToolCall]) -> Vec<Frame> {
    let uses = tools.iter().map(|tool| ToolStarted {
        id: tool.call,
        name: cut(&tool.using.name),
        arguments: cut(&tool.using.arguments),
    });
    // All that people are asked about is asked at once, before anything of the reply runs.
    let asked = tools.iter().filter_map(ToolCall::request).map(FrameBody::ApprovalRequest);
    // All that a client runs is begun with the reply, so the place of this never changes.
    let of_client = client_calls(tools).map(FrameBody::ClientCalls);
    let results = tools.iter().map_while(ToolCall::finished).map(FrameBody::ToolResult);
    let key = |index| FrameKey { turn, call, attempt: Attempt(1), index };
    let bodies = uses.map(FrameBody::ToolUse).chain(of_client).chain(asked).chain(results);
    (0..).zip(bodies).map(|(index, body)| Frame { key: key(index), body }).collect()
}

/// At most as many characters as a frame takes.
pub(in crate::session::turn) fn cut(text: &str) -> String {
    match text.char_indices().nth(FRAME_TOOL_CHARS) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    }
}

impl ToolCall {
    /// What clients see of its end.
    fn finished(&self) -> Option<ToolFinished> {
        let (content, failure) = match &self.ended()? {
            ToolEnd::Known { outcome } => {
                let content = match outcome.content.inline() {
                    Some(text) => cut(text),
                    None => format!("({} bytes)", outcome.content.bytes()),
                };
                (content, outcome.failure.map(|failure| failure.as_str().to_owned()))
            }
            ToolEnd::Uncertain { detail } => (cut(detail), Some("uncertain".to_owned())),
        };
        let name = cut(&self.using.name);
        Some(ToolFinished { id: self.call, name, content, is_error: None, failure })
    }
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{
        session::{SessionInput, ToolResult},
        tool::ToolOutcome,
    };

    use super::*;
    use crate::session::{SessionJob, played::PlayedActivation};

    /// What clients see before the effect that was begun last.
    fn told(run: &PlayedActivation) -> Vec<&'static str> {
        let name = |frame: &Frame| match frame.body {
            FrameBody::ToolUse(_) => "use",
            FrameBody::ToolResult(_) => "result",
            FrameBody::ApprovalRequest(_) => "request",
            _ => "other",
        };
        run.told.iter().map(name).collect()
    }

    /// I5: an effect begins after the append that decided it, and tells what that append records.
    #[test]
    fn what_is_recorded_of_tools_is_told_with_the_next_effect() {
        let mut run = PlayedActivation::new(&[], Vec::new());
        run.says("go");
        assert_eq!(told(&run), [""; 0], "no tool was asked for");
        run.replies(&[("far", r#"{"at":1}"#), ("none", "{}")]);
        // The second one is no tool, which is recorded; its result is sent after that of the first.
        assert_eq!(told(&run), ["use", "use"]);
        let Some((_, SessionJob::Publish(publish))) = run.started.pop() else { panic!("no job") };
        let end = ToolEnd::Known { outcome: ToolOutcome::done("did") };
        let result = ToolResult { call: publish.job.call, nonce: publish.job.nonce, end };
        run.hears("result", &SessionInput::ToolResult(result));
        assert!(matches!(run.started.last(), Some((_, SessionJob::Call(_)))), "{:?}", run.started);
        assert_eq!(told(&run), ["use", "use", "result", "result"]);
        let mut successor = PlayedActivation::new(&[], run.journal.clone());
        assert!(matches!(successor.started.pop(), Some((_, SessionJob::Call(_)))));
        assert_eq!(successor.told, run.told, "the next owner tells the same");
    }
}
