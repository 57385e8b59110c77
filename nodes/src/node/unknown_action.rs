//! The error for an action of a plan that its agent does not have.

use clawnode_proto::{AgentName, ErrorBody, ErrorCode, session::Profile};

/// Characters of the name of an action that a refusal repeats.
pub(super) const ACTION_SHOWN: usize = 80;

/// An action is a tool of the agent, by its name. What other planners call theirs is none of ours.
pub(super) fn unknown_action(agent: &AgentName, profile: &Profile, action: &str) -> ErrorBody {
    let names: Vec<&str> = profile.tools.iter().map(|tool| tool.name.as_str()).collect();
    let action: String = action.chars().take(ACTION_SHOWN).collect();
    let message = format!("unknown action `{action}`: agent `{agent}` has no such tool");
    ErrorBody::new(ErrorCode::InvalidParams, message).hint(tools_of(agent, &names))
}

/// Which actions there are.
fn tools_of(agent: &AgentName, names: &[&str]) -> String {
    if names.is_empty() {
        return format!("agent `{agent}` has no tools: name them in `agents.{agent}.tools`");
    }
    format!("an action is the name of a tool; `{agent}` has: {}", names.join(", "))
}

/// The error of one step of several.
pub(super) fn of_step(number: u32, wrong: ErrorBody) -> ErrorBody {
    ErrorBody { message: format!("step {number}: {}", wrong.message), ..wrong }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_without_tools_is_told_from_one_with_others() {
        let agent = "ops".parse().unwrap();
        assert!(tools_of(&agent, &["a", "b"]).ends_with("`ops` has: a, b"));
        assert!(tools_of(&agent, &[]).contains("name them in `agents.ops.tools`"));
    }
}
