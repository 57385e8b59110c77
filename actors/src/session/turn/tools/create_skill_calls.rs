//! What must hold of a call of `create_skill` before it runs. Pure.
//!
//! A skill instructs agents from then on, so a person is asked about each one, whatever rules allow. What could not be
//! written anyway is refused first.

use clawnode_proto::{skill::CREATE_SKILL, tool::ToolSpec};
use clawnode_tool::skill::{SkillDraft, SkillOrigin};
use serde_json::{Map, Value};

use super::ledger_entries::SessionLedger;

/// Whether calls of this tool write skills. A tool of that name which needs a node is another one.
fn writes_skills(spec: &ToolSpec) -> bool {
    spec.capability.is_none() && spec.name.as_str() == CREATE_SKILL
}

/// Why a person is asked about a call, whatever the rules allow.
pub(super) fn always_asks(spec: &ToolSpec) -> Option<&'static str> {
    writes_skills(spec).then_some("agents follow the skill that it writes from then on")
}

/// Why a call can never run: it is no skill, or its session has written no such entry.
pub(in crate::session::turn) fn refusal(
    spec: &ToolSpec,
    arguments: &Map<String, Value>,
    ledger: &SessionLedger,
) -> Option<String> {
    if !writes_skills(spec) {
        return None;
    }
    let draft = serde_json::from_value::<SkillDraft>(Value::Object(arguments.clone()));
    let draft = match draft {
        Ok(draft) => draft,
        Err(error) => return Some(error.to_string()),
    };
    // Where it comes from makes no difference to that.
    if let Err(why) = draft.render(&SkillOrigin::default()) {
        return Some(why);
    }
    let is_there = |number: &u64| ledger.entries.iter().any(|row| row.number == *number);
    let missing = draft.entries.iter().find(|number| !is_there(number))?;
    Some(format!(
        "there is no entry {missing} in your work ledger: `ledger_read` shows the entries there are"
    ))
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{
        hook::HookPoint,
        ledger::LEDGER_APPEND,
        policy::{Policy, Rule, Verdict},
        tool::{EffectClass, Risk},
    };

    use super::*;
    use crate::{
        agent::{AgentOptions, Grant},
        session::{SessionJob, played::PlayedActivation},
    };

    const GOOD: &str = r#"{"name":"ship","description":"Ships.","text":"Go.","entries":[1]}"#;

    fn spec(name: &str, capability: Option<&str>) -> ToolSpec {
        ToolSpec {
            name: name.parse().unwrap(),
            description: String::new(),
            input_schema: r#"{"type":"object"}"#.to_owned(),
            class: EffectClass::Idempotent,
            risk: Risk::ReadOnly,
            capability: capability.map(|name| name.parse().unwrap()),
            timeout_ms: 1_000,
            pin: None,
            time: None,
        }
    }

    /// An agent whose rules allow everything, after a turn that wrote entry 1.
    fn run() -> PlayedActivation {
        let mut run = PlayedActivation::new(&[] as &[HookPoint], Vec::new());
        let all = Rule {
            tool: None,
            risk: None,
            arguments: [].into(),
            exact: false,
            verdict: Verdict::Allow,
            reason: None,
        };
        let policy = Policy { rules: vec![all], ..Policy::default() };
        let tools = vec![spec(LEDGER_APPEND, None), spec(CREATE_SKILL, None)];
        let options = AgentOptions { tools, policy, ..(*run.grant.options).clone() };
        run.grant = Grant::free(options);
        run.says("hi");
        run.replies(&[(LEDGER_APPEND, r#"{"type":"finding","text":"It ships."}"#)]);
        run
    }

    #[test]
    fn a_person_is_asked_about_each_skill_whatever_the_rules_allow() {
        for (arguments, asks) in [
            (GOOD, true),
            (r#"{"name":"ship","description":"Ships.","text":"Go.","entries":[2]}"#, false),
            (r#"{"name":"ship","description":"Ships.","text":"Go.","entries":[]}"#, false),
            (r#"{"name":"../ship","description":"Ships.","text":"Go.","entries":[1]}"#, false),
            (r#"{"name":"ship","text":"Go.","entries":[1]}"#, false),
            (r#"{"name":"ship","description":"Ships.","text":"Go.","entries":[1],"x":1}"#, false),
        ] {
            let mut run = run();
            run.replies(&[(CREATE_SKILL, arguments)]);
            let began = run.started.iter().any(|(_, job)| matches!(job, SessionJob::Tool(_)));
            let asked = run.started.iter().any(|(_, job)| matches!(job, SessionJob::Ask(_)));
            assert_eq!((began, asked), (false, asks), "{arguments}");
        }
    }

    #[test]
    fn only_the_built_in_tool_is_meant() {
        let (own, other) = (spec(CREATE_SKILL, None), spec(CREATE_SKILL, Some("sim")));
        assert!(always_asks(&own).is_some());
        assert_eq!(always_asks(&other), None);
        let (nothing, ledger) = (Map::new(), SessionLedger::default());
        assert!(refusal(&own, &nothing, &ledger).unwrap().contains("name"));
        assert_eq!(refusal(&other, &nothing, &ledger), None);
    }
}
