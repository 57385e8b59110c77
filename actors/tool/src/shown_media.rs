//! Pictures and other content that a run shows to the model besides its text.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use clawnode_proto::{limits::ATTACHMENTS, media::Content};

/// Takes what one run shows; by default nothing, for callers that can use text alone. Cheap to clone.
#[derive(Clone, Default)]
pub struct ShownMedia(Option<Arc<Mutex<Vec<Content>>>>);

// === impl ShownMedia ===

impl ShownMedia {
    /// A file whose content is read at the end of the run.
    pub fn kept() -> Self {
        Self(Some(Arc::default()))
    }

    /// Shows content, if it is wanted and there is room for it; else it says `false`.
    pub fn show(&self, content: Content) -> bool {
        let Some(shown) = &self.0 else { return false };
        let mut shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = shown.len() < ATTACHMENTS;
        if has_room {
            shown.push(content);
        }
        has_room
    }

    /// What was shown since it was last taken.
    pub fn take(&self) -> Vec<Content> {
        let Some(shown) = &self.0 else { return Vec::new() };
        std::mem::take(&mut *shown.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl PartialEq for ShownMedia {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }
}

impl fmt::Debug for ShownMedia {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ShownMedia({})", if self.0.is_some() { "kept" } else { "unwanted" })
    }
}
