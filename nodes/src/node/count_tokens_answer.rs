//! About how many tokens a request of a client has.

use clawnode_actors::{agent::Agents, session::turn::context::count_tokens::tokens_alone};
use clawnode_gateway::{AttachmentSource, NewAttachment};
use clawnode_proto::{AgentName, Digest, ErrorBody, ErrorCode, session::UserMessage};

use super::client_tools;

/// Counts a message and what is attached to it, which is not stored.
pub(super) fn count(
    agents: &Agents,
    agent: &AgentName,
    mut message: UserMessage,
    attachments: Vec<NewAttachment>,
) -> Result<u64, ErrorBody> {
    let profile = agents
        .profile(agent)
        .map_err(|unknown| ErrorBody::new(ErrorCode::NotFound, unknown.to_string()))?;
    client_tools::check(agents, agent, &message.tools, &message.sampling)?;
    for NewAttachment { history, source, .. } in attachments {
        let unsupported =
            |what: &str| Err(ErrorBody::new(ErrorCode::Unsupported, what).hint("send its content"));
        let content = match source {
            AttachmentSource::Content(content) => content,
            AttachmentSource::File(_) => {
                return unsupported(
                    "messages: an uploaded file is of a session, and a count has none",
                );
            }
            AttachmentSource::Remote(_) => {
                return unsupported("messages: nothing is fetched from URLs to count tokens");
            }
        };
        // Only its kind and its size count.
        let media = content.stored(Digest::ZERO);
        match history.and_then(|at| message.history.get_mut(at)) {
            Some(earlier) => earlier.attachments.push(media),
            None => message.attachments.push(media),
        }
    }
    Ok(tokens_alone(&profile, message))
}
