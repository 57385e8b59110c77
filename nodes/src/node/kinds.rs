//! The kinds of entities that this build has: a new kind adds a row to both tables.

use std::sync::Arc;

use clawnode_actors::session::{Session, SessionRunner};
use clawnode_cluster::{Clock, Storage};
use clawnode_kernel::{Entities, KnownKinds, MachineOptions, driver::Kinds};

/// The entities in these stores, of every kind; the journals of those named here can be folded.
pub fn entities(storage: Storage, clock: Arc<dyn Clock>) -> Entities {
    Entities::new(storage, clock, KnownKinds::default().with::<Session>())
}

/// What a worker serves.
pub fn served(sessions: SessionRunner, machine: MachineOptions) -> Kinds {
    Kinds::default().with::<Session>(Arc::new(sessions), machine)
}
