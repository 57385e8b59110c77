//! `hooks`: the programs that judge calls on this machine.

use clap::Subcommand;
use serde_json::{Value, json};

use super::{
    command_context::CliContext,
    output::{Output, Tone},
};
use crate::{
    failure::{Exit, Failure},
    node::hooks::{self, HookStatus},
};

/// What `hooks --help` ends with.
pub(super) const EXAMPLES: &str = "\
A hook is an executable file POINT/NAME in the folder of hooks. POINT is before_llm_call,
before_tool_call or after_tool_call; POINT/NAME.toml has the hook's settings. A hook reads JSON
and writes JSON (`clawnode help hooks`). Nodes read the folder when they start.

Examples:
  clawnode hooks list
  clawnode hooks list --json | jq '.hooks[] | select(.refused)'";

#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(super) enum HooksCommand {
    /// List the hooks of this machine, and files that are refused, with the reason
    List,
}

pub(super) fn run(command: &HooksCommand, context: &CliContext) -> Result<Exit, Failure> {
    match command {
        HooksCommand::List => list(context),
    }
}

fn list(context: &CliContext) -> Result<Exit, Failure> {
    let found = hooks::found(&context.loaded);
    let folder = hooks::folder(&context.loaded);
    let document = json!({
        "folder": folder,
        "hooks": found.iter().map(shown).collect::<Vec<_>>(),
    });
    let out = context.out;
    out.document(&document, |_| match &folder {
        Some(folder) if found.is_empty() => format!("there are no hooks in `{}`", folder.display()),
        None => "there are no hooks".to_owned(),
        Some(_) => table(out, &found),
    })?;
    Ok(Exit::Ok)
}

fn shown(status: &HookStatus) -> Value {
    let marks = status.entry.hook.as_ref().ok().map(|program| {
        let spec = &program.spec;
        json!({
            "required": spec.required,
            "modifies": spec.modifies,
            "timeout_ms": spec.timeout_ms,
            "agents": program.agents,
            "tools": spec.tools,
        })
    });
    json!({
        "point": status.entry.point,
        "name": name(status),
        "path": status.entry.path,
        "marks": marks,
        "refused": status.refused,
    })
}

fn name(status: &HookStatus) -> String {
    let name = status.entry.path.file_name().unwrap_or_default();
    super::output::clean(&name.to_string_lossy())
}

fn table(out: Output, found: &[HookStatus]) -> String {
    let head = ["point", "hook", "required", "modifies", "timeout", "agents", "tools"];
    let row = |status: &HookStatus| {
        let mut row = vec![status.entry.point.to_string(), name(status)];
        if let (Ok(program), None) = (&status.entry.hook, &status.refused) {
            let all = |names: Vec<String>| {
                if names.is_empty() { "all".to_owned() } else { names.join(" ") }
            };
            let yes = |flag: bool| if flag { "yes" } else { "no" }.to_owned();
            let spec = &program.spec;
            row.push(yes(spec.required));
            row.push(yes(spec.modifies));
            row.push(format!("{} ms", spec.timeout_ms));
            row.push(all(program.agents.iter().map(ToString::to_string).collect()));
            row.push(all(spec.tools.clone()));
        } else {
            row.extend(["-"; 5].map(str::to_owned));
        }
        row
    };
    let mut lines = vec![out.table(&head, found.iter().map(row))];
    for status in found {
        if let Some(why) = &status.refused {
            let what = format!("`{}` is refused: {why}", status.entry.path.display());
            lines.push(out.paint(Tone::Bad, &super::output::clean(&what)));
        }
    }
    lines.join("\n")
}
