//! Old and new processes read each other: unknown fields are skipped, fields that an older writer
//! did not know get their defaults, and what is meant for newer readers only is refused by name.

use std::fmt::Debug;

use clawnode_proto::{
    CallId, Digest, Grammar, Input, TurnId,
    archive::JobRecord,
    budget::SpendLimits,
    codec::{decode, encode},
    envelope::{InputError, VERSIONS},
    id::{AgentName, Attempt},
    llm::{Message, ModelRef, Role, Sampling, SystemPrompt, Text, TextBlob, Usage},
    policy::Policy,
    session::{ModelBegun, Profile, SessionEvent, SessionInput, UserMessage},
    timeout::TurnTime,
    tool::LoopGuard,
};
use serde::{Serialize, de::DeserializeOwned};

use crate::samples as sample;

/// The first byte of a `MessagePack` map with no entry; with one more entry it is one higher.
const EMPTY_MAP: u8 = 0x80;
/// The most entries that such a byte can say.
const SMALL_MAP: u8 = 0x8f;
/// What begins a map of more entries, before their number in two bytes.
const LARGE_MAP: u8 = 0xde;

/// The same map with one field more, as a newer writer would send it.
fn with_unknown_field(bytes: &[u8]) -> Option<Vec<u8>> {
    let (&first, rest) = bytes.split_first()?;
    let (mut out, rest) = match first {
        EMPTY_MAP..SMALL_MAP => (vec![first + 1], rest),
        SMALL_MAP => (vec![LARGE_MAP, 0, SMALL_MAP - EMPTY_MAP + 1], rest),
        LARGE_MAP => {
            let (count, rest) = rest.split_first_chunk()?;
            let more = (u16::from_be_bytes(*count) + 1).to_be_bytes();
            (vec![LARGE_MAP, more[0], more[1]], rest)
        }
        _ => return None,
    };
    out.extend_from_slice(rest);
    out.extend(encode(&"invented_later").unwrap());
    out.extend(encode(&sample::user_message()).unwrap());
    Some(out)
}

fn skips_unknown<T: Serialize + DeserializeOwned + PartialEq + Debug>(values: &[T]) {
    let mut maps = 0;
    for value in values {
        if let Some(bytes) = with_unknown_field(&encode(value).unwrap()) {
            maps += 1;
            assert_eq!(&decode::<T>(&bytes).unwrap(), value);
        }
    }
    assert!(maps > 0, "no value of {} is a map", std::any::type_name::<T>());
}

fn events_skip_unknown<G: Grammar + PartialEq + Debug>(events: &[G]) {
    for event in events {
        let body = with_unknown_field(&event.encode_body().unwrap()).unwrap();
        assert_eq!(G::decode_body(event.kind(), &body).unwrap().as_ref(), Some(event));
    }
}

#[test]
fn an_old_reader_skips_what_a_newer_writer_adds() {
    events_skip_unknown(&sample::kernel_events());
    events_skip_unknown(&sample::session_events());
    skips_unknown(&sample::session_inputs());
    skips_unknown(&[sample::input()]);
    skips_unknown(&sample::frames());
    skips_unknown(&[sample::batch()]);
    skips_unknown(&[sample::heartbeat()]);
    skips_unknown(&[sample::open_circuit()]);
    skips_unknown(&sample::hearsay());
    skips_unknown(&sample::node_requests());
    skips_unknown(&sample::node_replies());
    skips_unknown(&[sample::usage_record()]);
    skips_unknown(&[sample::remembered()]);
}

/// What a writer sent before the optional fields existed.
mod old_data {
    use super::{AgentName, Attempt, CallId, Digest, ModelRef, Serialize, Text, TurnId};

    #[derive(Serialize)]
    #[serde(tag = "type", rename_all = "snake_case")]
    pub(super) enum SessionInput {
        UserMessage { content: Text },
    }

    #[derive(Serialize)]
    pub(super) struct Profile {
        pub(super) agent: AgentName,
        pub(super) model: ModelRef,
        pub(super) window_tokens: u32,
        pub(super) step_limit: u32,
    }

    #[derive(Serialize)]
    pub(super) struct ModelBegun {
        pub(super) turn: TurnId,
        pub(super) call: CallId,
        pub(super) attempt: Attempt,
        pub(super) request: Digest,
    }

    #[derive(Serialize)]
    pub(super) struct Usage {
        pub(super) input_tokens: u64,
        pub(super) output_tokens: u64,
    }
}

