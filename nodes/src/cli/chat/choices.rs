//! `/model` and `/reasoning`: what the conversation keeps of the person's choices; and `/lane`, which this chat
//! keeps.

use clawnode_guard::policy::Pattern;
use clawnode_proto::{
    agents::AgentDetail,
    api::{AgentParams, SessionParams, calls},
    id::ParseIdError,
    lane::Lane,
    llm::ModelRef,
    reasoning::Reasoning,
    session::KeptChoice,
};

use super::start::Chat;
use crate::{
    config::nearest,
    failure::{Exit, Failure},
};

/// What the agent is configured with.
const DEFAULT: &str = "default";
/// The amounts of thinking that have a name.
const AMOUNTS: [&str; 5] = ["off", "low", "medium", "high", DEFAULT];
/// The lanes that a person may choose.
pub(super) const LANES: [Lane; 2] = [Lane::Interactive, Lane::Background];

impl Chat<'_> {
    /// Shows the model, or chooses another for this conversation.
    pub(super) async fn model(&mut self, wanted: Option<String>) -> Result<(), Failure> {
        let agent = self.desk.as_ref().and_then(|desk| desk.agent.clone());
        let Some(agent) = agent else {
            return self.aside("the agent and its model are not known until the first answer");
        };
        let params = AgentParams { agent: agent.agent.to_string() };
        let AgentDetail { view, models, .. } =
            self.gateways.current().call(calls::AgentsShow, &params).await?;
        let own = view.model.to_string();
        let all: Vec<&str> = models.iter().map(String::as_str).chain([own.as_str()]).collect();
        let Some(wanted) = wanted else {
            let words = self.model_now(&own).await;
            let others = if models.is_empty() {
                String::new()
            } else {
                format!("; allowed: {}", all.join(", "))
            };
            return self.aside(&format!("{words}{others}"));
        };
        if wanted == DEFAULT {
            self.keeps_model(None);
            return self.aside("the agent chooses the model from your next message on");
        }
        let refused = |why: String| {
            let near = nearest(&wanted, all.iter().copied());
            let meant = near.map(|near| format!("did you mean {near}? ")).unwrap_or_default();
            Failure::new(Exit::Usage, "usage", why).hint(format!(
                "{meant}allowed: {}; `models` under [agents.{}] in the configuration allows more",
                all.join(", "),
                view.agent,
            ))
        };
        let model: ModelRef =
            wanted.parse().map_err(|error: ParseIdError| refused(error.to_string()))?;
        if !all.iter().any(|pattern| Pattern::from(*pattern).fits(&wanted)) {
            return Err(refused(format!("the agent {} does not allow {model}", view.agent)));
        }
        self.keeps_model(Some(model.clone()));
        self.aside(&format!("{model} answers from your next message on"))
    }

    /// Which model answers, and why.
    async fn model_now(&self, own: &str) -> String {
        let chosen = self.desk.as_ref().filter(|desk| desk.keep.contains(&KeptChoice::Model));
        if let Some(model) = chosen.and_then(|chosen| chosen.model.as_ref()) {
            return format!("{model}; the agent's own is {own}");
        }
        if let (None, Some(key)) = (chosen, self.conversation.key()) {
            let params = SessionParams { session: key.to_string() };
            let view = self.gateways.current().call(calls::ModelsRoute, &params).await;
            // A node of an earlier build does not know it.
            if let Ok(view) = view
                && view.model.to_string() != own
            {
                return format!("{} ({}); the agent's own is {own}", view.model, view.reason);
            }
        }
        format!("{own}, the model of the agent {}", self.agent_name())
    }

    fn agent_name(&self) -> String {
        let agent = self.desk.as_ref().and_then(|desk| desk.agent.as_ref());
        agent.map(|agent| agent.agent.to_string()).unwrap_or_default()
    }

    fn keeps_model(&mut self, model: Option<ModelRef>) {
        if let Some(desk) = &mut self.desk {
            desk.model = model;
            desk.keeps(KeptChoice::Model);
        }
    }

    /// Shows how much the model thinks, or chooses that for this conversation.
    pub(super) fn reasoning(&mut self, wanted: Option<String>) -> Result<(), Failure> {
        let Some(wanted) = wanted else {
            let now = self.desk.as_ref().and_then(|desk| desk.reasoning);
            let now = now.map_or_else(
                || "the model thinks as the agent, or an earlier choice, says".to_owned(),
                |reasoning| format!("the model thinks: {reasoning}"),
            );
            return self.aside(&format!("{now}; {}", amounts()));
        };
        let reasoning = if wanted == DEFAULT { None } else { Some(amount(&wanted)?) };
        if let Some(desk) = &mut self.desk {
            desk.reasoning = reasoning;
            desk.keeps(KeptChoice::Reasoning);
        }
        let words = reasoning
            .map_or_else(|| "as the agent says".to_owned(), |reasoning| reasoning.to_string());
        self.aside(&format!("from your next message on, the model thinks: {words}"))
    }
}

