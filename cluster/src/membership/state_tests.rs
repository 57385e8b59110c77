//! One process's judgement of the others, with time in hand.

use std::collections::{BTreeMap, BTreeSet};

use clawnode_proto::{
    Digest, ProcessId, Timestamp,
    node::{Hearsay, Heartbeat, Load, NodeRole, VersionRange},
};
use tokio::time::{Duration, Instant};

use super::{MembershipOptions, doubt::Probed, state::MembershipState};
use crate::BusConnection;

const ME: u128 = 1;

fn id(process: u128) -> ProcessId {
    ProcessId::from_u128(process)
}

pub(super) fn heartbeat(process: u128, server: &str) -> Heartbeat {
    Heartbeat {
        providers: Vec::new(),
        process: id(process),
        node: "n".parse().unwrap(),
        version: "0".to_owned(),
        roles: vec![NodeRole::Worker],
        started: Timestamp(0),
        draining: false,
        entities: 0,
        config: Digest::ZERO,
        cordoned: false,
        speaks: VersionRange::default(),
        capabilities: BTreeSet::new(),
        load: Load::default(),
        shed: 0,
        first_of: 0,
        knows: BTreeSet::new(),
        lacks: BTreeSet::new(),
        leaving: false,
        url: None,
        time: None,
        agents: Vec::new(),
        spending: None,
        file: clawnode_proto::node::FileState::default(),
        server: server.to_owned(),
    }
}

fn on(server: &str) -> BusConnection {
    BusConnection { server: server.to_owned(), breaks: 0 }
}

/// Time that a test moves.
struct Scene {
    now: Instant,
    state: MembershipState,
}

impl Scene {
    /// This process on server `a`, with these others on theirs; each has answered once.
    fn new(others: &[(u128, &str)]) -> Self {
        let now = Instant::now();
        let mut state = MembershipState::new(id(ME), MembershipOptions::default(), now);
        state.attached(now, on("a"));
        state.hear(now, heartbeat(ME, "a"));
        for &(process, server) in others {
            assert!(state.hear(now, heartbeat(process, server)), "it is a stranger");
            state.probed(now, id(process), Probed::Answered);
        }
        Self { now, state }
    }

    fn pass(&mut self, millis: u64) {
        self.now += Duration::from_millis(millis);
        self.state.hear(self.now, heartbeat(ME, "a"));
    }

    /// No process listens at `process`, `times` in a row.
    fn no_listener(&mut self, process: u128, times: u32) {
        for _ in 0..times {
            self.state.probed(self.now, id(process), Probed::NoListener);
            self.pass(300);
        }
    }

    fn is_dead(&self, process: u128) -> bool {
        self.state.members(self.now, BTreeMap::new()).dead.contains(&id(process))
    }
}

#[test]
fn silence_kills_only_while_the_own_echo_is_unbroken() {
    let mut scene = Scene::new(&[(2, "a")]);
    let start = scene.now;
    let at = |seconds| start + Duration::from_secs(seconds);
    // It does not hear itself either: no process is dead.
    scene.state.judge(at(20));
    assert!(!scene.is_dead(2));
    // The echo is back, but the gap is too fresh to judge by.
    scene.state.hear(at(20), heartbeat(ME, "a"));
    scene.state.judge(at(21));
    assert!(!scene.is_dead(2));
    for second in 21..=31 {
        scene.state.hear(at(second), heartbeat(ME, "a"));
    }
    scene.state.judge(at(31));
    assert!(scene.is_dead(2));
    // A process that sends a heartbeat again lives again.
    scene.state.hear(at(32), heartbeat(2, "a"));
    assert!(!scene.is_dead(2));
    assert_eq!(scene.state.members(at(32), BTreeMap::new()).seats().len(), 2);
}

#[test]
fn whoever_was_never_heard_is_dead_once_silence_would_have_killed_it() {
    let mut scene = Scene::new(&[(2, "a")]);
    let holds_dead =
        |scene: &Scene, who| scene.state.members(scene.now, BTreeMap::new()).holds_dead(id(who));
    for _ in 0..6 {
        assert!(!holds_dead(&scene, 7), "not listened for long enough");
        scene.pass(1_000);
        scene.state.hear(scene.now, heartbeat(2, "a"));
    }
    assert!(holds_dead(&scene, 7));
    assert!(!holds_dead(&scene, 2) && !holds_dead(&scene, ME), "they speak");
    // Silence during a gap, or over a connection that broke, proves nothing.
    scene.state.attached(scene.now, BusConnection { server: "a".to_owned(), breaks: 1 });
    assert!(!holds_dead(&scene, 7));
    for _ in 0..10 {
        scene.pass(1_000);
    }
    assert!(holds_dead(&scene, 7));
    scene.now += Duration::from_secs(4);
    assert!(!holds_dead(&scene, 7), "it is deaf to itself");
    scene.pass(0);
    assert!(!holds_dead(&scene, 7), "the gap is too fresh");
    scene.state.hear(scene.now, heartbeat(7, "a"));
    for _ in 0..10 {
        scene.pass(1_000);
    }
    assert!(!holds_dead(&scene, 7), "heard, and not yet judged");
}

