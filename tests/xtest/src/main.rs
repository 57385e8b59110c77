//! `cargo xtest`: the one command that sets up what the tests need, checks and runs everything.
//!
//! Standard library only, so that it builds in a second on a fresh machine. What it installs goes
//! to `.tools` in the workspace; what the tests leave in temporary files goes with the run.
//!
//! A failed check does not hide the next one: all steps run, and the end names those that failed.
//! Only what nothing can follow (set-up, the build) stops the run at once.

mod beside;
mod compiler;
mod languages;
mod options;
mod report;
mod steps;
mod tools;
mod workspace;

use std::process::ExitCode;

use crate::{
    options::{Options, Parsed},
    report::Report,
    workspace::Workspace,
};

/// The exit code for a command line that makes no sense.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    if let Some(compiled) = compiler::compile() {
        return compiled;
    }
    let options = match Options::parse(std::env::args().skip(1)) {
        Parsed::Run(options) => options,
        Parsed::Help => {
            report::say(options::HELP);
            return ExitCode::SUCCESS;
        }
        Parsed::Wrong(why) => {
            report::say(&format!("error: {why}\n\n{}", options::HELP));
            return ExitCode::from(USAGE);
        }
    };
    let workspace = match Workspace::enter() {
        Ok(workspace) => workspace,
        Err(error) => {
            report::say(&format!("error: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let mut report = Report::default();
    steps::run(&options, &workspace, &mut report);
    workspace.clean();
    report.finish()
}
