//! Reads a request of the Messages API: what it asks for that we have, and what we must refuse.

use clawnode_proto::{AgentName, IdempotencyKey, Traceparent};
use serde_json::{Map, Value};

use super::{
    super::{
        error::AnthropicError,
        openai::{
            conversation::{NewMessage, check_pairs},
            request::{RefusedParameter, SaidRequest, Wanted},
            tools::short,
        },
        params::document,
    },
    blocks::{self, check_cache_control, object},
    settings, tools,
};

/// What a caller wants, once it makes sense.
#[derive(Debug)]
pub(super) struct MessagesAsk {
    pub(super) model: String,
    pub(super) stream: bool,
    /// Whether the reply has to fit a schema of the request.
    pub(super) has_schema: bool,
    /// The texts at which the model stops.
    pub(super) stops: Vec<String>,
    pub(super) wanted: Wanted,
}

/// Parameters that are used.
const USED: [&str; 15] = [
    "model",
    "messages",
    "max_tokens",
    "system",
    "metadata",
    "stream",
    "temperature",
    "top_p",
    "top_k",
    "stop_sequences",
    "thinking",
    "output_config",
    "tools",
    "tool_choice",
    "cache_control",
];

/// Parameters of a request whose tokens are counted.
const COUNTED: [&str; 8] = [
    "model",
    "messages",
    "system",
    "thinking",
    "output_config",
    "tools",
    "tool_choice",
    "cache_control",
];

/// Parameters of Anthropic's API that are known, and the only values of them that mean what is done here
/// anyway. Any other parameter is refused: a client relies on what it asks for.
const REFUSED: [RefusedParameter; 4] = [
    (
        "service_tier",
        |value| value == "auto" || value == "standard_only",
        "it is not passed on; leave it out or send `auto`",
    ),
    ("speed", |value| value == "standard", "it is not passed on; leave it out"),
    ("container", |_| false, "containers are not offered; leave it out"),
    ("mcp_servers", is_empty_list, "the agent has the servers of its configuration; leave it out"),
];

fn is_empty_list(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty)
}

// === impl MessagesAsk ===

impl MessagesAsk {
    /// Reads a body; `key` is the `Idempotency-Key` header.
    pub(super) fn read(
        body: &str,
        key: Option<IdempotencyKey>,
        trace: Option<Traceparent>,
    ) -> Result<Self, AnthropicError> {
        let fields = given(body)?;
        refuse(&fields, &USED)?;
        let (model, asked) = said(&fields)?;
        let (stops, has_schema) = (asked.sampling.stop.clone(), asked.response_schema.is_some());
        let stream = match fields.get("stream") {
            None => false,
            Some(Value::Bool(stream)) => *stream,
            Some(_) => return Err(AnthropicError::invalid("stream", "it is not true or false")),
        };
        let wanted = asked.wanted(key, trace)?;
        Ok(Self { model, stream, has_schema, stops, wanted })
    }
}

/// What a request says whose tokens are to be counted: its agent, and all of it as one message.
pub(super) fn to_count(body: &str) -> Result<(AgentName, NewMessage), AnthropicError> {
    let mut fields = given(body)?;
    refuse(&fields, &COUNTED)?;
    // A count has none, and a budget of thoughts is judged by it.
    fields.insert("max_tokens".to_owned(), u32::MAX.into());
    Ok(said(&fields)?.1.alone()?)
}

/// The parameters of a body.
fn given(body: &str) -> Result<Map<String, Value>, AnthropicError> {
    let Value::Object(mut fields) = document(body)? else {
        return Err(AnthropicError::invalid("body", "it is not a JSON object"));
    };
    fields.retain(|_, value| !value.is_null());
    Ok(fields)
}

/// The model that parameters name, and what they say to it.
fn said(fields: &Map<String, Value>) -> Result<(String, SaidRequest), AnthropicError> {
    let Some(Value::String(model)) = fields.get("model").cloned() else {
        return Err(AnthropicError::invalid("model", "it is missing, or no text"));
    };
    let agent: AgentName = model.parse().map_err(|_parse| AnthropicError::no_model(&model))?;
    let sampling = settings::sampling(fields)?;
    let (said, later) = blocks::messages(fields)?;
    check_pairs(&said)?;
    let first = fields.get("system").map(|system| blocks::text_of("system", system));
    let system = first.transpose()?.into_iter().chain(later);
    let system: Vec<String> = system.filter(|text| !text.is_empty()).collect();
    let system = (!system.is_empty()).then(|| system.join("\n\n"));
    let (tools, response_schema) = (tools::offered(fields)?, settings::response_schema(fields)?);
    let (known, user) = (None, user(fields)?);
    let asked = SaidRequest { agent, known, user, said, system, sampling, tools, response_schema };
    Ok((model, asked))
}

