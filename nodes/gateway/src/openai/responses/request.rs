//! Reads a request for a response. What a chat completion has too is put in its words and read there; what
//! is refused there is named in the words of this request.

use std::collections::BTreeMap;

use clawnode_proto::{IdempotencyKey, SessionKey, Traceparent};
use serde_json::{Map, Value, json};

use super::{
    super::{
        super::error::OpenAiError,
        id::ResponseId,
        metadata,
        request::{
            Ask, NO_TIER, NO_VERBOSITY, RefusedParameter, given, is_empty_list, refuse, text,
        },
        settings::flag_or,
        tools::short,
    },
    input::RequestConversation,
};

/// A request, read as far as it says itself.
#[derive(Debug)]
pub(super) struct Create {
    pub(super) model: String,
    pub(super) stream: bool,
    /// Whether to answer at once.
    pub(super) background: bool,
    /// The response that it goes on with.
    pub(super) previous: Option<ResponseId>,
    /// Its settings, as the answer repeats them.
    pub(super) echo: Map<String, Value>,
    /// Pairs that are kept with it.
    metadata: BTreeMap<String, String>,
    /// The same as a chat completion.
    chat: Map<String, Value>,
    places: Vec<String>,
}

/// Parameters that are used.
const USED: [&str; 18] = [
    "model",
    "input",
    "instructions",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "text",
    "reasoning",
    "max_output_tokens",
    "temperature",
    "top_p",
    "store",
    "previous_response_id",
    "background",
    "stream",
    "stream_options",
    "user",
    "metadata",
];

/// Why settings of caching are refused.
const NO_CACHE_SETTING: &str = "prompts are cached as the provider can; leave it out";

/// Parameters of which only these values mean what is done here anyway.
const REFUSED: [RefusedParameter; 13] = [
    ("conversation", |_| false, "it is not offered, send `previous_response_id`"),
    ("prompt", |_| false, "stored prompts are not offered, send `instructions`"),
    ("include", is_empty_list, "nothing can be included beside what a response has; leave it out"),
    (
        "truncation",
        |value| value == "auto",
        "the oldest turns are left out when the window is full; send `auto`",
    ),
    ("max_tool_calls", |_| false, "the limits of the agent hold; leave it out"),
    ("top_logprobs", |value| value == 0, "log probabilities are not offered; leave it out"),
    ("service_tier", |value| value == "auto" || value == "default", NO_TIER),
    ("context_management", is_empty_list, "the agent manages its window itself; leave it out"),
    ("moderation", |_| false, "it is not offered; leave it out"),
    ("prompt_cache_options", |_| false, NO_CACHE_SETTING),
    ("prompt_cache_retention", |_| false, NO_CACHE_SETTING),
    // Labels, which change no answer.
    ("safety_identifier", Value::is_string, "it is not a text"),
    ("prompt_cache_key", Value::is_string, "it is not a text"),
];

