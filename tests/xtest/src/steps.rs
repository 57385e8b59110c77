//! The steps, in their order, and the sets of features that they share, so that no dependency is
//! compiled twice in the same manner: everything but the WebAssembly engine, SSH and the client of Qdrant,
//! which take minutes to compile, and everything with them. By hand, what is only looked at (clippy, doc) is looked at
//! with them; what is run with them is the last step's, which compiles them and what depends on them. With `CI=true` all
//! that is compiled is looked at as it is compiled ([`compiler`]). Tests and chaos wait more than they compute, and what is
//! only compiled is compiled beside them.

use std::{
    fs,
    io::{self, BufRead, BufReader, IsTerminal, Read, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::{
    beside::{self, Beside},
    compiler, languages,
    options::Options,
    report::{Again, Report},
    tools::{self, Runner, finish},
    workspace::Workspace,
};

/// What is built and tested: all that a node is by default, with what only tests have.
const EVERYTHING: [&str; 3] = ["--workspace", "--features", "test-util"];
/// The same with the engine for plugins, SSH, and the client of Qdrant.
const WITH_WASM: [&str; 3] = ["--workspace", "--features", "test-util,wasm,ssh,qdrant"];
/// Where plugins are built.
const PLUGINS: &str = "target/plugins";
/// What is built with them: the program, the bench of plugins, and the tests named after them. All are named to build
/// and to run: for another choice of targets cargo compiles what they rest on once more.
const WASM_TARGETS: [&str; 10] = [
    "--bin", "clawnode", "--bin", "plugins", "--test", "qdrant", "--test", "ssh", "--test", "wasm",
];

/// Steps that wait for what began beside others.
const SET_UP: &str = "set-up";
const DOC: &str = "doc";
const BENCHES: &str = "benches";
const WASM_BUILD: &str = "wasm build";
const WASM_PLUGIN: &str = "wasm plugin";

pub(crate) fn run(options: &Options, workspace: &Workspace, report: &mut Report) {
    let runs = options.test || options.chaos;
    let mut is_built = !runs;
    let is_set_up = thread::scope(|scope| {
        // It waits for servers of packages more than it computes, and lints and builds need none of it.
        let tools = (runs || !options.lint)
            .then(|| scope.spawn(|| timed(|| tools::set_up(workspace, options.wasm))));
        if options.lint {
            lint(options, workspace, report);
        }
        if runs {
            is_built = build(options, workspace, report);
        }
        tools.is_none_or(|tools| {
            report.step(SET_UP, |_| {
                let (took, end) = tools.join().map_err(|_panic| "it panicked".to_owned())?;
                if options.lint || runs {
                    beside::say_beside(took);
                }
                end
            })
        })
    });
    if !is_set_up {
        return;
    }
    let mut beside = Beside::new(&workspace.temp);
    if runs && is_built {
        if options.test {
            test(options, workspace, report, &mut beside);
        }
        if options.chaos {
            let kept = keep_program(workspace);
            if options.wasm
                && kept.is_ok()
                && let Ok(build) = build_with_wasm(options, workspace)
            {
                beside.begin(WASM_BUILD, build);
            }
            report.step("chaos", |again| {
                watch(chaos(workspace, &kept?), Output::Results, again, is_harm)
            });
        }
    }
    if options.lint {
        let (name, look) = looks_last(options, workspace);
        report.step(name, |_| beside.end(name, &mut look?));
    }
    // Last: its program takes the place of the other.
    if options.wasm {
        wasm(options, workspace, report, &mut beside);
    }
    if options.soak && options.filters.is_empty() {
        report.step("local model", |_| local_model(workspace));
    }
}

fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let began = Instant::now();
    let done = work();
    (began.elapsed(), done)
}

fn lint(options: &Options, workspace: &Workspace, report: &mut Report) {
    report.step("fmt", |_| finish(cargo(workspace).args(["fmt", "--all", "--check"])));
    if !is_looked_at(options) {
        report.step("clippy", |_| {
            let mut clippy = cargo(workspace);
            clippy
                .arg("clippy")
                .args(WITH_WASM)
                .args(["--all-targets", "--"])
                .args(compiler::LINTS);
            finish(&mut clippy)
        });
    }
}

/// Whether clippy and rustdoc look at what is compiled as it is compiled.
fn is_looked_at(options: &Options) -> bool {
    options.lint && options.test && is_ci()
}

/// The same command of cargo, which compiles or needs what was compiled.
fn looking(options: &Options, workspace: &Workspace, cargo: Command) -> Result<Command, String> {
    if is_looked_at(options) { compiler::called_by(cargo, workspace) } else { Ok(cargo) }
}

/// What has not been looked at once all has been built, and the name of its step: the programs of benches, which the
/// tests' build leaves out, or all documents.
fn looks_last(options: &Options, workspace: &Workspace) -> (&'static str, Result<Command, String>) {
    if !is_looked_at(options) {
        return (DOC, Ok(doc(workspace)));
    }
    let mut benches = cargo(workspace);
    benches.args(["build", "--quiet", "--bins"]).args(EVERYTHING).args(optimized());
    (BENCHES, looking(options, workspace, benches))
}

/// What runs beside the tests, once they have been built: none of it touches a program that they use.
fn begin_beside_tests(options: &Options, workspace: &Workspace, beside: &mut Beside) {
    if options.lint
        && let (name, Ok(look)) = looks_last(options, workspace)
    {
        beside.begin(name, look);
    }
    if options.wasm {
        beside.begin(WASM_PLUGIN, plugin(workspace));
        let mut libraries = cargo(workspace);
        libraries.args(["build", "--quiet", "--lib"]).args(WITH_WASM).args(optimized());
        if let Ok(libraries) = looking(options, workspace, libraries) {
            beside.begin("wasm libraries", libraries);
        }
    }
}

fn doc(workspace: &Workspace) -> Command {
    let mut doc = cargo(workspace);
    doc.env("RUSTDOCFLAGS", compiler::DOC_LINTS.join(" "));
    doc.args(["doc", "--no-deps", "--keep-going"]).args(WITH_WASM);
    // As clippy calls it: else cargo checks all crates once more, for a minute and a half of two cores.
    if let Some(clippy) = tools::clippy() {
        doc.env("RUSTC_WORKSPACE_WRAPPER", clippy).env("CLIPPY_ARGS", compiler::clippy_arguments());
    }
    doc
}

fn build_with_wasm(options: &Options, workspace: &Workspace) -> Result<Command, String> {
    let mut build = cargo(workspace);
    build.args(["build", "--quiet"]).args(WITH_WASM).args(WASM_TARGETS).args(optimized());
    looking(options, workspace, build)
}

/// Builds and tests what has the engine for plugins, and SSH.
fn wasm(options: &Options, workspace: &Workspace, report: &mut Report, beside: &mut Beside) {
    let built = report
        .step(WASM_BUILD, |_| beside.end(WASM_BUILD, &mut build_with_wasm(options, workspace)?));
    // Also after a failure: what has begun is waited for.
    let has_plugin = report.step(WASM_PLUGIN, |_| {
        tools::wasm_compiler()?;
        beside.end(WASM_PLUGIN, &mut plugin(workspace))
    });
    if !built || !has_plugin {
        return;
    }
    let languages = || languages::build(workspace, &workspace.root.join(PLUGINS));
    if options.soak && !report.step("languages", |_| languages()) {
        return;
    }
    let runner = tools::runner(workspace);
    report.step("wasm tests", |again| match &runner {
        Runner::Nextest(command) => {
            let all = (WITH_WASM.as_slice(), WASM_TARGETS.as_slice());
            nextest(command, all, options, workspace).and_then(|run| run_tests(run, again, || {}))
        }
        Runner::Cargo => {
            let mut cargo = cargo(workspace);
            cargo.arg("test").args(WITH_WASM).args(WASM_TARGETS).args(optimized());
            cargo.arg("--no-fail-fast");
            finish(cargo.args(&options.filters).arg("--").args(skipped(options)))
        }
    });
}

/// Looks at and tests the model `local`. Its tensor library takes minutes to compile, for one small part of a node.
fn local_model(workspace: &Workspace) -> Result<(), String> {
    const FEATURES: [&str; 2] = ["--features", "embed-local,test-util"];
    let mut clippy = cargo(workspace);
    clippy.args(["clippy", "--package", "clawnode", "--package", "clawnode-memory"]);
    clippy.args(FEATURES).args(["--all-targets", "--"]).args(compiler::LINTS);
    finish(&mut clippy)?;
    let mut test = cargo(workspace);
    test.args(["test", "--package", "clawnode-memory", "--lib"]).args(FEATURES);
    finish(test.arg("local_model"))
}

fn build(options: &Options, workspace: &Workspace, report: &mut Report) -> bool {
    report.step("build", |_| {
        let mut build = cargo(workspace);
        build.args(["test", "--no-run", "--quiet"]).args(EVERYTHING).args(optimized());
        if is_looked_at(options) {
            build = compiler::called_with_tests(build, workspace)?;
        }
        finish(&mut build)
    })
}

/// The short profile of the program that does harm to a cluster; `target/chaos` keeps what it found.
fn chaos(workspace: &Workspace, program: &Path) -> Command {
    let mut chaos = within(Command::new(workspace.bin.join("clawnode-chaos")), workspace);
    chaos.env("CLAWNODE_BIN", program);
    chaos
}

/// A copy of the program as it is now, which stays when cargo builds another.
fn keep_program(workspace: &Workspace) -> Result<PathBuf, String> {
    let (from, to) = (workspace.bin.join("clawnode"), workspace.temp.join("clawnode"));
    fs::copy(&from, &to).map_err(|error| format!("cannot copy `{}`: {error}", from.display()))?;
    Ok(to)
}

fn test(options: &Options, workspace: &Workspace, report: &mut Report, beside: &mut Beside) {
    if options.lint {
        report.step("doc tests", |_| {
            let mut test = cargo(workspace);
            test.args(["test", "--doc", "--quiet"]).args(EVERYTHING).args(optimized());
            finish(&mut looking(options, workspace, test)?)
        });
    }
    let runner = tools::runner(workspace);
    report.step("tests", |again| match &runner {
        Runner::Nextest(command) => {
            let all = (EVERYTHING.as_slice(), [].as_slice());
            let is_whole = options.filters.is_empty() && !options.soak;
            nextest(command, all, options, workspace).and_then(|run| {
                run_tests(run, again, || {
                    if is_whole {
                        begin_beside_tests(options, workspace, beside);
                    }
                })
            })
        }
        Runner::Cargo => {
            let mut cargo = cargo(workspace);
            cargo.arg("test").args(EVERYTHING).args(["--tests", "--no-fail-fast"]);
            cargo.args(optimized());
            finish(cargo.args(&options.filters).arg("--").args(skipped(options)))
        }
    });
}

/// Builds the plugin in Rust, in a folder of its own: its compiler and its target are others.
fn plugin(workspace: &Workspace) -> Command {
    let mut build = cargo(workspace);
    build.current_dir(workspace.root.join("tests/plugins/echo"));
    tools::with_wasm_compiler(&mut build);
    build.arg("--target-dir").arg(workspace.root.join(PLUGINS));
    build
}

/// Which tests run, for cargo's own runner.
const fn skipped(options: &Options) -> &'static [&'static str] {
    if options.soak { &["_soak"] } else { &["--skip", "_soak"] }
}

