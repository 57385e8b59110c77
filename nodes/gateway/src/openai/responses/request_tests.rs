//! Tests: what a request for a response may ask for, and how it is refused.

use clawnode_proto::{EntityId, ErrorCode, TurnId, llm::Role, reasoning::Reasoning};

use super::*;
use crate::{backend::SendRequest, openai::request::Wanted};

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
        ]},
    ]}));
    let message = send.message;
    assert_eq!(message.system.as_deref(), Some("be kind"));
    assert_eq!(message.content.inline(), Some("and this?"));
    assert_eq!(send.attachments.len(), 2);
    let history = &message.history;
    let roles: Vec<Role> = history.iter().map(|it| it.role).collect();
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
fn what_is_wrong_is_refused_by_name() {
    let user = json!({"role": "user", "content": "x"});
    let (invalid, unsupported) = (ErrorCode::InvalidParams, ErrorCode::Unsupported);
    let table = [
        (json!({"input": 7}), "input", invalid),
        (json!({"input": []}), "input", invalid),
        (json!({"input": ""}), "input", invalid),
        (json!({"input": [{"role": "user"}]}), "input[0].content", invalid),
        (json!({"input": [user, {"role": "king", "content": "x"}]}), "input[1].role", invalid),
        (json!({"input": [{"type": "item_reference", "id": "x"}]}), "input[0].type", unsupported),
        (
            json!({"input": [{"role": "user", "content": [{"type": "input_video"}]}]}),
            "input[0].content[0].type",
            unsupported,
        ),
        (
            json!({"input": [{"role": "user", "content": [
            {"type": "input_image", "image_url": "https://x/y.png"}]}]}),
            "input[0].content",
            unsupported,
        ),
        (
            json!({"input": [{"type": "reasoning", "id": "x", "encrypted_content": "y"}]}),
            "input[0].encrypted_content",
            unsupported,
        ),
        (json!({"instructions": "a", "input": [user, output("x")]}), "input[1].call_id", invalid),
        (json!({"input": [user, call("x"), output("x")]}), "input[2].call_id", invalid),
        (json!({"input": [user, call("x"), user]}), "input[1]", invalid),
        (
            json!({"input": [{"type": "function_call_output", "call_id": "x", "output": [{"type": "input_image"}]}]}),
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
        (json!({"tools": [{"type": "mcp", "server_label": "x"}]}), "tools[0].type", unsupported),
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
        (json!({"metadata": {"a": "b"}}), "metadata", unsupported),
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
