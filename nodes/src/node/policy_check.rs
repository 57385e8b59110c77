//! Asks an agent's policy about a call, without making it.

use clawnode_actors::{agent::Agents, session::turn::tools::permission::permission};
use clawnode_guard::policy::risk_of;
use clawnode_proto::{
    AgentName, ErrorBody, ErrorCode,
    api::{PolicyCheck, PolicyContext},
    policy::Verdict,
    view::PolicyView,
};
use serde_json::Value;

use super::unknown_action::unknown_action;
use crate::config::agents::DEFAULT_AGENT;

/// Answers `policy.check`.
pub(super) fn check(agents: &Agents, check: PolicyCheck) -> Result<PolicyView, ErrorBody> {
    let PolicyCheck { action, target, context: PolicyContext { agent, mut arguments } } = check;
    let agent = agent.as_deref().unwrap_or(DEFAULT_AGENT);
    let agent: AgentName = agent.parse().map_err(|error| {
        ErrorBody::new(ErrorCode::InvalidParams, format!("parameter `context.agent`: {error}"))
    })?;
    let profile = agents.profile(&agent).map_err(|error| {
        ErrorBody::new(ErrorCode::NotFound, error.to_string())
            .hint("`clawnode agents list` shows the agents there are")
    })?;
    let Some(spec) = profile.tool(&action) else {
        return Err(unknown_action(&agent, &profile, &action));
    };
    if let Some(target) = target {
        arguments.entry("target").or_insert(Value::String(target));
    }
    let judgement = permission(&profile.policy, spec, &arguments);
    Ok(PolicyView {
        allowed: judgement.verdict != Verdict::Deny,
        requires_approval: judgement.verdict == Verdict::Ask,
        risk_level: risk_of(&profile.policy.read_only, spec, &arguments),
        verdict: judgement.verdict,
        reason: judgement.reason.map(str::to_owned),
        agent,
        action,
    })
}
