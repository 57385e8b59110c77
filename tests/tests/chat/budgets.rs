//! A person at a chat allows more of a budget, and chooses the lane of their turns.

use std::fs;

use clawnode_tests::{
    model::Script,
    process::{Home, ProcessError, Terminal},
    wait::until,
};
use serde_json::Value;

use super::{Outcome, asked, chat, scene};

/// Waits until the window shows this, on however many lines.
async fn shows(terminal: &mut Terminal, text: &str) -> Outcome {
    let words = |screen: &str| screen.split_whitespace().collect::<Vec<&str>>().join(" ");
    terminal.until(text, |screen| words(screen).contains(text)).await.map(drop)
}

/// Types a line, and waits until the window shows this and the next prompt.
async fn says(terminal: &mut Terminal, line: &str, shown: &str) -> Outcome {
    terminal.types(&format!("{line}\r")).await?;
    shows(terminal, shown).await?;
    terminal.prompts().await?;
    Ok(())
}

#[tokio::test]
async fn a_person_allows_more_while_their_turn_waits_for_it() -> Outcome {
    let (server, home) = scene(Script::default()).await;
    let file = home.path().join(".config/clawnode/config.toml");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    // Less than one call can use goes without a person.
    let config = "[budgets.cluster]\ntokens_per_month = 100000\nwarn_at = 1\nask_at = 1\n";
    fs::write(file, config).unwrap();
    let mut terminal = chat(&home).await?;
    says(&mut terminal, "/allow", "nothing was said in this conversation yet").await?;

    terminal.types("hello\r").await?;
    shows(&mut terminal, "or type /allow here").await?;
    assert!(server.calls().is_empty(), "it waits");
    terminal.types("/allow\r").await?;
    shows(&mut terminal, "cluster may spend the rest of its limit").await?;
    shows(&mut terminal, "reply to: hello").await?;
    terminal.prompts().await?;
    says(&mut terminal, "/allow", "no budget of this conversation waits for a person").await?;
    assert_eq!(asked(&server), ["hello"], "commands are not sent");
    Ok(())
}

/// The lanes that messages of the only session have named, in order.
async fn lanes(home: &Home) -> Result<Vec<Option<String>>, ProcessError> {
    // A list may be a moment behind.
    let id = until("the session in a list", async || {
        let listed = home.run(&["sessions", "list", "--json"]).await?;
        let id = find(&listed.json()?, "id").and_then(Value::as_str).map(str::to_owned);
        Ok(id)
    });
    let shown = home.run(&["journal", "show", &id.await?, "--json"]).await?;
    let shown = shown.json()?;
    let events = shown.as_array().unwrap();
    let lane =
        |event: &Value| find(event, "lane").and_then(|value| value.as_str().map(str::to_owned));
    Ok(events.iter().filter(|event| event["kind"] == "accepted").map(lane).collect())
}

/// The value of this name, however deep.
fn find<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    match value {
        Value::Object(map) => {
            map.get(name).or_else(|| map.values().find_map(|value| find(value, name)))
        }
        Value::Array(all) => all.iter().find_map(|value| find(value, name)),
        _ => None,
    }
}

#[tokio::test]
async fn a_person_chooses_the_lane_of_their_turns() -> Outcome {
    let (server, home) = scene(Script::default()).await;
    let mut terminal = chat(&home).await?;
    says(&mut terminal, "/lane", "the lane: as the agent says").await?;
    says(&mut terminal, "one", "reply to: one").await?;
    says(&mut terminal, "/lane bakground", "did you mean").await?;
    says(&mut terminal, "/lane background", "from your next message on: background").await?;
    says(&mut terminal, "two", "reply to: two").await?;
    says(&mut terminal, "/lane default", "from your next message on: as the agent says").await?;
    says(&mut terminal, "three", "reply to: three").await?;
    assert_eq!(asked(&server), ["one", "two", "three"]);
    assert_eq!(lanes(&home).await?, [None, Some("background".to_owned()), None]);
    Ok(())
}
