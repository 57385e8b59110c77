//! Hooks in the simulated world. One that is asked again may decide otherwise: only what is journaled
//! may take effect (HOOK-1), and what is sent and run is what was judged (HOOK-2).

use clawnode_actors::session::{
    Effect, Outcome, SessionState,
    turn::{
        hooks::shown,
        prepare::{JudgeJob, JudgeSubject},
    },
};
use clawnode_kernel::MachineInput;
use clawnode_proto::{
    CallId, Digest, EntityId, Incarnation,
    hook::{HookBlock, HookFault, HookPoint, HookSpec, HookTrail, ModelPatch, PassedOver},
    tool::ToolOutcome,
};
use rand::Rng;

use super::{
    JudgeViolation, Sim, any_machine::ActivationPlace, ledger::Ledger, process::PlannedNote,
};

/// The hooks of all agents of the simulation.
pub(super) fn hooks() -> Vec<HookSpec> {
    let spec = |point, required| {
        Some(HookSpec {
            point,
            name: "sim".parse().ok()?,
            required,
            timeout_ms: 1_000,
            modifies: true,
            tools: if required { vec!["*u*".to_owned()] } else { Vec::new() },
        })
    };
    let all = [
        spec(HookPoint::BeforeLlmCall, false),
        spec(HookPoint::BeforeToolCall, true),
        spec(HookPoint::AfterToolCall, false),
    ];
    all.into_iter().flatten().collect()
}

impl Sim {
    /// Hooks are asked; what they say is chance, also when they are asked again.
    pub(super) fn judged(&mut self, at: ActivationPlace, key: Effect, job: &JudgeJob) {
        let ActivationPlace { process: to, entity, counter } = at;
        self.remark(to, || format!("asks hooks about {}", job.call));
        self.runs(to, entity, counter, key, None);
        let chance = self.world.rng.random_range(0..10_u32);
        let trail = trail(job, chance);
        if trail.blocked.is_some() && matches!(job.subject, JudgeSubject::Model(_)) {
            self.judge.refused(entity, job.turn);
        }
        let number = self.world.rng.random_range(1_000..1_000_000_u32);
        let outcome = match &job.subject {
            JudgeSubject::Model(request) => {
                let patch = ModelPatch { append: Some(number.to_string()), ..Default::default() };
                let patches = if chance > 5 { vec![patch] } else { Vec::new() };
                Outcome::ModelJudged { request: request.digest(), patches, trail }
            }
            JudgeSubject::Tool { .. } => {
                let arguments = (chance > 5).then(|| format!(r#"{{"at":{number}}}"#));
                Outcome::ToolJudged { arguments, trail }
            }
            JudgeSubject::Result { .. } => {
                let outcome = (chance > 5).then(|| ToolOutcome::done(number.to_string()));
                Outcome::ResultJudged { outcome, trail }
            }
        };
        let after = self.world.rng.random_range(1..1_500);
        self.world.later(
            to,
            after,
            PlannedNote::Feed(entity, counter, MachineInput::Ended(key, outcome)),
        );
    }

    /// Whether a tool is run with what the journal says.
    pub(super) fn is_as_judged(
        &self,
        at: ActivationPlace,
        call: CallId,
        arguments: &str,
    ) -> Result<(), JudgeViolation> {
        let by = Incarnation { process: at.process, counter: at.counter };
        self.ledger.runs_with(at.entity, by, call, arguments)
    }
}

fn trail(job: &JudgeJob, chance: u32) -> HookTrail {
    let Some(hook) = job.hooks.first().map(|hook| hook.name.clone()) else {
        return HookTrail::default();
    };
    match chance {
        0 => HookTrail {
            blocked: Some(HookBlock { hook, reason: "no".to_owned() }),
            ..HookTrail::default()
        },
        1 => HookTrail {
            passed_over: vec![PassedOver { hook, fault: HookFault::TimedOut }],
            ..HookTrail::default()
        },
        6.. => HookTrail { changed_by: vec![hook], ..HookTrail::default() },
        _ => HookTrail::default(),
    }
}

impl Ledger {
    /// A model is shown what the journal adds up to (HOOK-2), if its owner is still the owner.
    pub(super) fn shows(
        &self,
        entity: EntityId,
        by: Incarnation,
        call: CallId,
        request: Digest,
    ) -> Result<(), JudgeViolation> {
        let Some(state) = self.owned(entity, by) else { return Ok(()) };
        let (Some(profile), Some(turn)) = (&state.profile, state.running()) else { return Ok(()) };
        if shown(state, profile, turn, call).digest() == request {
            return Ok(());
        }
        let text = format!("`{call}` shows a model what the journal does not say");
        Err(JudgeViolation::new("HOOK-2", text))
    }

    /// A tool is run with what the journal says (HOOK-2), if its owner is still the owner.
    pub(super) fn runs_with(
        &self,
        entity: EntityId,
        by: Incarnation,
        call: CallId,
        arguments: &str,
    ) -> Result<(), JudgeViolation> {
        let turn = self.owned(entity, by).and_then(SessionState::running);
        let mut tools = turn.into_iter().flat_map(|turn| &turn.steps).flat_map(|step| &step.tools);
        match tools.find(|tool| tool.call == call) {
            Some(tool) if tool.arguments() != arguments => {
                let text = format!("`{call}` is run with what the journal does not say");
                Err(JudgeViolation::new("HOOK-2", text))
            }
            _ => Ok(()),
        }
    }

    /// The state of a session whose journal this one wrote last.
    fn owned(&self, entity: EntityId, by: Incarnation) -> Option<&SessionState> {
        let book = self.books.get(&entity).filter(|book| !book.damaged)?;
        (book.entity.core.incarnation == Some(by)).then_some(&book.entity.state)
    }
}
