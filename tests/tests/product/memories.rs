//! Memories as operators fill, see, copy and forget them.

use std::fs;

use clawnode_proto::{
    SessionKey, Timestamp,
    memory::MemoryKey,
    memory_view::{
        MemoryList, MemoryPointView, MemoryPoints, MemoryPutView, MemorySearchView, PointState,
    },
    view::EventView,
};
use clawnode_tests::{
    model::Script,
    process::{Client, Home, Message, Node, ProcessError, TestBackend},
    wait::until,
};
use serde_json::{Value, json};

use super::{Outcome, scene};

const MEMORY: &str = "default/all";

async fn points(
    client: &Client,
    memory: &str,
    all: bool,
) -> Result<Vec<MemoryPointView>, ProcessError> {
    let shown: MemoryPoints =
        client.call("memory.show", json!({ "memory": memory, "all": all })).await?;
    Ok(shown.points)
}

fn texts(points: &[MemoryPointView]) -> Vec<&str> {
    points.iter().map(|point| point.text.as_str()).collect()
}

fn lives_in(place: &str, key: &str) -> Value {
    let text = format!("Ada lives in {place}.");
    let point = json!({ "text": text, "subject": "Ada", "predicate": "lives in", "object": place });
    json!({ "memory": MEMORY, "points": [point], "key": key })
}

#[tokio::test]
async fn a_memory_keeps_what_it_accepted_and_forgets_what_it_is_asked_to() -> Outcome {
    let home = Home::new(TestBackend::Local)?;
    let node = Node::up(&home).await?;
    let client = node.client()?;
    let first: MemoryPutView = client.call("memory.put", lives_in("Rome", "one")).await?;
    let second: MemoryPutView = client.call("memory.put", lives_in("Bonn", "two")).await?;
    let (rome, bonn) = (first.added[0], second.added[0]);
    assert_eq!(texts(&points(&client, MEMORY, false).await?), ["Ada lives in Bonn."]);
    let all = points(&client, MEMORY, true).await?;
    assert_eq!(
        (all[0].id, all[0].state, all[0].superseded_by),
        (rome, PointState::Superseded, Some(bonn))
    );

    // Whatever dies, what was accepted is there once, also if it is sent again by its key.
    node.kill().await?;
    let node = Node::up(&home).await?;
    let client = node.client()?;
    let again: MemoryPutView = client.call("memory.put", lives_in("Bonn", "two")).await?;
    assert_eq!(again, second, "a repeat has the same answer");
    assert_eq!(points(&client, MEMORY, true).await?.len(), 2);

    // What is superseded and forgotten comes back by no means, the other stays.
    let ended = home.run(&["memory", "forget", MEMORY, &rome.to_string()]).await?;
    assert!(ended.out.contains("stays in the journal of `default/all` until 2"), "{ended:?}");
    let all = points(&client, MEMORY, true).await?;
    assert_eq!(texts(&all), ["Ada lives in Bonn."], "MEM-4");
    let ended = home.run(&["memory", "forget", MEMORY, &rome.to_string()]).await?;
    assert!(ended.code == 0, "it may be purged at once: {ended:?}");
    let ended = home.run(&["memory", "forget", MEMORY, &rome.to_string(), "--now"]).await?;
    assert!(ended.out.contains("journal of `default/all` is purged"), "{ended:?}");
    let ended = home.run(&["memory", "forget", MEMORY, &rome.to_string(), "--now"]).await?;
    assert!(ended.code == 1 && ended.err.contains("is gone already"), "{ended:?}");
    let never = "point_02zam1va9ewc6wr7c7g2w6jmx5";
    let ended = home.run(&["memory", "forget", MEMORY, never, "--now"]).await?;
    assert!(ended.code == 1 && ended.err.contains("has no point"), "{ended:?}");
    let verified = home.run(&["journal", "verify"]).await?;
    assert_eq!(verified.code, 0, "{verified:?}");
    node.stop().await
}

