//! What a reply says on Bedrock's wire.
//!
//! The decoder holds the stream to its grammar: `messageStart`, blocks that grow and close, `messageStop`, and
//! then `metadata` with the usage, which is the proper end. It skips kinds of events and pieces that it does not
//! know. A thought is shown as it comes, and whole once its block closes. An exception ends the reply.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use clawnode_proto::llm::{FailureClass, StopReason, Usage};
use serde::Deserialize;

use super::events::{
    BlockPiece, BlockStart, BlockStop, ConverseBlock, ConverseDelta, ConverseReply, ExceptionBody,
    MessageStop, Metadata, ReasoningPiece, StartedTool, WholeTool,
};
use crate::llm::{
    Item,
    aws::AwsException,
    blocks::push_bounded,
    call::{Decoder, ReplyPiece},
    call_stream::Finish,
    event_stream::{ERROR, EXCEPTION},
    http::AttemptFailure,
    sse::SseEvent,
    tool_uses::{Growing, ToolUseBounds, stop_with, unasked_tool},
};

/// What an open block holds.
enum BedrockBlock {
    Text,
    Tool(Growing),
    Thought(OpenThought),
    /// One tool call too many, or something newer than this build.
    Other,
}

#[derive(Default)]
struct OpenThought {
    text: String,
    signature: String,
    /// What only the provider reads, in base64.
    redacted: String,
}

/// Reads one reply.
#[derive(Default)]
pub(in crate::llm) struct BedrockReader {
    /// Whether tools were offered.
    offers: bool,
    is_started: bool,
    /// Every block of the message by index; `None` once it is closed.
    blocks: BTreeMap<u32, Option<BedrockBlock>>,
    room: ToolUseBounds,
    /// The last call, if it has closed without arguments: so this wire writes a call without any, and one
    /// that was cut off before them. The stop reason tells which.
    bare: Option<Growing>,
    stop: Option<StopReason>,
}

impl Decoder for BedrockReader {
    fn event(
        &mut self,
        event: &SseEvent,
        pieces: &mut Vec<ReplyPiece>,
    ) -> Result<(), AttemptFailure> {
        if let Some(name) = event.name.strip_prefix(EXCEPTION) {
            let words = serde_json::from_str(&event.data);
            let words = words.map_or_else(|_| String::new(), |ExceptionBody { message }| message);
            return Err(trouble(name, words));
        }
        if let Some(code) = event.name.strip_prefix(ERROR) {
            return Err(trouble(code, event.data.clone()));
        }
        match event.name.as_str() {
            "messageStart" if self.is_started => {
                Err(AttemptFailure::broken("a second `messageStart`"))
            }
            "messageStart" => {
                self.is_started = true;
                Ok(())
            }
            "contentBlockStart" | "contentBlockDelta" | "contentBlockStop" | "messageStop"
            | "metadata"
                if !self.is_started =>
            {
                Err(AttemptFailure::broken("an event before `messageStart`"))
            }
            "contentBlockStart" => {
                let BlockStart { content_block_index, start } = read(event)?;
                match start.and_then(|start| start.tool_use) {
                    Some(tool) => self.open(content_block_index, &tool, pieces),
                    None => Ok(()),
                }
            }
            "contentBlockDelta" => {
                let ConverseDelta { content_block_index, delta } = read(event)?;
                self.grow(content_block_index, delta, pieces)
            }
            "contentBlockStop" => {
                let BlockStop { content_block_index } = read(event)?;
                self.close(content_block_index, pieces)
            }
            "messageStop" if self.stop.is_some() => {
                Err(AttemptFailure::broken("a second `messageStop`"))
            }
            "messageStop" => {
                let MessageStop { stop_reason } = read(event)?;
                self.stop = Some(self.stop_reason(stop_reason)?);
                Ok(())
            }
            "metadata" => {
                let Metadata { usage } = read(event)?;
                self.end(usage.unwrap_or_default().usage(), pieces)
            }
            _ => Ok(()),
        }
    }

    fn whole(&mut self, body: &[u8], pieces: &mut Vec<ReplyPiece>) -> Result<(), AttemptFailure> {
        let reply: ConverseReply = serde_json::from_slice(body).map_err(AttemptFailure::broken)?;
        let stop = self.stop_reason(reply.stop_reason)?;
        let last = reply.output.message.content.len().saturating_sub(1);
        for (nth, block) in reply.output.message.content.into_iter().enumerate() {
            let ConverseBlock { text, tool_use, reasoning_content } = block;
            push_text(text.unwrap_or_default(), pieces);
            if let Some(tool) = tool_use {
                let is_cut_off = nth == last && is_cut_off(&stop);
                self.whole_tool(&tool, is_cut_off, pieces)?;
            }
            if let Some(reasoning) = reasoning_content {
                let ReasoningPiece { text, signature, .. } =
                    reasoning.reasoning_text.unwrap_or_default();
                push_thought(text.clone(), pieces);
                let redacted = reasoning.redacted_content;
                OpenThought { text, signature, redacted }.done(pieces);
            }
        }
        let (stop, model) = (stop_with(self.room.calls(), stop)?, String::new());
        let usage = reply.usage.unwrap_or_default().usage();
        pieces.push(ReplyPiece::End(Finish { stop, usage, model }));
        Ok(())
    }

