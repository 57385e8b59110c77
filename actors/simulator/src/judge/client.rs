//! What clients were asked to run, what they brought, and what became of it.

use std::collections::BTreeMap;

use clawnode_proto::{
    CallId, TurnId,
    client_tool::ClientResults,
    llm::Message,
    session::{ToolAsked, ToolDone},
};

use crate::{JudgeViolation, book::Checked};

/// A call that a client runs.
#[derive(Debug)]
struct ClientDeed {
    turn: TurnId,
    /// What it brought first, as the journal has it.
    brought: Option<String>,
    ended: bool,
}

/// All calls that clients run.
#[derive(Debug, Default)]
pub(super) struct ClientDeeds(BTreeMap<CallId, ClientDeed>);

fn wrong(text: String) -> Checked {
    Err(JudgeViolation::new("CLIENT-1", text))
}

// === impl ClientDeeds ===

impl ClientDeeds {
    /// A client is asked to run a call.
    pub(super) fn asked(&mut self, tool: &ToolAsked) {
        if tool.by_client {
            let deed = ClientDeed { turn: tool.turn, brought: None, ended: false };
            self.0.insert(tool.call, deed);
        }
    }

    /// A client's results are written down.
    pub(super) fn brings(&mut self, results: &ClientResults) {
        for result in &results.results {
            if let Some(deed) = self.0.get_mut(&result.call)
                && deed.turn == results.turn
                && !deed.ended
            {
                let content = result.content.inline().unwrap_or_default();
                deed.brought.get_or_insert_with(|| content.to_owned());
            }
        }
    }

    /// A call has ended with what an input brought.
    pub(super) fn ended(&mut self, tool: &ToolDone) -> Checked {
        let Some(deed) = self.0.get_mut(&tool.call) else { return Ok(()) };
        deed.ended = true;
        if deed.brought.is_none() || tool.outcome.is_some() {
            return wrong(format!("`{}` ended, and its client brought nothing", tool.call));
        }
        Ok(())
    }

    /// A call is run here.
    pub(super) fn runs(&self, call: CallId) -> Checked {
        if self.0.contains_key(&call) {
            return wrong(format!("`{call}` is its client's to run, and runs here"));
        }
        Ok(())
    }

    /// A turn has ended: what it waited for is not waited for any more.
    pub(super) fn over(&mut self, turn: TurnId) {
        self.0.values_mut().filter(|deed| deed.turn == turn).for_each(|deed| deed.ended = true);
    }

    /// A model is shown these, in this turn.
    pub(super) fn shows(&self, turn: TurnId, messages: &[Message]) -> Checked {
        let waits = |(_, deed): &(&CallId, &ClientDeed)| deed.turn == turn && !deed.ended;
        if let Some((call, _)) = self.0.iter().find(waits) {
            return wrong(format!("a model is asked in `{turn}`, and `{call}` has no result"));
        }
        for reply in messages.iter().flat_map(|message| &message.tool_replies) {
            let deed = reply.id.parse().ok().and_then(|call: CallId| self.0.get(&call));
            let brought = deed.and_then(|deed| deed.brought.as_deref());
            if !reply.is_error
                && let Some(brought) = brought
                && reply.content.inline() != Some(brought)
            {
                return wrong(format!("a model is shown another result of `{}`", reply.id));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{
        client_tool::ClientResult,
        hook::HookTrail,
        llm::{Role, Sampling},
        tool::{ToolOutcome, ToolReply},
    };

    use super::*;

    const TURN: TurnId = TurnId::from_u128(1);
    const CALL: CallId = CallId::from_u128(2);

    fn asked() -> ClientDeeds {
        let mut deeds = ClientDeeds::default();
        let tool = "mine".parse().unwrap();
        deeds.asked(&ToolAsked { turn: TURN, call: CALL, tool, by_client: true });
        deeds
    }

    fn brings(deeds: &mut ClientDeeds, content: &str) {
        let results = vec![ClientResult::done(CALL, content)];
        let (system, sampling, tools) = (None, Sampling::default(), Vec::new());
        deeds.brings(&ClientResults {
            turn: TURN,
            results,
            system,
            sampling,
            tools,
            metadata: BTreeMap::new(),
        });
    }

    fn ends(deeds: &mut ClientDeeds, outcome: Option<ToolOutcome>) -> Checked {
        deeds.ended(&ToolDone { turn: TURN, call: CALL, outcome, hooks: HookTrail::default() })
    }

    fn reply(content: &str) -> Vec<Message> {
        let (id, content) = (CALL.to_string(), content.into());
        let reply = ToolReply { id, content, is_error: false, media: Vec::new() };
        vec![Message { tool_replies: vec![reply], ..Message::text(Role::User, "") }]
    }

    #[test]
    fn client_1_the_first_result_counts_and_is_waited_for() {
        let mut deeds = asked();
        assert!(deeds.runs(CALL).is_err() && deeds.runs(CallId::from_u128(3)).is_ok());
        assert!(deeds.shows(TURN, &[]).is_err(), "it is not waited for");
        assert!(deeds.shows(TurnId::from_u128(9), &[]).is_ok());
        assert!(ends(&mut asked(), None).is_err(), "nothing was brought");
        brings(&mut deeds, "first");
        brings(&mut deeds, "second");
        assert!(ends(&mut deeds, None).is_ok());
        assert!(deeds.shows(TURN, &reply("first")).is_ok());
        assert!(deeds.shows(TURN, &reply("second")).is_err());
        let mut left = asked();
        left.over(TURN);
        brings(&mut left, "late");
        assert!(left.shows(TURN, &[]).is_ok());
        let made_up = Some(ToolOutcome::done("made up"));
        assert!(ends(&mut asked(), made_up).is_err());
    }
}
