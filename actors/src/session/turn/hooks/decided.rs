//! What hooks decided, and what follows from it.

use clawnode_guard::policy::Pattern;
use clawnode_kernel::Violation;
use clawnode_proto::{
    CallId, Digest,
    hook::{HookBlock, HookPoint, HookSpec, ModelPatch},
    llm::{Message, Role},
    session::{ModelHooked, Profile, SessionEvent, ToolDone, ToolEnd, ToolHooked},
    tool::{ToolFailure, ToolOutcome, ToolSpec},
};
use serde::{Deserialize, Serialize};

use super::super::{
    context::model_input::{Assembled, assemble},
    effect::{Effect, Outcome},
    model_call::reservation_size::capped,
    state::{SessionState, Step, Turn},
    tools::tool_calls::ToolCall,
};

/// Calls of one reply that hooks are asked about at a time: what they change of them fits into one
/// append.
pub(super) const AT_ONCE: usize = 4;

/// What hooks decided about a model call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelJudged {
    pub call: CallId,
    /// The request that they judged.
    pub request: Digest,
    /// What they change of it, in order.
    pub patches: Vec<ModelPatch>,
    /// That it is not made.
    pub blocked: Option<HookBlock>,
}

/// What hooks decided about a tool call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolJudged {
    /// Its arguments, if they were changed.
    pub arguments: Option<String>,
    /// That it does not run.
    pub blocked: Option<HookBlock>,
}

/// How far hooks let a tool call go.
pub(in crate::session) enum HookFate {
    /// They have not been asked.
    Waits,
    /// Rules and people decide.
    Passed,
}

// === of a model call ===

/// The hooks that judge an agent's model calls, in order.
pub(in crate::session) fn of_model(profile: &Profile) -> Vec<HookSpec> {
    let hooks = profile.hooks.iter().filter(|hook| hook.point == HookPoint::BeforeLlmCall);
    hooks.cloned().collect()
}

/// What the model is shown by the running turn's next call under `profile`: with what hooks changed
/// of it, and with the cap on output that is paid for, as far as that is journaled.
pub fn shown(state: &SessionState, profile: &Profile, turn: &Turn, call: CallId) -> Assembled {
    let step = turn.steps.iter().find(|step| step.call == call);
    let cap = step.and_then(|step| step.held.as_ref()).map(|held| held.max_output);
    capped(judged(assemble(state, profile, turn), turn, call), cap)
}

/// A request with what hooks changed of it, as far as that is journaled.
pub(in crate::session) fn judged(request: Assembled, turn: &Turn, call: CallId) -> Assembled {
    match &turn.judged {
        Some(judged) if judged.call == call => patched(request, &judged.patches),
        _ => request,
    }
}

/// A request with these changes, in order.
pub(in crate::session) fn patched(mut request: Assembled, patches: &[ModelPatch]) -> Assembled {
    for patch in patches {
        if let Some(system) = &patch.system {
            request.system.clone_from(system);
            request.prompt = None;
        }
        for change in &patch.messages {
            let message = usize::try_from(change.index).ok();
            if let Some(message) = message.and_then(|index| request.messages.get_mut(index)) {
                message.content = change.content.clone().into();
                // They were said with other words.
                message.blocks = None;
                message.attachments.iter_mut().for_each(|media| media.at = None);
            }
        }
        if let Some(text) = &patch.append {
            request.messages.push(Message::text(Role::User, text.clone()));
        }
        let (ours, theirs) = (&mut request.sampling, &patch.sampling);
        ours.temperature = theirs.temperature.or(ours.temperature);
        ours.top_p = theirs.top_p.or(ours.top_p);
        ours.max_tokens = theirs.max_tokens.or(ours.max_tokens);
        ours.reasoning = theirs.reasoning.or(ours.reasoning);
        if !theirs.stop.is_empty() {
            ours.stop.clone_from(&theirs.stop);
        }
    }
    request
}

