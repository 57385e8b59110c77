//! The names of the events of all kinds.

use std::collections::BTreeMap;

use clawnode_proto::{Grammar as _, kernel::KernelEvent};

use crate::kinds::{KINDS, SimKind};

/// A heartbeat names kinds of events without the kinds of their entities.
#[test]
fn no_two_kinds_have_events_of_the_same_name() {
    let mut seen: BTreeMap<_, _> =
        KernelEvent::KINDS.iter().map(|name| (*name, "the kernel".to_owned())).collect();
    for SimKind { kind, events, .. } in KINDS {
        for name in events {
            let other = seen.insert(name, kind.to_string());
            assert!(other.is_none(), "`{name}` is of {other:?} and of `{kind}`");
        }
    }
}
