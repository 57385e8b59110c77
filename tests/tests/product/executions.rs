//! Plans: steps that are run as a model's tool calls are, without a model.

use clawnode_proto::{
    execute::{ExecutionStatus, ExecutionStep, ExecutionView, StepStatus},
    tool::Risk,
    view::SessionList,
};
use clawnode_tests::{
    effects::EffectCounter,
    model::{ModelServer, Script, Setup, read_log},
    process::{Client, Home, Node, ProcessError, TestBackend, sound},
};
use serde_json::{Value, json};

use super::Outcome;

/// A home whose agent has tools that are counted, and what counts.
struct Scene {
    _server: ModelServer,
    counter: EffectCounter,
    dir: tempfile::TempDir,
    home: Home,
}

impl Scene {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let log = Some(dir.path().join("calls.jsonl"));
        let setup =
            Setup { log, api_key: Some(Home::key().to_owned()), ..Setup::from(Script::queue([])) };
        let server = ModelServer::start(setup).await.unwrap();
        let counter = EffectCounter::start(dir.path()).await.unwrap();
        let home = Home::new(TestBackend::Local).unwrap().anthropic(&server);
        let home = home.var("CLAWNODE_TEST_EFFECTS", &counter.url());
        let settings = home.path().join(".config/clawnode");
        std::fs::create_dir_all(&settings).unwrap();
        let tools = json!(["effect_asked", "effect_safe", "effect_once", "calculate"]);
        let config = format!("[agents.default]\ntools = {tools}\n");
        std::fs::write(settings.join("config.toml"), config).unwrap();
        Self { _server: server, counter, dir, home }
    }

    /// How often the model was asked.
    fn asked(&self) -> usize {
        read_log(&self.dir.path().join("calls.jsonl")).map_or(0, |calls| calls.len())
    }
}

