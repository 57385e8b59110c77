//! Reads a chat completion request: what it asks for that we have, and what we must refuse.

use std::collections::BTreeMap;

use clawnode_proto::{
    AgentName, CallId, IdempotencyKey, SessionKey, Traceparent,
    api::SendMode,
    client_tool::ClientTool,
    id::KeyPart,
    llm::Sampling,
    response::ResponseSchema,
    session::UserMessage,
    stateless::{OPENAI, OPENAI_ACCOUNT, Once, is_once},
};
use serde_json::{Map, Value};

use super::{
    super::{
        backend::{ResultsRequest, SendRequest},
        error::OpenAiError,
        params::document,
        rpc::{FRESH_KEY, check_size, fresh_key},
    },
    conversation::{
        BroughtResults, NewMessage, RequestMessage, Said, brought, conversation, failed,
        message_of_fresh_session, message_of_known_session,
    },
    format::response_format,
    message_parts::MessageContent,
    metadata, settings,
    tools::{self, short},
};

/// Characters of an unknown name that are repeated.
const NAME_CHARS: usize = 40;

/// What a caller wants, once it makes sense.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) model: String,
    pub(super) stream: bool,
    pub(super) include_usage: bool,
    /// Whether the reply has to fit a schema of the request.
    pub(super) has_schema: bool,
    pub(super) wanted: Wanted,
}

/// What is to be done.
#[derive(Debug)]
pub(in super::super) enum Wanted {
    /// Say something.
    Send(Box<SendRequest>),
    /// Go on with a turn that waits for these results.
    Results(Box<ResultsRequest>),
}

/// What a request says, whatever its shape.
pub(in super::super) struct SaidRequest {
    pub(in super::super) agent: AgentName,
    /// The session that it goes on with, if it does not say so itself.
    pub(in super::super) known: Option<SessionKey>,
    /// Whose session it is; a session of its own if it names no user.
    pub(in super::super) user: Option<String>,
    pub(in super::super) said: Vec<RequestMessage>,
    pub(in super::super) system: Option<String>,
    pub(in super::super) sampling: Sampling,
    pub(in super::super) tools: Vec<ClientTool>,
    pub(in super::super) response_schema: Option<ResponseSchema>,
}

/// A parameter, which of its values are harmless, and why the others are refused.
pub(in super::super) type RefusedParameter = (&'static str, fn(&Value) -> bool, &'static str);

/// Parameters that are used.
const USED: [&str; 21] = [
    "model",
    "messages",
    "user",
    "stream",
    "stream_options",
    "temperature",
    "top_p",
    "max_tokens",
    "max_completion_tokens",
    "reasoning_effort",
    "response_format",
    "stop",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "logit_bias",
    "store",
    "metadata",
];

/// Why a level of verbosity is refused.
pub(super) const NO_VERBOSITY: &str =
    "it is not passed on; leave it out, and ask for short or long answers in words";
/// Why a tier is refused.
pub(super) const NO_TIER: &str = "it is not passed on; leave it out or send `auto`";

/// Parameters of other servers of this protocol, and the only values of them that mean what is
/// done here anyway. Any other parameter is refused: a client relies on what it asks for.
const REFUSED: [RefusedParameter; 13] = [
    ("functions", is_empty_list, "functions are not offered, send `tools`"),
    (
        "function_call",
        |value| value == "none" || value == "auto",
        "it is not offered, send `tool_choice`",
    ),
    ("n", |value| value == 1, "only one choice is offered; leave it out or send 1"),
    ("logprobs", |value| value == false, "log probabilities are not offered; leave it out"),
    ("top_logprobs", |value| value == 0, "log probabilities are not offered; leave it out"),
    (
        "modalities",
        |value| value.as_array().is_some_and(|all| all.iter().all(|one| one == "text")),
        "only text is offered; leave it out or send `[\"text\"]`",
    ),
    ("audio", |_| false, "only text is offered; leave it out"),
    ("prediction", |_| false, "it is not offered; leave it out"),
    (
        "web_search_options",
        |_| false,
        "it is not offered; leave it out, an agent searches with its tools",
    ),
    ("verbosity", |value| value == "medium", NO_VERBOSITY),
    ("service_tier", |value| value == "auto" || value == "default", NO_TIER),
    // Labels, which change no answer.
    ("safety_identifier", Value::is_string, "it is not a text"),
    ("prompt_cache_key", Value::is_string, "it is not a text"),
];

