//! Which inputs a memory takes, and which effects it wants.

use clawnode_kernel::EntityKind as _;
use clawnode_proto::{
    IdempotencyKey, Input, codec, memory::MemoryTrust, memory_point::MemoryInput,
};

use super::{
    Memory, MemoryEffect, MemoryJob, MemoryState,
    tests::{Book, DAY, at, told},
};

#[test]
fn a_memory_begins_with_a_point_and_reads_only_its_own() {
    let name: IdempotencyKey = "a".parse().unwrap();
    let input = |key: &str, body: &MemoryInput| {
        Input::new(Memory::KIND, key, name.clone(), at(0), body).unwrap()
    };
    let put = MemoryInput::Put { points: vec![told(1, "a", MemoryTrust::Person)] };
    assert!(Memory::begins(&input("default/all", &put)));
    assert!(Memory::understands(&input("default/all", &put)));
    assert!(!Memory::understands(&input("default", &put)), "that is not the key of a memory");
    assert!(!Memory::begins(&input("default/all", &MemoryInput::Delete {})));
}

#[test]
fn a_memory_wants_to_be_listed_and_a_timer() {
    let mut book = Book::new();
    assert_eq!(Memory::decide(&book.state), []);
    book.put(vec![told(1, "a", MemoryTrust::Person)]);
    let wanted = [MemoryEffect::Timer(at(DAY)), MemoryEffect::List(1)];
    assert_eq!(Memory::decide(&book.state), wanted);
    let Some(MemoryJob::Timer(timer)) = Memory::prepare(&book.state, &wanted[0], false) else {
        panic!()
    };
    let fired: MemoryInput = codec::decode(&timer.input.body).unwrap();
    assert_eq!((timer.due, fired), (at(DAY), MemoryInput::TimerFired { due: at(DAY) }));
    book.accept(MemoryInput::Delete {});
    assert!(Memory::doomed(&book.state));
    assert_eq!(Memory::decide(&book.state), []);
    Memory::deleted(&mut book.state);
    assert_eq!(book.state, MemoryState::default(), "no personal data stays");
}
