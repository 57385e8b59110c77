//! Tools of class `check` that are commands: the node that runs one is killed in mid-run, and the
//! tool's own probe decides what becomes of the call. The command writes its effects into its
//! agent's files; no other program writes those.

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};

use clawnode_proto::view::EventView;
use clawnode_tests::{
    model::Script,
    process::{Message, Node},
    wait::until,
};
use tempfile::TempDir;

use super::support::{Outcome, Scene};

/// Has its effect, and hangs after it if it is the first run; with the file `early`, before it.
const COMMAND: &str = "if [ -e early ] && [ ! -e begun ]; then echo run >>begun; sleep 600; fi; \
     echo \"$CLAWNODE_IDEMPOTENCY_KEY\" >>effects; \
     if [ ! -e begun ]; then echo run >>begun; sleep 600; fi; echo published";
/// Looks for the effect under the key of the call; with the file `blind`, it cannot.
const PROBE: &str = "if [ -e blind ]; then echo no idea >&2; exit 7; fi; \
     grep -qx \"$CLAWNODE_IDEMPOTENCY_KEY\" effects 2>/dev/null || exit 1; echo published before";

struct Stage {
    scene: Scene,
    files: PathBuf,
    _root: TempDir,
}

/// A node whose agent may publish, and the agent's files, in which these are.
async fn stage(files: &[&str]) -> Stage {
    let root = tempfile::tempdir_in("/tmp").unwrap();
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let own = root.path().join("default");
    fs::create_dir(&own).unwrap();
    for file in files {
        fs::write(own.join(file), "").unwrap();
    }
    std::os::unix::fs::chown(&own, Some(1_000), Some(1_000)).unwrap();
    let scene = Scene::new(Script::default()).await;
    let settings = scene.home.path().join(".config/clawnode");
    fs::create_dir_all(&settings).unwrap();
    let config = format!(
        "[agents.default]\ntools = [\"publish\"]\n[[agents.default.rules]]\nverdict = \"allow\"\n\
         [workspace]\nroot = \"{}\"\n[sandbox]\nworkspace = \"read_write\"\n\
         [sandbox.tools.publish]\ndescription = \"Publishes.\"\nenv = \"process\"\n\
         class = \"check\"\ncommand = [\"sh\", \"-c\", '{COMMAND}']\n\
         probe = [\"sh\", \"-c\", '{PROBE}']\n",
        root.path().display()
    );
    fs::write(settings.join("config.toml"), config).unwrap();
    Stage { scene, files: own, _root: root }
}

/// The result of a call whose node was killed while it ran.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    /// Lines that the command wrote.
    effects: usize,
    /// The result that the model got.
    told: String,
    uncertain: bool,
}

async fn killed(stage: &Stage) -> Result<Seen, clawnode_tests::process::ProcessError> {
    let node = Node::up(&stage.scene.home).await?;
    let message = Message::new("ada", "/tool publish {}");
    let turn = node.client()?.send(&message).await?;
    let begun = stage.files.join("begun");
    until("the command to run", async || Ok(begun.exists().then_some(()))).await?;
    node.kill().await?;
    drop(turn);
    let node = Node::up(&stage.scene.home).await?;
    let client = node.client()?;
    client.chat(&message).await?;
    let history = client.history(&message.session()).await?;
    let reply = history.turns[0].messages[2].tool_replies[0].clone();
    let events: Vec<EventView> = client.journal(&message.session()).await?;
    let kinds = |kind: &str| events.iter().filter(|event| event.kind == kind).count();
    assert_eq!(kinds("tool_done") + kinds("tool_uncertain"), 1, "I3: {events:?}");
    node.stop().await?;
    let effects = fs::read_to_string(stage.files.join("effects")).unwrap_or_default();
    Ok(Seen {
        effects: effects.lines().count(),
        told: reply.content.inline().unwrap_or_default().to_owned(),
        uncertain: kinds("tool_uncertain") == 1,
    })
}

/// It had its effect: the probe's word is the result, and it is not run again.
#[tokio::test]
async fn what_its_probe_finds_done_is_not_done_again() -> Outcome {
    let seen = killed(&stage(&[]).await).await?;
    let told = "published before\n".to_owned();
    assert_eq!(seen, Seen { effects: 1, told, uncertain: false });
    Ok(())
}

/// It had no effect yet: it is run again.
#[tokio::test]
async fn what_its_probe_finds_undone_is_done() -> Outcome {
    let seen = killed(&stage(&["early"]).await).await?;
    let told = "published\n".to_owned();
    assert_eq!(seen, Seen { effects: 1, told, uncertain: false });
    Ok(())
}

/// Its probe cannot tell: it is unknown whether it happened, and it is not run again.
#[tokio::test]
async fn what_its_probe_cannot_tell_is_left_to_a_person() -> Outcome {
    for (files, effects) in [(&["blind"][..], 1), (&["blind", "early"], 0)] {
        let seen = killed(&stage(files).await).await?;
        assert_eq!((seen.effects, seen.uncertain), (effects, true), "{seen:?}");
        assert!(seen.told.contains(" knows whether the call of `publish` happened"));
        assert!(seen.told.contains("no idea"), "{seen:?}");
    }
    Ok(())
}
