//! Tool calls that wait for a person, and turns that wait for more steps: nothing runs without
//! approval, and no wait is lost with its process.

use clawnode_proto::{
    policy::{Approval, Decision},
    session::TurnOutcome,
    view::{ApprovalList, SessionList, StatusView},
};
use clawnode_tests::{
    effects::EffectCounter,
    model::{Act, ModelServer, Script, ToolCall},
    process::{Client, Frame, Home, Message, Node, ProcessError, TestBackend, Turn},
};
use serde_json::{Value, json};

use super::{Outcome, said};

/// A home whose agent has tools that are counted, and what counts.
struct Scene {
    _server: ModelServer,
    counter: EffectCounter,
    _dir: tempfile::TempDir,
    home: Home,
}

impl Scene {
    async fn new(acts: impl IntoIterator<Item = Act>, agent: &str) -> Self {
        let server = ModelServer::start(Script::queue(acts)).await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let counter = EffectCounter::start(dir.path()).await.unwrap();
        let home = Home::new(TestBackend::Local).unwrap().anthropic(&server);
        let home = home.var("CLAWNODE_TEST_EFFECTS", &counter.url());
        let settings = home.path().join(".config/clawnode");
        std::fs::create_dir_all(&settings).unwrap();
        let config = format!(
            "[agents.default]\ntools = [\"effect_asked\", \"effect_safe\", \"calculate\"]\n{agent}"
        );
        std::fs::write(settings.join("config.toml"), config).unwrap();
        Self { _server: server, counter, _dir: dir, home }
    }

    fn effects(&self) -> usize {
        self.counter.counts().unwrap().values().sum()
    }
}

fn asks() -> Act {
    Act::tools([("effect_asked", json!({ "what": "push" }))])
}

/// The next frame of this name.
async fn until(turn: &mut Turn, event: &str) -> Result<Frame, ProcessError> {
    loop {
        let frame = turn.next().await?;
        assert_ne!(frame.event, "done", "the turn ended without `{event}`: {frame:?}");
        if frame.event == event {
            return Ok(frame);
        }
    }
}

/// The rest of a turn: what its tool said, and how that failed.
async fn result(turn: &mut Turn) -> Result<Value, ProcessError> {
    let result = until(turn, "tool_result").await?;
    while turn.next().await?.event != "done" {}
    Ok(result.data)
}

async fn waiting(client: &Client) -> Result<Approval, ProcessError> {
    let some = |list: &ApprovalList| !list.approvals.is_empty();
    let list: ApprovalList = client.call_when("approvals.list", json!({}), some).await?;
    assert_eq!(list.approvals.len(), 1, "{list:?}");
    Ok(list.approvals.into_iter().next().unwrap())
}

/// All who look see that a person is waited for, and for which call.
async fn shown_as_waiting(home: &Home, client: &Client, approval: &Approval) -> Outcome {
    let status: StatusView = client.call("status", json!({})).await?;
    assert_eq!(status.approvals, Some(1));
    let waits = json!({ "state": "waiting" });
    let list: SessionList = client.call("sessions.list", waits).await?;
    assert_eq!(list.sessions.len(), 1, "{list:?}");
    assert_eq!(list.sessions[0].title.as_deref(), Some("go"));
    let session = approval.action.session.to_string();
    let shown = home.run(&["sessions", "show", &session]).await?.out;
    let command = format!("`clawnode approvals approve {}`", approval.action.call);
    assert!(shown.contains(&command) && !shown.contains("failed"), "{shown}");
    Ok(())
}

async fn decide(
    client: &Client,
    what: &str,
    approval: &Approval,
) -> Result<Approval, ProcessError> {
    let params = json!({ "call": approval.action.call, "action": approval.digest });
    client.call(&format!("approvals.{what}"), params).await
}

