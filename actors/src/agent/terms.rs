//! What a model call may cost, and what is reserved for that.

use std::sync::Arc;

use clawnode_budget::holder::CallHold;
use clawnode_proto::{Attempt, CallId, llm::ModelRef, model::ModelPrice};

/// The most that a model call can use, and what that costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallTerms {
    pub call: CallId,
    /// Which try at it.
    pub attempt: Attempt,
    /// How many messages wait and join its request.
    pub joining: usize,
    /// The model that is asked.
    pub model: ModelRef,
    /// What its tokens cost.
    pub price: ModelPrice,
    /// Tokens that the request can have at most.
    pub input: u64,
    /// Tokens of thoughts beside the cap on the reply.
    pub thoughts: u64,
    /// The cap on output that the call should have, with its thoughts.
    pub output: u64,
    /// With how much of that it is of use.
    pub least_output: u64,
}

/// What a model call has reserved, to be settled when it ends.
#[derive(Clone, Debug)]
pub struct CallBill {
    /// What its accounts hold for it; absent if only its turn or session is limited.
    pub hold: Option<Arc<CallHold>>,
    /// What its tokens cost.
    pub price: ModelPrice,
    /// Tokens that its request can have at most.
    pub input: u64,
    /// Tokens that the model can write at most, thoughts included.
    pub max_output: u64,
}
