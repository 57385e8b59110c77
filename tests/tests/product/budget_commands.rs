//! Limits of spending as people set, see and raise them.

use bytes::Bytes;
use clawnode_cluster::{AppendAnswer, Write};
use clawnode_proto::{
    Position,
    budget::{
        AccountKey, AccountView, BudgetExplainView, BudgetList, BudgetUnit, CallForecast,
        LimitOrigin, LimitState,
    },
    model::ModelTest,
    view::{EventView, StatusView, TurnView},
};
use clawnode_tests::{
    journals::writable,
    model::{Act, ModelServer, Script, Setup},
    process::{Client, Home, Message, Node, ProcessError, TestBackend},
};
use serde_json::{Value, json};

use super::Outcome;

/// An account once this is so.
async fn shown(
    client: &Client,
    account: &str,
    is_so: impl Fn(&AccountView) -> bool,
) -> Result<AccountView, ProcessError> {
    client.call_when("budget.show", json!({ "account": account }), is_so).await
}

/// A turn of this peer that comes before there is a limit.
async fn warms_up(client: &Client, peer: &str) -> Outcome {
    client.chat(&Message::new(peer, "zero")).await.map(drop)
}

/// Waits until calls count in the limits that were set: workers hear of them a moment later.
async fn limited(client: &Client, peer: &str) -> Outcome {
    let is_limited = |view: &BudgetExplainView| !view.limits.is_empty();
    let session = json!({ "session": Message::new(peer, "").session() });
    client.call_when::<BudgetExplainView>("budget.explain", session, is_limited).await.map(drop)
}

/// A limit of calls that is used up, seen, explained and raised.
async fn a_limit_is_reached_and_raised(home: &Home, _server: &ModelServer) -> Outcome {
    let node = Node::up(home).await?;
    let client = node.client()?;
    warms_up(&client, "eve").await?;
    let set =
        ["budget", "set", "agent:default", "--loops-per-day", "2", "--ask-at", "100", "--json"];
    let ended = home.run(&set).await?;
    assert_eq!(ended.json()?["origin"], json!("person"), "{ended:?}");
    limited(&client, "eve").await?;
    for text in ["one", "two"] {
        client.chat(&Message::new("ada", text)).await?;
    }
    let view = shown(&client, "agent:default", |account| account.limits[0].spent == 2).await?;
    assert_eq!((view.origin, view.limits[0].state), (LimitOrigin::Person, LimitState::Spent));
    assert!(view.set_by.is_some_and(|by| by.starts_with("operator at ")), "who set it is known");

    // Why the next call cannot be made.
    let session = Message::new("ada", "").session();
    let explained: BudgetExplainView =
        client.call("budget.explain", json!({ "session": session })).await?;
    assert!(!explained.possible);
    let hinders =
        explained.limits.iter().find(|limit| limit.forecast == CallForecast::Bankrupt).unwrap();
    assert_eq!(hinders.account.to_string(), "agent:default");
    let raise = "clawnode budget set agent:default --loops-per-day 4";
    assert!(hinders.why.contains(raise), "{}", hinders.why);
    let spent =
        |status: &StatusView| status.warnings.iter().any(|warning| warning.name == "budgets.spent");
    client.call_when("status", json!({}), spent).await?;

    // As it says.
    let words: Vec<&str> = raise.split(' ').skip(1).collect();
    let ended = home.run(&words).await?;
    assert_eq!(ended.code, 0, "{ended:?}");
    client.chat(&Message::new("ada", "three")).await?;
    let view = shown(&client, "agent:default", |account| account.limits[0].spent == 3).await?;
    assert_eq!(view.changes.len(), 2, "{view:?}");

    // Only that account's own limits go.
    let list: BudgetList = client.call("budget.list", json!({})).await?;
    assert!(list.accounts.iter().any(|row| row.account.to_string() == "agent:default"), "{list:?}");
    let ended = home.run(&["budget", "reset", "agent:default"]).await?;
    assert_eq!(ended.code, 0, "{ended:?}");
    let list: BudgetList = client.call("budget.list", json!({})).await?;
    assert!(list.accounts.iter().all(|row| row.account.to_string() != "agent:default"), "{list:?}");

    let wrong: Result<Value, _> =
        client.call("budget.show", json!({ "account": "agent:defualt" })).await;
    assert!(wrong.unwrap_err().to_string().contains("`agent:defualt` has no limits"));
    let ended = home.run(&["budget", "set", "agent:defualt", "--usd-per-day", "1"]).await?;
    assert!(ended.err.contains("did you mean `agent:default`?"), "{ended:?}");
    let ended = home.run(&["budget", "set", "cluster", "--usd-per-day", "-1"]).await?;
    assert_eq!(ended.code, 2, "{ended:?}");
    assert!(ended.err.contains("`--usd-per-day`: `-1` is not an amount in USD"), "{ended:?}");
    node.stop().await
}

