//! One suite for every storage backend: it checks what the traits promise, on each in the same way.
//!
//! A fixture says how to make a storage backend and, if it can, how to stop and start one. The macro
//! [`conformance!`](crate::conformance!) makes one test per case. No case waits for an amount of
//! time, and absence is shown by something later that arrives instead.

pub mod blobs;
pub mod bucket;
pub mod budgets;
pub mod bus;
pub mod follow;
pub mod inbox;
pub mod jobs;
pub mod journal;
pub mod kinds;
pub mod membership;
mod process;
pub mod restart;
pub mod sessions;
mod support;
pub mod timers;

use std::time::Duration;

use async_trait::async_trait;
use clawnode_cluster::{Clock, Storage, SystemClock};
use clawnode_proto::Timestamp;

/// What a case returns; an error is what the backend did wrong.
pub type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Makes storages of one backend for the suite.
#[async_trait]
pub trait BackendFixture: Send + Sync {
    /// A storage backend with nothing in it. It must deliver again after a second or two at most.
    async fn fresh(&self) -> Result<Storage>;

    /// Stops `storage` and opens what it left; `None` if this backend cannot.
    async fn restart(&self, storage: Storage) -> Result<Option<Storage>>;

    /// The backend's own time of day.
    fn now(&self) -> Timestamp {
        SystemClock.now()
    }

    /// After how long it delivers again.
    fn ack_wait(&self) -> Duration;

    /// The shortest time to live that its bucket can keep.
    fn shortest_ttl(&self) -> Duration {
        Duration::from_secs(1)
    }
}

/// Makes a module `$name` with one test per case of the suite, each on a new backend.
#[macro_export]
macro_rules! conformance {
    ($name:ident, $fixture:expr) => {
        $crate::conformance!(@all $name, $fixture;
            journal {
                an_append_stands_where_it_was_expected, a_stale_append_is_refused,
                one_of_many_appenders_wins, journals_do_not_mix, a_read_starts_after_a_position,
                a_rollup_replaces_the_past, a_stale_rollup_changes_nothing,
                entities_come_in_pages, an_oversized_append_is_a_defect, a_large_journal_is_read_whole
            }
            follow {
                records_of_all_journals_come_in_order, a_replaced_record_is_not_followed,
                a_follower_beside_many_writers_misses_nothing
            }
            inbox {
                a_put_is_delivered, a_read_shows_what_waits_in_order, a_delivery_is_foremost_only_if_nothing_waits_before_it, an_ack_removes,
 nothing_is_put_where_there_is_no_room,
                what_is_not_acknowledged_comes_again, progress_keeps_a_delivery_in_hand,
                a_nak_brings_it_back, a_late_ack_removes,
                a_scan_names_whose_input_waits, partitions_do_not_mix,
                two_consumers_share_a_partition, a_dropped_consumer_loses_nothing,
                the_same_input_may_be_put_twice
            }
            jobs {
                a_put_job_is_delivered, a_job_waits_once,
                a_job_waits_until_it_is_acknowledged, many_puts_of_a_job_are_one,
                a_done_job_may_be_put_again, an_unanswered_job_comes_again,
                progress_keeps_a_job_in_hand, a_nak_brings_a_job_back, a_late_ack_removes_a_job,
                capabilities_do_not_mix, jobs_wait_for_who_can_do_them,
                two_consumers_share_a_capability, who_is_busy_keeps_nothing_from_others,
                who_rests_keeps_nothing_from_others, a_dropped_consumer_loses_no_job,
                a_job_that_is_too_large_is_refused, a_state_key_changes_by_one_hand
            }
            bucket {
                a_value_is_set_changed_and_removed, a_stale_change_is_refused,
                one_of_many_setters_wins, a_list_is_ordered_and_by_prefix,
                a_value_with_a_ttl_goes, a_watch_shows_what_is_and_what_comes,
                a_watch_sees_an_expiry, positions_increase
            }
            timers {
                a_due_timer_arrives_in_the_inbox, a_timer_waits_until_it_is_due,
                a_timer_is_replaced, a_cancelled_timer_does_not_fire, timers_fire_in_any_number,
                what_is_not_overdue_is_left_alone,
                a_timer_for_a_newer_build_is_found_and_set_again
            }
            blobs {
                content_is_found_by_its_digest, storing_again_is_harmless, a_deleted_blob_is_gone,
                blobs_of_any_size
            }
            bus {
                a_message_reaches_all_who_listen, wildcards_take_in_what_they_should,
                messages_of_one_sender_stay_in_order, a_request_is_answered,
                a_request_without_listeners_fails, a_request_without_answer_times_out,
                who_stopped_listening_is_not_asked
            }
            sessions {
                a_list_has_the_newest_first, a_list_has_what_is_wanted,
                a_row_says_since_when_and_how_the_newest_turn_failed,
                pages_have_each_session_once, pages_have_each_approval_once,
                only_stateless_sessions_at_rest_are_told_to_go
            }
            kinds {
                a_second_kind_is_served, a_kind_that_is_not_served_waits_for_who_serves_it,
                journals_of_all_kinds_are_looked_at,
                a_second_kind_is_quarantined_restored_and_deleted
            }
            budgets {
                two_processes_share_an_account, an_ask_waits_for_an_owner,
                a_set_limit_is_known_everywhere
            }
            membership {
                a_process_that_joins_learns_who_died_before,
                a_process_that_joins_with_a_wrong_clock_soon_has_the_time_of_the_others
            }
            restart {
                everything_stored_is_there_after_a_restart, what_was_done_stays_done
            }
        );
    };
    (@all $name:ident, $fixture:expr; $( $store:ident { $( $case:ident ),* $(,)? } )*) => {
        mod $name {
            use super::*;
            $( mod $store {
                use super::*;
                $(
                    #[tokio::test]
                    async fn $case() -> $crate::conformance::Result {
                        $crate::conformance::$store::$case(&$fixture).await
                    }
                )*
            } )*
        }
    };
}
