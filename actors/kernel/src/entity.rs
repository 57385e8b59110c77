//! An entity of a kind, folded from its journal: the kernel's part and the kind's.

use clawnode_proto::{
    CodecError, EntityId, Grammar, Input, Kind, Sealed, codec, kernel::KernelEvent,
};

use super::{
    core::{Core, LoadedJournal, Service, SnapshotBody, ends_purge, for_each, kernel_event},
    fold_error::FoldError,
    kind::{EntityKind, Violation},
};

/// An entity of kind `K`, folded.
#[derive(Clone, Debug)]
pub struct Entity<K: EntityKind> {
    pub id: EntityId,
    /// The kernel's part.
    pub core: Core,
    /// The kind's part.
    pub state: K::State,
    /// Which of `K::Event::KINDS` are folded in `state`, a bit each.
    pub(super) folded: u64,
}

// === impl Entity ===

impl<K: EntityKind> Entity<K> {
    /// An entity without any events.
    pub fn unborn(id: EntityId) -> Self {
        let core = Core::default().revived(K::MEMORY);
        Self { id, core, state: K::State::default(), folded: 0 }
    }

    /// Folds a journal.
    pub fn of(id: EntityId, loaded: &LoadedJournal) -> Result<Self, FoldError> {
        Self::of_each(id, loaded, |_, _| ())
    }

    /// Folds a journal, and shows the entity after each event.
    pub fn of_each(
        id: EntityId,
        loaded: &LoadedJournal,
        mut after: impl FnMut(&Self, &Sealed),
    ) -> Result<Self, FoldError> {
        let mut entity = Self::unborn(id);
        for_each(id, loaded, |sealed, snapshot| {
            if let Some(body) = snapshot {
                is_of::<K>(id, body.core.kind)?;
                entity.core = body.core.revived(K::MEMORY);
                for kind in &body.needs {
                    let bit = bit::<K>(kind).ok_or_else(|| FoldError::unknown(id, sealed, kind))?;
                    entity.folded |= bit;
                }
                entity.state = state::<K>(&entity.core, &body.kind)
                    .map_err(|source| FoldError::body(id, sealed, source))?;
            }
            entity.apply(sealed)?;
            after(&entity, sealed);
            Ok(())
        })?;
        Ok(entity)
    }

    /// Whether every body in a sound journal decodes here, which is asked before the entity is claimed.
    pub fn reads(id: EntityId, loaded: &LoadedJournal) -> Result<(), FoldError> {
        for_each(id, loaded, |sealed, snapshot| {
            let unreadable = |source| FoldError::body(id, sealed, source);
            if let Some(body) = snapshot {
                state::<K>(&body.core, &body.kind).map_err(unreadable)?;
            }
            sealed.event::<K::Event>().map(drop).map_err(unreadable)?;
            match kernel_event(id, sealed)? {
                Some(KernelEvent::Accepted(accepted)) => {
                    understood::<K>(id, sealed, &accepted.input)
                }
                _ => Ok(()),
            }
        })
    }

