//! Plugins in Python and JavaScript, made components of by the tools of their languages: for the soak
//! profile, since each brings an interpreter of 10 MB and more that is compiled for half a minute.

use std::{fs, path::Path, process::Command};

use crate::{
    tools::{self, finish},
    workspace::Workspace,
};

const PYTHON: &str = "componentize-py==0.25.*";
const JAVASCRIPT: &str = "@bytecodealliance/componentize-js@0.23.0";
/// What a plugin is, and its name there.
const WORLD: (&str, &str) = ("actors/wasm/wit", "tool");

/// Builds both into this folder: `python.wasm` and `javascript.wasm`.
pub(crate) fn build(workspace: &Workspace, into: &Path) -> Result<(), String> {
    fs::create_dir_all(into)
        .map_err(|error| format!("cannot create `{}`: {error}", into.display()))?;
    python(workspace, &into.join("python.wasm"))?;
    javascript(workspace, &into.join("javascript.wasm"))
}

fn python(workspace: &Workspace, into: &Path) -> Result<(), String> {
    let tool = workspace.tools.join("componentize-py");
    let program = tool.join("bin/componentize-py");
    if !program.is_file() {
        tools::pip(&tool, PYTHON)?;
    }
    let (wit, world) = WORLD;
    let mut build = Command::new(program);
    build.env("PYTHONPATH", &tool).arg("-d").arg(workspace.root.join(wit)).args(["-w", world]);
    // A plugin is given nothing of WASI, and what asks for it does not load.
    build.args(["componentize", "--stub-wasi", "plugin", "-p"]);
    finish(build.arg(workspace.root.join("tests/plugins/python")).arg("-o").arg(into))
}

fn javascript(workspace: &Workspace, into: &Path) -> Result<(), String> {
    let tool = workspace.tools.join("componentize-js");
    tools::npm(&tool, &[JAVASCRIPT])?;
    // Modules are looked for beside the script that asks for them.
    let source = workspace.root.join("tests/plugins/javascript");
    let script = tool.join("build.mjs");
    fs::copy(source.join("build.mjs"), &script)
        .map_err(|error| format!("cannot write `{}`: {error}", script.display()))?;
    let (wit, world) = WORLD;
    let mut build = Command::new("node");
    build.arg(script).arg(source.join("plugin.js")).arg(workspace.root.join(wit));
    finish(build.arg(world).arg(into))
}
