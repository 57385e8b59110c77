//! Limits of spending as people set, see and raise them.

use clawnode_proto::{
    budget::{AccountView, BudgetExplainView, BudgetList, CallForecast, LimitOrigin, LimitState},
    view::StatusView,
};
use clawnode_tests::{
    model::{Act, ModelServer, Script},
    process::{Client, Home, Message, Node, ProcessError},
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

/// A limit of calls that is used up, seen, explained and raised.
async fn a_limit_is_reached_and_raised(home: &Home, _server: &ModelServer) -> Outcome {
    let node = Node::up(home).await?;
    let client = node.client()?;
    let set =
        ["budget", "set", "agent:default", "--loops-per-day", "2", "--ask-at", "100", "--json"];
    let ended = home.run(&set).await?;
    assert_eq!(ended.json()?["origin"], json!("person"), "{ended:?}");
    for text in ["one", "two"] {
        client.chat(&Message::new("ada", text)).await?;
    }
    let view = shown(&client, "agent:default", |it| it.limits[0].spent == 2).await?;
    assert_eq!((view.origin, view.limits[0].state), (LimitOrigin::Person, LimitState::Spent));
    assert!(view.set_by.is_some_and(|by| by.starts_with("operator at ")), "who set it is known");

    // Why the next call cannot be made.
    let session = Message::new("ada", "").session();
    let explained: BudgetExplainView =
        client.call("budget.explain", json!({ "session": session })).await?;
    assert!(!explained.possible);
    let hinders = explained.limits.iter().find(|it| it.forecast == CallForecast::Bankrupt).unwrap();
    assert_eq!(hinders.account.to_string(), "agent:default");
    let raise = "clawnode budget set agent:default --loops-per-day 4";
    assert!(hinders.why.contains(raise), "{}", hinders.why);
    let spent = |status: &StatusView| status.warnings.iter().any(|it| it.name == "budgets.spent");
    client.call_when("status", json!({}), spent).await?;

    // As it says.
    let words: Vec<&str> = raise.split(' ').skip(1).collect();
    let ended = home.run(&words).await?;
    assert_eq!(ended.code, 0, "{ended:?}");
    client.chat(&Message::new("ada", "three")).await?;
    let view = shown(&client, "agent:default", |it| it.limits[0].spent == 3).await?;
    assert_eq!(view.changes.len(), 2, "{view:?}");

    // Only that account's own limits go.
    let list: BudgetList = client.call("budget.list", json!({})).await?;
    assert!(list.accounts.iter().any(|it| it.account.to_string() == "agent:default"), "{list:?}");
    let ended = home.run(&["budget", "reset", "agent:default"]).await?;
    assert_eq!(ended.code, 0, "{ended:?}");
    let list: BudgetList = client.call("budget.list", json!({})).await?;
    assert!(list.accounts.iter().all(|it| it.account.to_string() != "agent:default"), "{list:?}");

    let wrong: Result<Value, _> =
        client.call("budget.show", json!({ "account": "agent:defualt" })).await;
    assert!(wrong.unwrap_err().to_string().contains("`agent:defualt` has no limits"));
    let ended = home.run(&["budget", "set", "agent:defualt", "--usd-per-day", "1"]).await?;
    assert!(ended.err.contains("did you mean `agent:default`?"), "{ended:?}");
    let ended = home.run(&["budget", "set", "cluster", "--usd-per-day", "-1"]).await?;
    assert_ne!(ended.code, 0, "{ended:?}");
    node.stop().await
}

#[tokio::test]
async fn bud_5_a_limit_is_reached_explained_and_raised() -> Outcome {
    let says = ["a", "b", "c"].map(Act::say);
    let (server, home) = super::scene(Script::queue(says)).await;
    a_limit_is_reached_and_raised(&home, &server).await
}

/// A process that is killed leaves a part of a limit, which comes back by an operator's word.
#[tokio::test]
async fn bud_6_what_a_dead_process_has_is_named_and_given_back() -> Outcome {
    let (server, home) = super::scene(Script::queue(["a", "b"].map(Act::say))).await;
    let node = Node::up(&home).await?;
    let client = node.client()?;
    let set = json!({
        "account": "cluster",
        "limits": [{ "unit": "tokens", "window": "month", "amount": "10000000" }],
    });
    let _set: AccountView = client.call("budget.set", set).await?;
    client.chat(&Message::new("ada", "one")).await?;
    shown(&client, "cluster", |it| it.limits[0].spent > 0).await?;
    node.kill().await?;

    let node = Node::up(&home).await?;
    let client = node.client()?;
    let before = shown(&client, "cluster", |it| it.limits[0].stranded > 0).await?;
    let name = before.limits[0].holders.iter().find(|it| it.dead).unwrap().node.clone().unwrap();
    let reconcile = ["budget", "reconcile", "cluster", "--node", name.as_str(), "--json"];
    let ended = home.run(&reconcile).await?;
    assert_eq!(ended.code, 2, "it is not confirmed: {ended:?}");
    let ended = home.run(&[&reconcile[..], &["--gone"]].concat()).await?;
    let closed = ended.json()?;
    assert_eq!(closed["sessions"], json!(1), "{ended:?}");
    let after = shown(&client, "cluster", |it| it.limits[0].stranded == 0).await?;
    assert_eq!(after.limits[0].spent, before.limits[0].spent, "its call was reported");
    drop(server);
    node.stop().await
}
