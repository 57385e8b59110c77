//! What a call has to leave beside it.

use clawnode_proto::budget::AskVerdict;

use super::{
    tests::{One, asked, call, granted},
    *,
};

#[test]
fn what_has_to_be_left_beside_a_call_is_asked_for_and_not_reserved() {
    let beside = |beside| {
        let mut needs = call();
        needs.needs[0].beside = beside;
        needs
    };
    let mut one = One::new();
    assert_eq!(asked(&one.reserve(1, beside(30))), [(1, 80, 45, 80)]);
    one.stored();
    // 10, 30 beside it, and 20 for its output.
    assert_eq!(granted(&one.told(&[(1, 60, false)], &[])), [(1, 20)]);
    let reserved: u64 = one.holder.holds().map(|hold| hold.amount).sum();
    assert_eq!(reserved, 30);
    assert_eq!(granted(&one.reserve(2, CallNeeds { most_output: 20, ..call() })), [(2, 20)]);

    let mut one = One::new();
    one.reserve(1, beside(30));
    one.stored();
    let spent = AskVerdict::SpentOut { spent: 60, limit: 100 };
    let out = one.told(&[], &[(1, spent)]);
    let refused = out
        .iter()
        .any(|one| matches!(one, HolderOutput::Refused(_, Refusal::Bankrupt { needed: 45, .. })));
    assert!(refused, "40 are left: {out:?}");
}
