//! The next attempt at a model call, before its money is asked for. Pure.

use std::sync::Arc;

use clawnode_proto::{CallId, session::Profile};

use super::{
    call_cost::{self, NextCall},
    context::assemble,
    hooks,
    routing::Routed,
    state::{SessionState, Turn},
};

/// The next attempt at a call, as it would be made now.
pub(super) fn next_call(
    state: &SessionState,
    turn: &Turn,
    call: CallId,
    routed: Routed,
    profile: Arc<Profile>,
) -> NextCall {
    let mut request = assemble(state, &profile, turn);
    let mut waits_for_hooks = false;
    if call_cost::asks_hooks(&profile) {
        let is_new = state.profile.as_ref() != Some(&*profile);
        match turn.judgement(call, request.digest()).filter(|_| !is_new) {
            Some(judged) => request = hooks::patched(request, &judged.patches),
            None => waits_for_hooks = true,
        }
    }
    let attempt = call_cost::attempt(turn, call);
    let leaves = Vec::new();
    NextCall { call, attempt, routed, profile, request, waits_for_hooks, leaves }
}
