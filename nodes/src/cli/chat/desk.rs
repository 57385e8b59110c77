//! What a person at a terminal has before them: the screen, the line, a question, and the calls of
//! tools that were made for them.

use std::{collections::VecDeque, time::Duration};

use clawnode_proto::{
    CallId, SessionKey,
    agents::AgentView,
    api::ChatSend,
    frame::{ToolFinished, ToolStarted},
    llm::ModelRef,
    reasoning::Reasoning,
    session::KeptChoice,
};
use tokio::time::Instant;
use unicode_width::UnicodeWidthStr;

use super::{
    attach::AttachedFile,
    conversation::OpenTurn,
    editor::Editor,
    history::History,
    keys::Key,
    screen::{ChatScreen, cut},
    terminal_style::{TerminalStyle, TextRole},
    tty::TerminalSize,
    warnings::Warnings,
};
use crate::{
    cli::{
        output::{Output, clean, exact},
        turn::result_line,
    },
    config::{Env, agents::RuleOptions, paths},
    failure::Failure,
};

/// Keys that wait for the next line.
const AHEAD: usize = 16_384;
/// How long nothing may have been typed before an answer counts: what was on its way when a question
/// came is no answer to it.
const DEAF: Duration = Duration::from_millis(250);
/// Characters of an answer.
const ANSWER_CHARS: usize = 16;
/// How long one waits before a sign says so.
const PATIENT: Duration = Duration::from_millis(300);
/// Characters of a call's arguments in its line.
const ARGUMENT_CHARS: usize = 60;
/// Calls that `/show` has.
const CALLS: usize = 32;

/// The desk.
#[derive(Debug)]
pub(super) struct ChatTerminal {
    pub screen: ChatScreen,
    pub editor: Editor,
    pub history: History,
    /// What was typed while a turn ran.
    pub ahead: VecDeque<Key>,
    pub question: Option<OpenQuestion>,
    /// Whether keys are dropped: they may be the answer to a question that was lost.
    is_deaf: bool,
    /// A message that may not have been stored, with its idempotency key: sent again unchanged, it is
    /// stored once.
    pub unsent: Option<(String, String)>,
    /// The latest calls, the oldest first.
    pub calls: VecDeque<DeskCall>,
    /// What the model thinks, as far as it is no whole line yet.
    thought: String,
    pub attached: Vec<AttachedFile>,
    /// Turns with a call that the person decides about later.
    pub undecided: Vec<OpenTurn>,
    /// The list that was shown last, for `/resume N`.
    pub listed: Vec<SessionKey>,
    pub agent: Option<AgentView>,
    /// The model that the person chose instead of the agent's, and how much it thinks.
    pub model: Option<ModelRef>,
    pub reasoning: Option<Reasoning>,
    /// Which of the two the person has chosen for the conversation.
    pub keep: Vec<KeptChoice>,
    /// Whether the turn has said that a budget waits for the person.
    pub asks_budget: bool,
    /// What goes on in the turn, since when, and what it has used.
    pub doing: String,
    pub since: Instant,
    pub heard: Instant,
    pub tokens: u64,
    pub warnings: Warnings,
}

/// A call of a tool.
#[derive(Debug)]
pub(super) struct DeskCall {
    pub id: CallId,
    pub name: String,
    pub arguments: String,
    pub began: Instant,
    /// Its result, and whether it failed.
    pub result: Option<(String, bool)>,
}

/// A rule that may be written, and at which place among the agent's rules.
#[derive(Debug)]
pub(super) struct RuleOffer {
    pub(super) place: usize,
    pub(super) rule: RuleOptions,
}

/// A question that waits for an answer.
#[derive(Debug)]
pub(super) struct OpenQuestion {
    /// A rule that it is about; else it is about the call.
    rule: Option<RuleOffer>,
    line: String,
    quiet_at: Instant,
    shown: bool,
}

/// What a key means for a question.
pub(super) enum Answered {
    NotYet,
    Line(String, Option<RuleOffer>),
    Later,
}

// === impl ChatTerminal ===

impl ChatTerminal {
    pub(super) fn new(out: Output, look: TerminalStyle, size: TerminalSize, env: &Env) -> Self {
        let history = History::new(paths::state_dir(env));
        let now = Instant::now();
        Self {
            screen: ChatScreen::new(out, look, size),
            editor: Editor::new(history.read()),
            history,
            ahead: VecDeque::new(),
            question: None,
            is_deaf: false,
            unsent: None,
            calls: VecDeque::new(),
            thought: String::new(),
            attached: Vec::new(),
            undecided: Vec::new(),
            listed: Vec::new(),
            agent: None,
            model: None,
            reasoning: None,
            keep: Vec::new(),
            asks_budget: false,
            doing: String::new(),
            since: now,
            heard: now,
            tokens: 0,
            warnings: Warnings::new(),
        }
    }

