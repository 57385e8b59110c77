//! The names of the events of all kinds.

use std::collections::BTreeMap;

use clawnode_actors::session::Session;
use clawnode_kernel::{EntityKind, counter::Counter};
use clawnode_proto::{Grammar as _, Kind, kernel::KernelEvent};

/// A heartbeat names kinds of events without the kinds of their entities.
#[test]
fn no_two_kinds_have_events_of_the_same_name() {
    fn own<K: EntityKind>() -> (Kind, Vec<&'static str>) {
        (K::KIND, K::Event::KINDS.to_vec())
    }
    let mut seen: BTreeMap<_, _> =
        KernelEvent::KINDS.iter().map(|name| (*name, "the kernel".to_owned())).collect();
    for (kind, names) in [own::<Session>(), own::<Counter>()] {
        for name in names {
            let other = seen.insert(name, kind.to_string());
            assert!(other.is_none(), "`{name}` is of {other:?} and of `{kind}`");
        }
    }
}
