//! What a summary leaves of the limits: the first call of its own turn has to have room beside it. Pure.
//!
//! The call comes after the summary, or after the failure of one. Both of its requests are made here, and count as they
//! would be reserved for. A summary for which there is no room beside them is not made (COMP-1).

use clawnode_proto::{TurnId, limits::SUMMARY_CHARS, llm::ModelRef};

use super::super::{
    context::system_prompt::with_journaled,
    memory::recall_for_turn,
    model_call::next_call::next_call,
    model_call::reservation_size,
    state::{SessionState, Turn},
};
use crate::agent::{CallTerms, Grant};

/// Bytes that this program writes around what was recalled and around a summary, and what the messages count, at most.
const AROUND_TEXTS: u64 = 1_024;
/// Bytes of a character at most.
const CHAR_BYTES: u64 = 4;

/// What a summary up to this turn has to leave for the first call of the running turn. Nothing if no limit holds.
pub(super) fn left_for_turn(
    state: &SessionState,
    turn: &Turn,
    grant: &Grant,
    upto: TurnId,
    by: &ModelRef,
) -> Vec<CallTerms> {
    if !reservation_size::is_limited(state, grant) {
        return Vec::new();
    }
    let grant = &match &state.key {
        Some(session) => with_journaled(session.entity(), state.profile.as_ref(), grant),
        None => grant.clone(),
    };
    // Without a summary: only if limits of the turn and the session allow that call. Else a summary costs it nothing.
    let without = first_call(state, turn, grant, 0, false);
    let mut summarized = state.clone();
    // The text is not known yet. An empty one leaves room for most turns, and its bytes are counted beside them.
    let text = (SUMMARY_CHARS as u64).saturating_mul(CHAR_BYTES);
    let with = match summarized.summarize(upto, String::new(), by.clone()) {
        Ok(()) => first_call(&summarized, turn, grant, text, true),
        // It would not be taken either.
        Err(_) => None,
    };
    without.into_iter().chain(with).collect()
}

fn first_call(
    state: &SessionState,
    turn: &Turn,
    grant: &Grant,
    text: u64,
    is_sure: bool,
) -> Option<CallTerms> {
    let begun = turn.begun_with(grant);
    let call = turn.next_call();
    let (routed, profile) = reservation_size::asked(state, &begun, call, grant);
    let next = next_call(state, &begun, call, routed, profile);
    // A store is searched with the call itself, after the summary.
    let recalled =
        recall_for_turn::ask(state, turn, call, grant, |_| 0).map_or(0, |ask| ask.room as u64);
    let more = text.saturating_add(recalled).saturating_add(AROUND_TEXTS);
    reservation_size::left_for(state, &begun, &next, grant, more, is_sure)
}