    /// The person has chosen this for the conversation.
    pub(super) fn keeps(&mut self, choice: KeptChoice) {
        if !self.keep.contains(&choice) {
            self.keep.push(choice);
        }
    }

    /// The message with what the person chose for the conversation.
    pub(super) fn chosen(&self, say: ChatSend) -> ChatSend {
        let (model, reasoning, keep) = (self.model.clone(), self.reasoning, self.keep.clone());
        ChatSend { model, reasoning, keep, ..say }
    }

    /// What the person chose was for another conversation.
    pub(super) fn forget_choices(&mut self) {
        (self.model, self.reasoning) = (None, None);
        self.keep.clear();
    }

    /// Whether the demo answers.
    pub(super) fn is_demo(&self) -> bool {
        let of_agent = self.agent.as_ref().map(|agent| &agent.model);
        self.model.as_ref().or(of_agent).is_some_and(|model| model.provider == "demo")
    }

    /// Draws the line that is typed.
    pub(super) fn draw_line(&mut self) -> Result<(), Failure> {
        let shown = self.editor.rows(self.screen.width());
        let look = self.screen.look;
        let rows = shown.rows.into_iter().enumerate().map(|(at, row)| {
            let wide = row.width();
            let row = match row.strip_prefix('>') {
                Some(rest) if at == 0 => format!("{}{rest}", look.paint(TextRole::You, ">")),
                _ => row,
            };
            (row, wide)
        });
        let (row, column) = shown.cursor;
        self.screen.live(rows.collect(), row, column)
    }

    /// A turn begins.
    pub(super) fn begin(&mut self) {
        self.question = None;
        self.is_deaf = false;
        self.asks_budget = false;
        self.tokens = 0;
        self.since = Instant::now();
        self.heard = self.since;
        "thinking".clone_into(&mut self.doing);
    }

    /// Shows the whole lines of the model's thoughts.
    pub(super) fn think(&mut self, more: &str) -> Result<(), Failure> {
        self.heard = Instant::now();
        self.thought.push_str(more);
        let Some((lines, rest)) = self.thought.rsplit_once('\n') else { return Ok(()) };
        let (lines, rest) = (lines.to_owned(), rest.to_owned());
        self.thought = rest;
        self.show_thought(&lines)
    }

    /// Shows what is left of it.
    pub(super) fn thought_ends(&mut self) -> Result<(), Failure> {
        let rest = std::mem::take(&mut self.thought);
        self.show_thought(&rest)
    }

    fn show_thought(&mut self, text: &str) -> Result<(), Failure> {
        if text.trim().is_empty() {
            return Ok(());
        }
        self.screen.say(TextRole::Aside, text.trim_matches('\n'))
    }

    /// Something was heard of the turn: it goes on with this.
    pub(super) fn doing(&mut self, what: &str) {
        self.heard = Instant::now();
        what.clone_into(&mut self.doing);
    }

    /// Keeps what is typed for the next line.
    pub(super) fn keep(&mut self, key: Key) {
        if !self.is_deaf && self.ahead.len() < AHEAD {
            self.ahead.push_back(key);
        }
    }

    /// Whether the last line that is typed for the next message is this one. Then it is taken away.
    pub(super) fn takes_line(&mut self, line: &str) -> bool {
        let typed = self.ahead.iter().rev().take_while(|key| **key != Key::Enter).count();
        let from = self.ahead.len() - typed;
        let is_it = typed == line.chars().count()
            && self.ahead.range(from..).eq(line.chars().map(Key::Char).collect::<Vec<_>>().iter());
        if is_it {
            self.ahead.truncate(from);
        }
        is_it
    }

    /// Says that the turn goes on, or asks what there is to ask.
    pub(super) fn tick(&mut self) -> Result<(), Failure> {
        let now = Instant::now();
        match &mut self.question {
            Some(question) if question.shown => Ok(()),
            Some(question) if question.is_deaf(now) => Ok(()),
            Some(question) => {
                question.shown = true;
                self.draw_question()
            }
            None if self.screen.is_free() && now - self.heard >= PATIENT => {
                self.screen.spin(&self.doing, now - self.since, self.tokens)
            }
            None => Ok(()),
        }
    }

    /// Asks about the call, or whether to write `rule`. Keys that come before the terminal has been quiet
    /// are no answer.
    pub(super) fn ask(&mut self, rule: Option<RuleOffer>) -> Result<(), Failure> {
        let quiet_at = Instant::now() + DEAF;
        self.question = Some(OpenQuestion { rule, line: String::new(), quiet_at, shown: false });
        self.ahead.clear();
        self.screen.clear()
    }

    /// The same question again: what was typed since it was shown is no answer.
    pub(super) fn repeat_question(&mut self) -> Result<(), Failure> {
        let rule = self.question.take().and_then(|question| question.rule);
        self.ask(rule)
    }

