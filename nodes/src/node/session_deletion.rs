//! Deletes a session: stores the request, and waits until its journal has the deletion.

use std::time::Duration;

use clawnode_actors::session::{SendError, Sessions};
use clawnode_gateway::SessionRef;
use clawnode_kernel::EntityError;
use clawnode_proto::{ErrorBody, ErrorCode, IdempotencyKey};

use super::backend::named;

/// How long a deletion may take before the client gets an answer to ask again.
const DELETION: Duration = Duration::from_secs(30);
/// How often a deletion is looked for.
const LOOK: Duration = Duration::from_millis(20);

/// Answers `sessions.delete`; returns once its tombstone is stored.
pub(super) async fn delete(sessions: &Sessions, session: &SessionRef) -> Result<(), ErrorBody> {
    // A session out of service takes no message, so this is an order to the kernel.
    match sessions.discard(session.id).await {
        Ok(()) => return Ok(()),
        Err(SendError::Entity(failure)) if matches!(*failure, EntityError::InService(_)) => {}
        Err(failure) => return Err(named(session, failure)),
    }
    let before = sessions.read(session.id).await?;
    if before.core.key.is_none() {
        return Err(named(session, SendError::NotFound { session: session.id.to_string() }));
    }
    let key = idempotency_key("delete", &before.core.tail.hash)?;
    sessions.delete(session.id, key).await?;
    let gone = async {
        loop {
            match sessions.read(session.id).await {
                Ok(entity) if entity.core.key.is_none() => return Ok(()),
                Ok(_) => tokio::time::sleep(LOOK).await,
                Err(failure) => return Err(ErrorBody::from(failure)),
            }
        }
    };
    tokio::time::timeout(DELETION, gone).await.unwrap_or_else(|_elapsed| {
        Err(ErrorBody::new(
            ErrorCode::Unavailable,
            "the deletion is accepted but not complete yet".to_owned(),
        )
        .hint("check again with `clawnode sessions list`"))
    })
}

/// A name for what is asked for only once of something.
pub(super) fn idempotency_key(
    what: &str,
    subject: &dyn std::fmt::Display,
) -> Result<IdempotencyKey, ErrorBody> {
    format!("{what}:{subject}")
        .parse()
        .map_err(|error| ErrorBody::new(ErrorCode::Internal, format!("{error}")))
}
