//! The second wall: what Landlock leaves to a command that is in a sandbox already.
//!
//! It holds where the first wall has a hole: files beneath the paths that the command is shown, no
//! signals and no abstract sockets out of it, whatever is mounted or shared by mistake. It is not a
//! sandbox by itself, and never taken for one: it does not cover the list of processes, resource
//! use, or networks. Landlock could refuse TCP, by ports alone: that would take `localhost` from a
//! command's own programs (a test and its server), and UDP would still work.

use std::{fmt, path::PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, PathFdError,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use rustix::fs::{FileType, fstat};
use serde::{Deserialize, Serialize};

use super::output_files::{OUTLET, Outlet};
use crate::sandbox::spec::{ARTIFACTS, AgentFiles, SandboxPolicy};

/// What a kernel can keep of the wall, by the first version of Landlock that does; later ones are
/// not asked for more, as nothing here was tried with it.
const STEPS: [(ABI, &str); 2] = [(ABI::V3, "files"), (ABI::V6, "signals and abstract sockets")];
/// What every command may read and write, where it is there; nothing else is in its sandbox.
const OWN: [&str; 2] = ["/tmp", "/dev/shm"];
/// Devices, of which a sandbox has the harmless ones alone.
const DEVICES: &str = "/dev";
/// What programs read about themselves.
const PROCESSES: &str = "/proc";

/// How much of the wall this kernel keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "i32", into = "i32")]
pub struct Strength(ABI);

/// The wall of one command, as the paths are named in its sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LandlockRules {
    strength: Strength,
    /// What may be read and run.
    read: Vec<PathBuf>,
    /// What may be changed too.
    write: Vec<PathBuf>,
}

/// Why it cannot be put up.
#[derive(Debug, thiserror::Error)]
pub(super) enum WallError {
    #[error("Landlock does not accept the rules")]
    Rules(#[from] RulesetError),
    #[error("cannot read `{}`", .0.display())]
    Path(PathBuf, #[source] std::io::Error),
    #[error("Landlock applies only some of the rules")]
    Partial,
}

// === impl Strength ===

impl Strength {
    /// The most that there is to ask for.
    pub(super) const FULL: Self = Self(ABI::V6);

    /// What this host's kernel enforces, found by asking it; no process is restricted.
    pub fn of_host() -> Option<Self> {
        let keeps = |abi: &ABI| ruleset(*abi).is_ok();
        STEPS.iter().rev().map(|(abi, _)| *abi).find(keeps).map(Self)
    }

    /// What is missing of it, for people; empty where nothing is.
    pub(super) fn lacks(strength: Option<Self>) -> String {
        let lacks =
            STEPS.iter().filter(|(abi, _)| strength.is_none_or(|strength| strength.0 < *abi));
        let lacks: Vec<String> = lacks.map(|(abi, what)| format!("{what} (ABI {abi})")).collect();
        lacks.join(", ")
    }
}

impl fmt::Display for Strength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keeps = STEPS.iter().filter(|(abi, _)| *abi <= self.0);
        let keeps: Vec<&str> = keeps.map(|(_, what)| *what).collect();
        write!(f, "ABI {}: {}", self.0, keeps.join(", "))
    }
}

impl TryFrom<i32> for Strength {
    type Error = String;

    fn try_from(abi: i32) -> Result<Self, String> {
        let known = STEPS.iter().map(|(known, _)| *known).find(|known| *known as i32 == abi);
        known.map(Self).ok_or_else(|| format!("ABI {abi} of Landlock is not supported"))
    }
}

impl From<Strength> for i32 {
    fn from(strength: Strength) -> Self {
        strength.0 as Self
    }
}

// === impl LandlockRules ===

impl LandlockRules {
    /// That of a command that is shown these paths.
    pub(super) fn new(
        strength: Strength,
        shown: &[PathBuf],
        policy: &SandboxPolicy,
        workspace: &str,
        outlet: Option<&Outlet>,
    ) -> Self {
        let mut read = shown.to_vec();
        read.push(PROCESSES.into());
        let mut write: Vec<PathBuf> = OWN.map(PathBuf::from).into();
        if let Some(AgentFiles { is_read_only, .. }) = &policy.workspace {
            if *is_read_only { &mut read } else { &mut write }.push(workspace.into());
        }
        if outlet.is_some() {
            write.extend([ARTIFACTS, OUTLET].map(PathBuf::from));
        }
        Self { strength, read, write }
    }

