//! Reads a chat completion request: what it asks for that we have, and what we must refuse.

use clawnode_proto::{
    AgentName, ErrorBody, ErrorCode, IdempotencyKey, SessionKey, Traceparent,
    api::SendMode,
    id::KeyPart,
    limits::ATTACHMENTS,
    llm::{Message, Role, Sampling},
    reasoning::Reasoning,
    session::UserMessage,
    stateless::{OPENAI, OPENAI_ACCOUNT, Once, is_once},
};
use serde_json::{Map, Value};

use super::{
    super::{
        attachments::check_count,
        backend::{AttachmentSource, NewAttachment, SendRequest},
        error::OpenAiError,
        params::document,
        rpc::{FRESH_KEY, check_size, fresh_key},
    },
    format::response_format,
    parts::{MessageContent, about},
};

/// Characters of an unknown name that are repeated.
const NAME_CHARS: usize = 40;
/// Stop sequences at most, as OpenAI has it.
const STOPS: usize = 4;
/// Attachments of all messages of one request: those of eight full messages.
const REQUEST_ATTACHMENTS: usize = 8 * ATTACHMENTS;

/// What a caller wants, once it makes sense.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) model: String,
    pub(super) stream: bool,
    pub(super) include_usage: bool,
    pub(super) send: SendRequest,
}

/// A message of the conversation, by who says it.
enum RequestMessage {
    System(String),
    User(MessageContent),
    Assistant(String),
}

/// A message, and what the node attaches to it.
type NewMessage = (UserMessage, Vec<NewAttachment>);

/// A parameter, which of its values are harmless, and why the others are refused.
type RefusedParameter = (&'static str, fn(&Value) -> bool, &'static str);

/// Parameters that are used.
const USED: [&str; 12] = [
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
];

/// Parameters of other servers of this protocol, and the only values of them that mean what is
/// done here anyway. Any other parameter is refused: a client relies on what it asks for.
const REFUSED: [RefusedParameter; 22] = [
    ("tools", is_empty_list, "tools are not offered yet"),
    ("functions", is_empty_list, "functions are not offered"),
    ("tool_choice", |it| it == "none" || it == "auto", "tools are not offered yet"),
    ("function_call", |it| it == "none" || it == "auto", "functions are not offered"),
    ("n", |it| it == 1, "only one choice is offered"),
    ("logprobs", |it| it == false, "log probabilities are not offered"),
    ("top_logprobs", |it| it == 0, "log probabilities are not offered"),
    ("logit_bias", |it| it.as_object().is_some_and(Map::is_empty), "biases are not offered"),
    ("presence_penalty", |it| it.as_f64() == Some(0.0), "it is not passed on"),
    ("frequency_penalty", |it| it.as_f64() == Some(0.0), "it is not passed on"),
    (
        "modalities",
        |it| it.as_array().is_some_and(|all| all.iter().all(|one| one == "text")),
        "only text is offered",
    ),
    ("audio", |_| false, "only text is offered"),
    ("prediction", |_| false, "it is not offered"),
    ("web_search_options", |_| false, "it is not offered"),
    ("seed", |_| false, "it is not passed on"),
    ("verbosity", |it| it == "medium", "it is not passed on"),
    // Without tools it means nothing.
    ("parallel_tool_calls", Value::is_boolean, "it is not true or false"),
    ("store", |it| it == false, "the session keeps the conversation; nothing else is stored"),
    ("metadata", |it| it.as_object().is_some_and(Map::is_empty), "it is not kept"),
    ("service_tier", |it| it == "auto" || it == "default", "it is not passed on"),
    // Labels, which change no answer.
    ("safety_identifier", Value::is_string, "it is not a text"),
    ("prompt_cache_key", Value::is_string, "it is not a text"),
];

