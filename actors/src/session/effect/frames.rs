//! Sends the frames of running turns to clients.
//!
//! `turn::tools::tool_frames` derives the frames of tools from the journal. They come with the job of an effect, and
//! only this module sends them. A job starts after the append that decided it, so no such frame is
//! undone (I5). The text of a call under way and notices about it are provisional.

use bytes::Bytes;
use clawnode_cluster::StoreError;
use clawnode_proto::{EntityId, Frame, Traceparent, codec, feed::EventBody, frame::FrameBatch};
use tracing::debug;

use super::session_runner::SessionRunner;
use crate::session::turn::tools::tool_frames::ToolFrames;

// === impl SessionRunner ===

impl SessionRunner {
    /// Sends clients the recorded events of a turn's tools that this process has not sent yet.
    pub(in crate::session) async fn tell(
        &self,
        entity: EntityId,
        trace: Option<&Traceparent>,
        told: ToolFrames,
    ) {
        let ToolFrames { turn, call: _, begins, frames } = told;
        let first = frames.first().map(|frame| frame.key);
        let frames = self.parts.hub.keep_new(entity, frames);
        if frames.is_empty() {
            return;
        }
        if begins && frames.first().map(|frame| frame.key) == first {
            self.parts.feed.tell(EventBody::TurnStarted { session: entity, turn });
        }
        if let Err(failure) = self.publish(entity, trace, frames).await {
            debug!(%entity, %failure, "cannot publish frames");
        }
    }

    pub(in crate::session) async fn publish(
        &self,
        entity: EntityId,
        trace: Option<&Traceparent>,
        frames: Vec<Frame>,
    ) -> Result<(), StoreError> {
        let bytes = codec::encode(&FrameBatch { frames })
            .map_err(|failure| StoreError::Refused { store: "bus", detail: failure.to_string() })?;
        let subject = self.parts.storage.prefix.frames(entity);
        self.parts.storage.bus.publish(subject, trace.cloned(), Bytes::from(bytes)).await
    }
}