impl Chat<'_> {
    /// Shows the lane, or chooses another for this chat.
    pub(super) fn choose_lane(&mut self, wanted: Option<String>) -> Result<(), Failure> {
        let Some(wanted) = wanted else {
            let now = self.lane.map_or("as the agent says", Lane::as_str);
            let all: Vec<&str> = LANES.iter().map(|lane| lane.as_str()).collect();
            return self.aside(&format!("the lane: {now}; choose {}, {DEFAULT}", all.join(", ")));
        };
        self.lane = if wanted == DEFAULT { None } else { Some(lane(&wanted)?) };
        let now = self.lane.map_or("as the agent says", Lane::as_str);
        self.aside(&format!("the lane from your next message on: {now}"))
    }
}

/// The lane of this name.
pub(super) fn lane(wanted: &str) -> Result<Lane, Failure> {
    let found = LANES.into_iter().find(|lane| lane.as_str() == wanted);
    found.ok_or_else(|| {
        let near = nearest(wanted, LANES.map(Lane::as_str));
        let meant = near.map(|near| format!("did you mean {near}? ")).unwrap_or_default();
        let what = format!("{wanted} is not a lane that a message may choose");
        Failure::new(Exit::Usage, "usage", what)
            .hint(format!("{meant}choose interactive, background or {DEFAULT}"))
    })
}

/// How much a person wants a model to think.
fn amount(wanted: &str) -> Result<Reasoning, Failure> {
    let number = || wanted.parse().ok().and_then(Reasoning::tokens);
    Reasoning::named(wanted).or_else(number).ok_or_else(|| {
        let near = nearest(wanted, AMOUNTS);
        let meant = near.map(|near| format!("did you mean {near}? ")).unwrap_or_default();
        let what = format!("{wanted} is not an amount of thinking");
        Failure::new(Exit::Usage, "usage", what).hint(format!("{meant}{}", amounts()))
    })
}

fn amounts() -> String {
    let least = Reasoning::MIN_TOKENS;
    format!("choose {}, or a number of tokens from {least}", AMOUNTS.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_chooses_two_of_the_lanes() {
        assert_eq!(lane("background").ok(), Some(Lane::Background));
        for (wrong, near) in [("backgruond", "did you mean background?"), ("system", "choose")] {
            let hint = lane(wrong).unwrap_err().hint.unwrap_or_default();
            assert!(hint.contains(near), "{hint}");
        }
    }

    #[test]
    fn an_amount_that_is_none_gets_the_nearest_word() {
        assert_eq!(amount("high").ok(), Some(Reasoning::High));
        assert_eq!(amount("2000").ok(), Some(Reasoning::Tokens(2_000)));
        for (wrong, near) in [("hihg", "did you mean high?"), ("12", "from 1024")] {
            let hint = amount(wrong).unwrap_err().hint.unwrap_or_default();
            assert!(hint.contains(near), "{hint}");
        }
    }
}
