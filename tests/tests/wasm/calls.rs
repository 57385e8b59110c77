//! Calls of plugins, behind the toolbox that all tools have.

use std::time::Duration;

use clawnode_kernel::job_machine::Probe;
use clawnode_proto::tool::{EffectClass, Risk, ToolFailure};
use clawnode_tool::{Egress, EgressOptions};
use clawnode_wasm::{limits, text::PluginText};
use futures_util::future::join_all;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{Folder, ToolRun, Toolbox, call, run, said};

const FOREVER: &str = "(loop $again (br $again)) unreachable";

fn egress() -> Egress {
    Egress::new(EgressOptions::default())
}

#[tokio::test]
async fn a_tool_of_a_plugin_is_named_after_both_and_only_made_stricter() {
    let folder = Folder::new();
    let mut plain = folder.add("plain", PluginText::default(), &[]);
    plain.timeout = Duration::from_secs(7);
    let mut strict = folder.add("strict", PluginText::default(), &[]);
    (strict.risk, strict.once) = (Some(Risk::Write), true);
    let mut mild =
        folder.add("mild", PluginText { class: 2, risk: 2, ..PluginText::default() }, &[]);
    mild.risk = Some(Risk::ReadOnly);
    let toolbox = folder.toolbox(&[plain, strict, mild], &egress()).await;
    let told: Vec<_> = toolbox
        .specs()
        .map(|spec| {
            (spec.name.as_str(), spec.capability.as_ref().unwrap().as_str(), spec.class, spec.risk)
        })
        .collect();
    let wanted = [
        ("mild__run", "wasm.mild", EffectClass::Once, Risk::Admin),
        ("plain__run", "wasm.plain", EffectClass::Safe, Risk::ReadOnly),
        ("strict__run", "wasm.strict", EffectClass::Once, Risk::Write),
    ];
    assert_eq!(told, wanted);
    let plain = toolbox.specs().find(|spec| spec.name.as_str() == "plain__run").unwrap();
    assert_eq!(plain.timeout_ms, 7_000);
    assert_eq!(said(&call(&toolbox, "plain__run").await), r#"{"a":1}"#);
}

/// What was approved of a plugin is not of another of its name, nor of one that reaches further.
#[tokio::test]
async fn a_tool_is_pinned_to_the_code_and_the_reach_of_its_plugin() {
    let other = PluginText { call: "unreachable", ..PluginText::default() };
    let mut pins = Vec::new();
    let cases: [(PluginText<'_>, &[&str]); 4] = [
        (PluginText::default(), &[]),
        (PluginText::default(), &[]),
        (other, &[]),
        (PluginText::default(), &["http:example.org"]),
    ];
    for (text, capabilities) in cases {
        let folder = Folder::new();
        let plugin = folder.add("same", text, capabilities);
        let toolbox = folder.toolbox(&[plugin], &egress()).await;
        pins.push(toolbox.specs().next().unwrap().pin.unwrap());
    }
    assert_eq!(pins[0], pins[1], "wherever its file is");
    assert_ne!(pins[0], pins[2]);
    assert_ne!(pins[0], pins[3]);
}

/// The tool whose name has 7 letters knows the keys of 5 letters; for others it returns the arguments.
const ASKS: &str = r"(if (result i32) (i32.ne (local.get $tool_len) (i32.const 7))
    (then unreachable)
    (else (if (result i32) (i32.eq (local.get $key_len) (i32.const 5))
      (then (call $ok (i32.const 8192) (i32.const 35)))
      (else (call $ok (local.get $args) (local.get $args_len))))))";
const FOUND: &str = r#"(data (i32.const 8192) "{\"happened\":true,\"result\":\"posted\"}")"#;

/// A plugin's probe is a tool that gets the arguments and the key of the call.
#[tokio::test]
async fn a_tool_of_a_plugin_can_be_the_probe_of_another() {
    let folder = Folder::new();
    let text = PluginText {
        call: ASKS,
        more: FOUND,
        class: 2,
        second: Some("has_run"),
        ..PluginText::default()
    };
    let mut plugin = folder.add("posts", text, &[]);
    let plain = folder.toolbox(&[plugin.clone()], &egress()).await;
    plugin.probes = [("run".to_owned(), "has_run".to_owned())].into();
    let toolbox = folder.toolbox(&[plugin.clone()], &egress()).await;
    let spec = |toolbox: &Toolbox, name: &str| {
        toolbox
            .specs()
            .find(|spec| spec.name.as_str() == name)
            .map(|spec| (spec.class, spec.pin))
            .unwrap()
    };
    assert_eq!(spec(&plain, "posts__run").0, EffectClass::Once);
    assert_eq!(spec(&toolbox, "posts__run").0, EffectClass::Check);
    assert_ne!(spec(&plain, "posts__run").1, spec(&toolbox, "posts__run").1, "another approval");
    assert_eq!(spec(&plain, "posts__has_run"), spec(&toolbox, "posts__has_run"));
    let with = |key: &str, arguments: serde_json::Value| {
        let arguments = arguments.as_object().cloned().unwrap();
        ToolRun { idempotency_key: key.to_owned(), arguments, ..run("posts__run") }
    };
    let found = toolbox.probe(with("job_7", json!({}))).await;
    let Probe::Happened(outcome) = found else { panic!("{found:?}") };
    assert_eq!((outcome.failure, said(&outcome)), (None, "posted"));
    assert_eq!(toolbox.probe(with("job_08", json!({ "happened": false }))).await, Probe::Absent);
    for unclear in [json!({}), json!({ "happened": "no" })] {
        let probe = toolbox.probe(with("job_08", unclear)).await;
        assert!(matches!(&probe, Probe::Unclear(why) if why.contains("happened")), "{probe:?}");
    }
    let unasked = plain.probe(with("job_7", json!({}))).await;
    assert!(matches!(&unasked, Probe::Unclear(why) if why.contains("no probe")), "{unasked:?}");
    // A probe that cannot be used leaves the plugin out.
    for (tool, probe) in
        [("run", "none"), ("none", "has_run"), ("run", "run"), ("has_run", "has_run")]
    {
        let mut wrong = plugin.clone();
        wrong.probes = [(tool.to_owned(), probe.to_owned())].into();
        assert_eq!(folder.toolbox(&[wrong], &egress()).await.specs().count(), 0, "{tool}: {probe}");
    }
    plugin.once = true;
    assert_eq!(
        folder.toolbox(&[plugin], &egress()).await.specs().count(),
        0,
        "no probe would be asked"
    );
}

/// F-18, for plugins: what hangs is stopped, and its place is free again.
#[tokio::test]
async fn f_18_a_call_ends_as_what_it_is() {
    let folder = Folder::new();
    let text = |call| PluginText { call, ..PluginText::default() };
    let plugins = [
        folder.add("good", PluginText::default(), &[]),
        folder.add("hung", text(FOREVER), &[]),
        folder.add("traps", text("unreachable"), &[]),
        folder.add("fails", text("(call $err (local.get $key) (local.get $key_len))"), &[]),
    ];
    let toolbox = folder.toolbox(&plugins, &egress()).await;
    let token = CancellationToken::new;
    let short = |tool: &str| {
        let mut run = run(tool);
        run.timeout = Duration::from_millis(300);
        run
    };
    // As many as there is room for, and more: all of them end, and leave their room.
    let hung = (0..=limits::CALLS).map(|_| toolbox.execute(short("hung__run"), token()));
    for outcome in join_all(hung).await {
        assert_eq!(outcome.failure, Some(ToolFailure::TimedOut), "{outcome:?}");
    }
    let cancelled = token();
    let stopping = async {
        tokio::task::yield_now().await;
        cancelled.cancel();
    };
    let (outcome, ()) =
        tokio::join!(toolbox.execute(run("hung__run"), cancelled.clone()), stopping);
    assert_eq!(outcome.failure, Some(ToolFailure::Cancelled), "{outcome:?}");
    let outcome = call(&toolbox, "traps__run").await;
    assert_eq!(outcome.failure, Some(ToolFailure::Crashed));
    assert!(said(&outcome).starts_with("the plugin `traps`: it trapped: "), "{outcome:?}");
    let outcome = call(&toolbox, "fails__run").await;
    assert_eq!((outcome.failure, said(&outcome)), (Some(ToolFailure::Failed), "job_7"));
    let many = (0..100).map(|_| call(&toolbox, "good__run"));
    assert!(join_all(many).await.iter().all(|outcome| outcome.failure.is_none()));
}

#[tokio::test]
async fn s_16_a_run_that_is_let_go_ends_too() {
    let folder = Folder::new();
    let hung = folder.add("hung", PluginText { call: FOREVER, ..PluginText::default() }, &[]);
    let good = folder.add("good", PluginText::default(), &[]);
    let toolbox = folder.toolbox(&[hung, good], &egress()).await;
    for _ in 0..limits::CALLS {
        let running = toolbox.execute(run("hung__run"), CancellationToken::new());
        // Begun, and dropped at once.
        drop(tokio::time::timeout(Duration::from_millis(20), running).await);
    }
    assert_eq!(call(&toolbox, "good__run").await.failure, None, "there is room again");
}
