//! The system prompt of a request: the agent's, which may be in the blob store, then the turn's. Pure.

use clawnode_proto::{EntityId, llm::TextBlob, session::Profile};

use super::token_estimate::BYTES_PER_TOKEN;
use crate::{agent::Grant, session::texts::packed_text};

/// What is between the agent's system prompt and the turn's.
const PROMPT_SEAM: &str = "\n\n";

/// The system prompt: the agent's, if it is in place, then what the turn adds.
pub(super) fn system_of(profile: &Profile, more: Option<&str>) -> String {
    let own = profile.system.inline();
    match more {
        Some(more) if own.is_empty() => more.to_owned(),
        Some(more) => [own, PROMPT_SEAM, more].concat(),
        None => own.to_owned(),
    }
}

/// The bytes of a system prompt of which a part may be in the blob store.
pub(super) fn prompt_bytes(prompt: Option<TextBlob>, system: &str) -> u64 {
    let own = system.len() as u64;
    match prompt {
        Some(prompt) if system.is_empty() => prompt.bytes,
        Some(prompt) => prompt.bytes.saturating_add(PROMPT_SEAM.len() as u64 + own),
        None => own,
    }
}

/// A system prompt with the text of the part that was in the blob store.
pub(in crate::session) fn whole_prompt(prompt: String, system: &str) -> String {
    if system.is_empty() { prompt } else { [prompt.as_str(), PROMPT_SEAM, system].concat() }
}

/// A grant for an estimate: it knows where the session has the agent's system prompt, if the journaled configuration
/// names that.
pub(in crate::session::turn) fn with_journaled(
    session: EntityId,
    journaled: Option<&Profile>,
    grant: &Grant,
) -> Grant {
    let text = grant.profile.system.inline();
    let named = journaled.and_then(|profile| profile.system.blob());
    let Some(named) = named else { return grant.clone() };
    if named.bytes == text.len() as u64 && packed_text(session, text).0 == named {
        return grant.clone().with_prompt(text.to_owned(), Some(named));
    }
    grant.clone()
}

/// The tokens of the system text, which comes before a conversation, with what a turn adds.
pub(in crate::session::turn) fn tokens_of_system(system: &str, more: Option<&str>) -> u64 {
    (system.len() + more.map_or(0, str::len)) as u64 / BYTES_PER_TOKEN
}
