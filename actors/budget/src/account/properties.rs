//! Accounts, whatever the order of their inputs.

use std::collections::BTreeMap;

use clawnode_kernel::EntityKind as _;
use clawnode_proto::{
    budget::{BudgetInput, BudgetLimit, SliceAsk, SliceReport, WindowNumber},
    codec,
};
use proptest::prelude::*;

use super::{
    Budget, BudgetState,
    tests::{Account, HOUR, USD, ask, limit},
};

#[derive(Clone, Debug)]
enum Step {
    Set(u64, u8),
    TakeAway,
    Ask { by: u128, next: bool, call: u64, least: u64, waits: u64 },
    Report { which: usize, spend: u64, closed: bool, stale: bool, returned: u64 },
    Allow,
    Fire,
    Clock(i64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => (0..2_000_u64, 1..=100_u8).prop_map(|(amount, at)| Step::Set(amount, at)),
        6 => (1..5_u128, any::<bool>(), 1..400_u64, 1..100_u64, 0..900_u64).prop_map(
            |(by, next, call, least, waits)| Step::Ask { by, next, call, least, waits }
        ),
        6 => (any::<usize>(), 0..200_u64, any::<bool>(), any::<bool>(), 0..400_u64).prop_map(
            |(which, spend, closed, stale, returned)| Step::Report {
                which, spend, closed, stale, returned
            }
        ),
        1 => Just(Step::TakeAway),
        1 => Just(Step::Allow),
        1 => Just(Step::Fire),
        2 => (-7_200_000..7_200_000_i64).prop_map(Step::Clock),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..Default::default() })]

    /// I6 and BUD-3 hold at every prefix, in whatever order asks, repeated answers, late reports and
    /// lowered limits come, and however clocks jump.
    #[test]
    fn i6_holds_at_every_prefix(steps in prop::collection::vec(step(), 1..120)) {
        let mut account = Account::with(&[limit(USD, 1_000)]);
        account.ts = 40 * HOUR;
        let mut next: BTreeMap<u128, u64> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Set(amount, ask_at) => {
                    account.set(&[BudgetLimit { warn_at: 1, ask_at, ..limit(USD, amount) }]);
                }
                Step::TakeAway => {
                    account.set(&[]);
                }
                Step::Ask { by, next: anew, call, least, waits } => {
                    let number = next.entry(by).or_insert(1);
                    *number += u64::from(anew);
                    let number = *number;
                    account.ask(by, SliceAsk { waits, ..ask(number, call, least) });
                }
                Step::Report { which, spend, closed, stale, returned } => {
                    let all: Vec<_> = account.slices.iter().map(|(key, slice)| (*key, *slice)).collect();
                    if all.is_empty() { continue }
                    let ((_, window, by, number), slice) = all[which % all.len()];
                    let spent = slice.spent + spend.min(slice.amount.saturating_sub(slice.spent));
                    let seq = if stale { slice.seq } else { slice.seq + 1 };
                    let held = spend / 3;
                    let over = 0;
                    let report =
                        SliceReport { number, window, seq, spent, held, returned, over, closed };
                    account.report(by.as_u128(), report);
                }
                Step::Allow => {
                    let book = account.state.book(USD);
                    let window = book.map_or(WindowNumber(0), |book| book.current.number);
                    let by = "ada".to_owned();
                    account.send(BudgetInput::Allow { by, limit: USD, window });
                }
                Step::Fire => {
                    if let Some(due) = account.state.due() {
                        account.send(BudgetInput::TimerFired { due });
                    }
                }
                Step::Clock(by) => account.ts = account.ts.saturating_add_signed(by),
            }
            prop_assert!(Budget::advance(&account.state).is_empty());
        }
        let replayed = account.replayed();
        prop_assert_eq!(&replayed, &account.state, "the journal is all there is");
        let bytes = codec::encode(&account.state).unwrap();
        let read: BudgetState = codec::decode(&bytes).unwrap();
        prop_assert_eq!(read, replayed);
    }
}
