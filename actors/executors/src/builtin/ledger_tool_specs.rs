//! The tools of a work ledger. The session of a call ends it itself, so this only describes them.

use std::time::Duration;

use async_trait::async_trait;
use clawnode_proto::{
    ledger::{EntryType, LEDGER_APPEND, LEDGER_READ},
    limits::{LEDGER_ENTRIES, LEDGER_ENTRY_CHARS},
    tool::{EffectClass, Risk, ToolFailure, ToolOutcome, ToolSpec},
};
use clawnode_tool::{Executor, ToolRun, spec::BuiltIn};
use serde_json::json;
use tokio_util::sync::CancellationToken;

/// No call takes any time: it ends with the append that begins it.
const TIMEOUT: Duration = Duration::from_secs(5);

/// `ledger_append` and `ledger_read`.
#[derive(Debug)]
pub struct Ledger;

#[async_trait]
impl Executor for Ledger {
    fn tools(&self) -> Vec<ToolSpec> {
        let types = EntryType::ALL.map(EntryType::as_str);
        let tool = |name, description, class, input| BuiltIn {
            name,
            description,
            input,
            class,
            risk: Risk::ReadOnly,
            capability: None,
            timeout: TIMEOUT,
        };
        let append = tool(
            LEDGER_APPEND,
            "Writes an entry into your work ledger. `step` says what you did and found out: you then \
             read it in place of the calls since the step before.",
            EffectClass::Idempotent,
            json!({
                "type": "object",
                "properties": {
                    "type": { "type": "string", "enum": types },
                    "text": { "type": "string", "minLength": 1, "maxLength": LEDGER_ENTRY_CHARS },
                },
                "required": ["type", "text"],
                "additionalProperties": false,
            }),
        );
        let read = tool(
            LEDGER_READ,
            "Shows the newest entries of your work ledger.",
            EffectClass::Safe,
            json!({
                "type": "object",
                "properties": {
                    "type": { "type": "string", "enum": types },
                    "last_n": { "type": "integer", "minimum": 1, "maximum": LEDGER_ENTRIES },
                },
                "additionalProperties": false,
            }),
        );
        vec![append.spec(), read.spec()]
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
    use super::*;
    use clawnode_tool::schema;

    #[test]
    fn what_is_no_entry_is_refused_before_it_is_written() {
        let tools = Ledger.tools();
        for spec in &tools {
            schema::check(spec).unwrap();
        }
        let long = "x".repeat(LEDGER_ENTRY_CHARS + 1);
        for (at, arguments, good) in [
            (0, json!({ "type": "step", "text": "x" }), true),
            (0, json!({ "type": "steps", "text": "x" }), false),
            (0, json!({ "type": "step", "text": "" }), false),
            (0, json!({ "type": "note", "text": long }), false),
            (0, json!({ "text": "x" }), false),
            (1, json!({}), true),
            (1, json!({ "type": "finding", "last_n": 3 }), true),
            (1, json!({ "last_n": 0 }), false),
        ] {
            let judged = schema::judge(&tools[at], &arguments.to_string());
            assert_eq!(judged.is_ok(), good, "{arguments}");
        }
        let wrong = schema::judge(&tools[0], r#"{"type":"todo","text":"x"}"#).unwrap_err();
        assert!(wrong.contains("finding"), "{wrong}");
        // Each call of a model has all of it: about 60 tokens of text a tool.
        for spec in &tools {
            let bytes = spec.description.len() + spec.input_schema.len();
            assert!(bytes <= 400, "{}: {bytes}", spec.name);
        }
    }
}