#[test]
fn who_hangs_on_the_same_server_and_answers_no_more_is_dead_after_the_second_request() {
    let mut scene = Scene::new(&[(2, "a")]);
    scene.no_listener(2, 1);
    assert_eq!(scene.state.tells(), [Hearsay::Suspected { process: id(2) }]);
    assert_eq!(scene.state.asks(scene.now), [id(2)], "asked again, once");
    assert!(!scene.is_dead(2));
    scene.no_listener(2, 1);
    assert!(scene.is_dead(2));
    assert_eq!(scene.state.tells(), [Hearsay::Gone { process: id(2) }]);
}

#[test]
fn two_answers_at_once_are_one() {
    let mut scene = Scene::new(&[(2, "a")]);
    scene.state.probed(scene.now, id(2), Probed::NoListener);
    scene.state.probed(scene.now, id(2), Probed::NoListener);
    assert!(!scene.is_dead(2));
}

#[test]
fn an_answer_in_between_clears_of_doubt() {
    for answer in [Probed::Answered, Probed::Unknown] {
        let mut scene = Scene::new(&[(2, "a")]);
        scene.no_listener(2, 1);
        scene.state.probed(scene.now, id(2), answer);
        scene.no_listener(2, 1);
        assert!(!scene.is_dead(2), "{answer:?}");
    }
}

#[test]
fn who_never_answered_is_not_doubted() {
    let mut scene = Scene::new(&[]);
    scene.state.hear(scene.now, heartbeat(2, "a"));
    scene.no_listener(2, 3);
    assert!(!scene.is_dead(2));
    assert!(scene.state.tells().is_empty());
}

#[test]
fn clients_of_another_server_are_not_held_dead_because_it_may_be_the_server() {
    let mut scene = Scene::new(&[(2, "b")]);
    scene.no_listener(2, 8);
    assert!(!scene.is_dead(2), "whether its server lives is unknown");
    // A witness on that server does.
    scene.state.hearsay(scene.now, &Hearsay::Gone { process: id(2) });
    assert!(scene.is_dead(2));
}

#[test]
fn hearsay_kills_nobody_who_answers() {
    let mut scene = Scene::new(&[(2, "a")]);
    scene.state.hearsay(scene.now, &Hearsay::Gone { process: id(2) });
    scene.state.judge(scene.now);
    assert!(!scene.is_dead(2));
    assert!(scene.state.asks(scene.now).contains(&id(2)), "it is asked");
    scene.state.probed(scene.now, id(2), Probed::Answered);
    scene.no_listener(2, 1);
    assert!(!scene.is_dead(2));
    // Hearsay about this process itself does not count.
    scene.state.hearsay(scene.now, &Hearsay::Gone { process: id(ME) });
    scene.no_listener(ME, 3);
    assert!(!scene.is_dead(ME));
}

#[test]
fn a_servers_word_is_a_reason_to_ask_and_knows_that_the_server_lives() {
    let mut scene = Scene::new(&[(2, "b")]);
    scene.state.parted(scene.now, id(2));
    assert_eq!(scene.state.asks(scene.now).iter().filter(|one| **one == id(2)).count(), 1);
    assert!(!scene.is_dead(2));
    scene.no_listener(2, 2);
    assert!(scene.is_dead(2));
}

#[test]
fn after_a_break_of_its_own_connection_it_holds_nobody_dead_for_a_while() {
    let mut scene = Scene::new(&[(2, "a"), (3, "a")]);
    scene.state.attached(scene.now, BusConnection { breaks: 1, ..on("a") });
    scene.no_listener(2, 5);
    assert!(!scene.is_dead(2));
    for _ in 0..9 {
        scene.pass(1_000);
        scene.state.hear(scene.now, heartbeat(2, "a"));
        scene.state.hear(scene.now, heartbeat(3, "a"));
    }
    scene.no_listener(3, 2);
    assert!(scene.is_dead(3), "by then it judges again");
}

