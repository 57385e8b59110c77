//! The crash points of a tool call (C8 to C11): the process that runs it kills itself there, and an
//! independent count of effects says what really happened.

use clawnode_proto::{llm::Role, session::TurnOutcome};
use clawnode_tests::{
    effects::EffectCounter,
    model::Script,
    process::{Message, Node, ProcessError},
    wait::until,
};
use serde_json::Value;

use super::{
    fleet::Fleet,
    support::{Outcome, Scene, Under},
};

/// The result of a hit.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    /// How often the tool had its effect.
    effects: usize,
    /// Whether the model was shown an unknown end.
    uncertain: bool,
}

/// A turn asks for `tool`; its process dies at `point` and another goes on.
async fn hit(under: Under, tool: &str, point: &str) -> Result<Seen, ProcessError> {
    hit_and_asked(under, tool, point, false).await
}

/// The same, where a probe may be told nothing.
async fn hit_and_asked(
    under: Under,
    tool: &str,
    point: &str,
    blind: bool,
) -> Result<Seen, ProcessError> {
    let dir = tempfile::tempdir().unwrap();
    let counter = EffectCounter::start(dir.path()).await.unwrap();
    counter.blind(blind);
    let mut scene = Scene::on(under, Script::default()).await;
    let settings = scene.home.path().join(".config/clawnode");
    std::fs::create_dir_all(&settings).unwrap();
    let config = format!("[agents.default]\ntools = [\"{tool}\"]\n");
    std::fs::write(settings.join("config.toml"), config).unwrap();
    scene = scene.with_var("CLAWNODE_TEST_EFFECTS", &counter.url());

    let message = Message::new("ada", &format!("/tool {tool} {{}}"));
    scene.die_at(point, &message).await?;
    let node = Node::up(&scene.home).await?;
    let client = node.client()?;
    client.chat(&message).await?;
    let session = message.session();
    let history = client.history(&session).await?;
    assert_eq!(history.turns.len(), 1, "{history:?}");
    let turn = &history.turns[0];
    assert!(matches!(turn.outcome, Some(TurnOutcome::Completed { .. })), "{turn:?}");
    let roles: Vec<Role> = turn.messages.iter().map(|message| message.role).collect();
    assert_eq!(roles, [Role::User, Role::Assistant, Role::User, Role::Assistant], "{turn:?}");
    assert_eq!(turn.messages[2].tool_replies.len(), 1, "{turn:?}");
    let reply = &turn.messages[2].tool_replies[0];
    let told = reply.content.inline().unwrap_or_default();
    let events: Vec<Value> = client.journal(&session).await?;
    let kinds = |kind: &str| events.iter().filter(|event| event["kind"] == kind).count();
    assert_eq!(kinds("tool_asked"), 1, "I3: {events:?}");
    assert_eq!(kinds("tool_done") + kinds("tool_uncertain"), 1, "I3: {events:?}");
    let uncertain = kinds("tool_uncertain") == 1;
    assert_eq!(reply.is_error, uncertain, "{reply:?}");
    assert!(uncertain || told == "done", "{told}");
    node.stop().await?;
    let counts = counter.counts().unwrap();
    assert!(counts.len() <= 1, "one key for all runs: {counts:?}");
    Ok(Seen { effects: counts.values().sum(), uncertain })
}

const KNOWN: Seen = Seen { effects: 1, uncertain: false };

async fn c8_to_c11(under: Under, points: &[(&str, &str, Seen)]) -> Outcome {
    for (tool, point, wanted) in points {
        let seen = hit(under, tool, point).await?;
        assert_eq!(seen, *wanted, "`{tool}` at `{point}`");
    }
    Ok(())
}

/// C8, C9, C11: whatever died around the run, the run itself is known.
#[tokio::test]
async fn c8_c9_c11_a_tool_that_runs_once_runs_once() -> Outcome {
    let points = ["before-job", "after-job", "before-started", "after-done", "after-result"];
    c8_to_c11(Under::Local, &points.map(|point| ("effect_once", point, KNOWN))).await
}

/// C10.
#[tokio::test]
async fn c10_a_runner_that_dies_in_mid_run_is_followed_by_class() -> Outcome {
    let points = [
        // Nothing is written of it before its result is stored.
        ("effect_safe", "after-job", KNOWN),
        ("effect_safe", "before-result", Seen { effects: 2, uncertain: false }),
        ("effect_idempotent", "after-started", KNOWN),
        ("effect_idempotent", "before-done", Seen { effects: 2, uncertain: false }),
        ("effect_once", "after-started", Seen { effects: 0, uncertain: true }),
        ("effect_once", "before-done", Seen { effects: 1, uncertain: true }),
        // Its probe tells that it did not happen, so it runs; or that it did, so it does not.
        ("effect_check", "after-started", KNOWN),
        ("effect_check", "before-done", KNOWN),
    ];
    c8_to_c11(Under::Local, &points).await
}

/// C10 if the probe cannot tell: as for class `once`, the end is unknown, and nothing runs again.
#[tokio::test]
async fn c10_what_a_probe_cannot_tell_is_uncertain() -> Outcome {
    for (point, effects) in [("after-started", 0), ("before-done", 1)] {
        let seen = hit_and_asked(Under::Local, "effect_check", point, true).await?;
        assert_eq!(seen, Seen { effects, uncertain: true }, "at `{point}`");
    }
    Ok(())
}

/// C9 and C10 where another process judges the dead one.
#[tokio::test]
async fn c10_on_nats_a_dead_runner_is_not_followed_by_a_second_run() -> Outcome {
    let points = [
        ("effect_once", "before-done", Seen { effects: 1, uncertain: true }),
        ("effect_once", "after-result", KNOWN),
        ("effect_check", "after-started", KNOWN),
        ("effect_check", "before-done", KNOWN),
    ];
    c8_to_c11(Under::Nats, &points).await
}

/// C10 if no other node can run the tool: its session hears of the death, not of the end of its
/// wait.
#[tokio::test]
async fn c10_on_nats_the_only_runner_of_a_tool_is_missed_when_it_dies() -> Outcome {
    let dir = tempfile::tempdir().unwrap();
    let counter = EffectCounter::start(dir.path()).await.unwrap();
    let scene = Scene::on(Under::Nats, Script::default()).await;
    let settings = scene.home.path().join(".config/clawnode");
    std::fs::create_dir_all(&settings).unwrap();
    let config = "[agents.default]\ntools = [\"effect_once\"]\n[tools]\njob_wait = \"1h\"\n";
    std::fs::write(settings.join("config.toml"), config).unwrap();
    // Everybody knows the tool, and one node can run it.
    let scene = scene.with_var("CLAWNODE_TEST_EFFECTS", "none");
    let mut fleet = Fleet::new(&scene).await?;
    fleet.add(&scene, "plain").await?;
    fleet.add_with(&scene, "able", vec![("CLAWNODE_TEST_EFFECTS", counter.url())]).await?;

    counter.hold(true);
    let message = Message::new("ada", "/tool effect_once {}");
    let mut turn = fleet.client.send(&message).await?;
    until("the effect", async || Ok((counter.total().unwrap() == 1).then_some(()))).await?;
    fleet.take("able").kill().await?;
    turn.completed().await?;
    let journal = fleet.journal(&message).await?;
    let kinds = |kind: &str| journal.iter().filter(|event| event.kind == kind).count();
    assert_eq!((kinds("tool_uncertain"), kinds("tool_done")), (1, 0), "{journal:?}");
    assert_eq!(counter.total().unwrap(), 1);
    fleet.stop().await
}
