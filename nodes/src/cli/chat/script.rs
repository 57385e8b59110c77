//! A script: a line is a turn, and a reply is a line.

use serde_json::json;

use super::{Chat, Person, ReadLine, TurnResult, Which};
use crate::{
    cli::turn::ShownTurn,
    failure::{Exit, Failure},
};

impl Chat<'_> {
    /// Takes lines until they end.
    pub(super) async fn scripted(&mut self, which: Which) -> Result<Exit, Failure> {
        self.choose(&which).await?;
        let url = self.gateways.current().url();
        self.out.talk(&if self.out.json {
            json!({ "event": "ready", "url": url }).to_string()
        } else {
            format!("ready {url}")
        });
        let mut all_well = true;
        loop {
            if self.interactive && !self.out.json {
                self.out.prompt();
            }
            let Person::Lines(lines) = &mut self.person else { break };
            let read = tokio::select! {
                read = lines.next() => read,
                _ = self.signals.next() => ReadLine::End,
            };
            let line = match read {
                ReadLine::Line(line) => line,
                ReadLine::End => break,
                ReadLine::Bad(failure) => {
                    all_well = false;
                    self.out.failure(&failure);
                    continue;
                }
                ReadLine::Broken(failure) => return Err(failure),
            };
            let mut say = self.conversation.say(line);
            say.response_schema.clone_from(&self.schema);
            say.lane = self.lane;
            let mut turn = ShownTurn::new(say);
            match self.take_turn(&mut turn).await? {
                TurnResult::Well => {}
                TurnResult::Badly(error) => {
                    all_well = false;
                    self.out.failure(&error.into());
                }
                TurnResult::Lost(failure) => return Err(failure),
                TurnResult::Cancelled | TurnResult::Later => all_well = false,
                TurnResult::Left => {
                    all_well = false;
                    break;
                }
            }
        }
        // A person has seen what failed.
        Ok(if all_well || self.interactive { Exit::Ok } else { Exit::Failed })
    }
}
