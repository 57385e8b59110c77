//! Calls that wait for a person: what they are shown, and what their answer does.

use std::path::{Component, Path};

use clawnode_proto::{
    ErrorBody,
    frame::ApprovalRequest,
    policy::{Approval, Decision},
};
use serde_json::Value;

use super::{
    Chat, Person,
    approve::{self, ApprovalAnswer},
    asked::{AskedCalls, ShownQuestion, shown},
    desk::{Answered, RuleOffer},
    follow::After,
    keys::Key,
    terminal_style::{TerminalStyle, TextRole},
};
use crate::{client::ClientSocket, failure::Failure};

/// Bytes of a file that a call would change, for the difference to be shown.
const DIFF_BYTES: u64 = 256 << 10;

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

    /// Says why, and asks again: about a rule, if one is given, or else about the call.
    pub(super) fn ask_again(
        &mut self,
        words: &str,
        rule: Option<RuleOffer>,
    ) -> Result<After, Failure> {
        if let Some(desk) = &mut self.desk {
            desk.screen.say(TextRole::Aside, words)?;
            desk.ask(rule)?;
        }
        Ok(After::Nothing)
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
