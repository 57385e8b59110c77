//! Tools that a client runs: whether an agent may be offered them, and the results that come back.

use clawnode_actors::agent::Agents;
use clawnode_gateway::{Following, ResultsRequest};
use clawnode_proto::{
    AgentName, ErrorBody, ErrorCode, TurnId,
    client_tool::{ClientResult, ClientResults, ClientTool, ToolChoice},
    llm::Sampling,
};
use clawnode_tool::schema;

use super::backend::{NodeBackend, following};

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

/// Stores the results, and follows the turn that waits for them.
pub(super) async fn bring(
    backend: &NodeBackend,
    request: ResultsRequest,
) -> Result<Following, ErrorBody> {
    let ResultsRequest { session, agent, results, system, sampling, tools, trace } = request;
    let unknown = || {
        let what = "parameter `messages`: no turn waits for the results of these tool calls";
        ErrorBody::new(ErrorCode::InvalidParams, what)
    };
    let entity = backend.sessions.read(session).await.map_err(|error| {
        let error = ErrorBody::from(error);
        if error.code == ErrorCode::NotFound { unknown() } else { error }
    })?;
    let Some(key) = entity.state.key.clone() else { return Err(unknown()) };
    if key.agent != agent {
        let what = format!("parameter `model`: the tool calls are of `{}`", key.agent);
        return Err(ErrorBody::new(ErrorCode::InvalidParams, what));
    }
    let first = results.first().and_then(|(call, _)| entity.state.place_of_call(*call));
    let model = first.and_then(|(turn, _)| turn.model.clone());
    drop(entity);
    backend.models().takes(&agent, model.as_ref(), &sampling)?;
    check(&backend.agents, &agent, &tools, &sampling)?;
    let result = |(call, content): (_, String)| ClientResult { call, content: content.into() };
    let results = results.into_iter().map(result).collect();
    // The calls say which turn it is.
    let turn = TurnId::from_u128(0);
    let results = ClientResults { turn, results, system, sampling, tools };
    let sent = backend.sessions.bring(session, results, trace).await?;
    Ok(following(sent, key.to_string()))
}