fn is_empty_list(value: &Value) -> bool {
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
        let Value::Object(mut fields) = document(body).map_err(OpenAiError::from)? else {
            return Err(OpenAiError::invalid("body", "the body is not a JSON object"));
        };
        // OpenAI's own clients send `null` for what is not set.
        fields.retain(|_, value| !value.is_null());
        refuse(&fields)?;
        let model = text(&fields, "model")?
            .ok_or_else(|| OpenAiError::invalid("model", "`model` is missing"))?;
        let agent: AgentName = model.parse().map_err(|_parse| OpenAiError::no_model(&model))?;
        let (said, system) = conversation(&fields)?;
        let sampling = sampling(&fields)?;
        let user = text(&fields, "user")?.filter(|user| !user.is_empty());
        let (peer, (message, attachments)) = match user {
            Some(user) => (stable_peer(&user)?, message_of_known_session(said)?),
            None => (fresh_peer(key.as_ref())?, message_of_fresh_session(said)?),
        };
        let response_schema = response_format(&fields)?;
        let message = UserMessage { system, sampling, response_schema, ..message };
        check_size(&message)?;
        let key = match key {
            Some(key) => key,
            None => fresh_key()?,
        };
        let session =
            SessionKey { agent, channel: part(OPENAI)?, account: part(OPENAI_ACCOUNT)?, peer };
        Ok(Self {
            model,
            stream: flag(&fields, "stream")?,
            include_usage: include_usage(&fields)?,
            send: SendRequest {
                session,
                message,
                attachments,
                mode: SendMode::Turn,
                key,
                trace,
                sent_before: false,
            },
        })
    }
}

fn refuse(fields: &Map<String, Value>) -> Result<(), OpenAiError> {
    for (name, harmless, why) in REFUSED {
        if fields.get(name).is_some_and(|value| !harmless(value)) {
            return Err(OpenAiError::unsupported(name, format!("`{name}`: {why}")));
        }
    }
    let is_known = |name: &str| USED.contains(&name) || REFUSED.iter().any(|(it, ..)| *it == name);
    if let Some(name) = fields.keys().find(|name| !is_known(name)) {
        let name: String = name.chars().take(NAME_CHARS).collect();
        let message = format!("there is no parameter `{name}`");
        return Err(OpenAiError::unsupported(name, message));
    }
    Ok(())
}

/// With `user`: the session knows what was said before the last reply.
fn message_of_known_session(said: Vec<RequestMessage>) -> Result<NewMessage, OpenAiError> {
    let mut fresh = Vec::new();
    for message in said.into_iter().rev() {
        match message {
            RequestMessage::User(content) => fresh.push(content),
            RequestMessage::Assistant(_) => break,
            RequestMessage::System(_) => {}
        }
    }
    if fresh.is_empty() {
        return Err(not_last());
    }
    fresh.reverse();
    let (mut texts, mut attachments) = (Vec::new(), Vec::new());
    for content in fresh {
        texts.extend((!content.text.is_empty()).then_some(content.text));
        attachments.extend(attached(content.attachments, None));
    }
    check_count(attachments.len()).map_err(|error| about("messages", error))?;
    Ok((UserMessage::text(texts.join("\n\n")), attachments))
}

/// Without `user`: all that was said before the last message is the new session's past.
fn message_of_fresh_session(mut said: Vec<RequestMessage>) -> Result<NewMessage, OpenAiError> {
    let Some(RequestMessage::User(last)) = said.pop() else { return Err(not_last()) };
    let (mut history, mut attachments) = (Vec::new(), Vec::new());
    for message in said {
        let (role, content) = match message {
            RequestMessage::User(content) => (Role::User, content),
            RequestMessage::Assistant(text) => {
                (Role::Assistant, MessageContent { text, attachments: Vec::new() })
            }
            RequestMessage::System(_) => continue,
        };
        attachments.extend(attached(content.attachments, Some(history.len())));
        history.push(Message::text(role, content.text));
    }
    attachments.extend(attached(last.attachments, None));
    if attachments.len() > REQUEST_ATTACHMENTS {
        let found = attachments.len();
        let what =
            format!("the messages have {found} attachments, the limit is {REQUEST_ATTACHMENTS}");
        return Err(about("messages", ErrorBody::new(ErrorCode::InvalidParams, what)));
    }
    Ok((UserMessage { history, ..UserMessage::text(last.text) }, attachments))
}

fn attached(
    sources: Vec<AttachmentSource>,
    history: Option<usize>,
) -> impl Iterator<Item = NewAttachment> {
    sources.into_iter().map(move |source| NewAttachment { history, source })
}

