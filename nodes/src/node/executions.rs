//! Runs the steps of a plan without a model. This module checks a request before it is
//! accepted; from then on it is a turn of a session like any other.

use std::{collections::BTreeMap, time::Duration};

use clawnode_actors::{
    agent::Agents,
    session::{
        Sessions,
        clients::executions::{ExecuteError, KnownPlan, StoredPlan},
    },
};
use clawnode_gateway::ExecuteRequest;
use clawnode_proto::{
    AgentName, ErrorBody, ErrorCode, ExecutionId, SessionKey, ToolName, Traceparent, TurnId,
    execute::{ExecutionView, Plan, PlanStep},
    limits::{EXECUTION_STEPS, PLAN_BYTES},
    llm::ModelRef,
    node::Heartbeat,
    provider::{ExecutionSpec, StepSpec},
    session::Profile,
    tool::ToolSpec,
    turn::TurnBody,
};
use clawnode_tool::{schema, template};
use futures_util::StreamExt as _;

use super::{
    panic::PanicControl,
    scheduler,
    unknown_action::{ACTION_SHOWN, of_step, unknown_action},
};
use crate::config::agents::DEFAULT_AGENT;

/// All that is needed of a node.
pub(super) struct Executions<'a> {
    pub(super) sessions: &'a Sessions,
    pub(super) agents: &'a Agents,
    pub(super) switch: &'a PanicControl,
    /// The nodes that are held alive.
    pub(super) alive: Vec<Heartbeat>,
}

// === impl Executions ===

impl Executions<'_> {
    /// Answers `execute`.
    pub(super) async fn begin(
        &self,
        request: ExecuteRequest,
        trace: Option<Traceparent>,
    ) -> Result<ExecutionView, ErrorBody> {
        let ExecuteRequest { agent, request, spec, wait } = request;
        let agent = agent.map_or_else(default_agent, Ok)?;
        let plan = plan(spec)?;
        let key = SessionKey::of_execution(agent, &request);
        // What was accepted stays so, whatever has become of the agent and its nodes since.
        let known = self.sessions.executed(&key, &request, &plan).await?;
        if let KnownPlan::Nothing = known {
            self.judge(&key.agent, &plan)?;
        }
        let stored = match known {
            KnownPlan::Stored(stored) => stored,
            KnownPlan::Nothing | KnownPlan::Waits(_) => {
                self.sessions.execute(&key, &request, &plan, trace).await?
            }
        };
        self.told(ExecutionId::of(key.entity()), stored, wait).await
    }

    /// Answers `execute.show`.
    pub(super) async fn show(
        &self,
        execution: ExecutionId,
        wait: Duration,
    ) -> Result<ExecutionView, ErrorBody> {
        let stored = self.sessions.stored_plan(execution).await?;
        self.told(execution, stored, wait).await
    }

    /// Answers `execute.cancel`.
    pub(super) async fn cancel(
        &self,
        execution: ExecutionId,
        wait: Duration,
        trace: Option<Traceparent>,
    ) -> Result<ExecutionView, ErrorBody> {
        self.sessions.cancel_execution(execution, trace).await?;
        self.show(execution, wait).await
    }

    /// How far it is, once it has ended or the wait is over.
    async fn told(
        &self,
        execution: ExecutionId,
        stored: StoredPlan,
        wait: Duration,
    ) -> Result<ExecutionView, ErrorBody> {
        let Some(turn) = stored.turn().filter(|_| !wait.is_zero()) else {
            return Ok(self.sessions.execution_of(&stored).await?);
        };
        self.ended(execution, turn, wait).await?;
        match self.sessions.execution(execution).await {
            Err(ExecuteError::NotTaken(_)) => Ok(self.sessions.execution_of(&stored).await?),
            view => Ok(view?),
        }
    }

    /// Waits for a turn's end.
    async fn ended(
        &self,
        execution: ExecutionId,
        turn: TurnId,
        wait: Duration,
    ) -> Result<(), ErrorBody> {
        let follows = async {
            let mut sent = self.sessions.follow(execution.session(), Some(turn), None).await?;
            while let Some(event) = sent.events.next().await {
                if let TurnBody::Done(_) = event.body {
                    break;
                }
            }
            Ok(())
        };
        tokio::time::timeout(wait, follows).await.unwrap_or(Ok(()))
    }

    /// Whether all of a plan can be done, as far as that is known before it is begun.
    fn judge(&self, agent: &AgentName, plan: &Plan) -> Result<(), ErrorBody> {
        let profile = self.agents.profile(agent).map_err(|error| {
            ErrorBody::new(ErrorCode::NotFound, error.to_string())
                .hint("`clawnode agents list` shows the agents there are")
        })?;
        if let Some(refusal) = self.switch.refusal() {
            return Err(refusal);
        }
        let options = self.agents.options(agent).filter(|options| !options.tools.is_empty());
        if let Some(options) = options.filter(|_| profile.tools.is_empty()) {
            return Err(takes_no_tools(&options.name, &options.model));
        }
        let mut needs: BTreeMap<_, u32> = BTreeMap::new();
        for (step, number) in plan.steps.iter().zip(1..) {
            let spec = tool(agent, &profile, step, number)?;
            needs.entry(spec.capability.clone()).or_insert(number);
        }
        for (capability, step) in needs {
            scheduler::available(&self.alive, capability.as_ref())
                .map_err(|why| unavailable(step, plan, &why))?;
        }
        Ok(())
    }
}

fn default_agent() -> Result<AgentName, ErrorBody> {
    DEFAULT_AGENT
        .parse()
        .map_err(|error| ErrorBody::new(ErrorCode::Internal, format!("the default agent: {error}")))
}

fn invalid(what: String) -> ErrorBody {
    ErrorBody::new(ErrorCode::InvalidParams, what)
}