#[tokio::test]
async fn bud_5_a_limit_is_reached_explained_and_raised() -> Outcome {
    let says = ["zero", "a", "b", "c"].map(Act::say);
    let (server, home) = super::scene(Script::queue(says)).await;
    a_limit_is_reached_and_raised(&home, &server).await
}

/// A limit that is larger than what the tests spend.
fn large_limit() -> Value {
    let limit = json!({ "unit": "tokens", "window": "month", "amount": "10000000" });
    json!({ "account": "cluster", "limits": [limit] })
}

/// What a turn has used.
fn used(turn: &TurnView) -> u64 {
    turn.usage.input_tokens + turn.usage.output_tokens
}

/// No other process can be alive where a node has its data directory for itself. So what its killed processes had comes back by
/// itself, but for what a call may have cost that was under way.
#[tokio::test]
async fn c20_a_node_that_runs_alone_gets_back_what_its_killed_processes_had() -> Outcome {
    let acts = [Act::say("zero"), Act::say("a"), Act::Stall, Act::say("b")];
    let (server, home) = super::scene(Script::queue(acts)).await;
    let node = Node::up(&home).await?;
    let client = node.client()?;
    warms_up(&client, "eve").await?;
    let _set: AccountView = client.call("budget.set", large_limit()).await?;
    limited(&client, "eve").await?;
    client.chat(&Message::new("ada", "one")).await?;
    let message = Message { key: "two".to_owned(), ..Message::new("ada", "two") };
    drop(client.send(&message).await?);
    server.asked(3).await;
    node.kill().await?;

    let mut node = Node::up(&home).await?;
    let client = node.client()?;
    let history = client.finished(&message.session(), 2).await?;
    let events: Vec<EventView> = client.journal(&message.session()).await?;
    let of_call = |event: &&EventView| event.kind == "budget_held" && event.body["attempt"] == 1;
    let lost = events.iter().rfind(of_call).unwrap();
    let lost = lost.body["holds"][0]["amount"].as_u64().unwrap();
    let spent = history.turns.iter().map(used).sum::<u64>() + lost;
    let is_back = |account: &AccountView| {
        let limit = &account.limits[0];
        limit.spent == spent && limit.holders.iter().all(|holder| !holder.dead)
    };
    shown(&client, "cluster", is_back).await?;
    // However often it is killed.
    for _ in 0..2 {
        node.kill().await?;
        node = Node::up(&home).await?;
        shown(&node.client()?, "cluster", is_back).await?;
    }
    node.stop().await
}

/// An account whose journal is damaged keeps no other account from getting back what killed processes had.
#[tokio::test]
async fn c20_a_damaged_account_keeps_no_other_from_getting_its_budget_back() -> Outcome {
    let (_server, home) = super::scene(Script::queue(["zero", "a"].map(Act::say))).await;
    let node = Node::up(&home).await?;
    let client = node.client()?;
    warms_up(&client, "eve").await?;
    let limits = large_limit();
    // This one is read first.
    let of_agent = json!({ "account": "agent:default", "limits": limits["limits"] });
    for set in [limits, of_agent] {
        let _set: AccountView = client.call("budget.set", set).await?;
    }
    let session = json!({ "session": Message::new("eve", "").session() });
    let both = |view: &BudgetExplainView| view.limits.len() == 2;
    let _: BudgetExplainView = client.call_when("budget.explain", session, both).await?;
    let message = Message::new("ada", "one");
    client.chat(&message).await?;
    let spent: u64 = client.finished(&message.session(), 1).await?.turns.iter().map(used).sum();
    shown(&client, "cluster", |account| account.limits[0].spent == spent).await?;
    node.kill().await?;

    let (storage, control) = writable(&home.data()).await.unwrap();
    let account = AccountKey::Agent("default".parse().unwrap()).entity();
    let records = storage.journal.read(account, Position(0)).await.unwrap();
    let write = Write { bytes: Bytes::from_static(b"damaged"), rollup: false };
    let at = records.last().unwrap().position;
    let answer = storage.journal.append(account, at, write).await;
    assert!(matches!(answer, AppendAnswer::Stored(_)), "{answer:?}");
    storage.health.close().await;
    drop((storage, control));

    let node = Node::up(&home).await?;
    let client = node.client()?;
    let shows = client.call::<AccountView>("budget.show", json!({ "account": "agent:default" }));
    assert!(shows.await.is_err(), "its account is damaged");
    let is_back = |account: &AccountView| {
        let limit = &account.limits[0];
        limit.spent == spent && limit.holders.iter().all(|holder| !holder.dead)
    };
    shown(&client, "cluster", is_back).await?;
    node.stop().await
}

