//! Control groups (version 2): limits of a command and all that it starts together, of memory that
//! it shares, of processor time.
//!
//! A node may divide a control group only where one was made its own: by systemd (`Delegate=yes`,
//! which marks the group), or by who set `sandbox.process.cgroup`. There the node moves itself into a
//! group of its own (`node`: a group that is divided has no processes), and each command gets one
//! (`run-ID`), which ends with it. Without, `setrlimit` holds, process by process, and `doctor` says so.

use std::{
    fmt, fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use rustix::fs::getxattr;
use tracing::debug;

use crate::sandbox::resource_limits::SandboxLimits;

/// Where the node itself is in its group.
const NODE: &str = "node";
/// What the name of a command's group begins with; an id of its own follows.
const RUN: &str = "run-";
/// How systemd marks a group that it leaves to a service; the second only root sees.
const MARKS: [&str; 2] = ["user.delegate", "trusted.delegate"];
/// What must be there, and what is taken where it is.
const NEEDED: [&str; 2] = ["memory", "pids"];
const CPU: &str = "cpu";
/// The period that processor time is shared out in (100 ms), in microseconds.
const PERIOD_US: u64 = 100_000;
/// Billionths of a processor that are a microsecond of each period.
const NANO_PER_US: u64 = 1_000_000_000 / PERIOD_US;
/// The least that the kernel takes (1 ms of each period).
const LEAST_US: u64 = 1_000;
/// After how long the group of a killed process is abandoned: longer than any command.
const LEFT: Duration = Duration::from_hours(2);

/// Why commands have no group of their own, for people.
pub(super) type Lack = String;

/// A group that this node divides.
#[derive(Debug)]
pub(super) struct Groups {
    root: PathBuf,
    has_cpu: bool,
    /// Groups of commands whose last process was still ending.
    ending: Mutex<Vec<PathBuf>>,
}

/// What control groups hold for commands here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupLimits {
    pub group: PathBuf,
    /// Whether processor time is limited too.
    pub cpu: bool,
}

/// The group of one command. Dropping it ends what is left in it.
#[derive(Debug)]
pub(super) struct CommandGroup {
    path: PathBuf,
    groups: Arc<Groups>,
}

/// The group that is process `pid`'s to divide.
pub(super) fn delegated(named: Option<&Path>, pid: u32) -> Result<PathBuf, Lack> {
    if let Some(named) = named {
        return if named.join("cgroup.controllers").exists() {
            Ok(named.to_owned())
        } else {
            Err(format!("`{}` is not a control group of version 2", named.display()))
        };
    }
    let own = own(pid)?;
    // With `DelegateSubgroup=` a service begins one below.
    let of_node = [Some(own.as_path()), own.parent()].into_iter().flatten();
    of_node
        .filter(|path| is_marked(path))
        .map(Path::to_owned)
        .next()
        .ok_or_else(|| format!("the control group `{}` is not delegated", own.display()))
}

/// The group that a process is in.
fn own(pid: u32) -> Result<PathBuf, Lack> {
    let read = |path: String| fs::read_to_string(&path).map_err(|e| format!("`{path}`: {e}"));
    let mounts = read("/proc/self/mountinfo".to_owned())?;
    let groups = read(format!("/proc/{pid}/cgroup"))?;
    let none = || "this host has no control groups of version 2".to_owned();
    let (root, mounted) = mount(&mounts).ok_or_else(none)?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::")).ok_or_else(none)?;
    let below = Path::new(own).strip_prefix(root).map_err(|_elsewhere| none())?;
    // That of a process outside of this namespace of groups.
    if below.components().any(|part| part.as_os_str() == "..") {
        return Err(none());
    }
    Ok(Path::new(mounted).join(below))
}

/// Which part of the groups is mounted, and where.
fn mount(mountinfo: &str) -> Option<(&str, &str)> {
    mountinfo.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(3);
        let (root, at) = (before.next()?, before.next()?);
        (after.split(' ').next() == Some("cgroup2")).then_some((root, at))
    })
}

