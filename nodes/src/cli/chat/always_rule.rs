//! `always`: a person allows all calls like the one that waits, by an exact rule in the configuration file of
//! the node.

use std::time::Duration;

use clawnode_proto::{
    AgentName, ErrorChain,
    api::{AgentParams, calls},
    policy::{Approval, Rule},
};
use tokio::time::{sleep, timeout};

use super::{
    Chat, approve, desk::RuleOffer, follow::After, terminal_style::TextRole, warnings::WarningNote,
};
use crate::{
    cli::output::exact,
    client::NodeClient,
    config::{
        agents::DEFAULT_AGENT,
        paths,
        rules::{self, RulePlace},
    },
    failure::Failure,
};

/// How long the node may take to say which rules an agent has.
const ANSWERS: Duration = Duration::from_secs(3);
/// How long a node is given to read its changed configuration; it looks every 2 s.
const RELOADED: Duration = Duration::from_secs(6);
/// How often the chat asks whether it has.
const LOOK_EVERY: Duration = Duration::from_millis(200);

impl Chat<'_> {
    /// Shows the rule that allows such calls, and asks whether to write it, if it would come to the agent
    /// that asks.
    pub(super) async fn offer_rule(&mut self, approval: &Approval) -> Result<After, Failure> {
        let rule = match approve::rule(approval) {
            Ok(rule) => rule,
            Err(why) => {
                let words = format!("There is no rule for exactly this call: {why}.");
                return self.ask_again(&words, None);
            }
        };
        let agent = &approval.action.session.agent;
        let client = self.gateways.current().clone();
        let own = timeout(ANSWERS, self.own_rules(&client, agent)).await;
        let text = rules::text(agent.as_str(), &rule);
        let (words, rule) = match own.unwrap_or(Err("the node does not answer")) {
            Ok((place, file)) => {
                let words = format!(
                    "This rule, in {file}, would allow exactly such calls in every session of the \
                     agent `{agent}`:"
                );
                let place = approve::place(approval, &place);
                (words, Some(RuleOffer { place, rule }))
            }
            Err(why) => {
                let words = format!(
                    "This rule allows exactly such calls in every session of the agent `{agent}`. This \
                     chat cannot write it, because {why}. Add it to the node's configuration file:"
                );
                (words, None)
            }
        };
        if let Some(desk) = &mut self.desk {
            desk.screen.say(TextRole::Aside, &words)?;
            desk.screen.print(&exact_lines(&text))?;
            desk.ask(rule)?;
        }
        Ok(After::Nothing)
    }

    /// The rules that the agent has, and the file that they are from; `Err`: why this file is not theirs.
    async fn own_rules(
        &self,
        client: &NodeClient,
        agent: &AgentName,
    ) -> Result<(Vec<Rule>, String), &'static str> {
        const OTHER: &str = "the node's rules differ from this machine's configuration";
        if self.context.names_a_node() {
            return Err("the node was named by its address");
        }
        let loaded = &self.context.loaded;
        let now = loaded.reload().map_err(|error| {
            tracing::debug!(%error, "cannot read the configuration");
            "the configuration is not valid now"
        })?;
        let file = now.own_file().ok_or("there is no home directory for the file")?;
        let mine = match now.config.agents.get(agent) {
            Some(options) => options.rules.iter().cloned().map(Rule::from).collect(),
            // The only agent that needs no configuration.
            None if agent.as_str() == DEFAULT_AGENT => Vec::new(),
            None => return Err(OTHER),
        };
        let theirs = rules_of(client, agent).await.ok_or("the node does not show its rules")?;
        if theirs == mine { Ok((mine, paths::shown(&file, loaded.env()))) } else { Err(OTHER) }
    }

    /// Writes a rule; a note follows when the node has read it.
    pub(super) fn write_rule(
        &mut self,
        approval: &Approval,
        offer: &RuleOffer,
    ) -> Result<(), String> {
        let agent = approval.action.session.agent.clone();
        let place = RulePlace { agent: agent.as_str(), number: offer.place };
        let written = rules::write(&self.context.loaded, place, &offer.rule);
        let file = written.map_err(|error| ErrorChain(&error).to_string())?;
        let file = paths::shown(&file, self.context.loaded.env());
        let client = self.gateways.current().clone();
        let wanted = Rule::from(offer.rule.clone());
        if let Some(desk) = &mut self.desk {
            desk.warnings.expect(async move {
                let holds = async {
                    while !rules_of(&client, &agent)
                        .await
                        .is_some_and(|rules| rules.contains(&wanted))
                    {
                        sleep(LOOK_EVERY).await;
                    }
                };
                match timeout(RELOADED, holds).await {
                    Ok(()) => {
                        WarningNote::Works(format!("the rule in {file} is active: such calls run"))
                    }
                    Err(_elapsed) => WarningNote::Fails(format!(
                        "warning: the node has not read the new rule in {file}; its log says why"
                    )),
                }
            });
        }
        Ok(())
    }
}

/// The agent's rules as the node has them now.
async fn rules_of(client: &NodeClient, agent: &AgentName) -> Option<Vec<Rule>> {
    let params = AgentParams { agent: agent.to_string() };
    client.call(calls::AgentsShow, &params).await.ok().map(|agent| agent.policy.rules)
}

/// Lines of which every character is seen.
fn exact_lines(text: &str) -> String {
    text.trim_end().lines().map(|line| format!("  {}", exact(line))).collect::<Vec<_>>().join("\n")
}
