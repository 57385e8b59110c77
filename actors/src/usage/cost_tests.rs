//! What calls cost, each call, and the audit of a day.

use std::sync::Arc;

use bytes::Bytes;
use clawnode_cluster::{Record, SystemClock};
use clawnode_proto::{
    Attempt, CallId, Digest, Grammar, Head, ProcessId, Sealed, Seq, Timestamp,
    budget::BudgetHeld,
    codec,
    event::{decode_record, encode_record},
    kernel::KernelEvent,
    llm::{FailureClass, ModelFailure, Usage},
    model::ModelPrice,
    money::MicroUsd,
    session::SessionEvent,
    usage::{CallEnd, Calls, Day, UsageDay},
};

use super::{
    CallPlace, audit, calls,
    session_usage::{CountedEvent, Meter},
    tests::World,
};
use crate::session::{Sessions, played::PlayedActivation};

const PRICE: ModelPrice = ModelPrice {
    input: 3_000_000,
    output: 15_000_000,
    cache_read: 300_000,
    cache_write: 3_750_000,
};
pub(super) const DAY: &str = "usage.day.1970-01-01";
pub(super) const USED: Usage = Usage {
    input_tokens: 1_000,
    output_tokens: 50,
    cache_read_tokens: 600,
    cache_write_tokens: 100,
    cache_write_hour_tokens: 0,
    reasoning_tokens: 0,
    estimated: false,
};
/// 300 tokens at $3, 600 at $0.30, 100 at $3.75 and 50 at $15 for a million.
pub(super) const COST: MicroUsd = MicroUsd(900 + 180 + 375 + 750);

/// What this attempt has reserved.
fn held(call: CallId, attempt: Attempt) -> BudgetHeld {
    BudgetHeld {
        call,
        attempt,
        process: ProcessId::from_u128(7),
        model: "sim/model".parse().unwrap(),
        price: PRICE,
        input: 2_000,
        max_output: 100,
        holds: Vec::new(),
    }
}

/// The same journal, in which the attempts of which `is_held` says so have reserved what they can cost.
pub(super) fn with_holds(records: &[Record], is_held: impl Fn(usize) -> bool) -> Vec<Record> {
    let (mut n, mut attempts) = (0, 0);
    let mut numbered = |head: &Head| {
        n += 1;
        Head { n: Seq(n), ..head.clone() }
    };
    let record = |record: &Record| {
        let mut events = Vec::new();
        for sealed in decode_record(&record.bytes).unwrap() {
            let session = sealed.event::<SessionEvent>().unwrap();
            let begun = match &session {
                Some(SessionEvent::ModelBegun(begun)) => Some((begun.call, begun.attempt)),
                Some(SessionEvent::CompactionBegun(begun)) => Some((begun.call, begun.attempt)),
                Some(SessionEvent::ReflectionBegun(begun)) => Some((begun.call, begun.attempt)),
                _ => None,
            };
            if let Some((call, attempt)) = begun {
                if is_held(attempts) {
                    let event = SessionEvent::BudgetHeld(held(call, attempt));
                    let mut head = numbered(&sealed.head);
                    event.kind().clone_into(&mut head.kind);
                    events.push(Sealed::seal(head, &event, Digest::ZERO).unwrap());
                }
                attempts += 1;
            }
            let head = numbered(&sealed.head);
            events.push(if let Some(event) = session {
                Sealed::seal(head, &event, Digest::ZERO).unwrap()
            } else {
                let event = sealed.event::<KernelEvent>().unwrap().unwrap();
                Sealed::seal(head, &event, Digest::ZERO).unwrap()
            });
        }
        Record { position: record.position, bytes: Bytes::from(encode_record(&events).unwrap()) }
    };
    records.iter().map(record).collect()
}