    /// Shuts this process in, and all that it becomes and starts; there is no way back.
    pub(super) fn put_up(&self) -> Result<(), WallError> {
        let abi = self.strength.0;
        let all = AccessFs::from_all(abi);
        let devices = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::ReadDir;
        // Of terminals, where a later kernel asks.
        let devices = devices | (all & AccessFs::IoctlDev);
        let mut rules = ruleset(abi)?;
        let read = self.read.iter().map(|path| (path.clone(), AccessFs::from_read(abi)));
        let write = self.write.iter().map(|path| (path.clone(), all));
        for (path, access) in read.chain(write).chain([(DEVICES.into(), devices)]) {
            rules = allow(rules, path, access, abi)?;
        }
        let kept = rules.restrict_self()?;
        if kept.ruleset == RulesetStatus::FullyEnforced && kept.no_new_privs {
            Ok(())
        } else {
            Err(WallError::Partial)
        }
    }
}

/// All that this version can refuse, with nothing allowed yet.
fn ruleset(abi: ABI) -> Result<RulesetCreated, RulesetError> {
    let rules = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let mut rules = rules.handle_access(AccessFs::from_all(abi))?;
    if !Scope::from_all(abi).is_empty() {
        rules = rules.scope(Scope::from_all(abi))?;
    }
    rules.create()
}

/// Allows this beneath a path. One that is not there needs nothing allowed.
fn allow(
    rules: RulesetCreated,
    path: PathBuf,
    access: BitFlags<AccessFs>,
    abi: ABI,
) -> Result<RulesetCreated, WallError> {
    let opened = match PathFd::new(&path) {
        Ok(opened) => opened,
        Err(PathFdError::OpenCall { source, .. })
            if source.kind() == std::io::ErrorKind::NotFound =>
        {
            return Ok(rules);
        }
        Err(PathFdError::OpenCall { source, path, .. }) => {
            return Err(WallError::Path(path, source));
        }
        Err(other) => return Err(WallError::Path(path, std::io::Error::other(other))),
    };
    let about = fstat(&opened).map_err(|error| WallError::Path(path, error.into()))?;
    let is_folder = FileType::from_raw_mode(about.st_mode) == FileType::Directory;
    let access = if is_folder { access } else { access & AccessFs::from_file(abi) };
    Ok(rules.add_rule(PathBeneath::new(opened, access))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::{
        process::ProcessOptions,
        spec::{Network, User},
    };

    fn wall(workspace: Option<AgentFiles>, outlet: Option<&Outlet>) -> LandlockRules {
        let policy = SandboxPolicy {
            image: None,
            limits: ProcessOptions::default().limits(),
            network: Network::None,
            workspace,
            user: User::nobody(),
        };
        LandlockRules::new(Strength::FULL, &["/usr".into()], &policy, "/workspace", outlet)
    }

    fn paths(paths: &[PathBuf]) -> Vec<&str> {
        paths.iter().filter_map(|path| path.to_str()).collect()
    }

    #[test]
    fn a_wall_has_a_gate_for_what_is_shown_and_for_nothing_else() {
        let files = |is_read_only| AgentFiles { directory: "/srv/a".into(), is_read_only };
        let bare = wall(None, None);
        assert_eq!(paths(&bare.read), ["/usr", "/proc"]);
        assert_eq!(paths(&bare.write), ["/tmp", "/dev/shm"]);
        let read_only = wall(Some(files(true)), None);
        assert_eq!(paths(&read_only.read), ["/usr", "/proc", "/workspace"]);
        assert_eq!(read_only.write, bare.write);
        let outlet = Outlet::make(User::nobody(), false).unwrap();
        let all = wall(Some(files(false)), Some(&outlet));
        let own = ["/tmp", "/dev/shm", "/workspace", "/artifacts", "/artifacts.tar"];
        assert_eq!((paths(&all.read), paths(&all.write)), (vec!["/usr", "/proc"], own.into()));
    }

    #[test]
    fn a_wall_is_told_to_whoever_puts_it_up_and_no_other_is_believed() {
        let wall = wall(None, None);
        let text = serde_json::to_string(&wall).unwrap();
        let wanted = r#"{"strength":6,"read":["/usr","/proc"],"write":["/tmp","/dev/shm"]}"#;
        assert_eq!(text, wanted);
        assert_eq!(serde_json::from_str::<LandlockRules>(&text).unwrap(), wall);
        for bad in [
            &text.replace(":6", ":0"),
            &text.replace(":6", ":99"),
            &text.replace("read", "reads"),
            "{}",
            "",
        ] {
            assert!(serde_json::from_str::<LandlockRules>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let all = "files (ABI 3), signals and abstract sockets (ABI 6)";
        assert_eq!(Strength::lacks(None), all);
        let some = Strength(ABI::V3);
        assert_eq!(Strength::lacks(Some(some)), "signals and abstract sockets (ABI 6)");
        assert_eq!(some.to_string(), "ABI 3: files");
        assert_eq!(Strength::lacks(Some(Strength::FULL)), "");
    }
}
