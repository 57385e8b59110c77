//! Which inputs a memory takes.

use clawnode_kernel::EntityKind as _;
use clawnode_proto::{IdempotencyKey, Input, memory::MemoryTrust, memory_point::MemoryInput};

use super::{
    Memory,
    tests::{at, told},
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
