//! Skills that agents write and bundles of skills, on real nodes and commands.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use clawnode_proto::{policy::Approval, view::ApprovalList};
use clawnode_tests::{
    model::{Act, ModelServer, Script},
    nats::{NatsServer, ServerOptions},
    process::{Client, Home, Message, Node, ProcessError, TestBackend, sound},
    wait,
};
use serde_json::{Value, json};

use super::Outcome;

/// The rules allow everything: a person is asked all the same.
const CONFIG: &str = "[agents.default]\ntools = [\"ledger_append\", \"create_skill\"]\n\
                      rules = [{ tool = \"*\", verdict = \"allow\" }]\n";

fn creates(text: &str, replaces: Option<&str>) -> Act {
    let mut arguments = json!({
        "name": "release",
        "description": "Ships a release. Use it if someone wants to ship.",
        "text": text,
        "entries": [1],
    });
    if let Some(digest) = replaces {
        arguments["replaces"] = digest.into();
    }
    Act::tools([("create_skill", arguments)])
}

/// A person approves of the call that waits; its arguments as they are shown.
async fn approves(client: &Client) -> Result<Value, ProcessError> {
    let some = |list: &ApprovalList| !list.approvals.is_empty();
    let list: ApprovalList = client.call_when("approvals.list", json!({}), some).await?;
    let waits = &list.approvals[0];
    let params = json!({ "call": waits.action.call, "action": waits.digest });
    client.call::<Approval>("approvals.approve", params).await?;
    Ok(serde_json::from_str(&waits.action.arguments).unwrap())
}

/// A hook that notes each end of `create_skill`, and keeps the first one from its journal until `go` is there.
fn holds_back(settings: &Path) -> (PathBuf, PathBuf) {
    let (seen, go) = (settings.join("seen"), settings.join("go"));
    let folder = settings.join("hooks/after_tool_call");
    fs::create_dir_all(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    let script = format!(
        "#!/bin/sh\ncase \"$(cat)\" in *create_skill*)\n  echo ended >> '{}'\n  \
         while [ ! -e '{}' ]; do sleep 0.1; done ;;\nesac\necho '{{\"decision\":\"allow\"}}'\n",
        seen.display(),
        go.display()
    );
    let hook = folder.join("10-hold");
    fs::write(&hook, script).unwrap();
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o700)).unwrap();
    (seen, go)
}

async fn writes_a_skill_once(backend: TestBackend) -> Outcome {
    let acts = [
        Act::tools([("ledger_append", json!({ "type": "finding", "text": "Tests come first." }))]),
        creates("Run the tests, then tag.", None),
        Act::tools([
            ("discover_skills", json!({ "query": "ship" })),
            ("activate_skill", json!({ "name": "release" })),
        ]),
        Act::say("done"),
    ];
    let server = ModelServer::start(Script::queue(acts)).await.unwrap();
    let is_local = matches!(backend, TestBackend::Local);
    let home = Home::new(backend)?.anthropic(&server);
    let settings = home.path().join(".config/clawnode");
    let file = settings.join("skills/release/SKILL.md");
    let (seen, go) = holds_back(&settings);
    fs::write(settings.join("config.toml"), CONFIG).unwrap();

    let node = Node::up(&home).await?;
    let client = node.client()?;
    let turn = client.send(&Message::new("ada", "ship it")).await?;
    server.asked(2).await;
    let shown = approves(&client).await?;
    assert_eq!((&shown["name"], &shown["entries"]), (&json!("release"), &json!([1])));
    wait::until("the skill is written, and its call has not ended", async || {
        // A line is there once its end is.
        let seen = fs::read_to_string(&seen).unwrap_or_default();
        Ok(seen.ends_with('\n').then_some(()))
    })
    .await?;
    let first = (fs::metadata(&file).unwrap().ino(), fs::read_to_string(&file).unwrap());
    node.kill().await?;

    fs::write(&go, "").unwrap();
    let node = Node::up(&home).await?;
    node.client()?.finished(&turn.session, 1).await?;
    let again = (fs::metadata(&file).unwrap().ino(), fs::read_to_string(&file).unwrap());
    assert_eq!(again, first, "the call was run again, and wrote nothing");
    assert_eq!(fs::read_to_string(&seen).unwrap().lines().count(), 2);
    assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);
    let calls = server.calls();
    let told = &calls[2].results[0];
    assert!(told.starts_with("The skill `release` is written (digest "), "{told}");
    let results = &calls[3].results;
    assert_eq!(results.len(), 2, "{results:?}");
    assert!(results[0].contains("- `release`: Ships a release."), "{results:?}");
    assert!(results[1].ends_with("\n\nRun the tests, then tag."), "{results:?}");
    node.stop().await?;

    let session = Message::new("ada", "").session();
    let origin = format!("  from-session: \"{session}\"\n");
    assert!(
        first.1.contains(&origin) && first.1.contains("  from-entries: \"1\"\n"),
        "{}",
        first.1
    );
    if is_local {
        sound(&home).await?;
        let replayed = home.run(&["journal", "replay", &session]).await?;
        assert_eq!(replayed.code, 0, "{replayed:?}");
    }
    Ok(())
}

