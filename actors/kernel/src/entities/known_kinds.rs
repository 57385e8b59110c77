//! The kinds whose journals this build can read, whether or not it serves them.

use std::{collections::BTreeMap, fmt, marker::PhantomData, sync::Arc};

use clawnode_proto::{Digest, EntityId, Grammar as _, Input, Kind, Sealed};
use serde_json::Value;

use crate::{Core, Entity, EntityKind, FoldError, LoadedJournal, archive};

/// The table: a kind, and how its journals are read. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct KnownKinds(Arc<BTreeMap<Kind, Arc<dyn KnownKind>>>);

/// A row of the table.
pub(super) trait KnownKind: Send + Sync + fmt::Debug {
    /// A fold of a journal of this kind, with nothing in it.
    fn begin(&self, id: EntityId) -> Box<dyn Fold>;
    /// Whether a replay compares anything.
    fn is_replayed(&self) -> bool;
    /// One of its own events, for people.
    fn event_view(&self, sealed: &Sealed) -> Option<Value>;
    /// What an input says, for people.
    fn input_view(&self, input: &Input) -> Value;
    /// The blobs that an input names.
    fn blobs_of_input(&self, input: &Input) -> Vec<Digest>;
    /// The blobs that one of its own events names.
    fn blobs_of_event(&self, sealed: &Sealed) -> Vec<Digest>;
    /// The blobs of snapshots that were never stored.
    fn leftovers(&self, id: EntityId, loaded: &LoadedJournal) -> Vec<Digest>;
}

/// A journal that is folded, whatever its kind is.
pub(super) trait Fold: Send {
    /// Begins with these records, and with the state of the snapshot that they may begin with.
    fn load(&mut self, loaded: &LoadedJournal) -> Result<(), FoldError>;
    /// Takes one event, compared with what the state says of it; counts it if there was anything to
    /// compare.
    fn play(&mut self, sealed: &Sealed, compared: &mut u64) -> Result<(), FoldError>;
    /// The kernel's part.
    fn core(&self) -> &Core;
}

struct KindRow<K>(PhantomData<fn() -> K>);

/// The kernel's part of a journal whose kind is not known.
struct Headers {
    id: EntityId,
    core: Core,
}

// === impl KnownKinds ===

impl KnownKinds {
    /// Adds a kind.
    #[must_use]
    pub fn with<K: EntityKind>(mut self) -> Self {
        Arc::make_mut(&mut self.0).insert(K::KIND, Arc::new(KindRow::<K>(PhantomData)));
        self
    }

    /// Whether it has this kind.
    pub fn has(&self, kind: Kind) -> bool {
        self.0.contains_key(&kind)
    }

    pub(super) fn get(&self, kind: Kind) -> Option<&dyn KnownKind> {
        self.0.get(&kind).map(AsRef::as_ref)
    }

    /// A fold of a journal of this kind; of the kernel's part alone if the kind is not known.
    pub(super) fn begin(&self, kind: Option<Kind>, id: EntityId) -> Box<dyn Fold> {
        match kind.and_then(|kind| self.get(kind)) {
            Some(known) => known.begin(id),
            None => Box::new(Headers { id, core: Core::default() }),
        }
    }

    /// One of a kind's own events, for people. No two kinds have events of the same name.
    pub(super) fn event_view(&self, sealed: &Sealed) -> Value {
        self.0.values().find_map(|kind| kind.event_view(sealed)).unwrap_or_default()
    }

    /// What an input says, for people; nothing if it is an order, or its kind is not known.
    pub(super) fn input_view(&self, input: &Input) -> Value {
        self.get(input.kind).map(|kind| kind.input_view(input)).unwrap_or_default()
    }
}

// === impl KindRow ===

impl<K: EntityKind> KnownKind for KindRow<K> {
    fn begin(&self, id: EntityId) -> Box<dyn Fold> {
        Box::new(Entity::<K>::unborn(id))
    }

    fn is_replayed(&self) -> bool {
        K::IS_REPLAYED
    }

    fn event_view(&self, sealed: &Sealed) -> Option<Value> {
        Some(sealed.event::<K::Event>().ok()??.view())
    }

    fn input_view(&self, input: &Input) -> Value {
        K::view(input)
    }

    fn blobs_of_input(&self, input: &Input) -> Vec<Digest> {
        K::blobs_of_input(input)
    }

    fn blobs_of_event(&self, sealed: &Sealed) -> Vec<Digest> {
        match sealed.event::<K::Event>() {
            Ok(Some(event)) => K::blobs_of_event(&event),
            Ok(None) | Err(_) => Vec::new(),
        }
    }

    fn leftovers(&self, id: EntityId, loaded: &LoadedJournal) -> Vec<Digest> {
        archive::leftovers::<K>(id, loaded)
    }
}

impl<K> fmt::Debug for KindRow<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Known")
    }
}

impl<F: Fold + ?Sized> Fold for Box<F> {
    fn load(&mut self, loaded: &LoadedJournal) -> Result<(), FoldError> {
        (**self).load(loaded)
    }

    fn play(&mut self, sealed: &Sealed, compared: &mut u64) -> Result<(), FoldError> {
        (**self).play(sealed, compared)
    }

    fn core(&self) -> &Core {
        (**self).core()
    }
}

impl<K: EntityKind> Fold for Entity<K> {
    fn load(&mut self, loaded: &LoadedJournal) -> Result<(), FoldError> {
        *self = Self::of(self.id, loaded)?;
        Ok(())
    }

    fn play(&mut self, sealed: &Sealed, compared: &mut u64) -> Result<(), FoldError> {
        if let Ok(Some(event)) = sealed.event::<K::Event>()
            && let Some(found) = K::replay(&self.state, &event)
        {
            *compared += 1;
            found.map_err(|source| FoldError::violation(self.id, sealed, source))?;
        }
        self.apply(sealed)
    }

    fn core(&self) -> &Core {
        &self.core
    }
}

// === impl Headers ===

impl Fold for Headers {
    fn load(&mut self, loaded: &LoadedJournal) -> Result<(), FoldError> {
        self.core = Core::of(self.id, loaded, &|_| true)?;
        Ok(())
    }

    fn play(&mut self, sealed: &Sealed, _: &mut u64) -> Result<(), FoldError> {
        self.core.apply(self.id, sealed)
    }

    fn core(&self) -> &Core {
        &self.core
    }
}
