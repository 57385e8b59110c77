//! Several hooks of one point, as real programs.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use clawnode_proto::{
    CallId, HookName, TurnId,
    hook::{HookFault, HookPoint, HookSpec, HookTrail},
};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{About, Hooks, Program, Subject, judge};

/// A text that is changed by putting something behind it.
struct Words(String);

impl Subject for Words {
    async fn document(&self) -> Result<Value, HookFault> {
        Ok(json!({ "words": self.0 }))
    }

    fn change(&mut self, patch: Value) -> Result<(), HookFault> {
        self.0.push_str(patch.as_str().ok_or(HookFault::Unfit)?);
        Ok(())
    }
}

struct Folder(TempDir, Vec<Program>);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap(), Vec::new())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn hook(mut self, name: &str, body: &str, mark: impl FnOnce(&mut HookSpec)) -> Self {
        let path = self.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        let mut spec = HookSpec {
            point: HookPoint::BeforeToolCall,
            name: name.parse().unwrap(),
            required: false,
            timeout_ms: 60_000,
            modifies: false,
            tools: Vec::new(),
        };
        mark(&mut spec);
        self.1.push(Program { spec, agents: Vec::new(), path });
        self
    }

    async fn judge(&self, words: &mut Words) -> HookTrail {
        let specs: Vec<HookSpec> = self.1.iter().map(|program| program.spec.clone()).collect();
        let hooks = Hooks::new(self.1.clone(), None);
        let about = About { point: specs[0].point, ..about() };
        judge(&hooks, &about, &specs, words).await
    }
}

fn about() -> About {
    let turn = TurnId::from_u128(1);
    About {
        point: HookPoint::BeforeToolCall,
        session: "main:web:a:b".parse().unwrap(),
        agent: "main".parse().unwrap(),
        turn,
        call: CallId::derive(turn, 0),
    }
}

fn adds(what: &str, seen: &str) -> String {
    format!(
        "grep -q '\"words\":\"{seen}\"' && echo '{{\"decision\":\"modify\",\"patch\":\"{what}\"}}'"
    )
}

const ALLOW: &str = "cat >/dev/null; echo '{\"decision\":\"allow\"}'";

#[tokio::test]
async fn each_hook_is_shown_what_those_before_it_made_of_it() {
    let modifies = |spec: &mut HookSpec| (spec.modifies, spec.required) = (true, true);
    let folder = Folder::new().hook("a", &adds("b", "a"), modifies).hook("b", ALLOW, |_| {}).hook(
        "c",
        &adds("c", "ab"),
        modifies,
    );
    let mut words = Words("a".to_owned());
    let trail = folder.judge(&mut words).await;
    assert_eq!((words.0.as_str(), &trail.blocked), ("abc", &None));
    let changed: Vec<&str> = trail.changed_by.iter().map(HookName::as_str).collect();
    assert_eq!(changed, ["a", "c"]);
}

/// Each waits for the other's sign: one after the other they would never end.
#[tokio::test]
async fn neighbours_that_only_judge_are_asked_together_and_the_first_name_decides() {
    let folder = Folder::new();
    let at = folder.path().display().to_string();
    let meets = |me: &str, you: &str, says: &str| {
        format!("touch {at}/{me}.here; while [ ! -e {at}/{you}.here ]; do sleep 0.01; done; {says}")
    };
    let block = |why: &str| format!("echo '{{\"decision\":\"block\",\"reason\":\"{why}\"}}'");
    let folder = folder
        .hook("a", &meets("a", "b", &block("first")), |_| {})
        .hook("b", &meets("b", "a", &block("second")), |_| {})
        .hook("c", ALLOW, |_| {});
    let blocked = folder.judge(&mut Words(String::new())).await.blocked.unwrap();
    assert_eq!((blocked.hook.as_str(), blocked.reason.as_str()), ("a", "first"));
}

#[tokio::test]
async fn a_hook_knows_its_call_and_nothing_of_the_node() {
    let path = tempfile::tempdir().unwrap();
    let seen = path.path().join("seen");
    let body = format!("env > {0}; cat >> {0}; echo '{{\"decision\":\"allow\"}}'", seen.display());
    let folder = Folder::new().hook("a", &body, |spec| spec.required = true);
    assert!(folder.judge(&mut Words("w".to_owned())).await.is_empty());
    let seen = fs::read_to_string(seen).unwrap();
    let call = about().call.to_string();
    assert!(seen.contains(&format!("HOOK_KEY={call}\n")), "{seen}");
    assert!(seen.contains("HOOK_POINT=before_tool_call\n"), "{seen}");
    assert!(!seen.contains("CARGO") && !seen.contains("HOME="), "{seen}");
    let document: Value = serde_json::from_str(seen.lines().last().unwrap()).unwrap();
    assert_eq!(document["version"], 1);
    assert_eq!(document["about"]["call"], json!(call));
    assert_eq!(document["subject"], json!({ "words": "w" }));
}