/// A process that has made calls without a session leaves a part of a limit, which comes back by an operator's word: no
/// journal has all that it spent.
#[tokio::test]
async fn bud_6_what_a_dead_process_has_is_named_and_given_back() -> Outcome {
    let (server, home) = super::scene(Script::queue(["zero", "a", "b", "c"].map(Act::say))).await;
    let node = Node::up(&home).await?;
    let client = node.client()?;
    warms_up(&client, "ada").await?;
    let _set: AccountView = client.call("budget.set", large_limit()).await?;
    limited(&client, "ada").await?;
    client.chat(&Message::new("ada", "one")).await?;
    let before = shown(&client, "cluster", |account| account.limits[0].spent > 0).await?;
    let model = json!({ "model": "anthropic/claude-sonnet-4-5" });
    let tested: ModelTest = client.call("models.test", model).await?;
    assert!(tested.error.is_none(), "{tested:?}");
    let spent = before.limits[0].spent;
    shown(&client, "cluster", |account| account.limits[0].spent > spent).await?;
    node.kill().await?;

    let node = Node::up(&home).await?;
    let client = node.client()?;
    let before = shown(&client, "cluster", |account| account.limits[0].stranded > 0).await?;
    let name =
        before.limits[0].holders.iter().find(|holder| holder.dead).unwrap().node.clone().unwrap();
    let reconcile = ["budget", "reconcile", "cluster", "--node", name.as_str(), "--json"];
    let ended = home.run(&reconcile).await?;
    assert_eq!(ended.code, 2, "it is not confirmed: {ended:?}");
    let ended = home.run(&[&reconcile[..], &["--gone"]].concat()).await?;
    let closed = ended.json()?;
    assert_eq!(closed["sessions"], json!(1), "{ended:?}");
    let after = shown(&client, "cluster", |account| account.limits[0].stranded == 0).await?;
    assert_eq!(after.limits[0].spent, before.limits[0].spent, "its calls were reported");
    // What is made later has a journal.
    client.chat(&Message { key: "two".to_owned(), ..Message::new("ada", "two") }).await?;
    let spent = after.limits[0].spent;
    shown(&client, "cluster", |account| account.limits[0].spent > spent).await?;
    node.kill().await?;
    let node = Node::up(&home).await?;
    let is_back = |account: &AccountView| account.limits[0].holders.iter().all(|one| !one.dead);
    shown(&node.client()?, "cluster", is_back).await?;
    drop(server);
    node.stop().await
}

/// What is spent, and who set the limit, is a part of the data that a backup keeps.
#[tokio::test]
async fn bud_7_a_backup_keeps_what_is_spent() -> Outcome {
    let (server, home) = super::scene(Script::queue(["zero", "a", "b"].map(Act::say))).await;
    let node = Node::up(&home).await?;
    let client = node.client()?;
    warms_up(&client, "eve").await?;
    let set = json!({
        "account": "agent:default",
        "limits": [{ "unit": "loops", "window": "forever", "amount": "2", "ask_at": 100 }],
    });
    let _set: AccountView = client.call("budget.set", set).await?;
    limited(&client, "eve").await?;
    client.chat(&Message::new("ada", "one")).await?;
    let before = shown(&client, "agent:default", |account| account.limits[0].spent == 1).await?;
    node.stop().await?;
    let file = home.path().join("kept.tar");
    let file = file.to_str().unwrap();
    assert_eq!(home.run(&["backup", file]).await?.code, 0);

    let other = Home::new(TestBackend::Local)?.anthropic(&server);
    assert_eq!(other.run(&["restore", file]).await?.code, 0);
    let verified = other.run(&["journal", "verify"]).await?;
    assert_eq!(verified.code, 0, "{verified:?}");
    let node = Node::up(&other).await?;
    let client = node.client()?;
    let after = shown(&client, "agent:default", |_| true).await?;
    assert_eq!(
        (after.origin, after.set_by, after.set_at),
        (before.origin, before.set_by, before.set_at)
    );
    assert_eq!(
        (after.limits[0].spent, after.limits[0].left),
        (1, 1),
        "an orderly end leaves nothing"
    );
    client.chat(&Message::new("ada", "two")).await?;
    shown(&client, "agent:default", |account| account.limits[0].state == LimitState::Spent).await?;
    node.stop().await
}

