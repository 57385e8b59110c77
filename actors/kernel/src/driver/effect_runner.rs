//! What performs the effects of a kind.

use std::{fmt, pin::Pin};

use clawnode_proto::{Digest, EntityId, Epoch, Input, InputId, ProcessId};
use tokio_util::sync::CancellationToken;

use super::{Performing, Port};
use crate::{ActivationEnd, EntityKind};

/// Runs the effects of a kind. Implementations hold what effects need.
pub trait EffectRunner<K: EntityKind>: Send + Sync + fmt::Debug + 'static {
    /// Asks for a grant, which is returned if there is one at hand. Otherwise the answer comes
    /// through the port, soon: `granted`, or `deferred` with `granted` later, or `refused`. If the
    /// question is lost, the port hears `forgotten`, and the machine asks again.
    fn acquire(
        &self,
        entity: EntityId,
        effect: K::Effect,
        want: K::Want,
        port: &Port<K>,
    ) -> Option<K::Grant>;

    /// The answer to a question of [`Self::acquire`] is not wanted any more.
    fn released(&self, _entity: EntityId, _effect: &K::Effect) {}

    /// Runs an effect to its end, and reports the end through the port. When `cancelled` fires, it
    /// ends soon, with what there is.
    fn run(
        &self,
        entity: EntityId,
        effect: K::Effect,
        job: K::Job,
        port: Port<K>,
        cancelled: CancellationToken,
    ) -> Performing;

    /// Removes the blobs of an entity that is to be deleted until they are gone, as far as its
    /// journal can be read, and those of the inputs that go with it. It keeps the state of the
    /// snapshot that the entity loads from, which it names.
    fn erase(
        &self,
        entity: EntityId,
        dropped: Vec<Input>,
    ) -> Pin<Box<dyn Future<Output = Option<Digest>> + Send>>;

    /// The entity was claimed, and another process had it before.
    fn claimed(&self, entity: EntityId, from: ProcessId, epoch: Epoch);

    /// The entity left memory; `waiting` are inputs that no actor will answer for now, and why.
    fn left(&self, entity: EntityId, waiting: &[InputId], stop: &ActivationEnd);
}
