//! Asks hooks about the calls of a session. `hook_input` has what they see of a call.

use clawnode_guard::kill_switch::StoppableWork;
use clawnode_proto::{
    CallId, EntityId, SessionKey, ToolName, TurnId,
    hook::{HookFault, HookPoint, HookSpec, HookTrail},
    session::ToolEnd,
    tool::ToolOutcome,
};
use tokio_util::sync::CancellationToken;

use super::{
    hook_input::{ModelSubject, ResultSubject, ToolSubject},
    session_runner::SessionRunner,
};
use crate::{
    hook::{self, About, Subject},
    session::{
        clients::attached_content::disown,
        texts::stored_outcome,
        turn::{
            effect::Outcome,
            hooks::{has_run, withheld},
            prepare::{JudgeJob, JudgeSubject},
        },
    },
};

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
                    let mut subject = ModelSubject {
                        runner: self,
                        entity,
                        agent: &job.session.agent,
                        request,
                        patches: Vec::new(),
                        bytes: 0,
                    };
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
