//! A job goes to the node that `scheduler.diagnose` names, as long as that has a place for it.

use clawnode_proto::provider::DiagnoseView;
use clawnode_tests::{
    effects::EffectCounter,
    model::Script,
    process::{Message, ProcessError},
    wait::until,
};
use serde_json::json;

use super::{
    fleet::Fleet,
    support::{Outcome, Scene, Under},
};

/// Calls that the busy worker has in hand for the whole test.
const HELD: usize = 3;
/// Calls that a worker has in hand at most; with fewer it asks for more.
const PLACES: usize = 8;
/// Calls in a row on the idle worker, after which all know that it is better.
const SETTLED: usize = 3;
/// Calls that are compared then: by chance, one in 65,536 such rows would all go there.
const CALLS: usize = 16;

/// One of two workers has calls in hand that do not end. Once all have heard of that, every call runs
/// where `scheduler.diagnose` says, although both ask for it.
#[tokio::test]
async fn jobs_go_where_diagnose_says() -> Outcome {
    let (busy_dir, idle_dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // Each worker counts its effects at a counter of its own, so the counters show which ran a
    // call.
    let busy = EffectCounter::start(busy_dir.path()).await.unwrap();
    let idle = EffectCounter::start(idle_dir.path()).await.unwrap();
    let scene = Scene::on(Under::Nats, Script::default()).await;
    let settings = scene.home.path().join(".config/clawnode");
    std::fs::create_dir_all(&settings).unwrap();
    let config = "[agents.default]\ntools = [\"effect_safe\"]\n";
    std::fs::write(settings.join("config.toml"), config).unwrap();
    let scene = scene.with_var("CLAWNODE_TEST_EFFECTS", "none");
    let mut fleet = Fleet::new(&scene).await?;
    let effects = |counter: &EffectCounter| vec![("CLAWNODE_TEST_EFFECTS", counter.url())];
    fleet.add_with(&scene, "busy", effects(&busy)).await?;
    busy.hold(true);
    let mut held = Vec::new();
    for at in 0..HELD {
        let message = Message::new(&format!("held{at}"), "/tool effect_safe {}");
        held.push(fleet.client.send(&message).await?);
    }
    until("calls in hand", async || Ok((busy.total().unwrap() == HELD).then_some(()))).await?;
    fleet.add_with(&scene, "a-idle", effects(&idle)).await?;
    let params = json!({ "execution_spec": { "steps": [{ "action": "effect_safe" }] } });
    let named = |view: &DiagnoseView| view.selected.as_ref().map(ToString::to_string);
    let chosen = |view: &DiagnoseView| named(view).as_deref() == Some("a-idle");
    let view: DiagnoseView =
        fleet.client.call_when("scheduler.diagnose", params.clone(), chosen).await?;
    assert_eq!(
        view.candidates.iter().filter(|candidate| candidate.eligible).count(),
        2,
        "{view:?}"
    );

    let mut calls = 0;
    // Which worker ran a call. One that the busy worker begins is not waited for, for it would not end.
    let mut call = async || -> Result<&'static str, ProcessError> {
        calls += 1;
        let before = (busy.total().unwrap(), idle.total().unwrap());
        let message = Message::new(&format!("p{calls}"), "/tool effect_safe {}");
        held.push(fleet.client.send(&message).await?);
        until("the effect", async || {
            let now = (busy.total().unwrap(), idle.total().unwrap());
            let by = if now.0 > before.0 { "busy" } else { "a-idle" };
            Ok((now != before).then_some(by))
        })
        .await
    };
    let mut row = 0;
    while row < SETTLED {
        row = if call().await? == "a-idle" { row + 1 } else { 0 };
    }
    let mut as_said = 0;
    for _ in 0..CALLS {
        let view: DiagnoseView = fleet.client.call("scheduler.diagnose", params.clone()).await?;
        as_said += usize::from(named(&view).as_deref() == Some(call().await?));
    }
    assert_eq!(as_said, CALLS, "calls that ran on the node that `scheduler.diagnose` had named");
    assert!(busy.total().unwrap() < PLACES, "the busy worker had no place, and did not ask");
    busy.hold(false);
    for mut turn in held {
        turn.completed().await?;
    }
    fleet.stop().await
}
