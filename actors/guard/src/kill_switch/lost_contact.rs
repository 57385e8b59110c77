//! Stops the work of a process that has lost contact with the store: it would not hear of a kill switch.

use std::{sync::Arc, time::Duration};

use clawnode_cluster::{Bucket, StoreError};
use clawnode_proto::kill_switch::SwitchScope;
use tokio::time::{Instant, sleep_until, timeout_at};
use tracing::{debug, error};

use super::{SwitchGate, actor::look};

/// Looks at the store within the time after which a process is out of touch: two of them may fail.
const LOOKS: u32 = 4;
/// How soon the store is looked for again while it is out of reach.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Asks the store again and again, and keeps the gate shut while the store has not answered for
/// `lost_after`: a process that is out of touch would not hear of a kill switch.
pub async fn contact(switch_gate: SwitchGate, bucket: Arc<dyn Bucket>, lost_after: Duration) {
    let every = lost_after / LOOKS;
    let mut last = Instant::now();
    loop {
        let asked = Instant::now();
        let limit = if switch_gate.switches().is_out_of_touch() {
            asked + every
        } else {
            last + lost_after
        };
        let limit = limit.min(asked + every * 2);
        let answer =
            timeout_at(limit, look(&switch_gate, bucket.as_ref(), &SwitchScope::All)).await;
        let next = match answer {
            Ok(Ok(_)) => {
                last = asked;
                switch_gate.touch(false);
                asked + every
            }
            Ok(Err(StoreError::Refused { detail, .. })) => {
                error!(detail, "cannot read the kill switches");
                Instant::now() + LOOK_AGAIN
            }
            Ok(Err(failure)) => {
                debug!(%failure, "the store does not say what is stopped");
                Instant::now() + LOOK_AGAIN
            }
            Err(_elapsed) => Instant::now() + LOOK_AGAIN,
        };
        if last.elapsed() >= lost_after {
            switch_gate.touch(true);
        }
        let due = if switch_gate.switches().is_out_of_touch() {
            next
        } else {
            next.min(last + lost_after)
        };
        sleep_until(due).await;
    }
}
