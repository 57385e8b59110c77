//! Stores the attachments of messages.

use clawnode_proto::{
    EntityId,
    media::{Content, Media},
};

use super::{client::Sessions, send_error::SendError};
use crate::session::texts::packed_content;

impl Sessions {
    /// Stores content for a message of this session. If the message is refused, the content stays, like
    /// its long texts.
    pub async fn attach(&self, session: EntityId, content: Content) -> Result<Media, SendError> {
        let blob = self.storage().blobs.put(packed_content(session, content.bytes())).await?;
        Ok(content.stored(blob))
    }
}
