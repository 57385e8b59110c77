//! What the next model call of a session would reserve, for people who ask why it waits. Pure: it is what the
//! turn itself reserves.

use std::sync::Arc;

use clawnode_budget::holder::{CallNeeds, HolderHandle};
use clawnode_proto::{AgentName, SessionKey, TurnId, llm::ModelRef, session::UserMessage};

use super::super::{context::system_prompt::with_journaled, state::SessionState};
use super::{next_call::next_call, reservation_size};
use crate::{
    agent::{AgentOptions, Grant, Permit},
    llm::profile::CallPrice,
};

/// What the next model call of a session needs of budgets.
#[derive(Clone, Debug)]
pub struct NextNeeds {
    pub session: SessionKey,
    /// Its agent.
    pub agent: AgentName,
    /// The model that is asked.
    pub model: ModelRef,
    /// Whether the price of the model is known.
    pub priced: bool,
    /// Tokens that the request can have at most.
    pub input: u64,
    /// What the call reserves of each limit.
    pub needs: CallNeeds,
}

impl SessionState {
    /// What its next call needs, under this configuration and these accounts. If no turn is open, it is the call
    /// for an empty message. Nothing if the session was never used.
    pub(in crate::session) fn next_needs(
        mut self,
        options: AgentOptions,
        budgets: &HolderHandle,
    ) -> Option<NextNeeds> {
        let session = self.key.clone()?;
        if self.running().is_none() {
            self.begin_turn(TurnId::from_u128(0), UserMessage::text(String::new()), None);
        }
        let begun = self.running()?.with_triggered(&options);
        let turn = &*begun;
        let permit = Permit::outside(turn.lane.unwrap_or(options.lane));
        let grant = Grant { permit: Arc::new(permit), ..Grant::free(options).within(budgets) };
        let grant = with_journaled(session.entity(), self.profile.as_ref(), &grant);
        let call = turn.next_call();
        let (routed, profile) = reservation_size::asked(&self, turn, call, &grant);
        let next = next_call(&self, turn, call, routed, profile);
        let price = grant.options.profiles.call_price(&next.request.model);
        let (input, needs) = reservation_size::expected(&self, turn, &next, &grant);
        Some(NextNeeds {
            agent: session.agent.clone(),
            session,
            model: next.request.model,
            priced: matches!(price, CallPrice::Known(_)),
            input,
            needs,
        })
    }
}
