//! Turns whose reply has to fit a schema: what was said, what was corrected, and how they ended.

use std::collections::BTreeMap;

use clawnode_proto::{
    CallId, TurnId,
    response::ResponseSchema,
    session::{ModelDone, Reply, ReplyRefused, TurnDone, TurnOutcome, UserMessage},
};

use super::ShownCall;
use crate::{JudgeViolation, book::Checked, schemas::fits};

/// How often a model is asked to correct its reply.
const CORRECTIONS: usize = 2;

/// What is known of a turn's replies.
#[derive(Debug, Default)]
struct KnownReplies {
    /// What its last call said, if it called no tools.
    last: Option<(CallId, String)>,
    /// The corrections that its model got for replies that did not fit.
    told: Vec<String>,
    /// Its reply, as JSON.
    structured: Option<String>,
}

/// All turns.
#[derive(Debug, Default)]
pub(super) struct StructuredReplies {
    wanted: BTreeMap<TurnId, ResponseSchema>,
    turns: BTreeMap<TurnId, KnownReplies>,
    calls: BTreeMap<CallId, TurnId>,
}

fn wrong(text: String) -> Checked {
    Err(JudgeViolation::new("FIT-1", text))
}

// === impl KnownReplies ===

impl KnownReplies {
    /// Whether its last reply fits, if it was one.
    fn has_fitting(&self) -> Option<bool> {
        self.last.as_ref().map(|(_, text)| fits(text))
    }
}

// === impl StructuredReplies ===

impl StructuredReplies {
    /// A client sends this.
    pub(super) fn sent(&mut self, turn: TurnId, message: &UserMessage) {
        if let Some(schema) = &message.response_schema {
            self.wanted.insert(turn, schema.clone());
        }
    }

    pub(super) fn begun(&mut self, turn: TurnId, call: CallId) {
        if call.is_at(turn, 0) {
            // A message that is sent again after its session was deleted starts its turn again.
            self.turns.remove(&turn);
        }
        self.calls.insert(call, turn);
    }

    pub(super) fn done(&mut self, model_done: &ModelDone) {
        let Some(turn) = self.calls.get(&model_done.call) else { return };
        let text = model_done.content.inline().filter(|_| model_done.tool_uses.is_empty());
        let last = text.map(|text| (model_done.call, text.to_owned()));
        self.turns.entry(*turn).or_default().last = last;
    }

    /// A reply is refused: the last one, which does not fit, and only so often.
    pub(super) fn refused(&mut self, refusal: &ReplyRefused) -> Checked {
        let known = self.turns.entry(refusal.turn).or_default();
        let is_last = known.last.as_ref().is_some_and(|(call, _)| *call == refusal.call);
        if !self.wanted.contains_key(&refusal.turn)
            || !is_last
            || known.has_fitting() != Some(false)
        {
            return wrong(format!("`{}` is refused, and its reply fits or is none", refusal.call));
        }
        if known.told.len() >= CORRECTIONS {
            return wrong(format!(
                "`{}` is corrected once more after {CORRECTIONS} times",
                refusal.turn
            ));
        }
        known.told.push(refusal.told.clone());
        Ok(())
    }

    pub(super) fn replied(&mut self, reply: &Reply) {
        self.turns.entry(reply.turn).or_default().structured.clone_from(&reply.structured);
    }

    /// A turn has ended: well only with a reply that fits, and badly only after all corrections.
    pub(super) fn over(&mut self, turn_done: &TurnDone) -> Checked {
        let Some(known) = self.turns.remove(&turn_done.turn) else { return Ok(()) };
        let is_wanted = self.wanted.contains_key(&turn_done.turn);
        let said = known.last.as_ref().map(|(_, text)| text);
        let is_right = match &turn_done.outcome {
            TurnOutcome::Completed { .. } if is_wanted => {
                known.has_fitting() == Some(true) && known.structured.as_ref() == said
            }
            TurnOutcome::SchemaFailed { .. } => {
                let is_last = known.told.len() == CORRECTIONS;
                is_wanted && is_last && known.has_fitting() == Some(false)
            }
            _ => known.structured.is_none(),
        };
        if is_right {
            return Ok(());
        }
        wrong(format!("`{}` ends {} with {known:?}", turn_done.turn, turn_done.outcome.name()))
    }

    /// A model is asked: for what the client wants, and told all that was wrong before, once.
    pub(super) fn shows(&self, shown: &ShownCall<'_>) -> Checked {
        let ShownCall { turn, call, messages, schema, .. } = *shown;
        if schema != self.wanted.get(&turn) {
            return wrong(format!(
                "`{call}` asks for {schema:?}, which no client wants in `{turn}`"
            ));
        }
        let told = self.turns.get(&turn).map(|known| &known.told[..]).unwrap_or_default();
        let texts = || messages.iter().filter_map(|message| message.content.inline());
        for one in told {
            let shown = texts().filter(|text| text == one).count();
            let due = told.iter().filter(|other| *other == one).count();
            if shown < due {
                return wrong(format!("`{call}` shows {shown} of {due} times what was wrong"));
            }
        }
        Ok(())
    }
}
