//! What was said in a session, from its events. Pure.

use std::collections::HashMap;

use clawnode_proto::{
    CallId, Sealed, Timestamp, codec,
    kernel::{DELETED, KernelEvent},
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
    /// Whether the session was deleted on the way. What was said before that is left out.
    pub(super) is_deleted: bool,
    /// Of the turn that runs.
    open: Vec<SaidText>,
    /// What models said in it.
    replies: HashMap<CallId, Text>,
}

// === impl SaidReader ===

impl SaidReader {
    /// Takes the next event.
    pub(super) fn take(&mut self, sealed: &Sealed) -> Result<(), FillError> {
        if sealed.head.kind == DELETED {
            *self = Self { is_deleted: true, ..Self::default() };
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