impl Turn {
    /// What hooks decided about this request of this call, if they were asked.
    pub(in crate::session) fn judgement(
        &self,
        call: CallId,
        request: Digest,
    ) -> Option<&ModelJudged> {
        self.judged.as_ref().filter(|judged| judged.call == call && judged.request == request)
    }

    /// That hooks do not let its next call be made.
    pub(in crate::session) fn blocked(&self) -> Option<&HookBlock> {
        self.judged.as_ref()?.blocked.as_ref()
    }

    /// Takes from the journal the decisions of hooks.
    pub(in crate::session) fn hooked(&mut self, hooked: &ModelHooked) -> Result<(), Violation> {
        if self.steps.iter().any(|step| step.call == hooked.call && step.end.is_some()) {
            return Err(Violation(format!(
                "`{}` has ended and was judged again (HOOK-1)",
                hooked.call
            )));
        }
        self.judged = Some(ModelJudged {
            call: hooked.call,
            request: hooked.request,
            patches: hooked.patches.clone(),
            blocked: hooked.trail.blocked.clone(),
        });
        Ok(())
    }

    /// HOOK-1 for a model call that begins under `profile`.
    pub(in crate::session) fn may_begin(
        &self,
        profile: Option<&Profile>,
        call: CallId,
    ) -> Result<(), Violation> {
        if profile.is_none_or(|profile| of_model(profile).is_empty()) {
            return Ok(());
        }
        match &self.judged {
            Some(judged) if judged.call == call && judged.blocked.is_none() => Ok(()),
            _ => Err(Violation(format!("`{call}` begins, but hooks did not allow it (HOOK-1)"))),
        }
    }
}

// === of a tool call ===

/// The calls of a reply, and results of them, that hooks are asked about now.
pub(in crate::session) fn effects(state: &SessionState, step: &Step) -> Vec<Effect> {
    let Some(profile) = state.profile.as_ref().filter(|profile| !profile.hooks.is_empty()) else {
        return Vec::new();
    };
    let point = |tool: &ToolCall| {
        if is_to_be_judged(profile, tool) {
            Some(HookPoint::BeforeToolCall)
        } else if is_result_to_be_judged(profile, tool) {
            Some(HookPoint::AfterToolCall)
        } else {
            None
        }
    };
    let judged = |tool: &ToolCall| Some(Effect::Judge { call: tool.call, point: point(tool)? });
    step.tools.iter().filter_map(judged).take(AT_ONCE).collect()
}

/// The hooks of this point that are asked about calls of this tool, in order.
pub(in crate::session) fn of_tool(
    profile: &Profile,
    point: HookPoint,
    tool: &str,
) -> Vec<HookSpec> {
    let fits = |pattern: &str, text: &str| Pattern::from(pattern).fits(text);
    let concerned = |hook: &&HookSpec| {
        hook.point == point
            && profile.tool(tool).is_some_and(|spec| hook.concerns(&spec.name, fits))
    };
    profile.hooks.iter().filter(concerned).cloned().collect()
}

/// How far hooks let a call go that could run otherwise; or why it never will.
pub(in crate::session) fn fate(
    profile: &Profile,
    tool: &ToolCall,
    spec: &ToolSpec,
) -> Result<HookFate, ToolOutcome> {
    let Some(judged) = &tool.judged else {
        return Ok(if is_wanted(profile, tool) { HookFate::Waits } else { HookFate::Passed });
    };
    if let Some(HookBlock { hook, reason }) = &judged.blocked {
        let why = format!("hook `{hook}` refused the call: {reason}");
        return Err(ToolOutcome::failed(ToolFailure::Refused, why));
    }
    if let Some(arguments) = &judged.arguments
        && let Err(why) = clawnode_tool::schema::judge(spec, arguments)
    {
        let why = format!("a hook changed the arguments to ones that the tool refuses: {why}");
        return Err(ToolOutcome::failed(ToolFailure::Refused, why));
    }
    Ok(HookFate::Passed)
}

