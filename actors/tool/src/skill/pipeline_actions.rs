//! The eight actions of pipelines, as tools. A plan runs tools and asks no model, so one of them is refused by name.

use clawnode_proto::{ToolName, tool::RUN_COMMAND};

use crate::workspace_path::{FILE_READ, FILE_WRITE};

/// Characters of a name that an error repeats.
pub(super) const SHOWN: usize = 80;

/// What an action is.
enum Meaning {
    /// A call of this tool, with these parameters.
    Tool(&'static str, &'static [&'static str]),
    /// Nothing that a plan can do, and what to do instead.
    Refused(&'static str),
}

/// The parameter of requests that makes a status such as 500 a failure. In a pipeline it is on by default: no model reads
/// the status, and the steps after it would run.
pub(super) const EXPECT_SUCCESS: &str = "expect_success";

const ACTIONS: [(&str, Meaning); 8] = [
    ("http.get", Meaning::Tool("http_fetch", &["url", "headers", "max_bytes", EXPECT_SUCCESS])),
    (
        "http.post",
        Meaning::Tool("http_post", &["url", "body", "headers", "max_bytes", EXPECT_SUCCESS]),
    ),
    (
        "llm.complete",
        Meaning::Refused(
            "a pipeline runs as a plan, which asks no model; have an agent do this step in a chat",
        ),
    ),
    ("fs.read", Meaning::Tool(FILE_READ, &["path", "offset", "limit"])),
    ("fs.write", Meaning::Tool(FILE_WRITE, &["path", "content"])),
    ("shell.exec", Meaning::Tool(RUN_COMMAND, &["command", "argv", "stdin", "timeout_s"])),
    ("transform.json", Meaning::Tool("transform_json", &["input", "pointer"])),
    (
        "transform.text",
        Meaning::Tool("transform_text", &["input", "operation", "find", "replacement", "count"]),
    ),
];

/// The tool of an action, and the parameters that it has if they are known here. Any other name without a dot is a
/// tool of the agent.
pub(super) fn tool_of(action: &str) -> Result<(String, Option<&'static [&'static str]>), String> {
    match ACTIONS.iter().find(|(name, _)| *name == action) {
        Some((_, Meaning::Tool(tool, parameters))) => Ok(((*tool).to_owned(), Some(*parameters))),
        Some((name, Meaning::Refused(why))) => Err(format!("`{name}` cannot run here: {why}")),
        None if !action.contains('.') && action.parse::<ToolName>().is_ok() => {
            Ok((action.to_owned(), None))
        }
        None => {
            let names: Vec<&str> = ACTIONS.iter().map(|(name, _)| *name).collect();
            let shown: String = action.chars().take(SHOWN).collect();
            let names = names.join(", ");
            Err(format!("unknown action `{shown}`: name a tool of the agent, or one of {names}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_action_is_a_tool_or_refused_by_name() {
        let mut refused = Vec::new();
        for (name, _) in &ACTIONS {
            match tool_of(name) {
                Ok((tool, parameters)) => {
                    assert!(tool.parse::<ToolName>().is_ok() && parameters.is_some(), "{name}");
                }
                Err(why) => {
                    assert!(why.contains(name), "{why}");
                    refused.push(*name);
                }
            }
        }
        assert_eq!(refused, ["llm.complete"]);
        assert_eq!(tool_of("deploy").unwrap(), ("deploy".to_owned(), None));
        for name in ["http.put", "", "a b", "../x"] {
            let why = tool_of(name).unwrap_err();
            assert!(why.contains("unknown action") && why.contains("shell.exec"), "{why}");
        }
    }
}
