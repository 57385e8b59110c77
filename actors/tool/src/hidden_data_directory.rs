//! What the program of an MCP server does not see: the data directory of its node, with the token and
//! all conversations in it.
//!
//! Its keeper has a mount namespace of its own, in which that directory is an empty one; the folder that
//! the program runs in stays, where it is within. Where the node is not root it takes a user namespace
//! too, and nothing in there can undo it, nor look through other processes. A program that is root can
//! do anything to its host: from that nothing is hidden for sure.

use std::{env, fs, io, os::fd::AsRawFd, path::Path};

use rustix::{
    fs::{Mode, OFlags, open},
    mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change, mount_remount},
    process::{getgid, getuid},
    thread::UnshareFlags,
};

/// How the empty directory is mounted: it holds nothing but where the program runs.
const FLAGS: MountFlags = MountFlags::NODEV.union(MountFlags::NOSUID).union(MountFlags::NOEXEC);

/// Hides a directory from this process and what it starts. It must have one thread.
pub(super) fn hide(hidden: &Path) -> io::Result<()> {
    let hidden = hidden.canonicalize()?;
    let cwd = env::current_dir()?;
    let (uid, gid) = (getuid().as_raw(), getgid().as_raw());
    if uid == 0 {
        unshare(UnshareFlags::NEWNS)?;
    } else {
        unshare(UnshareFlags::NEWNS | UnshareFlags::NEWUSER)?;
        // User and groups are the same inside and outside.
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
        fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))?;
    }
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?;
    // By a handle: its name is about to lead nowhere.
    let here = open(".", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    mount("tmpfs", &hidden, "tmpfs", FLAGS, c"size=64k,mode=0755")?;
    if cwd.starts_with(&hidden) && cwd != hidden {
        fs::create_dir_all(&cwd)?;
        mount_bind(format!("/proc/self/fd/{}", here.as_raw_fd()), &cwd)?;
    }
    mount_remount(&hidden, FLAGS | MountFlags::RDONLY, c"")?;
    // What is open as the current directory still has the hidden one above it.
    env::set_current_dir(cwd)
}

#[expect(
    deprecated,
    reason = "unsafe where descriptors are unshared between threads, which is not asked for"
)]
fn unshare(what: UnshareFlags) -> io::Result<()> {
    Ok(rustix::thread::unshare(what)?)
}
