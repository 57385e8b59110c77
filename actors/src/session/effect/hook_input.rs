//! What hooks see of a call, as one JSON document, and what they may change of it. Attachments are in it by their
//! type, size, name and digest, without their content.

use std::time::Duration;

use clawnode_proto::{
    AgentName, EntityId, ToolName,
    hook::{HookFault, ModelPatch},
    limits::{HOOK_ARGUMENTS_BYTES, HOOK_PATCH_BYTES},
    llm::{Message, ModelFailure, Role},
    media::Media,
    tool::{ToolOutcome, ToolSpec},
};
use serde_json::{Value, json};

use super::session_runner::SessionRunner;
use crate::{
    hook::{ModelChange, Subject},
    llm::PlainMessage,
    session::turn::{context::model_input::Assembled, hooks::patched},
};

/// How long to look for the texts of a request before hooks count as unable to judge it (30 s). The call
/// itself waits longer, because nothing else depends on it.
const TEXTS_WAIT: Duration = Duration::from_secs(30);

/// A model request, and what hooks have changed of it.
pub(super) struct ModelSubject<'a> {
    pub(super) runner: &'a SessionRunner,
    pub(super) entity: EntityId,
    pub(super) agent: &'a AgentName,
    pub(super) request: Assembled,
    pub(super) patches: Vec<ModelPatch>,
    pub(super) bytes: usize,
}

/// A tool call.
pub(super) struct ToolSubject {
    pub(super) spec: ToolSpec,
    pub(super) arguments: String,
    pub(super) is_changed: bool,
}

/// A tool's result.
pub(super) struct ResultSubject<'a> {
    pub(super) runner: &'a SessionRunner,
    pub(super) tool: ToolName,
    pub(super) arguments: String,
    pub(super) outcome: ToolOutcome,
    pub(super) is_changed: bool,
}

// === what hooks see ===

impl Subject for ModelSubject<'_> {
    async fn document(&self) -> Result<Value, HookFault> {
        let messages = self.runner.messages(self.request.messages.clone());
        let system = self.runner.system_prompt(self.entity, self.agent, &self.request);
        let texts = async { Ok::<_, ModelFailure>((messages.await?, system.await?)) };
        let texts = tokio::time::timeout(TEXTS_WAIT, texts).await;
        let Ok(Ok((messages, system))) = texts else { return Err(HookFault::TooLarge) };
        let messages = messages.iter().zip(&self.request.messages);
        let messages: Vec<Value> = messages.map(|(plain, stored)| message(plain, stored)).collect();
        let tools: Vec<&str> = self.request.tools.iter().map(|tool| tool.name.as_str()).collect();
        Ok(json!({
            "model": self.request.model,
            "system": system,
            "messages": messages,
            "sampling": self.request.sampling,
            "tools": tools,
        }))
    }

    fn change(&mut self, patch: Value) -> Result<(), HookFault> {
        let bytes = self.bytes + patch.to_string().len();
        let change: ModelChange =
            serde_json::from_value(patch).map_err(|_told_by_name| HookFault::Unfit)?;
        let patch = ModelPatch::from(change);
        let messages = &self.request.messages;
        let is_there = |index: u32| {
            let message = usize::try_from(index).ok().and_then(|index| messages.get(index));
            message.is_some()
        };
        // Providers refuse what says nothing.
        let says = |text: &str| !text.trim().is_empty();
        let fits =
            patch.messages.iter().all(|message| is_there(message.index) && says(&message.content))
                && patch.append.as_deref().is_none_or(says)
                && patch
                    .sampling
                    .temperature
                    .is_none_or(|temperature| (0.0..=2.0).contains(&temperature))
                && patch.sampling.top_p.is_none_or(|top_p| (0.0..=1.0).contains(&top_p))
                && patch.sampling.max_tokens != Some(0);
        if !fits || bytes > HOOK_PATCH_BYTES {
            return Err(HookFault::Unfit);
        }
        self.bytes = bytes;
        self.request = patched(self.request.clone(), std::slice::from_ref(&patch));
        self.patches.push(patch);
        Ok(())
    }
}

/// A message, and its attachments by reference.
fn message(plain: &PlainMessage, stored: &Message) -> Value {
    let role = match plain.role {
        Role::User => "user",
        Role::Assistant => "assistant",
    };
    let uses = plain.tool_uses.iter();
    let uses = uses.map(|tool_use| json!({ "id": tool_use.id, "tool": tool_use.name, "arguments": tool_use.arguments }));
    let replies = plain.tool_replies.iter().zip(&stored.tool_replies).map(|(reply, stored)| {
        let reply = json!({ "id": reply.id, "content": reply.text, "is_error": reply.is_error });
        with(reply, "media", &stored.media)
    });
    let message = json!({
        "role": role,
        "content": plain.text,
        "tool_uses": uses.collect::<Vec<_>>(),
        "tool_replies": replies.collect::<Vec<_>>(),
    });
    with(message, "attachments", &stored.attachments)
}

/// A document with these attachments, if there are some.
fn with(mut document: Value, name: &str, media: &[Media]) -> Value {
    if let Some(fields) = document.as_object_mut()
        && !media.is_empty()
    {
        fields.insert(name.to_owned(), json!(media));
    }
    document
}

impl Subject for ToolSubject {
    async fn document(&self) -> Result<Value, HookFault> {
        let arguments: Value =
            serde_json::from_str(&self.arguments).map_err(|_no_call| HookFault::TooLarge)?;
        Ok(json!({ "tool": self.spec.name, "arguments": arguments }))
    }

    fn change(&mut self, mut patch: Value) -> Result<(), HookFault> {
        let arguments = only(&mut patch, "arguments")?;
        if !arguments.is_object() {
            return Err(HookFault::Unfit);
        }
        let arguments = arguments.to_string();
        if arguments.len() > HOOK_ARGUMENTS_BYTES
            || clawnode_tool::schema::judge(&self.spec, &arguments).is_err()
        {
            return Err(HookFault::Unfit);
        }
        self.arguments = arguments;
        self.is_changed = true;
        Ok(())
    }
}

impl Subject for ResultSubject<'_> {
    async fn document(&self) -> Result<Value, HookFault> {
        let text = self.runner.text(&self.outcome.content);
        let Ok(Ok(content)) = tokio::time::timeout(TEXTS_WAIT, text).await else {
            return Err(HookFault::TooLarge);
        };
        let arguments: Value =
            serde_json::from_str(&self.arguments).map_err(|_no_call| HookFault::TooLarge)?;
        let failure = self.outcome.failure.map(clawnode_proto::tool::ToolFailure::as_str);
        let result = json!({ "content": content, "failure": failure });
        Ok(json!({
            "tool": self.tool,
            "arguments": arguments,
            "result": with(result, "media", &self.outcome.media),
        }))
    }

    fn change(&mut self, mut patch: Value) -> Result<(), HookFault> {
        let Value::String(content) = only(&mut patch, "content")? else {
            return Err(HookFault::Unfit);
        };
        self.outcome.content = content.into();
        self.is_changed = true;
        Ok(())
    }
}

/// The one value that a patch has.
fn only(patch: &mut Value, name: &str) -> Result<Value, HookFault> {
    let patch = patch.as_object_mut().filter(|object| object.len() == 1).ok_or(HookFault::Unfit)?;
    patch.remove(name).ok_or(HookFault::Unfit)
}
