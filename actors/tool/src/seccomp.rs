//! A filter of system calls (seccomp), for programs that run for agents: it lasts for a process,
//! across exec and for its children.
//!
//! It names what is refused, and lets the rest through: programs differ too much for a list of
//! calls that they may make. Refused are parts of the kernel that namespaces do not divide (keyrings, sockets of
//! virtual machines), or that have let programs out before and that few need.

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch, apply_filter, sock_filter,
};

/// Refused as by a kernel without them (`ENOSYS`), for which programs are prepared.
const CALLS: [i64; 9] = [
    // Keyrings are of a user or of a login, whichever namespace a process is in.
    libc::SYS_add_key,
    libc::SYS_keyctl,
    libc::SYS_request_key,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    // What is asked of it no filter sees.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_userfaultfd,
];
/// Sockets of other families than these are refused (`EAFNOSUPPORT`): a namespace of networks holds
/// some of them (`AF_VSOCK`, which leads to the host of a virtual machine) not at all.
const FAMILIES: [i32; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
/// The system calls that make sockets; their first argument is the family.
const SOCKETS: [i64; 2] = [libc::SYS_socket, libc::SYS_socketpair];
/// On x86-64 all calls are there once more from this number on (x32), and filters by number miss
/// those. A process that makes one is killed, as one is that uses the calls of another architecture.
const X32: u32 = 0x4000_0000;
/// A number that tracers use for "no call at all".
const NO_CALL: u32 = u32::MAX;

/// Instructions of the kernel's filters, from `linux/bpf_common.h`.
const LOAD_WORD: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;
/// The offset of the call's number.
const NUMBER: u32 = 0;

/// Why there is no filter.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    #[error("no filter can be made for this architecture")]
    Make(#[from] BackendError),
    #[error("the kernel does not take a filter of system calls")]
    Install(#[from] seccompiler::Error),
}

/// Filters the calls of this thread from now on; there is no way back. It gains no privileges by
/// programs that it becomes, either.
pub fn apply() -> Result<(), FilterError> {
    for program in programs()? {
        apply_filter(&program)?;
    }
    Ok(())
}

/// All of them hold; the strictest answer counts.
fn programs() -> Result<Vec<BpfProgram>, BackendError> {
    let arch: TargetArch = std::env::consts::ARCH.try_into()?;
    let calls = CALLS.into_iter().map(|call| (call, Vec::new())).collect();
    let mut foreign = Vec::new();
    for family in FAMILIES {
        let family = u64::from(family.unsigned_abs());
        foreign.push(SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, family)?);
    }
    let foreign = SeccompRule::new(foreign)?;
    let sockets = SOCKETS.into_iter().map(|call| (call, vec![foreign.clone()])).collect();
    let mut all =
        vec![refusing(calls, libc::ENOSYS, arch)?, refusing(sockets, libc::EAFNOSUPPORT, arch)?];
    if arch == TargetArch::x86_64 {
        all.push(no_x32());
    }
    Ok(all)
}

fn refusing(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    error: i32,
    arch: TargetArch,
) -> Result<BpfProgram, BackendError> {
    let refused = SeccompAction::Errno(error.unsigned_abs());
    SeccompFilter::new(rules, SeccompAction::Allow, refused, arch)?.try_into()
}

fn no_x32() -> BpfProgram {
    let does = |code, k| sock_filter { code, jt: 0, jf: 0, k };
    vec![
        does(LOAD_WORD, NUMBER),
        // Below: to the end. Jumps count the instructions that they leave out.
        sock_filter { code: JUMP_IF_AT_LEAST, jt: 0, jf: 2, k: X32 },
        sock_filter { code: JUMP_IF_EQUAL, jt: 1, jf: 0, k: NO_CALL },
        does(RETURN, libc::SECCOMP_RET_KILL_PROCESS),
        does(RETURN, libc::SECCOMP_RET_ALLOW),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel would do with such a program, for the instructions that are used here.
    fn answer(program: &BpfProgram, number: u32) -> u32 {
        let (mut at, mut loaded) = (0, 0);
        loop {
            let sock_filter { code, jt, jf, k } = &program[at];
            at += 1;
            let is_so = match *code {
                LOAD_WORD => {
                    assert_eq!(*k, NUMBER);
                    loaded = number;
                    continue;
                }
                JUMP_IF_AT_LEAST => loaded >= *k,
                JUMP_IF_EQUAL => loaded == *k,
                RETURN => return *k,
                other => unreachable!("{other:#x}"),
            };
            at += usize::from(if is_so { *jt } else { *jf });
        }
    }

    #[test]
    fn calls_by_other_numbers_are_fatal() {
        let program = no_x32();
        let (kill, allow) = (libc::SECCOMP_RET_KILL_PROCESS, libc::SECCOMP_RET_ALLOW);
        let keyctl = u32::try_from(libc::SYS_keyctl).unwrap();
        for (number, wanted) in [
            (0, allow),
            (keyctl, allow),
            (X32 - 1, allow),
            (X32, kill),
            (X32 + keyctl, kill),
            (NO_CALL - 1, kill),
            (NO_CALL, allow),
        ] {
            assert_eq!(answer(&program, number), wanted, "{number:#x}");
        }
        let there = programs().unwrap().contains(&program);
        assert_eq!(there, cfg!(target_arch = "x86_64"));
    }
}
