//! A person at a terminal: a line, what it says or does, and again.

use clawnode_proto::api::{Attachment, ChatSend};

use super::{
    Chat, Person, TerminalEvent, TurnResult, Which,
    attach::{self, AttachedFile},
    commands::{self, ChatLine},
    editor::Typed,
    terminal_style::TextRole,
};
use crate::{
    cli::turn::ShownTurn,
    failure::{Exit, Failure},
};

impl Chat<'_> {
    /// Talks with a person until they leave.
    pub(super) async fn with_person(&mut self, which: Which) -> Result<Exit, Failure> {
        if !self.open(&which).await? {
            return Ok(Exit::Ok);
        }
        while let Some(text) = self.line().await? {
            let Some(desk) = &self.desk else { break };
            let goes_on = match commands::read(&text, desk.is_demo()) {
                ChatLine::Say(text) if text.trim().is_empty() => true,
                ChatLine::Say(text) => self.say(&text).await?,
                ChatLine::Unknown(words) => {
                    self.aside(&words)?;
                    true
                }
                ChatLine::Do(command) => self.perform(command).await?,
            };
            if !goes_on || self.leaves {
                break;
            }
        }
        Ok(Exit::Ok)
    }

    /// The next text that is said; `None`: the person leaves.
    async fn line(&mut self) -> Result<Option<String>, Failure> {
        let (mut leaves, mut stale) = (false, false);
        let Some(desk) = &mut self.desk else { return Ok(None) };
        if let Person::Tty(tty) = &mut self.person {
            tty.put_back(std::mem::take(&mut desk.ahead));
        }
        desk.draw_line()?;
        loop {
            let heard = self.heard().await?;
            let (Some(desk), Person::Tty(tty)) = (&mut self.desk, &mut self.person) else {
                return Ok(None);
            };
            let key = match heard {
                TerminalEvent::Key(key) => key,
                TerminalEvent::Resized => {
                    desk.screen.resize(tty.size())?;
                    desk.draw_line()?;
                    continue;
                }
                TerminalEvent::Closed => {
                    desk.screen.keep()?;
                    return Ok(None);
                }
            };
            let interrupted = std::mem::take(&mut leaves);
            match desk.editor.take(key, commands::complete) {
                // A key is drawn once no other waits: a paste without marks is many.
                Typed::Line if tty.has_more() => stale = true,
                Typed::Line => {
                    stale = false;
                    desk.draw_line()?;
                }
                Typed::Told(words) => {
                    desk.screen.say(TextRole::Aside, &words)?;
                    desk.draw_line()?;
                }
                Typed::Choices(choices) => {
                    desk.screen.say(TextRole::Aside, &choices.join("  "))?;
                    desk.draw_line()?;
                }
                Typed::Clear => desk.screen.wipe()?,
                Typed::Suspend => {
                    desk.screen.clear()?;
                    tty.suspend()?;
                    desk.draw_line()?;
                }
                Typed::Interrupt { was_empty: true } if interrupted => {
                    desk.screen.keep()?;
                    return Ok(None);
                }
                Typed::Interrupt { was_empty } => {
                    leaves = was_empty;
                    if was_empty {
                        desk.screen.say(TextRole::Aside, "Ctrl-C again, Ctrl-D or /quit leaves")?;
                    }
                    desk.draw_line()?;
                }
                Typed::Close => {
                    desk.screen.keep()?;
                    return Ok(None);
                }
                Typed::Said(text) => {
                    self.said(&text, stale)?;
                    return Ok(Some(text));
                }
            }
        }
    }

    /// The line is done: it stays on the screen, and is remembered.
    fn said(&mut self, text: &str, stale: bool) -> Result<(), Failure> {
        let Some(desk) = &mut self.desk else { return Ok(()) };
        if stale {
            // It was typed at once, or while a turn ran, and what is drawn is not all of it.
            desk.screen.clear()?;
            let shown = super::screen::cut(&text.replace('\n', " "), desk.screen.width());
            desk.screen.say(TextRole::You, &format!("> {shown}"))?;
        } else {
            desk.screen.keep()?;
        }
        if !text.trim().is_empty() {
            desk.editor.remember(text);
            desk.history.add(text);
        }
        Ok(())
    }

    /// Says something, and takes the turn to its end. False: the person left.
    async fn say(&mut self, text: &str) -> Result<bool, Failure> {
        let Some(desk) = &mut self.desk else { return Ok(false) };
        let undecided = std::mem::take(&mut desk.undecided);
        if !undecided.is_empty() {
            if !self.follow_open(undecided).await? {
                return Ok(false);
            }
            let Some(desk) = &mut self.desk else { return Ok(false) };
            if !desk.undecided.is_empty() {
                self.restore(text);
                return Ok(true);
            }
        }
        let Some(desk) = &mut self.desk else { return Ok(false) };
        let files = std::mem::take(&mut desk.attached);
        let content = attach::joined(text, &files);
        if content.len() > clawnode_proto::limits::MESSAGE_BYTES {
            self.restore(text);
            self.aside("not sent: over 1 MiB with its text files; nothing is attached any more")?;
            return Ok(true);
        }
        let known = self.conversation.key().is_some();
        let said = desk.chosen(self.conversation.say(content.clone()));
        let mut say = ChatSend { response_schema: self.schema.clone(), lane: self.lane, ..said };
        let content = content + &attach::fingerprint(&files);
        // The same text again is the same message, if that was stored after all.
        if let Some((_, key)) = desk.unsent.take().filter(|(unsent, _)| *unsent == content) {
            say.idempotency_key = Some(key);
        }
        say.attachments = match self.attachments(&files).await {
            Ok(attachments) => attachments,
            Err(failure) => {
                self.restore(text);
                if let Some(desk) = &mut self.desk {
                    desk.attached = files;
                }
                self.failure(&failure)?;
                return Ok(true);
            }
        };
        let key = say.idempotency_key.clone();
        let mut turn = ShownTurn::new(say);
        let said = self.take_turn(&mut turn).await?;
        if !known && self.conversation.key().is_some() && matches!(said, TurnResult::Well) {
            let looked = self.or_break(async |chat: &mut Self| chat.look_up_agent().await).await;
            if let Err(failure) = looked {
                tracing::debug!(error = failure.message, "cannot look up the agent");
            }
        }
        match said {
            TurnResult::Later => {
                let key = self.conversation.key().cloned();
                let turn = turn.accepted().map(|accepted| accepted.turn);
                if let (Some(desk), Some(session), Some(turn)) = (&mut self.desk, key, turn) {
                    let said = text.to_owned();
                    desk.undecided = vec![super::conversation::OpenTurn { session, turn, said }];
                }
                self.later()?;
                Ok(true)
            }
            TurnResult::Lost(failure) if turn.accepted().is_none() => {
                self.restore(text);
                if let Some(desk) = &mut self.desk {
                    desk.attached = files;
                    desk.unsent = key.map(|key| (content, key));
                }
                self.ended(TurnResult::Lost(failure))
            }
            said => self.ended(said),
        }
    }

    /// Files as attachments of the next message. Those that are too large for it are uploaded.
    async fn attachments(&mut self, files: &[AttachedFile]) -> Result<Vec<Attachment>, Failure> {
        if let Some(inline) = attach::inline(files) {
            return Ok(inline);
        }
        let Some(session) = self.conversation.would_be() else {
            let what = "the files are too large for the first message of a conversation whose agent \
                        is not known";
            return Err(Failure::new(Exit::Failed, "local_file", what)
                .hint("start the chat with `--agent`, or send a message without them first"));
        };
        let session = session.to_string();
        let files =
            files.iter().filter_map(|file| Some((file.name.clone(), file.media()?.clone())));
        let files: Vec<_> = files.collect();
        self.or_break(async |chat: &mut Self| {
            let client = chat.gateways.current();
            let mut attachments = Vec::with_capacity(files.len());
            for (name, content) in &files {
                let file = client.upload(&session, name, content.bytes().to_vec()).await?;
                let file = Some(file.file.to_string());
                attachments.push(Attachment { file, data: None, name: None });
            }
            Ok(attachments)
        })
        .await
    }

    /// A text that was not sent is in the line again, alone: what was typed after it was typed for
    /// another line.
    fn restore(&mut self, text: &str) {
        let (Some(desk), Some(tty)) = (&mut self.desk, self.person.tty()) else { return };
        desk.editor.set(text);
        desk.ahead.clear();
        tty.forget();
    }

    /// Says how a turn has ended. False: the person left.
    pub(super) fn ended(&mut self, said: TurnResult) -> Result<bool, Failure> {
        match said {
            TurnResult::Well | TurnResult::Later => {}
            TurnResult::Badly(error) => self.failure(&error.into())?,
            TurnResult::Cancelled => self.aside("cancelled")?,
            TurnResult::Lost(failure) => self.failure(&failure)?,
            TurnResult::Left => {
                self.aside(
                    "the turn continues without this chat: `clawnode chat --continue` shows it",
                )?;
                return Ok(false);
            }
        }
        if let Some(desk) = &mut self.desk {
            desk.screen.print("")?;
        }
        Ok(true)
    }
}
