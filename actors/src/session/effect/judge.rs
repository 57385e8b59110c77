//! Asks hooks about the calls of a session, with the parts of a call that they see and may change.

use std::time::Duration;

use clawnode_guard::kill_switch::StoppableWork;
use clawnode_proto::{
    CallId, EntityId, SessionKey, ToolName, TurnId,
    hook::{HookFault, HookPoint, HookSpec, HookTrail, ModelPatch},
    limits::{HOOK_ARGUMENTS_BYTES, HOOK_PATCH_BYTES},
    llm::{Message, Role},
    media::Media,
    session::ToolEnd,
    tool::{ToolOutcome, ToolSpec},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::run::SessionRunner;
use crate::session::{
    clients::attach::disown,
    texts::stored_outcome,
    turn::{
        context::Assembled,
        effect::Outcome,
        hooks::{has_run, patched, withheld},
        prepare::{JudgeJob, JudgeSubject},
    },
};
use crate::{
    hook::{self, About, ModelChange, Subject},
    llm::PlainMessage,
};

/// How long to look for the texts of a request before hooks count as unable to judge it (30 s). The call
/// itself waits longer, because nothing else depends on it.
const TEXTS_WAIT: Duration = Duration::from_secs(30);

/// A model request, and what hooks have changed of it.
struct ModelSubject<'a> {
    runner: &'a SessionRunner,
    request: Assembled,
    patches: Vec<ModelPatch>,
    bytes: usize,
}

/// A tool call.
struct ToolSubject {
    spec: ToolSpec,
    arguments: String,
    is_changed: bool,
}

/// A tool's result.
struct ResultSubject<'a> {
    runner: &'a SessionRunner,
    tool: ToolName,
    arguments: String,
    outcome: ToolOutcome,
    is_changed: bool,
}

/// The call whose result hooks judge.
pub(in crate::session) struct OfCall<'a> {
    pub(in crate::session) session: &'a SessionKey,
    pub(in crate::session) turn: TurnId,
    pub(in crate::session) call: CallId,
    pub(in crate::session) tool: &'a ToolName,
    pub(in crate::session) arguments: &'a str,
}

// === impl SessionRunner ===

impl SessionRunner {
    /// Asks hooks. `None` if they have to be asked again.
    pub(in crate::session) async fn judge(
        &self,
        entity: EntityId,
        job: JudgeJob,
        cancelled: CancellationToken,
    ) -> Option<Outcome> {
        let about = |point| About {
            point,
            session: job.session.clone(),
            agent: job.session.agent.clone(),
            turn: job.turn,
            call: job.call,
        };
        let judged = async {
            Some(match job.subject {
                JudgeSubject::Model(request) => {
                    let digest = request.digest();
                    let about = about(HookPoint::BeforeLlmCall);
                    let mut subject =
                        ModelSubject { runner: self, request, patches: Vec::new(), bytes: 0 };
                    let trail = self.ask_hooks(&about, &job.hooks, &mut subject).await?;
                    let patches = subject.patches;
                    Outcome::ModelJudged { request: digest, patches, trail }
                }
                JudgeSubject::Tool { spec, arguments } => {
                    let about = about(HookPoint::BeforeToolCall);
                    let mut subject = ToolSubject { spec, arguments, is_changed: false };
                    let trail = self.answered(&about, &job.hooks, &mut subject).await;
                    let is_kept = subject.is_changed && trail.blocked.is_none();
                    Outcome::ToolJudged { arguments: is_kept.then_some(subject.arguments), trail }
                }
                JudgeSubject::Result { tool, arguments, outcome } => {
                    let judged_call = OfCall {
                        session: &job.session,
                        turn: job.turn,
                        call: job.call,
                        tool: &tool,
                        arguments: &arguments,
                    };
                    let (changed, trail) =
                        self.judge_result(entity, &judged_call, outcome, &job.hooks).await;
                    Outcome::ResultJudged { outcome: changed, trail }
                }
            })
        };
        tokio::select! {
            biased;
            () = cancelled.cancelled() => None,
            judged = judged => judged,
        }
    }

    /// The end of a tool call after its hooks, if its result is not recorded yet.
    pub(in crate::session) async fn judged_end(
        &self,
        entity: EntityId,
        judged_call: &OfCall<'_>,
        end: ToolEnd,
        hooks: &[HookSpec],
    ) -> (ToolEnd, HookTrail) {
        let ToolEnd::Known { outcome } = end else { return (end, HookTrail::default()) };
        if hooks.is_empty() || !has_run(&outcome) {
            return (ToolEnd::Known { outcome }, HookTrail::default());
        }
        let (changed, trail) = self.judge_result(entity, judged_call, outcome.clone(), hooks).await;
        if trail.blocked.is_some() {
            // Nothing names it.
            disown(&self.parts.storage, entity, &outcome.media).await;
        }
        (ToolEnd::Known { outcome: changed.unwrap_or(outcome) }, trail)
    }

    /// The text that the model reads instead of this result, if hooks changed or blocked it.
    async fn judge_result(
        &self,
        entity: EntityId,
        judged_call: &OfCall<'_>,
        outcome: ToolOutcome,
        hooks: &[HookSpec],
    ) -> (Option<ToolOutcome>, HookTrail) {
        let about = About {
            point: HookPoint::AfterToolCall,
            session: judged_call.session.clone(),
            agent: judged_call.session.agent.clone(),
            turn: judged_call.turn,
            call: judged_call.call,
        };
        let (tool, arguments) = (judged_call.tool.clone(), judged_call.arguments.to_owned());
        let mut subject =
            ResultSubject { runner: self, tool, arguments, outcome, is_changed: false };
        let trail = self.answered(&about, hooks, &mut subject).await;
        if let Some(block) = &trail.blocked {
            return (Some(withheld(block)), trail);
        }
        if !subject.is_changed {
            return (None, trail);
        }
        (Some(stored_outcome(&self.parts.storage, entity, subject.outcome).await), trail)
    }

    /// Asks hooks with a permit of the kill switch. Hooks that an operator stops give no answer.
    async fn answered(
        &self,
        about: &About,
        hooks: &[HookSpec],
        subject: &mut impl Subject,
    ) -> HookTrail {
        match self.ask_hooks(about, hooks, subject).await {
            Some(trail) => trail,
            None => hook::unanswered(about, hooks, HookFault::Stopped),
        }
    }

    /// `None`: an operator has stopped the agent, or this process is out of touch.
    async fn ask_hooks(
        &self,
        about: &About,
        hooks: &[HookSpec],
        subject: &mut impl Subject,
    ) -> Option<HookTrail> {
        let work = StoppableWork::Call { agent: about.agent.clone() };
        let pass = self.parts.agents.switch_gate().pass(work).await.ok()?;
        tokio::select! {
            biased;
            _why = pass.stopped() => None,
            trail = hook::judge(&self.parts.hooks, about, hooks, subject) => Some(trail),
        }
    }
}

// === what hooks see ===

impl Subject for ModelSubject<'_> {
    async fn document(&self) -> Result<Value, HookFault> {
        let messages = self.runner.messages(self.request.messages.clone());
        let messages = tokio::time::timeout(TEXTS_WAIT, messages).await;
        let Ok(Ok(messages)) = messages else { return Err(HookFault::TooLarge) };
        let messages = messages.iter().zip(&self.request.messages);
        let messages: Vec<Value> = messages.map(|(plain, stored)| message(plain, stored)).collect();
        let tools: Vec<&str> = self.request.tools.iter().map(|tool| tool.name.as_str()).collect();
        Ok(json!({
            "model": self.request.model,
            "system": self.request.system,
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
