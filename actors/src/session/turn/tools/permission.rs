//! Whether a tool call of an agent runs, asks a person or is denied: pure. Calls and `policy.check` both ask here.
//!
//! The rules of the agent decide, but what they allow still takes a person where it reaches beyond the conversation.

use clawnode_guard::policy::{Judgement, judge};
use clawnode_proto::{
    policy::{Policy, Verdict},
    tool::ToolSpec,
};
use clawnode_tool::workspace_path;
use serde_json::{Map, Value};

use super::{create_skill_calls, ledger_entries::SessionLedger, memory_tool_calls};

/// The decision about a call of this tool with these arguments, and why.
pub fn permission<'a>(
    policy: &'a Policy,
    spec: &ToolSpec,
    arguments: &Map<String, Value>,
) -> Judgement<'a> {
    let ruled = judge(policy, spec, arguments);
    let always = || {
        memory_tool_calls::always_asks(spec, arguments)
            .or_else(|| create_skill_calls::always_asks(spec))
    };
    match (ruled.verdict, ruled.reason) {
        (Verdict::Deny, _) | (Verdict::Ask, Some(_)) => ruled,
        (Verdict::Ask, None) => Judgement { verdict: Verdict::Ask, reason: always() },
        // The reason of a rule that allows is none why a person is asked.
        (Verdict::Allow, _) => match always() {
            None => ruled,
            reason => Judgement { verdict: Verdict::Ask, reason },
        },
    }
}

/// Why a call can never run, whatever a person would say about it.
pub(super) fn unfit(
    spec: &ToolSpec,
    arguments: &Map<String, Value>,
    ledger: &SessionLedger,
) -> Option<String> {
    workspace_path::refusal(spec, arguments)
        .or_else(|| memory_tool_calls::refusal(spec, arguments))
        .or_else(|| create_skill_calls::refusal(spec, arguments, ledger))
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{
        memory::{FORGET, REMEMBER},
        policy::Rule,
        skill::CREATE_SKILL,
        tool::{EffectClass, Risk},
    };
    use serde_json::json;

    use super::*;

    fn spec(name: &str) -> ToolSpec {
        ToolSpec {
            name: name.parse().unwrap(),
            description: String::new(),
            input_schema: r#"{"type":"object"}"#.to_owned(),
            class: EffectClass::Idempotent,
            risk: Risk::ReadOnly,
            capability: None,
            timeout_ms: 1_000,
            pin: None,
            time: None,
        }
    }

    fn decided(verdict: Verdict, tool: &str, arguments: Value) -> (Verdict, Option<String>) {
        let rule = Rule {
            tool: None,
            risk: None,
            arguments: [].into(),
            exact: false,
            verdict,
            reason: Some("the rule".to_owned()),
        };
        let policy = Policy { rules: vec![rule], ..Policy::default() };
        let Value::Object(arguments) = arguments else { panic!("{arguments}") };
        let judgement = permission(&policy, &spec(tool), &arguments);
        (judgement.verdict, judgement.reason.map(str::to_owned))
    }

    /// A rule that allows everything gives no reason to ask, and one that asks or denies keeps its own.
    #[test]
    fn what_reaches_beyond_the_conversation_asks_whatever_is_allowed() {
        let shared = json!({ "scope": "team" });
        for (tool, arguments, says) in [
            (REMEMBER, shared.clone(), "other conversations"),
            (FORGET, shared.clone(), "other conversations"),
            (CREATE_SKILL, json!({}), "skill"),
        ] {
            let (verdict, reason) = decided(Verdict::Allow, tool, arguments.clone());
            assert_eq!(verdict, Verdict::Ask, "{tool}");
            assert!(reason.unwrap().contains(says), "{tool}");
            for kept in [Verdict::Ask, Verdict::Deny] {
                let found = decided(kept, tool, arguments.clone());
                assert_eq!(found, (kept, Some("the rule".to_owned())), "{tool}");
            }
        }
        let own = decided(Verdict::Allow, REMEMBER, json!({ "text": "a" }));
        assert_eq!(own, (Verdict::Allow, Some("the rule".to_owned())));
    }
}
