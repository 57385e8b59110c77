//! The crash points of budgets, a test each (see `docs/internals/crash-recovery.md`): an account and the holders
//! of two processes, of which the test loses an answer, an owner or a process.

use clawnode_kernel::EntityKind as _;
use clawnode_proto::{
    ProcessId, Timestamp,
    budget::{
        AccountKey, AskVerdict, BudgetEvent, BudgetInput, GrantedSlice, ProcessStanding,
        WindowNumber,
    },
    codec,
};

use super::{
    Budget, BudgetState,
    limit_book::WindowBook,
    tests::{Account, HOUR, USD, limit},
};
use crate::holder::{
    CallCost, CallNeeds, CallUsage, Holder, HolderInput, HolderOptions, HolderOutput, Need,
    Reservation,
};

/// What each input of a holder was stored as.
struct Desk {
    account: Account,
    holders: [Holder; 2],
    now: u64,
    sent: Vec<BudgetInput>,
}

fn holder(process: u128) -> Holder {
    Holder::new(ProcessId::from_u128(process), HolderOptions::default())
}

/// A call that costs so much, whatever is said to it.
fn call(usd: u64) -> CallNeeds {
    let cost = CallCost { fixed: usd, per_million: 0 };
    let needs = vec![Need { account: AccountKey::Cluster, limit: USD, cost, beside: 0 }];
    CallNeeds { needs, least_output: 1, most_output: 1 }
}

fn granted(out: &[HolderOutput]) -> Vec<u64> {
    let granted = out.iter().filter_map(|one| match one {
        HolderOutput::Granted(granted) => Some(granted.reservation.0),
        _ => None,
    });
    granted.collect()
}

impl Desk {
    fn new(amount: u64) -> Self {
        let account = Account::with(&[limit(USD, amount)]);
        Self { account, holders: [holder(1), holder(2)], now: 1_000, sent: Vec::new() }
    }

    /// What a holder sends is stored; what the account says to it is lost, except for [`Desk::tells`].
    fn does(&mut self, at: usize, input: HolderInput) -> Vec<HolderOutput> {
        let mut rest = Vec::new();
        for one in self.holders[at].handle(Timestamp(self.now), input) {
            match one {
                HolderOutput::Send(account, body) => {
                    self.sent.push(body.clone());
                    self.account.send(body);
                    rest.extend(self.does(at, HolderInput::Stored(account, true)));
                }
                other => rest.push(other),
            }
        }
        rest
    }

    fn reserve(&mut self, at: usize, number: u64, usd: u64) -> Vec<HolderOutput> {
        self.does(at, HolderInput::Reserve(Reservation(number), call(usd)))
    }

    fn settle(&mut self, at: usize, number: u64, usd: u64) {
        let usage = CallUsage::Known { usd, tokens: 0 };
        self.does(at, HolderInput::Settle(Reservation(number), usage));
        // It is reported.
        self.after(at, 1_000);
    }

    fn after(&mut self, at: usize, millis: u64) -> Vec<HolderOutput> {
        self.now += millis;
        self.does(at, HolderInput::Tick)
    }

    /// What the account says reaches a holder.
    fn tells(&mut self, at: usize) -> Vec<HolderOutput> {
        let process = self.holders[at].process();
        let state = &self.account.state;
        let (slices, answers) = (state.slices_of(process), state.answers_to(process));
        let (account, version) = (AccountKey::Cluster, state.n);
        self.does(
            at,
            HolderInput::Told(ProcessStanding { account, version, begun: None, slices, answers }),
        )
    }

    fn verdict(&self, at: usize) -> Option<AskVerdict> {
        let answers = self.account.state.answers_to(self.holders[at].process());
        answers.first().map(|answer| answer.verdict)
    }

    fn slices(&self, process: u128) -> Vec<GrantedSlice> {
        self.account.state.slices_of(ProcessId::from_u128(process))
    }

    /// Spent in the window, and spent or out.
    fn sums(&self) -> (u64, u64) {
        let current = &self.account.state.book(USD).unwrap().current;
        (current.spent(), current.committed())
    }

    /// The owner dies; the next one knows what the journal says.
    fn next_owner(&mut self) {
        let replayed = self.account.replayed();
        let read: BudgetState = codec::decode(&codec::encode(&replayed).unwrap()).unwrap();
        self.account.state = read;
    }
}

/// C18: an ask is stored, and the account's owner dies before it answers.
#[test]
fn c18_the_next_owner_answers_an_ask_with_the_same_slice() {
    let mut desk = Desk::new(200);
    assert!(granted(&desk.reserve(0, 1, 50)).is_empty());
    let (before, ask) = (desk.slices(1), desk.sent[0].clone());
    assert_eq!(before.len(), 1);
    desk.next_owner();
    let told = Budget::decide(&desk.account.state);
    assert!(!told.is_empty(), "the next owner has to tell the process");
    // The input was not acknowledged, and is delivered once more.
    assert_eq!(desk.account.send(ask), [], "it is not granted twice");
    assert_eq!(desk.slices(1), before);
    assert_eq!(granted(&desk.tells(0)), [1]);
    assert_eq!(desk.sums(), (0, 50));
}

/// C18, of an owner that dies before it has read the ask.
#[test]
fn c18_an_ask_that_no_owner_has_read_waits_in_the_inbox() {
    let mut desk = Desk::new(200);
    let mut out =
        desk.holders[0].handle(Timestamp(1), HolderInput::Reserve(Reservation(1), call(50)));
    let Some(HolderOutput::Send(_, ask)) = out.pop() else { panic!("{out:?}") };
    desk.next_owner();
    assert_eq!(desk.account.send(ask).len(), 1);
    assert_eq!(granted(&desk.tells(0)), [1]);
}

