//! Calling a tool as a session would.

use std::{sync::Arc, time::Duration};

use clawnode_proto::{CallId, tool::ToolOutcome};
use clawnode_tool::{Executor, ToolRun, Toolbox, schema};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// Longer than anything here takes: reaching it means that a tool waits for something.
const PATIENCE: Duration = Duration::from_mins(1);

/// Calls `tool` with arguments that fit its schema.
pub(crate) async fn call(
    executor: Arc<dyn Executor>,
    tool: &str,
    arguments: &Value,
) -> ToolOutcome {
    call_as("main", executor, tool, arguments).await
}

/// The same, on behalf of another agent.
pub(crate) async fn call_as(
    agent: &str,
    executor: Arc<dyn Executor>,
    tool: &str,
    arguments: &Value,
) -> ToolOutcome {
    let toolbox = Toolbox::new([executor]).unwrap();
    let tool = toolbox.find(&tool.parse().unwrap()).unwrap();
    schema::check(tool.spec()).unwrap();
    let run = ToolRun {
        call: CallId::from_u128(1),
        agent: agent.parse().unwrap(),
        tool: tool.spec().name.clone(),
        arguments: schema::judge(tool.spec(), &arguments.to_string()).unwrap(),
        idempotency_key: "job_1".to_owned(),
        timeout: PATIENCE,
        sink: clawnode_tool::RunSink::default(),
        shown: clawnode_tool::ShownMedia::default(),
        limit: None,
    };
    tool.execute(run, CancellationToken::new()).await
}

/// What an outcome says.
pub(crate) fn text(outcome: &ToolOutcome) -> &str {
    outcome.content.inline().unwrap()
}