#[tokio::test]
async fn one_that_gives_no_answer_is_passed_over_or_blocks_as_it_is_marked() {
    for (body, fault) in [
        ("sleep 1000", HookFault::TimedOut),
        ("exit 1", HookFault::Failed),
        ("echo nonsense", HookFault::Garbage),
        ("exec cat /dev/zero", HookFault::TooMuch),
        ("echo '{\"decision\":\"modify\",\"patch\":\"x\"}'", HookFault::Unfit),
    ] {
        let time = if fault == HookFault::TimedOut { 200 } else { 60_000 };
        let with = |required| {
            Folder::new().hook("a", body, |spec| {
                (spec.timeout_ms, spec.required) = (time, required);
            })
        };
        let (mut words, folder) = (Words("w".to_owned()), with(false));
        let trail = folder.judge(&mut words).await;
        assert_eq!((trail.blocked, trail.passed_over[0].fault), (None, fault));
        let blocked = with(true).judge(&mut words).await.blocked.unwrap();
        assert!(blocked.reason.contains(fault.as_str()), "{fault:?}: {}", blocked.reason);
        assert_eq!(words.0, "w", "{fault:?}");
    }
}

#[tokio::test]
async fn what_a_required_one_says_of_its_failure_is_told() {
    for (body, says) in [
        ("echo 'no jq here' >&2; exit 3", "ended with an error: no jq here"),
        ("printf 'a\\nb\\033[1m' >&2; exit 3", "ended with an error: a b [1m"),
        ("yes | head -c 1000000 >&2; exit 3", "ended with an error: y y y"),
        // Something that it leaves behind holds its standard error open.
        ("sleep 5 </dev/null >/dev/null & exit 3", "ended with an error"),
    ] {
        let folder = Folder::new().hook("a", body, |spec| {
            (spec.point, spec.required) = (HookPoint::BeforeLlmCall, true);
        });
        let blocked = folder.judge(&mut Words("w".to_owned())).await.blocked.unwrap();
        assert!(blocked.reason.contains(says), "{body}: {}", blocked.reason);
        assert!(blocked.reason.len() < 600, "{body}");
    }
    // A model reads this reason, so it does not quote the hook.
    let folder = Folder::new().hook("a", "echo AKIA >&2; exit 3", |spec| spec.required = true);
    let blocked = folder.judge(&mut Words("w".to_owned())).await.blocked.unwrap();
    assert_eq!(blocked.reason, "it is required, and it ended with an error");
}

#[tokio::test]
async fn one_that_is_gone_or_has_become_unsafe_is_not_run() {
    let folder = Folder::new().hook("a", ALLOW, |_| {});
    let path = folder.1[0].path.clone();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o722)).unwrap();
    let trail = folder.judge(&mut Words(String::new())).await;
    assert_eq!(trail.passed_over[0].fault, HookFault::Unsafe);
    let specs = [folder.1[0].spec.clone()];
    let elsewhere = judge(&Hooks::default(), &about(), &specs, &mut Words(String::new())).await;
    assert_eq!(elsewhere.passed_over[0].fault, HookFault::Missing);
}

async fn written(path: &Path) -> String {
    loop {
        match fs::read_to_string(path).unwrap_or_default().strip_suffix('\n') {
            Some(line) => return line.to_owned(),
            None => tokio::time::sleep(std::time::Duration::from_millis(5)).await,
        }
    }
}

/// The processes that a hook has started end with it when no caller waits for it any more.
#[tokio::test]
async fn a_hook_is_ended_with_its_group() {
    let dir = tempfile::tempdir().unwrap();
    let child = dir.path().join("child");
    let body = format!("sleep 1000 & echo $! > {}; wait", child.display());
    let folder = Folder::new().hook("a", &body, |_| {});
    let mut words = Words(String::new());
    let pid = tokio::select! {
        trail = folder.judge(&mut words) => panic!("it has ended: {trail:?}"),
        pid = written(&child) => pid,
    };
    let stat = Path::new("/proc").join(pid).join("stat");
    // The process that inherits it may take a while to reap it.
    let lives = || fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z "));
    while lives() {
        tokio::task::yield_now().await;
    }
}