fn nextest(
    command: &[String],
    (features, targets): (&[&str], &[&str]),
    options: &Options,
    workspace: &Workspace,
) -> Result<Command, String> {
    let (program, arguments) = command.split_first().ok_or("no test runner")?;
    let usual = if is_ci() { "ci" } else { "default" };
    let profile = if options.soak { "soak" } else { usual };
    let mut run = within(Command::new(program), workspace);
    run.args(arguments).args(["run", "--profile", profile]).args(features).args(targets);
    run.args(optimized());
    if io::stderr().is_terminal() {
        run.args(["--color", "always"]);
    }
    if options.soak || tools::real_model_wanted() || tools::real_providers_wanted() {
        run.args(["--run-ignored", "all"]);
    }
    run.args(&options.filters);
    looking(options, workspace, run)
}

/// A test that takes longer than this is made faster, or moves to the soak profile.
const LONG: f64 = 60.0;

/// Whether a line of the test runner says that a test passed and took too long for every run.
fn is_long(line: &str) -> bool {
    let took = line.trim_start().strip_prefix("PASS [").and_then(|rest| rest.split_once("s]"));
    took.and_then(|(seconds, _)| seconds.trim().parse::<f64>().ok()).is_some_and(|took| took > LONG)
}

/// Lines that are said again of a panic or an error that ended a test.
const CAUSE: usize = 3;

