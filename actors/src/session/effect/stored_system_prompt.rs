//! Long system prompts: each session has those of its configurations in the blob store.
//!
//! A prompt is stored before the append that names it. On crash between the two: a blob that no event names. The next
//! call with the same prompt names it. If there is none, a deletion does not find it, as with the text of a reply.

use std::time::Duration;

use clawnode_kernel::driver::Port;
use clawnode_proto::{
    AgentName, EntityId,
    llm::{ModelFailure, Text},
};
use tokio::time::timeout;
use tracing::warn;

use super::{recall_search::GrantReply, session_runner::SessionRunner};
use crate::{
    agent::Grant,
    session::{
        texts::{packed_text, stored_blob},
        turn::{
            context::{model_input::Assembled, system_prompt::whole_prompt},
            effect::{Effect, WantedPrompt},
            kind::Session,
        },
    },
};

/// How long a store is waited for. Until the answer, the session appends nothing, and the call keeps its place.
const STORED_WITHIN: Duration = Duration::from_secs(1);

// === impl SessionRunner ===

impl SessionRunner {
    /// Puts a prompt into the blob store, unless the journal says that it is there. If the store refuses it, or does not
    /// answer within a second, the configuration has it in place.
    pub(super) fn store_prompt(
        &self,
        session: EntityId,
        effect: Effect,
        wanted: WantedPrompt,
        port: &Port<Session>,
    ) -> Option<Grant> {
        let (blob, content) = packed_text(session, &wanted.text);
        if wanted.known == Some(blob) {
            return Some(wanted.grant.with_prompt(wanted.text, Some(blob)));
        }
        let reply = GrantReply::new(effect, port.clone());
        let storage = self.parts.storage.clone();
        // Detached: it ends by its time.
        drop(tokio::spawn(async move {
            let why = match timeout(STORED_WITHIN, stored_blob(&storage, content)).await {
                Ok(Ok(_)) => None,
                Ok(Err(failure)) => Some(failure.to_string()),
                Err(_late) => Some("the blob store did not answer in time".to_owned()),
            };
            if let Some(why) = &why {
                warn!(%session, why, "a system prompt is journaled whole: it cannot be stored");
            }
            reply.granted(wanted.grant.with_prompt(wanted.text, why.is_none().then_some(blob)));
        }));
        None
    }

    /// The whole system prompt of a request. What its agent has now is not read from the blob store.
    pub(in crate::session) async fn system_prompt(
        &self,
        session: EntityId,
        agent: &AgentName,
        request: &Assembled,
    ) -> Result<String, ModelFailure> {
        let Some(blob) = request.prompt else { return Ok(request.system.clone()) };
        let options = self.parts.agents.options(agent);
        let known = options
            .into_iter()
            .flat_map(|options| [options.system_with_skills(), options.system])
            .find(|text| text.len() as u64 == blob.bytes && packed_text(session, text).0 == blob);
        let own = match known {
            Some(text) => text,
            None => self.text(&Text::from(blob)).await.map_err(|failure| {
                let message = format!(
                    "the system prompt of agent `{agent}` as it was cannot be read: {}; send the message again, and it \
                     is answered with the prompt that the agent has then",
                    failure.message
                );
                // No provider refused what is attached.
                ModelFailure { message, keeps_attachments: true, ..failure }
            })?,
        };
        Ok(whole_prompt(own, &request.system))
    }
}
