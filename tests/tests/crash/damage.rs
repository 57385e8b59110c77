//! What else can go wrong with a data directory: a damaged record, a second process, a full disk.

use std::{
    fs,
    io::{Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use clawnode_proto::{
    EntityId, Input, Kind, SessionKey, Timestamp,
    budget::{AccountKey, AccountView},
    feed::EventBody,
    limits::INPUT_STORED_BYTES,
    overview::FeedView,
    session::{SessionInput, UserMessage},
    subject::Prefix,
    view::{ParkedList, ParkedWhere, QuarantineDone, QuarantineList},
};
use clawnode_tests::{
    model::Script,
    process::{Message, Node, ProcessError, Start, TestBackend, sound},
};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::support::{Outcome, Scene, Under};

/// Where `text` is in the files under `dir`; it must be in one place only.
fn place(dir: &Path, text: &str) -> (PathBuf, u64) {
    let mut found = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
                continue;
            }
            // The socket for commands is no file.
            if !path.is_file() {
                continue;
            }
            let bytes = fs::read(&path).unwrap();
            let hits = bytes.windows(text.len()).enumerate();
            let hits = hits.filter(|(_, window)| *window == text.as_bytes());
            found.extend(hits.map(|(at, _)| (path.clone(), at as u64)));
        }
    }
    assert_eq!(found.len(), 1, "`{text}`: {found:?}");
    found.remove(0)
}

/// Flips one bit.
fn flip(path: &Path, at: u64) {
    let mut file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.seek(SeekFrom::Start(at)).unwrap();
    file.read_exact(&mut byte).unwrap();
    byte[0] ^= 1;
    file.seek(SeekFrom::Start(at)).unwrap();
    file.write_all(&byte).unwrap();
}

fn code(refused: &ProcessError) -> Option<&str> {
    refused.refusal().map(|body| body.code.as_str())
}

#[tokio::test]
async fn a_damaged_record_refuses_its_session_and_no_other() -> Outcome {
    let scene = Scene::new(Script::default()).await;
    let healthy = [Message::new("bob", "before"), Message::new("bob", "after")];
    let damaged = Message::new("eve", "xyzzy");
    scene.settle(&[healthy[0].clone(), damaged.clone()]).await?;
    // The reply is in the journal only; the message is in the inbox as well.
    let (file, at) = place(&scene.home.data(), "reply to: xyzzy");
    flip(&file, at);

    let node = Node::up(&scene.home).await?;
    let client = node.client()?;
    client.chat(&healthy[1]).await?;
    let refused = client.history(&damaged.session()).await.expect_err("it is damaged");
    assert_eq!(code(&refused), Some("corrupt"), "{refused}");
    assert!(refused.to_string().contains("position"), "{refused}");
    let more = Message::new("eve", "are you there?");
    let refused = client.chat(&more).await.expect_err("it is damaged");
    assert_eq!(code(&refused), Some("corrupt"), "{refused}");
    assert!(refused.to_string().contains("position"), "{refused}");

    // With and without a node, `journal verify` names it and nothing else.
    let verify = async || {
        let ended = scene.home.run(&["journal", "verify", "--json"]).await?;
        assert_eq!(ended.code, 1, "{ended:?}");
        let verdict = ended.json()?;
        let rows = verdict["journals"].as_array().unwrap().clone();
        let bad: Vec<_> = rows.iter().filter(|row| !row["problem"].is_null()).collect();
        assert_eq!((rows.len(), bad.len()), (2, 1), "{verdict}");
        assert!(bad[0]["problem"].as_str().unwrap().contains("position"), "{verdict}");
        Ok::<_, ProcessError>(())
    };
    verify().await?;
    node.stop().await?;
    verify().await
}

