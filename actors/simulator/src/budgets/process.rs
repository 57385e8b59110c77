//! What a process has for its holder.

use clawnode_budget::holder::{Holder, HolderOptions};
use clawnode_kernel::KernelBug;
use clawnode_proto::ProcessId;

use super::sessions::HoldEnds;

/// The holder of a process, with the number of its last input for an account.
#[derive(Debug)]
pub(crate) struct ProcessHolder {
    pub(super) holder: Holder,
    pub(super) sent: u64,
    /// How the reservations of its sessions' calls have ended.
    pub(super) ends: HoldEnds,
}

impl ProcessHolder {
    pub(crate) fn new(process: ProcessId, planted: KernelBug) -> Self {
        let mut holder = Holder::new(process, HolderOptions::default());
        holder.planted = planted;
        Self { holder, sent: 0, ends: HoldEnds::default() }
    }
}