    fn argued(&self) -> usize {
        self.room.bytes()
    }
}

impl BedrockReader {
    pub(in crate::llm) fn new(offers: bool) -> Self {
        Self { offers, ..Self::default() }
    }

    /// A tool call begins.
    fn open(
        &mut self,
        index: u32,
        tool: &StartedTool,
        pieces: &mut Vec<ReplyPiece>,
    ) -> Result<(), AttemptFailure> {
        self.goes_on(pieces)?;
        let open = self.called(&tool.tool_use_id, &tool.name)?;
        match self.blocks.insert(index, Some(open.map_or(BedrockBlock::Other, BedrockBlock::Tool)))
        {
            None => Ok(()),
            Some(_) => Err(AttemptFailure::broken("two blocks with one index")),
        }
    }

    fn grow(
        &mut self,
        index: u32,
        delta: BlockPiece,
        pieces: &mut Vec<ReplyPiece>,
    ) -> Result<(), AttemptFailure> {
        if !self.blocks.contains_key(&index) {
            if delta.tool_use.is_some() {
                return Err(AttemptFailure::broken("arguments of a call that is not begun"));
            }
            self.goes_on(pieces)?;
            let open = if delta.text.is_some() {
                BedrockBlock::Text
            } else if delta.reasoning_content.is_some() {
                BedrockBlock::Thought(OpenThought::default())
            } else {
                BedrockBlock::Other
            };
            self.blocks.insert(index, Some(open));
        }
        let Some(Some(open)) = self.blocks.get_mut(&index) else {
            return Err(AttemptFailure::broken("more of a block that is not open"));
        };
        match (open, delta) {
            (BedrockBlock::Other, _)
            | (_, BlockPiece { text: None, tool_use: None, reasoning_content: None }) => {}
            (BedrockBlock::Text, BlockPiece { text: Some(text), .. }) => push_text(text, pieces),
            (BedrockBlock::Tool(call), BlockPiece { tool_use: Some(more), .. }) => {
                self.room.argue(call, &more.input);
            }
            (BedrockBlock::Thought(thought), BlockPiece { reasoning_content: Some(more), .. }) => {
                thought.grow(&more)?;
                push_thought(more.text, pieces);
            }
            (BedrockBlock::Text, _) => {
                return Err(AttemptFailure::broken("something else within a block of text"));
            }
            (BedrockBlock::Tool(_), _) => {
                return Err(AttemptFailure::broken("something else within a tool call"));
            }
            (BedrockBlock::Thought(_), _) => {
                return Err(AttemptFailure::broken("something else within a thought"));
            }
        }
        Ok(())
    }

    fn close(&mut self, index: u32, pieces: &mut Vec<ReplyPiece>) -> Result<(), AttemptFailure> {
        // A block without a piece was never open.
        match self.blocks.entry(index).or_insert(Some(BedrockBlock::Other)).take() {
            None => return Err(AttemptFailure::broken("an end of a block that is not open")),
            Some(BedrockBlock::Text | BedrockBlock::Other) => {}
            Some(BedrockBlock::Thought(thought)) => thought.done(pieces),
            Some(BedrockBlock::Tool(call)) if call.is_begun() => {
                pieces.push(ReplyPiece::ToolUse(call.done()));
            }
            Some(BedrockBlock::Tool(call)) => {
                self.unbare(false, pieces);
                self.bare = Some(call);
            }
        }
        Ok(())
    }

    /// A block begins. What follows a call does not cut it off.
    fn goes_on(&mut self, pieces: &mut Vec<ReplyPiece>) -> Result<(), AttemptFailure> {
        if self.stop.is_some() {
            return Err(AttemptFailure::broken("a block after the stop reason"));
        }
        self.unbare(false, pieces);
        Ok(())
    }

    /// Begins a call, if there are not too many.
    fn called(&mut self, id: &str, name: &str) -> Result<Option<Growing>, AttemptFailure> {
        if !self.offers {
            return Err(unasked_tool());
        }
        let Some(mut call) = self.room.open() else { return Ok(None) };
        call.identify(id);
        call.name(name);
        Ok(Some(call))
    }

    fn whole_tool(
        &mut self,
        tool: &WholeTool,
        is_cut_off: bool,
        pieces: &mut Vec<ReplyPiece>,
    ) -> Result<(), AttemptFailure> {
        let mut arguments = tool.input.as_ref().map_or("{}", |input| input.get()).to_owned();
        if is_cut_off {
            // Its pieces were made an object; it is left open, as it was.
            arguments.pop();
        }
        if let Some(mut call) = self.called(&tool.tool_use_id, &tool.name)? {
            self.room.argue(&mut call, &arguments);
            pieces.push(ReplyPiece::ToolUse(call.done()));
        }
        Ok(())
    }

