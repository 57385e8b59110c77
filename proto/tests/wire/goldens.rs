//! The bytes of every wire type.

use std::fmt::{Debug, Write as _};

use clawnode_proto::{
    FrameBody, Grammar, Timestamp,
    codec::{decode, encode},
    job::Job,
    llm::{Message, Role, Sampling, Usage},
    policy::Policy,
    reasoning::Reasoning,
    session::{SessionInput, ToolEnd, UserMessage},
    tool::{ToolOutcome, ToolReply},
    tool_choice::ToolChoice,
    turn::{StreamEnd, TurnBody, TurnEvent},
};
use serde::{Serialize, de::DeserializeOwned};

use crate::{budget::budget_events, hex, samples as sample};

/// Appends a value to a golden, after reading its bytes back.
fn show<T: Serialize + DeserializeOwned + PartialEq + Debug>(golden: &mut String, value: &T) {
    let bytes = encode(value).unwrap();
    assert_eq!(&decode::<T>(&bytes).unwrap(), value, "what was written is not what is read");
    let json = serde_json::to_string(value).unwrap();
    writeln!(golden, "{json}\n  {}", hex(&bytes)).unwrap();
}

pub(crate) fn all<T: Serialize + DeserializeOwned + PartialEq + Debug>(values: &[T]) -> String {
    let mut golden = String::new();
    for value in values {
        show(&mut golden, value);
    }
    golden
}

/// An event's golden has what the head says of it too: a flag is as much of the wire as a name.
pub(crate) fn events<G: Grammar + PartialEq + Debug>(values: &[G]) -> String {
    let mut golden = String::new();
    for event in values {
        let body = event.encode_body().unwrap();
        let again = G::decode_body(event.kind(), &body).unwrap();
        assert_eq!(again.as_ref(), Some(event), "what was written is not what is read");
        let required = if event.required() { " required" } else { "" };
        let progress = if event.progress() { " progress" } else { "" };
        let kind = event.kind();
        writeln!(golden, "{kind}{required}{progress} {}\n  {}", event.view(), hex(&body)).unwrap();
    }
    golden
}

/// The events of a turn are JSON alone: it is what clients read.
#[test]
fn turn_events() {
    let mut golden = String::new();
    for event in sample::turn_events() {
        let json = serde_json::to_string(&event).unwrap();
        assert_eq!(serde_json::from_str::<TurnEvent>(&json).unwrap(), event);
        writeln!(golden, "{json}").unwrap();
    }
    insta::assert_snapshot!(golden);
}

#[test]
fn kernel_events() {
    insta::assert_snapshot!(events(&sample::kernel_events()));
}

#[test]
fn session_events() {
    insta::assert_snapshot!(events(&sample::session_events()));
}

#[test]
fn model_choices() {
    let (message, events) = sample::model_choices();
    let mut golden = all(&[SessionInput::UserMessage(message)]);
    golden.push_str(&self::events(&events));
    insta::assert_snapshot!(golden);
}

/// A message that chooses nothing for its session has the bytes that it had before it could.
#[test]
fn kept_choices() {
    insta::assert_snapshot!(all(&sample::kept_choices().map(SessionInput::UserMessage)));
}

#[test]
fn lanes() {
    insta::assert_snapshot!(all(&sample::lanes().map(SessionInput::UserMessage)));
}

#[test]
fn feedback() {
    let (inputs, events) = sample::feedback();
    insta::assert_snapshot!(all(&inputs) + &self::events(&events));
}

/// What has no routes has the bytes that it had before there were any: the other goldens show it.
#[test]
fn routed() {
    insta::assert_snapshot!(events(&sample::routed_events()));
}

/// What has no limit has the bytes that it had before there were any.
#[test]
fn routed_by_price() {
    insta::assert_snapshot!(events(&sample::priced_events()));
}

/// A session under the first rules has the bytes that it had before there were others: the other goldens show it.
#[test]
fn context() {
    insta::assert_snapshot!(events(&sample::context_events()));
}

/// What has one model only has the bytes that it had before there were chains: the other goldens show it.
#[test]
fn give_way() {
    insta::assert_snapshot!(events(&sample::give_way_events()));
}

#[test]
fn structured_replies() {
    let (message, events, frames) = sample::structured_replies();
    let mut golden = all(&[SessionInput::UserMessage(message)]);
    golden.push_str(&self::events(&events));
    golden.push_str(&all(&frames));
    let structured = Some(serde_json::json!({"name": "Ada"}));
    golden.push_str(&all(&[StreamEnd { structured, ..StreamEnd::default() }]));
    insta::assert_snapshot!(golden);
}

#[test]
fn session_inputs() {
    insta::assert_snapshot!(all(&sample::session_inputs()));
}

/// What a model says beside text and tool calls.
#[test]
fn blocks() {
    let mut golden = all(&[sample::thinking_message()]);
    golden.push_str(&events(&[sample::thinking_event()]));
    golden.push_str(&all(&[FrameBody::Thought { delta: "hm".to_owned() }]));
    golden.push_str(&all(&[TurnEvent::from(TurnBody::Thought("hm".to_owned()))]));
    let amounts = [Reasoning::Off, Reasoning::High, Reasoning::Tokens(2_000)];
    let sampling = |effort| Sampling { reasoning: Some(effort), ..Sampling::default() };
    golden.push_str(&all(&amounts.map(sampling)));
    golden.push_str(&all(&[Usage { reasoning_tokens: 7, ..Usage::default() }]));
    golden.push_str(&all(&[Usage { cache_write_hour_tokens: 7, ..Usage::default() }]));
    insta::assert_snapshot!(golden);
}