#[test]
fn after_a_break_or_a_gap_whoever_was_heard_since_is_judged_by_answers_again() {
    for is_gap in [false, true] {
        let mut scene = Scene::new(&[(2, "a"), (3, "a")]);
        if is_gap {
            scene.pass(4_000);
        } else {
            scene.state.attached(scene.now, BusConnection { breaks: 1, ..on("a") });
        }
        // Both are on their way back.
        scene.no_listener(2, 3);
        scene.state.hear(scene.now, heartbeat(2, "a"));
        scene.no_listener(2, 2);
        assert!(!scene.is_dead(2), "what was sent before may arrive as late");
        scene.pass(1_000);
        scene.state.hear(scene.now, heartbeat(2, "a"));
        scene.no_listener(2, 1);
        assert!(!scene.is_dead(2), "what was found before it was heard proves nothing");
        scene.no_listener(2, 1);
        assert!(scene.is_dead(2), "gap: {is_gap}");
        scene.no_listener(3, 4);
        assert!(!scene.is_dead(3), "it may still be on its way");
    }
}

#[test]
fn a_newcomer_holds_dead_whom_others_do_and_who_does_not_answer() {
    // The others know that 7 has died.
    let mut other = Scene::new(&[(7, "a")]);
    other.no_listener(7, 2);
    assert!(other.is_dead(7));
    other.state.tells();
    other.state.hear(other.now, heartbeat(9, "a"));
    assert_eq!(other.state.tells(), [Hearsay::Dead { process: id(7) }]);
    other.pass(1_000);
    other.state.hear(other.now, heartbeat(9, "a"));
    assert!(other.state.tells().is_empty(), "it is no newcomer any more");
    // A joining process sends a heartbeat without a role before it listens.
    let joining = Heartbeat { roles: Vec::new(), ..heartbeat(8, "a") };
    assert!(other.state.hear(other.now, joining.clone()));
    assert!(!other.state.hear(other.now, joining));
    assert!(other.state.tells().is_empty(), "it does not listen yet");
    assert!(other.state.hear(other.now, heartbeat(8, "a")));
    assert_eq!(other.state.tells(), [Hearsay::Dead { process: id(7) }], "it listens now");
    // The newcomer has not heard 7, and asks for itself.
    for answer in [Probed::NoListener, Probed::Unknown, Probed::Answered] {
        let mut scene = Scene::new(&[]);
        scene.state.hearsay(scene.now, &Hearsay::Suspected { process: id(7) });
        scene.state.hearsay(scene.now, &Hearsay::Gone { process: id(7) });
        assert!(
            scene.state.asks(scene.now).is_empty(),
            "these are about processes that were heard"
        );
        scene.state.hearsay(scene.now, &Hearsay::Dead { process: id(7) });
        assert_eq!(scene.state.asks(scene.now), [id(7)]);
        scene.no_listener(7, 1);
        assert!(!scene.is_dead(7), "once is not enough");
        assert_eq!(scene.state.asks(scene.now), [id(7)]);
        scene.state.probed(scene.now, id(7), answer);
        assert_eq!(scene.is_dead(7), answer == Probed::NoListener, "{answer:?}");
        assert!(scene.state.tells().is_empty(), "the process that told it knows");
        scene.pass(1_000);
        assert!(scene.state.asks(scene.now).is_empty(), "it is asked no more");
        scene.state.hear(scene.now, heartbeat(9, "a"));
        assert!(scene.state.tells().is_empty(), "it does not pass on hearsay");
        scene.state.hear(scene.now, heartbeat(7, "a"));
        assert!(!scene.is_dead(7), "it is back");
    }
}

