//! A plan's process kills itself in the middle of it; an independent count of effects says what its
//! steps really did.

use clawnode_proto::execute::{ExecutionStatus, ExecutionView, StepStatus};
use clawnode_tests::{
    effects::EffectCounter,
    model::Script,
    process::{Node, ProcessError, Start, sound},
};
use serde_json::{Value, json};

use super::support::{Outcome, Scene};

/// The tools of the three steps; the process dies in the second one.
const STEPS: [&str; 3] = ["effect_once", "effect_idempotent", "effect_once"];

/// A plan whose process dies at `point` of its second step; another goes on. How it ends, and how
/// often each step had its effect.
async fn hit(point: &str, steps: [&str; 3]) -> Result<(ExecutionView, [usize; 3]), ProcessError> {
    let dir = tempfile::tempdir().unwrap();
    let counter = EffectCounter::start(dir.path()).await.unwrap();
    let mut scene = Scene::new(Script::default()).await;
    let settings = scene.home.path().join(".config/clawnode");
    std::fs::create_dir_all(&settings).unwrap();
    let tools = json!(["effect_once", "effect_safe", "effect_idempotent"]);
    std::fs::write(settings.join("config.toml"), format!("[agents.default]\ntools = {tools}\n"))
        .unwrap();
    scene = scene.with_var("CLAWNODE_TEST_EFFECTS", &counter.url());
    let steps: Vec<Value> = steps
        .iter()
        .zip(1..)
        .map(|(action, n)| json!({ "action": action, "params": { "n": n } }))
        .collect();
    let request = json!({ "execution_spec": { "steps": steps }, "request_id": "night" });

    let mut node = Node::start(&scene.home, Start::killed(&format!("{point}:2"))).await?;
    match node.client()?.call::<ExecutionView>("execute", request.clone()).await {
        Ok(_) => {}
        Err(error) if error.is_lost() => {}
        Err(error) => return Err(error),
    }
    scene.died(&mut node).await?;
    let before = counter.counts().unwrap();
    assert!(before.values().all(|effects| *effects == 1), "{before:?}");

    let node = Node::up(&scene.home).await?;
    let client = node.client()?;
    // The client does not know whether it was accepted, and asks again.
    let begun: ExecutionView = client.call("execute", request).await?;
    let over = |view: &ExecutionView| view.status.is_over();
    let shown = json!({ "execution_id": begun.execution_id });
    let view: ExecutionView = client.call_when("execute.show", shown, over).await?;
    node.stop().await?;
    assert!(sound(&scene.home).await? > 0, "there are journals");
    let counts = counter.counts().unwrap();
    let effects_of = |step: usize| {
        let job = view.steps[step].job.map(|job| job.to_string());
        job.and_then(|job| counts.get(&job).copied()).unwrap_or_default()
    };
    let effects = [effects_of(0), effects_of(1), effects_of(2)];
    assert_eq!(effects.iter().sum::<usize>(), counter.total().unwrap(), "a stray: {counts:?}");
    assert_eq!(scene.asked().len(), 0, "a model was asked");
    Ok((view, effects))
}

/// PLAN-1: no step that has ended is run again, and the plan goes on.
#[tokio::test]
async fn plan_1_a_plan_goes_on_at_the_step_at_which_its_process_died() -> Outcome {
    for (point, effects) in [
        ("before-job", 1..=1),
        ("after-job", 1..=1),
        ("before-started", 1..=1),
        ("after-started", 1..=1),
        ("before-done", 2..=2),
        ("after-done", 1..=1),
        ("before-result", 1..=1),
        ("after-result", 1..=1),
    ] {
        let (view, found) = hit(point, STEPS).await?;
        assert_eq!(view.status, ExecutionStatus::Succeeded, "{point}: {view:?}");
        assert_eq!((found[0], found[2]), (1, 1), "{point}");
        assert!(effects.contains(&found[1]), "{point}: {found:?}");
    }
    Ok(())
}

/// A step of class `once` whose end is unknown is shown to be so, and nothing follows it.
#[tokio::test]
async fn plan_1_what_nobody_knows_ends_a_plan() -> Outcome {
    let (view, found) =
        hit("before-done", ["effect_idempotent", "effect_once", "effect_once"]).await?;
    assert_eq!(view.status, ExecutionStatus::Failed, "{view:?}");
    let statuses: Vec<StepStatus> = view.steps.iter().map(|step| step.status).collect();
    assert_eq!(statuses, [StepStatus::Succeeded, StepStatus::Uncertain, StepStatus::Skipped]);
    assert_eq!(found, [1, 1, 0]);
    assert_eq!(view.error.unwrap().code.as_str(), "step_failed");
    Ok(())
}
