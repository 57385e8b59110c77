//! Timers that the store should have fired long ago: they are stored again, and fire then.
//!
//! The worker that ranks first for a partition looks after its timers. A look costs the store one
//! request for each timer, so a partition with more than
//! [`OVERDUE_LOOKS`](clawnode_cluster::OVERDUE_LOOKS) timers takes several minutes.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use clawnode_cluster::{Clock, Peek, Timers};
use clawnode_proto::{Partition, Position, Timestamp};
use tracing::{info, warn};

use super::Placed;

/// How often overdue timers are looked for.
const LOOK_EVERY: Duration = Duration::from_mins(1);
/// A timer that is this late will not be fired by the store, in milliseconds.
const OVERDUE_MS: u64 = 30_000;

/// Looks for overdue timers until the worker ends.
pub(super) async fn restore_overdue(
    timers: Arc<dyn Timers>,
    clock: Arc<dyn Clock>,
    placed: Placed,
) {
    let mut walks: BTreeMap<Partition, Position> = BTreeMap::new();
    let mut reason = String::new();
    let mut failed_at: Option<Partition> = None;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let before = Timestamp(clock.now().0.saturating_sub(OVERDUE_MS));
        let mut firsts: Vec<Partition> = placed.peek(|placed| placed.firsts().collect());
        walks.retain(|partition, _| firsts.contains(partition));
        // A failure ends a look, because the store may be away. The next look begins behind it, so a partition
        // that always fails keeps no other one from its turn.
        let begin = failed_at.map_or(0, |at| firsts.partition_point(|partition| *partition <= at));
        firsts.rotate_left(begin);
        let mut failure = None;
        for partition in firsts {
            let after = walks.remove(&partition).unwrap_or(Position(0));
            match timers.restore_overdue(partition, before, after).await {
                Ok(found) => {
                    walks.extend(found.next.map(|next| (partition, next)));
                    if found.restored > 0 {
                        warn!(%partition, timers = found.restored, "overdue timers are set again");
                    }
                }
                Err(error) => {
                    failure = Some((partition, error));
                    break;
                }
            }
        }
        failed_at = failure.as_ref().map(|(partition, _)| *partition);
        match failure {
            Some((partition, error)) => {
                // Once for each reason: it is tried again each minute.
                let text = error.to_string();
                if text != reason {
                    warn!(%partition, %error, "cannot look for overdue timers");
                    reason = text;
                }
            }
            None if !reason.is_empty() => {
                reason.clear();
                info!("overdue timers are found again");
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use async_trait::async_trait;
    use clawnode_cluster::{Overdue, StoreError, Timer, placement::Placement};
    use clawnode_proto::{EntityId, TimerId};
    use tokio::sync::{mpsc, watch};

    use super::*;

    /// Records the questions, and gives the prepared answers.
    #[derive(Debug)]
    struct Asked {
        tell: mpsc::Sender<(Partition, Timestamp, Position)>,
        answers: Mutex<Vec<Result<Overdue, StoreError>>>,
    }

    #[async_trait]
    impl Timers for Asked {
        async fn set(&self, _: &Timer) -> Result<(), StoreError> {
            Ok(())
        }

        async fn cancel(&self, _: EntityId, _: TimerId) -> Result<(), StoreError> {
            Ok(())
        }

        async fn pending(&self, _: Partition) -> Result<Vec<Timer>, StoreError> {
            Ok(Vec::new())
        }

        async fn restore_overdue(
            &self,
            partition: Partition,
            before: Timestamp,
            after: Position,
        ) -> Result<Overdue, StoreError> {
            self.tell.try_send((partition, before, after)).unwrap();
            self.answers.lock().unwrap().pop().unwrap_or(Ok(Overdue::default()))
        }
    }

    #[derive(Debug)]
    struct Fixed;

    impl Clock for Fixed {
        fn now(&self) -> Timestamp {
            Timestamp(100_000)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_walks_through_the_partitions_that_it_serves_first() {
        let (tell, mut asked) = mpsc::channel(16);
        let part = Overdue { restored: 3, next: Some(Position(7)) };
        let down = || Err(StoreError::Refused { store: "timers", detail: "no".to_owned() });
        let none = || Ok(Overdue::default());
        // The last one is the first answer.
        let answers = vec![none(), none(), down(), none(), down(), none(), Ok(part)];
        let answers = Mutex::new(answers);
        let timers = Arc::new(Asked { tell, answers });
        let (place, placed) = watch::channel(Arc::new(Placement::nowhere(2)));
        let sweep = tokio::spawn(restore_overdue(timers, Arc::new(Fixed), placed));
        let silent = tokio::time::timeout(LOOK_EVERY * 3, asked.recv()).await;
        assert!(silent.is_err(), "others look after all partitions");
        place.send_replace(Arc::new(Placement::alone(2)));
        let mut next = async || {
            let (partition, before, after) = asked.recv().await.unwrap();
            assert_eq!(before, Timestamp(70_000), "30 s ago");
            (partition.0, after.0)
        };
        // The walk of the first partition continues where it stopped; the second has come to its
        // end.
        assert_eq!([next().await, next().await], [(0, 0), (1, 0)]);
        // A failure ends this look. The next one begins behind it, and what failed is looked at from its start.
        assert_eq!([next().await, next().await, next().await], [(0, 7), (1, 0), (0, 0)]);
        // Also if it fails each time.
        assert_eq!([next().await, next().await], [(1, 0), (0, 0)]);
        sweep.abort();
    }
}
