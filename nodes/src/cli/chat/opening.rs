//! How a chat begins: with which conversation, and with what of it has not ended.

use clawnode_proto::{
    SessionKey,
    agents::AgentView,
    api::{Nothing, calls},
    view::HistoryView,
};

use super::{
    Chat, TurnResult, Which,
    conversation::{self, Conversation, OpenTurn, title},
    terminal_style::TextRole,
};
use crate::{
    cli::turn::ShownTurn,
    client::ClientError,
    failure::{Exit, Failure},
};

/// The agent that most nodes have.
const DEFAULT: &str = "default";

impl Chat<'_> {
    /// Turns to the conversation that is wanted.
    pub(super) async fn choose(&mut self, which: &Which) -> Result<(), Failure> {
        if let Some(session) = &which.session {
            self.conversation = Conversation::Known(self.named(session).await?);
        } else if which.last {
            match self.last_one().await? {
                Some(key) => self.conversation = Conversation::Known(key),
                None => {
                    self.aside("there is no conversation to continue yet; this is a new one")?;
                }
            }
        }
        Ok(())
    }

    /// The last conversation: as this person's commands remember it, else as the node does.
    async fn last_one(&self) -> Result<Option<SessionKey>, Failure> {
        let client = self.gateways.current();
        let all = conversation::recent(client, &self.user, self.agent.as_ref()).await?;
        let kept = self.last.read().filter(|last| all.iter().any(|(key, _)| key == last));
        Ok(kept.or_else(|| all.into_iter().next().map(|(key, _)| key)))
    }

    /// The session of this key or id.
    async fn named(&self, session: &str) -> Result<SessionKey, Failure> {
        if let Ok(key) = session.parse() {
            return Ok(key);
        }
        let history = conversation::history(self.gateways.current(), session).await?;
        history.key.parse().map_err(|error| {
            let what = format!("`{session}` has an invalid key: {error}");
            Failure::new(Exit::Failed, "protocol", what)
        })
    }

    /// Says where one is, shows what has not ended, and goes on with it. False: the person left.
    pub(super) async fn open(&mut self, which: &Which) -> Result<bool, Failure> {
        match self.or_break(async |chat| chat.prepare(which).await).await? {
            Some(history) => self.go_on(&history).await,
            None => Ok(true),
        }
    }

    /// Turns to the conversation, and says where one is; what was said there, if there is anything.
    async fn prepare(&mut self, which: &Which) -> Result<Option<HistoryView>, Failure> {
        self.choose(which).await?;
        if self.conversation.key().is_none()
            && let Some(key) = self.unfinished().await?
        {
            self.conversation = Conversation::Known(key);
        }
        self.look_up_agent().await?;
        self.head()?;
        let Some(key) = self.conversation.key() else { return Ok(None) };
        match conversation::history(self.gateways.current(), &key.to_string()).await {
            Ok(history) => Ok(Some(history)),
            // A session that is named need not be there yet.
            Err(failure) if failure.code == "not_found" => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// The latest conversation of the user in which a turn runs or waits, if there is one.
    async fn unfinished(&self) -> Result<Option<SessionKey>, Failure> {
        let client = self.gateways.current();
        let all = conversation::recent(client, &self.user, self.agent.as_ref()).await?;
        Ok(all
            .into_iter()
            .find(|(_, row)| row.state == "running" || row.state == "waiting")
            .map(|(key, _)| key))
    }

    /// Shows the last messages, and follows a turn that has not ended.
    pub(super) async fn go_on(&mut self, history: &HistoryView) -> Result<bool, Failure> {
        let Some(key) = self.conversation.key().cloned() else { return Ok(true) };
        let open = conversation::open(&key, history);
        let last = history.turns.iter().rfind(|turn| turn.outcome.is_some());
        let first = history.turns.first().map(|turn| title(conversation::said(turn)));
        let what = first.filter(|text| !text.is_empty()).unwrap_or_else(|| key.to_string());
        self.aside(&format!("continuing: {what}  (/new begins another)"))?;
        if let (Some(turn), Some(desk)) = (last, &mut self.desk) {
            desk.screen.say(TextRole::You, &format!("> {}", title(conversation::said(turn))))?;
            desk.screen.reply(conversation::reply(turn))?;
            desk.screen.end_reply()?;
            desk.screen.print("")?;
        }
        self.follow_open(open).await
    }

    /// Follows turns that have not ended, from their beginning. False: the person left.
    pub(super) async fn follow_open(&mut self, open: Vec<OpenTurn>) -> Result<bool, Failure> {
        let mut rest = open.into_iter();
        while let Some(open) = rest.next() {
            if let Some(desk) = &mut self.desk {
                desk.screen.say(TextRole::You, &format!("> {}", title(&open.said)))?;
            }
            let mut turn = ShownTurn::begun(open.session.to_string(), open.turn);
            let said = self.take_turn(&mut turn).await?;
            if matches!(said, TurnResult::Later) {
                let Some(desk) = &mut self.desk else { return Ok(true) };
                desk.undecided = std::iter::once(open).chain(rest).collect();
                self.later()?;
                return Ok(true);
            }
            if !self.ended(said)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Says how a call is decided about later.
    pub(super) fn later(&mut self) -> Result<(), Failure> {
        self.aside(
            "the tool call still needs a decision; your next message and the next chat ask again; \
             `clawnode approvals list` shows it",
        )
    }

    /// Looks up the agent that answers, as far as that is known.
    pub(super) async fn look_up_agent(&mut self) -> Result<(), Failure> {
        let client = self.gateways.current();
        let list = match client.call(calls::AgentsList, &Nothing {}).await {
            Ok(list) => list.agents,
            // The chat goes without.
            Err(ClientError::Answered(_) | ClientError::Protocol { .. }) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let known = self.conversation.agent().map(ToString::to_string);
        let found = match &known {
            Some(name) => list.iter().find(|agent| agent.agent.as_str() == name),
            None if list.len() == 1 => list.first(),
            // Bindings may name another; then its first answer tells.
            None => list.iter().find(|agent| agent.agent.as_str() == DEFAULT),
        };
        let found: Option<AgentView> = found.cloned();
        if let Some(desk) = &mut self.desk {
            desk.agent = found;
        }
        Ok(())
    }

    /// The first lines.
    fn head(&mut self) -> Result<(), Failure> {
        let url = self.gateways.current().url().to_owned();
        let Some(desk) = &mut self.desk else { return Ok(()) };
        let (dot, version) = (desk.screen.look.dot(), env!("CARGO_PKG_VERSION"));
        let mut first = format!("clawnode {version}");
        if let Some(agent) = &desk.agent {
            first = format!("{first}{dot}{}{dot}agent {}", agent.model, agent.agent);
        }
        let demo = desk.is_demo();
        desk.screen.say(TextRole::You, &first)?;
        desk.screen
            .say(TextRole::Aside, &format!("{url}{dot}/help for commands{dot}Ctrl-D leaves"))?;
        if demo {
            desk.screen.say(
                TextRole::Question,
                "The demo answers. For a model, set ANTHROPIC_API_KEY or OPENAI_API_KEY.",
            )?;
        }
        desk.screen.print("")
    }
}