#[tokio::test]
async fn an_approved_skill_is_written_once_and_outlives_a_crash() -> Outcome {
    writes_a_skill_once(TestBackend::Local).await
}

#[tokio::test]
async fn an_approved_skill_is_written_once_and_outlives_a_crash_on_nats() -> Outcome {
    let nats = NatsServer::start(ServerOptions::default()).await.unwrap();
    writes_a_skill_once(TestBackend::Nats { url: nats.url(), prefix: "skills".to_owned() }).await
}

/// What a person wrote goes only if the call that was approved names it.
#[tokio::test]
async fn a_skill_of_a_person_is_replaced_only_by_its_digest() -> Outcome {
    let server = ModelServer::start(Script::default()).await.unwrap();
    let home = Home::new(TestBackend::Local)?.anthropic(&server);
    let settings = home.path().join(".config/clawnode");
    let file = settings.join("skills/release/SKILL.md");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, "---\nname: release\ndescription: Mine.\n---\nBy hand.\n").unwrap();
    fs::write(settings.join("config.toml"), CONFIG).unwrap();
    let node = Node::up(&home).await?;
    let client = node.client()?;
    let skill = home.run(&["skills", "show", "release", "--json"]).await?.json()?;
    let digest = skill["digest"].as_str().unwrap().to_owned();

    server.push(Act::tools([("ledger_append", json!({ "type": "note", "text": "Tag." }))]));
    server.push(Act::say("noted"));
    client.chat(&Message::new("ada", "note it")).await?;
    // What can never be written is refused before a person is asked.
    let hostile = json!({ "name": "../../evil", "description": "d", "text": "t", "entries": [1] });
    let unfounded = json!({ "name": "evil", "description": "d", "text": "t", "entries": [2] });
    for (arguments, why) in [(hostile, "a to z"), (unfounded, "no entry 2")] {
        server.push(Act::tools([("create_skill", arguments)]));
        server.push(Act::say("no"));
        client.chat(&Message::new("ada", why)).await?;
        let told = server.calls().pop().unwrap().results[0].clone();
        assert!(told.contains("was not run") && told.contains(why), "{told}");
    }
    let params = json!({ "action": "create_skill" });
    let view: Value = client.call("policy.check", params).await?;
    assert_eq!((&view["verdict"], view["reason"].is_string()), (&json!("ask"), true), "{view}");
    for (replaces, is_replaced) in [(None, false), (Some(digest.as_str()), true)] {
        server.push(creates("By an agent.", replaces));
        server.push(Act::say("tried"));
        let said = Message::new("ada", &format!("replace it: {is_replaced}"));
        let (chatted, shown) = tokio::join!(client.chat(&said), approves(&client));
        chatted?;
        assert_eq!(shown?["replaces"].as_str(), replaces, "the person sees what goes");
        let told = server.calls().pop().unwrap().results[0].clone();
        assert_eq!(told.contains("is written"), is_replaced, "{told}");
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(text.contains("By hand."), !is_replaced, "{text}");
    }
    assert!(!home.path().join(".config/evil").exists() && !settings.join("evil").exists());
    node.stop().await?;
    sound(&home).await?;
    Ok(())
}

fn write_version(folder: &Path, version: &str) {
    fs::create_dir_all(folder.join("references")).unwrap();
    let text = format!(
        "---\nname: notes\ndescription: Writes notes.\nmetadata:\n  version: \"{version}\"\n---\nIn {version}.\n"
    );
    fs::write(folder.join("SKILL.md"), text).unwrap();
    fs::write(folder.join("references/style.md"), version).unwrap();
}

