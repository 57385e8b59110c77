//! The tools of an agent's memories. The session of a call runs it itself, so this only describes them.

use std::time::Duration;

use async_trait::async_trait;
use clawnode_proto::{
    id::KeyPart,
    limits::MEMORY_TEXT_CHARS,
    memory::{FORGET, RECALL, REMEMBER, SCOPE_ALL},
    tool::{EffectClass, Risk, ToolFailure, ToolOutcome, ToolSpec},
};
use clawnode_tool::{Executor, ToolRun, spec::BuiltIn};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// The owner of a memory may have to be found dead first.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Characters of a query: a search looks at no more.
const QUERY_MOST: usize = 2_000;

/// `remember`, `recall` and `forget`.
#[derive(Debug)]
pub struct MemoryTools;

/// The tools of an agent that has these shared memories: no other one is an argument (MEM-1).
pub fn memory_tools(shared: &[KeyPart]) -> Vec<ToolSpec> {
    let scopes: Vec<&str> =
        [SCOPE_ALL].into_iter().chain(shared.iter().map(KeyPart::as_str)).collect();
    let scope = json!({ "enum": scopes });
    let tool = |name, description, class, risk, input| BuiltIn {
        name,
        description,
        input,
        class,
        risk,
        capability: None,
        timeout: TIMEOUT,
    };
    let object = |properties: Value, required: &str| {
        json!({
            "type": "object",
            "properties": properties,
            "required": [required],
            "additionalProperties": false,
        })
    };
    // Its own person is the only one who is shown it. What others are shown, a person is asked about.
    let remember = tool(
        REMEMBER,
        "Keeps a fact about this person for later conversations. A later one with the same subject and predicate \
         replaces it. With `scope`, after an approval: for others, too.",
        EffectClass::Idempotent,
        Risk::ReadOnly,
        object(
            json!({
                "text": { "type": "string", "maxLength": MEMORY_TEXT_CHARS },
                "subject": { "type": "string" },
                "predicate": { "type": "string" },
                "scope": scope.clone(),
            }),
            "text",
        ),
    );
    let recall = tool(
        RECALL,
        "Searches what you know of this person and what was said before.",
        EffectClass::Safe,
        Risk::ReadOnly,
        object(json!({ "query": { "type": "string", "maxLength": QUERY_MOST } }), "query"),
    );
    let forget = tool(
        FORGET,
        "Forgets a fact by its id; this cannot be undone. `scope` as in `remember`.",
        EffectClass::Idempotent,
        Risk::Admin,
        object(json!({ "point": { "type": "string" }, "scope": scope }), "point"),
    );
    vec![remember.spec(), recall.spec(), forget.spec()]
}

#[async_trait]
impl Executor for MemoryTools {
    fn tools(&self) -> Vec<ToolSpec> {
        memory_tools(&[])
    }

    /// Only code that an agent runs comes here: it has no session of its own.
    async fn execute(&self, run: ToolRun, _cancelled: CancellationToken) -> ToolOutcome {
        let why = format!(
            "`{}` is not for code: the model calls it itself, and so does a plan",
            run.tool
        );
        ToolOutcome::failed(ToolFailure::Refused, why)
    }

    async fn health_check(&self) -> Result<(), String> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clawnode_tool::schema;

    use super::*;

    #[test]
    fn mem_1_a_scope_that_an_agent_does_not_have_is_no_argument() {
        let shared: Vec<KeyPart> = vec!["team".parse().unwrap()];
        let tools = memory_tools(&shared);
        for spec in &tools {
            schema::check(spec).unwrap();
            // Each call of a model has all of it: about 60 tokens of words a tool.
            let bytes = spec.description.len() + spec.input_schema.len();
            assert!(bytes <= 420, "{}: {bytes}", spec.name);
        }
        let long = "x".repeat(MEMORY_TEXT_CHARS + 1);
        for (at, arguments, good) in [
            (0, json!({ "text": "x" }), true),
            (0, json!({ "text": "x", "subject": "ada", "predicate": "name" }), true),
            (0, json!({ "text": "x", "scope": "all" }), true),
            (0, json!({ "text": "x", "scope": "team" }), true),
            (0, json!({ "text": "x", "scope": "secrets" }), false),
            (0, json!({ "text": "x", "scope": "shared/team" }), false),
            (0, json!({ "text": "x", "scope": "other/peer/web:a:eve" }), false),
            (0, json!({ "text": "x", "scope": ["team"] }), false),
            (0, json!({ "text": "x", "scope": null }), false),
            (0, json!({ "text": "x", "trust": "operator" }), false),
            (0, json!({ "text": long }), false),
            (1, json!({ "query": "tea" }), true),
            (1, json!({ "query": "tea", "scope": "secrets" }), false),
            (2, json!({ "point": "x", "scope": "team" }), true),
            (2, json!({ "point": "x", "scope": "secrets" }), false),
            (2, json!({}), false),
        ] {
            let judged = schema::judge(&tools[at], &arguments.to_string());
            assert_eq!(judged.is_ok(), good, "{arguments}");
        }
        let none = schema::judge(&memory_tools(&[])[0], r#"{"text":"x","scope":"team"}"#);
        assert!(none.is_err(), "an agent without shared memories");
    }
}
