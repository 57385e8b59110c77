//! For crash tests: the process kills itself at a named point of its work.
//!
//! Each point is a place at a store's door, so the node's own code is the same with and without.
//! `CLAWNODE_TEST_KILL=after-accepted` kills at the first time, `after-accepted:3` at the third;
//! `poison:TEXT` at every append to a session whose journal has TEXT, as if folding it killed.
//! `poison-panic:TEXT` makes whoever folds it panic, and `panics:PER_MILLION:SEED` whoever passes a
//! door of sessions or jobs, or asks an actor of a session for the time, by chance.
//! `blocks:SECONDS` blocks all workers of the runtime once a message is stored.

mod chance;
mod doors;
mod jobs;

use std::sync::Arc;

use clawnode_cluster::Substrate;

pub use self::chance::clock;
use self::{
    doors::{Armed, Watched},
    jobs::WatchedJobs,
};
use crate::{
    config::Env,
    failure::{Exit, Failure},
};

/// The variable that names a point.
const VARIABLE: &str = "CLAWNODE_TEST_KILL";

/// The doors of `substrate` with the point that `env` names armed in them.
pub fn arm(substrate: Substrate, env: &Env) -> Result<Substrate, Failure> {
    let Some(text) = env.get(VARIABLE) else { return Ok(substrate) };
    let armed = Arc::new(Armed::parse(text).ok_or_else(|| {
        let message = format!("`{VARIABLE}={text}` names no point");
        Failure::new(Exit::Config, "config_invalid", message)
    })?);
    Ok(Substrate {
        journal: Arc::new(Watched { inner: substrate.journal, armed: Arc::clone(&armed) }),
        inbox: Arc::new(Watched { inner: substrate.inbox, armed: Arc::clone(&armed) }),
        jobs: Arc::new(WatchedJobs {
            inner: substrate.jobs,
            armed: Arc::clone(&armed),
            puts: Arc::default(),
        }),
        bucket: Arc::new(Watched { inner: substrate.bucket, armed: Arc::clone(&armed) }),
        bus: Arc::new(Watched { inner: substrate.bus, armed }),
        ..substrate
    })
}
