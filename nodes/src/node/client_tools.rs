//! Whether an agent may be offered the tools that a client runs.

use clawnode_actors::agent::Agents;
use clawnode_proto::{
    AgentName, ErrorBody, ErrorCode, client_tool::ClientTool, llm::Sampling,
    tool_choice::ToolChoice,
};
use clawnode_tool::schema;

/// Refuses tools that the agent cannot be offered beside its own.
pub(super) fn check(
    agents: &Agents,
    agent: &AgentName,
    tools: &[ClientTool],
    sampling: &Sampling,
) -> Result<(), ErrorBody> {
    let invalid = |what: String| ErrorBody::new(ErrorCode::InvalidParams, what);
    // An agent that this node does not know well enough has its own tools win over those of clients.
    let own = agents.profile(agent).map(|profile| profile.tools).unwrap_or_default();
    for tool in tools {
        let name = &tool.name;
        if own.iter().any(|own| own.name == *name) {
            let what = format!("parameter `tools`: agent `{agent}` has a tool `{name}` of its own");
            return Err(invalid(what).hint("give yours another name"));
        }
        schema::check(&tool.spec())
            .map_err(|error| invalid(format!("parameter `tools`: `{name}`: {error}")))?;
    }
    if let Some(ToolChoice::Tool { name }) = &sampling.tool_choice
        && !tools.iter().any(|tool| tool.name == *name)
        && !own.iter().any(|own| own.name == *name)
    {
        return Err(invalid(format!("parameter `tool_choice`: there is no tool `{name}`")));
    }
    Ok(())
}