    /// Takes one event.
    pub fn apply(&mut self, sealed: &Sealed) -> Result<(), FoldError> {
        let tail = self.core.follow(self.id, sealed)?;
        let kernel = kernel_event(self.id, sealed)?;
        if let Some(KernelEvent::Born(born)) = &kernel {
            is_of::<K>(self.id, Some(born.kind))?;
        }
        let parked = match kernel {
            Some(KernelEvent::Restored(_)) => std::mem::take(&mut self.core.parked),
            _ => Vec::new(),
        };
        let was_purging = self.core.purging.is_some();
        self.core.fold(self.id, sealed, tail, kernel.as_ref())?;
        let folded = match &kernel {
            Some(KernelEvent::Born(born)) => K::born(&mut self.state, &born.key),
            // An order that came when it was not needed.
            Some(KernelEvent::Accepted(accepted)) if accepted.input.order.is_some() => Ok(()),
            Some(KernelEvent::Accepted(accepted)) => {
                let taken = K::accept(&mut self.state, &sealed.head, &accepted.input);
                if taken.is_err() {
                    understood::<K>(self.id, sealed, &accepted.input)?;
                }
                taken
            }
            Some(KernelEvent::Restored(_)) => {
                for input in &parked {
                    // The input may have been parked because its kind cannot take it: it must not
                    // be parked again.
                    if let Err(refused) = K::accept(&mut self.state, &sealed.head, input) {
                        understood::<K>(self.id, sealed, input)?;
                        tracing::debug!(entity = %self.id, input = %input.id, %refused,
                            "a parked input is left out");
                    }
                }
                Ok(())
            }
            Some(KernelEvent::Emitted(emitted)) => {
                K::emitted(&mut self.state, emitted.turn);
                Ok(())
            }
            Some(KernelEvent::Snapshot(snapshot)) if was_purging && ends_purge(snapshot) => {
                K::purged(&mut self.state);
                Ok(())
            }
            Some(KernelEvent::Deleted(_)) => {
                K::deleted(&mut self.state);
                self.folded = 0;
                Ok(())
            }
            Some(_) => Ok(()),
            None => self.apply_own(sealed)?,
        };
        folded.map_err(|source| FoldError::violation(self.id, sealed, source))
    }

    fn apply_own(&mut self, sealed: &Sealed) -> Result<Result<(), Violation>, FoldError> {
        let decoded = K::Event::decode_body(&sealed.head.kind, &sealed.body)
            .map_err(|source| FoldError::body(self.id, sealed, source))?;
        match decoded {
            Some(event) => {
                if sealed.head.required {
                    self.folded |= bit::<K>(&sealed.head.kind).unwrap_or_default();
                }
                Ok(K::fold(&mut self.state, &sealed.head, &event))
            }
            None if sealed.head.required => {
                Err(FoldError::unknown(self.id, sealed, &sealed.head.kind))
            }
            None => Ok(Ok(())),
        }
    }

    /// The encoded state, as a snapshot keeps it.
    pub fn snapshot(&self) -> Result<Vec<u8>, CodecError> {
        let kind = codec::encode(&self.state)?.into();
        let needs = K::Event::KINDS
            .iter()
            .filter(|kind| bit::<K>(kind).is_some_and(|bit| self.folded & bit != 0))
            .map(|kind| (*kind).to_owned())
            .collect();
        codec::encode(&SnapshotBody { core: self.core.clone(), kind, needs })
    }
}

/// A writer accepts and parks only what it understands; a newer one may understand more.
fn understood<K: EntityKind>(
    entity: EntityId,
    sealed: &Sealed,
    input: &Input,
) -> Result<(), FoldError> {
    if input.order.is_some() || K::understands(input) {
        return Ok(());
    }
    Err(FoldError::Input { entity, n: sealed.head.n, kind: sealed.head.kind.clone() })
}

fn is_of<K: EntityKind>(entity: EntityId, kind: Option<Kind>) -> Result<(), FoldError> {
    match kind {
        Some(kind) if kind != K::KIND => Err(FoldError::Kind { entity, kind }),
        _ => Ok(()),
    }
}

/// The kind's part of a snapshot. A deleted entity of any kind has nothing left.
fn state<K: EntityKind>(core: &Core, encoded: &[u8]) -> Result<K::State, CodecError> {
    match core.service {
        Service::Deleted => Ok(K::State::default()),
        Service::Active | Service::Quarantined { .. } => codec::decode(encoded),
    }
}

/// The bit of one of a kind's own events; kinds beyond the 64th have none and are not named.
fn bit<K: EntityKind>(kind: &str) -> Option<u64> {
    let at = K::Event::KINDS.iter().position(|one| *one == kind)?;
    u32::try_from(at).ok().map(|at| 1_u64.checked_shl(at).unwrap_or_default())
}
