//! Which point is armed, and in which stores.

use std::sync::Arc;

use clawnode_cluster::Storage;

use super::{
    chance::VARIABLE,
    jobs::WatchedJobs,
    stores::{Armed, WithFailpoints},
};
use crate::{config::Env, start_error::StartError};

/// The stores of `storage` with the point that `env` names armed in them.
pub fn arm(storage: Storage, env: &Env) -> Result<Storage, StartError> {
    let Some(text) = env.get(VARIABLE) else { return Ok(storage) };
    let armed = Arc::new(Armed::parse(text).ok_or_else(|| {
        let message = format!("`{VARIABLE}={text}` names no point");
        StartError::config("config_invalid", message)
    })?);
    Ok(Storage {
        journal: Arc::new(WithFailpoints { inner: storage.journal, armed: Arc::clone(&armed) }),
        inbox: Arc::new(WithFailpoints { inner: storage.inbox, armed: Arc::clone(&armed) }),
        jobs: Arc::new(WatchedJobs {
            inner: storage.jobs,
            armed: Arc::clone(&armed),
            puts: Arc::default(),
        }),
        bucket: Arc::new(WithFailpoints { inner: storage.bucket, armed: Arc::clone(&armed) }),
        timers: Arc::new(WithFailpoints { inner: storage.timers, armed: Arc::clone(&armed) }),
        blobs: Arc::new(WithFailpoints { inner: storage.blobs, armed: Arc::clone(&armed) }),
        bus: Arc::new(WithFailpoints { inner: storage.bus, armed }),
        ..storage
    })
}