#[tokio::test]
async fn a_damaged_session_is_dropped_and_may_begin_again() -> Outcome {
    let scene = Scene::new(Script::default()).await;
    let healthy = Message::new("bob", "before");
    let damaged = Message::new("eve", "xyzzy");
    scene.settle(&[healthy.clone(), damaged.clone()]).await?;
    let (file, at) = place(&scene.home.data(), "reply to: xyzzy");
    flip(&file, at);

    let node = Node::up(&scene.home).await?;
    let client = node.client()?;
    let waits = Message::new("eve", "are you there?");
    client.chat(&waits).await.expect_err("it is damaged");
    let listed: QuarantineList = client.call("quarantine.list", json!({})).await?;
    let rows: Vec<_> = listed.sessions.iter().map(|row| (&*row.state, row.waiting)).collect();
    assert_eq!(rows, [("corrupt", 1)], "{listed:?}");
    assert_eq!(listed.sessions[0].key.as_deref(), Some(&*damaged.session()), "{listed:?}");
    let session = json!({ "session": listed.sessions[0].id });
    let refused = client.call::<Value>("quarantine.replay", session.clone()).await;
    let refused = refused.expect_err("it cannot be put back");
    assert_eq!(code(&refused), Some("corrupt"), "{refused}");

    // By its id alone: the journal does not tell its key any more.
    let done: QuarantineDone = client.call("quarantine.drop", session.clone()).await?;
    assert_eq!(done.inputs, 1, "the message that waited goes with it");
    let listed: QuarantineList = client.call("quarantine.list", json!({})).await?;
    assert_eq!(listed, QuarantineList::default());
    let refused = client.call::<Value>("quarantine.drop", session).await;
    assert_eq!(code(&refused.expect_err("it is gone")), Some("conflict"));
    sound(&scene.home).await?;

    // The key is free, and nothing of before is served.
    let again = Message::new("eve", "hello again");
    client.chat(&again).await?;
    let history = client.history(&again.session()).await?;
    assert_eq!(history.turns.len(), 1, "{history:?}");
    node.stop().await?;
    sound(&scene.home).await?;
    let node = Node::up(&scene.home).await?;
    let history = node.client()?.history(&again.session()).await?;
    assert_eq!(history.turns.len(), 1, "{history:?}");
    node.stop().await
}

/// Its calls never go on without it. An operator drops it like any entity, the event feed says who did, and it
/// begins again with the limits that are set then.
#[tokio::test]
async fn a_damaged_account_stops_its_calls_until_it_is_dropped() -> Outcome {
    let scene = Scene::new(Script::default()).await;
    let home = &scene.home;
    let node = Node::up(home).await?;
    let client = node.client()?;
    let account: AccountKey = "agent:default".parse().unwrap();
    let limits = json!([{ "unit": "loops", "window": "day", "amount": "100" }]);
    let set = json!({ "account": account, "limits": limits });
    let _: AccountView = client.call("budget.set", set.clone()).await?;
    client.chat(&Message::new("bob", "before")).await?;
    node.stop().await?;
    // Of all of the data, only the journal of the account has it.
    let (file, at) = place(&home.data(), "budget_granted");
    flip(&file, at);
    let verified = home.run(&["journal", "verify"]).await?;
    assert_eq!(verified.code, 1, "{verified:?}");

    let patience = vec![("CLAWNODE_BUDGETS__PATIENCE", "1s".to_owned())];
    let node = Node::start(home, Start { vars: patience, ..Start::default() }).await?;
    let client = node.client()?;
    let refused = client.chat(&Message::new("bob", "during")).await.expect_err("it is damaged");
    assert_eq!(code(&refused), Some("budget_unavailable"), "{refused}");
    let listed: QuarantineList = client.call("quarantine.list", json!({})).await?;
    let rows: Vec<_> = listed.sessions.iter().map(|row| (row.id, &*row.state)).collect();
    assert_eq!(rows, [(account.entity(), "corrupt")], "{listed:?}");
    let dropped = json!({ "session": account.entity() });
    let _: QuarantineDone = client.call("quarantine.drop", dropped).await?;
    let says = |feed: &FeedView| {
        feed.events.iter().any(|row| match &row.event.what {
            EventBody::Discarded { session, by } => {
                *session == account.entity() && by.contains(" at ")
            }
            _ => false,
        })
    };
    let _: FeedView = client.call_when("events.list", json!({}), says).await?;

    let begun: AccountView = client.call("budget.set", set).await?;
    assert_eq!((begun.limits[0].spent, begun.changes.len()), (0, 1), "it knows nothing of before");
    client.chat(&Message::new("bob", "after")).await?;
    let spent = |view: &AccountView| view.limits[0].spent == 1;
    let shown = json!({ "account": account });
    let _: AccountView = client.call_when("budget.show", shown, spent).await?;
    node.stop().await?;
    sound(home).await?;
    Ok(())
}

