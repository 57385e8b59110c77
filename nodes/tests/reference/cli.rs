//! `cli.md`: every command.

use clap::{Arg, Command};

use super::page;

/// The heading of the options that many commands take.
const SETTINGS: &str = "Settings";
const INTRO: &str = "\
`clawnode COMMAND --help` prints the same. [Use the command line in scripts](../guide/command-line.md) explains output
and short ids, and [exit codes](errors.md#exit-codes) what a command ends with.";

#[test]
fn reference_of_the_command_line() {
    let mut root = clawnode::cli::documented();
    root.build();
    let mut page = Page::default();
    page.add(&mut root, "clawnode");
    let Page { settings, index, commands } = page;
    let index = page::table(["command", "what it does"], &index);
    let rows: Vec<_> = settings.iter().map(row).collect();
    let settings = page::table(["setting", "default", "what it does"], &rows);
    let text = format!(
        "{INTRO}\n\n## Commands\n\n{index}## Settings\n\nEach command lists those that it uses. A file and the \
         environment can have most of them, too: see [configuration](configuration.md).\n\n{settings}{commands}"
    );
    page::compare("cli", "Command line", &text);
}

#[derive(Default)]
struct Page {
    /// All that any command takes.
    settings: Vec<Arg>,
    /// The commands, and what each does.
    index: Vec<[String; 2]>,
    /// A chapter for each.
    commands: String,
}

impl Page {
    fn add(&mut self, command: &mut Command, path: &str) {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        let is_group = command.is_subcommand_required_set();
        let anchor = path.replace(' ', "-");
        self.index.push([format!("[`{path}`](#{anchor})"), about.clone()]);
        self.commands += &format!("## `{path}`\n\n{about}.\n\n");
        if !is_group {
            self.chapter(command);
        }
        for below in command.get_subcommands_mut().filter(|subcommand| !subcommand.is_hide_set()) {
            let path = format!("{path} {}", below.get_name());
            self.add(below, &path);
        }
    }

    /// How a command is called, what it takes, and examples.
    fn chapter(&mut self, command: &mut Command) {
        let usage = command.render_usage().to_string();
        let usage = usage.trim_start_matches("Usage: ").trim();
        self.commands += &format!("```text\n{usage}\n```\n\n");
        let shown = |arg: &&Arg| {
            !arg.is_hide_set() && !["help", "version"].contains(&arg.get_id().as_str())
        };
        let (settings, own): (Vec<&Arg>, Vec<&Arg>) = command
            .get_arguments()
            .filter(shown)
            .partition(|arg| arg.get_help_heading() == Some(SETTINGS));
        let rows: Vec<_> = own.into_iter().map(row).collect();
        self.commands += &page::table(["argument", "default", "what it does"], &rows);
        let names: Vec<_> = settings.iter().map(|arg| page::code(&long(arg))).collect();
        if !names.is_empty() {
            self.commands += &format!("[Settings](#settings): {}\n\n", names.join(", "));
        }
        for arg in settings {
            if !self.settings.iter().any(|argument| argument.get_id() == arg.get_id()) {
                self.settings.push(arg.clone());
            }
        }
        if let Some(after) = command.get_after_help() {
            self.commands += &format!("```text\n{}\n```\n\n", after.to_string().trim());
        }
    }
}

fn long(arg: &Arg) -> String {
    format!("--{}", arg.get_long().unwrap())
}

/// A flag or an argument with its default and what it does.
fn row(arg: &Arg) -> [String; 3] {
    let takes = arg.get_action().takes_values();
    let values: Vec<_> =
        arg.get_value_names().into_iter().flatten().map(|name| format!("<{name}>")).collect();
    let values = if takes { values.join(" ") } else { String::new() };
    let name = match (arg.get_short(), arg.get_long()) {
        (Some(short), Some(long)) => format!("-{short}, --{long} {values}"),
        (None, Some(long)) => format!("--{long} {values}"),
        _ => values,
    };
    let defaults: Vec<_> =
        arg.get_default_values().iter().map(|value| page::code(&value.to_string_lossy())).collect();
    let possible = if takes { arg.get_possible_values() } else { Vec::new() };
    let possible: Vec<_> = possible.iter().map(|value| page::code(value.get_name())).collect();
    let mut about = arg.get_help().map(ToString::to_string).unwrap_or_default();
    if !possible.is_empty() {
        about = format!("{about}. One of {}", possible.join(", "));
    }
    let defaults = if takes { defaults.join(", ") } else { String::new() };
    [page::code(name.trim()), defaults, about]
}
