//! What a process asks of its host before it starts any thread.

use rustix::{
    fs::Mode,
    process::{Resource, Rlimit, getrlimit, setrlimit, umask},
};

/// Files that the node keeps open beside connections: segments of the log, programs, sockets. A log
/// of 32 GiB has about a thousand segments.
const FILES_BESIDE_CONNECTIONS: u64 = 2_048;

/// The first descriptor that is no standard stream.
const FIRST_DESCRIPTOR: i32 = 3;

/// Lets only the owner read files that this process and its programs write, and raises its limit of
/// open files. Descriptors that this process has inherited (from a shell, a supervisor, a CI
/// harness) go no further: programs that it starts get only their standard streams, as Rust marks
/// only files that it opens itself. All of that belongs to the whole process: call this before any
/// thread runs.
pub fn prepare() {
    close_fds::set_fds_cloexec(FIRST_DESCRIPTOR, &[]);
    umask(Mode::RWXG | Mode::RWXO);
    let limit = getrlimit(Resource::Nofile);
    // `doctor`, and the node at its start, report a limit that cannot be raised.
    let _raised = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// How many files this process may have open; `u64::MAX` without a limit.
pub fn files() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// How many files a node should be able to open that serves so many connections.
pub fn files_wanted(connections: u32) -> u64 {
    u64::from(connections) + FILES_BESIDE_CONNECTIONS
}
