//! Calls that wait for a person: what they are shown, and what their answer does.

use std::path::{Component, Path};

use clawnode_proto::{
    ErrorBody,
    policy::{Approval, Decision},
};
use serde_json::Value;

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
    client::{ApprovalRequest, Socket},
    failure::Failure,
};

/// Bytes of a file that a call would change, for the difference to be shown.
const DIFF_BYTES: u64 = 256 << 10;

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
        let line = match desk.answer(&key)? {
            Answered::NotYet => return Ok(After::Nothing),
            Answered::Later => return Ok(After::Later),
            Answered::Line(line) => line,
        };
        let Some(approval) = asked.front().cloned() else { return Ok(After::Nothing) };
        let decision = match approve::answer(&line) {
            Answer::Yes => Decision::Approve,
            Answer::No => Decision::Deny,
            Answer::Always => {
                let rule = approve::rule(&approval).unwrap_or_default();
                let file = self.config_file();
                let words = format!(
                    "This rule allows such calls; put it before other rules in {file}, and the node \
                     reads it within seconds:\n\n{rule}\nA chat cannot write it. Shall this call run?"
                );
                return self.ask_again(&words);
            }
            Answer::Why => return self.ask_again(&approve::why(&approval)),
            Answer::Unclear => {
                return self.ask_again("y or n; always shows a rule, why says more; Ctrl-D: later");
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

    fn ask_again(&mut self, words: &str) -> Result<After, Failure> {
        if let Some(desk) = &mut self.desk {
            desk.screen.say(Role::Aside, words)?;
            desk.ask()?;
        }
        Ok(After::Nothing)
    }

    /// The file that rules are in, as far as this machine knows.
    fn config_file(&self) -> String {
        let usual = || "the node's configuration file".to_owned();
        if self.context.names_a_node() {
            return usual();
        }
        let file = crate::config::paths::config_file(self.context.loaded.env());
        file.map_or_else(usual, |path| format!("`{}` (or the file of --config)", path.display()))
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
        desk.ask()
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
