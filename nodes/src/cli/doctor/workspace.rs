//! The check of agents' files.

use std::path::Path;

use clawnode_executors::sandbox::WorkspaceAccess;
use rustix::fs::{StatVfsMountFlags, statvfs};

use super::Check;
use crate::config::Config;

const NAME: &str = "workspace.mount";

/// Whether files that agents' commands leave give no rights on this host. It matters if the node is
/// root: then commands run as the owner of the files, who may be any user.
pub(super) fn check(config: &Config) -> Option<Check> {
    let root = &config.workspace.as_ref()?.root;
    let is_written = config.sandbox.workspace == WorkspaceAccess::ReadWrite;
    if !rustix::process::geteuid().is_root() || !is_written {
        return None;
    }
    let mount = statvfs(root).map(|about| about.f_flag).map_err(|error| error.to_string());
    Some(judge(root, mount))
}

fn judge(root: &Path, mount: Result<StatVfsMountFlags, String>) -> Check {
    let fix = "mount it with `nosuid,nodev`, or run the node as a user other than root";
    let root = root.display();
    match mount {
        Ok(flags) if flags.contains(StatVfsMountFlags::NOSUID) => {
            Check::green(NAME, format!("`{root}` is on a mount with `nosuid`"))
        }
        Ok(_) => {
            let found = format!(
                "the node is root, and agents' commands write to `{root}`, which is mounted \
                 without `nosuid`. If they create a set-user-ID program there, every user of this \
                 host can run it as its owner"
            );
            Check::yellow(NAME, found, fix)
        }
        Err(error) => Check::yellow(NAME, format!("cannot inspect `{root}`: {error}"), fix),
    }
}

#[cfg(test)]
mod tests {
    use clawnode_executors::WorkspaceOptions;

    use super::{super::CheckStatus, *};

    #[test]
    fn a_workspace_where_programs_may_gain_rights_is_yellow() {
        let root = Path::new("/srv/agents");
        for (mount, verdict) in [
            (Ok(StatVfsMountFlags::NOSUID | StatVfsMountFlags::RELATIME), CheckStatus::Green),
            (Ok(StatVfsMountFlags::NODEV), CheckStatus::Yellow),
            (Err("gone".to_owned()), CheckStatus::Yellow),
        ] {
            let check = judge(root, mount);
            assert_eq!(check.verdict, verdict, "{check:?}");
            assert!(check.found.contains("/srv/agents"), "{check:?}");
        }
    }

    #[test]
    fn it_is_looked_at_where_root_has_agents_write() {
        let mut config = Config::default();
        assert!(check(&config).is_none());
        config.workspace = Some(WorkspaceOptions::new("/proc".into()));
        for (access, is_asked) in [
            (WorkspaceAccess::ReadWrite, rustix::process::geteuid().is_root()),
            (WorkspaceAccess::ReadOnly, false),
            (WorkspaceAccess::None, false),
        ] {
            config.sandbox.workspace = access;
            assert_eq!(check(&config).is_some(), is_asked, "{access:?}");
        }
    }
}
