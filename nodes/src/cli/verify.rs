//! `verify`: for those who run or build clawnode. What it runs is a program of its own, found
//! beside this one as git finds its commands, so that nothing of the tests is in this one.

use std::path::Path;

use clap::Args;
use tokio::process::Command;

use crate::failure::{Exit, Failure};

/// The program that does harm to a cluster and judges what is left.
const CHAOS: &str = "clawnode-chaos";
/// Its exit code for a command line that makes no sense.
const USAGE: i32 = 2;

#[derive(Debug, Args)]
pub(super) struct VerifyArgs {
    /// Inject faults into real processes under load, and check the result
    #[arg(long, required = true)]
    pub chaos: bool,
    /// Arguments for `clawnode-chaos`; `-- --help` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    pub args: Vec<String>,
}

/// Runs the program, and ends as it does.
pub(super) async fn run(args: &VerifyArgs) -> Result<Exit, Failure> {
    let own = std::env::current_exe().map_err(|error| {
        let message = format!("cannot find the path of this program: {error}");
        Failure::new(Exit::Failed, "internal", message)
    })?;
    run_beside(&own, &args.args).await
}

async fn run_beside(own: &Path, args: &[String]) -> Result<Exit, Failure> {
    let program = own.with_file_name(CHAOS);
    if !program.is_file() {
        let message = format!("`{}` does not exist: releases do not include it", program.display());
        return Err(Failure::new(Exit::Failed, "not_built", message).hint(
            "in the source tree: `cargo build -p clawnode --features test-util && cargo build -p \
             clawnode-tests --bins`, then `target/debug/clawnode verify --chaos`",
        ));
    }
    let status = Command::new(&program).args(args).status().await.map_err(|error| {
        let message = format!("cannot run `{}`: {error}", program.display());
        Failure::new(Exit::Failed, "not_built", message).hint("build it again")
    })?;
    Ok(match status.code() {
        Some(0) => Exit::Ok,
        Some(USAGE) => Exit::Usage,
        _ => Exit::Failed,
    })
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[tokio::test]
    async fn the_program_beside_is_run_with_its_arguments_and_ends_the_command() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("clawnode");
        let missing = run_beside(&own, &[]).await.unwrap_err();
        assert_eq!((missing.exit, missing.code), (Exit::Failed, "not_built"));
        assert!(missing.message.contains(CHAOS), "{missing}");
        assert!(missing.hint.unwrap().contains("cargo build"), "it says how to build it");

        let program = dir.path().join(CHAOS);
        fs::write(&program, "#!/bin/sh\nexit \"$2\"\n").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        for (code, exit) in [("0", Exit::Ok), ("1", Exit::Failed), ("2", Exit::Usage)] {
            let args = ["--seed".to_owned(), code.to_owned()];
            assert_eq!(run_beside(&own, &args).await.unwrap(), exit);
        }
    }
}
