//! Agents, as clients see them.

use clawnode_actors::{agent::AgentMemory, session::turn::context::count_tokens, usage};
use clawnode_gateway::HandlerResult;
use clawnode_proto::{
    AgentName, ErrorBody, ErrorCode,
    agent_profile::{AgentProfile, AgentProfileParams},
    agents::{AgentDetail, AgentMemoryView, AgentView},
    usage::Day,
};
use serde::Serialize;

use super::{
    backend::{NodeBackend, store},
    health,
    mcp_servers::missing_view,
    session_filter,
};
use crate::config::nearest;

fn memory(memory: &AgentMemory) -> AgentMemoryView {
    // Each setting is named, so that none is left out.
    let AgentMemory { layers, top_facts, shared, recall_untrusted, extract, reflect } = memory;
    AgentMemoryView {
        layers: layers.iter().copied().collect(),
        top_facts: u32::try_from(*top_facts).unwrap_or(u32::MAX),
        shared: shared.iter().map(ToString::to_string).collect(),
        recall_untrusted: *recall_untrusted,
        extract: word(extract),
        reflect: word(reflect),
    }
}

/// A setting, as the configuration spells it.
fn word(setting: &impl Serialize) -> String {
    let value = serde_json::to_value(setting).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

impl NodeBackend {
    /// What is known of one agent.
    pub(super) async fn agent_detail(&self, agent: AgentName) -> HandlerResult<AgentDetail> {
        let view = self.agent_view(&agent).await?;
        let profile = self.agents.profile(&agent).map_err(|_unknown| self.unknown_agent(&agent))?;
        let alive = self.overview.alive();
        let missing = self.agents.missing_tools(&agent).into_iter();
        let warnings = count_tokens::warning(&profile).into_iter().collect();
        let options = self.agents.options(&agent);
        let options = options.as_ref();
        let skills = options.map(|options| options.skills.skills.as_slice()).unwrap_or_default();
        Ok(AgentDetail {
            view,
            models: options.map(|options| options.models.clone()).unwrap_or_default(),
            response_schema: profile.response_schema,
            sampling: profile.sampling,
            window_tokens: profile.window_tokens,
            context: profile.context,
            memory: options.and_then(|options| options.memory.as_ref()).map(memory),
            skills: skills.iter().map(|skill| skill.head.name.clone()).collect(),
            time: profile.time,
            limits: options.map(|options| options.limits).unwrap_or_default(),
            max_parallel_tools: profile.max_parallel_tools,
            policy: profile.policy,
            hooks: profile.hooks,
            tools: profile.tools.iter().map(|spec| health::tool(&alive, spec)).collect(),
            missing: missing.map(|tool| missing_view(&alive, tool)).collect(),
            warnings,
        })
    }

    /// What an agent has done. One that is not configured any more has done what it did.
    pub(super) async fn agent_profile(
        &self,
        params: AgentProfileParams,
    ) -> HandlerResult<AgentProfile> {
        let AgentProfileParams { agent, since } = params;
        let (storage, now) = (self.sessions.storage(), self.sessions.now());
        let since = since.map(|text| session_filter::parse_since(&text, now)).transpose()?;
        let shown = usage::profile(storage, now, &agent, since.map(Day::of)).await;
        let profile = shown.map_err(store)?;
        if profile.is_empty() && !self.agents.names().contains(&agent) {
            return Err(self.unknown_agent(&agent));
        }
        Ok(profile)
    }

    pub(super) async fn agent_view(&self, agent: &AgentName) -> HandlerResult<AgentView> {
        let views = self.agents.views().await;
        views.into_iter().find(|view| view.agent == *agent).ok_or_else(|| self.unknown_agent(agent))
    }

    fn unknown_agent(&self, agent: &AgentName) -> ErrorBody {
        let names = self.agents.names();
        let near = nearest(agent.as_str(), names.iter().map(AgentName::as_str));
        let meant = near.map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
        ErrorBody::new(ErrorCode::NotFound, format!("no agent is named `{agent}`"))
            .hint(format!("{meant}`clawnode agents list` shows the agents there are"))
    }
}

#[cfg(test)]
mod tests {
    use clawnode_actors::agent::{FactExtraction, ReflectionMode};

    use super::*;

    #[test]
    fn people_see_each_setting_of_a_memory_as_it_is_configured() {
        let usual = memory(&AgentMemory::default());
        assert_eq!((usual.extract.as_str(), usual.reflect.as_str()), ("patterns", "off"));
        assert!(!usual.recall_untrusted);
        let (extract, reflect) = (FactExtraction::Off, ReflectionMode::Model);
        let other =
            AgentMemory { recall_untrusted: true, extract, reflect, ..AgentMemory::default() };
        let view = memory(&other);
        assert_eq!((view.extract.as_str(), view.reflect.as_str()), ("off", "model"));
        assert!(view.recall_untrusted);
    }
}