#[test]
fn a_new_reader_fills_in_what_an_old_writer_left_out() {
    let old = old_data::SessionInput::UserMessage { content: "hello".into() };
    let new: SessionInput = decode(&encode(&old).unwrap()).unwrap();
    assert_eq!(new, SessionInput::UserMessage(UserMessage::text("hello")));

    let (agent, model): (AgentName, ModelRef) = (sample::name("ops"), sample::name("demo/echo"));
    let old = old_data::Profile {
        agent: agent.clone(),
        model: model.clone(),
        window_tokens: 9,
        step_limit: 2,
    };
    let (system, sampling) = (SystemPrompt::default(), Sampling::default());
    let new = Profile {
        agent,
        model,
        system,
        sampling,
        window_tokens: 9,
        reply_tokens: None,
        step_limit: 2,
        tools: Vec::new(),
        max_parallel_tools: 8,
        loop_guard: LoopGuard { warn: 3, refuse: 5, end: 30 },
        // Data older than policies allows nothing that its writer did not know.
        policy: Policy {
            rules: Vec::new(),
            approval_wait_ms: 7 * 24 * 3_600_000,
            read_only: Vec::new(),
        },
        chain: Vec::new(),
        outage_ms: Profile::outage(),
        step_wait_ms: 0,
        // Data older than limits ends no turn by a limit that was not set.
        time: TurnTime::default(),
        hooks: Vec::new(),
        response_schema: None,
        routes: Vec::new(),
        limits: SpendLimits::default(),
        context: None,
        compact_model: None,
        reflects: false,
        extracts: false,
    };
    let read = SessionEvent::decode_body("configured", &encode(&old).unwrap()).unwrap();
    assert_eq!(read, Some(new.into()));

    let (turn, call, request) = (sample::turn(), sample::call(), Digest::of(b"request"));
    let old = old_data::ModelBegun { turn, call, attempt: Attempt(1), request };
    let (attempt, estimate, route) = (Attempt(1), None, None);
    let (dropped_turns, closes_upto) = (0, None);
    let new =
        ModelBegun { turn, call, attempt, request, dropped_turns, closes_upto, estimate, route };
    let read = SessionEvent::decode_body("model_begun", &encode(&old).unwrap()).unwrap();
    assert_eq!(read, Some(new.into()));

    // What is older than blocks reads as its text, then its tool calls.
    let message = Message::text(Role::Assistant, "hi");
    let old = serde_json::json!({"role": "assistant", "content": {"type": "inline", "text": "hi"}});
    assert_eq!(decode::<Message>(&encode(&old).unwrap()).unwrap(), message);
    assert_eq!(message.blocks, None);

    let old = old_data::Usage { input_tokens: 3, output_tokens: 4 };
    let new: Usage = decode(&encode(&old).unwrap()).unwrap();
    assert_eq!(new, Usage { input_tokens: 3, output_tokens: 4, ..Usage::default() });
}

/// A build that knows no prompt in the blob store would show its model none, so it is not to read the configuration.
#[test]
fn a_system_prompt_in_the_blob_store_is_read_by_builds_that_know_such_and_by_no_other() {
    #[derive(Debug, serde::Deserialize)]
    struct PlainProfile {
        system: String,
    }
    let in_place = sample::profile();
    let bytes = encode(&in_place).unwrap();
    assert_eq!(decode::<PlainProfile>(&bytes).unwrap().system, in_place.system.inline());

    let blob = TextBlob { digest: Digest::of(b"long"), bytes: 131_072 };
    let stored = Profile { system: SystemPrompt::Blob(blob), ..in_place };
    let bytes = encode(&stored).unwrap();
    assert!(decode::<PlainProfile>(&bytes).is_err());
    assert_eq!(decode::<Profile>(&bytes).unwrap(), stored);
    let json = serde_json::to_value(&stored).unwrap();
    assert_eq!(json["system"]["digest"], blob.digest.to_string());
    assert_eq!(serde_json::from_value::<Profile>(json).unwrap(), stored);
}

#[test]
fn a_missing_required_field_is_an_error_and_not_a_guess() {
    let body = encode(&serde_json::json!({"turn": sample::turn().to_string()})).unwrap();
    assert!(SessionEvent::decode_body("model_begun", &body).is_err());
}

#[test]
fn an_input_for_newer_readers_is_refused_by_name() {
    let newest = *VERSIONS.end();
    let too_new = Input { v: newest + 1, v_min: newest + 1, ..sample::input() };
    let error = Input::from_bytes(&too_new.to_bytes().unwrap()).unwrap_err();
    assert!(matches!(error, InputError::TooNew { needs, .. } if needs == newest + 1), "{error}");
    // Those who only keep it read what they know of it.
    assert_eq!(Input::of_any_version(&too_new.to_bytes().unwrap()).unwrap(), too_new);

    // Newer, but its writer says that older readers may take it.
    let newer = Input { v: newest + 1, ..sample::input() };
    assert_eq!(Input::from_bytes(&newer.to_bytes().unwrap()).unwrap(), newer);
}

#[test]
fn an_input_that_contradicts_itself_is_refused() {
    let other = Input { key: "default:web:site:eve".to_owned(), ..sample::input() };
    let error = Input::from_bytes(&other.to_bytes().unwrap()).unwrap_err();
    assert!(matches!(error, InputError::KeyMismatch { .. }), "{error}");
}

#[test]
fn an_unknown_variant_is_an_error_that_names_the_type() {
    let body = encode(&serde_json::json!({"type": "invented_later"})).unwrap();
    let error = decode::<SessionInput>(&body).unwrap_err();
    assert!(error.to_string().contains("SessionInput"), "{error}");
}

/// Records of builds that did not write down arguments.
#[test]
fn a_job_record_without_arguments_is_read() {
    let record = sample::archived();
    let mut old = serde_json::to_value(&record).unwrap();
    old.as_object_mut().unwrap().remove("arguments").unwrap();
    let read: JobRecord = serde_json::from_value(old).unwrap();
    assert_eq!(read, JobRecord { arguments: String::new(), ..record });
}
