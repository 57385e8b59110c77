//! Which point is armed, and in which doors.

use std::sync::Arc;

use clawnode_cluster::Substrate;

use super::{
    chance::VARIABLE,
    jobs::WatchedJobs,
    stores::{Armed, WithFailpoints},
};
use crate::{config::Env, start_error::StartError};

/// The doors of `substrate` with the point that `env` names armed in them.
pub fn arm(substrate: Substrate, env: &Env) -> Result<Substrate, StartError> {
    let Some(text) = env.get(VARIABLE) else { return Ok(substrate) };
    let armed = Arc::new(Armed::parse(text).ok_or_else(|| {
        let message = format!("`{VARIABLE}={text}` names no point");
        StartError::config("config_invalid", message)
    })?);
    Ok(Substrate {
        journal: Arc::new(WithFailpoints { inner: substrate.journal, armed: Arc::clone(&armed) }),
        inbox: Arc::new(WithFailpoints { inner: substrate.inbox, armed: Arc::clone(&armed) }),
        jobs: Arc::new(WatchedJobs {
            inner: substrate.jobs,
            armed: Arc::clone(&armed),
            puts: Arc::default(),
        }),
        bucket: Arc::new(WithFailpoints { inner: substrate.bucket, armed: Arc::clone(&armed) }),
        bus: Arc::new(WithFailpoints { inner: substrate.bus, armed }),
        ..substrate
    })
}
