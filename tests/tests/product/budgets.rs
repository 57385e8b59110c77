//! Limits of the configuration, from the file of a node to the journal of an account.

use std::fs;

use clawnode_proto::budget::{AccountKey, BudgetLimit, BudgetUnit, CountedLanes, WindowLength};
use clawnode_tests::{
    process::{Client, Home, Message, Node, ProcessError, TestBackend},
    wait::until,
};
use serde_json::{Value, json};

use super::Outcome;

/// The limits that an account was given, in the order of its journal, each with where it came from.
async fn set(client: &Client, account: &AccountKey) -> Result<Vec<(Value, Value)>, ProcessError> {
    let asked = json!({ "session": account.entity().to_string() });
    // There is no journal before the first of them.
    let shown: Value = client.call("journal.show", asked).await.unwrap_or_default();
    let events = shown["events"].as_array().cloned().unwrap_or_default();
    let bodies =
        events.iter().filter(|event| event["kind"] == "budget_set").map(|event| &event["body"]);
    Ok(bodies.map(|body| (body["source"]["type"].clone(), body["limits"].clone())).collect())
}

/// Waits until an account was given limits so many times; returns the last ones.
async fn last(
    client: &Client,
    account: &AccountKey,
    times: usize,
) -> Result<(Value, Value), ProcessError> {
    until("the limits of an account", async || {
        let all = set(client, account).await?;
        Ok(all.last().filter(|_| all.len() >= times).cloned())
    })
    .await
}

fn daily(usd: u64) -> Value {
    json!([BudgetLimit::new(BudgetUnit::Usd, WindowLength::Day, usd)])
}

/// The same for the cluster, which has a limit of calls in the background unless the file has one of calls.
fn of_cluster(usd: u64) -> Value {
    let daily = BudgetLimit::new(BudgetUnit::Usd, WindowLength::Day, usd);
    let hourly = BudgetLimit::new(BudgetUnit::Loops, WindowLength::Hour, 50);
    json!([daily, BudgetLimit { lanes: CountedLanes::Background, ..hourly }])
}

#[tokio::test]
async fn accounts_have_the_limits_of_the_file() -> Outcome {
    let home = Home::new(TestBackend::Local)?.var("CLAWNODE_BUDGETS__DEFAULT", "true");
    let file = home.path().join(".config/clawnode/config.toml");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let (cluster, agent) = (AccountKey::Cluster, "agent:default".parse().unwrap());
    let node = Node::up(&home).await?;
    let client = node.client()?;
    assert_eq!(last(&client, &cluster, 1).await?, (json!("built_in"), of_cluster(5_000_000)));

    // A running node reads the file again.
    let limits = |usd: &str| {
        format!(
            "[budgets.cluster]\nusd_per_day = \"{usd}\"\n[budgets.agents.default]\nusd_per_day = \"1\"\n"
        )
    };
    fs::write(&file, limits("2.50")).unwrap();
    assert_eq!(last(&client, &cluster, 2).await?, (json!("configured"), of_cluster(2_500_000)));
    assert_eq!(last(&client, &agent, 1).await?, (json!("configured"), daily(1_000_000)));
    client.chat(&Message::new("ada", "hello")).await?;
    node.stop().await?;

    // What it does not say any more holds no more, also if it changed while no node ran.
    fs::write(&file, "").unwrap();
    let node = Node::up(&home).await?;
    let client = node.client()?;
    assert_eq!(last(&client, &cluster, 3).await?, (json!("built_in"), of_cluster(5_000_000)));
    assert_eq!(last(&client, &agent, 2).await?, (json!("configured"), json!([])));
    node.stop().await?;
    let verified = home.run(&["journal", "verify"]).await?;
    assert_eq!(verified.code, 0, "{verified:?}");

    // Without the default nothing holds.
    let home = home.var("CLAWNODE_BUDGETS__DEFAULT", "false");
    let node = Node::up(&home).await?;
    let client = node.client()?;
    assert_eq!(last(&client, &cluster, 4).await?, (json!("configured"), json!([])));
    node.stop().await
}