/// APR-1.
#[tokio::test]
async fn what_writes_waits_for_a_person_and_runs_once() -> Outcome {
    let scene = Scene::new([asks(), Act::say("done")], "").await;
    let node = Node::up(&scene.home).await?;
    let client = node.client()?;
    let mut turn = client.send(&Message::new("ada", "go")).await?;
    let request = until(&mut turn, "approval_request").await?.data;
    assert_eq!((&request["name"], &request["risk"]), (&json!("effect_asked"), &json!("WRITE")));
    assert_eq!(request["arguments"], r#"{"what":"push"}"#);
    let approval = waiting(&client).await?;
    assert_eq!(request["action"], approval.digest.to_string());
    assert_eq!(scene.effects(), 0, "nothing runs before it is approved");
    shown_as_waiting(&scene.home, &client, &approval).await?;
    // A double click: both are heard, and one counts.
    let (one, two) =
        tokio::join!(decide(&client, "approve", &approval), decide(&client, "approve", &approval));
    assert!(one.is_ok() || two.is_ok());
    let told = result(&mut turn).await?;
    assert_eq!(told["is_error"], false, "{told}");
    assert_eq!(scene.effects(), 1);
    let late = decide(&client, "deny", &approval).await.unwrap_err();
    let code = late.refusal().unwrap().code.as_str();
    assert!(["conflict", "not_found"].contains(&code), "{late}");
    let list: ApprovalList = client.call("approvals.list", json!({})).await?;
    assert!(list.approvals.is_empty());
    node.stop().await
}

#[tokio::test]
async fn a_denied_call_never_runs_and_the_model_is_told_why() -> Outcome {
    let scene = Scene::new([asks(), Act::say("I see")], "").await;
    let node = Node::up(&scene.home).await?;
    let client = node.client()?;
    let mut turn = client.send(&Message::new("ada", "go")).await?;
    until(&mut turn, "approval_request").await?;
    let approval = waiting(&client).await?;
    let params = json!({
        "call": approval.action.call, "action": approval.digest, "reason": "not on a Friday"
    });
    let _: Approval = client.call("approvals.deny", params).await?;
    let told = result(&mut turn).await?;
    assert_eq!(told["failure"], "refused");
    assert!(told["content"].as_str().unwrap().contains("not on a Friday"), "{told}");
    assert_eq!(scene.effects(), 0);
    node.stop().await
}

/// S-25: a decision about another action is none.
#[tokio::test]
async fn s_25_a_decision_about_another_action_is_refused() -> Outcome {
    let scene = Scene::new([asks(), Act::say("done")], "").await;
    let node = Node::up(&scene.home).await?;
    let client = node.client()?;
    let mut turn = client.send(&Message::new("ada", "go")).await?;
    until(&mut turn, "approval_request").await?;
    let approval = waiting(&client).await?;
    let digest = approval.digest.to_string();
    for at in [0, 31, 63] {
        let flipped = if digest.as_bytes()[at] == b'0' { "1" } else { "0" };
        let mut other = digest.clone();
        other.replace_range(at..=at, flipped);
        let params = json!({ "call": approval.action.call, "action": other });
        let refused = client.call::<Approval>("approvals.approve", params).await.unwrap_err();
        assert_eq!(refused.refusal().unwrap().code.as_str(), "conflict", "{refused}");
    }
    assert_eq!(scene.effects(), 0);
    decide(&client, "approve", &approval).await?;
    assert_eq!(result(&mut turn).await?["is_error"], false);
    assert_eq!(scene.effects(), 1);
    node.stop().await
}

/// APR-3: the end of the wait refuses.
#[tokio::test]
async fn time_never_approves() -> Outcome {
    let scene = Scene::new([asks(), Act::say("well")], "approval_wait = \"1s\"\n").await;
    let node = Node::up(&scene.home).await?;
    let client = node.client()?;
    let mut turn = client.send(&Message::new("ada", "go")).await?;
    let told = result(&mut turn).await?;
    assert_eq!(told["failure"], "refused");
    assert!(told["content"].as_str().unwrap().contains("no person decided in time"), "{told}");
    assert_eq!(scene.effects(), 0);
    node.stop().await
}

/// S-25: killed while it waits, and killed right after the approval: it runs once.
#[tokio::test]
async fn s_25_a_wait_for_a_person_survives_its_process() -> Outcome {
    let scene = Scene::new([asks(), Act::say("done")], "").await;
    let node = Node::up(&scene.home).await?;
    let message = Message::new("ada", "go");
    let mut turn = node.client()?.send(&message).await?;
    until(&mut turn, "approval_request").await?;
    let before = waiting(&node.client()?).await?;
    node.kill().await?;

    let node = Node::up(&scene.home).await?;
    let client = node.client()?;
    let approval = waiting(&client).await?;
    assert_eq!(approval, before, "what is asked does not change");
    // A client that comes back is asked again, also if no process had the session in memory.
    let mut again = client.resume_from(&turn).await?;
    let request = until(&mut again, "approval_request").await?.data;
    assert_eq!(request["action"], approval.digest.to_string());
    decide(&client, "approve", &approval).await?;
    node.kill().await?;

    let node = Node::up(&scene.home).await?;
    let history = node.client()?.finished(&message.session(), 1).await?;
    assert!(matches!(history.turns[0].outcome, Some(TurnOutcome::Completed { .. })));
    assert!(said(&history.turns[0]).contains(&"done".to_owned()));
    assert!(scene.effects() <= 1, "at most once");
    node.stop().await
}

#[tokio::test]
async fn rules_decide_before_people_do() -> Outcome {
    let rules = "[[agents.default.rules]]\ntool = \"effect_*\"\narguments = { what = \"push\" }\n\
                 verdict = \"deny\"\nreason = \"pushes are off\"\n\
                 [[agents.default.rules]]\ntool = \"effect_asked\"\nverdict = \"allow\"\n\
                 [[agents.default.rules]]\ntool = \"calculate\"\nverdict = \"ask\"\n";
    let pull = Act::tools([("effect_asked", json!({ "what": "pull" }))]);
    // What is denied is denied in every spelling.
    let spelled = Act::tools([("effect_asked", json!({ "what": "./push" }))]);
    let scene = Scene::new([asks(), spelled, pull, Act::say("done")], rules).await;
    let node = Node::up(&scene.home).await?;
    let client = node.client()?;
    let mut turn = client.send(&Message::new("ada", "go")).await?;
    for _ in 0..2 {
        let denied = until(&mut turn, "tool_result").await?.data;
        assert_eq!(denied["failure"], "refused");
        assert!(denied["content"].as_str().unwrap().contains("pushes are off"), "{denied}");
    }
    let allowed = result(&mut turn).await?;
    assert_eq!(allowed["is_error"], false, "{allowed}");
    assert_eq!(scene.effects(), 1);
    for (action, arguments, verdict) in [
        ("effect_asked", json!({ "what": "push" }), "deny"),
        ("effect_asked", json!({ "what": ".//push" }), "deny"),
        ("effect_asked", json!({ "what": "a/../push" }), "deny"),
        ("effect_asked", json!({}), "allow"),
        ("calculate", json!({ "expression": "1" }), "ask"),
        ("effect_safe", json!({}), "allow"),
    ] {
        let params = json!({ "action": action, "context": { "arguments": arguments } });
        let view: Value = client.call("policy.check", params).await?;
        assert_eq!(view["verdict"], verdict, "{action}: {view}");
        assert_eq!(view["allowed"], verdict != "deny", "{view}");
        assert_eq!(view["requires_approval"], verdict == "ask", "{view}");
    }
    node.stop().await
}

/// A command that the operator has listed as read-only needs no approval; with anything more in its
/// line, a person is asked as about any other.
#[tokio::test]
async fn a_command_that_only_looks_asks_nobody() -> Outcome {
    let run = |line: &str| Act::tools([("run_command", json!({ "command": line }))]);
    let acts = [run("echo looked"), run("echo looked; echo more"), Act::say("done")];
    let server = ModelServer::start(Script::queue(acts)).await.unwrap();
    let home = Home::new(TestBackend::Local).unwrap().anthropic(&server);
    let settings = home.path().join(".config/clawnode");
    std::fs::create_dir_all(&settings).unwrap();
    let config = "[agents.default]\ntools = [\"run_command\"]\n[sandbox]\nrun_in = \"process\"\n\
                  [tools.run_command]\nread_only = [\"echo *\"]\n";
    std::fs::write(settings.join("config.toml"), config).unwrap();
    let node = Node::up(&home).await?;
    let client = node.client()?;
    let mut turn = client.send(&Message::new("ada", "go")).await?;
    let looked = until(&mut turn, "tool_result").await?.data;
    assert_eq!((&looked["content"], &looked["failure"]), (&json!("looked\n"), &Value::Null));
    let asked = waiting(&client).await?;
    assert!(asked.action.arguments.contains("; echo more"), "{asked:?}");
    for (line, verdict, risk) in [
        ("echo a", "allow", "READ_ONLY"),
        ("echo a && echo b", "ask", "WRITE"),
        ("echo $HOME", "ask", "WRITE"),
    ] {
        let arguments = json!({ "command": line });
        let params = json!({ "action": "run_command", "context": { "arguments": arguments } });
        let view: Value = client.call("policy.check", params).await?;
        assert_eq!(
            (&view["verdict"], &view["risk_level"]),
            (&json!(verdict), &json!(risk)),
            "{line}"
        );
    }
    let unknown = json!({ "action": "git_status" });
    let refused = client.call::<Value>("policy.check", unknown).await.unwrap_err().to_string();
    assert!(refused.contains("unknown action `git_status`"), "{refused}");
    decide(&client, "deny", &asked).await?;
    turn.completed().await?;
    node.stop().await
}

#[tokio::test]
async fn a_turn_that_has_used_up_its_steps_may_be_given_more() -> Outcome {
    let step = || Act::tools([("calculate", json!({ "expression": "1+1" }))]);
    let other = || Act::tools([("calculate", json!({ "expression": "2+2" }))]);
    let acts = [step(), other(), Act::say("done at last")];
    let scene = Scene::new(acts, "step_limit = 2\nstep_wait = \"1m\"\n").await;
    let node = Node::up(&scene.home).await?;
    let client = node.client()?;
    let message = Message::new("ada", "go");
    let mut turn = client.send(&message).await?;
    let notice = until(&mut turn, "notice").await?.data;
    assert_eq!(notice["name"], "stepLimitReached", "{notice}");
    let view: Value = client.call("chat.continue", json!({ "session": message.session() })).await?;
    assert_eq!(view["steps"], 25);
    assert_eq!(turn.completed().await?, "done at last");
    let again = client.call::<Value>("chat.continue", json!({ "session": message.session() }));
    assert_eq!(again.await.unwrap_err().refusal().unwrap().code.as_str(), "conflict");
    node.stop().await
}

#[tokio::test]
async fn a_turn_that_is_given_no_more_steps_ends_with_what_it_has() -> Outcome {
    let act = Act::tools([("calculate", json!({ "expression": "1+1" }))]);
    let scene = Scene::new([act], "step_limit = 1\nstep_wait = \"1s\"\n").await;
    let node = Node::up(&scene.home).await?;
    let message = Message::new("ada", "go");
    drop(node.client()?.send(&message).await?);
    let history = node.client()?.finished(&message.session(), 1).await?;
    assert_eq!(history.turns[0].outcome, Some(TurnOutcome::StepLimit { limit: 1 }));
    node.stop().await
}

/// Who answers in the moment in which they are asked is heard, whichever call it is about.
#[tokio::test]
async fn an_answer_may_come_at_once() -> Outcome {
    const TURNS: usize = 10;
    let both = || {
        Act::tools([
            ("effect_asked", json!({ "what": "one" })),
            ("effect_asked", json!({ "what": "two" })),
        ])
    };
    let acts = (0..TURNS).flat_map(|_| [both(), Act::say("done")]);
    let scene = Scene::new(acts, "").await;
    let node = Node::up(&scene.home).await?;
    let client = node.client()?;
    for number in 0..TURNS {
        let mut turn = client.send(&Message::new("ada", &format!("go {number}"))).await?;
        for _ in 0..2 {
            let asked = until(&mut turn, "approval_request").await?.data;
            let params = json!({ "call": asked["id"], "action": asked["action"] });
            let approval: Approval = client.call("approvals.approve", params).await?;
            assert_eq!(approval.decided.unwrap().decision, Decision::Approve);
        }
        while turn.next().await?.event != "done" {}
    }
    assert_eq!(scene.effects(), 2 * TURNS);
    node.stop().await
}

/// Of many who decide at once, one decision counts, and each learns whether it is theirs.
#[tokio::test]
async fn who_decides_is_told_what_counts() -> Outcome {
    const ROUNDS: usize = 3;
    let acts = (0..ROUNDS).flat_map(|_| [asks(), Act::say("done")]);
    let scene = Scene::new(acts, "").await;
    let node = Node::up(&scene.home).await?;
    let client = node.client()?;
    let mut approved = 0;
    for number in 0..ROUNDS {
        let mut turn = client.send(&Message::new("ada", &format!("go {number}"))).await?;
        until(&mut turn, "approval_request").await?;
        let approval = waiting(&client).await?;
        let said = (0..20).map(|at| if at % 2 == 0 { "approve" } else { "deny" });
        let said: Vec<&str> = said.collect();
        let answers = said.iter().map(|what| decide(&client, what, &approval));
        let answers = futures_util::future::join_all(answers).await;
        let ran = result(&mut turn).await?["is_error"] == false;
        approved += usize::from(ran);
        let counts = if ran { Decision::Approve } else { Decision::Deny };
        for (what, answer) in said.into_iter().zip(answers) {
            let agrees = what == counts.as_str();
            match answer {
                Ok(answer) => {
                    assert!(agrees, "`{what}` was taken, and `{}` counts", counts.as_str());
                    assert_eq!(answer.decided.unwrap().decision, counts);
                }
                Err(refused) => {
                    let code = refused.refusal().unwrap().code.as_str();
                    // The turn may be over, and nothing of it left, before the last is read.
                    assert!(["conflict", "not_found"].contains(&code), "{refused}");
                }
            }
        }
    }
    assert_eq!(scene.effects(), approved);
    node.stop().await
}

/// A frame that has not all of the arguments says so; what is asked about is shown whole.
#[tokio::test]
async fn what_is_cut_is_said_to_be() -> Outcome {
    let what = format!("{}; and then the tail", "A".repeat(5_000));
    let long = Act::tools([("effect_asked", json!({ "what": what }))]);
    let scene = Scene::new([long, Act::say("I see")], "").await;
    let node = Node::up(&scene.home).await?;
    let client = node.client()?;
    let mut turn = client.send(&Message::new("ada", "go")).await?;
    let asked = until(&mut turn, "approval_request").await?.data;
    let whole = json!({ "what": what }).to_string();
    assert_eq!((&asked["truncated"], &asked["chars"]), (&json!(true), &json!(whole.len())));
    assert!(!asked["arguments"].as_str().unwrap().contains("tail"));
    let approval: Approval = client.call("approvals.show", json!({ "call": asked["id"] })).await?;
    assert_eq!(approval.action.arguments, whole);
    assert_eq!(asked["action"], approval.action.digest().unwrap().to_string());
    let _: Approval = decide(&client, "deny", &approval).await?;
    while turn.next().await?.event != "done" {}
    node.stop().await
}

/// A call that a model writes in two ways at once is none, and the model learns that.
#[tokio::test]
async fn arguments_with_a_name_twice_never_run() -> Outcome {
    let twice = ToolCall::new("effect_asked", r#"{"what":"harmless","what":"EVIL"}"#);
    let padded = ToolCall::new("effect_asked", "{\n\n\n\n \"what\" : \"push\"\n}");
    let acts = [Act::tools([twice]), Act::tools([padded]), Act::say("done")];
    let scene = Scene::new(acts, "").await;
    let node = Node::up(&scene.home).await?;
    let client = node.client()?;
    let mut turn = client.send(&Message::new("ada", "go")).await?;
    let told = until(&mut turn, "tool_result").await?.data;
    assert_eq!(told["failure"], "invalid", "{told}");
    assert!(told["content"].as_str().unwrap().contains("two fields are called `what`"), "{told}");
    let asked = until(&mut turn, "approval_request").await?.data;
    assert_eq!(asked["arguments"], r#"{"what":"push"}"#);
    let approval = waiting(&client).await?;
    assert_eq!(approval.action.arguments, r#"{"what":"push"}"#);
    decide(&client, "approve", &approval).await?;
    assert_eq!(result(&mut turn).await?["is_error"], false);
    assert_eq!(scene.effects(), 1);
    node.stop().await
}

/// People could not tell two sessions apart whose names look the same.
#[tokio::test]
async fn a_session_that_looks_like_another_is_not_begun() -> Outcome {
    let scene = Scene::new([], "").await;
    let node = Node::up(&scene.home).await?;
    let client = node.client()?;
    for hidden in ["\u{200b}", "\u{202e}", "\u{feff}", "\u{2066}", "\u{e0041}", "\u{3164}"] {
        let message = Message::new(&format!("ad{hidden}a"), "go");
        let refused = match client.send(&message).await {
            Ok(mut turn) => turn.next().await.map(|frame| frame.data.to_string()),
            Err(refused) => Ok(refused.to_string()),
        };
        assert!(refused?.contains("invisible characters"), "{}", hidden.escape_unicode());
        // One that there is from before can be read.
        let gone = client.history(&message.session()).await.unwrap_err();
        assert_eq!(gone.refusal().unwrap().code.as_str(), "not_found");
    }
    node.stop().await
}
