//! What the answer to an append means: the one interpreter.
//!
//! Only these are conclusive: an acknowledgement, the own event read back, and a foreign event
//! directly after the expected position (also one whose record replaced all before it). Everything
//! else, *absent* above all, proves nothing: the answer may be lost, the read stale, and the record
//! still under way. Then the same bytes are sent again with the same expectation.

use clawnode_proto::{EventId, Position, event::decode_record};

use crate::{AppendAnswer, Record};

/// What to do after a try at an append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AppendVerdict {
    /// It is in the journal, here. Fold it.
    Stored(Position),
    /// Another process owns the entity now.
    Fenced,
    /// Read the records after the expected position, and ask [`of_read_back`].
    ReadBack,
    /// Nothing is known: send the same bytes again.
    Resend,
    /// The append itself is wrong; sending it again cannot help.
    Defect(String),
}

/// The meaning of one answer by itself.
pub fn of_answer(answer: &AppendAnswer) -> AppendVerdict {
    match answer {
        AppendAnswer::Stored(position) => AppendVerdict::Stored(*position),
        AppendAnswer::Refused => AppendVerdict::ReadBack,
        AppendAnswer::Unknown(_) => AppendVerdict::Resend,
        AppendAnswer::Defect(error) => AppendVerdict::Defect(error.to_string()),
    }
}

/// What the records after the expected position show about a refused append; `own` is the id of its
/// first event.
pub fn of_read_back(own: EventId, after_expected: &[Record]) -> AppendVerdict {
    let Some(first) = after_expected.first() else {
        // Refused, but nothing there: this read is older than the refusal.
        return AppendVerdict::Resend;
    };
    match decode_record(&first.bytes) {
        Ok(events) if events.first().is_some_and(|event| event.head.eid == own) => {
            match after_expected.get(1) {
                // It is ours, and another process has appended after it: the new owner acts on our
                // event.
                Some(_) => AppendVerdict::Fenced,
                None => AppendVerdict::Stored(first.position),
            }
        }
        Ok(_) => AppendVerdict::Fenced,
        Err(error) => AppendVerdict::Defect(error.to_string()),
    }
}
