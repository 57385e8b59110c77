//! The bytes of a request as people see it, and of the question for it.

use clawnode_proto::{
    Attempt, Digest, TurnId,
    codec::{decode, encode},
    context::{ContextMode, ContextRules, ContextSettings},
    context_view::{ContextGap, ContextPart, ContextPartKind, ContextView, SessionsContext},
    llm::{FailureClass, Message, ModelFailure, Role, Usage},
    money::MicroUsd,
    session::{Compacted, CompactionBegun, CompactionFailed, Profile, SessionEvent},
    tool::{EffectClass, Risk},
};

use crate::{
    goldens::{all, events},
    samples::{call, model, profile, spec, tool_messages, turn, usage},
};

fn part(kind: ContextPartKind, tokens: u64, why: &str) -> ContextPart {
    ContextPart {
        kind,
        turn: None,
        number: None,
        tokens,
        repeated: true,
        why: why.to_owned(),
        text: None,
        tools: Vec::new(),
        messages: Vec::new(),
        stubs: Vec::new(),
    }
}

/// A request with a part of each kind, of which something is left out.
fn whole_view() -> ContextView {
    let (rules, mode) = (ContextRules::V3, ContextMode::Auto);
    let always = "it is sent with every call, and never cut";
    let text = |text: &str| Some(text.to_owned());
    let gap = |what: &str, turns| ContextGap {
        what: what.to_owned(),
        turns,
        why: "the context of 5000 tokens has no room for it".to_owned(),
    };
    let of_turn = |kind, number| ContextPart {
        turn: Some(turn()),
        number: Some(number),
        ..part(kind, 20, "it is one of the 5 newest turns")
    };
    ContextView {
        turn: turn(),
        number: 12,
        step: 2,
        call: call(),
        attempt: Attempt(3),
        model: model(),
        window_tokens: 100_000,
        rules: Some(ContextSettings { rules, mode, tokens: 5_000, recent_turns: 5 }),
        tokens: 1_234,
        reported: Some(1_200),
        cost: Some(MicroUsd(3_456)),
        repeated: 1_000,
        verified: true,
        parts: vec![
            ContextPart { text: text("be kind"), ..part(ContextPartKind::System, 3, always) },
            ContextPart {
                tools: vec![spec(None, EffectClass::Safe, Risk::ReadOnly)],
                ..part(ContextPartKind::Tools, 9, always)
            },
            ContextPart {
                text: text(r#"{"type":"object"}"#),
                ..part(ContextPartKind::ResponseSchema, 5, always)
            },
            ContextPart {
                messages: vec![Message::text(Role::User, "long ago")],
                ..part(ContextPartKind::Seed, 10, "it fits into the context of 5000 tokens")
            },
            ContextPart {
                messages: vec![Message::text(Role::User, "[Summary] Ada likes tea")],
                ..part(ContextPartKind::Summary, 12, "`p/m` made it of turns 1 to 10")
            },
            ContextPart { messages: tool_messages(), ..of_turn(ContextPartKind::Turn, 11) },
            ContextPart { repeated: false, ..of_turn(ContextPartKind::Running, 12) },
            part(ContextPartKind::Hook, 4, "a hook added it"),
        ],
        left_out: vec![gap("turns", Some((1, 10))), gap("what the session began with", None)],
    }
}

/// A first request under the first rules, whose provider did not count.
fn plain_view() -> ContextView {
    ContextView {
        rules: None,
        reported: None,
        cost: None,
        repeated: 0,
        verified: false,
        parts: Vec::new(),
        left_out: Vec::new(),
        ..whole_view()
    }
}

#[test]
fn questions_for_a_context() {
    let session = "default:cli:local:ada".to_owned();
    let at = |at: &str| Some(at.parse().unwrap());
    let named = format!("{}.1", turn());
    insta::assert_snapshot!(all(&[
        SessionsContext { session: session.clone(), at: None },
        SessionsContext { session: session.clone(), at: at("12.1") },
        SessionsContext { session, at: at(&named) },
    ]));
}

#[test]
fn contexts_as_people_see_them() {
    insta::assert_snapshot!(all(&[whole_view(), plain_view()]));
}

/// An earlier build shows the other parts that a later one answers with.
#[test]
fn a_part_of_a_later_build_is_shown_as_unknown() {
    let view = serde_json::to_string(&whole_view()).unwrap();
    let later = view.replace(r#""kind":"hook""#, r#""kind":"stub","entry":"a plan""#);
    let read: ContextView = serde_json::from_str(&later).unwrap();
    assert_eq!(read.parts.last().map(|part| part.kind), Some(ContextPartKind::Unknown));
    assert_eq!(read.parts.len(), whole_view().parts.len());
}

/// CTX-1: what a request shows of a turn that failed follows from its failure, as it was recorded.
#[test]
fn failures_of_before_say_nothing_of_attachments() {
    let before = ModelFailure::new(FailureClass::Rejected, "no such model");
    let kept = ModelFailure { keeps_attachments: true, ..before.clone() };
    let bytes = encode(&before).unwrap();
    assert!(
        !String::from_utf8_lossy(&bytes).contains("keeps_attachments"),
        "its bytes are as before"
    );
    for failure in [before, kept] {
        let bytes = encode(&failure).unwrap();
        assert_eq!(decode::<ModelFailure>(&bytes).unwrap(), failure);
    }
}

/// A build that does not know the rules of a session leaves it to a later one.
#[test]
fn rules_of_a_later_build_are_refused() {
    let settings = whole_view().rules.unwrap();
    let mut bytes = encode(&settings).unwrap();
    let version = bytes.iter().position(|byte| *byte == b'3').unwrap();
    bytes[version] = b'~';
    assert!(decode::<ContextSettings>(&bytes).is_err());
}

/// Where no model makes summaries, a configuration has the bytes that it had before there were any: the other goldens
/// show it.
#[test]
fn compactions() {
    let (turn, call, upto) = (turn(), call(), TurnId::from_u128(7));
    let (attempt, request) = (Attempt(2), Digest::of(b"request"));
    let failure = ModelFailure::new(FailureClass::Rejected, "the summary is empty");
    let model = model();
    let begun = CompactionBegun {
        turn,
        call,
        attempt,
        upto,
        model: model.clone(),
        request,
        max_tokens: 4_096,
    };
    let text = "Ada likes tea".to_owned();
    let by = model.clone();
    let failed = CompactionFailed { turn, call, attempt, failure, usage: usage() };
    insta::assert_snapshot!(events::<SessionEvent>(&[
        Profile { compact_model: Some(model), ..profile() }.into(),
        begun.into(),
        Compacted { turn, call, attempt, upto, text, by, usage: usage() }.into(),
        failed.clone().into(),
        CompactionFailed { attempt: Attempt(0), usage: Usage::default(), ..failed }.into(),
    ]));
}