pub(super) fn is_empty_list(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty)
}

// === impl Ask ===

impl Ask {
    /// Reads a body; `key` is the `Idempotency-Key` header.
    pub(super) fn read(
        body: &str,
        key: Option<IdempotencyKey>,
        trace: Option<Traceparent>,
    ) -> Result<Self, OpenAiError> {
        let fields = given(body)?;
        refuse(&fields, &USED, &REFUSED)?;
        // The session keeps the conversation either way, as long as it keeps anything.
        flag(&fields, "store")?;
        let pairs = metadata::read(&fields)?;
        let mut ask = Self::of(&fields, None, key, trace)?;
        ask.wanted.label(pairs);
        Ok(ask)
    }

    /// Reads parameters of which all are offered. `known` is the session that the request goes on with, if
    /// it does not say so itself.
    pub(super) fn of(
        fields: &Map<String, Value>,
        known: Option<SessionKey>,
        key: Option<IdempotencyKey>,
        trace: Option<Traceparent>,
    ) -> Result<Self, OpenAiError> {
        let model = text(fields, "model")?
            .ok_or_else(|| OpenAiError::invalid("model", "`model` is missing"))?;
        let agent: AgentName = model.parse().map_err(|_parse| OpenAiError::no_model(&model))?;
        let (said, system) = conversation(fields)?;
        let (sampling, tools) = (settings::sampling(fields)?, tools::offered(fields)?);
        let response_schema = response_format(fields)?;
        let has_schema = response_schema.is_some();
        let user = text(fields, "user")?;
        let (stream, include_usage) = (flag(fields, "stream")?, include_usage(fields)?);
        let said =
            SaidRequest { agent, known, user, said, system, sampling, tools, response_schema };
        let wanted = said.wanted(key, trace)?;
        Ok(Self { model, stream, include_usage, has_schema, wanted })
    }
}

// === impl SaidRequest ===

impl SaidRequest {
    /// What is to be done; `key` makes it harmless to repeat.
    pub(in super::super) fn wanted(
        self,
        key: Option<IdempotencyKey>,
        trace: Option<Traceparent>,
    ) -> Result<Wanted, OpenAiError> {
        let Self { agent, known, user, said, system, sampling, tools, response_schema } = self;
        let user = user.filter(|user| !user.is_empty());
        let session_of = |peer| {
            let (channel, account) = (part(OPENAI)?, part(OPENAI_ACCOUNT)?);
            Ok::<_, OpenAiError>(SessionKey { agent: agent.clone(), channel, account, peer })
        };
        let named = match (known, user) {
            (None, Some(user)) => Some(session_of(stable_peer(&user)?)?),
            (known, _) => known,
        };
        if let Some(BroughtResults { session, results, attachments }) = brought(&said)? {
            if named.is_some_and(|named| named.entity() != session) {
                let what = "the tool calls are of another session than that of this user and model";
                return Err(OpenAiError::invalid("user", what));
            }
            let failed = failed(&said);
            return Ok(Wanted::Results(Box::new(ResultsRequest {
                session,
                agent,
                results,
                attachments,
                failed,
                system,
                sampling,
                tools,
                metadata: BTreeMap::new(),
                trace,
            })));
        }
        let (session, (message, attachments)) = match named {
            Some(session) => (session, message_of_known_session(said)?),
            None => (session_of(fresh_peer(key.as_ref())?)?, message_of_fresh_session(said)?),
        };
        let message = UserMessage { system, sampling, tools, response_schema, ..message };
        check_size(&message)?;
        let key = match key {
            Some(key) => key,
            None => fresh_key()?,
        };
        let (mode, sent_before) = (SendMode::Turn, false);
        let send = SendRequest { session, message, attachments, mode, key, trace, sent_before };
        Ok(Wanted::Send(Box::new(send)))
    }
}

