//! Tools in the simulated world: what models ask for, and what the journal says was run.

use std::collections::BTreeMap;

use clawnode_actors::session::{Effect, Outcome};
use clawnode_kernel::MachineInput;
use clawnode_proto::{
    CallId, EntityId, Incarnation, ProcessId, ToolName,
    hook::HookTrail,
    policy::Decision,
    session::{SessionEvent, ToolEnd},
    tool::{EffectClass, Risk, ToolSpec, ToolUse},
};
use rand::Rng;

use super::{
    JudgeViolation, Sim,
    any_machine::ActivationPlace,
    client_tools::MINE,
    jobs::{capability, scarce},
    process::PlannedNote,
};

/// What is known of one tool call.
#[derive(Debug, Default)]
struct KnownTool {
    asked: bool,
    /// A person was asked, and has not approved.
    waits: bool,
    ended: bool,
}

/// The tool calls of one session.
#[derive(Debug, Default)]
pub(super) struct ToolBook(BTreeMap<CallId, KnownTool>);

// === impl ToolBook ===

impl ToolBook {
    /// The journal says something.
    pub(super) fn event(&mut self, event: &SessionEvent) -> Result<(), JudgeViolation> {
        match event {
            SessionEvent::ToolAsked(asked) => self.asked(asked.call),
            SessionEvent::ToolDone(done) => self.ended(done.call),
            SessionEvent::ToolUncertain(uncertain) => self.ended(uncertain.call),
            SessionEvent::ApprovalAsked(asked) => {
                self.tool(asked.call).waits = true;
                Ok(())
            }
            SessionEvent::ApprovalGiven(given) => {
                self.tool(given.call).waits = given.decided.decision != Decision::Approve;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn tool(&mut self, call: CallId) -> &mut KnownTool {
        self.0.entry(call).or_default()
    }

    /// The journal says that it is about to run.
    fn asked(&mut self, call: CallId) -> Result<(), JudgeViolation> {
        let tool = self.0.entry(call).or_default();
        if tool.asked || tool.ended {
            return Err(JudgeViolation::new("I3", format!("tool call `{call}` is begun twice")));
        }
        if tool.waits {
            let text = format!("tool call `{call}` is begun without an approval");
            return Err(JudgeViolation::new("APR-1", text));
        }
        tool.asked = true;
        Ok(())
    }

    /// The journal says that it has ended.
    fn ended(&mut self, call: CallId) -> Result<(), JudgeViolation> {
        let tool = self.0.entry(call).or_default();
        if tool.ended {
            return Err(JudgeViolation::new("I3", format!("tool call `{call}` has two outcomes")));
        }
        tool.ended = true;
        Ok(())
    }

    /// It runs, beside the session's owner or a process that was its owner once.
    pub(super) fn runs(&self, call: CallId, owns: bool) -> Result<(), JudgeViolation> {
        match self.0.get(&call) {
            Some(KnownTool { asked: true, ended, .. }) if !(*ended && owns) => Ok(()),
            Some(KnownTool { asked: true, .. }) => {
                Err(JudgeViolation::new("C9", format!("tool call `{call}` runs after its outcome")))
            }
            _ => Err(JudgeViolation::new("I8", format!("tool call `{call}` runs unasked"))),
        }
    }
}

/// The tools that sessions of the simulation have.
pub(super) fn specs() -> Vec<ToolSpec> {
    let spec = |name: ToolName| ToolSpec {
        name,
        description: "Looks.".to_owned(),
        input_schema: r#"{"type":"object","properties":{"at":{"type":"integer"}}}"#.to_owned(),
        class: EffectClass::Safe,
        risk: Risk::ReadOnly,
        capability: None,
        timeout_ms: 30_000,
        pin: None,
        time: None,
    };
    let look = "look".parse().map(spec).ok();
    let elsewhere = |name: &str, class| {
        let name = name.parse().ok()?;
        Some(ToolSpec { class, capability: capability(), ..spec(name) })
    };
    let fetch = elsewhere("fetch", EffectClass::Safe);
    let touch = elsewhere("touch", EffectClass::Once);
    let touch = touch.map(|spec| ToolSpec { capability: scarce(), ..spec });
    // It can be found out whether it happened.
    let tag = elsewhere("tag", EffectClass::Check);
    // A person is asked about these.
    let write = "write".parse().map(spec).ok();
    let write =
        write.map(|spec| ToolSpec { class: EffectClass::Idempotent, risk: Risk::Write, ..spec });
    let push = elsewhere("push", EffectClass::Once);
    let push = push.map(|spec| ToolSpec { risk: Risk::Admin, ..spec });
    [look, fetch, touch, tag, write, push].into_iter().flatten().collect()
}

/// Those that people are asked about.
pub(super) fn changing() -> Vec<ToolName> {
    let changes = |spec: &ToolSpec| spec.risk != Risk::ReadOnly;
    specs().into_iter().filter(changes).map(|spec| spec.name).collect()
}

impl Sim {
    /// What a model's reply asks for.
    pub(super) fn tool_uses(&mut self) -> Vec<ToolUse> {
        // Turns come to an end once nothing befalls the world any more.
        let calm = self.world.now().0.saturating_sub(self.started) > self.plan.ends();
        let rng = &mut self.world.rng;
        if !rng.random_bool(self.plan.asks_tools) || calm {
            return Vec::new();
        }
        let one = |id: usize, rng: &mut rand_chacha::ChaCha8Rng| {
            let (name, arguments) = match rng.random_range(0..30) {
                0 => ("hallucinated", "{}".to_owned()),
                1 => ("look", r#"{"at":"#.to_owned()),
                2 => ("look", r#"{"at":"here"}"#.to_owned()),
                at @ 3..5 => ("look", format!(r#"{{"at":{at}}}"#)),
                at @ 5..11 => (MINE, format!(r#"{{"at":{at}}}"#)),
                at @ 11..14 => ("fetch", format!(r#"{{"at":{at}}}"#)),
                at @ 14..20 => ("touch", format!(r#"{{"at":{at}}}"#)),
                at @ 20..23 => ("write", format!(r#"{{"at":{at}}}"#)),
                at @ 23..27 => ("tag", format!(r#"{{"at":{at}}}"#)),
                at => ("push", format!(r#"{{"at":{at}}}"#)),
            };
            ToolUse { id: format!("use-{id}"), name: name.to_owned(), arguments }
        };
        (0..rng.random_range(1..4)).map(|id| one(id, rng)).collect()
    }

    pub(super) fn tool_starts(
        &mut self,
        to: ProcessId,
        entity: EntityId,
        counter: u64,
        call: CallId,
    ) -> Result<(), JudgeViolation> {
        self.remark(to, || format!("runs {call}"));
        self.ledger.tool_runs(entity, Incarnation { process: to, counter }, call)?;
        self.runs(to, entity, counter, Effect::Tool { call }, None);
        if !self.may_run(ActivationPlace { process: to, entity, counter }, call) {
            return Ok(());
        }
        let after = self.world.rng.random_range(1..self.plan.call_most);
        self.world.later(to, after, PlannedNote::ToolEnds(entity, counter, call));
        Ok(())
    }

    pub(super) fn tool_ends(
        &mut self,
        to: ProcessId,
        entity: EntityId,
        counter: u64,
        call: CallId,
    ) -> Result<(), JudgeViolation> {
        let Some(process) = self.processes.get_mut(&to) else { return Ok(()) };
        let Some(actor) = process.actor(entity, counter) else { return Ok(()) };
        let key = Effect::Tool { call };
        if !actor.running.contains_key(&key) {
            return Ok(());
        }
        let outcome = self.tool_said(call, "seen");
        let outcome = Outcome::Tool(ToolEnd::Known { outcome }, HookTrail::default());
        self.feed(to, entity, counter, MachineInput::Ended(key, outcome))
    }
}
