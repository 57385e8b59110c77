//! The steps, in their order, and the one set of features that all of them share: `--workspace
//! --all-features`, so that no dependency is compiled twice in the same manner.

use std::{
    io::{self, BufRead, BufReader, IsTerminal, Write},
    process::{Command, Stdio},
};

use crate::{
    options::Options,
    report::Report,
    tools::{self, Runner, finish},
    workspace::Workspace,
};

/// What every cargo command of the run has in common.
const EVERYTHING: [&str; 2] = ["--workspace", "--all-features"];

pub(crate) fn run(options: &Options, workspace: &Workspace, report: &mut Report) {
    if options.lint {
        report.step("fmt", |_| finish(cargo(workspace).args(["fmt", "--all", "--check"])));
    }
    if (options.test || options.chaos || !options.lint)
        && !report.step("set-up", |_| tools::set_up(workspace))
    {
        return;
    }
    if options.lint {
        report.step("clippy", |_| {
            let mut clippy = cargo(workspace);
            clippy.arg("clippy").args(EVERYTHING).args(["--all-targets", "--", "-D", "warnings"]);
            finish(&mut clippy)
        });
        report.step("doc", |_| {
            let mut doc = cargo(workspace);
            // Links to private items stay: the documents are for those who change the code.
            let flags = "-D warnings -A rustdoc::private_intra_doc_links";
            doc.env("RUSTDOCFLAGS", flags).args(["doc", "--no-deps", "--keep-going"]);
            doc.args(EVERYTHING);
            finish(&mut doc)
        });
    }
    if (options.test || options.chaos) && build(workspace, report) {
        if options.test {
            test(options, workspace, report);
        }
        if options.chaos {
            report.step("chaos", |_| finish(&mut chaos(workspace)));
        }
    }
}

fn build(workspace: &Workspace, report: &mut Report) -> bool {
    report.step("build", |_| {
        finish(cargo(workspace).args(["test", "--no-run", "--quiet"]).args(EVERYTHING))
    })
}

/// The short profile of the program that does harm to a cluster; `target/chaos` keeps what it found.
fn chaos(workspace: &Workspace) -> Command {
    within(Command::new(workspace.bin.join("clawnode-chaos")), workspace)
}

fn test(options: &Options, workspace: &Workspace, report: &mut Report) {
    if options.lint {
        report.step("doc tests", |_| {
            finish(cargo(workspace).args(["test", "--doc", "--quiet"]).args(EVERYTHING))
        });
    }
    let runner = tools::runner(workspace);
    report.step("tests", |summary| match &runner {
        Runner::Nextest(command) => {
            nextest(command, options, workspace).and_then(|run| watch(run, summary))
        }
        Runner::Cargo => {
            let mut cargo = cargo(workspace);
            cargo.arg("test").args(EVERYTHING).args(["--tests", "--no-fail-fast"]);
            cargo.args(&options.filters).arg("--");
            let soak: &[&str] = if options.soak { &["_soak"] } else { &["--skip", "_soak"] };
            cargo.args(soak);
            finish(&mut cargo)
        }
    });
}

fn nextest(
    command: &[String],
    options: &Options,
    workspace: &Workspace,
) -> Result<Command, String> {
    let (program, arguments) = command.split_first().ok_or("no test runner")?;
    let profile = match std::env::var("CI") {
        _ if options.soak => "soak",
        Ok(ci) if ci == "true" || ci == "1" => "ci",
        Ok(_) | Err(_) => "default",
    };
    let mut run = within(Command::new(program), workspace);
    run.args(arguments).args(["run", "--profile", profile]).args(EVERYTHING);
    if io::stderr().is_terminal() {
        run.args(["--color", "always"]);
    }
    if options.soak || tools::real_model_wanted() {
        run.args(["--run-ignored", "all"]);
    }
    run.args(&options.filters);
    Ok(run)
}

/// Shows the runner's lines as they come, and keeps its summary.
fn watch(mut run: Command, summary: &mut Option<String>) -> Result<(), String> {
    let shown = |error: io::Error| format!("cannot follow the test runner: {error}");
    let mut child = run.stderr(Stdio::piped()).spawn().map_err(shown)?;
    if let Some(output) = child.stderr.take() {
        let mut lines = BufReader::new(output);
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line).map_err(shown)? > 0 {
            io::stderr().write_all(&line).map_err(shown)?;
            let text = String::from_utf8_lossy(&line);
            if text.contains("Summary") && text.contains(" run: ") {
                *summary = Some(text.trim_end().to_owned());
            }
            line.clear();
        }
    }
    let status = child.wait().map_err(shown)?;
    if status.success() { Ok(()) } else { Err(format!("the test runner ended with {status}")) }
}

fn cargo(workspace: &Workspace) -> Command {
    within(Command::new("cargo"), workspace)
}

/// The surroundings that the tests rely on.
///
/// What `cargo run` says of this crate is taken back: build scripts that watch those variables
/// (ring's) would otherwise run again whenever somebody calls cargo without this command.
fn within(mut command: Command, workspace: &Workspace) -> Command {
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            command.env_remove(name.as_ref());
        }
    }
    command
        .current_dir(&workspace.root)
        .env("TMPDIR", &workspace.temp)
        .env("CLAWNODE_BIN", workspace.bin.join("clawnode"))
        .env("CLAWNODE_NATS_SERVER", workspace.tools.join("nats/bin/nats-server"));
    command
}