/// Whether a line of the test runner begins why a test failed.
fn is_cause(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("Error: ") || (line.starts_with("thread '") && line.contains(" panicked at "))
}

/// Runs the test runner, and calls `begun` when it has built the tests: from then on cargo is free. It
/// ends with a summary, and after it names once more what failed. The end also names tests that are too long, and why
/// attempts failed: a test that passes when it is tried again is not explained after the summary.
fn run_tests(run: Command, again: &mut Again, begun: impl FnOnce()) -> Result<(), String> {
    let (mut begun, mut ends, mut cause) = (Some(begun), false, 0_usize);
    watch(run, Output::Errors, again, |line| {
        if line.contains("Starting")
            && line.contains(" tests across ")
            && let Some(begun) = begun.take()
        {
            begun();
        }
        ends |= line.contains("Summary") && line.contains(" run: ");
        cause = if is_cause(line) { CAUSE } else { cause.saturating_sub(1) };
        ends || is_long(line) || cause > 0 || line.contains(" FAIL [")
    })
}

/// A line that tells what went wrong in a run that does harm, and what plays it again.
fn is_harm(line: &str) -> bool {
    ["violation: ", ": BAD in ", "seed "].iter().any(|sign| line.contains(sign))
}

/// Where a program says what is watched.
#[derive(Clone, Copy, Debug)]
enum Output {
    Results,
    Errors,
}