fn not_last() -> OpenAiError {
    OpenAiError::invalid("messages", "the last of `messages` is not from `user`")
}

/// The conversation without its system messages, and those, joined.
fn conversation(
    fields: &Map<String, Value>,
) -> Result<(Vec<RequestMessage>, Option<String>), OpenAiError> {
    let Some(Value::Array(messages)) = fields.get("messages") else {
        return Err(OpenAiError::invalid("messages", "`messages` is not a list of messages"));
    };
    let (mut said, mut system) = (Vec::new(), Vec::new());
    for (at, message) in messages.iter().enumerate() {
        match said_in(at, message)? {
            RequestMessage::System(text) => system.push(text),
            other => said.push(other),
        }
    }
    let system = (!system.is_empty()).then(|| system.join("\n\n"));
    Ok((said, system))
}

fn said_in(at: usize, message: &Value) -> Result<RequestMessage, OpenAiError> {
    let path = |field: &str| format!("messages[{at}].{field}");
    for field in ["tool_calls", "function_call", "audio"] {
        if message.get(field).is_some_and(|value| !value.is_null() && !is_empty_list(value)) {
            return Err(OpenAiError::unsupported(path(field), format!("`{field}` is not offered")));
        }
    }
    let content = || MessageContent::read(&path("content"), message.get("content"));
    let text = || {
        let MessageContent { text, attachments } = content()?;
        if attachments.is_empty() {
            return Ok(text);
        }
        let message = "only messages of role `user` have attachments";
        Err(OpenAiError::unsupported(path("content"), message))
    };
    match message.get("role").and_then(Value::as_str) {
        Some("system" | "developer") => Ok(RequestMessage::System(text()?)),
        Some("user") => {
            let content = content()?;
            if content.text.is_empty() && content.attachments.is_empty() {
                return Err(OpenAiError::invalid(path("content"), "a user message is empty"));
            }
            Ok(RequestMessage::User(content))
        }
        Some("assistant") => Ok(RequestMessage::Assistant(text()?)),
        Some(role @ ("tool" | "function")) => {
            let message = format!("messages of role `{role}` are not offered yet");
            Err(OpenAiError::unsupported(path("role"), message))
        }
        Some(role) => {
            let role: String = role.chars().take(40).collect();
            Err(OpenAiError::invalid(path("role"), format!("there is no role `{role}`")))
        }
        None => Err(OpenAiError::invalid(path("role"), "`role` is missing")),
    }
}

fn sampling(fields: &Map<String, Value>) -> Result<Sampling, OpenAiError> {
    let temperature = number(fields, "temperature", 2.0)?;
    // All words are what a provider chooses from anyway, and some take not both of these settings.
    let top_p = number(fields, "top_p", 1.0)?.filter(|it| *it < 1.0);
    // The newer name goes before the older one.
    let name =
        ["max_completion_tokens", "max_tokens"].into_iter().find(|name| fields.contains_key(*name));
    let max_tokens = match name.and_then(|name| Some((name, fields.get(name)?))) {
        None => None,
        Some((name, value)) => {
            let tokens = value.as_u64().and_then(|it| u32::try_from(it).ok()).filter(|it| *it > 0);
            Some(tokens.ok_or_else(|| {
                OpenAiError::invalid(name, format!("`{name}` is not a number of tokens"))
            })?)
        }
    };
    let (stop, reasoning) = (stops(fields)?, effort(fields)?);
    Ok(Sampling { temperature, top_p, max_tokens, stop, reasoning })
}

/// How much the model thinks, in the words of this protocol.
fn effort(fields: &Map<String, Value>) -> Result<Option<Reasoning>, OpenAiError> {
    let name = "reasoning_effort";
    let Some(value) = fields.get(name) else { return Ok(None) };
    let effort = match value.as_str() {
        Some("none") => Some(Reasoning::Off),
        Some("minimal" | "low") => Some(Reasoning::Low),
        Some("medium") => Some(Reasoning::Medium),
        Some("high" | "xhigh") => Some(Reasoning::High),
        _ => None,
    };
    let what = "`reasoning_effort` is not `none`, `minimal`, `low`, `medium`, `high` or `xhigh`";
    Ok(Some(effort.ok_or_else(|| OpenAiError::invalid(name, what))?))
}

