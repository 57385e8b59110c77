//! Long system prompts: the blob store has them, journals and snapshots name them, and each request has its own.

use clawnode_kernel::{Entity, EntityKind as _, LoadedJournal, MachineOptions};
use clawnode_proto::{
    Digest,
    context_view::ContextPartKind,
    event::decode_record,
    limits::{SOUL_BYTES, SYSTEM_PROMPT_INLINE},
    llm::TextBlob,
    session::{SessionEvent, SessionInput, UserMessage},
    tool::ToolSpec,
};

use super::super::{
    explain_context::ContextReader, model_call::model_tests::replayed, prepare::SessionJob,
};
use super::model_input::Assembled;
use crate::{
    agent::{AgentOptions, Grant},
    session::{
        Session,
        played::{PlayedActivation, key},
        texts::packed_text,
    },
};

/// The configuration is read again, and has this system prompt.
fn reload(run: &mut PlayedActivation, system: &str) {
    let system = system.to_owned();
    run.grant = Grant::free(AgentOptions { system, ..(*run.grant.options).clone() });
}

fn request(run: &PlayedActivation) -> Assembled {
    match run.started.last() {
        Some((_, SessionJob::Call(job))) => job.request.clone(),
        other => panic!("{other:?}"),
    }
}

/// Where this session has a system prompt.
fn blob(system: &str) -> TextBlob {
    packed_text(key().entity(), system).0
}

fn events(run: &PlayedActivation) -> Vec<SessionEvent> {
    let sealed = run.journal.iter().flat_map(|record| decode_record(&record.bytes).unwrap());
    sealed.filter_map(|sealed| sealed.event().unwrap()).collect()
}

fn has(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|part| part == text.as_bytes())
}

#[test]
fn a_session_stays_small_whose_agent_has_the_longest_soul_and_forty_tools() {
    let soul = "s".repeat(usize::try_from(SOUL_BYTES).unwrap());
    let options = MachineOptions { snapshot_every: 20, ..MachineOptions::default() };
    let mut run = PlayedActivation::with(&[], LoadedJournal::default(), options, true);
    let look = run.grant.options.tools[0].clone();
    let tool = |n: usize| ToolSpec {
        name: format!("look{n}").parse().unwrap(),
        description: "d".repeat(800),
        ..look.clone()
    };
    let tools = (0..40).map(tool).collect();
    run.grant = Grant::free(AgentOptions { tools, ..(*run.grant.options).clone() });
    reload(&mut run, &soul);
    for n in 0..40 {
        run.says(&format!("m{n}"));
        assert_eq!(request(&run).prompt, Some(blob(&soul)));
        assert!(request(&run).estimate() > SOUL_BYTES / 3, "a prompt counts wherever it is");
        run.replies(&[]);
    }
    assert_eq!(run.prompts, [blob(&soul).digest], "it is stored once");
    assert!(!run.archives.is_empty());
    for (records, state) in &run.archives {
        assert!(state.len() <= 64 << 10, "a snapshot of {} bytes", state.len());
        let mut stored = records.iter().map(|record| &record.bytes).chain([state]);
        assert!(!stored.any(|bytes| has(bytes, &"s".repeat(100))));
    }
}

