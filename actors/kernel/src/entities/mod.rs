//! Looking at entities of every kind: list and count them, verify their journals, see what is parked,
//! give orders about those out of service, erase what one left behind.
//!
//! [`Entities`] is the entry. It reads journals and writes orders into inboxes; it appends nothing. What it
//! needs of a kind, it finds in [`KnownKinds`]. The journal of a kind that is not in that table is checked
//! as far as its hashes and the kernel's own events go.

mod chain;
mod erase;
mod error;
mod handle;
mod journal_view;
mod known_kinds;
mod quarantine;
mod verify;

pub use error::{EntityError, EntityName};
pub use handle::{Entities, Looked};
pub use known_kinds::KnownKinds;
