//! Waiting for what nothing announces: a look now and then, with an end.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::process::ProcessError;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(100);
/// Reaching it means a bug, not a slow machine.
const PATIENCE: Duration = Duration::from_mins(2);

/// Looks until there is something to see.
pub async fn until<T>(
    what: &str,
    mut look: impl AsyncFnMut() -> Result<Option<T>, ProcessError>,
) -> Result<T, ProcessError> {
    let looked = async {
        loop {
            if let Some(seen) = look().await? {
                return Ok(seen);
            }
            sleep(LOOK).await;
        }
    };
    timeout(PATIENCE, looked).await.map_err(|_elapsed| ProcessError::Late(what.to_owned()))?
}
