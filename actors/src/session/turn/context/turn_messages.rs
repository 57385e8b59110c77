//! A turn as messages: as a model reads it, and as people are shown it. Pure.

use clawnode_proto::{
    block::{Block, Blocks},
    llm::{Message, Role, Text},
    tool::{ToolReply, ToolUse},
};

use super::super::{
    state::{Step, StepEnd, Turn},
    tools::tool_calls::ToolCall,
};

// === impl Turn ===

impl Turn {
    /// What a person said, at this place.
    fn heard(&self, at: usize, text: &Text) -> Message {
        let mut message = Message::text(Role::User, text.clone());
        if let Some((_, media)) = self.attached.iter().find(|(place, _)| *place as usize == at) {
            message.attachments.clone_from(media);
        }
        message
    }

    /// What was said, by whom, in order, with the tools that were asked for and their results: as
    /// a model reads it. Entries of the ledger are in the places of blocks that they closed. Once the turn is over,
    /// without replies that were refused.
    pub fn messages(&self) -> Vec<Message> {
        let is_over = self.outcome.is_some();
        self.tell(|_tool| true, |step| !is_over || step.refused.is_none(), true).0
    }

    /// The same as people are shown it, and which of it, by its place, is a note of this program's own
    /// to the model. What is not known of a call yet is not told.
    pub fn shown(&self) -> (Vec<Message>, Vec<usize>) {
        let is_over = self.outcome.is_some();
        self.tell(|tool| is_over || tool.end.is_some(), |_step| true, false)
    }

    fn tell(
        &self,
        is_told: impl Fn(&ToolCall) -> bool,
        is_shown: impl Fn(&Step) -> bool,
        has_stubs: bool,
    ) -> (Vec<Message>, Vec<usize>) {
        let blocks = if has_stubs { self.blocks() } else { Vec::new() };
        // As many as a turn without tools has.
        let mut messages = Vec::with_capacity(self.said.len().saturating_add(self.steps.len()));
        let mut notes = Vec::new();
        for index in 0..self.steps.len().max(1) {
            let told = self.said.iter().enumerate();
            let told = told.filter(|(_, (step, _))| *step as usize == index);
            messages.extend(told.map(|(at, (_, text))| self.heard(at, text)));
            if let Some(block) = blocks.iter().find(|block| block.calls.contains(&index)) {
                if block.calls.end == index.saturating_add(1) {
                    messages.push(self.stub(block));
                }
                continue;
            }
            if self.nudges.iter().any(|at| *at as usize == index) {
                notes.push(messages.len());
                messages.push(Self::reminder());
            }
            if let Some(step) = self.steps.get(index).filter(|step| is_shown(step)) {
                let complaints = step.tell(&mut messages, &is_told);
                notes.extend((messages.len()..).take(complaints.len()));
                messages.extend(complaints);
            }
        }
        (messages, notes)
    }
}

// === impl Step ===

impl Step {
    /// Its reply, and the results of the tools that it asked for; returns what else the model reads.
    fn tell(
        &self,
        messages: &mut Vec<Message>,
        is_told: impl Fn(&ToolCall) -> bool,
    ) -> Vec<Message> {
        let content = self.text().cloned().unwrap_or_else(|| Text::from(""));
        let mut said = Message::text(Role::Assistant, content);
        let are_well_formed: Vec<bool> = self.tools.iter().map(ToolCall::is_well_formed).collect();
        said.blocks = self.blocks(&are_well_formed);
        let mut answer = Message::text(Role::User, "");
        let mut complaints = Vec::new();
        for (tool, is_well_formed) in self.tools.iter().zip(are_well_formed) {
            let (content, is_error) = tool.told();
            if is_well_formed {
                // Ids of our own: those of models are neither unique nor fit for every provider.
                let id = tool.call.to_string();
                let (name, arguments) = (tool.using.name.clone(), tool.using.arguments.clone());
                said.tool_uses.push(ToolUse { id: id.clone(), name, arguments });
                if is_told(tool) {
                    let media = tool.media();
                    answer.tool_replies.push(ToolReply { id, content, is_error, media });
                }
            } else if is_told(tool) {
                complaints.push(content);
            }
            if tool.warned {
                complaints.push(tool.warning());
            }
        }
        if said.content.bytes() > 0 || !said.tool_uses.is_empty() {
            messages.push(said);
        }
        if !answer.tool_replies.is_empty() {
            messages.push(answer);
        }
        complaints.extend(self.refused.iter().map(|told| Text::from(told.as_str())));
        complaints.into_iter().map(|text| Message::text(Role::User, text)).collect()
    }

    /// What the model said beside text and tool calls, without the calls that no model is shown: those of its tools
    /// that are not well-formed.
    fn blocks(&self, are_well_formed: &[bool]) -> Option<Blocks> {
        let Some(StepEnd::Done { blocks: Some(blocks), .. }) = &self.end else { return None };
        let (mut blocks, mut are_shown) = (blocks.clone(), are_well_formed.iter());
        // An opaque item belongs to the call after it. Without that call, it would go to another.
        let are_all_shown = are_well_formed.iter().all(|is_shown| *is_shown);
        blocks.list.retain(|block| match block {
            Block::ToolUse {} => are_shown.next().is_some_and(|is_shown| *is_shown),
            Block::Opaque { .. } => are_all_shown,
            Block::Text { .. } | Block::Thinking { .. } | Block::RedactedThinking { .. } => true,
        });
        #[cfg(feature = "test-util")]
        if clawnode_kernel::KernelBug::ThoughtsTurnedRound.is_in_folds() {
            blocks.list.reverse();
        }
        Some(blocks)
    }
}