    /// Whether the question is shown at the next tick.
    pub(super) fn is_about_to_ask(&self) -> bool {
        self.question
            .as_ref()
            .is_some_and(|question| !question.shown && !question.is_deaf(Instant::now()))
    }

    /// Something was typed before the question was shown: it is shown later.
    pub(super) fn put_off(&mut self) {
        if let Some(question) = &mut self.question {
            question.quiet_at = Instant::now() + DEAF;
        }
    }

    /// The connection that the question was asked on is lost: an answer would reach no call, and is no
    /// message either. Whether there was a question.
    pub(super) fn drop_question(&mut self) -> Result<bool, Failure> {
        if self.question.take().is_none() {
            return Ok(false);
        }
        self.is_deaf = true;
        self.ahead.clear();
        self.screen.clear()?;
        Ok(true)
    }

    pub(super) fn draw_question(&mut self) -> Result<(), Failure> {
        let Some(question) = self.question.as_ref().filter(|question| question.shown) else {
            return Ok(());
        };
        let (wide, look) = (self.screen.width(), self.screen.look);
        let asks = match question.rule {
            None => ["run it? y, n, always, why: ", "run it? y/n: ", "y/n: "],
            Some(_) => ["write the rule and run it? y, n: ", "write it? y/n: ", "y/n: "],
        };
        let ask = asks.into_iter().find(|ask| ask.len() + ANSWER_CHARS / 2 <= wide).unwrap_or("? ");
        let line = cut(&exact(&question.line), wide.saturating_sub(ask.len()));
        let (row, column) =
            (format!("{}{line}", look.paint(TextRole::Question, ask)), ask.len() + line.width());
        self.screen.live(vec![(row, column)], 0, column)
    }

    /// Takes a key for the question.
    pub(super) fn answer(&mut self, key: &Key) -> Result<Answered, Failure> {
        let Some(question) = &mut self.question else { return Ok(Answered::NotYet) };
        if !question.shown {
            question.quiet_at = Instant::now() + DEAF;
            return Ok(Answered::NotYet);
        }
        match key {
            Key::Char(c) if question.line.chars().count() < ANSWER_CHARS => question.line.push(*c),
            Key::Backspace => drop(question.line.pop()),
            Key::DeleteToStart | Key::DeleteWord => question.line.clear(),
            Key::Close => {
                self.screen.keep()?;
                return Ok(Answered::Later);
            }
            Key::Enter if !question.line.is_empty() => {
                let line = std::mem::take(&mut question.line);
                let rule = question.rule.take();
                self.screen.keep()?;
                return Ok(Answered::Line(line, rule));
            }
            // What is pasted is no answer.
            _ => {}
        }
        self.draw_question()?;
        Ok(Answered::NotYet)
    }

    /// A tool call is asked for.
    pub(super) fn call(&mut self, started: ToolStarted) {
        let ToolStarted { id, name, arguments } = started;
        self.doing(&exact(&name));
        if self.calls.len() == CALLS {
            self.calls.pop_front();
        }
        let began = Instant::now();
        self.calls.push_back(DeskCall { id, name, arguments, began, result: None });
    }

    /// A person has decided: how long they took is no part of how long it takes.
    pub(super) fn decided(&mut self, call: CallId) {
        let now = Instant::now();
        self.calls
            .iter_mut()
            .filter(|running| running.id == call)
            .for_each(|call| call.began = now);
        self.since = now;
    }

    /// It has ended; in a line.
    pub(super) fn called(&mut self, finished: ToolFinished) -> Result<(), Failure> {
        let ToolFinished { id, name, content, failure, is_error: _ } = finished;
        let failed = failure.is_some();
        self.doing("thinking");
        let call = self.calls.iter_mut().find(|call| call.id == id && call.result.is_none());
        let (mut took, mut about) = (Duration::ZERO, String::new());
        if let Some(call) = call {
            took = call.began.elapsed();
            about.clone_from(&call.arguments);
            call.result = Some((content.clone(), failed));
        }
        let look = self.screen.look;
        let mut line = format!("{} {}", look.mark(!failed), exact(&name));
        if about != "{}" && !about.is_empty() {
            line = format!("{line} {}", cut(&exact(&about), ARGUMENT_CHARS));
        }
        if took >= Duration::from_millis(100) {
            line = format!("{line}{}{:.1} s", look.dot(), took.as_secs_f64());
        }
        if failed {
            // What is wrong must be read whole.
            line = format!("{line}\n  {}", clean(&result_line(&content, true)));
            return self.screen.say(TextRole::Bad, &line);
        }
        line = format!("{line}{}{}", look.dot(), exact(&result_line(&content, false)));
        let line = cut(&line, self.screen.width());
        self.screen.say(TextRole::Good, &line)
    }
}

// === impl OpenQuestion ===

impl OpenQuestion {
    fn is_deaf(&self, now: Instant) -> bool {
        now < self.quiet_at
    }
}
