//! What follows from the tools that a model asks for: which calls run, which never will, and why.
//!
//! All of it is pure: a call's fate is decided from folded state and recorded, so it is the same
//! after a crash.

use clawnode_proto::{
    Attempt, CallId, Capability, EventId, Frame, FrameBody, FrameKey, JobId, Timestamp, TurnId,
    limits::{BAD_CALLS, FRAME_TOOL_CHARS, REPLY_TOOLS},
    llm::{StopReason, Text},
    session::{Profile, SessionEvent, ToolAsked, ToolDone, ToolEnd, ToolUncertain, TurnOutcome},
    tool::{ToolFailure, ToolOutcome, ToolSpec, ToolUse},
};
use serde::{Deserialize, Serialize};

use super::state::{Step, StepEnd, Turn};

/// One tool call of a model's reply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Its id.
    pub call: CallId,
    /// What the model asked for.
    pub using: ToolUse,
    /// How many calls of this turn asked for the same, with this one.
    pub times: u32,
    /// Whether the model is warned that it goes round in circles.
    pub warned: bool,
    /// That it was begun; absent while it waits, and for one that was never run.
    pub asked: Option<Asked>,
    /// Its time is over: it is brought to an end, whoever runs it.
    pub overdue: bool,
    /// How it ended, as an input says; the journal's own word follows.
    pub brought: Option<ToolEnd>,
    /// How it ended.
    pub end: Option<ToolEnd>,
}

/// A tool call that was begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// The event that asked; its result echoes it.
    pub nonce: EventId,
    /// When, by the writer's clock.
    pub at: Timestamp,
    /// What a node needs to run it; absent if it runs beside the session.
    pub capability: Option<Capability>,
}

/// What comes next of a model's reply that asks for tools.
#[derive(Debug, PartialEq)]
pub(super) enum Next {
    /// These are to be recorded.
    Record(Vec<SessionEvent>),
    /// The turn ends.
    End(TurnOutcome),
    /// Something runs, or the results of all are there.
    Nothing,
}

// === impl ToolCall ===

impl ToolCall {
    /// It was begun and nothing is heard of it.
    pub fn is_open(&self) -> bool {
        self.asked.is_some() && self.brought.is_none() && self.end.is_none()
    }

    /// Its job, if it was begun as one.
    pub(super) fn job(&self) -> Option<JobId> {
        let asked = self.asked.as_ref()?;
        asked.capability.as_ref().map(|_| JobId::from(self.call))
    }

    /// Whether it was refused for what it is.
    fn is_bad(&self) -> bool {
        matches!(
            &self.end,
            Some(ToolEnd::Known {
                outcome: ToolOutcome { failure: Some(ToolFailure::Invalid), .. }
            })
        )
    }

    /// What the model is told came of it, and whether that is an error.
    pub fn told(&self) -> (Text, bool) {
        let name: String = self.using.name.chars().take(80).collect();
        match &self.end {
            Some(ToolEnd::Known { outcome: ToolOutcome { content, failure: None } }) => {
                (content.clone(), false)
            }
            Some(ToolEnd::Known { outcome: ToolOutcome { content, failure: Some(failure) } }) => {
                let text = content.inline().filter(|_| *failure == ToolFailure::Invalid);
                match text {
                    Some(why) => (format!("The call of `{name}` was not run: {why}").into(), true),
                    None => (content.clone(), true),
                }
            }
            Some(ToolEnd::Uncertain { detail }) => {
                let text = format!(
                    "Nobody knows whether the call of `{name}` happened: {detail}. It is not made \
                     again by itself; find out before you ask for it again."
                );
                (text.into(), true)
            }
            None => (format!("The call of `{name}` was not finished.").into(), true),
        }
    }

    /// What the model is told when it goes round in circles.
    pub(super) fn warning(&self) -> Text {
        let name: String = self.using.name.chars().take(80).collect();
        format!(
            "You have now made the same call of `{name}` {} times in this turn. If its result does \
             not change, do something else.",
            self.times
        )
        .into()
    }

    /// Whether providers take it as it is: a tool's name, and a JSON object. What is not so is not
    /// shown to the model again as a call, but told in words.
    pub fn is_well_formed(&self) -> bool {
        self.using.name.parse::<clawnode_proto::ToolName>().is_ok()
            && matches!(
                serde_json::from_str(&self.using.arguments),
                Ok(serde_json::Value::Object(_))
            )
    }
}

// === what is told of it ===

/// What the world is told of a reply's tools: all that were asked for, and the results of those
/// before the first that has none. Their keys follow from the reply alone, so that whoever tells
/// them tells the same.
pub(super) fn frames(turn: TurnId, model_call: CallId, tools: &[ToolCall]) -> Vec<Frame> {
    let call = CallId::derive_tools(model_call);
    let uses = tools.iter().map(|tool| FrameBody::ToolUse {
        id: tool.call,
        name: cut(&tool.using.name),
        arguments: cut(&tool.using.arguments),
    });
    let results = tools.iter().map_while(ToolCall::result_frame);
    let key = |index| FrameKey { turn, call, attempt: Attempt(1), index };
    (0..).zip(uses.chain(results)).map(|(index, body)| Frame { key: key(index), body }).collect()
}

