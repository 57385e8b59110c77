//! What a session keeps of the choices of its messages: the model, and how much it thinks. Pure.

use clawnode_proto::{
    llm::ModelRef,
    reasoning::Reasoning,
    session::{KeptChoice, UserMessage},
};
use serde::{Deserialize, Serialize};

/// What a session's turns have that choose nothing themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptChoices {
    /// The model, instead of the agent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelRef>,
    /// How much the model thinks, instead of the agent's setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<Reasoning>,
}

// === impl KeptChoices ===

impl KeptChoices {
    /// Nothing is chosen.
    pub(in crate::session::turn) fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Takes what a message chooses for its session.
    pub(in crate::session::turn) fn take(&mut self, message: &UserMessage) {
        for kept in &message.keep {
            match kept {
                KeptChoice::Model => self.model.clone_from(&message.model),
                KeptChoice::Reasoning => self.reasoning = message.sampling.reasoning,
            }
        }
    }
}