impl SaidRequest {
    /// All of it as the one message of a session that knows nothing yet.
    pub(in super::super) fn alone(mut self) -> Result<(AgentName, NewMessage), OpenAiError> {
        // Results of tools ask for more by themselves.
        if matches!(self.said.last(), Some(RequestMessage { said: Said::Tool { .. }, .. })) {
            let (at, said) = (self.said.len(), Said::User(MessageContent::default()));
            self.said.push(RequestMessage { at, said });
        }
        let Self { agent, said, system, sampling, tools, response_schema, .. } = self;
        let (message, attachments) = message_of_fresh_session(said)?;
        let message = UserMessage { system, sampling, tools, response_schema, ..message };
        Ok((agent, (message, attachments)))
    }
}

impl Wanted {
    /// The pairs that its client gives it.
    pub(super) fn label(&mut self, metadata: BTreeMap<String, String>) {
        match self {
            Self::Send(send) => send.message.metadata = metadata,
            Self::Results(results) => results.metadata = metadata,
        }
    }

    /// The first call whose result its client brings: what it is answered begins after it.
    pub(super) fn after(&self) -> Option<CallId> {
        match self {
            Self::Send(_) => None,
            Self::Results(results) => results.results.iter().map(|(call, _)| *call).min(),
        }
    }

    /// The agent that answers.
    pub(in super::super) fn agent(&self) -> &AgentName {
        match self {
            Self::Send(send) => &send.session.agent,
            Self::Results(results) => &results.agent,
        }
    }
}

/// The parameters of a body.
pub(super) fn given(body: &str) -> Result<Map<String, Value>, OpenAiError> {
    let Value::Object(mut fields) = document(body).map_err(OpenAiError::from)? else {
        return Err(OpenAiError::invalid("body", "the body is not a JSON object"));
    };
    // OpenAI's own clients send `null` for what is not set.
    fields.retain(|_, value| !value.is_null());
    Ok(fields)
}

/// Refuses what is in neither list, and what is in the second with a value that is not harmless.
pub(super) fn refuse(
    fields: &Map<String, Value>,
    used: &[&str],
    refused: &[RefusedParameter],
) -> Result<(), OpenAiError> {
    for (name, harmless, why) in refused {
        if fields.get(*name).is_some_and(|value| !harmless(value)) {
            return Err(OpenAiError::unsupported(*name, format!("`{name}`: {why}")));
        }
    }
    let is_known =
        |name: &str| used.contains(&name) || refused.iter().any(|(refused, ..)| *refused == name);
    if let Some(name) = fields.keys().find(|name| !is_known(name)) {
        let name: String = name.chars().take(NAME_CHARS).collect();
        let message = format!("there is no parameter `{name}`");
        return Err(OpenAiError::unsupported(name, message));
    }
    Ok(())
}

fn include_usage(fields: &Map<String, Value>) -> Result<bool, OpenAiError> {
    match fields.get("stream_options") {
        None => Ok(false),
        Some(Value::Object(options)) => {
            let known = ["include_usage", "include_obfuscation"];
            if let Some(name) = options.keys().find(|name| !known.contains(&name.as_str())) {
                let path = format!("stream_options.{}", short(name));
                let what = format!("there is no `{path}`");
                return Err(OpenAiError::unsupported(path, what));
            }
            if flag(options, "include_obfuscation")? {
                let what = "`stream_options.include_obfuscation` is not offered";
                return Err(OpenAiError::unsupported("stream_options.include_obfuscation", what));
            }
            flag(options, "include_usage")
        }
        Some(_) => Err(OpenAiError::invalid("stream_options", "it is not an object")),
    }
}

fn flag(fields: &Map<String, Value>, name: &str) -> Result<bool, OpenAiError> {
    settings::flag_or(fields, name, false)
}

/// A text, if there is one.
pub(super) fn text(fields: &Map<String, Value>, name: &str) -> Result<Option<String>, OpenAiError> {
    match fields.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(OpenAiError::invalid(name, format!("`{name}` is not a text"))),
    }
}

