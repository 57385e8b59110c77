//! The `reset` of a turn's events: takes back the part of a reply that a reader was shown and that is void.
//!
//! [`ShownReply`] counts the text that a reader got. It knows so whether there is anything to take back, and at
//! the end of a turn whether any text is missing.

use clawnode_proto::{
    FrameKey,
    turn::{ReplyReset, TurnBody, TurnEvent},
};

/// What a reader was shown of the reply of a turn.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::session) struct ShownReply {
    /// Bytes of text that earlier calls showed.
    text_before: u64,
    /// Bytes of text that the current call showed.
    text_of_call: u64,
    /// Whether the reader got thoughts of the current call.
    has_thought: bool,
    /// Whether text may be missing, so that the reader needs the journal.
    holes: bool,
}

// === impl ShownReply ===

impl ShownReply {
    /// The reader got this many bytes of text of earlier calls. `holes`: it may have got more.
    pub(in crate::session) const fn new(text_before: u64, holes: bool) -> Self {
        Self { text_before, text_of_call: 0, has_thought: false, holes }
    }

    /// Whether text may be missing.
    pub(in crate::session) const fn has_holes(&self) -> bool {
        self.holes
    }

    /// Something may have been left out, if `misses`.
    pub(in crate::session) const fn misses(&mut self, misses: bool) {
        self.holes |= misses;
    }

    /// Another call follows; what this one showed stays.
    pub(in crate::session) const fn next_call(&mut self) {
        self.text_before += self.text_of_call;
        self.text_of_call = 0;
        self.has_thought = false;
    }

    /// The current call shows text.
    pub(in crate::session) const fn text(&mut self, delta: &str) {
        self.text_of_call += delta.len() as u64;
    }

    /// The current call shows a thought.
    pub(in crate::session) const fn thought(&mut self) {
        self.has_thought = true;
    }

    /// The turn is over, and this many bytes are its text.
    pub(in crate::session) const fn ends(&mut self, text_bytes: u64) {
        self.holes |= text_bytes != self.text_before + self.text_of_call;
    }

    /// The text of the current call so far is void, or that of all calls if `whole`. If the reader got any of
    /// it, it gets no more until the end, when the text of earlier calls is missing.
    pub(in crate::session) fn void(&mut self, cursor: FrameKey, whole: bool) -> Option<TurnEvent> {
        if whole {
            self.text_of_call += std::mem::take(&mut self.text_before);
        }
        let has_thought = std::mem::take(&mut self.has_thought);
        let shown = std::mem::take(&mut self.text_of_call) > 0 || self.holes || has_thought;
        shown.then(|| {
            (self.text_before, self.holes) = (0, false);
            reset_to(cursor, String::new())
        })
    }
}

/// Takes back all that was shown of a reply, and shows this text in its place.
pub(in crate::session) fn reset_to(cursor: FrameKey, text: String) -> TurnEvent {
    TurnEvent::at(cursor, TurnBody::Reset(ReplyReset { text }))
}
