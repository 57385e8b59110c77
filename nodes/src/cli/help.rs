//! `help`: topics, each a task of people's with its commands, and the help of every command.

use clap::Args;

use super::{clap_command, output::Output};
use crate::failure::{Exit, Failure};

/// What `help --help` ends with.
const EXAMPLES: &str = "\
Examples:
  clawnode help                     this program, and the list of topics
  clawnode help models              a topic
  clawnode help sessions list       the same as `clawnode sessions list --help`";

/// A topic: its name, what it is about, and its text.
struct Topic {
    name: &'static str,
    about: &'static str,
    text: &'static str,
}

macro_rules! topic {
    ($name:literal, $about:literal) => {
        Topic { name: $name, about: $about, text: include_str!(concat!("topics/", $name, ".txt")) }
    };
}

/// All topics. One that has the name of a command explains the task that the command is a part of.
const TOPICS: [Topic; 10] = [
    topic!("models", "choose a model and its provider"),
    topic!("approvals", "decide which tool calls run"),
    topic!("tools", "give tools to an agent"),
    topic!("mcp", "use the tools of an MCP server"),
    topic!("hooks", "judge model calls and tool calls with your own programs"),
    topic!("clients", "talk to an agent from other programs"),
    topic!("cluster", "run many nodes"),
    topic!("data", "look at, check, back up and move data"),
    topic!("budget", "limit what is spent, and act when a limit is reached"),
    topic!("stop", "stop agents, and let them continue"),
];

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct HelpArgs {
    /// A topic or a command
    #[arg(value_name = "TOPIC")]
    topic: Vec<String>,
}

/// `help`.
pub(super) fn run(args: &HelpArgs, out: Output) -> Result<Exit, Failure> {
    out.line(&text(&args.topic)?)?;
    Ok(Exit::Ok)
}

fn text(asked: &[String]) -> Result<String, Failure> {
    let named = |topic: &&Topic| *asked == [topic.name];
    if let Some(topic) = TOPICS.iter().find(named) {
        let (name, text) = (topic.name, topic.text.trim_end());
        let is_command = clap_command::command().find_subcommand(name).is_some();
        let more = if is_command {
            format!("\n\nSee also: clawnode {name} --help")
        } else {
            String::new()
        };
        return Ok(format!("{text}{more}"));
    }
    let mut command = clap_command::command();
    command.build();
    let mut found = &mut command;
    for name in asked {
        found = found.find_subcommand_mut(name).ok_or_else(|| unknown(asked))?;
    }
    let help = found.render_help().to_string();
    Ok(if asked.is_empty() { format!("{}\n\n{}", help.trim_end(), topics()) } else { help })
}

fn topics() -> String {
    let lines = TOPICS.iter().map(|topic| format!("  {:<11} {}", topic.name, topic.about));
    let lines: Vec<String> = lines.collect();
    format!("Topics (`clawnode help TOPIC`):\n{}", lines.join("\n"))
}

fn unknown(asked: &[String]) -> Failure {
    let names: Vec<&str> = TOPICS.iter().map(|topic| topic.name).collect();
    let what = format!("there is no topic or command `{}`", asked.join(" "));
    let hint = format!("topics: {}; `clawnode --help` lists commands", names.join(", "));
    Failure::new(Exit::Usage, "usage", what).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::clap_command::tests::{parsed, words};

    fn of(asked: &[&str]) -> Result<String, Failure> {
        text(&asked.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn each_topic_has_commands_that_parse() {
        for topic in &TOPICS {
            let lines = topic.text.lines().filter(|line| line.starts_with("  "));
            let commands: Vec<_> = lines.filter_map(|line| words(line.trim())).collect();
            assert!(commands.len() >= 2, "{}", topic.name);
            for command in commands {
                parsed(&command).unwrap_or_else(|error| panic!("{}: {error}", topic.name));
            }
            assert!(topic.text.lines().all(|line| line.chars().count() <= 100), "{}", topic.name);
        }
    }

    #[test]
    fn topics_and_commands_are_explained_and_others_refused_with_a_list() {
        let root = of(&[]).unwrap();
        assert!(root.contains("Usage: clawnode [OPTIONS] [COMMAND]"), "{root}");
        assert!(root.contains("\n  models      choose a model"), "{root}");
        assert!(of(&["mcp"]).unwrap().ends_with("See also: clawnode mcp --help"));
        assert!(of(&["models"]).unwrap().contains("--model"));
        let list = of(&["sessions", "list"]).unwrap();
        assert!(list.contains("Usage: clawnode sessions list [OPTIONS]"), "{list}");
        let refused = of(&["modles"]).unwrap_err();
        assert_eq!(refused.exit, Exit::Usage);
        assert!(refused.hint.unwrap().starts_with("topics: models, "));
        assert!(of(&["sessions", "models"]).is_err());
    }
}
