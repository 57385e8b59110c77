//! Who does the work, how it fares, and which node would be chosen: asked of real nodes.

use clawnode_proto::{
    circuit::{CircuitFailure, CircuitState},
    model::ModelTest,
    overview::NodeList,
    provider::{DiagnoseView, ProviderKind, ProviderStatus, ProviderView, ProvidersView},
    view::StatusView,
};
use clawnode_tests::{
    effects::EffectCounter,
    model::{Act, ModelServer, Script, Setup},
    process::{Home, Message, Node, ProcessError, TestBackend},
};
use serde_json::{Value, json};

use super::Outcome;

fn find<'a>(view: &'a ProvidersView, kind: ProviderKind, name: &str) -> Option<&'a ProviderView> {
    view.providers.iter().find(|provider| provider.kind == kind && provider.provider == name)
}

/// A node whose tools are counted, and a model that asks for one of them, then refuses a key, then is
/// overloaded.
async fn scene() -> Result<(ModelServer, EffectCounter, tempfile::TempDir, Home), ProcessError> {
    let asks = Act::tools([("effect_safe", json!({}))]);
    let refuses = Act::status(401, "no");
    let busy = (0..4).map(|_| Act::status_with(529, "busy", "retry-after-ms", "0"));
    let outage = busy.chain([Act::status(529, "busy")]);
    let script = Script::queue([asks, Act::say("done"), refuses].into_iter().chain(outage));
    let setup = Setup { api_key: Some(Home::key().to_owned()), ..Setup::from(script) };
    let server = ModelServer::start(setup).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let counter = EffectCounter::start(dir.path()).await.unwrap();
    let home = Home::new(TestBackend::Local)?.anthropic(&server);
    let home = home.var("CLAWNODE_TEST_EFFECTS", &counter.url());
    let folder = home.path().join(".config/clawnode");
    std::fs::create_dir_all(&folder).unwrap();
    let tools = r#"["effect_safe", "file_read", "calculate"]"#;
    std::fs::write(folder.join("config.toml"), format!("[agents.default]\ntools = {tools}\n"))
        .unwrap();
    Ok((server, counter, dir, home))
}

#[tokio::test]
async fn providers_tell_how_they_fare() -> Outcome {
    let (server, counter, _dir, home) = scene().await?;
    let node = Node::up(&home).await?;
    let client = node.client()?;
    let view: ProvidersView = client.call("providers.health", json!({})).await?;
    let effects = find(&view, ProviderKind::Execution, "effects").unwrap();
    assert_eq!((effects.status, effects.runs), (ProviderStatus::Healthy, 0), "{effects:?}");
    assert!(effects.last_checked.is_some() && effects.success_rate.is_none(), "{effects:?}");
    let model = find(&view, ProviderKind::Model, "anthropic").unwrap();
    assert_eq!((model.status, model.last_checked), (ProviderStatus::Unknown, None), "{model:?}");

    // One that runs is in hand; once it has run it is counted.
    counter.hold(true);
    let message = Message::new("ada", "go");
    drop(client.send(&message).await?);
    let runs = |view: &ProvidersView| {
        find(view, ProviderKind::Execution, "effects").is_some_and(|provider| provider.in_hand == 1)
    };
    let _: ProvidersView = client.call_when("providers.health", json!({}), runs).await?;
    counter.hold(false);
    client.finished(&message.session(), 1).await?;
    // Its runner may let go of it a moment after its session has the result.
    let ran = |view: &ProvidersView| {
        let effects = find(view, ProviderKind::Execution, "effects");
        effects.is_some_and(|provider| (provider.in_hand, provider.runs) == (0, 1))
    };
    let view: ProvidersView = client.call_when("providers.health", json!({}), ran).await?;
    let effects = find(&view, ProviderKind::Execution, "effects").unwrap();
    assert_eq!(effects.success_rate, Some(1.0), "{effects:?}");
    assert!(effects.latency_ms.is_some());
    let model = find(&view, ProviderKind::Model, "anthropic").unwrap();
    assert_eq!((model.status, model.runs), (ProviderStatus::Healthy, 2), "{model:?}");
    assert!(view.healthy >= 2 && view.unknown == 0, "{view:?}");

    // Who does not accept the key is not well, and says no more than that.
    drop(client.send(&Message::new("ada", "again")).await?);
    client.finished(&message.session(), 2).await?;
    let view: ProvidersView = client.call("providers.health", json!({})).await?;
    let model = find(&view, ProviderKind::Model, "anthropic").unwrap();
    let said = (model.status, model.consecutive_failures, model.error.as_deref());
    let wanted = (ProviderStatus::Unhealthy, 1, Some("it does not accept the key"));
    assert_eq!(said, wanted, "{model:?}");
    assert!(view.unhealthy >= 1, "{view:?}");
    outage(&server, &node).await?;
    node.stop().await
}

