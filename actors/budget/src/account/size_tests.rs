//! How large accounts become.

use clawnode_proto::{
    budget::{BudgetUnit, LimitKey, SliceAsk, WindowLength},
    codec,
};

use super::tests::{Account, amounts, ask, limit, report};

/// A window without end outlives all processes.
#[test]
fn an_account_does_not_grow_with_each_process_that_ever_was() {
    let ever = LimitKey { unit: BudgetUnit::Usd, window: WindowLength::Forever };
    let mut account = Account::with(&[limit(ever, 1_000_000)]);
    let mut sizes = Vec::new();
    for by in 1..=400 {
        account.ts += 60_000;
        account.ask(by, SliceAsk { limit: ever, ..ask(1, 50, 5) });
        account.report(by, report(1, 1, 7, true));
        sizes.push(codec::encode(&account.state).unwrap().len());
    }
    let (early, late) = (sizes[100], sizes[399]);
    assert!(late <= early + 64, "{early} bytes after 100 processes, {late} after 400");
    // An answer that was lost is still known.
    assert_eq!(amounts(&account.ask(400, SliceAsk { limit: ever, ..ask(1, 50, 5) })), []);
}

#[test]
fn an_account_with_every_limit_and_64_slices_is_small() {
    let mut limits = Vec::new();
    for unit in BudgetUnit::ALL {
        limits.extend(WindowLength::ALL.map(|window| limit(LimitKey { unit, window }, 1 << 40)));
    }
    let mut account = Account::with(&limits);
    for (number, by) in (1..).zip(1..=64) {
        let limit = limits[usize::try_from(number).unwrap() % limits.len()].key;
        account.ask(by, SliceAsk { limit, ..ask(number, 50_000, 5) });
    }
    let slices = account.state.books.iter().flat_map(|book| &book.current.slices).count();
    let bytes = codec::encode(&account.state).unwrap().len();
    assert_eq!(slices, 64);
    assert!(bytes <= 16 << 10, "{bytes} bytes");
}
