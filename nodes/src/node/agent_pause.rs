//! How an operator pauses or resumes an agent, and what the event feed has of it: `agent_paused` and `agent_resumed`.
//!
//! A limit that an agent exceeds pauses it, too (`runaways`).

use clawnode_gateway::HandlerResult;
use clawnode_proto::{
    AgentName, ErrorBody, ErrorChain, ErrorCode,
    agents::{AgentPause, AgentView},
    feed::EventBody,
};

use super::{backend::NodeBackend, panic::PanicControl};

impl NodeBackend {
    /// Pauses or resumes an agent on every node; returns it as it is then.
    pub(super) async fn pause(&self, agent: &AgentName, paused: bool) -> HandlerResult<AgentView> {
        self.agent_view(agent).await?;
        if let (false, Some(refusal)) = (paused, self.switch.refusal_of(agent)) {
            return Err(refusal);
        }
        let pause = self.switch.pause_by(format!("operator at {}", self.overview.node()));
        let wanted = paused.then(|| pause.clone());
        let changed = self.agents.pause(agent, wanted).await.map_err(|error| {
            ErrorBody::new(ErrorCode::Unavailable, ErrorChain(&error).to_string()).hint("try again")
        })?;
        if changed {
            self.switch.tell_pause(agent.clone(), pause, paused);
        }
        self.agent_view(agent).await
    }
}

// === impl PanicControl ===

impl PanicControl {
    /// A pause of an agent by an operator, now.
    fn pause_by(&self, by: String) -> AgentPause {
        AgentPause { by, why: String::new(), at: self.feed.now(), limit: None }
    }

    /// Tells operators that one of them paused an agent, or resumed it.
    fn tell_pause(&self, agent: AgentName, pause: AgentPause, paused: bool) {
        self.feed.tell(if paused {
            EventBody::AgentPaused { agent, pause }
        } else {
            EventBody::AgentResumed { agent, by: pause.by }
        });
    }
}
