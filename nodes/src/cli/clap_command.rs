//! The command line as clap is given it: each command shows the settings that it uses, and examples
//! of its own.
//!
//! Groups of commands, such as `sessions`, have their examples in one text; a command without a text
//! of its own shows the lines that are about it.

use clap::{Arg, ArgMatches, Command, CommandFactory as _, parser::ValueSource};

use super::args::Cli;

/// The line above examples.
const EXAMPLES: &str = "Examples:";

/// How documents look.
const OUTPUT: &[&str] = &["json", "output"];
/// What every command uses that reads the configuration.
const COMMON: &[&str] = &["config", "json", "output", "log"];
/// Where the data is.
const DATA: &[&str] = &["data_dir"];
/// Which node answers.
const CONNECTION: &[&str] = &["url", "token_file"];
/// Which cluster it is.
const CLUSTER: &[&str] = &["nats", "prefix"];
/// How a node serves clients.
const NODE: &[&str] =
    &["listen", "model", "no_auth", "no_budget", "tls_cert", "tls_key", "plain_http"];

/// The command line for parsing. Settings that a command does not use are accepted there and not
/// shown.
pub(super) fn command() -> Command {
    shaped(true)
}

/// The command line for manuals, completions and `docs/reference/cli.md`: settings that a command does not use are left out.
pub fn documented() -> Command {
    shaped(false)
}

/// The settings of a node that the command line gives to a command that starts none, and the path of
/// that command.
pub(super) fn unused(matches: &ArgMatches) -> (String, Vec<String>) {
    let (path, deepest) = chosen(matches);
    let used = used(&path);
    let is_typed = |id: &str| deepest.value_source(id) == Some(ValueSource::CommandLine);
    let flags = NODE
        .iter()
        .filter(|id| !path.is_empty() && !used.contains(*id) && is_typed(id))
        .map(|id| format!("--{}", id.replace('_', "-")))
        .collect();
    (path.join(" "), flags)
}

/// Whether the command asks a node that runs, and so needs of the configuration only where that node is.
pub(super) fn asks_a_node(matches: &ArgMatches) -> bool {
    let (path, _) = chosen(matches);
    let is_doctor = path.first() == Some(&"doctor");
    !is_doctor && CONNECTION.iter().all(|flag| used(&path).contains(flag))
}

/// The path of the command, and what was given to it.
fn chosen(matches: &ArgMatches) -> (Vec<&str>, &ArgMatches) {
    let (mut deepest, mut path) = (matches, Vec::new());
    while let Some((name, below)) = deepest.subcommand() {
        path.push(name);
        deepest = below;
    }
    (path, deepest)
}

/// The settings that a command uses.
fn used(path: &[&str]) -> Vec<&'static str> {
    match path {
        ["help" | "completions" | "man" | "verify", ..] => Vec::new(),
        ["version"] => OUTPUT.to_vec(),
        ["doctor"] => [COMMON, DATA, CONNECTION, CLUSTER, NODE].concat(),
        ["up" | "run" | "config", ..] => [COMMON, DATA, CLUSTER, NODE].concat(),
        ["import"] => [COMMON, CLUSTER].concat(),
        ["cluster", "init"] => [COMMON, DATA, &["prefix"]].concat(),
        []
        | ["cluster" | "hooks" | "skills" | "backup" | "restore", ..]
        | ["journal", "replay" | "repair"] => [COMMON, DATA].concat(),
        // All others ask a node.
        _ => [COMMON, DATA, CONNECTION].concat(),
    }
}

fn shaped(takes_all: bool) -> Command {
    let root = Cli::command();
    let settings: Vec<Arg> =
        root.get_arguments().filter(|argument| argument.is_global_set()).cloned().collect();
    let shown = used(&[]);
    let root = root.mut_args(|arg| {
        if !arg.is_global_set() {
            return arg;
        }
        let is_shown = shown.contains(&arg.get_id().as_str());
        arg.hide(!is_shown).global(takes_all)
    });
    root.mut_subcommands(|subcommand| below(subcommand, &[], &settings, "", takes_all))
}