#[test]
fn each_request_has_the_soul_of_its_turn_also_when_it_is_replayed_or_shown() {
    let long = |letter: &str| letter.repeat(SYSTEM_PROMPT_INLINE + 1);
    let souls = [long("a"), long("a"), long("b"), "Be brief.".to_owned(), long("a")];
    let mut run = PlayedActivation::new(&[], Vec::new());
    for (n, soul) in souls.iter().enumerate() {
        reload(&mut run, soul);
        run.says(&format!("m{n}"));
        let is_long = soul.len() > SYSTEM_PROMPT_INLINE;
        let request = request(&run);
        assert_eq!(request.prompt, is_long.then(|| blob(soul)), "turn {n}");
        assert_eq!(request.system, if is_long { "" } else { soul.as_str() }, "turn {n}");
        run.replies(&[]);
    }
    let stored = [blob(&souls[0]), blob(&souls[2]), blob(&souls[0])].map(|blob| blob.digest);
    assert_eq!(run.prompts, stored, "not while the journal names it");
    assert_eq!(replayed(&run), souls.len());

    for (n, soul) in souls.iter().enumerate() {
        let mut entity = Entity::<Session>::unborn(key().entity());
        let mut reader = ContextReader::new((n + 1).to_string().parse().unwrap());
        for sealed in run.journal.iter().flat_map(|record| decode_record(&record.bytes).unwrap()) {
            let event = sealed.event::<SessionEvent>().unwrap();
            if event.is_some_and(|event| reader.see(&entity.state, &event)) {
                break;
            }
            entity.apply(&sealed).unwrap();
        }
        let is_long = soul.len() > SYSTEM_PROMPT_INLINE;
        assert_eq!(reader.prompt(), is_long.then(|| blob(soul)), "turn {n}");
        let view = reader.found().unwrap();
        assert!(view.verified, "turn {n}");
        let system = view.parts.iter().find(|part| part.kind == ContextPartKind::System).unwrap();
        assert_eq!(system.tokens, soul.len() as u64 / 3, "turn {n}");
    }
}

/// A deletion removes the blobs that events name.
#[test]
fn a_configuration_names_the_blob_of_its_soul() {
    let soul = "s".repeat(SYSTEM_PROMPT_INLINE + 1);
    let mut run = PlayedActivation::new(&[], Vec::new());
    reload(&mut run, &soul);
    run.says("hi");
    let named: Vec<Digest> = events(&run).iter().flat_map(Session::blobs_of_event).collect();
    assert_eq!(named, [blob(&soul).digest]);
}

#[test]
fn a_soul_that_the_blob_store_refuses_is_journaled_whole() {
    let soul = "s".repeat(SYSTEM_PROMPT_INLINE + 1);
    let mut run = PlayedActivation::new(&[], Vec::new());
    run.stores_prompts = false;
    reload(&mut run, &soul);
    run.says("hi");
    let request = request(&run);
    assert_eq!((request.prompt, &request.system), (None, &soul));
    let configured = events(&run).into_iter().find_map(|event| match event {
        SessionEvent::Configured(profile) => Some(profile.system),
        _ => None,
    });
    assert_eq!(configured.unwrap().inline(), soul);
}

/// An owner that dies once a prompt is stored has journaled nothing of it: the next one stores it again.
#[test]
fn a_death_between_the_blob_and_its_event_costs_one_more_put() {
    let soul = "s".repeat(SYSTEM_PROMPT_INLINE + 1);
    let mut run = PlayedActivation::new(&[], Vec::new());
    reload(&mut run, "Be brief.");
    run.says("hi");
    run.replies(&[]);
    let before = run.journal.clone();
    reload(&mut run, &soul);
    run.says("again");
    assert_eq!(run.prompts, [blob(&soul).digest]);

    let mut next = PlayedActivation::new(&[], before);
    reload(&mut next, &soul);
    next.says("again");
    assert_eq!(next.prompts, run.prompts, "the same blob");
    assert_eq!(request(&next).prompt, Some(blob(&soul)));
    next.replies(&[]);
    assert_eq!(replayed(&next), 2);
}

#[test]
fn what_a_turn_adds_follows_a_soul_in_the_blob_store() {
    let soul = "s".repeat(SYSTEM_PROMPT_INLINE + 1);
    let mut run = PlayedActivation::new(&[], Vec::new());
    reload(&mut run, &soul);
    let system = Some("Answer in verse.".to_owned());
    let message = UserMessage { system, ..UserMessage::text("hi") };
    run.hears("m0", &SessionInput::UserMessage(message));
    let request = request(&run);
    assert_eq!((request.prompt, request.system.as_str()), (Some(blob(&soul)), "Answer in verse."));
    let whole = super::system_prompt::whole_prompt(soul, &request.system);
    assert_eq!(request.system_bytes(), whole.len() as u64);
    assert!(whole.ends_with("s\n\nAnswer in verse."));
}