/// A setting that an answer repeats, and what it is if it is absent.
type EchoedSetting = (&'static str, fn() -> Value);

/// Settings that an answer repeats.
const ECHOED: [EchoedSetting; 13] = [
    ("instructions", || Value::Null),
    ("max_output_tokens", || Value::Null),
    ("metadata", || json!({})),
    ("parallel_tool_calls", || json!(true)),
    ("previous_response_id", || Value::Null),
    ("reasoning", || json!({"effort": null, "summary": null})),
    ("store", || json!(true)),
    ("temperature", || Value::Null),
    ("text", || json!({"format": {"type": "text"}})),
    ("tool_choice", || json!("auto")),
    ("tools", || json!([])),
    ("top_p", || Value::Null),
    ("user", || Value::Null),
];

/// The settings of an answer to a request with these parameters.
pub(super) fn echo(fields: &Map<String, Value>) -> Map<String, Value> {
    let echoed = ECHOED.iter().map(|(name, otherwise)| {
        let value = fields.get(*name).cloned();
        ((*name).to_owned(), value.unwrap_or_else(otherwise))
    });
    echoed.chain([("truncation".to_owned(), json!("auto"))]).collect()
}

// === impl Create ===

impl Create {
    pub(super) fn read(body: &str) -> Result<Self, OpenAiError> {
        let mut fields = given(body)?;
        refuse(&fields, &USED, &REFUSED)?;
        let model = text(&fields, "model")?
            .ok_or_else(|| OpenAiError::invalid("model", "`model` is missing"))?;
        let (stream, background) =
            (flag_or(&fields, "stream", false)?, flag_or(&fields, "background", false)?);
        let is_stored = flag_or(&fields, "store", true)?;
        if background && !is_stored {
            let what = "a response in the background is stored, so that it can be read";
            return Err(OpenAiError::invalid("store", what));
        }
        let previous = text(&fields, "previous_response_id")?;
        let previous =
            previous.map(|id| ResponseId::read(&id, "previous_response_id")).transpose()?;
        let metadata = metadata::read(&fields)?;
        let mut echo = echo(&fields);
        echo.insert("background".to_owned(), background.into());
        let (instructions, input) = (fields.remove("instructions"), fields.remove("input"));
        let RequestConversation { messages, places } =
            RequestConversation::read(instructions, input)?;
        let mut chat = Map::new();
        chat.insert("messages".to_owned(), messages.into());
        for name in ["model", "user", "temperature", "top_p", "parallel_tool_calls", "stream"] {
            chat.extend(fields.remove(name).map(|value| (name.to_owned(), value)));
        }
        let mut put = |name: &str, value: Option<Value>| {
            chat.extend(value.map(|value| (name.to_owned(), value)));
        };
        put("max_completion_tokens", fields.remove("max_output_tokens"));
        put("reasoning_effort", effort(fields.remove("reasoning"))?);
        put("response_format", format(fields.remove("text"))?);
        put("tool_choice", fields.remove("tool_choice").map(choice));
        put("tools", fields.remove("tools").map(tools).transpose()?);
        stream_options(fields.remove("stream_options"))?;
        Ok(Self { model, stream, background, previous, echo, metadata, chat, places })
    }

    /// What it wants; `known` is the session that it goes on with.
    pub(super) fn ask(
        &self,
        known: Option<SessionKey>,
        key: Option<IdempotencyKey>,
        trace: Option<Traceparent>,
    ) -> Result<Ask, OpenAiError> {
        let ask = Ask::of(&self.chat, known, key, trace);
        let mut ask = ask.map_err(|error| self.in_own_words(error))?;
        ask.wanted.label(self.metadata.clone());
        Ok(ask)
    }

    /// The same refusal in the words of this request.
    pub(super) fn in_own_words(&self, mut error: OpenAiError) -> OpenAiError {
        let Some(param) = &error.param else { return error };
        let own = self.own_name(param);
        error.body.message = error.body.message.replace(&format!("`{param}`"), &format!("`{own}`"));
        error.param = Some(own);
        error
    }

    fn own_name(&self, param: &str) -> String {
        if let Some((at, rest)) =
            param.strip_prefix("messages[").and_then(|rest| rest.split_once(']'))
        {
            let place = at.parse::<usize>().ok().and_then(|at| self.places.get(at));
            let place = place.map_or("input", String::as_str);
            // Each call is an item of its own.
            let rest = match rest.strip_prefix(".tool_calls") {
                Some(call) => call.find(']').and_then(|at| call.get(at + 1..)).unwrap_or_default(),
                None => rest,
            };
            let rest = rest.replace(".tool_call_id", ".call_id").replace(".function", "");
            let message =
                at.parse::<usize>().ok().and_then(|at| self.chat.get("messages")?.get(at));
            let is_result = message.is_some_and(|message| message["role"] == "tool");
            let rest = if is_result { rest.replace(".content", ".output") } else { rest };
            // A text alone is its content.
            let rest = if place.contains('[') { rest.as_str() } else { "" };
            return format!("{place}{rest}");
        }
        if param.starts_with("tools[") {
            return param.replace(".function", "");
        }
        for (chat, own) in [
            ("messages", "input"),
            ("max_completion_tokens", "max_output_tokens"),
            ("reasoning_effort", "reasoning.effort"),
            ("response_format.json_schema", "text.format"),
            ("response_format", "text.format"),
        ] {
            if let Some(rest) = param.strip_prefix(chat) {
                return format!("{own}{rest}");
            }
        }
        param.to_owned()
    }
}

/// The fields of an object that is a parameter, of which only these are read.
fn object(
    name: &str,
    value: Option<Value>,
    known: &[&str],
) -> Result<Map<String, Value>, OpenAiError> {
    let mut fields = match value {
        None => return Ok(Map::new()),
        Some(Value::Object(fields)) => fields,
        Some(_) => return Err(OpenAiError::invalid(name, format!("`{name}` is not an object"))),
    };
    fields.retain(|_, value| !value.is_null());
    match fields.keys().find(|key| !known.contains(&key.as_str())) {
        None => Ok(fields),
        Some(other) => {
            let path = format!("{name}.{}", short(other));
            Err(OpenAiError::unsupported(path.clone(), format!("there is no parameter `{path}`")))
        }
    }
}

fn effort(reasoning: Option<Value>) -> Result<Option<Value>, OpenAiError> {
    let mut fields = object("reasoning", reasoning, &["effort", "summary"])?;
    if fields.get("summary").is_some_and(|summary| summary != "auto") {
        let what =
            "`reasoning.summary`: thoughts are shown as the provider tells them, send `auto`";
        return Err(OpenAiError::unsupported("reasoning.summary", what));
    }
    Ok(fields.remove("effort"))
}

/// The name, the schema and the rest are one object less deep here.
fn format(text: Option<Value>) -> Result<Option<Value>, OpenAiError> {
    let mut fields = object("text", text, &["format", "verbosity"])?;
    if fields.get("verbosity").is_some_and(|value| value != "medium") {
        let what = format!("`text.verbosity`: {NO_VERBOSITY}");
        return Err(OpenAiError::unsupported("text.verbosity", what));
    }
    Ok(fields.remove("format").map(|format| match format {
        Value::Object(mut named) if named.get("type").is_some_and(|kind| kind == "json_schema") => {
            let kind = named.remove("type");
            json!({"type": kind, "json_schema": named})
        }
        other => other,
    }))
}

fn choice(choice: Value) -> Value {
    if choice["type"] == "function" {
        return json!({"type": "function", "function": {"name": choice["name"]}});
    }
    choice
}

fn tools(tools: Value) -> Result<Value, OpenAiError> {
    let Value::Array(list) = tools else { return Ok(tools) };
    let own = list.into_iter().enumerate().map(|(at, tool)| {
        let Value::Object(mut tool) = tool else {
            let path = format!("tools[{at}]");
            let what = format!("`{path}` is not an object");
            return Err(OpenAiError::invalid(path, what));
        };
        let kind = tool.remove("type");
        let is_mcp = kind.as_ref().is_some_and(|kind| kind == "mcp");
        if is_mcp {
            let what = "MCP servers of a request are not offered; those of the agent are used";
            return Err(OpenAiError::unsupported(format!("tools[{at}].type"), what));
        }
        Ok(json!({"type": kind, "function": tool}))
    });
    own.collect::<Result<Vec<Value>, _>>().map(Value::Array)
}

fn stream_options(options: Option<Value>) -> Result<(), OpenAiError> {
    let fields = object("stream_options", options, &["include_obfuscation"])?;
    if flag_or(&fields, "include_obfuscation", false)? {
        let what = "`stream_options.include_obfuscation` is not offered";
        return Err(OpenAiError::unsupported("stream_options.include_obfuscation", what));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{EntityId, ErrorCode, TurnId, llm::Role, reasoning::Reasoning};

    use super::*;
    use crate::{
        backend::{AttachmentSource, SendRequest},
        openai::request::Wanted,
    };

    fn read(mut body: Value) -> Result<(Create, Ask), OpenAiError> {
        let fields = body.as_object_mut().unwrap();
        fields.entry("model").or_insert(json!("default"));
        fields.entry("input").or_insert(json!("hi"));
        let create = Create::read(&body.to_string())?;
        let ask = create.ask(None, None, None)?;
        Ok((create, ask))
    }

    fn sent(body: Value) -> SendRequest {
        let (_, ask) = read(body).unwrap();
        let Wanted::Send(send) = ask.wanted else { panic!("{ask:?}") };
        *send
    }

    fn call(id: &str) -> Value {
        json!({"type": "function_call", "call_id": id, "name": "look", "arguments": "{\"at\":1}"})
    }

    fn output(id: &str) -> Value {
        json!({"type": "function_call_output", "call_id": id, "output": "seen"})
    }

    #[test]
    fn a_text_and_settings_are_a_message() {
        let send = sent(json!({
            "instructions": "be brief",
            "temperature": 0.5,
            "top_p": 0.9,
            "max_output_tokens": 100,
            "reasoning": {"effort": "high", "summary": "auto"},
            "parallel_tool_calls": false,
            "tools": [{"type": "function", "name": "look", "parameters": {"type": "object"},
                "description": null, "strict": true}],
            "tool_choice": {"type": "function", "name": "look"},
            "text": {"format": {"type": "json_schema", "name": "a", "schema": {"type": "object"}, "strict": true}},
            "store": true,
            "user": "ada",
        }));
        assert_eq!(send.session.to_string(), "default:openai:default:ada");
        let message = send.message;
        assert_eq!(message.content.inline(), Some("hi"));
        assert_eq!(message.system.as_deref(), Some("be brief"));
        assert_eq!(message.sampling.max_tokens, Some(100));
        assert_eq!(message.sampling.reasoning, Some(Reasoning::High));
        assert_eq!(message.sampling.parallel_tool_calls, Some(false));
        assert!(message.sampling.tool_choice.is_some());
        assert_eq!(message.tools[0].name.as_str(), "look");
        assert_eq!(message.response_schema.unwrap().name, "a");
    }

    #[test]
    fn items_are_a_conversation() {
        let mcp = json!({"type": "mcp_call", "id": "mcp_1", "server_label": "files", "name": "read",
        "arguments": "{\"cut", "output": "text", "error": null, "status": "completed"});
        let send = sent(json!({"input": [
            {"role": "developer", "content": "be kind"},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "look"}]},
            {"type": "reasoning", "id": "rs_1", "summary": []},
            {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed",
                "content": [{"type": "output_text", "text": "I look", "annotations": []}]},
            call("a"),
            call("b"),
            output("a"),
            {"type": "function_call_output", "call_id": "b", "output": [{"type": "input_text", "text": "no"}]},
            mcp,
            {"role": "user", "content": [
                {"type": "input_text", "text": "and this?"},
                {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo=", "detail": "auto"},
                {"type": "input_file", "filename": "x.pdf", "file_data": "data:application/pdf;base64,JVBERi0xLjc="},
                {"type": "input_file", "file_url": "https://example.com/x.pdf"},
                {"type": "input_image", "image_url": "https://example.com/x.png"},
            ]},
        ]}));
        let message = send.message;
        assert_eq!(message.system.as_deref(), Some("be kind"));
        assert_eq!(message.content.inline(), Some("and this?"));
        let places: Vec<_> = send.attachments.iter().map(|one| one.at).collect();
        assert_eq!(places, [Some(9); 4], "they are after the text");
        for (at, end) in [(2, "x.pdf"), (3, "x.png")] {
            let AttachmentSource::Remote(file) = &send.attachments[at].source else {
                panic!("{at}")
            };
            assert!(file.url.ends_with(end), "{file:?}");
        }
        let history = &message.history;
        let roles: Vec<Role> = history.iter().map(|message| message.role).collect();
        let [user, assistant] = [Role::User, Role::Assistant];
        assert_eq!(roles, [user, assistant, user, assistant, user]);
        assert_eq!(history[1].content.inline(), Some("I look"));
        assert_eq!(history[1].tool_uses.len(), 2);
        assert_eq!(history[2].tool_replies[1].content.inline(), Some("no"));
        assert_eq!(history[3].tool_uses[0].name, "files__read");
        assert_eq!(history[3].tool_uses[0].arguments, r#"{"cut":"{\"cut"}"#);
        assert_eq!(history[4].tool_replies[0].content.inline(), Some("text"));
    }

    #[test]
    fn results_go_to_the_turn_that_waits() {
        let session = EntityId::from_u128(3);
        let id = |n| format!("{}-{session}", clawnode_proto::CallId::from_u128(n));
        let results = |input: Value| match read(json!({"input": input})).unwrap().1.wanted {
            Wanted::Results(results) => (results.session, results.results.len()),
            Wanted::Send(send) => panic!("{send:?}"),
        };
        let alone = json!([call(&id(1)), call(&id(2)), output(&id(1)), output(&id(2))]);
        assert_eq!(results(alone), (session, 2));
        assert_eq!(results(json!([output(&id(1)), output(&id(2))])), (session, 2));
        let one_of_two = json!([call(&id(1)), output(&id(1)), output(&id(2))]);
        assert_eq!(results(one_of_two), (session, 2));
    }

    #[test]
    fn what_a_tool_shows_goes_with_its_result() {
        let id = format!("{}-{}", clawnode_proto::CallId::from_u128(1), EntityId::from_u128(3));
        let png = "data:image/png;base64,iVBORw0KGgo=";
        let mut shown = output(&id);
        shown["output"] = json!([{"type": "input_text", "text": "seen"},
            {"type": "input_image", "image_url": png, "detail": "auto"}]);
        let Wanted::Results(results) = read(json!({"input": [shown]})).unwrap().1.wanted else {
            panic!()
        };
        let call = clawnode_proto::CallId::from_u128(1);
        assert_eq!(results.results, [(call, "seen".to_owned())]);
        let [(result_call, AttachmentSource::Content(_))] = &results.attachments[..] else {
            panic!()
        };
        assert_eq!(*result_call, call);
    }

    #[test]
    fn what_is_wrong_is_refused_by_name() {
        let user = json!({"role": "user", "content": "x"});
        let (invalid, unsupported) = (ErrorCode::InvalidParams, ErrorCode::Unsupported);
        let table = [
            (json!({"input": 7}), "input", invalid),
            (json!({"input": []}), "input", invalid),
            (json!({"input": ""}), "input", invalid),
            (json!({"input": [{"role": "user"}]}), "input[0].content", invalid),
            (json!({"input": [user, {"role": "king", "content": "x"}]}), "input[1].role", invalid),
            (
                json!({"input": [{"type": "item_reference", "id": "x"}]}),
                "input[0].type",
                unsupported,
            ),
            (
                json!({"input": [{"role": "user", "content": [{"type": "input_video"}]}]}),
                "input[0].content[0].type",
                unsupported,
            ),
            (
                json!({"input": [{"role": "user", "content": [
            {"type": "input_image", "image_url": "http://x/y.png"}]}]}),
                "input[0].content",
                unsupported,
            ),
            (
                json!({"input": [{"role": "user", "content": [
                    {"type": "input_image", "image_url": "https://x/y.png", "detail": "high"}]}]}),
                "input[0].content[0].detail",
                unsupported,
            ),
            (
                json!({"input": [{"role": "user", "content": [
                    {"type": "input_image", "file_id": "file_1", "detail": "low"}]}]}),
                "input[0].content[0].detail",
                unsupported,
            ),
            (
                json!({"input": [{"role": "user", "content": [
            {"type": "input_file", "file_url": "https://x/y.pdf", "file_data": "JVBERi0xLjc="}]}]}),
                "input[0].content[0]",
                invalid,
            ),
            (
                json!({"input": [{"type": "reasoning", "id": "x", "encrypted_content": "y"}]}),
                "input[0].encrypted_content",
                unsupported,
            ),
            (
                json!({"instructions": "a", "input": [user, output("x")]}),
                "input[1].call_id",
                invalid,
            ),
            (json!({"input": [user, call("x"), output("x")]}), "input[2].call_id", invalid),
            (json!({"input": [user, call("x"), user]}), "input[1]", invalid),
            (
                json!({"input": [{"type": "function_call_output", "call_id": "x", "output": [{"type": "input_video"}]}]}),
                "input[0].output[0].type",
                unsupported,
            ),
            (
                json!({"input": [{"type": "function_call_output", "call_id": "x", "output": [
                    {"type": "input_image", "image_url": "http://x/y.png"}]}]}),
                "input[0].output",
                unsupported,
            ),
        ];
        refused(table);
    }

    fn refused<const N: usize>(table: [(Value, &str, ErrorCode); N]) {
        for (body, param, code) in table {
            let text = body.to_string();
            let error = read(body).unwrap_err();
            assert_eq!(error.param.as_deref(), Some(param), "{text}: {error:?}");
            assert_eq!(error.body.code, code, "{text}");
        }
    }

    #[test]
    fn settings_that_are_wrong_are_refused_by_name() {
        let (invalid, unsupported) = (ErrorCode::InvalidParams, ErrorCode::Unsupported);
        let table = [
            (json!({"instructions": 7}), "instructions", invalid),
            (json!({"tools": [{"type": "web_search"}]}), "tools[0].type", unsupported),
            (
                json!({"tools": [{"type": "mcp", "server_label": "x"}]}),
                "tools[0].type",
                unsupported,
            ),
            (json!({"tools": [{"type": "function", "name": "a b"}]}), "tools[0].name", invalid),
            (json!({"tool_choice": "maybe"}), "tool_choice", invalid),
            (json!({"text": {"format": {"type": "xml"}}}), "text.format.type", invalid),
            (
                json!({"text": {"format": {"type": "json_schema", "name": "a"}}}),
                "text.format.schema",
                invalid,
            ),
            (json!({"text": {"verbosity": "high"}}), "text.verbosity", unsupported),
            (json!({"reasoning": {"effort": "much"}}), "reasoning.effort", invalid),
            (json!({"reasoning": {"summary": "detailed"}}), "reasoning.summary", unsupported),
            (json!({"max_output_tokens": 0}), "max_output_tokens", invalid),
            (json!({"metadata": {"a": 1}}), "metadata", invalid),
            (json!({"include": ["reasoning.encrypted_content"]}), "include", unsupported),
            (json!({"conversation": "conv_1"}), "conversation", unsupported),
            (json!({"truncation": "disabled"}), "truncation", unsupported),
            (json!({"background": true, "store": false}), "store", invalid),
            (json!({"previous_response_id": "resp_1"}), "previous_response_id", invalid),
            (
                json!({"stream_options": {"include_obfuscation": true}}),
                "stream_options.include_obfuscation",
                unsupported,
            ),
            (json!({"stop": "x"}), "stop", unsupported),
        ];
        refused(table);
        let resp = ResponseId {
            session: EntityId::from_u128(1),
            turn: TurnId::from_u128(2),
            after: None,
            is_held: false,
        };
        let previous = read(json!({"previous_response_id": resp.to_string()})).unwrap().0.previous;
        assert_eq!(previous, Some(resp));
    }

    #[test]
    fn an_answer_repeats_the_settings() {
        let (create, _) = read(json!({"temperature": 0.5, "background": true})).unwrap();
        assert_eq!(create.echo["temperature"], 0.5);
        assert_eq!(create.echo["background"], true);
        for (name, value) in [("tools", json!([])), ("tool_choice", json!("auto"))] {
            assert_eq!(create.echo[name], value);
        }
        assert!(create.echo.get("input").is_none());
    }
}
