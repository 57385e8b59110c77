//! What was said in a session, from its events. Pure.

use std::collections::HashMap;

use clawnode_proto::{
    CallId, Sealed, Timestamp, codec,
    kernel::{DELETED, KernelEvent, SNAPSHOT},
    llm::Text,
    memory::MemoryTrust,
    session::{SessionEvent, SessionInput},
};

use super::error::FillError;

/// One message.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SaidText {
    pub(super) event: u64,
    pub(super) trust: MemoryTrust,
    pub(super) at: Timestamp,
    pub(super) text: Text,
}

/// Reads events one after another. What a turn said counts when the turn has ended.
#[derive(Debug, Default)]
pub(super) struct SaidReader {
    /// Of turns that have ended.
    pub(super) said: Vec<SaidText>,
    /// The event that ended the last of them; 0 if there was none.
    pub(super) upto: u64,
    /// The event of the last deletion on the way; 0 if there was none. What was said before it is left out.
    pub(super) deleted_at: u64,
    /// Of the turn that runs.
    open: Vec<SaidText>,
    /// What models said in it.
    replies: HashMap<CallId, Text>,
}

/// Whether a session is deleted by this event. A snapshot without an archive takes the place of its whole journal then;
/// `deleted` answers inputs that come later.
pub(super) fn is_deletion(sealed: &Sealed) -> Result<bool, FillError> {
    match sealed.head.kind.as_str() {
        DELETED => Ok(true),
        SNAPSHOT => {
            let event = sealed.event::<KernelEvent>()?;
            Ok(matches!(event, Some(KernelEvent::Snapshot(snapshot)) if snapshot.archive.is_none()))
        }
        _ => Ok(false),
    }
}

// === impl SaidReader ===

impl SaidReader {
    /// Takes the next event.
    pub(super) fn take(&mut self, sealed: &Sealed) -> Result<(), FillError> {
        if is_deletion(sealed)? {
            *self = Self { deleted_at: sealed.head.n.0, ..Self::default() };
            return Ok(());
        }
        match sealed.event::<SessionEvent>()? {
            Some(SessionEvent::ModelDone(done)) => {
                self.replies.insert(done.call, done.content);
            }
            Some(SessionEvent::Reply(reply)) => {
                let text = self.replies.remove(&reply.call);
                self.says(sealed, MemoryTrust::Agent, text);
            }
            Some(SessionEvent::TurnDone(_)) => {
                self.said.append(&mut self.open);
                self.replies.clear();
                self.upto = sealed.head.n.0;
            }
            Some(_) => {}
            None => {
                if let Some(KernelEvent::Accepted(accepted)) = sealed.event()?
                    && let Ok(SessionInput::UserMessage(message) | SessionInput::Steer(message)) =
                        codec::decode(&accepted.input.body)
                {
                    self.says(sealed, MemoryTrust::Person, Some(message.content));
                }
            }
        }
        Ok(())
    }

    fn says(&mut self, sealed: &Sealed, trust: MemoryTrust, text: Option<Text>) {
        let head = &sealed.head;
        let said = text.map(|text| SaidText { event: head.n.0, trust, at: head.ts, text });
        self.open.extend(said.filter(SaidText::has_words));
    }
}

// === impl SaidText ===

impl SaidText {
    fn has_words(&self) -> bool {
        match &self.text {
            Text::Inline { text } => !text.trim().is_empty(),
            Text::Blob { .. } => true,
        }
    }
}