#[tokio::test]
async fn a_damaged_session_is_deleted_like_any_other() -> Outcome {
    let scene = Scene::new(Script::default()).await;
    let damaged = Message::new("eve", "xyzzy");
    scene.settle(std::slice::from_ref(&damaged)).await?;
    let (file, at) = place(&scene.home.data(), "reply to: xyzzy");
    flip(&file, at);
    let node = Node::up(&scene.home).await?;
    let ended = scene.home.run(&["sessions", "delete", &damaged.session(), "--yes"]).await?;
    assert_eq!(ended.code, 0, "{ended:?}");
    sound(&scene.home).await?;
    node.stop().await
}

#[tokio::test]
async fn what_nobody_can_read_is_a_dead_letter_and_stops_nothing() -> Outcome {
    let scene = Scene::on(Under::Nats, Script::default()).await;
    let TestBackend::Nats { url, prefix } = &scene.backend else { unreachable!("it is on NATS") };
    let bus = async_nats::connect(url.as_str()).await.expect("the server runs");
    let message = Message::new("ada", "hello");
    let key: SessionKey = message.session().parse().expect("a session's key");
    let (entity, prefix) = (key.entity(), prefix.parse::<Prefix>().expect("a prefix"));
    let node = Node::up(&scene.home).await?;
    let client = node.client()?;
    let subject = |entity: EntityId| prefix.input(entity.partition(8), entity);
    // A message that no node can read, and, for another session, one that a newer node will.
    let other = Message::new("bob", "hello").session();
    let newer = Input {
        v_min: u16::MAX,
        ..Input::new(Kind::SESSION, &other, "new".parse().unwrap(), Timestamp(0), &())
            .expect("it can be written")
    };
    let (newer, for_newer) = (newer.to_bytes().expect("it can be written"), newer.entity);
    for (to, bytes) in [(for_newer, newer), (entity, b"no input at all".to_vec())] {
        bus.publish(subject(to), bytes.into()).await.expect("it is sent");
    }
    bus.flush().await.expect("it is sent");

    client.chat(&message).await?;
    let some = |parked: &ParkedList| !parked.parked.is_empty();
    let parked = client.call_when("parked.list", json!({}), some).await?;
    let [letter] = &parked.parked[..] else { panic!("not one letter: {parked:?}") };
    assert_eq!((letter.session, letter.at), (entity, ParkedWhere::DeadLetter), "{letter:?}");
    assert_eq!(letter.bytes, b"no input at all".len() as u64, "it is kept whole");
    let name = letter.letter.clone().expect("a dead letter has a name");
    client.call::<Value>("parked.drop", json!({ "letter": name })).await?;
    let parked: ParkedList = client.call("parked.list", json!({})).await?;
    assert_eq!(parked, ParkedList::default(), "what is only too new waits for its readers");
    let found = scene.judge(&client, &[message]).await?;
    assert_eq!(found.turns, 1);
    node.stop().await
}

#[tokio::test]
async fn what_fits_into_no_append_is_a_dead_letter_and_stops_nothing() -> Outcome {
    let scene = Scene::on(Under::Nats, Script::default()).await;
    let TestBackend::Nats { url, prefix } = &scene.backend else { unreachable!("it is on NATS") };
    let bus = async_nats::connect(url.as_str()).await.expect("the server runs");
    let message = Message::new("ada", "hello");
    let key = message.session();
    let prefix = prefix.parse::<Prefix>().expect("a prefix");
    let text = UserMessage::text("x".repeat(INPUT_STORED_BYTES));
    let large = SessionInput::UserMessage(text);
    let large = Input::new(Kind::SESSION, &key, "large".parse().unwrap(), Timestamp(0), &large)
        .expect("it can be written");
    let node = Node::up(&scene.home).await?;
    let client = node.client()?;
    let subject = prefix.input(large.entity.partition(8), large.entity);
    let bytes = large.to_bytes().expect("it can be written");
    let size = bytes.len() as u64;
    bus.publish(subject, bytes.into()).await.expect("it is sent");
    bus.flush().await.expect("it is sent");

    client.chat(&message).await?;
    let some = |parked: &ParkedList| !parked.parked.is_empty();
    let parked = client.call_when("parked.list", json!({}), some).await?;
    let [letter] = &parked.parked[..] else { panic!("not one letter: {parked:?}") };
    assert_eq!((letter.session, letter.at), (large.entity, ParkedWhere::DeadLetter), "{letter:?}");
    assert_eq!(letter.bytes, size, "it is kept whole");
    let out: QuarantineList = client.call("quarantine.list", json!({})).await?;
    assert!(out.sessions.is_empty(), "{out:?}");
    let found = scene.judge(&client, &[message]).await?;
    assert_eq!(found.turns, 1);
    node.stop().await
}

