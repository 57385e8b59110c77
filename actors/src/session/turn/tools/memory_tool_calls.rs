//! What calls of `remember`, `recall` and `forget` ask of memories. Pure.
//!
//! They run beside their session. Which memory is meant follows from the session's key and the configuration of its agent;
//! an argument only chooses among these (MEM-1). What other conversations are shown is written with an approval alone.

use clawnode_proto::{
    MemoryPointId, SessionKey,
    id::KeyPart,
    memory::{FORGET, MemoryKey, MemoryLayer, MemoryTrust, RECALL, REMEMBER, SCOPE_ALL},
    memory_point::{CONFIDENCE_MOST, IMPORTANCE_DEFAULT, PointContent},
    tool::ToolSpec,
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value};

/// The argument that names a memory which others have in common.
const SCOPE: &str = "scope";

/// What a call asks of memories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::session) enum MemoryCall {
    /// A point more.
    Remember { point: PointContent, scope: Option<String> },
    /// A search.
    Recall { query: String },
    /// A point less.
    Forget { point: MemoryPointId, scope: Option<String> },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RememberArguments {
    text: String,
    subject: Option<String>,
    predicate: Option<String>,
    scope: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RecallArguments {
    query: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ForgetArguments {
    point: MemoryPointId,
    scope: Option<String>,
}

/// Whether calls of this tool are for memories. A tool of that name which needs a node is another one.
pub(in crate::session) fn is_of_memory(spec: &ToolSpec) -> bool {
    spec.capability.is_none() && is_name(spec.name.as_str())
}

/// Whether a tool that runs beside its session is for memories.
pub(in crate::session) fn is_name(tool: &str) -> bool {
    matches!(tool, REMEMBER | RECALL | FORGET)
}

/// Why a person is asked about a call, whatever the rules allow: others are shown what it writes.
pub(super) fn always_asks(spec: &ToolSpec, arguments: &Map<String, Value>) -> Option<&'static str> {
    let is_for_others =
        is_of_memory(spec) && arguments.get(SCOPE).is_some_and(|scope| !scope.is_null());
    is_for_others.then_some("it changes a memory that other conversations are shown")
}

/// Why a call can never run: its tool does not take these arguments, such as what is no id of a point.
pub(super) fn refusal(spec: &ToolSpec, arguments: &Map<String, Value>) -> Option<String> {
    if !is_of_memory(spec) {
        return None;
    }
    MemoryCall::of(spec.name.as_str(), arguments.clone()).err()
}

/// The memory that a call writes into; why there is none. `shared`: those of its agent.
pub(in crate::session) fn target(
    session: &SessionKey,
    shared: &[KeyPart],
    scope: Option<&str>,
) -> Result<MemoryKey, String> {
    match scope {
        None if session.is_stateless() => {
            Err("this conversation is of one request, so it has no person to know".to_owned())
        }
        None => Ok(MemoryKey::of_peer(session)),
        Some(SCOPE_ALL) => Ok(MemoryKey::Agent(session.agent.clone())),
        Some(name) => {
            let found = shared.iter().find(|one| one.as_str() == name);
            let found = found.map(|one| MemoryKey::Shared(one.clone()));
            found.ok_or_else(|| format!("this agent has no shared memory `{name}`"))
        }
    }
}

// === impl MemoryCall ===

impl MemoryCall {
    /// What a call of this tool asks for, or what is wrong with it.
    pub(in crate::session) fn of(
        tool: &str,
        arguments: Map<String, Value>,
    ) -> Result<Self, String> {
        match tool {
            REMEMBER => {
                let RememberArguments { text, subject, predicate, scope } = read(arguments)?;
                let point = PointContent {
                    layer: MemoryLayer::Semantic,
                    text,
                    subject,
                    predicate,
                    object: None,
                    confidence: CONFIDENCE_MOST,
                    importance: IMPORTANCE_DEFAULT,
                    // Also what it has from the person: it may have understood them wrongly (S-22).
                    trust: MemoryTrust::Agent,
                };
                point.check()?;
                Ok(Self::Remember { point, scope })
            }
            RECALL => read(arguments).map(|RecallArguments { query }| Self::Recall { query }),
            FORGET => {
                let ForgetArguments { point, scope } = read(arguments)?;
                Ok(Self::Forget { point, scope })
            }
            other => Err(format!("there is no tool `{other}` for memories")),
        }
    }
}

fn read<T: DeserializeOwned>(arguments: Map<String, Value>) -> Result<T, String> {
    serde_json::from_value(Value::Object(arguments)).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{
        hook::HookPoint,
        memory::MemorySource,
        policy::{Policy, Rule, Verdict},
        tool::{EffectClass, Risk},
    };
    use serde_json::json;

    use super::*;
    use crate::{
        agent::{AgentOptions, Grant},
        session::{SessionJob, played::PlayedActivation, turn::context::dropping::LeftOut},
    };

    fn spec(name: &str, capability: Option<&str>) -> ToolSpec {
        ToolSpec {
            name: name.parse().unwrap(),
            description: String::new(),
            input_schema: r#"{"type":"object"}"#.to_owned(),
            class: EffectClass::Idempotent,
            risk: Risk::ReadOnly,
            capability: capability.map(|name| name.parse().unwrap()),
            timeout_ms: 1_000,
            pin: None,
            time: None,
        }
    }

    fn run(journal: Vec<clawnode_cluster::Record>) -> PlayedActivation {
        let mut run = PlayedActivation::new(&[] as &[HookPoint], Vec::new());
        let all = Rule {
            tool: None,
            risk: None,
            arguments: [].into(),
            exact: false,
            verdict: Verdict::Allow,
            reason: None,
        };
        let policy = Policy { rules: vec![all], ..Policy::default() };
        let tools = vec![spec(REMEMBER, None), spec(FORGET, None)];
        let options = AgentOptions { tools, policy, ..(*run.grant.options).clone() };
        if !journal.is_empty() {
            run = PlayedActivation::new(&[], journal);
        }
        run.grant = Grant::free(options);
        run
    }

    fn object(value: Value) -> Map<String, Value> {
        let Value::Object(object) = value else { panic!("{value}") };
        object
    }

    /// Each of a model's calls has a source of its own, which the next owner finds again.
    #[test]
    fn mem_3_a_call_that_is_run_again_has_the_same_source() {
        let sources = |run: &PlayedActivation| -> Vec<MemorySource> {
            let jobs = run.started.iter().filter_map(|(_, job)| match job {
                SessionJob::Tool(job) => Some(job.source.clone().unwrap()),
                _ => None,
            });
            jobs.collect()
        };
        let mut first = run(Vec::new());
        first.says("hi");
        first.replies(&[(REMEMBER, r#"{"text":"a"}"#), (REMEMBER, r#"{"text":"b"}"#)]);
        let before = sources(&first);
        assert_eq!(before.len(), 2);
        assert_ne!(before[0].point(), before[1].point());
        let again = run(first.journal);
        assert_eq!(sources(&again), before);
    }

    #[test]
    fn a_call_says_whether_its_model_reads_all_of_the_conversation() {
        let mut run = run(Vec::new());
        run.says("hi");
        run.replies(&[(REMEMBER, r#"{"text":"a"}"#)]);
        let is_tool = |job: &SessionJob| matches!(job, SessionJob::Tool(_));
        let (effect, _) = run.started.iter().find(|(_, job)| is_tool(job)).unwrap();
        let mut state = run.machine.settled().unwrap().state.clone();
        for (left_out, shows_all) in [(0, true), (1, false)] {
            let profile = state.profile.as_ref().unwrap();
            state.left_out = (left_out > 0).then(|| LeftOut::of(profile, left_out));
            let prepared = effect.prepare(&state, false).unwrap();
            let SessionJob::Tool(job) = prepared.job else { panic!("{effect:?}") };
            assert_eq!(job.shown.is_all(), shows_all);
        }
    }

    /// MEM-1: the rules of this agent allow everything, and others are still not told without a person.
    #[test]
    fn what_others_are_shown_takes_an_approval_whatever_the_rules_allow() {
        for (tool, arguments, asks) in [
            (REMEMBER, r#"{"text":"a"}"#, false),
            (REMEMBER, r#"{"text":"a","scope":"all"}"#, true),
            (REMEMBER, r#"{"text":"a","scope":"team"}"#, true),
            (REMEMBER, r#"{"text":"a","scope":""}"#, true),
            (FORGET, r#"{"point":"point_00000000000000000000000001","scope":"team"}"#, true),
        ] {
            let mut run = run(Vec::new());
            run.says("hi");
            run.replies(&[(tool, arguments)]);
            let began = run.started.iter().any(|(_, job)| matches!(job, SessionJob::Tool(_)));
            let asked = run.started.iter().any(|(_, job)| matches!(job, SessionJob::Ask(_)));
            assert_eq!((began, asked), (!asks, asks), "{tool} {arguments}");
        }
        let shared = object(json!({ "scope": "team" }));
        assert_eq!(always_asks(&spec(REMEMBER, Some("sim")), &shared), None, "another tool");
    }

    /// A person could not make such a call run: its model reads why.
    #[test]
    fn no_person_is_asked_about_arguments_that_a_tool_does_not_take() {
        for (tool, arguments, says) in [
            (FORGET, r#"{"point":"x","scope":"team"}"#, "`x` is not an id of `point_`"),
            (FORGET, r#"{"point":"point_1","scope":"all"}"#, "`point_1` is not"),
            (REMEMBER, r#"{"text":" ","scope":"team"}"#, "`text` is empty"),
        ] {
            let mut run = run(Vec::new());
            run.says("hi");
            run.replies(&[(tool, arguments)]);
            assert!(!run.appends.concat().contains(&"approval_asked"), "{tool} {arguments}");
            let started = run.started.pop();
            let Some((_, SessionJob::Call(call))) = started else { panic!("{started:?}") };
            let told = &call.request.messages.last().unwrap().tool_replies[0];
            let text = told.content.inline().unwrap();
            assert!(told.is_error && text.contains(says), "{text}");
        }
        let nothing = Map::new();
        assert!(refusal(&spec(FORGET, None), &nothing).is_some());
        assert_eq!(refusal(&spec(FORGET, Some("sim")), &nothing), None, "another tool");
    }

    #[test]
    fn mem_1_an_argument_names_no_memory_that_the_session_does_not_have() {
        let session: SessionKey = "main:web:a:ada~2".parse().unwrap();
        let shared = ["team".parse().unwrap()];
        let key = |scope| target(&session, &shared, scope).map(|key| key.to_string());
        assert_eq!(key(None).unwrap(), "main/peer/web:a:ada");
        assert_eq!(key(Some("all")).unwrap(), "main/all");
        assert_eq!(key(Some("team")).unwrap(), "shared/team");
        for foreign in [
            "secrets",
            "shared/team",
            "main/all",
            "other/all",
            "main/peer/web:a:eve",
            "web:a:eve",
            "Team",
            "team ",
            "../team",
            "",
        ] {
            let why = key(Some(foreign)).unwrap_err();
            assert!(why.contains("no shared memory"), "{foreign}: {why}");
        }
        let once = clawnode_proto::stateless::Once::Random(7).peer().unwrap();
        let once: SessionKey = format!("main:openai:default:{once}").parse().unwrap();
        assert!(target(&once, &shared, None).is_err(), "its peer is of one request");
    }

    /// S-22: no argument makes a point more trusted.
    #[test]
    fn s_22_arguments_are_read_strictly_and_give_no_trust() {
        let read = |tool: &str, arguments| MemoryCall::of(tool, object(arguments));
        let Ok(MemoryCall::Remember { point, scope: None }) =
            read(REMEMBER, json!({ "text": "Tea.", "subject": "ada" }))
        else {
            panic!("not read")
        };
        assert_eq!((point.trust, point.subject.as_deref()), (MemoryTrust::Agent, Some("ada")));
        let id = MemoryPointId::from_u128(7).to_string();
        for (tool, arguments) in [
            (REMEMBER, json!({ "text": "Tea.", "trust": "operator" })),
            (REMEMBER, json!({ "text": "Tea.", "memory": "other/all" })),
            (REMEMBER, json!({ "text": " " })),
            (REMEMBER, json!({ "text": "x".repeat(1_001) })),
            (REMEMBER, json!({ "text": "Tea.", "subject": "" })),
            (RECALL, json!({ "query": "tea", "session": "main:web:a:eve" })),
            (RECALL, json!({})),
            (FORGET, json!({ "point": id, "memory": "other/all" })),
            (FORGET, json!({ "point": "../x" })),
        ] {
            assert!(read(tool, arguments.clone()).is_err(), "{tool} {arguments}");
        }
    }
}
