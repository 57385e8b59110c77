//! The next attempt at a model call, before its money is asked for. Pure.
//!
//! A request is a copy of a conversation. What is made to ask for a call's money is kept until the call begins with it,
//! if nothing has changed since.

use std::{collections::BTreeMap, sync::Arc};

use clawnode_proto::{
    CallId, SessionKey, Timestamp, TurnId,
    memory::MemoryTrust,
    recall::{Recalled, RecalledPassage},
    session::Profile,
};

use super::super::{
    context::model_input::assemble,
    hooks,
    state::{SessionState, Turn},
};
use super::{
    first_model::Routed,
    reservation_size::{self, NextCall},
};
use crate::agent::{AgentOptions, Grant};

/// An attempt as it was made to ask for its money, and from what beside the state.
#[derive(Debug)]
pub struct MadeCall {
    next: NextCall,
    options: Arc<AgentOptions>,
    recalled: Option<Arc<Recalled>>,
}

/// The next attempt at a call, as it would be made now.
pub(in crate::session::turn) fn next_call(
    state: &SessionState,
    turn: &Turn,
    call: CallId,
    routed: Routed,
    profile: Arc<Profile>,
) -> NextCall {
    let mut request = assemble(state, &profile, turn);
    let mut waits_for_hooks = false;
    if reservation_size::asks_hooks(&profile) {
        let is_new = state.profile.as_ref() != Some(&*profile);
        match turn.judgement(call, request.digest()).filter(|_| !is_new) {
            Some(judged) => request = hooks::patched(request, &judged.patches),
            None => waits_for_hooks = true,
        }
    }
    let attempt = reservation_size::attempt(turn, call);
    let leaves = Vec::new();
    NextCall { call, attempt, routed, profile, request, waits_for_hooks, leaves }
}

/// How many of the oldest turns the next attempt at a call leaves out, if so many bytes are recalled for it. Fewer may be:
/// what is recalled of a turn that is shown is there twice, and what is not recalled of one that is left out is lost.
pub(in crate::session::turn) fn left_out(
    state: &SessionState,
    turn: &Turn,
    call: CallId,
    grant: &Grant,
    recalled: usize,
) -> u32 {
    let mut begun = turn.begun_with(grant).into_owned();
    begun.recalled =
        state.key.clone().map(|session| Box::new(of_bytes(turn.id, session, recalled)));
    let (_, profile) = reservation_size::asked(state, &begun, call, grant);
    assemble(state, &profile, &begun).dropped_turns
}

/// What a turn recalls, with a text of so many bytes.
fn of_bytes(turn: TurnId, session: SessionKey, bytes: usize) -> Recalled {
    let (trust, at, text) = (MemoryTrust::Person, Timestamp(0), "x".repeat(bytes));
    let passages = vec![RecalledPassage { session, event: 0, part: 0, trust, at, text }];
    let [standing, points] = [const { Vec::new() }; 2];
    let (store, upto, degraded) = (String::new(), BTreeMap::new(), None);
    Recalled { turn, standing, points, passages, store, upto, degraded }
}

/// The next attempt at a call. It is not made again if it was made of this state, and would be asked alike.
pub(in crate::session::turn) fn made_or_next(
    state: &SessionState,
    turn: &Turn,
    call: CallId,
    routed: Routed,
    profile: Arc<Profile>,
    grant: &Grant,
    made: Option<MadeCall>,
) -> NextCall {
    match made.and_then(|made| made.under(grant, call, &routed, &profile)) {
        Some(known) => {
            debug_assert!(known == next_call(state, turn, call, routed, profile), "CTX-1");
            known
        }
        None => next_call(state, turn, call, routed, profile),
    }
}

// === impl MadeCall ===

impl MadeCall {
    /// Made under a grant.
    pub(in crate::session::turn) fn of(next: NextCall, grant: &Grant) -> Self {
        let (options, recalled) = (Arc::clone(&grant.options), grant.recalled.clone());
        Self { next, options, recalled }
    }

    /// The attempt, if the same follows from this grant. The profile is compared, too: a model's real window is learnt
    /// from calls of other sessions.
    fn under(
        self,
        grant: &Grant,
        call: CallId,
        routed: &Routed,
        profile: &Arc<Profile>,
    ) -> Option<NextCall> {
        let Self { next, options, recalled } = self;
        let is_alike = Arc::ptr_eq(&options, &grant.options)
            && recalled.as_ref().map(Arc::as_ptr) == grant.recalled.as_ref().map(Arc::as_ptr)
            && next.call == call
            && next.routed == *routed
            && (Arc::ptr_eq(&next.profile, profile) || next.profile == *profile);
        is_alike.then_some(next)
    }
}
