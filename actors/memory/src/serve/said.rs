//! What was said in a session, from its events. Pure.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use clawnode_kernel::recent::RecentEntities;
use clawnode_proto::{
    CallId, EntityId, Position, Sealed, Timestamp, codec,
    kernel::{DELETED, KernelEvent, SNAPSHOT},
    llm::Text,
    memory::MemoryTrust,
    session::{SessionEvent, SessionInput},
};

use super::{error::FillError, lacking_points::DocumentMark};
use crate::store::{Document, DocumentId};

/// Sessions whose passages are remembered, up to twice as many.
const SAID_SESSIONS: usize = 1_024;
/// Passages that are remembered of all of them. With more, what is remembered is forgotten.
const SAID_PASSAGES: usize = 262_144;

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

/// What a journal says of the passages of a session.
#[derive(Clone, Debug, Default)]
pub(super) struct SaidTruth {
    /// The event up to which the journal was read: the end of a turn, or of a deletion.
    pub(super) upto: u64,
    /// All later events are in records behind this one.
    pub(super) position: Position,
    marks: BTreeMap<DocumentId, DocumentMark>,
}

/// What journals say of the passages of sessions that were searched lately.
#[derive(Debug)]
pub(super) struct SaidTruths {
    recent: RecentEntities<Arc<SaidTruth>>,
    /// How many passages were remembered since it was empty.
    passages: usize,
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

// === impl SaidTruth ===

impl SaidTruth {
    /// Whether the journal says this.
    pub(super) fn has(&self, document: &Document) -> bool {
        self.marks.get(&document.id) == Some(&DocumentMark::of(document))
    }

    /// Whether a passage of this id was said, whatever it says.
    pub(super) fn knows(&self, id: DocumentId) -> bool {
        self.marks.contains_key(&id)
    }

    /// These passages were said up to an event, and before them all that is known, or nothing after a deletion. All later
    /// events are in records behind `position`.
    pub(super) fn adds(
        &mut self,
        upto: u64,
        position: Position,
        begins_again: bool,
        passages: &[Document],
    ) {
        if begins_again {
            self.marks.clear();
        }
        (self.upto, self.position) = (upto, position);
        self.marks.extend(passages.iter().map(|passage| (passage.id, DocumentMark::of(passage))));
    }
}

// === impl SaidTruths ===

impl SaidTruths {
    pub(super) fn new() -> Self {
        Self { recent: RecentEntities::new(SAID_SESSIONS), passages: 0 }
    }

    /// What is remembered of a session.
    pub(super) fn of(&mut self, session: EntityId) -> Arc<SaidTruth> {
        let Some(known) = self.recent.take(session) else { return Arc::default() };
        self.recent.put(session, Arc::clone(&known));
        known
    }

    /// Remembers this of a session, of which `before` was remembered.
    pub(super) fn put(&mut self, session: EntityId, before: &SaidTruth, said: Arc<SaidTruth>) {
        let new = said.marks.len().saturating_sub(before.marks.len());
        self.passages = self.passages.saturating_add(new);
        if self.passages > SAID_PASSAGES {
            self.recent.clear();
            self.passages = said.marks.len();
        }
        // It is in one place only.
        self.recent.take(session);
        self.recent.put(session, said);
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