#[tokio::test]
async fn very_many_short_messages_are_refused_where_they_come_in() -> Outcome {
    let scene = Scene::new(Script::default()).await;
    let node = Node::up(&scene.home).await?;
    let client = node.client()?;
    let ask = |messages: usize| {
        let one = |n: usize| {
            let role = if n.is_multiple_of(2) { "user" } else { "assistant" };
            json!({ "role": role, "content": "x" })
        };
        let messages: Vec<Value> = (0..messages).map(one).collect();
        reqwest::Client::new()
            .post(format!("{}/v1/chat/completions", node.url()))
            .bearer_auth(client.token())
            .json(&json!({ "model": "default", "messages": messages }))
            .send()
    };
    assert_eq!(ask(4_001).await.unwrap().status(), 200);
    assert_eq!(ask(14_001).await.unwrap().status(), 413);
    let out: QuarantineList = client.call("quarantine.list", json!({})).await?;
    assert!(out.sessions.is_empty(), "{out:?}");
    node.stop().await
}

#[tokio::test]
async fn a_second_process_is_told_who_holds_the_directory() -> Outcome {
    let scene = Scene::new(Script::default()).await;
    let node = Node::up(&scene.home).await?;
    let ended = scene.home.run(&["--listen", "127.0.0.1:0", "--json", "up"]).await?;
    assert_eq!(ended.code, 1, "{ended:?}");
    let data = scene.home.data();
    for part in ["data_dir_held", &data.to_string_lossy(), &format!("process {}", node.pid())] {
        assert!(ended.err.contains(part), "no `{part}` in {}", ended.err);
    }
    // The first is none the worse for it.
    node.client()?.chat(&Message::new("ada", "hello")).await?;
    node.stop().await
}

#[tokio::test]
async fn a_full_disk_refuses_what_is_new_and_finishes_what_was_accepted() -> Outcome {
    let mut scene = Scene::new(Script::default()).await;
    let [first, second] = [Message::new("ada", "first"), Message::new("ada", "second")];
    let late = Message::new("bob", "late");
    scene.settle(std::slice::from_ref(&first)).await?;
    scene.die_at("after-put", &second).await?;

    // More than any disk has free.
    let vars = vec![("CLAWNODE_TEST_HEAD_ROOM", (u64::MAX / 4).to_string())];
    let node = Node::start(&scene.home, Start { vars, ..Start::default() }).await?;
    let client = node.client()?;
    client.finished(&first.session(), 2).await?;
    let refused = client.chat(&late).await.expect_err("no room");
    assert_eq!(code(&refused), Some("disk_full"), "{refused}");
    sound(&scene.home).await?;
    node.stop().await?;

    // With room again, the same message under the same key.
    scene.settle(&[first, second, late]).await.map(drop)
}

#[tokio::test]
async fn told_to_stop_a_node_finishes_the_running_turn() -> Outcome {
    let scene = super::streams::stuck_at("go", "slow").await;
    let message = Message::new("ada", "slow");
    let mut node = Node::up(&scene.home).await?;
    let client = node.client()?;
    let mut turn = client.send(&message).await?;
    turn.begun().await?;
    node.signal(Signal::TERM)?;
    scene.server.open("go");
    let status = node.ended().await?;
    assert!(status.success(), "{status}");
    let found = scene.settle(&[message]).await?;
    assert_eq!((found.requests, found.lost), (1, 0), "its reply was recorded before the end");
    Ok(())
}
