//! What a client that brings results of tools has seen of its turn, so that it continues from there.

use clawnode_proto::{
    CallId, FrameKey,
    client_tool::ClientCalls,
    llm::{Text, Usage},
};

use crate::session::turn::{
    state::{SEAM, Step, Turn},
    tools::tool_frames::client_key,
};

/// A client that has brought results continues after the model call that asked for them.
#[derive(Clone, Debug)]
pub(in crate::session) struct FollowFrom {
    /// The last frame that it has seen.
    pub(in crate::session) cursor: FrameKey,
    /// The calls of the frames that it has seen, without the last one.
    pub(in crate::session) seen: Vec<CallId>,
    /// How many model calls it has seen.
    pub(in crate::session) steps: usize,
    /// The bytes of text of these calls.
    pub(in crate::session) text_bytes: u64,
    /// The calls that the client had to run last.
    pub(in crate::session) asked: Vec<CallId>,
}

/// What a turn waits for its client to run, and what it has said before that to this reader.
pub(in crate::session) struct WaitingForClient {
    pub(in crate::session) calls: ClientCalls,
    pub(in crate::session) steps: Vec<Step>,
    pub(in crate::session) usage: Usage,
    pub(in crate::session) seen: FollowFrom,
}

// === impl FollowFrom ===

impl FollowFrom {
    /// After the model call at this place.
    pub(in crate::session) fn of(turn: &Turn, at: usize) -> Option<Self> {
        let step = turn.steps.get(at)?;
        let seen = turn.steps.get(..=at)?;
        let said: Vec<u64> = seen
            .iter()
            .filter_map(Step::text)
            .map(Text::bytes)
            .filter(|bytes| *bytes > 0)
            .collect();
        let seams = said.len().saturating_sub(1) * SEAM.len();
        let calls = seen.iter().flat_map(|step| [step.call, turn.after.tools(step.call)]);
        let mut calls: Vec<CallId> = calls.collect();
        // More tools of this call may follow.
        calls.pop();
        Some(Self {
            cursor: client_key(turn, step),
            seen: calls,
            steps: at + 1,
            text_bytes: said.iter().sum::<u64>() + seams as u64,
            asked: step
                .tools
                .iter()
                .filter(|tool| tool.is_of_client())
                .map(|tool| tool.call)
                .collect(),
        })
    }
}

// === impl WaitingForClient ===

impl WaitingForClient {
    pub(in crate::session) fn of(turn: &Turn, from: Option<&FollowFrom>) -> Option<Self> {
        let calls = turn.with_client()?.client_calls()?;
        let before = from.map_or(0, |from| from.steps);
        let steps = turn.steps.get(before..)?.to_vec();
        let seen = FollowFrom::of(turn, turn.steps.len().checked_sub(1)?)?;
        Some(Self { calls, steps, usage: turn.reported_since(before), seen })
    }
}