/// `user` as part of a session key. Two users never share one: what a key cannot hold is
/// percent-encoded, and so is the percent sign itself.
fn stable_peer(user: &str) -> Result<KeyPart, OpenAiError> {
    use std::fmt::Write as _;
    let mut peer = String::with_capacity(user.len());
    // Nor do they share one with a request that names no user: what is said to them stays.
    let like_once = is_once(user);
    for (at, c) in user.chars().enumerate() {
        if c == ':' || c == '%' || c.is_control() || (like_once && at == 0) {
            for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                // Writing to a `String` cannot fail.
                if write!(peer, "%{byte:02X}").is_err() {
                    tracing::error!("a user could not be written");
                }
            }
        } else {
            peer.push(c);
        }
    }
    peer.parse().map_err(|_too_long| {
        OpenAiError::invalid(
            "user",
            format!("the name of the user is longer than {} bytes", KeyPart::MAX),
        )
    })
}

/// A session of its own; the same one if the same request comes again.
fn fresh_peer(key: Option<&IdempotencyKey>) -> Result<KeyPart, OpenAiError> {
    let digest = key.map(|key| blake3::hash(key.as_str().as_bytes()).to_hex());
    let once = match (key, &digest) {
        (Some(key), Some(digest)) if key.as_str().starts_with(FRESH_KEY) => {
            Once::Repeatable(digest)
        }
        (_, Some(digest)) => Once::Named(digest),
        (_, None) => Once::Random(rand::random()),
    };
    once.peer().map_err(|error| OpenAiError::invalid("user", error.to_string()))
}

