//! From a policy and a command to what is run on this host: pure.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use super::{
    ProcessOptions,
    output_files::{self, OUTLET, Outlet},
    sandboxed_exec::{Steps, Walls},
};
#[cfg(feature = "test-util")]
use crate::sandbox::planted::SandboxBug;
use crate::sandbox::{
    resource_limits::SandboxLimits,
    spec::{ARTIFACTS, ARTIFACTS_VARIABLE, AgentFiles, SandboxCommand, SandboxPolicy, WALLS},
};

/// Where programs are looked for.
pub(super) const PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";
/// Where the agent's files are.
pub(super) const WORKSPACE: &str = "/workspace";
/// Open files of one process.
const FILES: u32 = 1_024;

/// A path of this host that commands see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum VisiblePath {
    /// As it is.
    Tree(PathBuf),
    /// A link, and where it leads.
    Link(PathBuf, PathBuf),
    /// A file of `/proc` that shows more than the sandbox: it exists, and cannot be read.
    Hidden(PathBuf),
}

/// The program that limits what follows it.
pub(super) const PRLIMIT: &str = "prlimit";

/// What limits a process and its children; the program to run follows.
pub(super) fn limits(limits: &SandboxLimits, max_file: u64) -> Vec<OsString> {
    [
        // Memory that can be written: what is only reserved costs nothing.
        format!("--data={}", limits.memory.bytes()),
        format!("--nproc={}", limits.pids),
        format!("--fsize={max_file}"),
        format!("--nofile={FILES}"),
        "--core=0".to_owned(),
        "--".to_owned(),
    ]
    .map(OsString::from)
    .into()
}

/// What runs within bubblewrap.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inside<'a> {
    pub(super) command: &'a SandboxCommand,
    /// Where its files leave.
    pub(super) outlet: Option<&'a Outlet>,
    /// The other walls, and who puts them up.
    pub(super) walls: Option<(&'a Steps, &'a Walls)>,
}