#[tokio::test]
async fn only_a_signed_and_newer_bundle_is_installed() -> Outcome {
    let home = Home::new(TestBackend::Local)?;
    let settings = home.path().join(".config/clawnode");
    let installed = settings.join("skills/notes/SKILL.md");
    fs::create_dir_all(&settings).unwrap();
    for key in ["team.pem", "other.pem"] {
        assert_eq!(home.run(&["skills", "key", key]).await?.code, 0);
    }
    assert_eq!(home.run(&["skills", "key", "team.pem"]).await?.code, 1, "a key is not overwritten");
    let mode = fs::metadata(home.path().join("team.pem")).unwrap().mode();
    assert_eq!(mode & 0o777, 0o600);
    for version in ["1.9", "1.10"] {
        write_version(&home.path().join("notes"), version);
        for key in ["team", "other"] {
            let (pem, out) = (format!("{key}.pem"), format!("{key}-{version}.skill"));
            let pack = ["skills", "pack", "notes", "--key", &pem, "--out", &out, "--json"];
            let packed = home.run(&pack).await?.json()?;
            assert_eq!(packed["name"], "notes");
            let again = home.run(&pack).await?;
            assert_eq!(again.code, 1, "a bundle is not overwritten: {again:?}");
            let replaced = home.run(&[&pack[..], &["--replace"]].concat()).await?;
            assert_eq!(replaced.code, 0, "{replaced:?}");
            let public = packed["public_key"].as_str().unwrap();
            if key == "team" {
                let config = format!("[skills.trusted_keys]\nteam = \"{public}\"\n");
                fs::write(settings.join("config.toml"), config).unwrap();
            }
        }
    }
    let install = async |file: &str| home.run(&["skills", "install", file, "--json"]).await;

    let refused = install("other-1.10.skill").await?;
    assert_eq!(refused.code, 77, "{refused:?}");
    assert!(refused.err.contains("bundle_untrusted"), "{refused:?}");
    // One byte of the text is another one than was signed.
    let signed = fs::read_to_string(home.path().join("team-1.10.skill")).unwrap();
    let mut bundle: Value = serde_json::from_str(&signed).unwrap();
    let payload = STANDARD.decode(bundle["payload"].as_str().unwrap()).unwrap();
    let payload = String::from_utf8(payload).unwrap().replacen("SKILL.md", "SKILL.mD", 1);
    bundle["payload"] = STANDARD.encode(payload).into();
    fs::write(home.path().join("changed.skill"), bundle.to_string()).unwrap();
    let refused = install("changed.skill").await?;
    assert!(refused.code == 77 && refused.err.contains("bundle_untrusted"), "{refused:?}");
    assert!(!installed.exists(), "nothing is read that is not verified");

    let done = install("team-1.10.skill").await?.json()?;
    assert_eq!((&done["done"], &done["version"]), (&json!("installed"), &json!("1.10")));
    assert_eq!(install("team-1.10.skill").await?.json()?["done"], "unchanged");
    let older = install("team-1.9.skill").await?;
    assert!(older.code == 1 && older.err.contains("bundle_conflict"), "{older:?}");
    assert!(fs::read_to_string(&installed).unwrap().ends_with("In 1.10.\n"));
    let list = home.run(&["skills", "list", "--json"]).await?.json()?;
    let bundle = &list["skills"][0]["bundle"];
    assert_eq!((&bundle["signer"], &bundle["is_changed"]), (&json!("team"), &json!(false)));

    fs::write(&installed, "---\nname: notes\ndescription: Mine.\n---\nBy hand.\n").unwrap();
    let refused = install("team-1.10.skill").await?;
    assert!(refused.code == 1 && refused.err.contains("changed since"), "{refused:?}");
    let forced = home.run(&["skills", "install", "team-1.10.skill", "--replace"]).await?;
    assert_eq!(forced.code, 0, "{forced:?}");
    assert!(fs::read_to_string(&installed).unwrap().ends_with("In 1.10.\n"));
    let names: Vec<_> = fs::read_dir(settings.join("skills")).unwrap().collect();
    assert_eq!(names.len(), 1, "nothing is left beside it: {names:?}");
    Ok(())
}

/// Else those who get the bundle could sign as its maker.
#[tokio::test]
async fn a_private_key_is_not_packed() -> Outcome {
    let home = Home::new(TestBackend::Local)?;
    write_version(&home.path().join("notes"), "1");
    assert_eq!(home.run(&["skills", "key", "notes/references/team.pem"]).await?.code, 0);
    let pack = ["skills", "pack", "notes", "--key", "notes/references/team.pem"];
    let refused = home.run(&pack).await?;
    assert!(refused.code == 1 && refused.err.contains("is packed"), "{refused:?}");
    assert!(!home.path().join("notes.skill").exists());
    Ok(())
}