#[tokio::test]
async fn an_export_is_imported_once_and_a_memory_is_deleted_with_its_journal() -> Outcome {
    let home = Home::new(TestBackend::Local)?;
    let node = Node::up(&home).await?;
    let client = node.client()?;
    let file = home.path().join("points.jsonl");
    let lines: Vec<String> =
        (0..150).map(|n| json!({ "text": format!("Secret {n} is kept.") }).to_string()).collect();
    fs::write(&file, lines.join("\n")).unwrap();
    let ended = home.run(&["memory", "import", MEMORY, file.to_str().unwrap(), "--json"]).await?;
    assert_eq!(ended.json()?["added"], json!(150), "{ended:?}");
    let copy = home.path().join("copy.jsonl");
    let copy = copy.to_str().unwrap();
    assert_eq!(home.run(&["memory", "export", MEMORY, "--file", copy]).await?.code, 0);
    assert_ne!(
        home.run(&["memory", "export", MEMORY, "--file", copy]).await?.code,
        0,
        "it is there"
    );
    for (added, known) in [(150, 0), (0, 150)] {
        let ended = home.run(&["memory", "import", "shared/handbook", copy, "--json"]).await?;
        let done = ended.json()?;
        assert_eq!(
            (&done["added"], &done["known"]),
            (&json!(added), &json!(known)),
            "MEM-3: {ended:?}"
        );
    }
    let ids =
        |points: Vec<MemoryPointView>| points.iter().map(|point| point.id).collect::<Vec<_>>();
    assert_eq!(
        ids(points(&client, MEMORY, false).await?),
        ids(points(&client, "shared/handbook", false).await?),
    );
    let keys = |list: MemoryList| -> Vec<String> {
        list.memories.iter().map(|memory| format!("{} {}", memory.memory, memory.points)).collect()
    };
    let listed = client.call("memory.list", json!({})).await?;
    assert_eq!(keys(listed), ["default/all 150", "shared/handbook 150"]);

    // The journal goes with the memory, and nothing lists it.
    let ended = home.run(&["memory", "forget", MEMORY, "--all"]).await?;
    assert_eq!(ended.code, 2, "it is not confirmed: {ended:?}");
    let ended = home.run(&["memory", "forget", MEMORY, "--all", "--yes"]).await?;
    assert!(ended.out.contains("with 150 live points and its journal"), "{ended:?}");
    let entity = MEMORY.parse::<MemoryKey>().unwrap().entity().to_string();
    let journal: Value = client.call("journal.show", json!({ "session": entity })).await?;
    assert!(!journal.to_string().contains("Secret"), "{journal}");
    let listed = client.call("memory.list", json!({})).await?;
    assert_eq!(keys(listed), ["shared/handbook 150"]);

    // It may begin again, and the wrong name of an agent is noticed.
    let ended = home.run(&["memory", "put", MEMORY, "Tea is at four."]).await?;
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(texts(&points(&client, MEMORY, true).await?), ["Tea is at four."]);
    let ended = home.run(&["memory", "put", "defualt/all", "Tea is at four."]).await?;
    assert!(ended.err.contains("did you mean `default`?"), "{ended:?}");
    node.stop().await
}

#[tokio::test]
async fn what_was_learned_from_a_session_goes_with_it() -> Outcome {
    let (_server, home) = scene(Script::default()).await;
    let node = Node::up(&home).await?;
    let client = node.client()?;
    let learned = |event: u64, entity: &str, at: Timestamp| {
        let source = json!({ "entity": entity, "event": event, "at": at });
        json!({ "text": format!("{event} of {entity}"), "source": source })
    };
    let mut sessions = Vec::new();
    for peer in ["ada", "ben"] {
        let message = Message::new(peer, "hello");
        client.chat(&message).await?;
        sessions.push(message.session());
    }
    let id_of = |session: &String| session.parse::<SessionKey>().unwrap().entity().to_string();
    let ids: Vec<String> = sessions.iter().map(id_of).collect();
    let mut journals: Vec<Vec<EventView>> = Vec::new();
    for session in &sessions {
        journals.push(client.journal(session).await?);
    }
    let first = learned(1, &ids[0], journals[0][0].ts);
    let second = learned(2, &ids[1], journals[1][1].ts);
    let agent = sessions[0].parse::<SessionKey>().unwrap().agent;
    let (all, peer) = (format!("{agent}/all"), MemoryKey::of_peer(&sessions[0].parse().unwrap()));
    for memory in [all.as_str(), &peer.to_string(), "shared/handbook"] {
        let points = [&first, &second];
        let _: MemoryPutView =
            client.call("memory.put", json!({ "memory": memory, "points": points })).await?;
    }
    // Of another cluster, where a session has the same key: the one that is here is not deleted for it.
    let foreign =
        json!({ "memory": "shared/other", "points": [learned(2, &ids[1], Timestamp(7))] });
    let foreign: MemoryPutView = client.call("memory.put", foreign).await?;
    let foreign = foreign.added[0].to_string();
    let ended =
        home.run(&["memory", "forget", "shared/other", &foreign, "--sources", "--yes"]).await?;
    let said = format!("its source is not here: that of `{}`", sessions[1]);
    assert!(ended.out.contains(&said) && !ended.out.contains("is deleted"), "{ended:?}");
    let deleted: Value = client.call("sessions.list", json!({ "state": "deleted" })).await?;
    assert_eq!(deleted["sessions"].as_array().map(Vec::len), Some(0), "{deleted}");
    let _: Value = client.call("sessions.delete", json!({ "session": sessions[0] })).await?;
    let rest = format!("2 of {}", ids[1]);
    for memory in [all.as_str(), &peer.to_string(), "shared/handbook"] {
        until("a memory without the session", async || {
            let left = points(&client, memory, true).await?;
            Ok((texts(&left) == [rest.as_str()]).then_some(()))
        })
        .await?;
    }
    // The other one is deleted by the memory that was taught by it.
    let left = points(&client, &all, false).await?;
    let ended = home
        .run(&["memory", "forget", &all, &left[0].id.to_string(), "--sources", "--yes", "--now"])
        .await?;
    assert!(ended.out.contains(&format!("`{}` is deleted", sessions[1])), "{ended:?}");
    assert!(ended.out.contains("sessions whose turns were shown the text keep it"), "{ended:?}");
    let list: Value = client.call("sessions.list", json!({ "state": "deleted" })).await?;
    assert_eq!(list["sessions"].as_array().map(Vec::len), Some(2), "{list}");
    // No answer has the ids of points that went with the sessions.
    let shared = "shared/handbook";
    until("a memory without both sessions", async || {
        Ok(points(&client, shared, true).await?.is_empty().then_some(()))
    })
    .await?;
    let waits: Value = client.call("memory.stats", json!({ "memory": shared })).await?;
    assert!(waits["purges"].is_u64(), "{waits}");
    for _ in 0..2 {
        let ended = home.run(&["memory", "forget", shared, "--now"]).await?;
        assert!(ended.code == 0 && ended.out.contains("is purged"), "{ended:?}");
        // As a script may that lost the id.
        assert!(ended.out.contains("no point was named"), "{ended:?}");
        let purged: Value = client.call("memory.stats", json!({ "memory": shared })).await?;
        assert!(purged.get("purges").is_none(), "{purged}");
    }
    Ok(())
}

