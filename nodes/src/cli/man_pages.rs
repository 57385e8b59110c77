//! `completions` and `man`: the command line for shells and for manuals.

use std::{io, path::PathBuf};

use clap::{Args, ValueEnum};
use clap_complete::Shell;
use serde_json::json;

use super::{clap_command, output::Output};
use crate::failure::{Exit, Failure};

/// The program's name.
const PROGRAM: &str = "clawnode";

/// What `completions --help` ends with.
const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  clawnode completions bash > ~/.local/share/bash-completion/completions/clawnode
  clawnode completions zsh > ~/.zfunc/_clawnode          with `fpath+=~/.zfunc` before `compinit`
  clawnode completions fish > ~/.config/fish/completions/clawnode.fish";

/// What `man --help` ends with.
const MAN_EXAMPLES: &str = "\
Examples:
  clawnode man --out ~/.local/share/man/man1      then `man clawnode`, `man clawnode-sessions`";

#[derive(Debug, Args)]
#[command(after_help = COMPLETIONS_EXAMPLES)]
pub(super) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    shell: For,
}

#[derive(Debug, Args)]
#[command(after_help = MAN_EXAMPLES)]
pub(super) struct ManArgs {
    /// The directory to write to, one page for each command; files there are replaced
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// A shell whose completions are tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum For {
    Bash,
    Zsh,
    Fish,
}

impl From<For> for Shell {
    fn from(shell: For) -> Self {
        match shell {
            For::Bash => Self::Bash,
            For::Zsh => Self::Zsh,
            For::Fish => Self::Fish,
        }
    }
}

pub(super) fn completions(args: &CompletionsArgs, out: Output) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    let shell = Shell::from(args.shell);
    clap_complete::generate(shell, &mut clap_command::documented(), PROGRAM, &mut script);
    out.bytes(&script)?;
    Ok(Exit::Ok)
}

pub(super) fn man(args: &ManArgs, out: Output) -> Result<Exit, Failure> {
    let write = || -> io::Result<()> {
        std::fs::create_dir_all(&args.out)?;
        clap_mangen::generate_to(clap_command::documented(), &args.out)
    };
    write().map_err(|error| {
        let what = format!("cannot write man pages to `{}`: {error}", args.out.display());
        Failure::new(Exit::Failed, "output", what).hint("name another directory with `--out`")
    })?;
    out.aside(&format!("man pages are in `{}`", args.out.display()));
    Ok(Exit::Ok)
}

pub(super) fn version(out: Output) -> Result<Exit, Failure> {
    let version = env!("CARGO_PKG_VERSION");
    out.document(&json!({ "version": version }), |_| format!("{PROGRAM} {version}"))?;
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Env;

    #[test]
    fn each_command_has_a_man_page_without_settings_that_it_does_not_use() {
        let dir = tempfile::tempdir().unwrap();
        let args = ManArgs { out: dir.path().join("man1") };
        man(&args, Output::new(true, false, &Env::default())).unwrap();
        let page = |name: &str| std::fs::read_to_string(args.out.join(name));
        let list = page("clawnode-sessions-list.1").unwrap();
        assert!(list.contains("clawnode sessions list \\-\\-since 2h"), "{list}");
        assert!(!list.contains("tls\\-cert"), "{list}");
        assert!(page("clawnode-up.1").unwrap().contains("tls\\-cert"));
        assert!(page("clawnode.1").unwrap().contains("Exit codes"));
        assert!(page("clawnode-verify.1").is_err(), "it is for those who build clawnode");
    }

    #[test]
    fn a_directory_that_cannot_be_written_is_named() {
        let args = ManArgs { out: "/proc/none".into() };
        let failure = man(&args, Output::new(false, false, &Env::default())).unwrap_err();
        assert!(failure.message.contains("`/proc/none`"), "{failure}");
    }
}
