//! `config`: the settings, where each was set, and whether they are valid.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;

use super::{
    command_context::{CliContext, sources},
    flags::GlobalFlags,
    output::{Output, Tone},
};
use crate::{
    config::{Env, load, needs_restart, show},
    failure::{Exit, Failure},
    node::{agents_and_models, memories},
};

/// What `config --help` ends with.
const EXAMPLES: &str = "\
Examples:
  clawnode config show
  clawnode config show --json | jq '.settings[] | select(.origin != \"default\")'
  clawnode config check
  clawnode config check ./config.toml";

#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(super) enum ConfigCommand {
    /// Show every setting, its value, and where it was set; secrets are left out
    Show,
    /// Check a configuration: exit code 0 if it is valid, 78 if not
    Check(CheckArgs),
}

/// `config check`.
#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// The file to check, instead of the default one
    pub file: Option<PathBuf>,
}

/// `config show`.
pub(super) fn show(context: &CliContext) -> Result<Exit, Failure> {
    let settings = show::settings(&context.loaded).map_err(|error| {
        Failure::new(Exit::Failed, "internal", format!("cannot write settings: {error}"))
    })?;
    let out = context.out;
    let document = json!({ "file": context.loaded.file, "settings": settings });
    out.document(&document, |_| {
        let row = |setting: &show::ShownSetting| {
            vec![setting.key.clone(), setting.value.to_string(), setting.origin.clone()]
        };
        out.table(&["key", "value", "from"], settings.iter().map(row))
    })?;
    Ok(Exit::Ok)
}

/// `config check`.
pub(super) fn check(
    args: &CheckArgs,
    flags: &GlobalFlags,
    env: &Env,
    out: Output,
) -> Result<Exit, Failure> {
    let mut sources = sources(flags, env);
    if args.file.is_some() {
        sources.file.clone_from(&args.file);
    }
    let loaded = load(&sources)?;
    let warnings = agents_and_models::check(&loaded)?.warnings;
    memories::check_folder_model(&loaded)?;
    let sections = needs_restart::of_file(&loaded);
    let document =
        json!({ "file": loaded.file, "ok": true, "warnings": warnings, "sections": sections });
    out.document(&document, |_| {
        let valid = match &loaded.file {
            Some(file) => format!("`{}` is valid", file.display()),
            None => "there is no configuration file; all other settings are valid".to_owned(),
        };
        let restart: Vec<String> =
            sections.restart.iter().map(|section| format!("`{section}`")).collect();
        let restart = (!restart.is_empty()).then(|| {
            format!("\na running node takes changes of {} after a restart", restart.join(", "))
        });
        let warnings =
            warnings.iter().map(|warning| format!("\n{}", out.paint(Tone::Warn, warning)));
        restart.into_iter().chain(warnings).fold(valid, |text, line| text + &line)
    })?;
    Ok(Exit::Ok)
}