/// C19: a slice is granted, and its answer is lost.
#[test]
fn c19_a_lost_answer_is_asked_for_again_under_its_number_and_is_the_same_slice() {
    let mut desk = Desk::new(200);
    desk.reserve(0, 1, 50);
    let before = (desk.slices(1), desk.sums());
    for again in 1..=3 {
        desk.after(0, 2_000);
        assert_eq!(desk.sent.len(), 1 + again, "it asks again");
    }
    let numbers = desk.sent.iter().map(|sent| match sent {
        BudgetInput::Ask { asks, .. } => asks[0].number,
        other => panic!("{other:?}"),
    });
    assert!(numbers.collect::<Vec<_>>().windows(2).all(|two| two[0] == two[1]));
    assert_eq!((desk.slices(1), desk.sums()), before, "nothing more is granted");
    assert_eq!(granted(&desk.tells(0)), [1]);
}

/// A process whose calls need nothing has a part that another one waits for, and does not hear that.
#[test]
fn a_recall_that_was_lost_is_said_again_when_the_one_that_waits_asks_again() {
    let mut desk = Desk::new(100);
    desk.reserve(0, 1, 20);
    assert_eq!(granted(&desk.tells(0)), [1]);
    desk.settle(0, 1, 20);
    desk.reserve(1, 2, 78);
    assert_eq!(
        desk.verdict(1),
        Some(AskVerdict::Waits),
        "the other one has what is left of its slice"
    );
    desk.tells(1);
    let told = |desk: &Desk| {
        let told = desk.account.state.told().into_iter();
        told.filter(|(process, _)| process.as_u128() == 1).map(|(_, n)| n).next()
    };
    let lost = told(&desk);
    let asks = |desk: &mut Desk, millis| {
        desk.account.ts += millis;
        desk.after(1, millis);
        desk.tells(1);
    };
    asks(&mut desk, 9_999);
    assert_eq!(told(&desk), lost, "nothing is asked for again before");
    asks(&mut desk, 1);
    assert!(told(&desk) > lost, "it does not wait until that slice is idle for a minute");
    desk.tells(0);
    assert_eq!(granted(&desk.tells(1)), [2]);
}

/// C20: a process dies with a slice.
#[test]
fn c20_the_slice_of_a_dead_process_is_spent_until_its_window_ends() {
    let mut desk = Desk::new(100);
    desk.reserve(0, 1, 50);
    assert_eq!(granted(&desk.tells(0)), [1]);
    desk.holders[0] = holder(3);
    desk.reserve(1, 2, 60);
    assert_eq!(desk.verdict(1), Some(AskVerdict::Waits), "50 are stranded");
    assert_eq!(desk.slices(1).len(), 1, "it is known whose they are");
    assert!(granted(&desk.tells(1)).is_empty());
    desk.account.send(BudgetInput::TimerFired { due: Timestamp(HOUR) });
    // An hour has passed for the account, and what was asked before is forgotten until it is repeated.
    desk.after(1, 10_000);
    assert_eq!(granted(&desk.tells(1)), [2]);
    let previous = desk.account.state.book(USD).unwrap().previous.clone().unwrap();
    assert_eq!((previous.spent(), previous.committed()), (0, 50), "they count there for good");
}

/// C21: a window ends while a call runs.
#[test]
fn c21_a_call_is_settled_in_the_window_that_held_it() {
    let mut desk = Desk::new(100);
    desk.reserve(0, 1, 50);
    desk.tells(0);
    desk.account.send(BudgetInput::TimerFired { due: Timestamp(HOUR) });
    // Another process's call has the next window to itself.
    desk.reserve(1, 2, 100);
    assert_eq!(granted(&desk.tells(1)), [2]);
    desk.settle(0, 1, 30);
    let book = desk.account.state.book(USD).unwrap();
    assert_eq!(book.previous.as_ref().map(WindowBook::spent), Some(30));
    assert_eq!(desk.sums(), (0, 100), "BUD-4");
}

/// C22: a provider reports more than was reserved.
#[test]
fn c22_usage_above_a_hold_is_named_and_stops_grants_until_a_person_allows_more() {
    let mut desk = Desk::new(200);
    desk.reserve(0, 1, 50);
    desk.tells(0);
    desk.settle(0, 1, 70);
    assert_eq!(desk.sums(), (70, 70), "the excess counts");
    desk.reserve(1, 2, 40);
    assert!(granted(&desk.tells(1)).is_empty());
    let needs_person = AskVerdict::NeedsPerson { spent: 70, limit: 200 };
    assert_eq!(desk.verdict(1), Some(needs_person));
    // Also in the next window, and for the next owner.
    desk.account.send(BudgetInput::TimerFired { due: Timestamp(HOUR) });
    desk.after(1, 10_000);
    desk.next_owner();
    assert!(granted(&desk.tells(1)).is_empty());
    let (by, limit, window) = ("ada".to_owned(), USD, WindowNumber(1));
    let events = desk.account.send(BudgetInput::Allow { by, limit, window });
    assert!(matches!(events[..], [BudgetEvent::Allowed(_), BudgetEvent::Granted(_)]), "{events:?}");
    assert_eq!(granted(&desk.tells(1)), [2]);
}
