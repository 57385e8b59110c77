//! Every bound of a plugin, with its reason.

use std::time::Duration;

/// Bytes of a component (64 MiB): those that carry an interpreter have 20, a mistake has more.
pub const COMPONENT_BYTES: usize = 64 << 20;
/// Calls at once in one process (16); the room for their instances is set aside at the start.
pub const CALLS: u32 = 16;
/// Bytes of linear memory that an instance may have, all its memories together (128 MiB): what a
/// small interpreter takes, and 16 of them fit into a small machine.
pub const MEMORY_BYTES: usize = 128 << 20;
/// Linear memories of one component (4).
pub const MEMORIES: u32 = 4;
/// Elements of one table (100,000): functions of large programs.
pub const TABLE_ELEMENTS: usize = 100_000;
/// Tables of one component (16).
pub const TABLES: u32 = 16;
/// Core instances that one component is made of (64): linked libraries have one each.
pub const INSTANCES: u32 = 64;
/// Bytes of stack for a plugin's own frames (512 KiB), of the 2 MiB that a thread has.
pub const STACK_BYTES: usize = 512 << 10;
/// Instructions of one call, nearly (2 * 10^10): ten seconds or more of a core. Waiting is bounded
/// by the deadline; this bounds what a call costs others.
pub const FUEL: u64 = 20_000_000_000;
/// How often a running plugin is looked at: a call that is to end ends this much later at most, and
/// what the system's scheduling adds.
pub const TICK: Duration = Duration::from_millis(10);
/// Calls to the host in one call (10,000).
pub const HOST_CALLS: u32 = 10_000;
/// Bytes that the host copies from a plugin at once (4 MiB). A list of strings that all lie in one
/// place is small there and large here.
pub const LIFTED_BYTES: usize = 4 << 20;
/// How long a plugin may take to say what tools it has (5 s).
pub const DESCRIBE: Duration = Duration::from_secs(5);
/// Tools of one plugin (32).
pub const TOOLS: usize = 32;