    /// Delivers the call that closed without arguments.
    fn unbare(&mut self, cut_off: bool, pieces: &mut Vec<ReplyPiece>) {
        if let Some(mut call) = self.bare.take() {
            if !cut_off {
                self.room.argue(&mut call, "{}");
            }
            pieces.push(ReplyPiece::ToolUse(call.done()));
        }
    }

    fn end(&mut self, usage: Usage, pieces: &mut Vec<ReplyPiece>) -> Result<(), AttemptFailure> {
        pieces.push(ReplyPiece::Usage(usage));
        let Some(stop) = self.stop.take() else {
            return Err(AttemptFailure::broken("`metadata` before `messageStop`"));
        };
        let cut_off = is_cut_off(&stop);
        self.unbare(cut_off, pieces);
        for open in std::mem::take(&mut self.blocks).into_values().flatten() {
            match open {
                BedrockBlock::Tool(call) if cut_off => {
                    pieces.push(ReplyPiece::ToolUse(call.done()));
                }
                BedrockBlock::Text
                | BedrockBlock::Tool(_)
                | BedrockBlock::Thought(_)
                | BedrockBlock::Other => {
                    return Err(AttemptFailure::broken("`messageStop` within a block"));
                }
            }
        }
        let (stop, model) = (stop_with(self.room.calls(), stop)?, String::new());
        pieces.push(ReplyPiece::End(Finish { stop, usage, model }));
        Ok(())
    }

    fn stop_reason(&self, reason: String) -> Result<StopReason, AttemptFailure> {
        Ok(match reason.as_str() {
            "end_turn" => StopReason::EndTurn,
            "max_tokens" => StopReason::MaxTokens,
            "stop_sequence" => StopReason::StopSequence,
            "guardrail_intervened" | "content_filtered" | "refusal" => StopReason::Refusal,
            "tool_use" if self.offers => StopReason::ToolUse,
            "tool_use" => return Err(unasked_tool()),
            // The model failed to write what it meant; another try may be whole.
            "malformed_model_output" | "malformed_tool_use" => {
                return Err(AttemptFailure::broken(reason).broke_off());
            }
            _ => StopReason::Other { reason },
        })
    }
}

// === impl OpenThought ===

impl OpenThought {
    fn grow(&mut self, more: &ReasoningPiece) -> Result<(), AttemptFailure> {
        push_bounded(&mut self.text, &more.text);
        push_bounded(&mut self.signature, &more.signature);
        if self.redacted.is_empty() {
            push_bounded(&mut self.redacted, &more.redacted_content);
        } else if !more.redacted_content.is_empty() {
            // Two texts of base64 are not joined as texts.
            let bytes = |text: &str| STANDARD.decode(text).map_err(AttemptFailure::broken);
            let both = [bytes(&self.redacted)?, bytes(&more.redacted_content)?].concat();
            self.redacted.clear();
            push_bounded(&mut self.redacted, &STANDARD.encode(both));
        }
        Ok(())
    }

    /// The whole of it. Without a signature the vendor does not take it back.
    fn done(self, pieces: &mut Vec<ReplyPiece>) {
        let Self { text, signature, redacted } = self;
        if !(text.is_empty() && signature.is_empty()) {
            let signature = (!signature.is_empty()).then_some(signature);
            pieces.push(ReplyPiece::Item(Item::Thinking { text, signature }));
        }
        if !redacted.is_empty() {
            pieces.push(ReplyPiece::Item(Item::Redacted { data: redacted }));
        }
    }
}

fn read<'a, T: Deserialize<'a>>(event: &'a SseEvent) -> Result<T, AttemptFailure> {
    serde_json::from_str(&event.data).map_err(AttemptFailure::broken)
}

/// An exception: the provider gives up.
fn trouble(name: &str, words: String) -> AttemptFailure {
    let exception = AwsException::named(name);
    let class = exception.class().unwrap_or(FailureClass::BrokenStream);
    let passes = matches!(
        class,
        FailureClass::Overloaded | FailureClass::RateLimited | FailureClass::Timeout
    );
    let words = if words.trim().is_empty() { name.to_owned() } else { words };
    AttemptFailure::last(class, exception.advised(words)).again(passes)
}

fn push_text(text: String, pieces: &mut Vec<ReplyPiece>) {
    if !text.is_empty() {
        pieces.push(ReplyPiece::Text(text));
    }
}

fn push_thought(text: String, pieces: &mut Vec<ReplyPiece>) {
    if !text.is_empty() {
        pieces.push(ReplyPiece::Thought(text));
    }
}

/// Whether the reply goes no further than something let it, so that its last part may be a piece.
fn is_cut_off(stop: &StopReason) -> bool {
    !matches!(stop, StopReason::EndTurn | StopReason::ToolUse)
}
