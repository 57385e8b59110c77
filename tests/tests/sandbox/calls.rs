//! The filter of system calls: what is refused to commands and to what keepers start, tried from within.
//!
//! The twin is the same program outside, or behind a planted bug: there the kernel has all of it.

use std::{process::Command, process::Stdio};

use clawnode_executors::sandbox::SandboxBug;
use clawnode_proto::tool::ToolFailure;
use clawnode_tests::process::binary;
use clawnode_tool::Toolbox;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{call, processes, told};

/// Calls by their numbers: keyrings, `bpf`, `perf_event_open`, `userfaultfd`, `io_uring_*`.
#[cfg(target_arch = "x86_64")]
const NUMBERS: &str = "add_key=248, request_key=249, keyctl=250, perf=298, bpf=321, userfaultfd=323, \
                       uring_setup=425, uring_enter=426, uring_register=427";
#[cfg(target_arch = "aarch64")]
const NUMBERS: &str = "add_key=217, request_key=218, keyctl=219, perf=241, bpf=280, userfaultfd=282, \
                       uring_setup=425, uring_enter=426, uring_register=427";

/// What the kernel has of them: those that it answers in any other way than by `ENOSYS`, and the
/// families of sockets that it does not refuse as unknown. Nothing here changes anything but a keyring.
fn open_ways() -> String {
    format!(
        "import ctypes, errno, socket\n\
         libc = ctypes.CDLL(None, use_errno=True)\n\
         def has(number, *args):\n    \
             args = [a if isinstance(a, bytes) else ctypes.c_long(a) for a in args]\n    \
             done = libc.syscall(ctypes.c_long(number), *args)\n    \
             return done >= 0 or ctypes.get_errno() != errno.ENOSYS\n\
         args = dict(add_key=(b'user', b'clawnode-test', b'x', 1, -3), keyctl=(0, -3, 0),\n             \
             request_key=(b'user', b'clawnode-test', 0, 0), uring_enter=(-1, 0, 0, 0, 0),\n             \
             uring_register=(-1, 0, 0, 0), uring_setup=(1, 0))\n\
         found = [name for name, number in dict({NUMBERS}).items() if has(number, *args.get(name, (0, 0)))]\n\
         for family in range(1, 46):\n    \
             for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):\n        \
                 try:\n            socket.socket(family, kind).close()\n        \
                 except OSError as error:\n            \
                     if error.errno == errno.EAFNOSUPPORT:\n                continue\n        \
                 found.append(f'family {{family}}')\n        break\n\
         print(', '.join(found))\n"
    )
}

/// What is left: local sockets, both versions of IP, and what tells of interfaces.
const ALLOWED: &str = "family 1, family 2, family 10, family 16\n";

/// Calls a number of 32-bit programs, and one of x32's.
#[cfg(target_arch = "x86_64")]
const BY_OTHER_NUMBERS: [&str; 2] = [
    "import ctypes, mmap\n\
     page = mmap.mmap(-1, 4096, prot=7)\n\
     page.write(bytes([0xb8, 20, 0, 0, 0, 0xcd, 0x80, 0xc3]))\n\
     at = ctypes.addressof(ctypes.c_char.from_buffer(page))\n\
     print('back', ctypes.CFUNCTYPE(ctypes.c_int)(at)() > 0)",
    "import ctypes\nctypes.CDLL(None).syscall(0x40000000 + 39)\nprint('back')",
];

/// The same program on the host.
fn outside(code: &str) -> String {
    let said = Command::new("/usr/bin/python3").args(["-c", code]).output().unwrap();
    String::from_utf8_lossy(&said.stdout).into_owned()
}

/// The same program as that of an MCP server or a hook.
fn kept(code: &str) -> (String, Option<i32>) {
    let node = std::process::id().to_string();
    let mut keeper = Command::new(binary().unwrap());
    keeper.args(["mcp-keeper", &node, "", "/usr/bin/python3", "-c", code]).stdin(Stdio::null());
    let said = keeper.output().unwrap();
    (String::from_utf8_lossy(&said.stdout).into_owned(), said.status.code())
}

