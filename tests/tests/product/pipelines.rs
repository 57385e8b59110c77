//! Pipelines: steps in YAML that run as plans, with the outputs of earlier steps in later ones.

use std::fs;

use clawnode_proto::execute::{ExecutionStatus, ExecutionView, StepStatus};
use clawnode_tests::{
    model::{ModelServer, Script},
    process::{Home, Node},
};
use serde_json::json;

use super::{Outcome, scene};

const SUMS: &str = r#"
description: Multiplies and reports.
inputs:
  amount:
  unit: cents
steps:
- name: product
  action: calculate
  params: {expression: "6*{{inputs.amount}}"}
- name: report
  action: transform.text
  params:
    input: ' {"sum": "{{steps.product.output}} {{inputs.unit}}"} '
    operation: trim
- name: told
  action: transform.json
  params: {input: "{{steps.report.output}}", pointer: /sum}
"#;

/// A home with a skill `sums` that has this pipeline.
async fn home(pipeline: &str) -> (ModelServer, Home) {
    let (server, home) = scene(Script::queue([])).await;
    let settings = home.path().join(".config/clawnode");
    let skill = settings.join("skills/sums");
    fs::create_dir_all(&skill).unwrap();
    let tools = json!(["calculate", "transform_json", "transform_text"]);
    fs::write(settings.join("config.toml"), format!("[agents.default]\ntools = {tools}\n"))
        .unwrap();
    fs::write(skill.join("SKILL.md"), "---\nname: sums\ndescription: Sums.\n---\nSum.\n").unwrap();
    fs::write(skill.join("pipeline.yaml"), pipeline).unwrap();
    (server, home)
}

#[tokio::test]
async fn the_pipeline_of_a_skill_runs_with_its_inputs_and_no_model_is_asked() -> Outcome {
    let (server, home) = home(SUMS).await;
    let node = Node::up(&home).await?;
    let args =
        ["execute", "--skill", "sums", "--input", "amount=7", "--key", "sum", "--wait", "--json"];
    let ended = home.run(&args).await?;
    assert_eq!(ended.code, 0, "{ended:?}");
    let first = ended.json()?;
    let outputs: Vec<_> = (0..3_usize).map(|at| first["steps"][at]["output"].clone()).collect();
    assert_eq!(outputs, [json!("42"), json!("{\"sum\": \"42 cents\"}"), json!("42 cents")]);
    assert_eq!(first["steps"][0]["params"], json!({ "expression": "6*7" }));
    let called = json!({ "input": "{\"sum\": \"42 cents\"}", "pointer": "/sum" });
    assert_eq!(first["steps"][2]["params"], called, "what was called, not its template");
    // It is a plan: the same again is the same one.
    assert_eq!(home.run(&args).await?.json()?, first);
    let other = ["execute", "--skill", "sums", "--input", "amount=8", "--key", "sum", "--json"];
    let refused = home.run(&other).await?;
    assert!(refused.code != 0 && refused.err.contains("another plan"), "{refused:?}");
    let missing = home.run(&["execute", "--skill", "sums"]).await?;
    assert!(missing.code != 0 && missing.err.contains("`amount` has no value"), "{missing:?}");
    let nowhere = home.run(&["execute", "--skill", "absent"]).await?;
    assert!(nowhere.code != 0 && nowhere.err.contains("no skill `absent`"), "{nowhere:?}");
    assert!(server.calls().is_empty(), "a model was asked");
    node.stop().await
}

#[tokio::test]
async fn what_no_plan_can_do_is_refused_by_name_and_line() -> Outcome {
    let pipeline = "steps:\n- name: draft\n  action: llm.complete\n  params: {prompt: hello}\n";
    let (_server, home) = home(pipeline).await;
    let refused = home.run(&["execute", "--skill", "sums"]).await?;
    assert!(refused.code != 0, "{refused:?}");
    let says = "line 3: step `draft`: `llm.complete` cannot run here";
    assert!(refused.err.contains(says), "{refused:?}");
    let checked = home.run(&["skills", "check", "--json"]).await?;
    assert_eq!(checked.code, 78, "{checked:?}");
    let checked = checked.json()?;
    assert_eq!(checked["skills"], json!(["sums"]), "the skill can be read");
    assert!(checked["faults"][0]["what"].as_str().unwrap().contains(says), "{checked}");
    Ok(())
}

#[tokio::test]
async fn a_reference_that_cannot_be_filled_in_fails_its_step_and_runs_nothing() -> Outcome {
    let (_server, home) = home(SUMS).await;
    let node = Node::up(&home).await?;
    let client = node.client()?;
    let long = json!({
        "input": "a".repeat(10), "operation": "replace", "find": "a", "replacement": "b".repeat(1_000),
    });
    let later = json!({ "input": "{{steps.1.output}}", "operation": "upper" });
    let steps = json!([
        { "action": "transform_text", "params": long },
        { "action": "transform_text", "params": later, "interpolate": true },
        { "action": "transform_text", "params": later, "interpolate": true },
    ]);
    let request = json!({ "execution_spec": { "steps": steps }, "request_id": "long" });
    let begun: ExecutionView = client.call("execute", request).await?;
    let over = |view: &ExecutionView| view.status.is_over();
    let shown = json!({ "execution_id": begun.execution_id });
    let view: ExecutionView = client.call_when("execute.show", shown, over).await?;
    assert_eq!(view.status, ExecutionStatus::Failed, "{view:?}");
    let statuses: Vec<StepStatus> = view.steps.iter().map(|step| step.status).collect();
    assert_eq!(statuses, [StepStatus::Succeeded, StepStatus::Failed, StepStatus::Skipped]);
    let error = view.steps[1].error.as_ref().unwrap();
    assert!(error.message.contains("has 10000 bytes"), "{error:?}");
    // What never was called is shown as the plan has it.
    for never in &view.steps[1..] {
        assert_eq!(never.params["input"], "{{steps.1.output}}", "{never:?}");
    }
    // What does not name an earlier step is refused before it is accepted.
    let itself = json!([{ "action": "calculate", "params": { "expression": "{{steps.1.output}}" },
        "interpolate": true }]);
    let request = json!({ "execution_spec": { "steps": itself } });
    let refused = client.call::<ExecutionView>("execute", request).await.unwrap_err().to_string();
    assert!(refused.contains("not the output of an earlier step"), "{refused}");
    // So is a name that its tool does not know, before any step has run.
    let unknown = json!({ "input": "{{steps.1.output}}", "mode": "upper" });
    let steps = json!([
        { "action": "calculate", "params": { "expression": "1" } },
        { "action": "transform_text", "params": unknown, "interpolate": true },
    ]);
    let request = json!({ "execution_spec": { "steps": steps } });
    let refused = client.call::<ExecutionView>("execute", request).await.unwrap_err().to_string();
    assert!(refused.contains("step 2") && refused.contains("`operation` is missing"), "{refused}");
    node.stop().await
}