/// Shows a program's lines as they come, and says those that count again at the end.
fn watch(
    mut run: Command,
    output: Output,
    again: &mut Again,
    mut counts: impl FnMut(&str) -> bool,
) -> Result<(), String> {
    let program = run.get_program().to_string_lossy().into_owned();
    let shown = |error: io::Error| format!("cannot follow `{program}`: {error}");
    match output {
        Output::Results => run.stdout(Stdio::piped()),
        Output::Errors => run.stderr(Stdio::piped()),
    };
    let mut child = run.spawn().map_err(shown)?;
    let pipe: Option<Box<dyn Read>> = match output {
        Output::Results => child.stdout.take().map(|pipe| Box::new(pipe) as Box<dyn Read>),
        Output::Errors => child.stderr.take().map(|pipe| Box::new(pipe) as Box<dyn Read>),
    };
    if let Some(pipe) = pipe {
        let mut lines = BufReader::new(pipe);
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line).map_err(shown)? > 0 {
            io::stderr().write_all(&line).map_err(shown)?;
            let text = String::from_utf8_lossy(&line);
            if counts(&text) {
                again.say(&text);
            }
            line.clear();
        }
    }
    let status = child.wait().map_err(shown)?;
    if status.success() { Ok(()) } else { Err(format!("`{program}` ended with {status}")) }
}

fn cargo(workspace: &Workspace) -> Command {
    within(Command::new("cargo"), workspace)
}

/// What makes cargo optimise the crates that the simulator computes with. A run of CI compiles each of them once
/// and computes for minutes; those who edit them compile them often.
fn optimized() -> &'static [&'static str] {
    if is_ci() { &["--config", ".config/cargo-ci.toml"] } else { &[] }
}

/// The surroundings that the tests rely on.
///
/// Variables that `cargo run` sets for this crate are removed: build scripts that watch them
/// (ring's) would otherwise run again whenever cargo is called without this command.
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
        .env("CLAWNODE_TEST_PLUGINS", workspace.root.join(PLUGINS))
        .env("CLAWNODE_NATS_SERVER", workspace.tools.join("nats/bin/nats-server"));
    if is_ci() {
        // Each crate is compiled once there, and no debugger sees it. What those would need is not written.
        command.env("CARGO_INCREMENTAL", "0").env("CARGO_PROFILE_DEV_DEBUG", "0");
    }
    command
}

/// Whether the run is one of CI.
fn is_ci() -> bool {
    std::env::var("CI").is_ok_and(|ci| ci == "true" || ci == "1")
}

#[cfg(test)]
mod tests {
    use super::{is_cause, is_long};

    #[test]
    fn a_test_over_a_minute_is_named_again() {
        assert!(is_long(
            "        PASS [  61.203s] (   3/2885) clawnode-tests::simulation sim_scale"
        ));
        for line in [
            "        PASS [  59.999s] (   3/2885) clawnode-tests::simulation sim_scale",
            "        FAIL [ 161.203s] (   3/2885) clawnode-tests::simulation sim_scale",
            "        SLOW [> 60.000s] (---------) clawnode-tests::simulation sim_scale",
            "",
        ] {
            assert!(!is_long(line), "{line}");
        }
    }

    #[test]
    fn why_a_test_failed_is_said_again() {
        for line in [
            "    thread 'nodes::a' (77) panicked at tests/tests/nodes.rs:7:5:",
            "    Error: Ended { code: 1 }",
        ] {
            assert!(is_cause(line), "{line}");
        }
        for line in ["    thread 'nodes::a' has ended", "    error: it panicked at noon", ""] {
            assert!(!is_cause(line), "{line}");
        }
    }
}