fn found(view: &MemorySearchView) -> Vec<&str> {
    view.found.iter().map(|found| found.text.as_str()).collect()
}

/// What a search finds that had the time to read all that it needs.
async fn searched(client: &Client, asked: &Value) -> Result<MemorySearchView, ProcessError> {
    let is_whole = |view: &MemorySearchView| view.degraded.is_empty();
    client.call_when("memory.search", asked.clone(), is_whole).await
}

#[tokio::test]
async fn a_search_finds_what_is_live_and_crosses_no_scope() -> Outcome {
    let home = Home::new(TestBackend::Local)?;
    let node = Node::up(&home).await?;
    let client = node.client()?;
    let asked = json!({ "memory": MEMORY, "query": "where does Ada live" });
    for (place, key) in [("Rome", "one"), ("Bonn", "two")] {
        let _: MemoryPutView = client.call("memory.put", lives_in(place, key)).await?;
    }
    let other = json!({ "memory": "shared/other", "points": [{ "text": "Ada lives elsewhere." }] });
    let _: MemoryPutView = client.call("memory.put", other).await?;
    let view = searched(&client, &asked).await?;
    assert_eq!(found(&view), ["Ada lives in Bonn."], "MEM-1, MEM-4");
    assert!(view.found[0].score.total > 0.0 && view.found[0].point.is_some(), "{view:?}");

    // Whatever dies, and whatever becomes of the folder of the store.
    node.kill().await?;
    fs::remove_dir_all(home.data().join("memory")).unwrap();
    let node = Node::up(&home).await?;
    let client = node.client()?;
    let view = searched(&client, &asked).await?;
    assert_eq!(found(&view), ["Ada lives in Bonn."], "C28");
    let ended = home.run(&["memory", "reindex"]).await?;
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(home.run(&["memory", "reindex", MEMORY]).await?.code, 0);
    let ended = home.run(&["memory", "reindex", "defualt/all"]).await?;
    assert!(ended.code != 0 && ended.err.contains("did you mean `default/all`?"), "{ended:?}");
    let ended = home.run(&["memory", "reindex", "default:web:bot:zoe"]).await?;
    assert!(ended.code != 0 && ended.err.contains("no session `default:web:bot:zoe`"), "{ended:?}");
    let ended = home.run(&["memory", "search", MEMORY, "Ada"]).await?;
    assert!(ended.out.contains("Ada lives in Bonn.") && ended.out.contains("FACTOR"), "{ended:?}");
    let ended = home.run(&["memory", "search", "--session", "default:web:bot", "Ada"]).await?;
    assert_ne!(ended.code, 0, "it is no key of a session: {ended:?}");
    node.stop().await
}
