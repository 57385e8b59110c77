//! The product from the outside: real nodes, a scripted model, what a user would see.
#![expect(clippy::unwrap_used, reason = "helpers of tests: their panic is the test's failure")]

mod agents;
mod approvals;
mod attachments;
mod budget_commands;
mod budgets;
mod cluster;
mod compaction;
mod containers;
mod executions;
mod feedback;
mod hooks;
mod hostile_memories;
mod jobs;
mod keeping;
mod lanes;
mod last_cents;
mod learning;
mod leaving;
mod ledger;
mod lists;
mod long_session;
mod memories;
mod memory_meaning;
mod memory_tools;
mod openapi;
mod panic;
mod pipelines;
mod profile;
mod providers;
mod real_model;
mod real_providers;
mod recall;
mod reflection;
mod reported_usage;
mod runaways;
mod sandbox;
mod shared_recall;
mod skill_creation;
mod skills;
mod telemetry;
mod timeouts;
mod tools;
mod turns;
mod usage;
mod watchdog;

use clawnode_proto::{llm::Text, view::TurnView};
use clawnode_tests::{
    model::{ModelServer, Script},
    process::{Home, ProcessError, TestBackend},
};

type Outcome = Result<(), ProcessError>;

/// A home whose nodes ask a scripted model.
async fn scene(script: Script) -> (ModelServer, Home) {
    let server = ModelServer::start(script).await.unwrap();
    let home = Home::new(TestBackend::Local).unwrap().anthropic(&server);
    (server, home)
}

/// What was said in a turn, in order.
fn said(turn: &TurnView) -> Vec<String> {
    let text = |content: &Text| content.inline().unwrap_or_default().to_owned();
    turn.messages.iter().map(|message| text(&message.content)).collect()
}
