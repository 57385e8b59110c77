//! Calls of one process of which some need what a dead process has.

use clawnode_proto::{
    ProcessId,
    budget::{AskAnswer, AskVerdict, ProcessStanding},
};

use super::{
    tests::{One, USD, asked, call, cluster, granted, said},
    *,
};

const DEAD: ProcessId = ProcessId::from_u128(9);

impl One {
    /// An ask waits, and the dead process has the most of the limit.
    fn waits_behind_dead(&mut self, number: u64) -> Vec<HolderOutput> {
        self.version += 1;
        let (limit, verdict, holder) = (USD, AskVerdict::Waits, Some(DEAD));
        self.does(HolderInput::Told(ProcessStanding {
            account: cluster(),
            version: self.version,
            begun: None,
            slices: Vec::new(),
            answers: vec![AskAnswer { number, limit, verdict, holder }],
        }))
    }
}

/// A call that needs 40 at least, and one that needs 11.
fn large() -> CallNeeds {
    CallNeeds { least_output: 30, ..call() }
}

fn small() -> CallNeeds {
    CallNeeds { least_output: 1, most_output: 5, ..call() }
}

/// The calls of which this says that they are stranded.
fn stranded(out: &[HolderOutput]) -> Vec<u64> {
    let stranded = out.iter().filter_map(|one| match one {
        HolderOutput::Waits(reservation, .., WaitReason::Stranded(process)) => {
            (*process == DEAD).then_some(reservation.0)
        }
        _ => None,
    });
    stranded.collect()
}

fn refused(out: Vec<HolderOutput>) -> Vec<HolderOutput> {
    out.into_iter().filter(|one| matches!(one, HolderOutput::Refused(..))).collect()
}

/// A large call waits, and a small one behind it; the account has confirmed that the large one waits for the dead process.
fn large_before_small() -> (One, Vec<HolderOutput>) {
    let mut one = One::new();
    assert_eq!(asked(&one.reserve(1, large())), [(1, 50, 40, 50)]);
    one.stored();
    one.reserve(2, small());
    one.waits_behind_dead(1);
    one.holder.set_dead([DEAD].into());
    assert_eq!(asked(&one.after(1_000)), [(1, 50, 40, 65)]);
    one.stored();
    let out = one.waits_behind_dead(1);
    (one, out)
}

#[test]
fn a_stranded_call_holds_up_none_of_its_process_that_needs_less() {
    let (mut one, out) = large_before_small();
    assert_eq!(stranded(&out), [1], "the rest may be enough for the other one");
    assert_eq!(asked(&out), [(1, 15, 11, 65)], "at once");
    one.stored();
    let out = one.told(&[(1, 20, false)], &[]);
    assert_eq!(granted(&out), [(2, 5)]);
    assert_eq!(asked(&out), [(2, 50, 40, 50)], "the large one waits on");
}

/// The rest is too little for both: the account has to say that of the smaller one, too.
#[test]
fn what_is_confirmed_of_a_large_call_is_not_true_of_a_small_one() {
    let (mut one, _) = large_before_small();
    one.after(1_000);
    one.stored();
    assert_eq!(stranded(&one.waits_behind_dead(1)), [2]);
    assert_eq!(asked(&one.after(20_000)), [(1, 15, 11, 65)], "the smaller one stays first");
}

/// Smaller calls that are made meanwhile do not begin its time again.
#[test]
fn a_stranded_call_ends_after_ask_wait_whatever_smaller_ones_do() {
    let (mut one, _) = large_before_small();
    one.stored();
    one.told(&[(1, 20, false)], &[]);
    let mut number = 2;
    for second in 1..300 {
        if second == 100 {
            one.reserve(3, small());
            one.stored();
            assert_eq!(granted(&one.told(&[(number, 20, false)], &[])), [(3, 5)]);
            number += 1;
        }
        one.stored();
        assert_eq!(stranded(&one.waits_behind_dead(number)), [0; 0], "it is said once");
        assert_eq!(refused(one.after(1_000)), [], "second {second}");
    }
    one.stored();
    one.waits_behind_dead(number);
    let refusal = Refusal::Stranded { account: cluster(), limit: USD, process: DEAD };
    assert_eq!(refused(one.after(1_000)), [HolderOutput::Refused(Reservation(1), refusal)]);
}

/// It was held dead, and lives: what it has comes back.
#[test]
fn a_call_waits_on_if_the_process_lives() {
    let (mut one, _) = large_before_small();
    one.holder.set_dead([].into());
    one.after(1_000);
    for _ in 0..400 {
        one.stored();
        one.waits_behind_dead(1);
        assert_eq!(refused(one.after(1_000)), []);
    }
    assert_eq!(one.holder.waiting(), 2);
}

/// A process that was frozen may be held dead. Its account learns from a report that it lives, and its call may run on
/// for long without anything new.
#[test]
fn a_recall_is_answered_once_if_nothing_comes_back() {
    let mut one = One::new();
    one.reserve(1, call());
    one.stored();
    assert_eq!(granted(&one.told(&[(1, 50, false)], &[])), [(1, 40)]);
    assert_eq!(said(&one.reserve(2, call()), 1), Some((0, 50, 0, false)));
    one.stored();
    one.told(&[(1, 50, false)], &[(2, AskVerdict::Waits)]);
    assert_eq!(said(&one.after(1_000), 1), None, "nothing is new");
    let out = one.told(&[(1, 50, true)], &[(2, AskVerdict::Waits)]);
    assert_eq!(said(&out, 1), Some((0, 50, 0, false)));
    one.stored();
    one.told(&[(1, 50, true)], &[(2, AskVerdict::Waits)]);
    assert_eq!(said(&one.after(1_000), 1), None, "it is repeated");
}

#[test]
fn only_an_answer_to_what_was_sent_confirms_that_a_call_is_stranded() {
    let mut one = One::new();
    one.reserve(1, large());
    one.stored();
    one.waits_behind_dead(1);
    one.holder.set_dead([DEAD].into());
    assert_eq!(asked(&one.after(1_000)).len(), 1);
    // The same as before, once more.
    one.version -= 1;
    assert_eq!(stranded(&one.waits_behind_dead(1)), [0; 0]);
    one.does(HolderInput::Stored(cluster(), false));
    assert_eq!(stranded(&one.waits_behind_dead(1)), [0; 0], "the ask may be lost");
    assert_eq!(asked(&one.after(1_000)).len(), 1);
    one.stored();
    assert_eq!(stranded(&one.waits_behind_dead(1)), [1]);
}