/// The command within bubblewrap, from the program on.
pub(super) fn isolated(
    options: &ProcessOptions,
    shown: &[VisiblePath],
    policy: &SandboxPolicy,
    Inside { command, outlet, walls }: Inside<'_>,
    #[cfg(feature = "test-util")] planted: SandboxBug,
) -> serde_json::Result<Vec<OsString>> {
    let mut argv = ArgvBuilder(vec![options.bwrap.clone().into_os_string()]);
    argv.add(["--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]);
    // Within a user namespace of its own a command could try what only root may.
    argv.add(["--unshare-user", "--disable-userns"]);
    argv.add(["--hostname", "sandbox", "--clearenv", "--setenv", "PATH", PATH]);
    for (name, value) in command.environment() {
        argv.add(["--setenv", name, value]);
    }
    let (uid, gid) = (policy.user.uid().to_string(), policy.user.gid().to_string());
    argv.add(["--uid", &uid, "--gid", &gid]);
    for visible in shown {
        match visible {
            VisiblePath::Tree(path) => argv.paths("--ro-bind-try", path, path),
            VisiblePath::Link(path, target) => argv.paths("--symlink", target, path),
            VisiblePath::Hidden(_) => {}
        }
    }
    argv.add(["--proc", "/proc", "--dev", "/dev"]);
    for visible in shown {
        if let VisiblePath::Hidden(path) = visible {
            // A device that cannot be opened, on a mount without devices.
            argv.paths("--ro-bind", Path::new("/dev/null"), path);
        }
    }
    // File systems in memory have a size, or nothing can be written: `/dev` itself has none.
    let size = policy.limits.tmp.bytes().to_string();
    argv.add(["--size", &size, "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]);
    argv.add(["--size", &size, "--tmpfs", "/tmp"]);
    if let Some(outlet) = outlet {
        argv.add(["--size", &size, "--tmpfs", ARTIFACTS]);
        argv.paths("--bind", outlet.path(), Path::new(OUTLET));
        argv.add(["--setenv", ARTIFACTS_VARIABLE, ARTIFACTS]);
    }
    let workdir = policy.workspace.as_ref().map_or("/tmp", |files| {
        let AgentFiles { directory, is_read_only } = files;
        let bind = if *is_read_only { "--ro-bind" } else { "--bind" };
        argv.paths(bind, directory, Path::new(WORKSPACE));
        WORKSPACE
    });
    argv.add(["--chdir", workdir]);
    // Nothing above can be changed from within.
    argv.add(["--remount-ro", "/"]);
    if let Some((_, walls)) = walls {
        argv.add(["--setenv", WALLS, &serde_json::to_string(walls)?]);
    }
    #[cfg(feature = "test-util")]
    plant(&mut argv.0, planted);
    if let Some((steps, _)) = walls {
        // Do not show paths of this host, keys and walls.
        let unseen = Steps::unseen(argv.0.len() - 1);
        argv.0.splice(1..1, unseen);
        argv.add(["--"]);
        argv.0.extend(steps.enter());
    } else {
        argv.add(["--"]);
    }
    if outlet.is_some() {
        argv.add(output_files::wrapper());
    }
    let items = command.argv.items().iter().map(String::as_str);
    argv.add(items);
    Ok(argv.0)
}

/// Breaks the first wall.
#[cfg(feature = "test-util")]
fn plant(argv: &mut Vec<OsString>, planted: SandboxBug) {
    let more: &[&str] = match planted {
        SandboxBug::SharedPids => {
            argv.retain(|item| item != "--unshare-all" && item != "--die-with-parent");
            &["--unshare-uts", "--unshare-net"]
        }
        SandboxBug::HostNetwork => &["--share-net"],
        SandboxBug::HostFiles => &["--bind", "/", "/host"],
        _ => &[],
    };
    let at = argv.iter().position(|item| item == "--new-session").map_or(1, |at| at + 1);
    argv.splice(at..at, more.iter().map(OsString::from));
}

struct ArgvBuilder(Vec<OsString>);

// === impl ArgvBuilder ===

impl ArgvBuilder {
    fn add<'a>(&mut self, items: impl IntoIterator<Item = &'a str>) {
        self.0.extend(items.into_iter().map(OsString::from));
    }

    fn paths(&mut self, option: &str, from: &Path, to: &Path) {
        self.0.extend([OsString::from(option), from.into(), to.into()]);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::sandbox::spec::{Argv as Items, Network, User};
    use clawnode_tool::RunSink;

    fn argv(items: &[&str], workspace: Option<AgentFiles>) -> Vec<String> {
        handing_out(items, workspace, None)
    }

    fn handing_out(
        items: &[&str],
        workspace: Option<AgentFiles>,
        outlet: Option<&Outlet>,
    ) -> Vec<String> {
        let options = ProcessOptions::default();
        let policy = SandboxPolicy {
            image: None,
            limits: options.limits(),
            network: Network::None,
            workspace,
            user: User::nobody(),
        };
        let command = SandboxCommand {
            argv: Items::new(items.iter().map(|&item| item.to_owned()).collect()).unwrap(),
            stdin: Vec::new(),
            idempotency_key: "job_1".to_owned(),
            timeout: Duration::from_secs(1),
            sink: RunSink::default(),
        };
        let shown = [
            VisiblePath::Tree("/usr".into()),
            VisiblePath::Link("/bin".into(), "usr/bin".into()),
            VisiblePath::Hidden("/proc/keys".into()),
        ];
        let argv = isolated(
            &options,
            &shown,
            &policy,
            Inside { command: &command, outlet, walls: None },
            #[cfg(feature = "test-util")]
            SandboxBug::None,
        );
        argv.unwrap().into_iter().map(|item| item.into_string().unwrap()).collect()
    }

    #[test]
    fn a_command_cannot_become_an_option() {
        let hostile = ["--bind", "/", "/", "--share-net", "--", "sh"];
        let argv = argv(&hostile, None);
        let end = argv.iter().position(|item| item == "--").unwrap();
        assert_eq!(argv[end + 1..], hostile);
        let ours = argv[..end].join(" ");
        for wanted in [
            "bwrap --unshare-all --die-with-parent --new-session --cap-drop ALL",
            "--clearenv",
            "--setenv CLAWNODE_IDEMPOTENCY_KEY job_1",
            "--uid 65534 --gid 65534 --ro-bind-try /usr /usr --symlink usr/bin /bin",
            "--proc /proc --dev /dev --ro-bind /dev/null /proc/keys",
            "--size 67108864 --tmpfs /dev/shm --remount-ro /dev",
            "--size 67108864 --tmpfs /tmp --chdir /tmp --remount-ro /",
        ] {
            assert!(ours.contains(wanted), "{wanted}: {ours}");
        }
        assert!(!ours.contains("--share-net") && !ours.contains("--bind "), "{ours}");
    }

    #[test]
    fn files_leave_through_one_file_and_no_shell_looks_at_the_command() {
        let outlet = Outlet::make(User::nobody(), false).unwrap();
        let hostile = ["exec", "-x", "A=b; $(id)"];
        let argv = handing_out(&hostile, None, Some(&outlet));
        let end = argv.iter().position(|item| item == "--").unwrap();
        let (ours, run) = (argv[..end].join(" "), &argv[end + 1..]);
        let path = outlet.path().display();
        let mounted = format!("--size 67108864 --tmpfs /artifacts --bind {path} /artifacts.tar");
        assert!(ours.contains(&mounted) && ours.ends_with("--remount-ro /"), "{ours}");
        assert_eq!((run[0].as_str(), run[1].as_str()), ("/usr/bin/sh", "-c"));
        assert!(run[2].contains("-- \"$@\" "), "{run:?}");
        assert_eq!(run[4..], hostile);
        let path = outlet.path().to_owned();
        drop(outlet);
        assert!(!path.exists());
    }

    #[test]
    fn only_the_agents_files_can_be_written() {
        let files = |is_read_only| AgentFiles { directory: "/srv/a b".into(), is_read_only };
        let with = |files: AgentFiles| argv(&["ls"], Some(files)).join("|");
        assert!(with(files(false)).contains("|--bind|/srv/a b|/workspace|--chdir|/workspace|"));
        assert!(with(files(true)).contains("|--ro-bind|/srv/a b|/workspace|"));
    }
}
