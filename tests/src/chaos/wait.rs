//! Waiting: for a state, with one long patience; and for the moment of a fault, which is the only
//! thing here that is about time.

use std::time::Duration;

use tokio::time::Instant;

use super::ChaosError;

/// Reaching it means a bug, not a slow machine.
pub(super) const PATIENCE: Duration = Duration::from_mins(2);
/// How often a state is looked at that nothing announces.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Waits until `look` says so; what it said last is in the error.
pub(super) async fn eventually<T, F>(
    what: &str,
    patience: Duration,
    mut look: impl FnMut() -> F,
) -> Result<T, ChaosError>
where
    F: Future<Output = Result<T, String>>,
{
    let end = Instant::now() + patience;
    loop {
        match look().await {
            Ok(found) => return Ok(found),
            Err(last) if Instant::now() > end => {
                return Err(ChaosError::Late(format!("{what} ({last})")));
            }
            Err(_) => pass(LOOK_AGAIN).await,
        }
    }
}

/// Lets time pass: until a fault's moment, or before a client tries again.
pub(super) async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}
