//! About how many tokens a request of a client has.

use clawnode_actors::{agent::Agents, session::turn::count::tokens_alone};
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
    for NewAttachment { history, source } in attachments {
        let AttachmentSource::Content(content) = source else {
            let what = "messages: an uploaded file is of a session, and a count has none";
            return Err(ErrorBody::new(ErrorCode::Unsupported, what).hint("send its content"));
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