/// A provider that is overloaded is not asked any more, and everyone hears why.
async fn outage(server: &ModelServer, node: &Node) -> Result<(), ProcessError> {
    let client = node.client()?;
    let params = json!({ "model": "anthropic/claude-sonnet-4-5" });
    let tested: ModelTest = client.call("models.test", params.clone()).await?;
    assert!(tested.error.unwrap().starts_with("busy"));
    assert_eq!(server.count(), 8);
    let tested: ModelTest = client.call("models.test", params).await?;
    assert!(tested.error.unwrap().starts_with("not sent: the provider reported a server error"));
    assert_eq!(server.count(), 8, "not asked");
    let view: ProvidersView = client.call("providers.health", json!({})).await?;
    let model = find(&view, ProviderKind::Model, "anthropic").unwrap();
    let circuit = model.circuit.as_ref().unwrap();
    assert_eq!((circuit.state, circuit.refused), (CircuitState::Open, 1), "{circuit:?}");
    assert!(circuit.next_try > Some(circuit.since), "{circuit:?}");
    let failures = [(CircuitFailure::Overloaded, 5)];
    assert!(
        circuit.failures.iter().map(|failure| (failure.kind, failure.count)).eq(failures),
        "{circuit:?}"
    );
    let status: StatusView = client.call("status", json!({})).await?;
    let names: Vec<&str> = status.warnings.iter().map(|warning| warning.name.as_str()).collect();
    assert!(names.contains(&"providers.circuit_open"), "{names:?}");
    assert!(!names.contains(&"providers.failing"), "one line is enough: {names:?}");
    Ok(())
}

#[tokio::test]
async fn what_a_node_lacks_keeps_it_from_being_chosen() -> Outcome {
    let (_server, _counter, _dir, home) = scene().await?;
    let node = Node::up(&home).await?;
    let client = node.client()?;
    let nodes: NodeList = client.call("nodes.list", json!({})).await?;
    let own = nodes.nodes[0].node.clone();
    let spec = |actions: &[&str]| {
        let steps: Vec<Value> = actions.iter().map(|action| json!({ "action": action })).collect();
        json!({ "steps": steps, "intent": "what else a planner says" })
    };
    let params = json!({ "execution_spec": spec(&["effect_safe", "calculate"]) });
    let view: DiagnoseView = client.call("scheduler.diagnose", params).await?;
    assert_eq!(view.selected.as_ref(), Some(&own), "{view:?}");
    let names: Vec<String> = view.capabilities.iter().map(ToString::to_string).collect();
    assert_eq!(names, ["effects"]);
    let best = &view.candidates[0];
    assert!(best.eligible && best.breakdown.capability > 24.9, "{best:?}");
    assert!(best.breakdown.health > 29.9 && best.score <= 100.0, "{best:?}");

    // This node has no workspace. The older word for steps is understood.
    let legacy = json!({ "actions": [{ "tool": "file_read", "arguments": {} }] });
    let params = json!({ "execution_spec": legacy, "fallback": own });
    let view: DiagnoseView = client.call("scheduler.diagnose", params).await?;
    assert_eq!((view.selected.as_ref(), view.fallback_used), (Some(&own), true));
    let lacks = &view.candidates[0];
    assert!(!lacks.eligible && lacks.reason.as_ref().unwrap().contains("workspace"), "{lacks:?}");

    for (params, code) in [
        (json!({ "execution_spec": spec(&[]) }), "invalid_params"),
        (json!({ "execution_spec": spec(&["calculate"; 65]) }), "invalid_params"),
        (json!({ "execution_spec": spec(&["rm_rf"]) }), "invalid_params"),
        (json!({ "execution_spec": spec(&["calculate"]), "agent": "absent" }), "not_found"),
        (json!({ "execution_spec": spec(&["calculate"]), "agent": "../x" }), "invalid_params"),
        (json!({ "execution_spec": 7 }), "invalid_params"),
        (json!({}), "invalid_params"),
    ] {
        let shown = params.to_string();
        let refused = client.call::<Value>("scheduler.diagnose", params).await.unwrap_err();
        assert_eq!(refused.refusal().unwrap().code.as_str(), code, "{shown}");
    }
    node.stop().await
}