fn is_marked(path: &Path) -> bool {
    MARKS.iter().any(|mark| {
        let mut value = [0_u8; 1];
        getxattr(path, *mark, &mut value) == Ok(1) && value == *b"1"
    })
}

// === impl GroupLimits ===

impl fmt::Display for GroupLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cpu = if self.cpu { ", processor time" } else { "" };
        write!(f, "all memory, processes{cpu} (control group `{}`)", self.group.display())
    }
}

/// What would hold in this group, without a change to it.
pub(super) fn look(root: &Path) -> Result<GroupLimits, Lack> {
    let path = root.join("cgroup.controllers");
    let has = fs::read_to_string(&path).map_err(|e| format!("`{}`: {e}", path.display()))?;
    let has = |wanted: &str| has.split_whitespace().any(|name| name == wanted);
    if let Some(lacks) = NEEDED.into_iter().find(|name| !has(name)) {
        return Err(format!("the control group `{}` has no `{lacks}`", root.display()));
    }
    Ok(GroupLimits { group: root.to_owned(), cpu: has(CPU) })
}

// === impl Groups ===

impl Groups {
    /// Takes possession of a group that is this process's to divide.
    pub(super) fn open(named: Option<&Path>) -> Result<Self, Lack> {
        let root = delegated(named, std::process::id())?;
        let GroupLimits { cpu, .. } = look(&root)?;
        Self::divide(root.clone(), cpu).map_err(|error| {
            format!("the control group `{}` cannot be divided: {error}", root.display())
        })
    }

    fn divide(root: PathBuf, has_cpu: bool) -> io::Result<Self> {
        let enabled = root.join("cgroup.subtree_control");
        let wanted = if has_cpu { "+memory +pids +cpu" } else { "+memory +pids" };
        if set(&enabled, wanted).is_err() {
            // Not while there are processes in it: this one goes.
            let node = root.join(NODE);
            match fs::create_dir(&node) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
                _ => set(&node.join("cgroup.procs"), "0")?,
            }
            set(&enabled, wanted)?;
        }
        let groups = Self { root, has_cpu, ending: Mutex::default() };
        groups.sweep();
        Ok(groups)
    }

    /// Removes what processes that were killed have left.
    fn sweep(&self) {
        let Ok(entries) = fs::read_dir(&self.root) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let id = name.to_str().and_then(|name| name.strip_prefix(RUN));
            let age = entry.metadata().ok().and_then(|about| about.modified().ok()?.elapsed().ok());
            if id.is_some_and(|id| id.parse::<ulid::Ulid>().is_ok())
                && age.is_some_and(|age| age > LEFT)
            {
                remove(&entry.path());
            }
        }
    }

    /// What holds in it.
    pub(super) fn held(&self) -> GroupLimits {
        GroupLimits { group: self.root.clone(), cpu: self.has_cpu }
    }

    /// A group for a command.
    pub(super) fn make(self: &Arc<Self>, limits: &SandboxLimits) -> io::Result<CommandGroup> {
        if let Ok(mut ending) = self.ending.lock() {
            ending.retain(|path| !remove(path));
        }
        let path = self.root.join(format!("{RUN}{}", ulid::Ulid::generate()));
        fs::create_dir(&path)?;
        let group = CommandGroup { path, groups: Arc::clone(self) };
        group.set("memory.max", &limits.memory.bytes().to_string())?;
        // A host may do without swap, and then there is nothing to limit.
        match group.set("memory.swap.max", "0") {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // All of it or nothing: half a command is no use to anybody.
        group.set("memory.oom.group", "1")?;
        group.set("pids.max", &limits.pids.to_string())?;
        if self.has_cpu {
            let most = (limits.cpus.nano() / NANO_PER_US).max(LEAST_US);
            group.set("cpu.max", &format!("{most} {PERIOD_US}"))?;
        }
        Ok(group)
    }
}

// === impl CommandGroup ===

impl CommandGroup {
    /// Adds a process, and with it all that it starts from now on.
    pub(super) fn take(&self, pid: u32) -> io::Result<()> {
        self.set("cgroup.procs", &pid.to_string())
    }

