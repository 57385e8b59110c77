//! Many sessions at one node: made, and let go.

use std::time::{Duration, Instant};

use crate::{Error, Load, Node, load};

/// Turns at once while sessions are made.
const CONCURRENCY: usize = 64;
/// How long a node may take to let all sessions go.
const PATIENCE: Duration = Duration::from_mins(5);
/// Between two looks at how many are left.
const LOOK: Duration = Duration::from_millis(500);

/// One turn in each session from `first` on, until there are `sessions`; says how many turns.
pub async fn fill(addr: &str, first: usize, sessions: usize) -> Result<usize, Error> {
    let plan = Load {
        addr: addr.to_owned(),
        concurrency: CONCURRENCY,
        turns_per_session: 1,
        one_user: false,
        time: Duration::MAX,
        turns: (sessions - first).div_ceil(CONCURRENCY),
        run: format!("from-{first}"),
        ends_with: String::new(),
    };
    Ok(load(&plan).await?.latencies.len())
}

/// Waits until a node has no session in memory.
pub async fn passivated(node: &Node) -> Result<(), Error> {
    let began = Instant::now();
    while node.resident_sessions().await? > 0 {
        if began.elapsed() > PATIENCE {
            return Err("sessions stay in memory".into());
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

/// How much more there is for each one more, between two points.
pub fn slope([(less, low), (more, high)]: [(f64, f64); 2]) -> f64 {
    (high - low) / (more - less)
}