/// A number from 0 to `most`.
fn number(fields: &Map<String, Value>, name: &str, most: f64) -> Result<Option<f64>, OpenAiError> {
    let Some(value) = fields.get(name) else { return Ok(None) };
    let number = value.as_f64().filter(|it| (0.0..=most).contains(it));
    let wrong = || OpenAiError::invalid(name, format!("`{name}` is not a number from 0 to {most}"));
    number.map(Some).ok_or_else(wrong)
}

fn stops(fields: &Map<String, Value>) -> Result<Vec<String>, OpenAiError> {
    let wrong =
        || OpenAiError::invalid("stop", format!("`stop` is not a text or a list of up to {STOPS}"));
    match fields.get("stop") {
        None => Ok(Vec::new()),
        Some(Value::String(text)) => Ok(vec![text.clone()]),
        Some(Value::Array(all)) if all.len() <= STOPS => {
            all.iter().map(|one| one.as_str().map(str::to_owned).ok_or_else(wrong)).collect()
        }
        Some(_) => Err(wrong()),
    }
}

fn include_usage(fields: &Map<String, Value>) -> Result<bool, OpenAiError> {
    match fields.get("stream_options") {
        None => Ok(false),
        Some(Value::Object(options)) => flag(options, "include_usage"),
        Some(_) => Err(OpenAiError::invalid("stream_options", "it is not an object")),
    }
}

fn flag(fields: &Map<String, Value>, name: &str) -> Result<bool, OpenAiError> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(_) => Err(OpenAiError::invalid(name, format!("`{name}` is not true or false"))),
    }
}

fn text(fields: &Map<String, Value>, name: &str) -> Result<Option<String>, OpenAiError> {
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
        OpenAiError::invalid("user", format!("`user` is longer than {} bytes", KeyPart::MAX))
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
    use clawnode_proto::ErrorCode;
    use serde_json::json;

    use super::*;

    fn ask(mut body: Value) -> Result<Ask, OpenAiError> {
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
        let past: Vec<_> =
            message.history.iter().map(|it| (it.role, it.content.inline().unwrap())).collect();
        assert_eq!(past, [(Role::User, "one"), (Role::Assistant, "two"), (Role::User, "three")]);
    }

    #[test]
    fn the_same_idempotency_key_names_the_same_session_and_input() {
        let body =
            json!({"model": "a", "messages": [{"role": "user", "content": "x"}]}).to_string();
        let key: IdempotencyKey = "k:1".parse().unwrap();
        let one = Ask::read(&body, Some(key.clone()), None).unwrap();
        let two = Ask::read(&body, Some(key), None).unwrap();
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
            reasoning: None,
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
        let tool = json!([{"role": "tool", "tool_call_id": "x", "content": "y"}]);
        let called = json!([{"role": "assistant", "content": "x", "tool_calls": [{"id": "x"}]},
            {"role": "user", "content": "y"}]);
        let table = [
            (json!({"tools": [{"type": "function"}]}), "tools"),
            (json!({"tool_choice": "required"}), "tool_choice"),
            (json!({"functions": [{}]}), "functions"),
            (json!({"n": 2}), "n"),
            (json!({"logprobs": true}), "logprobs"),
            (json!({"top_logprobs": 3}), "top_logprobs"),
            (json!({"seed": 7}), "seed"),
            (json!({"metadata": {"a": "b"}}), "metadata"),
            (json!({"store": true}), "store"),
            (json!({"max_token": 7}), "max_token"),
            (json!({"modalities": ["text", "audio"]}), "modalities"),
            (json!({"messages": video}), "messages[0].content"),
            (json!({"messages": tool}), "messages[0].role"),
            (json!({"messages": called}), "messages[0].tool_calls"),
        ];
        for (body, param) in table {
            let error = ask(body).unwrap_err();
            assert_eq!(error.body.code, ErrorCode::Unsupported, "{param}");
            assert_eq!(error.param.as_deref(), Some(param));
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