/// A command below the one at `above`, whose help ends with `examples`.
fn below(
    command: Command,
    above: &[&str],
    settings: &[Arg],
    examples: &str,
    takes_all: bool,
) -> Command {
    let name = command.get_name().to_owned();
    let path = [above, &[name.as_str()]].concat();
    let used = used(&path);
    let taken = settings.iter().filter_map(|setting| {
        let is_used = used.contains(&setting.get_id().as_str());
        (is_used || takes_all).then(|| setting.clone().hide(!is_used).global(takes_all))
    });
    let after = after_help(&command, &path, examples);
    let command = command.args(taken).after_help(after.clone());
    command.mut_subcommands(|subcommand| below(subcommand, &path, settings, &after, takes_all))
}

/// What a command's help ends with: its own text, with the examples of its group if that has none.
fn after_help(command: &Command, path: &[&str], examples: &str) -> String {
    let own = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    if own.contains(EXAMPLES) {
        return own;
    }
    let start = format!("clawnode {}", path.join(" "));
    let is_own = |line: &&str| {
        line.split(&start).skip(1).any(|rest| rest.is_empty() || rest.starts_with(' '))
    };
    let lines: Vec<&str> = examples.lines().filter(is_own).collect();
    if lines.is_empty() {
        return own;
    }
    let gap = if own.is_empty() { "" } else { "\n\n" };
    format!("{own}{gap}{EXAMPLES}\n{}", lines.join("\n"))
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_setting_without_effect_is_named() {
        for (line, flags) in [
            ("chat --model demo/slow", &["--model"] as &[&str]),
            ("--no-auth --model demo/slow sessions list", &["--model", "--no-auth"]),
            ("up --model demo/slow --chat", &[]),
            ("--model demo/slow up", &[]),
            ("doctor --listen 127.0.0.1:1", &[]),
            ("--role worker --model demo/slow", &[]),
            ("chat --data-dir d --config c --json", &[]),
        ] {
            let words = ["clawnode"].into_iter().chain(line.split(' '));
            let matches = command().try_get_matches_from(words).unwrap();
            assert_eq!(unused(&matches).1, flags, "{line}");
        }
    }

    #[test]
    fn it_is_known_which_commands_need_only_a_node() {
        let is_asked = |line: &str| {
            let words = ["clawnode"].into_iter().chain(line.split(' '));
            asks_a_node(&command().try_get_matches_from(words).unwrap())
        };
        for line in [
            "panic",
            "status",
            "sessions list",
            "memory search x",
            "agents list",
            "chat",
            "journal show a:b:c:d",
            "--data-dir d nodes",
        ] {
            assert!(is_asked(line), "{line}");
        }
        for line in [
            "up",
            "run --role worker",
            "--role worker",
            "doctor",
            "config check",
            "config show",
            "hooks list",
            "skills list",
            "backup f",
            "journal replay",
            "journal repair",
        ] {
            assert!(!is_asked(line), "{line}");
        }
    }

    /// Every command, by its path.
    fn all() -> BTreeMap<String, Command> {
        fn walk(command: &Command, path: &str, all: &mut BTreeMap<String, Command>) {
            all.insert(path.to_owned(), command.clone());
            for subcommand in command.get_subcommands() {
                walk(subcommand, format!("{path} {}", subcommand.get_name()).trim(), all);
            }
        }
        let mut all = BTreeMap::new();
        walk(&command(), "", &mut all);
        all
    }

    /// The words of a command in a line for a shell: without what comes before and after it, and
    /// without a note, which is set off by three spaces.
    pub(in crate::cli) fn words(line: &str) -> Option<Vec<String>> {
        let at = line.match_indices("clawnode ").find(|(at, _)| {
            let before = line.get(..*at).unwrap_or_default();
            before.is_empty() || before.ends_with(' ')
        });
        let line = line.get(at.map_or(line.len(), |(at, _)| at)..)?;
        let line = if line.is_empty() { return None } else { line };
        let line = line.split("   ").next()?;
        let (mut words, mut word, mut quoted) = (Vec::new(), None::<String>, false);
        for c in line.chars() {
            match c {
                '\'' => {
                    quoted = !quoted;
                    word.get_or_insert_default();
                }
                ' ' if !quoted => words.extend(word.take()),
                '|' | '>' | ';' if !quoted => break,
                c => word.get_or_insert_default().push(c),
            }
        }
        words.extend(word);
        Some(words)
    }

    /// Whether clap takes it, and which command it is.
    pub(in crate::cli) fn parsed(words: &[String]) -> Result<String, clap::Error> {
        let matches = command().try_get_matches_from(words)?;
        let (mut at, mut path) = (&matches, Vec::new());
        while let Some((name, below)) = at.subcommand() {
            path.push(name.to_owned());
            at = below;
        }
        Ok(path.join(" "))
    }

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
        documented().debug_assert();
    }

    #[test]
    fn each_command_has_an_example_that_parses() {
        for (path, command) in all() {
            if command.is_hide_set() {
                continue;
            }
            let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let (_, examples) =
                after.split_once(EXAMPLES).unwrap_or_else(|| panic!("`{path}` has none"));
            let mut own = 0;
            for line in examples.lines().filter(|line| line.starts_with("  ")) {
                let Some(words) = words(line.trim()) else { continue };
                let named = parsed(&words).unwrap_or_else(|error| panic!("{line}\n{error}"));
                own += usize::from(
                    named == path || named.starts_with(&format!("{path} ")) || path.is_empty(),
                );
            }
            assert!(own > 0, "`{path}` has no example of its own:\n{after}");
        }
    }

    #[test]
    fn a_command_shows_the_settings_that_it_uses() {
        let shown = |command: &Command| -> Vec<String> {
            let settings = command
                .get_arguments()
                .filter(|argument| argument.get_help_heading() == Some("Settings"));
            settings
                .filter(|argument| !argument.is_hide_set())
                .map(|argument| argument.get_id().to_string())
                .collect()
        };
        let all = all();
        for (path, expected) in [
            ("sessions list", "config data_dir url token_file json output log"),
            ("chat", "config data_dir url token_file json output log"),
            ("backup", "config data_dir json output log"),
            ("journal repair", "config data_dir json output log"),
            ("import", "config nats prefix json output log"),
            ("version", "json output"),
            ("completions", ""),
            ("", "config data_dir json output log"),
        ] {
            assert_eq!(shown(&all[path]).join(" "), expected, "{path}");
        }
        assert_eq!(shown(&all["doctor"]).len(), 16);
        // The help of a command that starts no node does not say how nodes serve.
        for (path, command) in &all {
            let starts =
                ["up", "run", "doctor", "config"].contains(&path.split(' ').next().unwrap());
            let serves = shown(command).iter().any(|name| NODE.contains(&name.as_str()));
            assert_eq!(serves, starts, "{path}");
        }
    }

    #[test]
    fn a_setting_that_is_not_shown_is_taken_and_not_documented() {
        let args = ["clawnode", "--nats", "nats://a", "sessions", "list", "--prefix", "x"];
        let matches = command().try_get_matches_from(args).unwrap();
        assert_eq!(matches.get_one::<String>("nats").map(String::as_str), Some("nats://a"));
        assert!(matches.contains_id("prefix"), "it reaches the root, where it is read");
        let mut documented = documented();
        documented.build();
        let sessions = documented.find_subcommand("sessions").unwrap();
        let list = sessions.find_subcommand("list").unwrap();
        assert!(list.get_arguments().any(|argument| argument.get_id() == "url"));
        assert!(!list.get_arguments().any(|argument| argument.get_id() == "nats"));
    }
}