/// At most as many characters as a frame takes.
fn cut(text: &str) -> String {
    match text.char_indices().nth(FRAME_TOOL_CHARS) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    }
}

impl ToolCall {
    /// What the world is told of its end.
    fn result_frame(&self) -> Option<FrameBody> {
        let (content, failure) = match self.end.as_ref()? {
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
        Some(FrameBody::ToolResult { id: self.call, name, content, failure })
    }
}

// === what comes next ===

/// What comes next of the last reply of `turn`, whose tools are not all done with.
pub(super) fn next(profile: &Profile, turn: &Turn, step: &Step) -> Next {
    let brought: Vec<SessionEvent> = step
        .tools
        .iter()
        .filter(|tool| tool.end.is_none())
        .filter_map(|tool| match tool.brought.as_ref()? {
            ToolEnd::Known { .. } => {
                Some(ToolDone { turn: turn.id, call: tool.call, outcome: None }.into())
            }
            ToolEnd::Uncertain { .. } => {
                Some(ToolUncertain { turn: turn.id, call: tool.call, detail: None }.into())
            }
        })
        .collect();
    if !brought.is_empty() {
        return Next::Record(brought);
    }
    if let Some(tool) = step.tools.iter().find(|tool| tool.times >= profile.loop_guard.end) {
        let (tool, times) = (tool.using.name.clone(), tool.times);
        return Next::End(TurnOutcome::Looped { tool, times });
    }
    let events = begin(profile, turn, step);
    if !events.is_empty() {
        return Next::Record(events);
    }
    if step.tools.iter().all(|tool| tool.end.is_some())
        && let Some(detail) = too_many_bad(turn)
    {
        return Next::End(TurnOutcome::BadCalls { detail });
    }
    Next::Nothing
}

/// Begins as many of the calls that wait as may run at a time; those that never will are ended.
fn begin(profile: &Profile, turn: &Turn, step: &Step) -> Vec<SessionEvent> {
    let most = usize::try_from(profile.max_parallel_tools.max(1)).unwrap_or(usize::MAX);
    let mut open = step.tools.iter().filter(|tool| tool.is_open()).count();
    let mut events = Vec::new();
    for (index, tool) in step.tools.iter().enumerate() {
        if tool.asked.is_some() || tool.end.is_some() {
            continue;
        }
        match judge(profile, step, index, tool) {
            Ok(spec) if open < most => {
                open += 1;
                let (call, tool) = (tool.call, spec.name.clone());
                events.push(ToolAsked { turn: turn.id, call, tool }.into());
            }
            Ok(_waits) => {}
            Err(outcome) => events.push(ended(turn.id, tool.call, outcome)),
        }
    }
    events
}

fn ended(turn: TurnId, call: CallId, outcome: ToolOutcome) -> SessionEvent {
    ToolDone { turn, call, outcome: Some(outcome) }.into()
}

/// Whether a call may run, as its tool is now; or why it never will.
fn judge<'a>(
    profile: &'a Profile,
    step: &Step,
    index: usize,
    tool: &ToolCall,
) -> Result<&'a ToolSpec, ToolOutcome> {
    let invalid = |why: String| Err(ToolOutcome::failed(ToolFailure::Invalid, why));
    let refused = |why: String| Err(ToolOutcome::failed(ToolFailure::Refused, why));
    let using = &tool.using;
    if index >= REPLY_TOOLS {
        return refused(format!("one reply may make {REPLY_TOOLS} calls, and this is one more"));
    }
    // Some local servers name none of them.
    let twice = |before: &ToolCall| !using.id.is_empty() && before.using.id == using.id;
    if step.tools.iter().take(index).any(twice) {
        return invalid(format!("another call of the same reply has the id `{}`", using.id));
    }
    let Some(spec) = profile.tool(&using.name) else {
        let names: Vec<&str> = profile.tools.iter().map(|tool| tool.name.as_str()).collect();
        let name: String = using.name.chars().take(80).collect();
        return invalid(format!("there is no tool `{name}`; there are: {}", names.join(", ")));
    };
    if let Err(why) = crate::tool::schema::judge(spec, &using.arguments) {
        let cut = matches!(step.end, Some(StepEnd::Done { stop: StopReason::MaxTokens, .. }));
        let hint =
            if cut { " The reply was cut off at its limit of tokens: ask for less." } else { "" };
        return invalid(format!("{why}{hint}"));
    }
    if tool.times >= profile.loop_guard.refuse {
        return refused(format!(
            "this turn has made the same call {} times; it was not run again. \
             Do something else, or say what keeps you from it.",
            tool.times
        ));
    }
    Ok(spec)
}

/// The last complaint, if the model was told of calls that cannot be run as often as it may be.
fn too_many_bad(turn: &Turn) -> Option<String> {
    let bad = |step: &&Step| step.tools.iter().any(ToolCall::is_bad);
    if turn.steps.iter().filter(bad).count() as u64 <= u64::from(BAD_CALLS) {
        return None;
    }
    let last = turn.steps.iter().rev().find(bad)?.tools.iter().find(|tool| tool.is_bad())?;
    match &last.end {
        Some(ToolEnd::Known { outcome }) => Some(outcome.content.inline()?.to_owned()),
        _ => None,
    }
}