/// The refusal of all plans of an agent that has tools, and whose model takes none.
fn takes_no_tools(agent: &AgentName, model: &ModelRef) -> ErrorBody {
    let what = format!("agent `{agent}` cannot run plans: its model `{model}` takes no tools");
    ErrorBody::new(ErrorCode::Unsupported, what).hint(format!(
        "give the agent another model; if the model does call tools, set `tools = true` under \
         [models.\"{model}\"]"
    ))
}

/// The tool of a step, whose arguments fit it.
fn tool<'a>(
    agent: &AgentName,
    profile: &'a Profile,
    step: &PlanStep,
    number: u32,
) -> Result<&'a ToolSpec, ErrorBody> {
    let name = &step.tool;
    let Some(spec) = profile.tool(name.as_str()) else {
        return Err(of_step(number, unknown_action(agent, profile, name.as_str())));
    };
    let judged = match &step.template {
        None => schema::judge(spec, &step.arguments).map(drop),
        // Values that refer to outputs are judged once these are there.
        Some(template) => schema::judge_names(spec, template),
    };
    judged.map_err(|why| invalid(format!("step {number}: arguments of `{name}`: {why}")))?;
    Ok(spec)
}

fn unavailable(step: u32, plan: &Plan, why: &scheduler::Nowhere) -> ErrorBody {
    let tool = plan.steps.get(step as usize - 1).map_or("", |step| step.tool.as_str());
    ErrorBody::new(ErrorCode::Unavailable, format!("step {step} (`{tool}`) cannot run now: {why}"))
        .hint(
            "start or repair a node that can, then send the request again; `clawnode providers` \
             shows what each node lacks",
        )
}

/// The plan of a planner's JSON, as far as it can be read without its agent.
fn plan(spec: ExecutionSpec) -> Result<Plan, ErrorBody> {
    let found = spec.steps.len();
    if found == 0 || found > EXECUTION_STEPS {
        let what = format!("`execution_spec.steps` has {found}, not 1 to {EXECUTION_STEPS}");
        return Err(invalid(what));
    }
    let mut steps = Vec::with_capacity(found);
    let mut bytes = 0;
    for (spec, number) in spec.steps.into_iter().zip(1..) {
        let StepSpec { action, params, continue_on_failure: goes_on, interpolate } = spec;
        let tool: ToolName = action.parse().map_err(|error| {
            let shown: String = action.chars().take(ACTION_SHOWN).collect();
            invalid(format!("step {number}: unknown action `{shown}`: {error}"))
        })?;
        let arguments = serde_json::Value::Object(params).to_string();
        bytes += arguments.len();
        if bytes > PLAN_BYTES {
            let what = format!(
                "step {number}: the arguments up to here take {bytes} bytes, at most {PLAN_BYTES} \
                 are allowed"
            );
            return Err(ErrorBody::new(ErrorCode::TooLarge, what)
                .hint("send it in several requests, or put large values into files"));
        }
        if interpolate {
            template::check(&arguments, number)
                .map_err(|why| invalid(format!("step {number}: {why}")))?;
        }
        let (arguments, template) =
            if interpolate { (String::new(), Some(arguments)) } else { (arguments, None) };
        steps.push(PlanStep { tool, arguments, goes_on, template });
    }
    let names: Vec<&str> = steps.iter().map(|step| step.tool.as_str()).collect();
    let about = format!("Run these tools, in this order: {}", names.join(", "));
    Ok(Plan { about, steps })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(spec: serde_json::Value) -> Result<Plan, ErrorBody> {
        plan(serde_json::from_value(spec).unwrap())
    }

    #[test]
    fn what_is_no_plan_is_refused_and_named() {
        let long = "x".repeat(PLAN_BYTES);
        let many = vec![json!({ "action": "a" }); EXECUTION_STEPS + 1];
        for (spec, code, says) in [
            (json!({ "steps": [] }), ErrorCode::InvalidParams, "has 0"),
            (json!({ "steps": many }), ErrorCode::InvalidParams, "has 65"),
            (
                json!({ "steps": [{ "action": "a" }, { "action": "rm -rf" }] }),
                ErrorCode::InvalidParams,
                "step 2",
            ),
            (
                json!({ "steps": [{ "action": "a" }, { "action": "a", "params": { "x": long } }] }),
                ErrorCode::TooLarge,
                "step 2",
            ),
        ] {
            let error = read(spec).unwrap_err();
            assert_eq!(error.code, code, "{error:?}");
            assert!(error.message.contains(says), "{error:?}");
        }
    }

    #[test]
    fn references_are_to_earlier_steps_and_only_where_a_step_has_them() {
        let text = r#"{"x":"{{steps.1.output}}"}"#;
        let step = |interpolate: bool| {
            let params = json!({ "x": "{{steps.1.output}}" });
            json!({ "action": "a", "params": params, "interpolate": interpolate })
        };
        let first = json!({ "action": "a", "params": {} });
        let found = read(json!({ "steps": [first, step(true), step(false)] })).unwrap();
        assert_eq!(found.steps[1].template.as_deref(), Some(text));
        assert_eq!((found.steps[2].arguments.as_str(), &found.steps[2].template), (text, &None));
        let error = read(json!({ "steps": [step(true)] })).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidParams);
        assert!(error.message.contains("step 1: `{{steps.1.output}}` is not"), "{error:?}");
    }

    #[test]
    fn a_planner_may_use_the_older_words() {
        let new = json!({ "steps": [{ "action": "a", "params": { "x": 1 } }], "intent": "?" });
        let old = json!({ "actions": [{ "tool": "a", "arguments": { "x": 1 }, "id": 7 }] });
        assert_eq!(read(new).unwrap(), read(old).unwrap());
    }
}