    /// Whether something in it was ended for want of memory.
    pub(super) fn is_out_of_memory(&self) -> bool {
        let events = fs::read_to_string(self.path.join("memory.events")).unwrap_or_default();
        let killed = events.lines().filter_map(|line| line.strip_prefix("oom_kill "));
        killed.filter_map(|count| count.parse::<u64>().ok()).any(|count| count > 0)
    }

    fn set(&self, file: &str, value: &str) -> io::Result<()> {
        set(&self.path.join(file), value)
    }
}

impl Drop for CommandGroup {
    fn drop(&mut self) {
        // Since Linux 5.14; bubblewrap's namespace ends all of them too.
        if let Err(error) = self.set("cgroup.kill", "1") {
            debug!(%error, "a control group cannot be killed as one");
        }
        if !remove(&self.path)
            && let Ok(mut ending) = self.groups.ending.lock()
        {
            ending.push(std::mem::take(&mut self.path));
        }
    }
}

/// Writes what the kernel reads in one piece.
fn set(path: &Path, value: &str) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).open(path)?;
    io::Write::write_all(&mut file, value.as_bytes())
}

/// Whether it is gone; not while a process in it is still ending.
fn remove(path: &Path) -> bool {
    match fs::remove_dir(path) {
        Ok(()) => true,
        Err(error) => error.kind() == ErrorKind::NotFound,
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{XattrFlags, setxattr};

    use super::*;
    use crate::sandbox::process::ProcessOptions;

    /// Files that look like a group's; the kernel's own make themselves.
    fn group(path: &Path, controllers: &str) {
        fs::create_dir_all(path).unwrap();
        fs::write(path.join("cgroup.controllers"), controllers).unwrap();
        for file in ["cgroup.subtree_control", "cgroup.procs"] {
            fs::write(path.join(file), "").unwrap();
        }
    }

    #[test]
    fn a_group_that_lacks_what_is_needed_is_not_divided() {
        let dir = tempfile::tempdir().unwrap();
        let named = dir.path().join("group");
        assert!(delegated(Some(&named), 1).unwrap_err().contains("not a control group"));
        group(&named, "cpuset io pids");
        assert_eq!(delegated(Some(&named), 1).as_deref(), Ok(named.as_path()));
        let lack = Groups::open(Some(&named)).unwrap_err();
        assert!(lack.contains("has no `memory`"), "{lack}");
        group(&named, "cpu memory pids\n");
        let held = look(&named).unwrap();
        assert_eq!(held, GroupLimits { group: named.clone(), cpu: true });
        assert!(held.to_string().starts_with("all memory, processes, processor time"), "{held}");
        group(&named, "memory pids");
        assert!(!look(&named).unwrap().cpu);
        let groups = Groups::open(Some(&named)).unwrap();
        assert_eq!(groups.held(), look(&named).unwrap());
        let enabled = fs::read_to_string(named.join("cgroup.subtree_control")).unwrap();
        assert_eq!(enabled, "+memory +pids");
        // A run whose limits cannot be set does not begin: here nothing makes its files.
        let limits = ProcessOptions::default().limits();
        assert!(Arc::new(groups).make(&limits).is_err());
        let left = fs::read_dir(&named).unwrap().flatten().any(|entry| entry.path().is_dir());
        assert!(!left, "it is removed again");
    }

    #[test]
    fn the_groups_of_version_2_are_found_among_all_mounts() {
        let mounts = "24 1 0:22 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      25 1 0:23 /part /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";
        assert_eq!(mount(mounts), Some(("/part", "/sys/fs/cgroup")));
        assert_eq!(mount("24 1 0:22 / /sys/fs/cgroup/cpu rw - cgroup cgroup2 rw\n"), None);
        assert_eq!(mount("garbage\n\n"), None);
    }

    #[test]
    fn what_nobody_delegated_is_not_taken() {
        let dir = tempfile::tempdir().unwrap();
        for (value, is_taken) in [(None, false), (Some(b"0"), false), (Some(b"1"), true)] {
            if let Some(value) = value {
                setxattr(dir.path(), MARKS[0], value, XattrFlags::empty()).unwrap();
            }
            assert_eq!(is_marked(dir.path()), is_taken, "{value:?}");
        }
    }
}
