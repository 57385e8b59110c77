//! Calls that wait for a person: what they are shown, and what their answer does.

use std::{
    path::{Component, Path},
    time::Duration,
};

use clawnode_proto::{
    AgentName, ErrorBody, ErrorChain,
    api::{AgentParams, calls},
    frame::ApprovalRequest,
    policy::{Approval, Decision, Rule},
};
use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::{
    Chat, Person,
    approve::{self, ApprovalAnswer},
    asked::{AskedCalls, ShownQuestion, shown},
    desk::{Answered, RuleOffer},
    follow::After,
    keys::Key,
    look::{TerminalStyle, TextRole},
    warnings::WarningNote,
};
use crate::{
    cli::output::exact,
    client::{ClientSocket, NodeClient},
    config::{
        agents::DEFAULT_AGENT,
        paths,
        rules::{self, RulePlace},
    },
    failure::Failure,
};

/// Bytes of a file that a call would change, for the difference to be shown.
const DIFF_BYTES: u64 = 256 << 10;
/// How long the node may take to say which rules an agent has.
const ANSWERS: Duration = Duration::from_secs(3);
/// How long a node is given to read its changed configuration; it looks every 2 s.
const RELOADED: Duration = Duration::from_secs(6);
/// How often the chat asks whether it has.
const LOOK_EVERY: Duration = Duration::from_millis(200);

impl Chat<'_> {
    /// Another client has decided about the call that the person is asked about.
    pub(super) fn elsewhere(&mut self, asked: &AskedCalls) -> Result<(), Failure> {
        let Some(desk) = &mut self.desk else { return Ok(()) };
        desk.question = None;
        desk.screen.clear()?;
        self.aside("this call was decided elsewhere")?;
        self.next_question(asked)
    }

    pub(super) fn is_asked(&self) -> bool {
        self.desk.as_ref().is_some_and(|desk| desk.question.is_some())
    }

    /// A key for the question.
    pub(super) async fn answered(
        &mut self,
        key: Key,
        asked: &mut AskedCalls,
        socket: &mut ClientSocket,
    ) -> Result<After, Failure> {
        let Some(desk) = &mut self.desk else { return Ok(After::Nothing) };
        let (line, rule) = match desk.answer(&key)? {
            Answered::NotYet => return Ok(After::Nothing),
            Answered::Later => return Ok(After::Later),
            Answered::Line(line, rule) => (line, rule),
        };
        let Some(approval) = asked.front().cloned() else { return Ok(After::Nothing) };
        let decision = match (approve::answer(&line), rule) {
            (ApprovalAnswer::Yes, None) => Decision::Approve,
            (ApprovalAnswer::Yes, Some(rule)) => {
                // Without the rule this may be another wish.
                if let Err(why) = self.write_rule(&approval, &rule) {
                    let words = format!("The rule is not written: {why}. Run this call once?");
                    return self.ask_again(&words, None);
                }
                Decision::Approve
            }
            (ApprovalAnswer::No, None) => Decision::Deny,
            (ApprovalAnswer::No, Some(_)) => {
                return self.ask_again("The rule is not written.", None);
            }
            (_, Some(rule)) => {
                return self.ask_again("y or n; Ctrl-D decides later", Some(rule));
            }
            (ApprovalAnswer::Always, None) => return self.offer_rule(&approval).await,
            (ApprovalAnswer::Why, None) => return self.ask_again(&approve::why(&approval), None),
            (ApprovalAnswer::Unclear, None) => {
                let words = "y or n; `always` writes a rule, `why` says more; Ctrl-D decides later";
                return self.ask_again(words, None);
            }
        };
        if let Err(error) = asked.decide(decision, socket).await {
            return Ok(After::Lost(error));
        }
        if let Some(desk) = &mut self.desk {
            desk.question = None;
            desk.decided(approval.action.call);
        }
        self.next_question(asked)?;
        Ok(After::Nothing)
    }

    fn ask_again(&mut self, words: &str, rule: Option<RuleOffer>) -> Result<After, Failure> {
        if let Some(desk) = &mut self.desk {
            desk.screen.say(TextRole::Aside, words)?;
            desk.ask(rule)?;
        }
        Ok(After::Nothing)
    }

    /// Shows the rule that allows such calls, and asks whether to write it, if it would come to the agent
    /// that asks.
    async fn offer_rule(&mut self, approval: &Approval) -> Result<After, Failure> {
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
    fn write_rule(&mut self, approval: &Approval, offer: &RuleOffer) -> Result<(), String> {
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

    /// Shows what a tool call would do. A person at the terminal who was shown all of it is asked
    /// here; a script gets the command to decide with.
    pub(super) fn ask_about(
        &mut self,
        request: &ApprovalRequest,
        answer: Result<Value, ErrorBody>,
        asked: &mut AskedCalls,
    ) -> Result<(), Failure> {
        match shown(request, answer) {
            ShownQuestion::Whole(whole, _) if self.desk.is_some() => {
                let first = !asked.waits();
                asked.wait_for(*whole);
                if first { self.next_question(asked) } else { Ok(()) }
            }
            ShownQuestion::Whole(whole, _) if self.interactive && !self.out.json => {
                let first = !asked.waits();
                asked.wait_for(*whole);
                if first { self.ask_by_lines(asked) } else { Ok(()) }
            }
            ShownQuestion::Whole(_, card) => {
                self.aside(&card)?;
                let how =
                    format!("decide with `clawnode approvals approve {}`, or `deny`", request.id);
                self.aside(&how)
            }
            ShownQuestion::Part(card) => self.aside(&card),
        }
    }

    /// Asks about the next call where lines are read, if one waits. Its card is right above the
    /// question, and what was typed before is no answer.
    pub(super) fn ask_by_lines(&mut self, asked: &AskedCalls) -> Result<(), Failure> {
        let Some(approval) = asked.front() else { return Ok(()) };
        let old = self.old(approval);
        let card =
            approve::card(approval, old.as_deref(), TerminalStyle { color: false, utf8: false });
        self.aside(&card.join("\n"))?;
        if let Person::Lines(lines) = &mut self.person {
            lines.forget();
        }
        self.question(asked);
        Ok(())
    }

    /// Asks the person at the terminal about the next call, if one waits.
    fn next_question(&mut self, asked: &AskedCalls) -> Result<(), Failure> {
        let Some(approval) = asked.front() else { return Ok(()) };
        let old = self.old(approval);
        let (Some(desk), Some(tty)) = (&mut self.desk, self.person.tty()) else { return Ok(()) };
        let lines = approve::card(approval, old.as_deref(), desk.screen.look);
        desk.screen.print(&lines.join("\n"))?;
        // What was typed before, was typed without reading this.
        tty.forget();
        desk.ask(None)
    }

    /// What the file has now that a call would write, where it is on this machine.
    fn old(&self, approval: &Approval) -> Option<String> {
        if self.context.names_a_node() {
            return None;
        }
        let path = approve::writes(approval)?;
        let path = Path::new(&path);
        let below = path
            .components()
            .all(|component| matches!(component, Component::Normal(_) | Component::CurDir));
        let root = &self.context.loaded.config.workspace.as_ref()?.root;
        let file = root.join(approval.action.session.agent.as_str()).join(path);
        let about = std::fs::metadata(&file)
            .ok()
            .filter(|metadata| metadata.is_file() && metadata.len() <= DIFF_BYTES);
        if !below || about.is_none() {
            return None;
        }
        std::fs::read_to_string(file).ok()
    }

    pub(super) fn question(&self, asked: &AskedCalls) {
        if let Some(question) = asked.question() {
            self.out.talk(&question);
        }
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
