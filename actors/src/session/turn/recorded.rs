//! What a session's journal says to who looks at it from outside: what its inputs say, the blobs that
//! hold its texts, and whether a model was shown what the journal gives.

use clawnode_kernel::Violation;
use clawnode_proto::{
    Digest, Input,
    block::Blocks,
    codec,
    llm::Text,
    media::Media,
    session::{ModelBegun, Profile, SessionEvent, SessionInput, ToolEnd},
};
use serde_json::Value;

use super::{
    compaction::compaction_call,
    context::attachments::AttachmentRule,
    context::dropping::Recorded,
    context::model_input::{Draft, draft},
    hooks::judged,
    model_call::first_model::is_by_routes,
    model_call::reservation_size::capped,
    reflection::reflection_call,
    state::{SessionState, Turn},
};

pub(super) fn view(input: &Input) -> Value {
    let input: Option<SessionInput> = codec::decode(&input.body).ok();
    serde_json::to_value(input).unwrap_or_default()
}

/// The blobs that hold an input's texts and attachments.
pub(super) fn blobs_of_input(input: &Input) -> Vec<Digest> {
    match codec::decode(&input.body) {
        Ok(SessionInput::UserMessage(message) | SessionInput::Steer(message)) => {
            let history = message.history.iter().flat_map(|earlier| {
                let beside = earlier.blocks.iter().flat_map(blobs_of_blocks);
                let replies = earlier.tool_replies.iter();
                let replies = replies.filter_map(|reply| blob_of(&reply.content));
                blobs_of(&earlier.content, &earlier.attachments).chain(beside).chain(replies)
            });
            blobs_of(&message.content, &message.attachments).chain(history).collect()
        }
        Ok(SessionInput::ClientResults(brought)) => {
            brought.results.iter().flat_map(|one| blobs_of(&one.content, &one.media)).collect()
        }
        Ok(SessionInput::ToolResult(result)) => match &result.end {
            ToolEnd::Known { outcome } => blobs_of(&outcome.content, &outcome.media).collect(),
            ToolEnd::Uncertain { .. } => Vec::new(),
        },
        Ok(
            SessionInput::Execute(_)
            | SessionInput::Cancel { .. }
            | SessionInput::ApprovalDecided(_)
            | SessionInput::Continue { .. }
            | SessionInput::Feedback(_)
            | SessionInput::Reflect(_)
            | SessionInput::TimerFired { .. }
            | SessionInput::Delete,
        )
        | Err(_) => Vec::new(),
    }
}

/// The blobs that hold an event's texts and attachments.
pub(super) fn blobs_of_event(event: &SessionEvent) -> Vec<Digest> {
    match event {
        SessionEvent::Configured(profile) => {
            profile.system.blob().into_iter().map(|blob| blob.digest).collect()
        }
        SessionEvent::ModelDone(done) => {
            let beside = done.blocks.iter().flat_map(blobs_of_blocks);
            blob_of(&done.content).into_iter().chain(beside).collect()
        }
        SessionEvent::ModelFailed(failed) => blob_of(&failed.partial).into_iter().collect(),
        SessionEvent::ToolDone(done) => {
            let outcomes = done.outcome.iter();
            outcomes.flat_map(|outcome| blobs_of(&outcome.content, &outcome.media)).collect()
        }
        _ => Vec::new(),
    }
}

/// Compares what a model call was shown with what the fold says it should have been shown.
pub(super) fn replay(state: &SessionState, event: &SessionEvent) -> Option<Result<(), Violation>> {
    if let SessionEvent::CompactionBegun(begun) = event {
        return Some(compaction_call::replay(state, begun));
    }
    if let SessionEvent::ReflectionBegun(begun) = event {
        return Some(reflection_call::replay(state, begun));
    }
    let SessionEvent::ModelBegun(begun) = event else { return None };
    let ModelBegun { turn, call, .. } = begun;
    if state.profile.as_ref().is_some_and(|profile| !is_by_routes(profile, begun)) {
        let text = format!("the route of `{call}` is not what the configuration gives");
        return Some(Err(Violation(text)));
    }
    let known = state.profile.as_ref().zip(state.turn(*turn));
    if known.is_some_and(|(profile, turn)| recorded_request(state, profile, turn, begun).1) {
        return Some(Ok(()));
    }
    let text = format!("the request of `{call}` differs from what the journal gives");
    Some(Err(Violation(text)))
}

/// The request of a call as the journal gives it, what its messages are of, and whether it is the one that was sent.
pub(super) fn recorded_request(
    state: &SessionState,
    profile: &Profile,
    turn: &Turn,
    begun: &ModelBegun,
) -> (Draft, bool) {
    let held = turn.held.as_deref().filter(|held| held.call == begun.call);
    let cap = held.map(|held| held.max_output);
    let by = |attachments| {
        let ModelBegun { dropped_turns, closes_upto, .. } = *begun;
        let recorded = Recorded { dropped_turns, closes_upto, attachments };
        let mut made = draft(state, profile, turn, Some(recorded));
        made.request = capped(judged(made.request, turn, begun.call), cap);
        let is_sent = made.request.digest() == begun.request;
        (made, is_sent)
    };
    // CTX-1: builds differ in how much they leave out; what they show of the rest is the same.
    let (draft, is_sent) = by(AttachmentRule::Blocks);
    if is_sent {
        return (draft, true);
    }
    let (earlier, is_sent) = by(AttachmentRule::Newest);
    if is_sent { (earlier, true) } else { (draft, false) }
}

fn blobs_of_blocks(blocks: &Blocks) -> impl Iterator<Item = Digest> {
    blocks.texts().filter_map(blob_of)
}

fn blobs_of<'a>(text: &'a Text, media: &'a [Media]) -> impl Iterator<Item = Digest> + 'a {
    blob_of(text).into_iter().chain(media.iter().map(|one| one.blob))
}

fn blob_of(text: &Text) -> Option<Digest> {
    match text {
        Text::Blob { digest, .. } => Some(*digest),
        Text::Inline { .. } => None,
    }
}
