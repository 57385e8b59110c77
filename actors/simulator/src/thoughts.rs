//! What the modelled provider thinks, and that it is sent back exactly (LLM-2).

use clawnode_actors::session::turn::prepare::CallJob;
use clawnode_proto::{
    Attempt, CallId, Digest, EntityId,
    block::{Block, Blocks},
    llm::{ModelRef, Text},
};

use super::{JudgeViolation, book::Checked, ledger::Ledger, sessions::SessionHistory};

/// Calls of a turn that are looked for before one of it: far more than a turn may have.
const CALLS: u32 = 1_000;

/// What a reply has beside its text and so many tool calls; every second call thinks.
pub(super) fn thoughts(
    call: CallId,
    attempt: Attempt,
    model: ModelRef,
    text: u64,
    uses: usize,
) -> Option<Blocks> {
    if call.as_u128().is_multiple_of(2) {
        return None;
    }
    let thought = |part: &str| {
        let text = format!("{part} of {call} {attempt}");
        let signature = Some(signature(&text));
        Block::Thinking { text: text.into(), signature }
    };
    let data = Text::from(format!("sealed {call} {attempt}"));
    let mut list = vec![thought("beginning"), Block::Text { bytes: text }];
    list.extend([Block::RedactedThinking { data }, thought("end")]);
    list.extend((0..uses).map(|_| Block::ToolUse {}));
    Some(Blocks { model, list })
}

fn signature(text: &str) -> Text {
    Digest::of(text.as_bytes()).to_string().into()
}

/// What of a reply only its provider wants back.
fn items(blocks: &Blocks) -> impl Iterator<Item = &Block> {
    blocks.list.iter().filter(|block| !block.is_said())
}

impl Ledger {
    /// A model is shown this: what it thought in the running turn is all there, in its order, and ends
    /// what it is shown of thoughts; and every thought has its signature.
    pub(super) fn thinks(&mut self, entity: EntityId, job: &CallJob) -> Checked {
        let (turn, call) = (job.turn, job.call);
        let (model, messages) = (&job.request.model, &job.request.messages[..]);
        let wrong = |what: &str| {
            Err(JudgeViolation::new("LLM-2", format!("`{call}` shows thoughts {what}")))
        };
        let foreign = |blocks: &&Blocks| blocks.model != *model;
        if let Some(blocks) =
            messages.iter().filter_map(|message| message.blocks.as_ref()).find(foreign)
        {
            let text = format!("`{call}` shows `{model}` the thoughts of `{}`", blocks.model);
            return Err(JudgeViolation::new("LLM-3", text));
        }
        let sent: Vec<&Block> =
            messages.iter().flat_map(|message| &message.blocks).flat_map(items).collect();
        for block in &sent {
            if let Block::Thinking { text, signature: Some(signed) } = block
                && text.inline().is_none_or(|text| signature(text) != *signed)
            {
                return wrong("with another signature");
            }
        }
        let SessionHistory { calls, after, .. } = &self.book(entity).own;
        let earlier = (0..CALLS).map(|step| after.call(turn, step));
        let earlier = earlier.take_while(|one| *one != call).filter_map(|one| calls.get(&one));
        let own = |blocks: &&Blocks| blocks.model == *model;
        let said = earlier.flat_map(|message| &message.blocks).filter(own).flat_map(items);
        let said: Vec<&Block> = said.collect();
        if sent.ends_with(&said) { Ok(()) } else { wrong("other than those of its turn") }
    }
}
