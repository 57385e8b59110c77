//! Runs calls of `create_skill`, of which a person has approved: the worker that owns the session writes the skill.
//!
//! The text follows from the call alone. So a call that is run again after a crash finds its own skill there, and writes
//! nothing.

use async_trait::async_trait;
use clawnode_proto::tool::{ToolFailure, ToolOutcome, ToolSpec};
use clawnode_tool::{
    Executor, ToolRun, arguments,
    skill::{SkillDraft, SkillOrigin, SkillShelf},
};
use tokio_util::sync::CancellationToken;

use super::session_runner::SessionRunner;
use crate::session::turn::prepare::ToolJob;

/// One call, and where its skill goes.
#[derive(Clone, Debug)]
pub(super) struct SkillRun {
    shelf: SkillShelf,
    origin: SkillOrigin,
}

// === impl SkillRun ===

impl SkillRun {
    /// What runs this call.
    pub(super) fn of(runner: &SessionRunner, job: &ToolJob) -> Self {
        let origin = SkillOrigin {
            session: job.would.session.to_string(),
            turn: job.turn.to_string(),
            call: job.call.to_string(),
        };
        Self { shelf: runner.parts.skills.clone(), origin }
    }

    fn written(&self, mut run: ToolRun) -> Result<ToolOutcome, ToolOutcome> {
        let agent = run.agent.clone();
        let draft: SkillDraft = arguments::read(&mut run)?;
        let written = self.shelf.create(&draft, &self.origin);
        let skill = written.map_err(|why| ToolOutcome::failed(ToolFailure::Failed, why))?;
        let (name, digest) = (&skill.head.name, skill.digest);
        let has = self.shelf.of(&agent).get(name).is_some();
        let then = if has {
            "`activate_skill` reads it"
        } else {
            "you do not have it: an operator adds it to the `skills` of the agent"
        };
        Ok(ToolOutcome::done(format!("The skill `{name}` is written (digest {digest}): {then}.")))
    }
}

#[async_trait]
impl Executor for SkillRun {
    /// The toolbox has it from what describes it.
    fn tools(&self) -> Vec<ToolSpec> {
        Vec::new()
    }

    async fn execute(&self, run: ToolRun, _cancelled: CancellationToken) -> ToolOutcome {
        let writer = self.clone();
        let ran = tokio::task::spawn_blocking(move || {
            writer.written(run).unwrap_or_else(|failed| failed)
        });
        ran.await
            .unwrap_or_else(|error| ToolOutcome::failed(ToolFailure::Failed, error.to_string()))
    }

    async fn health_check(&self) -> Result<(), String> {
        Ok(())
    }
}