fn part(text: &str) -> Result<KeyPart, OpenAiError> {
    text.parse().map_err(|error: clawnode_proto::id::ParseIdError| {
        OpenAiError::invalid("user", error.to_string())
    })
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{
        ErrorCode,
        limits::{ATTACHMENTS, CLIENT_TOOLS},
        llm::Role,
        reasoning::Reasoning,
        tool_choice::ToolChoice,
    };
    use serde_json::json;

    use super::*;
    use crate::openai::conversation::REQUEST_ATTACHMENTS;

    /// What is said, and how it is answered.
    #[derive(Debug)]
    struct Sent {
        stream: bool,
        include_usage: bool,
        send: SendRequest,
    }

    fn sent(ask: Ask) -> Sent {
        let Ask { stream, include_usage, wanted, .. } = ask;
        let Wanted::Send(send) = wanted else { panic!("{wanted:?}") };
        Sent { stream, include_usage, send: *send }
    }

    fn ask(body: Value) -> Result<Sent, OpenAiError> {
        read(body).map(sent)
    }

    fn read(mut body: Value) -> Result<Ask, OpenAiError> {
        let fields = body.as_object_mut().unwrap();
        fields.entry("model").or_insert(json!("default"));
        fields.entry("messages").or_insert(json!([{"role": "user", "content": "hi"}]));
        Ask::read(&body.to_string(), None, None)
    }

    #[test]
    fn with_user_only_what_follows_the_last_reply_is_new() {
        let ask = ask(json!({"user": "ada", "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": "two"},
            {"role": "user", "content": [{"type": "text", "text": "th"}, {"type": "text", "text": "ree"}]},
            {"role": "developer", "content": "be kind"},
            {"role": "user", "content": "four"},
        ]}))
        .unwrap();
        assert_eq!(ask.send.session.to_string(), "default:openai:default:ada");
        let message = ask.send.message;
        assert_eq!(message.content.inline(), Some("three\n\nfour"));
        assert!(message.history.is_empty());
        assert_eq!(message.system.as_deref(), Some("be brief\n\nbe kind"));
    }

    /// Clients send back the message of a reply as they got it.
    #[test]
    fn a_reply_may_come_back_whole() {
        let reply = json!({
            "role": "assistant", "content": "two", "refusal": null, "annotations": [], "audio": null,
            "function_call": null, "tool_calls": null, "reasoning_content": "hm",
        });
        let user = |text: &str| json!({"role": "user", "content": text});
        let asked = ask(json!({"messages": [user("one"), reply, user("three")]})).unwrap();
        assert_eq!(asked.send.message.history.len(), 2);
    }

    #[test]
    fn without_user_the_session_is_fresh_and_has_a_past() {
        let body = json!({"messages": [
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": "two"},
            {"role": "user", "content": "three"},
            {"role": "user", "content": "four"},
        ]});
        let (first, second) = (ask(body.clone()).unwrap(), ask(body).unwrap());
        assert_ne!(first.send.session, second.send.session);
        assert_ne!(first.send.key, second.send.key);
        let message = first.send.message;
        assert_eq!(message.content.inline(), Some("four"));
        let past: Vec<_> = message
            .history
            .iter()
            .map(|message| (message.role, message.content.inline().unwrap()))
            .collect();
        assert_eq!(past, [(Role::User, "one"), (Role::Assistant, "two"), (Role::User, "three")]);
    }

    #[test]
    fn the_same_idempotency_key_names_the_same_session_and_input() {
        let body =
            json!({"model": "a", "messages": [{"role": "user", "content": "x"}]}).to_string();
        let key: IdempotencyKey = "k:1".parse().unwrap();
        let one = sent(Ask::read(&body, Some(key.clone()), None).unwrap());
        let two = sent(Ask::read(&body, Some(key), None).unwrap());
        assert_eq!(one.send.session, two.send.session);
        assert_eq!(one.send.key, two.send.key);
    }

    #[test]
    fn two_users_never_share_a_session() {
        let users = ["a:b", "a_b", "a%3Ab", "a%b", "a\nb", "a b", "ab", "é", "A:B"];
        let peers: std::collections::BTreeSet<String> =
            users.iter().map(|user| stable_peer(user).unwrap().to_string()).collect();
        assert_eq!(peers.len(), users.len(), "{peers:?}");
        let like_once = format!("once-{}", "0".repeat(32));
        let peer = stable_peer(&like_once).unwrap();
        assert_eq!(peer.as_str(), format!("%6Fnce-{}", "0".repeat(32)));
        assert!(is_once(fresh_peer(None).unwrap().as_str()) && !is_once(peer.as_str()));
        assert_eq!(stable_peer("ada@example.org").unwrap().as_str(), "ada@example.org");
        assert!(stable_peer(&"x".repeat(300)).is_err());
    }

    #[test]
    fn sampling_passes_through() {
        let asked = ask(json!({"temperature": 0.5, "top_p": 0.9, "max_tokens": 7, "stop": "END"}));
        let asked = asked.unwrap();
        let expected = Sampling {
            temperature: Some(0.5),
            top_p: Some(0.9),
            max_tokens: Some(7),
            stop: vec!["END".to_owned()],
            ..Sampling::default()
        };
        assert_eq!(asked.send.message.sampling, expected);
        let newer = ask(json!({"max_tokens": 7, "max_completion_tokens": 9})).unwrap();
        assert_eq!(newer.send.message.sampling.max_tokens, Some(9));
        let thinking = ask(json!({"reasoning_effort": "none"})).unwrap();
        assert_eq!(thinking.send.message.sampling.reasoning, Some(Reasoning::Off));
        let usage = ask(json!({"stream": true, "stream_options": {"include_usage": true}}));
        let usage = usage.unwrap();
        assert!(usage.stream && usage.include_usage);
    }

    #[test]
    fn pictures_belong_to_their_messages() {
        let image = json!({"type": "image_url", "image_url": {
            "url": "data:image/png;base64,iVBORw0KGgo="}});
        let messages = json!([
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": "two"},
            {"role": "user", "content": [image, {"type": "text", "text": "three"}]},
            {"role": "user", "content": [image]},
        ]);
        let places =
            |send: &SendRequest| send.attachments.iter().map(|one| one.history).collect::<Vec<_>>();
        let fresh = ask(json!({"messages": messages})).unwrap().send;
        assert_eq!(places(&fresh), [Some(2), None]);
        assert_eq!(fresh.message.content.inline(), Some(""));
        let known = ask(json!({"messages": messages, "user": "ada"})).unwrap().send;
        assert_eq!(places(&known), [None, None]);
        let in_text: Vec<_> = known.attachments.iter().map(|one| one.at).collect();
        assert_eq!(in_text, [None, Some(5)], "the second message is after the first");
        assert_eq!(known.message.content.inline(), Some("three"));
        let many = json!({"role": "user", "content": [image, image, image, image, image]});
        let both = json!({"user": "ada", "messages": [many, many]});
        let error = ask(both).unwrap_err();
        assert_eq!(error.param.as_deref(), Some("messages"));
        let eight = json!({"role": "user", "content": vec![&image; ATTACHMENTS]});
        let messages = |count: usize| json!({"messages": vec![&eight; count]});
        assert_eq!(ask(messages(8)).unwrap().send.attachments.len(), REQUEST_ATTACHMENTS);
        assert_eq!(ask(messages(9)).unwrap_err().param.as_deref(), Some("messages"));
        let said = json!({"role": "assistant", "content": [image]});
        let error = ask(json!({"messages": [said, {"role": "user", "content": "x"}]})).unwrap_err();
        assert_eq!(error.param.as_deref(), Some("messages[0].content"));
    }

    #[test]
    fn nulls_are_absent_and_harmless_values_are_taken() {
        ask(json!({
            "tools": null, "n": 1, "logprobs": false, "user": null, "stop": null, "top_p": 1,
            "temperature": null, "response_format": {"type": "text"}, "presence_penalty": 0,
            "tools": [], "seed": null, "metadata": {}, "store": false, "parallel_tool_calls": true,
            "verbosity": "medium", "service_tier": "auto", "prompt_cache_key": "x",
        }))
        .unwrap();
    }

    #[test]
    fn what_is_not_offered_is_refused_by_name() {
        let video = json!([{"role": "user", "content": [
            {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AA"}}]}]);
        let function = json!([{"role": "function", "name": "x", "content": "y"}]);
        let after_results = json!([
            {"role": "user", "content": "x"}, called("x"), result("x"),
            {"role": "user", "content": "and then?"},
        ]);
        let table = [
            (json!({"tools": [{"type": "web_search"}]}), "tools[0].type"),
            (
                json!({"tools": [{"type": "function", "function": {"name": "a", "cache": 1}}]}),
                "tools[0].function.cache",
            ),
            (json!({"tool_choice": {"type": "allowed_tools"}}), "tool_choice"),
            (json!({"functions": [{}]}), "functions"),
            (json!({"stream_options": {"more": true}}), "stream_options.more"),
            (
                json!({"stream_options": {"include_obfuscation": true}}),
                "stream_options.include_obfuscation",
            ),
            (json!({"n": 2}), "n"),
            (json!({"logprobs": true}), "logprobs"),
            (json!({"top_logprobs": 3}), "top_logprobs"),
            (json!({"max_token": 7}), "max_token"),
            (json!({"modalities": ["text", "audio"]}), "modalities"),
            (json!({"messages": video}), "messages[0].content"),
            (json!({"messages": function}), "messages[0].role"),
            (json!({"messages": after_results, "user": "ada"}), "messages[3]"),
            (
                json!({"messages": [{"role": "user", "content": "x", "name": "bob"}]}),
                "messages[0].name",
            ),
            (
                json!({"messages": [{"role": "user", "content": "x", "tool_calls": []}]}),
                "messages[0].tool_calls",
            ),
        ];
        for (body, param) in table {
            let error = ask(body).unwrap_err();
            assert_eq!(error.body.code, ErrorCode::Unsupported, "{param}");
            assert_eq!(error.param.as_deref(), Some(param));
        }
    }

    fn function(name: &str) -> Value {
        json!({"type": "function", "function": {"name": name}})
    }

    fn called(id: &str) -> Value {
        let function = json!({"name": "look", "arguments": "{\"at\":1}"});
        let calls = json!([{"id": id, "type": "function", "function": function}]);
        json!({"role": "assistant", "content": null, "tool_calls": calls})
    }

    fn result(id: &str) -> Value {
        json!({"role": "tool", "tool_call_id": id, "content": "seen"})
    }

    #[test]
    fn settings_and_tools_travel_with_the_message() {
        let schema = json!({"type": "object", "properties": {"at": {"type": "integer"}}});
        let look = json!({"type": "function", "function": {
            "name": "look", "description": "Looks.", "parameters": schema, "strict": true}});
        let asked = ask(json!({
            "tools": [look, function("bare")], "tool_choice": "required",
            "parallel_tool_calls": false, "presence_penalty": -1, "frequency_penalty": 0.5,
            "seed": -7, "logit_bias": {"50256": -100},
            "stream_options": {"include_usage": true, "include_obfuscation": false},
        }))
        .unwrap();
        assert!(asked.include_usage);
        let UserMessage { sampling, tools, .. } = asked.send.message;
        assert_eq!(sampling.tool_choice, Some(ToolChoice::Required));
        assert_eq!(sampling.parallel_tool_calls, Some(false));
        let penalties = (sampling.presence_penalty, sampling.frequency_penalty);
        assert_eq!((penalties, sampling.seed), ((Some(-1.0), Some(0.5)), Some(-7)));
        assert_eq!(sampling.logit_bias, [("50256".to_owned(), -100.0)].into());
        let named: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(named, ["look", "bare"]);
        assert_eq!(
            (tools[0].description.as_str(), &tools[0].input_schema),
            ("Looks.", &schema.to_string())
        );
        assert_eq!(tools[1].input_schema, r#"{"properties":{},"type":"object"}"#);
        let choice = |value: Value| ask(json!({"tool_choice": value})).unwrap().send.message;
        assert_eq!(choice(json!("auto")).sampling.tool_choice, None);
        assert_eq!(choice(json!("none")).sampling.tool_choice, Some(ToolChoice::None));
        let name = "look".parse().unwrap();
        assert_eq!(choice(function("look")).sampling.tool_choice, Some(ToolChoice::Tool { name }));
    }

    #[test]
    fn results_at_the_end_go_to_the_session_of_their_calls() {
        let session = "default:openai:default:ada".parse::<SessionKey>().unwrap().entity();
        let id = |nth: u128| format!("{}-{session}", clawnode_proto::CallId::from_u128(nth));
        let mut called = called(&id(1));
        let second = json!({"id": id(2), "type": "function",
            "function": {"name": "look", "arguments": ""}});
        called["tool_calls"].as_array_mut().unwrap().push(second);
        let parts = json!([{"type": "text", "text": "se"}, {"type": "text", "text": "en"}]);
        let mut messages = json!([
            {"role": "user", "content": "x"}, called, result(&id(2)),
            {"role": "tool", "tool_call_id": id(1), "content": parts},
        ]);
        let asked = read(json!({"messages": messages, "tool_choice": "none"})).unwrap();
        let Wanted::Results(results) = asked.wanted else { panic!("{asked:?}") };
        assert_eq!(results.session, session);
        let call = clawnode_proto::CallId::from_u128;
        let expected = [(call(2), "seen".to_owned()), (call(1), "seen".to_owned())];
        assert_eq!(results.results, expected);
        assert_eq!(results.sampling.tool_choice, Some(ToolChoice::None));
        // The same with the `user` of the session, and no other.
        let with = |user: &str| read(json!({"messages": messages, "user": user}));
        assert!(matches!(with("ada").unwrap().wanted, Wanted::Results(_)));
        assert_eq!(with("bob").unwrap_err().param.as_deref(), Some("user"));
        // What is past is past.
        messages.as_array_mut().unwrap().push(json!({"role": "assistant", "content": "so"}));
        messages.as_array_mut().unwrap().push(json!({"role": "user", "content": "and?"}));
        let message = ask(json!({"messages": messages})).unwrap().send.message;
        let past: Vec<_> = message
            .history
            .iter()
            .map(|message| (message.role, message.tool_uses.len(), message.tool_replies.len()))
            .collect();
        let expected = [
            (Role::User, 0, 0),
            (Role::Assistant, 2, 0),
            (Role::User, 0, 2),
            (Role::Assistant, 0, 0),
        ];
        assert_eq!(past, expected);
        assert_eq!(message.history[1].tool_uses[1].arguments, "{}");
        let message = ask(json!({"messages": messages, "user": "ada"})).unwrap().send.message;
        assert_eq!(message.content.inline(), Some("and?"));
    }

    #[test]
    fn tools_and_results_that_make_no_sense_are_refused_by_name() {
        let user = json!({"role": "user", "content": "x"});
        let session = "default:openai:default:ada".parse::<SessionKey>().unwrap().entity();
        let ours = |nth: u128| format!("{}-{session}", clawnode_proto::CallId::from_u128(nth));
        let mut two = called(&ours(1));
        two["tool_calls"].as_array_mut().unwrap().push(called(&ours(2))["tool_calls"][0].clone());
        let mut same = called("x");
        same["tool_calls"].as_array_mut().unwrap().push(called("x")["tool_calls"][0].clone());
        let mut broken = called("x");
        broken["tool_calls"][0]["function"]["arguments"] = json!("{\"at\":");
        let many: Vec<Value> = (0..=CLIENT_TOOLS).map(|nth| function(&format!("t{nth}"))).collect();
        let mut long = function("long");
        long["function"]["description"] = json!("x".repeat(70_000));
        let table = [
            (json!({"tools": {}}), "tools"),
            (json!({"tools": [{}]}), "tools[0].type"),
            (json!({"tools": [{"type": "function"}]}), "tools[0].function"),
            (json!({"tools": [function("a b")]}), "tools[0].function.name"),
            (json!({"tools": [function("a"), function("a")]}), "tools[1].function.name"),
            (json!({"tools": many}), "tools"),
            (json!({"tools": [long]}), "tools"),
            (json!({"tool_choice": "maybe"}), "tool_choice"),
            (json!({"tool_choice": {"type": "function"}}), "tool_choice"),
            (json!({"parallel_tool_calls": "yes"}), "parallel_tool_calls"),
            (json!({"presence_penalty": 3}), "presence_penalty"),
            (json!({"frequency_penalty": -2.1}), "frequency_penalty"),
            (json!({"seed": 1.5}), "seed"),
            (json!({"logit_bias": {"a": 1}}), "logit_bias"),
            (json!({"logit_bias": {"1": 101}}), "logit_bias"),
            (json!({"messages": [user, result("x")]}), "messages[1].tool_call_id"),
            (json!({"messages": [user, called("x"), result("x")]}), "messages[2].tool_call_id"),
            (json!({"messages": [user, called("x"), result("y")]}), "messages[2].tool_call_id"),
            (json!({"messages": [user, two, result(&ours(1))]}), "messages[1].tool_calls"),
            (json!({"messages": [user, called("x"), user]}), "messages[1].tool_calls"),
            (json!({"messages": [user, same, result("x")]}), "messages[1].tool_calls[1].id"),
            (json!({"messages": [user, broken]}), "messages[1].tool_calls[0].function.arguments"),
            (json!({"messages": [{"role": "tool", "content": "x"}]}), "messages[0].tool_call_id"),
        ];
        for (body, param) in table {
            let text = body.to_string();
            let error = read(body).unwrap_err();
            assert_eq!(error.body.code, ErrorCode::InvalidParams, "{text}");
            assert_eq!(error.param.as_deref(), Some(param), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_refused_by_name() {
        let table = [
            (json!({"messages": []}), "messages"),
            (json!({"messages": "hi"}), "messages"),
            (json!({"messages": [{"role": "assistant", "content": "x"}]}), "messages"),
            (json!({"user": "u", "messages": [{"role": "assistant", "content": "x"}]}), "messages"),
            (json!({"messages": [{"role": "user"}]}), "messages[0].content"),
            (json!({"messages": [{"role": "user", "content": ""}]}), "messages[0].content"),
            (json!({"messages": [{"role": "user", "content": 7}]}), "messages[0].content"),
            (json!({"messages": [{"role": "king", "content": "x"}]}), "messages[0].role"),
            (json!({"messages": [{"content": "x"}]}), "messages[0].role"),
            (json!({"reasoning_effort": "much"}), "reasoning_effort"),
            (json!({"reasoning_effort": 3}), "reasoning_effort"),
            (json!({"temperature": 3}), "temperature"),
            (json!({"temperature": "hot"}), "temperature"),
            (json!({"max_tokens": 0}), "max_tokens"),
            (json!({"max_tokens": -1}), "max_tokens"),
            (json!({"stop": ["a", "b", "c", "d", "e"]}), "stop"),
            (json!({"stop": 7}), "stop"),
            (json!({"stream": "yes"}), "stream"),
            (json!({"response_format": {"type": "xml"}}), "response_format.type"),
            (json!({"user": 7}), "user"),
            (json!({"store": "yes"}), "store"),
            (json!({"metadata": {"a": 7}}), "metadata"),
            (json!({"model": 7}), "model"),
        ];
        for (body, param) in table {
            let text = body.to_string();
            let error = ask(body).unwrap_err();
            assert_eq!(error.body.code, ErrorCode::InvalidParams, "{text}");
            assert_eq!(error.param.as_deref(), Some(param), "{text}");
        }
        let spaced = ask(json!({"model": "no such model"})).unwrap_err();
        assert_eq!(spaced.body.code, ErrorCode::NotFound);
    }
}
