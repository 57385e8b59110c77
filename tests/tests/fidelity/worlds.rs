//! Worlds, and runtimes for them and for real stores.

use std::future::Future;

use clawnode_cluster::Storage;
use clawnode_sim::{
    Bugs,
    storage::{SimStorageOptions, SimStores},
};
use clawnode_tests::conformance::Result;

use crate::operations::{ACK_WAIT, PARTITIONS};

pub(crate) fn world(bugs: Bugs) -> (SimStores, Storage) {
    let options = SimStorageOptions {
        bugs,
        partitions: PARTITIONS,
        ack_wait: ACK_WAIT,
        ..SimStorageOptions::default()
    };
    let stores = SimStores::new(&options);
    let storage = stores.open();
    (stores, storage)
}

/// A runtime whose time flies when all tasks are idle.
pub(crate) fn simulated<T>(doing: impl Future<Output = Result<T>>) -> Result<T> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().start_paused(true).build()?.block_on(doing)
}

pub(crate) fn real<T>(doing: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(doing)
}