fn is_wanted(profile: &Profile, tool: &ToolCall) -> bool {
    !profile.hooks.is_empty()
        && !of_tool(profile, HookPoint::BeforeToolCall, &tool.using.name).is_empty()
}

/// Whether hooks must be asked about a call that is not refused for other reasons.
pub(in crate::session) fn is_to_be_judged(profile: &Profile, tool: &ToolCall) -> bool {
    let waits = tool.asked.is_none() && tool.end.is_none() && tool.judged.is_none();
    waits && tool.approval.is_none() && is_wanted(profile, tool)
}

/// Whether hooks must be asked about a result before it is recorded.
pub(in crate::session) fn is_result_to_be_judged(profile: &Profile, tool: &ToolCall) -> bool {
    let Some(ToolEnd::Known { outcome }) = &tool.brought else { return false };
    tool.end.is_none()
        && has_run(outcome)
        && !profile.hooks.is_empty()
        && !of_tool(profile, HookPoint::AfterToolCall, &tool.using.name).is_empty()
}

/// Whether it tells of a run: there is nothing to judge of a call that was not made.
pub(in crate::session) fn has_run(outcome: &ToolOutcome) -> bool {
    !matches!(
        outcome.failure,
        Some(ToolFailure::Invalid | ToolFailure::Refused | ToolFailure::Unavailable)
    )
}

/// What the model reads in place of a result that a hook holds back.
pub(in crate::session) fn withheld(block: &HookBlock) -> ToolOutcome {
    let HookBlock { hook, reason } = block;
    let why = format!("The call was made, but hook `{hook}` holds its result back: {reason}");
    ToolOutcome::failed(ToolFailure::Refused, why)
}

/// What hooks decided about a call of the running turn, or its result, as it is written down.
pub(in crate::session) fn conclude(
    turn: &Turn,
    call: CallId,
    outcome: Outcome,
) -> Vec<SessionEvent> {
    let tool = turn.steps.iter().flat_map(|step| &step.tools).find(|tool| tool.call == call);
    let Some(tool) = tool.filter(|tool| tool.end.is_none()) else { return Vec::new() };
    let turn = turn.id;
    match outcome {
        Outcome::ToolJudged { arguments, trail }
            if tool.judged.is_none() && tool.asked.is_none() && tool.approval.is_none() =>
        {
            vec![ToolHooked { turn, call, arguments, trail }.into()]
        }
        Outcome::ResultJudged { outcome, trail: hooks } if tool.brought.is_some() => {
            vec![ToolDone { turn, call, outcome, hooks }.into()]
        }
        _ => Vec::new(),
    }
}

impl ToolCall {
    /// What it is run with: the model's arguments, unless hooks changed them.
    pub fn arguments(&self) -> &str {
        let changed = self.judged.as_ref().and_then(|judged| judged.arguments.as_deref());
        changed.unwrap_or(&self.using.arguments)
    }

    /// Takes from the journal the decisions of hooks.
    pub(in crate::session) fn hooked(&mut self, hooked: &ToolHooked) -> Result<(), Violation> {
        if self.judged.is_some() || self.asked.is_some() || self.approval.is_some() {
            return Err(Violation(format!("`{}` is judged late, or twice (HOOK-1)", hooked.call)));
        }
        let blocked = hooked.trail.blocked.clone();
        self.judged = Some(ToolJudged { arguments: hooked.arguments.clone(), blocked });
        Ok(())
    }

    /// HOOK-1 for a tool call that people are asked about, or that begins, under `profile`.
    pub(in crate::session) fn may_begin(&self, profile: Option<&Profile>) -> Result<(), Violation> {
        let call = self.call;
        let passed = match &self.judged {
            Some(judged) => judged.blocked.is_none(),
            None => profile.is_none_or(|profile| !is_wanted(profile, self)),
        };
        if passed {
            return Ok(());
        }
        Err(Violation(format!("`{call}` begins, but hooks did not allow it (HOOK-1)")))
    }
}
