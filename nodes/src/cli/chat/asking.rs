//! Calls that wait for a person: what they are shown, and what their answer does.

use std::{
    path::{Component, Path},
    time::Duration,
};

use clawnode_proto::{
    AgentName, ErrorBody, ErrorChain,
    agents::AgentDetail,
    api::{AgentParams, Method},
    policy::{Approval, Decision, Rule},
};
use serde::Deserialize as _;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::{
    Chat, Person,
    approve::{self, Answer},
    asked::{Asked, Shown, shown},
    desk::Answered,
    follow::After,
    keys::Key,
    look::{Look, Role},
};
use crate::{
    client::{ApprovalRequest, Client, Socket},
    config::{agents::RuleOptions, paths, rules},
    failure::Failure,
};

/// Bytes of a file that a call would change, for the difference to be shown.
const DIFF_BYTES: u64 = 256 << 10;
/// How long a node is given to read its changed configuration; it looks every 2 s.
const RELOADED: Duration = Duration::from_secs(6);
/// How often the chat asks whether it has.
const LOOK_EVERY: Duration = Duration::from_millis(200);

impl Chat<'_> {
    /// The call that the person is asked about was decided by somebody else.
    pub(super) fn elsewhere(&mut self, asked: &Asked) -> Result<(), Failure> {
        let Some(desk) = &mut self.desk else { return Ok(()) };
        desk.question = None;
        desk.screen.clear()?;
        self.aside("that was decided elsewhere")?;
        self.next_question(asked)
    }

    pub(super) fn is_asked(&self) -> bool {
        self.desk.as_ref().is_some_and(|desk| desk.question.is_some())
    }

    /// A key for the question.
    pub(super) async fn answered(
        &mut self,
        key: Key,
        asked: &mut Asked,
        socket: &mut Socket,
    ) -> Result<After, Failure> {
        let Some(desk) = &mut self.desk else { return Ok(After::Nothing) };
        let (line, rule) = match desk.answer(&key)? {
            Answered::NotYet => return Ok(After::Nothing),
            Answered::Later => return Ok(After::Later),
            Answered::Line(line, rule) => (line, rule),
        };
        let Some(approval) = asked.front().cloned() else { return Ok(After::Nothing) };
        let decision = match (approve::answer(&line), rule) {
            (Answer::Yes, None) => Decision::Approve,
            (Answer::Yes, Some(rule)) => {
                // Without the rule this may be another wish.
                if !self.write_rule(&approval, &rule).await? {
                    return self.ask_again("Shall this call run, once?", None);
                }
                Decision::Approve
            }
            (Answer::No, None) => Decision::Deny,
            (Answer::No, Some(_)) => return self.ask_again("The rule is not written.", None),
            (_, Some(rule)) => {
                return self.ask_again("y or n; Ctrl-D: later", Some(rule));
            }
            (Answer::Always, None) => return self.offer_rule(&approval),
            (Answer::Why, None) => return self.ask_again(&approve::why(&approval), None),
            (Answer::Unclear, None) => {
                let words = "y or n; always writes a rule, why says more; Ctrl-D: later";
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

    fn ask_again(&mut self, words: &str, rule: Option<RuleOptions>) -> Result<After, Failure> {
        if let Some(desk) = &mut self.desk {
            desk.screen.say(Role::Aside, words)?;
            desk.ask(rule)?;
        }
        Ok(After::Nothing)
    }

    /// Shows the rule that allows such calls, and asks whether to write it.
    fn offer_rule(&mut self, approval: &Approval) -> Result<After, Failure> {
        let rule = match approve::rule(approval) {
            Ok(rule) => rule,
            Err(why) => {
                let words = format!("There is no rule for exactly this call: {why}.");
                return self.ask_again(&words, None);
            }
        };
        let text = rules::text(approval.action.session.agent.as_str(), &rule);
        let Some(file) = self.own_file() else {
            let words = format!(
                "This rule allows exactly such calls. Add it to the node's configuration file, \
                 before other rules of this agent:\n\n{text}"
            );
            return self.ask_again(&words, None);
        };
        let words = format!("This rule, in {file}, allows exactly such calls:\n\n{text}");
        self.ask_again(&words, Some(rule))
    }

    /// The configuration file of the node on this machine, for people.
    fn own_file(&self) -> Option<String> {
        let loaded = &self.context.loaded;
        let file = loaded.own_file().filter(|_| !self.context.names_a_node())?;
        Some(paths::shown(&file, loaded.env()))
    }

    /// Writes a rule, and waits for the node to read it. False if it was not written.
    async fn write_rule(
        &mut self,
        approval: &Approval,
        rule: &RuleOptions,
    ) -> Result<bool, Failure> {
        let agent = &approval.action.session.agent;
        let file = match rules::write(&self.context.loaded, agent.as_str(), rule) {
            Ok(file) => paths::shown(&file, self.context.loaded.env()),
            Err(error) => {
                let error = ErrorChain(&error);
                self.aside(&format!("The rule is not written: {error}."))?;
                return Ok(false);
            }
        };
        let client = self.gateways.current().clone();
        let holds = timeout(RELOADED, has_rule(&client, agent, rule)).await.is_ok();
        let words = if holds {
            format!("The rule is in {file}; from now on such calls run.")
        } else {
            format!(
                "The rule is in {file}, but the node has not read it. Was it started with another \
                 `--config`, or does its log name an error? This call runs."
            )
        };
        self.aside(&words)?;
        Ok(true)
    }

    /// Shows what a tool call would do. A person at the terminal who was shown all of it is asked
    /// here; a script is told how somebody can decide.
    pub(super) fn ask_about(
        &mut self,
        it: &ApprovalRequest,
        answer: Result<Value, ErrorBody>,
        asked: &mut Asked,
    ) -> Result<(), Failure> {
        match shown(it, answer) {
            Shown::Whole(whole, _) if self.desk.is_some() => {
                let first = !asked.waits();
                asked.wait_for(*whole);
                if first { self.next_question(asked) } else { Ok(()) }
            }
            Shown::Whole(whole, _) if self.interactive && !self.out.json => {
                let first = !asked.waits();
                asked.wait_for(*whole);
                if first { self.ask_by_lines(asked) } else { Ok(()) }
            }
            Shown::Whole(_, card) => {
                self.aside(&card)?;
                let how = format!("decide with `clawnode approvals approve {}`, or `deny`", it.id);
                self.aside(&how)
            }
            Shown::Part(card) => self.aside(&card),
        }
    }

    /// Asks about the next call where lines are read, if one waits: its card stands right above the
    /// question, and what was typed before is no answer.
    pub(super) fn ask_by_lines(&mut self, asked: &Asked) -> Result<(), Failure> {
        let Some(approval) = asked.front() else { return Ok(()) };
        let old = self.old(approval);
        let card = approve::card(approval, old.as_deref(), Look { color: false, utf8: false });
        self.aside(&card.join("\n"))?;
        if let Person::Lines(lines) = &mut self.person {
            lines.forget();
        }
        self.question(asked);
        Ok(())
    }

    /// Asks the person at the terminal about the next call, if one waits.
    fn next_question(&mut self, asked: &Asked) -> Result<(), Failure> {
        let Some(approval) = asked.front() else { return Ok(()) };
        let old = self.old(approval);
        let (Some(desk), Some(tty)) = (&mut self.desk, self.person.tty()) else { return Ok(()) };
        let lines = approve::card(approval, old.as_deref(), desk.screen.look);
        desk.screen.print(&lines.join("\n"))?;
        // What was typed before nobody had read this.
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
        let below =
            path.components().all(|it| matches!(it, Component::Normal(_) | Component::CurDir));
        let root = &self.context.loaded.config.workspace.as_ref()?.root;
        let file = root.join(approval.action.session.agent.as_str()).join(path);
        let about =
            std::fs::metadata(&file).ok().filter(|it| it.is_file() && it.len() <= DIFF_BYTES);
        if !below || about.is_none() {
            return None;
        }
        std::fs::read_to_string(file).ok()
    }

    pub(super) fn question(&self, asked: &Asked) {
        if let Some(question) = asked.question() {
            self.out.talk(&question);
        }
    }
}

/// Waits until the agent has this rule first.
async fn has_rule(client: &Client, agent: &AgentName, rule: &RuleOptions) {
    let wanted = Rule::from(rule.clone());
    let params = json!(AgentParams { agent: agent.to_string() });
    loop {
        let answer = client.call(Method::AgentsShow, params.clone()).await;
        let detail = answer.ok().and_then(|it| AgentDetail::deserialize(it).ok());
        if detail.is_some_and(|it| it.policy.rules.first() == Some(&wanted)) {
            return;
        }
        sleep(LOOK_EVERY).await;
    }
}