#[test]
fn what_a_newcomer_is_told_is_little_and_recent_and_told_by_three() {
    let mut scene = Scene::new(&[]);
    for process in 100..200 {
        scene.state.hear(scene.now, heartbeat(process, "a"));
        scene.state.probed(scene.now, id(process), Probed::Answered);
    }
    for process in 100..200 {
        scene.state.probed(scene.now, id(process), Probed::NoListener);
    }
    scene.pass(300);
    for process in 100..200 {
        scene.state.probed(scene.now, id(process), Probed::NoListener);
    }
    assert!((100..200).all(|process| scene.is_dead(process)));
    scene.state.tells();
    scene.state.hear(scene.now, heartbeat(9, "a"));
    assert_eq!(scene.state.tells().len(), 32);
    scene.state.hear(scene.now, heartbeat(11, "a"));
    assert!(scene.state.tells().is_empty(), "not again within a moment");
    scene.pass(120_000);
    scene.state.hear(scene.now, heartbeat(10, "a"));
    assert!(scene.state.tells().is_empty(), "what is long ago is left to silence");
    // Of ten that hear of a newcomer, the three after it inform it.
    let tellers = (1..=10).filter(|me| {
        let mut state = MembershipState::new(id(*me), MembershipOptions::default(), scene.now);
        for process in (1..=10).chain([50]) {
            state.hear(scene.now, heartbeat(process, "a"));
            state.probed(scene.now, id(process), Probed::Answered);
        }
        for again in 0..2 {
            let at = scene.now + Duration::from_millis(300 * again);
            state.hear(at, heartbeat(*me, "a"));
            state.attached(at, on("a"));
            state.probed(at, id(50), Probed::NoListener);
        }
        state.tells();
        state.hear(scene.now + Duration::from_secs(1), heartbeat(8 << 64 | 5, "a"));
        !state.tells().is_empty()
    });
    assert_eq!(tellers.collect::<Vec<u128>>(), [1, 2, 3], "the ring begins again after the last");
    // A newcomer stores a bounded amount, whatever others send it.
    let mut new = Scene::new(&[]);
    for process in 1_000..2_000 {
        new.state.hearsay(new.now, &Hearsay::Dead { process: id(process) });
    }
    assert_eq!(new.state.asks(new.now).len(), 64);
    // A process that is heard after all is not in doubt any more.
    for _ in 0..2 {
        new.state.probed(new.now, id(1_000), Probed::NoListener);
        new.state.hear(new.now, heartbeat(1_000, "a"));
        new.pass(300);
    }
    assert!(!new.is_dead(1_000));
    // Nor does hearsay count about a process that this one hears, nor is it needed once it has
    // listened for long.
    let mut old = Scene::new(&[(2, "b")]);
    old.state.hearsay(old.now, &Hearsay::Dead { process: id(2) });
    old.no_listener(2, 8);
    assert!(!old.is_dead(2));
    for _ in 0..7 {
        old.pass(1_000);
    }
    old.state.asks(old.now);
    old.state.hearsay(old.now, &Hearsay::Dead { process: id(7) });
    assert!(!old.state.asks(old.now).contains(&id(7)));
}

#[test]
fn each_worker_is_asked_by_the_three_before_it_in_the_ring() {
    let all: Vec<u128> = (1..=6).collect();
    let mut asked: BTreeMap<ProcessId, usize> = BTreeMap::new();
    let now = Instant::now();
    for me in &all {
        let mut state = MembershipState::new(id(*me), MembershipOptions::default(), now);
        for one in &all {
            state.hear(now, heartbeat(*one, "a"));
        }
        for process in state.asks(now) {
            assert_ne!(process, id(*me));
            *asked.entry(process).or_default() += 1;
        }
        assert!(state.asks(now).is_empty(), "not before its time");
    }
    assert!(asked.len() == 6 && asked.values().all(|count| *count == 3), "{asked:?}");
}

#[test]
fn it_is_settled_a_while_after_it_heard_itself() {
    let now = Instant::now();
    let mut state = MembershipState::new(id(ME), MembershipOptions::default(), now);
    let later = now + Duration::from_secs(5);
    assert!(!state.members(later, BTreeMap::new()).settled);
    state.hear(later, heartbeat(ME, "a"));
    assert!(!state.members(later, BTreeMap::new()).settled);
    let settled = later + MembershipOptions::default().settle;
    assert!(state.wake(later) <= settled);
    assert!(state.members(settled, BTreeMap::new()).settled);
}

#[test]
fn who_drains_or_is_cordoned_or_is_no_worker_has_no_seat() {
    let mut scene = Scene::new(&[]);
    let others = [
        Heartbeat { draining: true, ..heartbeat(2, "a") },
        Heartbeat { cordoned: true, ..heartbeat(3, "a") },
        Heartbeat { roles: vec![NodeRole::Gateway], ..heartbeat(4, "a") },
        Heartbeat { shed: 2, ..heartbeat(5, "a") },
    ];
    for other in others {
        scene.state.hear(scene.now, other);
    }
    let seats = scene.state.members(scene.now, BTreeMap::new()).seats();
    let seats: Vec<_> = seats.iter().map(|seat| (seat.process, seat.shed)).collect();
    assert_eq!(seats, [(id(ME), 0), (id(5), 2)]);
}