/// What `POST` of this is answered: its status, and its body.
async fn post(client: &Client, path: &str, body: &Value) -> (u16, Value) {
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let url = format!("{}{path}", client.url());
    let response = http.post(url).bearer_auth(client.token()).json(body).send().await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

fn step(action: &str, params: &Value) -> Value {
    json!({ "action": action, "params": params })
}

fn spec(steps: &[Value]) -> Value {
    json!({ "execution_spec": { "steps": steps } })
}

fn named(mut request: Value, name: &str) -> Value {
    request["request_id"] = name.into();
    request
}

fn view(body: Value) -> ExecutionView {
    serde_json::from_value(body).unwrap()
}

fn statuses(view: &ExecutionView) -> Vec<StepStatus> {
    view.steps.iter().map(|step| step.status).collect()
}

/// An execution, once it is so.
async fn shown(
    client: &Client,
    id: &Value,
    enough: impl Fn(&ExecutionView) -> bool,
) -> Result<ExecutionView, ProcessError> {
    client.call_when("execute.show", json!({ "execution_id": id }), enough).await
}

#[tokio::test]
async fn a_plan_is_run_once_step_by_step_and_no_model_is_asked() -> Outcome {
    let scene = Scene::new().await;
    let node = Node::up(&scene.home).await?;
    let client = node.client()?;
    let steps = vec![
        step("calculate", &json!({ "expression": "6*7" })),
        step("effect_once", &json!({ "what": "ship" })),
    ];
    let request = named(spec(&steps), "ship-1");
    let (status, body) = post(&client, "/v1/execute?wait=10", &request).await;
    assert_eq!((status, &body["status"]), (200, &json!("SUCCEEDED")), "{body}");
    let first = view(body.clone());
    assert_eq!(first.session.to_string(), "default:execute:api:ship-1");
    assert!(first.started >= first.created && first.ended >= first.started, "{body}");
    let [sum, ship] = &first.steps[..] else { panic!("{body}") };
    let ExecutionStep { step: 1, status: StepStatus::Succeeded, job: None, .. } = sum else {
        panic!("{body}")
    };
    assert!(sum.output.as_ref().unwrap().contains("42"), "{body}");
    assert!(ship.job.is_some() && ship.duration_ms.is_some(), "{body}");
    assert_eq!((ship.risk, ship.output.as_deref()), (Some(Risk::ReadOnly), Some("done")));
    assert_eq!(scene.counter.total().unwrap(), 1);

    // The same again is the same, by whatever route, and another plan has to have another name.
    let (status, again) = post(&client, "/v1/execute", &request).await;
    assert_eq!((status, &again), (200, &body));
    let again: ExecutionView = client.call("execute", request.clone()).await?;
    assert_eq!(again, first);
    let other = named(spec(&[step("effect_once", &json!({}))]), "ship-1");
    let (status, refused) = post(&client, "/v1/execute", &other).await;
    assert_eq!((status, &refused["code"]), (409, &json!("conflict")), "{refused}");
    // And a request without a name is not taken for another.
    let (status, body) =
        post(&client, "/v1/execute?wait=10", &spec(&[step("effect_once", &json!({}))])).await;
    assert_eq!(status, 200, "{body}");
    assert_ne!(view(body).execution_id, first.execution_id);
    assert_eq!(scene.counter.total().unwrap(), 2);

    let history = client.history(&first.session.to_string()).await?;
    assert_eq!(history.turns.len(), 1);
    assert_eq!(history.turns[0].messages.len(), 5, "{history:?}");
    assert_eq!(history.turns[0].usage.input_tokens, 0);
    assert_eq!(scene.asked(), 0, "a model was asked");
    // What was deleted is not run once more under its old name.
    let _: Value = client.call("sessions.delete", json!({ "session": first.session })).await?;
    let (status, refused) = post(&client, "/v1/execute", &request).await;
    assert_eq!((status, &refused["code"]), (409, &json!("conflict")), "{refused}");
    node.stop().await?;
    assert!(sound(&scene.home).await? > 0);
    assert_eq!(scene.counter.total().unwrap(), 2);
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_run_is_refused_before_it_is_accepted_and_names_its_step() -> Outcome {
    let scene = Scene::new().await;
    let node = Node::up(&scene.home).await?;
    let client = node.client()?;
    let good = || step("calculate", &json!({ "expression": "1" }));
    let mut elsewhere = spec(&[good()]);
    elsewhere["agent"] = "absent".into();
    for (request, status, says) in [
        // As other planners call what they want done: unknown actions, by name.
        (
            spec(&[good(), step("git_status", &json!({}))]),
            400,
            "step 2: unknown action `git_status`",
        ),
        (spec(&[step("deploy", &json!({}))]), 400, "step 1: unknown action `deploy`"),
        (spec(&[good(), step("../x", &json!({}))]), 400, "step 2: unknown action `../x`"),
        (spec(&[good(), step("calculate", &json!({ "x": 1 }))]), 400, "step 2: arguments of `calc"),
        (spec(&[]), 400, "has 0"),
        (spec(&vec![good(); 65]), 400, "has 65"),
        (elsewhere, 404, "absent"),
        (json!({ "execution_spec": 7 }), 400, "execution_spec"),
        (json!({}), 400, "execution_spec"),
        (named(spec(&[good()]), ""), 400, "request_id"),
    ] {
        let (found, body) = post(&client, "/v1/execute", &request).await;
        assert_eq!(found, status, "{request} {body}");
        assert!(body["detail"].as_str().unwrap().contains(says), "{body}");
    }
    let unknown = json!({ "execution_spec": { "steps": [step("deploy", &json!({}))] } });
    let (found, body) = post(&client, "/v1/scheduler/diagnose", &unknown).await;
    assert_eq!(found, 400, "{body}");
    assert!(body["detail"].as_str().unwrap().contains("unknown action `deploy`"), "{body}");
    let list: SessionList = client.call("sessions.list", json!({})).await?;
    assert!(list.sessions.is_empty(), "{list:?}");
    let (status, body) =
        post(&client, "/v1/execute/exe_00000000000000000000000001/cancel", &json!({})).await;
    assert_eq!((status, &body["code"]), (404, &json!("not_found")));
    node.stop().await
}

/// What was accepted stays so when no node can run it any more.
#[tokio::test]
async fn a_plan_that_no_node_can_run_is_refused_with_503() -> Outcome {
    let scene = Scene::new().await;
    let request = |name| named(spec(&[step("effect_safe", &json!({}))]), name);
    let node = Node::up(&scene.home).await?;
    let (status, _) = post(&node.client()?, "/v1/execute?wait=10", &request("before")).await;
    assert_eq!(status, 200);
    node.stop().await?;

    let home = scene.home.var("CLAWNODE_TEST_EFFECTS", "none");
    let node = Node::up(&home).await?;
    let client = node.client()?;
    let (status, body) = post(&client, "/v1/execute", &request("after")).await;
    assert_eq!((status, &body["code"]), (503, &json!("unavailable")), "{body}");
    let message = body["detail"].as_str().unwrap();
    assert!(message.contains("step 1") && message.contains("`effects`"), "{body}");
    assert!(body["hint"].as_str().unwrap().contains("clawnode providers"), "{body}");
    let (status, body) = post(&client, "/v1/execute", &request("before")).await;
    assert_eq!((status, &body["status"]), (200, &json!("SUCCEEDED")), "{body}");
    node.stop().await
}

#[tokio::test]
async fn a_plan_waits_for_a_person_and_goes_on() -> Outcome {
    let scene = Scene::new().await;
    let node = Node::up(&scene.home).await?;
    let client = node.client()?;
    let steps = vec![
        step("effect_safe", &json!({ "n": 1 })),
        step("effect_asked", &json!({ "n": 2 })),
        step("effect_safe", &json!({ "n": 3 })),
    ];
    let file = scene.home.path().join("plan.json");
    std::fs::write(&file, json!({ "steps": steps }).to_string()).unwrap();
    let file = file.to_str().unwrap();
    let begun = scene.home.run(&["execute", file, "--key", "release", "--json"]).await?;
    assert_eq!(begun.code, 0, "{begun:?}");
    let id = begun.json()?["execution_id"].clone();
    let waits = |view: &ExecutionView| view.status == ExecutionStatus::WaitingApproval;
    let waiting = shown(&client, &id, waits).await?;
    let wanted = [StepStatus::Succeeded, StepStatus::WaitingApproval, StepStatus::Pending];
    assert_eq!(statuses(&waiting), wanted);
    let first = scene.counter.counts().unwrap();
    assert_eq!(first.values().sum::<usize>(), 1);
    // It outlives its node, and so does the approval.
    node.kill().await?;
    let node = Node::up(&scene.home).await?;
    let client = node.client()?;
    let asked = &waiting.steps[1];
    let action = asked.approval.as_ref().unwrap().action;
    let params = json!({ "call": asked.call, "action": action });
    let _: Value = client.call("approvals.approve", params).await?;
    let args = ["execute", "show", id.as_str().unwrap(), "--wait", "--json"];
    let shown = scene.home.run(&args).await?;
    assert_eq!(shown.code, 0, "{shown:?}");
    let ended = view(shown.json()?);
    assert_eq!(statuses(&ended), [StepStatus::Succeeded; 3]);
    assert!(ended.steps[1].approval.as_ref().unwrap().decided_by.is_some());
    let mut counts = scene.counter.counts().unwrap();
    assert_eq!(counts.len(), 3);
    // Its tool is `safe`: if the node died before the queue had heard of its end, it may run once more.
    counts.retain(|effect, _| !first.contains_key(effect));
    assert_eq!(counts.into_values().collect::<Vec<_>>(), [1, 1]);
    // A file that is no plan, and a key that is taken.
    std::fs::write(file, "{}").unwrap();
    let wrong = scene.home.run(&["execute", file]).await?;
    assert_eq!(wrong.code, 1, "{wrong:?}");
    assert!(wrong.err.contains("steps"), "{wrong:?}");
    node.stop().await
}

#[tokio::test]
async fn a_plan_is_cancelled_and_begins_nothing_more() -> Outcome {
    let scene = Scene::new().await;
    let node = Node::up(&scene.home).await?;
    let client = node.client()?;
    scene.counter.hold(true);
    let steps = vec![step("effect_safe", &json!({})), step("effect_once", &json!({}))];
    let (status, body) = post(&client, "/v1/execute", &spec(&steps)).await;
    assert_eq!(status, 202, "{body}");
    let id = &body["execution_id"];
    let runs = |view: &ExecutionView| view.status == ExecutionStatus::Running;
    let view = shown(&client, id, runs).await?;
    assert_eq!(statuses(&view), [StepStatus::Running, StepStatus::Pending]);
    let path = format!("/v1/execute/{}/cancel?wait=10", id.as_str().unwrap());
    let (status, body) = post(&client, &path, &json!({})).await;
    assert_eq!((status, &body["status"]), (200, &json!("CANCELLED")), "{body}");
    let view = self::view(body);
    assert_eq!(statuses(&view), [StepStatus::Cancelled, StepStatus::Skipped]);
    scene.counter.hold(false);
    let counts = scene.counter.counts().unwrap();
    assert!(counts.len() <= 1, "the second step had an effect: {counts:?}");
    // Once more changes nothing.
    let (status, again) = post(&client, &path, &json!({})).await;
    assert_eq!((status, &again["status"]), (200, &json!("CANCELLED")), "{again}");
    node.stop().await
}

#[tokio::test]
async fn a_step_that_fails_ends_a_plan_and_a_stop_ends_it_too() -> Outcome {
    let scene = Scene::new().await;
    let node = Node::up(&scene.home).await?;
    let client = node.client()?;
    let broken = || step("calculate", &json!({ "expression": "1/0" }));
    let mut may_fail = broken();
    may_fail["continue_on_failure"] = true.into();
    let steps = vec![may_fail, broken(), step("effect_once", &json!({}))];
    let (status, body) = post(&client, "/v1/execute?wait=10", &spec(&steps)).await;
    assert_eq!((status, &body["status"]), (200, &json!("FAILED")), "{body}");
    assert_eq!(body["error"]["code"], "step_failed");
    assert!(body["error"]["message"].as_str().unwrap().contains("step 2"), "{body}");
    let failed = view(body);
    assert_eq!(statuses(&failed), [StepStatus::Failed, StepStatus::Failed, StepStatus::Skipped]);
    assert_eq!(failed.steps[0].error.as_ref().unwrap().kind, "invalid");
    assert_eq!(scene.counter.total().unwrap(), 0);

    scene.counter.hold(true);
    let mut goes_on = step("effect_safe", &json!({}));
    goes_on["continue_on_failure"] = true.into();
    let steps = vec![goes_on, step("effect_once", &json!({}))];
    let (_, body) = post(&client, "/v1/execute", &spec(&steps)).await;
    let runs = |view: &ExecutionView| view.status == ExecutionStatus::Running;
    shown(&client, &body["execution_id"], runs).await?;
    let _: Value = client.call("panic", json!({})).await?;
    let over = |view: &ExecutionView| view.status.is_over();
    let stopped = shown(&client, &body["execution_id"], over).await?;
    assert_eq!(stopped.status, ExecutionStatus::Failed, "{stopped:?}");
    assert_eq!(stopped.error.as_ref().unwrap().code.as_str(), "stopped", "{stopped:?}");
    assert_eq!(statuses(&stopped), [StepStatus::Failed, StepStatus::Skipped], "{stopped:?}");
    let (status, refused) = post(&client, "/v1/execute", &spec(&steps)).await;
    assert_eq!((status, &refused["code"]), (503, &json!("stopped")), "{refused}");
    node.stop().await
}

/// If several plans are sent under one name at the same time, one runs, and only its sender gets
/// that answer.
#[tokio::test]
async fn of_plans_that_race_for_a_name_one_is_run() -> Outcome {
    let scene = Scene::new().await;
    let node = Node::up(&scene.home).await?;
    let client = node.client()?;
    for round in 0..5 {
        let name = format!("race-{round}");
        let request = |n: usize| named(spec(&[step("effect_once", &json!({ "n": n % 2 }))]), &name);
        let sent = (0..8).map(|n| {
            let (client, request) = (client.clone(), request(n));
            async move { (n % 2, post(&client, "/v1/execute?wait=10", &request).await) }
        });
        let mut won = None;
        for (n, (status, body)) in futures_util::future::join_all(sent).await {
            match status {
                200 => {
                    assert_eq!(body["status"], "SUCCEEDED", "{body}");
                    assert_eq!(body["steps"][0]["params"]["n"], n, "{body}");
                    assert_eq!(*won.get_or_insert(n), n, "two plans were run");
                }
                _ => assert_eq!((status, &body["code"]), (409, &json!("conflict")), "{body}"),
            }
        }
        assert!(won.is_some());
        assert_eq!(scene.counter.total().unwrap(), round + 1);
    }
    node.stop().await
}
