//! Purges as the driver of this world makes them: step by step, so that a process may die between any two.

use clawnode_cluster::Record;
use clawnode_kernel::{
    KernelBug,
    archive::{self, snapshot_of},
    core::{position_of, snapshot_blob},
};
use clawnode_proto::{Digest, kernel::SnapshotState};
use clawnode_sim::{StoreReply, World};
use serde_bytes::ByteBuf;

use super::{
    Sim,
    any_machine::{ActivationPlace, MachineMessage},
    ops::STATE_INLINE,
    process::Do,
};

/// How long a step that failed waits, in milliseconds.
const AGAIN: u64 = 500;

impl Sim {
    /// Continues a purge; once it has ended, gives the message for its machine.
    pub(super) fn purging(
        &mut self,
        at: ActivationPlace,
        work: Do,
        reply: StoreReply,
    ) -> Option<MachineMessage> {
        let ActivationPlace { process, entity, counter } = at;
        let next = match (work, reply) {
            (Do::Purge { upto, state }, StoreReply::Records(records))
                if position_of(&records) > upto =>
            {
                // Another process has appended, so the snapshot is refused.
                let state = SnapshotState::Blob { digest: Digest::of(&state) };
                return Some(MachineMessage::Purged { state, before: None });
            }
            (Do::Purge { upto, state }, StoreReply::Records(records))
                if position_of(&records) == upto =>
            {
                let (before, mut past) = (snapshot_blob(&records), past_of(&self.world, &records));
                if self.planted == KernelBug::PurgeKeepsArchive {
                    past.pop();
                }
                if state.len() > STATE_INLINE {
                    Do::PurgeState { before, state, past }
                } else {
                    let state = SnapshotState::Inline { bytes: ByteBuf::from(state.to_vec()) };
                    Do::PurgePast { before, state, past }
                }
            }
            (Do::PurgeState { before, past, .. }, StoreReply::Stored(digest)) => {
                Do::PurgePast { before, state: SnapshotState::Blob { digest }, past }
            }
            (Do::PurgePast { before, state, mut past }, StoreReply::Done | StoreReply::Tail(_)) => {
                past.pop();
                if past.is_empty() {
                    return Some(MachineMessage::Purged { state, before });
                }
                Do::PurgePast { before, state, past }
            }
            (again, _) => {
                self.work_after(process, AGAIN, entity, counter, again);
                return None;
            }
        };
        self.work(process, entity, counter, next);
        None
    }
}

/// The archives behind these records, the newest first.
fn past_of<D>(world: &World<D>, records: &[Record]) -> Vec<Digest> {
    let (mut past, mut next) = (Vec::new(), snapshot_of(records));
    while let Some(digest) = next.take().and_then(|snapshot| snapshot.archive) {
        past.push(digest);
        let Some(segment) = world.blob(digest).and_then(|blob| archive::unpack(&blob).ok()) else {
            break;
        };
        past.extend(snapshot_blob(&segment));
        next = snapshot_of(&segment);
    }
    past
}