fn user(fields: &Map<String, Value>) -> Result<Option<String>, AnthropicError> {
    let Some(metadata) = fields.get("metadata") else { return Ok(None) };
    match object("metadata", metadata, &["user_id"])?.get("user_id") {
        None => Ok(None),
        Some(Value::String(user)) => Ok(Some(user.clone())),
        Some(_) => Err(AnthropicError::invalid("metadata.user_id", "it is not a text")),
    }
}

/// Refuses what is not used here, and what is known with a value that is not harmless.
fn refuse(fields: &Map<String, Value>, used: &[&str]) -> Result<(), AnthropicError> {
    for (name, harmless, why) in REFUSED {
        if fields.get(name).is_some_and(|value| !harmless(value)) {
            return Err(AnthropicError::unsupported(name, why));
        }
    }
    let is_known =
        |name: &str| used.contains(&name) || REFUSED.iter().any(|(refused, ..)| *refused == name);
    if let Some(name) = fields.keys().find(|name| !is_known(name)) {
        let name = short(name);
        let message = format!("there is no parameter `{name}`");
        return Err(AnthropicError::unsupported(&name, &message));
    }
    fields.get("cache_control").map_or(Ok(()), |control| check_cache_control("body", control))
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{
        CallId, ErrorCode, SessionKey,
        llm::{Role, Sampling},
        reasoning::Reasoning,
        tool_choice::ToolChoice,
    };
    use serde_json::json;

    use super::*;
    use crate::backend::{ResultsRequest, SendRequest};

    fn read(mut body: Value) -> Result<MessagesAsk, AnthropicError> {
        let fields = body.as_object_mut().unwrap();
        fields.entry("model").or_insert(json!("default"));
        fields.entry("max_tokens").or_insert(json!(4_096));
        fields.entry("messages").or_insert(json!([{"role": "user", "content": "hi"}]));
        MessagesAsk::read(&body.to_string(), None, None)
    }

    fn sent(body: Value) -> SendRequest {
        let ask = read(body).unwrap();
        let Wanted::Send(send) = ask.wanted else { panic!("{ask:?}") };
        *send
    }

    fn brought(body: Value) -> ResultsRequest {
        let ask = read(body).unwrap();
        let Wanted::Results(results) = ask.wanted else { panic!("{ask:?}") };
        *results
    }

    fn look() -> Value {
        json!({"name": "look", "description": "Looks.", "input_schema": {"type": "object"},
            "cache_control": {"type": "ephemeral"}, "strict": true})
    }

    #[test]
    fn settings_and_tools_travel_with_the_message() {
        let send = sent(json!({
            "system": [{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}},
                {"type": "text", "text": "be kind"}],
            "temperature": 0.5, "top_p": 1, "top_k": 40, "stop_sequences": ["END"],
            "tools": [look()], "tool_choice": {"type": "any", "disable_parallel_tool_use": true},
            "metadata": {"user_id": "ada"}, "service_tier": "auto", "stream": null,
            "cache_control": {"type": "ephemeral"},
            "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}},
        }));
        assert_eq!(send.session.to_string(), "default:openai:default:ada");
        let message = send.message;
        assert_eq!(message.system.as_deref(), Some("be brief\n\nbe kind"));
        let expected = Sampling {
            temperature: Some(0.5),
            top_k: Some(40),
            max_tokens: Some(4_096),
            stop: vec!["END".to_owned()],
            tool_choice: Some(ToolChoice::Required),
            parallel_tool_calls: Some(false),
            ..Sampling::default()
        };
        assert_eq!(message.sampling, expected);
        assert_eq!(message.tools[0].input_schema, r#"{"type":"object"}"#);
        assert_eq!(message.response_schema.unwrap().schema, r#"{"type":"object"}"#);
        let choice = |choice: Value| sent(json!({"tool_choice": choice})).message.sampling;
        assert_eq!(choice(json!({"type": "auto"})), sent(json!({})).message.sampling);
        assert_eq!(choice(json!({"type": "none"})).tool_choice, Some(ToolChoice::None));
        let name = "look".parse().unwrap();
        let named = choice(json!({"type": "tool", "name": "look"}));
        assert_eq!(named.tool_choice, Some(ToolChoice::Tool { name }));
    }

    #[test]
    fn thinking_is_how_much_the_model_thinks() {
        let asks = |body: Value| {
            let sampling = sent(body).message.sampling;
            (sampling.reasoning, sampling.max_tokens)
        };
        let thinking = |thinking: Value| asks(json!({"thinking": thinking}));
        assert_eq!(asks(json!({})), (None, Some(4_096)));
        let enabled = thinking(json!({"type": "enabled", "budget_tokens": 2_048}));
        assert_eq!(enabled, (Some(Reasoning::Tokens(2_048)), Some(2_048)), "a part of the limit");
        assert_eq!(thinking(json!({"type": "adaptive"})).0, Some(Reasoning::High));
        assert_eq!(thinking(json!({"type": "disabled"})).0, Some(Reasoning::Off));
        let effort = json!({"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}});
        assert_eq!(asks(effort).0, Some(Reasoning::Low));
        assert_eq!(asks(json!({"output_config": {"effort": "max"}})).0, Some(Reasoning::High));
    }

    #[test]
    fn what_a_tool_shows_goes_with_its_result() {
        let session = "default:openai:default:ada".parse::<SessionKey>().unwrap().entity();
        let handed = |nth: u128| format!("{}-{session}", CallId::from_u128(nth));
        let past = |nth: u128| format!("toolu_{nth}");
        let messages = |id: &dyn Fn(u128) -> String| {
            let call =
                |nth| json!({"type": "tool_use", "id": id(nth), "name": "look", "input": {}});
            let source =
                json!({"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="});
            let image = json!({"type": "image", "source": source});
            let shown = json!([{"type": "text", "text": "seen"}, image, image]);
            json!([
                {"role": "user", "content": "x"},
                {"role": "assistant", "content": [call(1), call(2)]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": id(1), "content": "nothing"},
                    {"type": "tool_result", "tool_use_id": id(2), "content": shown},
                ]},
            ])
        };
        let results = brought(json!({"messages": messages(&handed)}));
        let texts: Vec<&str> = results.results.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(texts, ["nothing", "seen"]);
        let shown: Vec<CallId> = results.attachments.iter().map(|(call, _)| *call).collect();
        assert_eq!(shown, [CallId::from_u128(2); 2]);
        // Those of a past that its session does not know are with the message of their results.
        let mut told = messages(&past);
        told.as_array_mut().unwrap().push(json!({"role": "user", "content": "and?"}));
        let send = sent(json!({"messages": told}));
        let places: Vec<_> = send.attachments.iter().map(|one| one.history).collect();
        assert_eq!(places, [Some(2); 2]);
        assert_eq!(send.message.history[2].tool_replies.len(), 2);
    }

    #[test]
    fn results_go_to_the_turn_that_waits() {
        let session = "default:openai:default:ada".parse::<SessionKey>().unwrap().entity();
        let id = |nth: u128| format!("{}-{session}", CallId::from_u128(nth));
        let call = |nth| json!({"type": "tool_use", "id": id(nth), "name": "look", "input": {}});
        let result =
            |nth| json!({"type": "tool_result", "tool_use_id": id(nth), "content": "seen"});
        let mut failed = result(2);
        failed["is_error"] = json!(true);
        let thought = json!({"type": "thinking", "thinking": "hm", "signature": "s"});
        let mut messages = json!([
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": [thought, call(1), call(2)]},
            {"role": "user", "content": [result(1), failed]},
        ]);
        let results = brought(json!({"messages": messages, "metadata": {"user_id": "ada"}}));
        assert_eq!(results.session, session);
        let calls: Vec<CallId> = results.results.iter().map(|(call, _)| *call).collect();
        assert_eq!(calls, [CallId::from_u128(1), CallId::from_u128(2)]);
        assert_eq!(results.failed, [CallId::from_u128(2)].into());
        assert!(read(json!({"messages": messages, "metadata": {"user_id": "bob"}})).is_err());
        // What is past is past.
        messages.as_array_mut().unwrap().push(json!({"role": "assistant", "content": "so"}));
        messages.as_array_mut().unwrap().push(json!({"role": "user", "content": "and?"}));
        let message = sent(json!({"messages": messages})).message;
        let roles: Vec<Role> = message.history.iter().map(|message| message.role).collect();
        assert_eq!(roles, [Role::User, Role::Assistant, Role::User, Role::Assistant]);
        let failed: Vec<bool> =
            message.history[2].tool_replies.iter().map(|reply| reply.is_error).collect();
        assert_eq!(failed, [false, true]);
    }

    #[test]
    fn what_is_wrong_or_not_offered_is_refused_by_name() {
        use ErrorCode::{InvalidParams, NotFound, Unsupported};
        let thinking = |thinking: Value| json!({ "thinking": thinking });
        let tool = |more: Value| {
            let mut tool = look();
            tool.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!({ "tools": [tool] })
        };
        let result = json!({"type": "tool_result", "tool_use_id": "x", "content": "y"});
        let table = [
            (json!({"model": "no such model"}), NotFound, "model: "),
            (json!({"model": 7}), InvalidParams, "model: "),
            (json!({"max_tokens": null}), InvalidParams, "max_tokens: "),
            (json!({"max_tokens": 0}), InvalidParams, "max_tokens: "),
            (json!({"top_k": 0}), InvalidParams, "top_k: "),
            (json!({"top_k": 1.5}), InvalidParams, "top_k: "),
            (json!({"max_token": 5}), Unsupported, "max_token: "),
            (json!({"container": "x"}), Unsupported, "container: "),
            (json!({"service_tier": "batch"}), Unsupported, "service_tier: "),
            (json!({"temperature": 2}), InvalidParams, "temperature: "),
            (json!({"stop_sequences": "x"}), InvalidParams, "stop_sequences: "),
            (json!({"stream": "yes"}), InvalidParams, "stream: "),
            (json!({"system": 7}), InvalidParams, "system: "),
            (json!({"metadata": {"user": "x"}}), Unsupported, "metadata.user: "),
            (json!({"metadata": {"user_id": 7}}), InvalidParams, "metadata.user_id: "),
            (json!({"cache_control": {}}), InvalidParams, "body.cache_control: "),
            (thinking(json!({"type": "between_tools"})), Unsupported, "thinking.type: "),
            (
                thinking(json!({"type": "enabled", "budget_tokens": 1_000})),
                InvalidParams,
                "thinking.budget_tokens: ",
            ),
            (
                thinking(json!({"type": "enabled", "budget_tokens": 4_096})),
                InvalidParams,
                "thinking.budget_tokens: ",
            ),
            (
                thinking(json!({"type": "adaptive", "display": "omitted"})),
                Unsupported,
                "thinking.display: ",
            ),
            (json!({"output_config": {"effort": "much"}}), InvalidParams, "output_config.effort: "),
            (json!({"output_config": {"more": 1}}), Unsupported, "output_config.more: "),
            (
                json!({"output_config": {"format": {"type": "xml"}}}),
                Unsupported,
                "output_config.format.type: ",
            ),
            (json!({"tools": {}}), InvalidParams, "tools: "),
            (json!({"tools": [look(), look()]}), InvalidParams, "tools.1.name: "),
            (tool(json!({"type": "bash_20250124"})), Unsupported, "tools.0.type: "),
            (tool(json!({"name": "a b"})), InvalidParams, "tools.0.name: "),
            (tool(json!({"input_schema": "x"})), InvalidParams, "tools.0.input_schema: "),
            (tool(json!({"defer_loading": true})), Unsupported, "tools.0.defer_loading: "),
            (json!({"tool_choice": {"type": "maybe"}}), InvalidParams, "tool_choice.type: "),
            (json!({"tool_choice": {"type": "tool"}}), InvalidParams, "tool_choice.name: "),
            (
                json!({"messages": [{"role": "user", "content": [result]}]}),
                InvalidParams,
                "no message before it has an open tool call `x`",
            ),
        ];
        for (body, code, begins) in table {
            let text = body.to_string();
            let error: Value = serde_json::from_str(&read(body).unwrap_err().to_json()).unwrap();
            let message = error["error"]["message"].as_str().unwrap();
            assert!(message.starts_with(begins), "{text}: {message}");
            assert_eq!(error["error"]["code"], code.as_str(), "{text}: {message}");
        }
    }
}