impl World {
    /// A turn that succeeds, one whose first attempt is lost, one that fails, and one without a hold; counted.
    async fn played() -> Self {
        let mut world = Self::new(1_000);
        world.run.says("m1");
        world.run.replies_for(USED, &[]);
        world.run.says("m2");
        let journal = world.run.journal.clone();
        world.run = PlayedActivation::new(&[], journal);
        world.run.replies_for(USED, &[]);
        world.run.says("m3");
        let failure = ModelFailure::new(FailureClass::Rejected, "no");
        world.run.fails_as(failure, USED);
        world.run.says("m4");
        world.run.replies_for(USED, &[]);
        world.store().await;
        {
            let mut tape = world.tape.records.lock().unwrap();
            *tape = with_holds(&tape, |attempt| attempt < 4);
        }
        world.count().await;
        world.save().await;
        world
    }

    async fn audited(&self) -> clawnode_proto::usage::UsageAudit {
        audit(&self.storage, Timestamp(1), Day(0)).await.unwrap()
    }

    /// Changes what is stored of the day.
    async fn plant(&self, change: impl FnOnce(&mut Calls)) {
        let entry = self.storage.bucket.get(DAY).await.unwrap().unwrap();
        let mut day: UsageDay = codec::decode(&entry.value).unwrap();
        change(&mut day.rows[0].1);
        let bytes = Bytes::from(codec::encode(&day).unwrap());
        self.storage.bucket.put(DAY, entry.position, bytes, None).await.unwrap();
    }
}

#[tokio::test]
async fn price_1_a_call_costs_what_its_journal_says() {
    let world = World::played().await;
    let total = world.shown().await.total;
    assert_eq!((total.done, total.failed, total.lost), (3, 1, 1));
    // 2,000 tokens of the dearest sort and 100 written: the end of that attempt is unknown.
    let lost = 7_500 + 1_500;
    assert_eq!(total.cost, MicroUsd(3 * COST.0 + lost));
    assert_eq!(total.unpriced, 1, "the one without a hold");
}

#[tokio::test]
async fn a_hold_of_another_attempt_prices_nothing() {
    let mut world = World::new(1_000);
    world.run.says("m1");
    world.run.replies_for(USED, &[]);
    world.store().await;
    {
        let mut tape = world.tape.records.lock().unwrap();
        let stale = with_holds(&tape, |_| true);
        let change = |record: &Record| {
            let events =
                decode_record(&record.bytes).unwrap().into_iter().map(|sealed| {
                    match sealed.event::<SessionEvent>().unwrap() {
                        Some(SessionEvent::BudgetHeld(held)) => {
                            let other = BudgetHeld { attempt: Attempt(9), ..held };
                            let event = SessionEvent::BudgetHeld(other);
                            Sealed::seal(sealed.head.clone(), &event, Digest::ZERO).unwrap()
                        }
                        _ => sealed,
                    }
                });
            let events: Vec<Sealed> = events.collect();
            let bytes = Bytes::from(encode_record(&events).unwrap());
            Record { position: record.position, bytes }
        };
        *tape = stale.iter().map(change).collect();
    }
    world.count().await;
    world.save().await;
    let total = world.shown().await.total;
    assert_eq!((total.done, total.cost, total.unpriced), (1, MicroUsd(0), 1));
}

/// A snapshot has no price of the attempt that is under way: what it replaced has it.
#[test]
fn the_price_of_an_attempt_is_found_before_a_snapshot() {
    let mut run = PlayedActivation::new(&[], Vec::new());
    run.says("m1");
    run.replies_for(USED, &[]);
    run.says("m2");
    let journal = run.journal.clone();
    let mut meter = Meter::default();
    let take = |meter: &mut Meter, record: &Record| {
        let events = decode_record(&record.bytes).unwrap();
        let counted = events.iter().flat_map(|sealed| meter.take(sealed).unwrap());
        counted.filter_map(CountedEvent::call).collect::<Vec<_>>()
    };
    for record in &journal {
        take(&mut meter, record);
    }
    assert!(meter.lacks_hold());
    let only_first = with_holds(&journal, |attempt| attempt == 0);
    assert!(meter.find_hold(&only_first) && meter.lacks_hold(), "the hold is another one's");
    assert!(meter.find_hold(&with_holds(&journal, |_| true)) && !meter.lacks_hold());
    run.replies_for(USED, &[]);
    let rest = &run.journal[journal.len()..];
    let counted: Vec<_> = rest.iter().flat_map(|record| take(&mut meter, record)).collect();
    assert_eq!(counted.iter().map(|call| call.cost).collect::<Vec<_>>(), [Some(COST)]);
}