async fn python(toolbox: &Toolbox, code: &str) -> (Option<ToolFailure>, String) {
    let arguments = json!({ "code": code });
    told(call(toolbox, "run_python", arguments, CancellationToken::new()).await)
}

/// With Landlock and without it.
fn filtered() -> [Toolbox; 2] {
    ["if_present", "off"].map(|landlock| {
        processes(json!({ "process": { "landlock": landlock } }), SandboxBug::None, None)
    })
}

#[tokio::test]
async fn what_namespaces_do_not_divide_is_refused() {
    let code = open_ways();
    let there = outside(&code);
    for needed in ["add_key", "keyctl", "family 40"] {
        assert!(there.contains(needed), "this test needs a kernel with {needed}: {there}");
    }
    for toolbox in filtered() {
        assert_eq!(python(&toolbox, &code).await, (None, ALLOWED.to_owned()));
        // Nor are their names told.
        let list = "for name in ('/proc/keys', '/proc/key-users'):\n    \
                    try:\n        print(len(open(name).read()))\n    \
                    except OSError:\n        print('nothing')";
        assert_eq!(python(&toolbox, list).await, (None, "nothing\nnothing\n".to_owned()));
    }
    assert_eq!(kept(&code), (ALLOWED.to_owned(), Some(0)));
    // The twin.
    let unfiltered = processes(json!({}), SandboxBug::NoFilter, None);
    let (_, text) = python(&unfiltered, &code).await;
    for way in ["add_key", "keyctl", "family 40"] {
        assert!(text.contains(way), "{way}: {text}");
    }
}

/// A node that a login has started has its keyring, and so has what it starts.
#[test]
fn a_secret_in_the_keyring_of_a_login_is_not_read() {
    let node = std::process::id().to_string();
    let binary = binary().unwrap();
    let calls = format!(
        "import ctypes, os, sys\nlibc = ctypes.CDLL(None)\nnumbers = dict({NUMBERS})\n\
         def call(name, *args):\n    \
             args = [a if isinstance(a, bytes) else ctypes.c_long(a) for a in args]\n    \
             return libc.syscall(ctypes.c_long(numbers[name]), *args)\n"
    );
    let find = format!(
        "{calls}print('found' if call('keyctl', 10, -3, b'user', b'a secret', 0) > 0 else 'nothing')"
    );
    // A new keyring of a session, and a key in it: then this process becomes the other.
    let login = format!(
        "{calls}assert call('keyctl', 1, 0) > 0\n\
         assert call('add_key', b'user', b'a secret', b'x', 1, -3) > 0\n\
         os.execv(sys.argv[1], sys.argv[1:])"
    );
    let program = ["/usr/bin/python3", "-c", &find];
    for (before, wanted) in [
        (vec![], "found\n"),
        (vec![binary.to_str().unwrap(), "mcp-keeper", &node, ""], "nothing\n"),
    ] {
        let mut python = Command::new("/usr/bin/python3");
        python.args(["-c", &login]).args(before).args(program).stdin(Stdio::null());
        let said = python.output().unwrap();
        assert_eq!(String::from_utf8_lossy(&said.stdout), wanted, "{said:?}");
    }
}

#[cfg(target_arch = "x86_64")]
#[tokio::test]
async fn calls_by_the_numbers_of_other_programs_are_fatal() {
    let [toolbox, _] = filtered();
    for code in BY_OTHER_NUMBERS {
        // Whether the kernel has such numbers or not.
        let (failure, text) = python(&toolbox, code).await;
        assert_eq!(failure, Some(ToolFailure::Failed), "{text}");
        assert!(!text.contains("back"), "{text}");
        let (text, ended) = kept(code);
        assert!(!text.contains("back") && ended != Some(0), "{text}: {ended:?}");
    }
    // The twin: this one comes back whatever the kernel has.
    assert_eq!(outside(BY_OTHER_NUMBERS[1]), "back\n");
}
