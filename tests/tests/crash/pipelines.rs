//! A pipeline with an approval in its middle, whose processes die while the person is asked and when the approved step
//! is done.

use clawnode_proto::execute::{ExecutionStatus, ExecutionView, StepStatus};
use clawnode_tests::{
    effects::EffectCounter,
    model::Script,
    process::{Node, Start, sound},
};
use serde_json::{Value, json};

use super::support::{Outcome, Scene, Under};

const PIPELINE: &str = r#"
inputs:
  factor:
steps:
- name: product
  action: calculate
  params: {expression: "6*{{inputs.factor}}"}
- name: ship
  action: effect_asked
  params: {what: "ship {{steps.product.output}}"}
- name: count
  action: effect_once
  params: {said: "{{steps.ship.output}}"}
- name: check
  action: calculate
  params: {expression: "{{steps.product.output}}+1"}
"#;

async fn survives(under: Under) -> Outcome {
    let dir = tempfile::tempdir().unwrap();
    let counter = EffectCounter::start(dir.path()).await.unwrap();
    let mut scene = Scene::on(under, Script::default()).await;
    let settings = scene.home.path().join(".config/clawnode");
    std::fs::create_dir_all(&settings).unwrap();
    let tools = json!(["effect_asked", "effect_once", "calculate"]);
    std::fs::write(settings.join("config.toml"), format!("[agents.default]\ntools = {tools}\n"))
        .unwrap();
    scene = scene.with_var("CLAWNODE_TEST_EFFECTS", &counter.url());
    let file = scene.home.path().join("release.yaml");
    std::fs::write(&file, PIPELINE).unwrap();

    let node = Node::up(&scene.home).await?;
    let file = file.to_str().unwrap();
    let args = ["execute", file, "--input", "factor=7", "--key", "release", "--json"];
    let begun = scene.home.run(&args).await?;
    assert_eq!(begun.code, 0, "{begun:?}");
    let shown = json!({ "execution_id": begun.json()?["execution_id"] });
    let waits = |view: &ExecutionView| view.status == ExecutionStatus::WaitingApproval;
    let _: ExecutionView = node.client()?.call_when("execute.show", shown.clone(), waits).await?;
    node.kill().await?;

    let mut node = Node::start(&scene.home, Start::killed("after-done:1")).await?;
    let client = node.client()?;
    let waiting: ExecutionView = client.call_when("execute.show", shown.clone(), waits).await?;
    let asked = |list: &Value| !list["approvals"][0].is_null();
    let list: Value = client.call_when("approvals.list", json!({}), asked).await?;
    // A person sees what is run, and not the reference.
    assert_eq!(list["approvals"][0]["action"]["arguments"], r#"{"what":"ship 42"}"#, "{list}");
    assert_eq!(counter.total().unwrap(), 0);
    let step = &waiting.steps[1];
    let action = step.approval.as_ref().unwrap().action;
    let params = json!({ "call": step.call, "action": action });
    match client.call::<Value>("approvals.approve", params).await {
        Ok(_) => {}
        Err(error) if error.is_lost() => {}
        Err(error) => return Err(error),
    }
    scene.died(&mut node).await?;

    let node = Node::up(&scene.home).await?;
    let over = |view: &ExecutionView| view.status.is_over();
    let view: ExecutionView = node.client()?.call_when("execute.show", shown, over).await?;
    assert_eq!(view.status, ExecutionStatus::Succeeded, "{view:?}");
    assert!(view.steps.iter().all(|step| step.status == StepStatus::Succeeded), "{view:?}");
    assert_eq!(view.steps[0].output.as_deref(), Some("42"), "{view:?}");
    assert_eq!(view.steps[3].output.as_deref(), Some("43"), "{view:?}");
    assert!(sound(&scene.home).await? > 0, "there are journals");
    node.stop().await?;
    assert_eq!(counter.total().unwrap(), 2, "each effect is there once");
    assert_eq!(scene.asked().len(), 0, "a model was asked");
    Ok(())
}

#[tokio::test]
async fn plan_1_a_pipeline_outlives_its_processes_on_one_machine() -> Outcome {
    survives(Under::Local).await
}

#[tokio::test]
async fn plan_1_a_pipeline_outlives_its_processes_over_nats() -> Outcome {
    survives(Under::Nats).await
}