#[tokio::test]
async fn an_audit_finds_one_micro_dollar_and_one_token() {
    let changes: [fn(&mut Calls); 4] = [
        |calls| calls.cost.0 += 1,
        |calls| calls.cost.0 -= 1,
        |calls| calls.usage.output_tokens += 1,
        |calls| calls.lost += 1,
    ];
    for change in changes {
        let world = World::played().await;
        let good = world.audited().await;
        assert_eq!((good.differences.len(), good.counted), (0, good.journaled), "{good:?}");
        assert_eq!((good.journals, good.deleted, good.unreadable), (1, 0, 0));
        world.plant(change).await;
        let bad = world.audited().await;
        assert_eq!((bad.differences.len(), bad.unproven.len()), (1, 0), "{bad:?}");
        assert_eq!((&*bad.differences[0].user, bad.journaled), ("web:a:b", good.journaled));
    }
}

#[tokio::test]
async fn what_is_not_counted_yet_is_no_difference() {
    let mut world = World::new(1_000);
    world.turn("m1", 10).await;
    world.count().await;
    world.save().await;
    world.turn("m2", 10).await;
    let audited = world.audited().await;
    assert_eq!((audited.differences, audited.journaled.done), (Vec::new(), 1));
}

#[tokio::test]
async fn an_audit_says_which_journals_it_cannot_read() {
    let world = World::played().await;
    world.tape.records.lock().unwrap().last_mut().unwrap().bytes = Bytes::from_static(b"damaged");
    let audited = world.audited().await;
    assert_eq!((audited.unreadable, audited.differences.len()), (1, 0), "{audited:?}");
    assert!(!audited.unproven.is_empty(), "more is counted than can be read");
}

#[tokio::test]
async fn each_attempt_is_a_row_and_pages_have_each_once() {
    let world = World::played().await;
    let sessions = Sessions::new(world.storage.clone(), Arc::new(SystemClock));
    let since = Timestamp(0);
    let all = calls(&sessions, since, None, 100).await.unwrap();
    assert_eq!((all.calls.len(), &all.next, all.partial), (5, &None, false), "{all:?}");
    assert!(all.calls.is_sorted_by(|newer, older| newer.at >= older.at), "the newest first");
    let ends = |end| all.calls.iter().filter(|call| call.end == end).count();
    assert_eq!((ends(CallEnd::Done), ends(CallEnd::Failed), ends(CallEnd::Lost)), (3, 1, 1));
    let lost = all.calls.iter().find(|call| call.end == CallEnd::Lost).unwrap();
    assert_eq!((lost.attempt, lost.cost, lost.wasted), (Attempt(1), Some(MicroUsd(9_000)), true));
    let again = all.calls.iter().find(|call| call.attempt == Attempt(2)).unwrap();
    assert_eq!((again.call, again.cost, again.usage), (lost.call, Some(COST), USED));
    assert_eq!(all.calls.iter().filter(|call| call.cost.is_none()).count(), 1);

    let (mut paged, mut cursor) = (Vec::new(), None);
    loop {
        let place = cursor.as_ref().map(CallPlace::try_from).transpose().unwrap();
        let page = calls(&sessions, since, place, 2).await.unwrap();
        assert!(page.calls.len() <= 2);
        paged.extend(page.calls);
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(paged, all.calls);
    let none = calls(&sessions, Timestamp(u64::MAX), None, 2).await.unwrap();
    assert_eq!(none.calls, Vec::new());
}