#[test]
fn tools_and_jobs() {
    let mut golden = all(&sample::tool_messages());
    golden.push_str(&all(&[sample::job()]));
    golden.push_str(&all(&sample::job_states()));
    let limits = sample::time_limits().into_iter();
    let limited = limits.map(|limit| Job { limit: Some(limit), ..sample::job() });
    golden.push_str(&all(&limited.collect::<Vec<_>>()));
    let decided = Job { action: Some(sample::approval().digest), ..sample::job() };
    golden.push_str(&all(&[decided]));
    golden.push_str(&all(&[Job { callbacks: Some(sample::callbacks()), ..sample::job() }]));
    golden.push_str(&all(&[sample::approval()]));
    golden.push_str(&all(&[Job { not_after: Some(Timestamp(7)), ..sample::job() }]));
    let read_only = vec!["git diff *".to_owned()];
    golden.push_str(&all(&[Policy { read_only, ..sample::policy() }]));
    insta::assert_snapshot!(golden);
}

/// What offers no tools, and has no newer settings, has the bytes that it had before there were any: the other
/// goldens show it.
#[test]
fn client_tools() {
    let (message, results, asked) = sample::client_tools();
    let inputs = [SessionInput::UserMessage(message), SessionInput::ClientResults(results)];
    let mut golden = all(&inputs);
    golden.push_str(&events(&[asked]));
    let calls = sample::client_calls();
    golden.push_str(&all(&[FrameBody::ClientCalls(calls)]));
    golden.push_str(&all(&[ToolChoice::None, ToolChoice::Required]));
    insta::assert_snapshot!(golden);
}

/// A result of a tool that did not fail has the bytes that it had before any could say so.
#[test]
fn failed_client_result() {
    let (_, results, _) = sample::client_tools();
    let mut failed = results.results;
    failed[0].is_error = true;
    insta::assert_snapshot!(all(&failed));
}

/// What has no attachments has the bytes that it had before there were any: the other goldens show it.
#[test]
fn notes_of_content() {
    insta::assert_snapshot!(all(&sample::content_notes()));
}

#[test]
fn attachments() {
    let mut golden = all(&sample::media());
    golden.push_str(&all(&sample::files()));
    let attachments: Vec<_> = sample::media().into_iter().take(1).collect();
    let message = UserMessage { attachments: attachments.clone(), ..UserMessage::text("see") };
    golden.push_str(&all(&[SessionInput::UserMessage(message)]));
    let message = Message { attachments: attachments.clone(), ..Message::text(Role::User, "see") };
    golden.push_str(&all(&[message]));
    let (id, content) = ("toolu_1".to_owned(), "a picture".into());
    let media = attachments.clone();
    golden.push_str(&all(&[ToolReply { id, content, is_error: false, media }]));
    let outcome = ToolOutcome { media: attachments, ..ToolOutcome::done("a picture") };
    golden.push_str(&all(&[ToolEnd::Known { outcome }]));
    insta::assert_snapshot!(golden);
}

#[test]
fn archived_jobs() {
    insta::assert_snapshot!(all(&[sample::archived()]) + &all(&sample::log_lines()));
}

#[test]
fn ssh_pin() {
    insta::assert_snapshot!(all(&[sample::ssh_pin()]));
}

#[test]
fn store_keys() {
    insta::assert_snapshot!(all(&[sample::store_keys()]));
}

#[test]
fn mcp_pins() {
    insta::assert_snapshot!(all(&[sample::mcp_pins()]));
}

#[test]
fn envelope() {
    insta::assert_snapshot!(all(&[sample::input(), sample::order()]));
}

#[test]
fn frames() {
    insta::assert_snapshot!(all(&sample::frames()) + &all(&[sample::batch()]));
}

#[test]
fn latches() {
    insta::assert_snapshot!(all(&sample::latches()));
}

#[test]
fn heartbeat() {
    insta::assert_snapshot!(all(&[sample::heartbeat()]));
}

#[test]
fn open_circuit() {
    insta::assert_snapshot!(all(&[sample::open_circuit()]));
}

#[test]
fn hearsay() {
    insta::assert_snapshot!(all(&sample::hearsay()));
}

#[test]
fn node_requests_and_replies() {
    insta::assert_snapshot!(all(&sample::node_requests()) + &all(&sample::node_replies()));
}

#[test]
fn cluster_events() {
    insta::assert_snapshot!(all(&[sample::cluster_events()]));
}

#[test]
fn usage_and_failures() {
    let classes = all(&sample::failure_classes());
    insta::assert_snapshot!(all(&[sample::usage_record()]) + &classes);
}

#[test]
fn what_a_snapshot_remembers() {
    insta::assert_snapshot!(all(&[sample::remembered()]));
}

/// A wire name that means two things cannot be read; all grammars share one name space.
#[test]
fn every_event_name_is_used_once() {
    let mut names: Vec<&str> = sample::kernel_events().iter().map(Grammar::kind).collect();
    names.sort_unstable();
    names.extend(sample::session_events().iter().map(Grammar::kind));
    names.extend(budget_events().iter().map(Grammar::kind));
    names.dedup();
    let mut once = names.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), names.len(), "{names:?}");
}