/// What costs money and is no turn does not pass by a limit: no request leaves for which too little is left.
#[tokio::test]
async fn bud_8_embeddings_count_in_the_limits_of_the_cluster() -> Outcome {
    let setup = Setup { api_key: Some(Home::key().to_owned()), ..Setup::default() };
    let server = ModelServer::start(setup).await.unwrap();
    let home = Home::new(TestBackend::Local)?
        .openai(&server)
        .var("CLAWNODE_EMBEDDINGS__MODELS", "openai/embedder");
    let node = Node::up(&home).await?;
    let client = node.client()?;
    let message = Message::new("ada", "one");
    client.chat(&message).await?;
    let set = json!({
        "account": "cluster",
        "limits": [
            { "unit": "tokens", "window": "forever", "amount": "100", "ask_at": 100 },
            { "unit": "loops", "window": "forever", "amount": "0", "ask_at": 100 },
        ],
    });
    let _set: AccountView = client.call("budget.set", set).await?;
    // Workers hear of a limit a moment later.
    let is_limited = |view: &BudgetExplainView| !view.limits.is_empty();
    let session = json!({ "session": message.session() });
    let _: BudgetExplainView = client.call_when("budget.explain", session, is_limited).await?;
    let asked = server.count();
    let embed = async |text: &str| {
        let url = format!("{}/v1/embeddings", client.url());
        let request = reqwest::Client::new().post(url).bearer_auth(client.token());
        let body = json!({ "model": "openai/embedder", "input": [text] });
        let response = request.json(&body).send().await.unwrap();
        (response.status().as_u16(), response.json::<Value>().await.unwrap())
    };
    let (status, answer) = embed("one two three").await;
    assert_eq!(status, 200, "it makes no loop: {answer}");
    let tokens = |account: &AccountView| {
        account.limits.iter().find(|limit| limit.unit == BudgetUnit::Tokens).cloned()
    };
    shown(&client, "cluster", |account| tokens(account).is_some_and(|limit| limit.spent == 3))
        .await?;
    let (status, answer) = embed(&"word ".repeat(100)).await;
    assert_eq!((status, server.count()), (429, asked + 1), "{answer}");
    assert!(
        answer["error"]["message"].as_str().unwrap().contains("token budget exceeded"),
        "{answer}"
    );
    let (status, _) = embed("four").await;
    assert_eq!(status, 200, "what was refused took nothing");
    node.stop().await
}

/// A test of a model sends a real request, so no request leaves for which too little is left.
#[tokio::test]
async fn bud_9_a_test_of_a_model_counts_in_the_limits_of_the_cluster() -> Outcome {
    let (server, home) = super::scene(Script::default()).await;
    let node = Node::up(&home).await?;
    let client = node.client()?;
    let message = Message::new("ada", "one");
    client.chat(&message).await?;
    let set = |amount: &str| {
        let limit =
            json!({ "unit": "tokens", "window": "forever", "amount": amount, "ask_at": 100 });
        json!({ "account": "cluster", "limits": [limit] })
    };
    let _set: AccountView = client.call("budget.set", set("10000")).await?;
    let is_limited = |view: &BudgetExplainView| !view.limits.is_empty();
    let session = json!({ "session": message.session() });
    let _: BudgetExplainView = client.call_when("budget.explain", session, is_limited).await?;
    let model = json!({ "model": "anthropic/claude-sonnet-4-5" });
    let tested: ModelTest = client.call("models.test", model.clone()).await?;
    let used = tested.usage.input_tokens + tested.usage.output_tokens;
    assert!(tested.error.is_none() && used > 0, "{tested:?}");
    shown(&client, "cluster", |account| account.limits[0].spent == used).await?;
    // Less than a test may need.
    let _set: AccountView = client.call("budget.set", set("4000")).await?;
    let asked = server.count();
    let refused = client.call::<Value>("models.test", model).await.expect_err("it is too much");
    assert_eq!(refused.refusal().map(|body| body.code.as_str()), Some("bankrupt"), "{refused}");
    assert!(refused.to_string().contains("token budget exceeded"), "{refused}");
    assert_eq!(server.count(), asked, "no request has left");
    node.stop().await
}
