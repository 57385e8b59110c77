//! What clients attach to messages, on its way into a session.

use clawnode_proto::{
    EntityId,
    media::{Content, Media},
};

use super::{client::Sessions, send_error::SendError};
use crate::session::texts::packed_content;

impl Sessions {
    /// Stores content for a message of this session. Content that no message comes to name stays, as a
    /// text does that was stored for a message which was refused.
    pub async fn attach(&self, session: EntityId, content: Content) -> Result<Media, SendError> {
        let blob = self.storage().blobs.put(packed_content(session, content.bytes())).await?;
        Ok(content.stored(blob))
    }
}
