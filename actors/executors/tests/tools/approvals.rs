//! S-25: what runs is what was decided on, to the byte.

use std::sync::Arc;

use async_trait::async_trait;
use clawnode_guard::policy::PolicyBug;
use clawnode_proto::{
    CallId, Digest, TurnId,
    policy::Action,
    tool::{EffectClass, Risk, ToolFailure, ToolOutcome, ToolSpec},
};
use clawnode_tool::{Executor, ToolRun, Toolbox};
use proptest::prelude::*;
use tokio_util::sync::CancellationToken;

/// Runs one tool, which has this behind it.
#[derive(Debug)]
struct Shell {
    pin: Option<Digest>,
}

#[async_trait]
impl Executor for Shell {
    fn tools(&self) -> Vec<ToolSpec> {
        vec![ToolSpec {
            name: "shell".parse().unwrap(),
            description: String::new(),
            input_schema: r#"{"type":"object"}"#.to_owned(),
            class: EffectClass::Once,
            risk: Risk::Admin,
            capability: "docker".parse().ok(),
            timeout_ms: 1_000,
            pin: self.pin,
            time: None,
        }]
    }

    async fn execute(&self, _: ToolRun, _: CancellationToken) -> ToolOutcome {
        ToolOutcome::done("ran")
    }

    async fn health_check(&self) -> Result<(), String> {
        Ok(())
    }
}

fn toolbox(pin: &[u8], planted: PolicyBug) -> Toolbox {
    let shell: Arc<dyn Executor> = Arc::new(Shell { pin: Some(Digest::of(pin)) });
    Toolbox::new([shell]).unwrap().plant(planted)
}

fn action() -> Action {
    Action {
        session: "main:cli:local:ada".parse().unwrap(),
        turn: TurnId::from_u128(1),
        call: CallId::from_u128(2),
        tool: "shell".parse().unwrap(),
        pin: Some(Digest::of(b"alpine sh -c")),
        capability: "docker".parse().ok(),
        class: EffectClass::Once,
        timeout_ms: 1_000,
        arguments: r#"{"argv":["rm","a.txt"],"env":{"A":"1"},"cwd":"/work"}"#.to_owned(),
    }
}

/// Another action: one thing of it is different.
fn others() -> impl Strategy<Value = (Action, &'static [u8])> {
    let same: &'static [u8] = b"alpine sh -c";
    let arguments = (0..action().arguments.len(), 0x20_u8..0x7f).prop_map(move |(at, byte)| {
        let mut changed = action();
        let mut bytes = changed.arguments.clone().into_bytes();
        bytes[at] = byte;
        changed.arguments = String::from_utf8(bytes).unwrap();
        (changed, same)
    });
    let longer = "[ -~]{1,3}".prop_map(move |more| {
        let mut changed = action();
        changed.arguments.push_str(&more);
        (changed, same)
    });
    let named = |change: fn(&mut Action)| {
        let mut changed = action();
        change(&mut changed);
        (changed, same)
    };
    prop_oneof![
        8 => arguments,
        2 => longer,
        1 => Just(named(|action| action.session = "main:cli:local:adb".parse().unwrap())),
        1 => Just(named(|action| action.session = "maim:cli:local:ada".parse().unwrap())),
        1 => Just(named(|action| action.turn = TurnId::from_u128(3))),
        1 => Just(named(|action| action.call = CallId::from_u128(3))),
        1 => Just(named(|action| action.capability = "process".parse().ok())),
        1 => Just(named(|action| action.class = EffectClass::Safe)),
        1 => Just(named(|action| action.timeout_ms += 1)),
        // The image, the command or the environment of the tool is another on this node.
        1 => Just((action(), &b"alpine sh -x"[..])),
    ]
}

/// Whether this runs, where that was decided on.
fn runs(other: &Action, behind: &[u8], planted: PolicyBug) -> bool {
    let decided = action().digest().unwrap();
    match toolbox(behind, planted).is_decided(other.clone(), decided) {
        Ok(()) => true,
        Err(refusal) => {
            assert_eq!(refusal.failure, Some(ToolFailure::Refused));
            false
        }
    }
}

proptest! {
    #[test]
    fn s_25_what_differs_by_a_byte_does_not_run((other, behind) in others()) {
        prop_assume!(other != action() || behind != b"alpine sh -c");
        prop_assert!(!runs(&other, behind, PolicyBug::None));
    }
}

#[test]
fn s_25_what_was_decided_on_runs() {
    assert!(runs(&action(), b"alpine sh -c", PolicyBug::None));
}

/// The twin: without the comparison the property above does not hold.
#[test]
fn s_25_without_the_comparison_anything_runs() {
    let other = Action { arguments: r#"{"argv":["rm","-rf","/"]}"#.to_owned(), ..action() };
    assert!(!runs(&other, b"alpine sh -c", PolicyBug::None));
    assert!(runs(&other, b"alpine sh -c", PolicyBug::NotCompared));
}
