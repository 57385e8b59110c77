//! The compiler that cargo calls for the crates of the workspace in a run of CI: rustc, then clippy, and rustdoc for
//! libraries.
//!
//! `cargo clippy` and `cargo doc` check all dependencies before they look at the workspace, although cargo compiles them as
//! well: that was a sixth of a run. What cargo tells the compiler of a crate is all that clippy and rustdoc have to know
//! about its dependencies. A lint that is not kept or a broken link fails the build.
//!
//! The build of the tests compiles a library twice, once with its tests. Clippy reads it with its tests, which is all of it,
//! and rustc says of the library alone what only rustc can: what is used by nothing but tests. Tests that are not optimised
//! are compiled by clippy, which is a compiler that lints; all that others are compiled against is rustc's.

use std::{
    env,
    ffi::OsString,
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use crate::{tools, workspace::Workspace};

/// What is passed to clippy.
pub(crate) const LINTS: [&str; 2] = ["-D", "warnings"];
/// What is passed to rustdoc. Links to private items stay: the documents are for those who change the code.
pub(crate) const DOC_LINTS: [&str; 4] =
    ["-D", "warnings", "-A", "rustdoc::private_intra_doc_links"];
/// Has rustdoc look at a crate and write no pages: they are not read in CI. It has no stable option for that.
const CHECK_ALONE: [&str; 3] = ["-Z", "unstable-options", "--check"];
/// The folder of clippy and rustdoc.
const COMPILERS: &str = "CLAWNODE_XTEST_COMPILERS";
/// Whether each library is compiled with its tests too.
const TESTED: &str = "CLAWNODE_XTEST_TESTED";
/// Where clippy may write what is not needed.
const SCRATCH: &str = "CLAWNODE_XTEST_SCRATCH";
/// The name of this program as a compiler.
const NAME: &str = "clawnode-xtest-compiler";

/// Options of the compiler that take the next argument, and whether rustdoc takes them too.
const WITH_VALUE: [(&str, bool); 8] = [
    ("--crate-name", true),
    ("--cfg", true),
    ("--check-cfg", true),
    ("--extern", true),
    ("--cap-lints", true),
    ("-L", true),
    ("-C", false),
    ("--out-dir", false),
];

/// What is passed to clippy, as `cargo clippy` passes it on.
pub(crate) fn clippy_arguments() -> String {
    LINTS.map(|one| format!("{one}__CLIPPY_HACKERY__")).concat()
}

/// Has this command of cargo, which also compiles each library with its tests, lint what it compiles and its documents.
pub(crate) fn called_with_tests(cargo: Command, workspace: &Workspace) -> Result<Command, String> {
    let mut cargo = called_by(cargo, workspace)?;
    cargo.env(TESTED, "1");
    Ok(cargo)
}

/// Has this command of cargo lint what it compiles, and its documents.
pub(crate) fn called_by(mut cargo: Command, workspace: &Workspace) -> Result<Command, String> {
    let clippy = tools::clippy().ok_or("there is no clippy; `rustup component add clippy`")?;
    let folder = clippy.parent().unwrap_or(Path::new("")).to_owned();
    let compiler = workspace.bin.join(NAME);
    copied(&compiler).map_err(|error| format!("cannot write `{}`: {error}", compiler.display()))?;
    cargo
        .env("RUSTC_WORKSPACE_WRAPPER", compiler)
        .env("CLIPPY_ARGS", clippy_arguments())
        .env(COMPILERS, folder)
        .env(SCRATCH, &workspace.temp);
    Ok(cargo)
}

/// This program, also when a build has put another one in its place.
const SELF: &str = "/proc/self/exe";

/// Writes this program there, unless it is there.
fn copied(compiler: &Path) -> io::Result<()> {
    let program = fs::read(SELF)?;
    if fs::read(compiler).is_ok_and(|there| there == program) {
        return Ok(());
    }
    // What is being run cannot be written, but another file may take its place.
    let fresh = compiler.with_extension("new");
    fs::write(&fresh, program)?;
    fs::set_permissions(&fresh, fs::Permissions::from_mode(0o755))?;
    fs::rename(fresh, compiler)
}

/// Compiles, if cargo calls this program as its compiler.
pub(crate) fn compile() -> Option<ExitCode> {
    let mut arguments = env::args_os().skip(1);
    let rustc = arguments.next()?;
    let is_called = Path::new(&rustc).file_stem().is_some_and(|name| name == "rustc");
    let folder = PathBuf::from(env::var_os(COMPILERS).filter(|_| is_called)?);
    let arguments: Vec<OsString> = arguments.collect();
    let texts: Option<Vec<String>> =
        arguments.iter().map(|one| one.to_str().map(str::to_owned)).collect();
    let Some(texts) = texts.filter(|texts| is_crate(texts)) else {
        // A question about the compiler.
        return Some(ended(is_good(Command::new(&rustc).args(&arguments))));
    };
    let texts = compiled(&texts);
    let mut compiles = Command::new(&rustc);
    compiles.args(&texts);
    let good = if env::var_os(TESTED).is_some() && is_library_alone(&texts) {
        is_good(compiles.args(LINTS))
    } else if is_plain_test(&texts) {
        is_good(Command::new(folder.join("clippy-driver")).arg(&rustc).args(&texts))
    } else {
        // Clippy says what there is to say of the crate.
        is_good(compiles.args(["--cap-lints", "allow"])) && is_linted(&folder, &rustc, &texts)
    };
    Some(ended(good && is_documented(&folder, &texts)))
}

/// The crate whose own tests compute for long.
const COMPUTING: &str = "clawnode_simulator";

/// The arguments for rustc: the same, but that tests are not optimised with the crate that they are of. Cargo has one
/// level for both, and to optimise the tests takes longer than they do.
fn compiled(arguments: &[String]) -> Vec<String> {
    let has = |name: &str| arguments.iter().any(|one| one == name);
    if !has("--test") || has(COMPUTING) {
        return arguments.to_vec();
    }
    let is_level = |one: &str| one.starts_with("opt-level=") || one.starts_with("codegen-units=");
    let mut told: Vec<String> = Vec::new();
    for one in arguments {
        if is_level(one) && told.last().is_some_and(|flag| flag == "-C") {
            told.pop();
        } else {
            told.push(one.clone());
        }
    }
    told
}

/// Whether these arguments compile tests that are not optimised. Clippy compiles them by itself, and they are read once:
/// it leaves out what rustc does to optimise, and nothing else is compiled against them.
fn is_plain_test(arguments: &[String]) -> bool {
    arguments.iter().any(|one| one == "--test")
        && !arguments.iter().any(|one| one.starts_with("opt-level="))
}

/// Whether these arguments compile a library without its tests.
fn is_library_alone(arguments: &[String]) -> bool {
    let kind = arguments.iter().position(|one| one == "--crate-type");
    let kind = kind.and_then(|at| arguments.get(at + 1)).map(String::as_str);
    matches!(kind, Some("lib" | "rlib")) && !arguments.iter().any(|one| one == "--test")
}

fn is_good(command: &mut Command) -> bool {
    command.status().is_ok_and(|status| status.success())
}

const fn ended(good: bool) -> ExitCode {
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Whether a crate is to be compiled with these arguments.
fn is_crate(arguments: &[String]) -> bool {
    arguments.iter().any(|one| one.starts_with("--emit="))
        && !arguments.iter().any(|one| one.starts_with("--print"))
}

fn is_linted(folder: &Path, rustc: &OsString, arguments: &[String]) -> bool {
    let Some(scratch) = env::var_os(SCRATCH) else { return false };
    let scratch = PathBuf::from(scratch).join(format!("lints-{}", std::process::id()));
    let mut clippy = Command::new(folder.join("clippy-driver"));
    let good = is_good(clippy.arg(rustc).args(linted(arguments)).arg("--out-dir").arg(&scratch));
    // It is there only if clippy has written something.
    good && (fs::remove_dir_all(&scratch).is_ok() || !scratch.exists())
}

/// The arguments for clippy: the same, but that it only checks, and leaves it to rustc to tell cargo what is there.
fn linted(arguments: &[String]) -> Vec<String> {
    let mut told = Vec::new();
    let mut rest = arguments.iter();
    while let Some(one) = rest.next() {
        if one == "--out-dir" {
            rest.next();
        } else if one.starts_with("--emit=") {
            told.push("--emit=metadata".to_owned());
        } else if one.starts_with("--json=") {
            told.push(one.replace(",artifacts", ""));
        } else {
            told.push(one.clone());
        }
    }
    told
}

fn is_documented(folder: &Path, arguments: &[String]) -> bool {
    let Some(told) = documented(arguments) else { return true };
    let mut rustdoc = Command::new(folder.join("rustdoc"));
    rustdoc.env("RUSTC_BOOTSTRAP", "1").args(CHECK_ALONE);
    is_good(rustdoc.args(told).args(DOC_LINTS))
}

/// Features that the first build leaves out. What has one of them is documented with it, in the last build: its documents
/// name what only the feature brings.
const LATER: [&str; 4] = ["engine", "qdrant", "ssh", "wasm"];

/// The arguments for rustdoc on the crate that these compile; nothing if that is no library, or its tests, or is
/// compiled later with more of its features.
fn documented(arguments: &[String]) -> Option<Vec<String>> {
    let (mut told, mut is_library) = (Vec::new(), false);
    let mut rest = arguments.iter();
    while let Some(one) = rest.next() {
        if one == "--test" || one.starts_with("--print") {
            return None;
        }
        if one == "--crate-type" {
            is_library = matches!(rest.next()?.as_str(), "lib" | "rlib");
            continue;
        }
        if let Some((_, is_told)) = WITH_VALUE.iter().find(|(name, _)| name == one) {
            let value = rest.next()?;
            if *is_told {
                told.extend([one.clone(), value.clone()]);
            }
        } else if one.starts_with("--edition") || one.contains("=rustdoc::") || is_source(one) {
            told.push(one.clone());
        }
    }
    let known = |name: &str| told.iter().any(|one| one.contains(&format!("\"{name}\"")));
    let is_on = |name: &str| told.contains(&format!("feature=\"{name}\""));
    let waits = LATER.iter().any(|name| known(name) && !is_on(name));
    (is_library && !waits).then_some(told)
}

fn is_source(argument: &str) -> bool {
    !argument.starts_with('-') && Path::new(argument).extension().is_some_and(|end| end == "rs")
}

#[cfg(test)]
mod tests {
    use super::{compiled, documented, is_crate, is_library_alone, is_plain_test, linted};

    fn split(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn clippy_checks_what_rustc_compiles() {
        let line = "--crate-name a a/src/lib.rs --error-format=json \
                    --json=diagnostic-rendered-ansi,artifacts,future-incompat --crate-type lib \
                    --emit=dep-info,metadata,link -C metadata=1 --out-dir target/deps --test";
        let told = "--crate-name a a/src/lib.rs --error-format=json \
                    --json=diagnostic-rendered-ansi,future-incompat --crate-type lib \
                    --emit=metadata -C metadata=1 --test";
        assert!(is_crate(&split(line)));
        assert_eq!(linted(&split(line)), split(told));
        assert!(!is_crate(&split("-vV")));
        assert!(!is_crate(&split("- --crate-name ___ --print=file-names --emit=link")));
    }

    #[test]
    fn tests_that_hardly_compute_are_not_optimised() {
        let line = "--crate-name a a/src/lib.rs --emit=dep-info,link -C opt-level=2 -C lto=off \
                    -C codegen-units=1 -C debug-assertions=on --test -C metadata=1";
        let told = "--crate-name a a/src/lib.rs --emit=dep-info,link -C lto=off \
                    -C debug-assertions=on --test -C metadata=1";
        assert_eq!(compiled(&split(line)), split(told));
        assert!(is_plain_test(&compiled(&split(line))));
        for same in [
            line.replace(" --test", " --crate-type lib"),
            line.replace("--crate-name a", "--crate-name clawnode_simulator"),
            told.to_owned(),
        ] {
            assert_eq!(compiled(&split(&same)), split(&same));
        }
    }

    #[test]
    fn clippy_compiles_tests_and_nothing_that_others_use_or_that_computes() {
        let line = "--crate-name a a/src/lib.rs --emit=dep-info,link -C metadata=1 --test";
        assert!(is_plain_test(&split(line)));
        assert!(!is_plain_test(&split(&line.replace("--test", "--crate-type lib"))));
        assert!(!is_plain_test(&split(&line.replace("--test", "--crate-type bin"))));
        assert!(!is_plain_test(&split(&format!("{line} -C opt-level=2"))));
    }

    #[test]
    fn clippy_reads_a_library_with_its_tests_alone() {
        let line = "--crate-name a --crate-type lib --emit=dep-info,metadata,link a/src/lib.rs";
        assert!(is_library_alone(&split(line)));
        assert!(!is_library_alone(&split(&format!("{line} --test"))));
        assert!(!is_library_alone(&split(&line.replace("type lib", "type bin"))));
        // As cargo calls it for the tests: without a type.
        assert!(!is_library_alone(&split("--crate-name a --emit=link --test a/src/lib.rs")));
    }

    #[test]
    fn rustdoc_is_told_what_the_compiler_knows_of_a_library() {
        let line = "--crate-name a --edition=2024 a/src/lib.rs --error-format=json \
                    --json=diagnostic-rendered-ansi --crate-type lib --emit=dep-info,metadata,link \
                    -C embed-bitcode=no --warn=clippy::all --deny=rustdoc::broken_intra_doc_links \
                    --cfg feature=\"x\" --check-cfg cfg(docsrs) -C metadata=1 --out-dir target/deps \
                    -L dependency=target/deps --extern b=target/deps/libb.rmeta --cap-lints allow";
        let told = "--crate-name a --edition=2024 a/src/lib.rs \
                    --deny=rustdoc::broken_intra_doc_links --cfg feature=\"x\" --check-cfg cfg(docsrs) \
                    -L dependency=target/deps --extern b=target/deps/libb.rmeta --cap-lints allow";
        assert_eq!(documented(&split(line)), Some(split(told)));
        for other in ["bin", "proc-macro"] {
            let line = line.replace("--crate-type lib", &format!("--crate-type {other}"));
            assert_eq!(documented(&split(&line)), None, "{other}");
        }
        assert_eq!(documented(&split(&format!("{line} --test"))), None);
        let later = format!("{line} --check-cfg cfg(feature,values(\"x\",\"wasm\"))");
        assert_eq!(documented(&split(&later)), None, "it is compiled again with the feature");
        assert!(documented(&split(&format!("{later} --cfg feature=\"wasm\""))).is_some());
        assert_eq!(documented(&split("- --crate-name ___ --print=file-names")), None);
    }
}
