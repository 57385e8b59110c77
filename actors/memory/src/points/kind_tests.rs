//! Which inputs a memory takes, and which effects it wants.

use clawnode_kernel::EntityKind as _;
use clawnode_proto::{
    IdempotencyKey, Input, codec, envelope::IMPORT, memory::MemoryTrust, memory_point::MemoryInput,
};

use super::{
    Memory, MemoryEffect, MemoryJob, MemoryState,
    tests::{Book, DAY, at, forget_source, told},
};

#[test]
fn a_memory_begins_with_a_point_and_reads_only_its_own() {
    let name: IdempotencyKey = "a".parse().unwrap();
    let input = |key: &str, body: &MemoryInput| {
        Input::new(Memory::KIND, key, name.clone(), at(0), body).unwrap()
    };
    let put = MemoryInput::Put { points: vec![told(1, "a", MemoryTrust::Person)] };
    assert!(Memory::begins(&input("default/all", &put)));
    let import = MemoryInput::Import { points: Vec::new() };
    assert!(Memory::begins(&input("default/all", &import)), "an export comes back");
    let oldest = |body: &MemoryInput| {
        let memory = "default/all".parse().unwrap();
        Memory::input(&memory, name.clone(), at(0), body).unwrap().v_min
    };
    assert_eq!(oldest(&import), IMPORT, "older builds leave it to newer ones");
    assert!(oldest(&put) < IMPORT);
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

/// What only the journal has leaves it as well.
#[test]
fn a_text_that_no_state_has_is_purged() {
    let mut book = Book::new();
    let forgotten = told(1, "a", MemoryTrust::Person);
    let id = book.put(vec![forgotten.clone()]).added[0];
    book.forget(id);
    Memory::purged(&mut book.state);
    assert!(!book.state.has_text(id), "it is gone");
    assert_eq!(book.put(vec![forgotten]).known, [id], "MEM-3");
    assert!(
        book.state.has_text(id) && book.state.purge_due().is_some(),
        "an import brought it again"
    );

    let mut book = Book::new();
    book.put(vec![told(2, &"x".repeat(1_001), MemoryTrust::Person)]);
    assert_eq!(book.state.purge_due(), None);
    let source = told(2, "", MemoryTrust::Person).source.unwrap().entity;
    assert!(book.state.may_know_of(source), "what it refused is in its journal");
    book.accept(forget_source(source, None, None));
    assert!(book.state.purge_due().is_some());
    Memory::purged(&mut book.state);
    assert!(!book.state.may_know_of(source));
}
