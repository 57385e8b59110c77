//! Tests: how requests on each wire say what their replies have to fit.

use clawnode_proto::{
    llm::{Role, Sampling},
    response::ResponseSchema,
};
use serde_json::{Value, json};

use super::{
    ModelRequest, PlainMessage, ReplySchema, ToolOffer, anthropic::Anthropic, call::Dialect,
    openai::OpenAi, profile::ModelProfiles, structured::ask,
};

fn person() -> Value {
    json!({
        "type": "object",
        "properties": {"name": {"type": "string"}},
        "required": ["name"],
        "additionalProperties": false,
    })
}

/// The body that the wire sends to this model.
fn sent(wire: &dyn Dialect, model: &str, schema: &ResponseSchema, tools: bool) -> Value {
    let offer = ToolOffer {
        name: "get".parse().unwrap(),
        description: String::new(),
        input_schema: json!({"type": "object"}),
    };
    let mut request = ModelRequest {
        cache_key: String::new(),
        model: model.to_owned(),
        system: "be brief".to_owned(),
        messages: vec![PlainMessage::text(Role::User, "hi")],
        tools: if tools { vec![offer] } else { Vec::new() },
        sampling: Sampling::default(),
        idempotency_key: "k".to_owned(),
        reply_schema: Some(ReplySchema::new(schema).unwrap()),
    };
    let profile = ModelProfiles::default().of(&format!("p/{model}").parse().unwrap());
    ask(&mut request, &profile, |schema| wire.takes(schema));
    serde_json::from_slice(&wire.prepare(request, &profile).unwrap().body).unwrap()
}

fn openai() -> OpenAi {
    OpenAi { base: "http://127.0.0.1:1/v1".parse().unwrap(), key: None }
}

fn anthropic() -> Anthropic {
    Anthropic { base: "http://127.0.0.1:1".parse().unwrap(), key: None, max_tokens: 100 }
}

#[test]
fn a_schema_is_sent_as_the_model_takes_it_and_else_told_in_words() {
    let schema = ResponseSchema::new(Some("person"), &person());
    let loose = ResponseSchema::new(None, &json!({"type": "object", "minProperties": 1}));
    let list = ResponseSchema::new(None, &json!({"type": "array"}));
    let format = |name: &str, strict: bool, schema: &ResponseSchema| {
        let schema: Value = schema.schema.parse().unwrap();
        json!({"type": "json_schema", "json_schema":
            {"name": name, "strict": strict, "schema": schema}})
    };
    let object = json!({"type": "json_object"});
    let any = ResponseSchema::any_object();
    for (model, asked, tools, native, words) in [
        ("gpt-4o", &schema, false, Some(format("person", true, &schema)), false),
        ("gpt-4o", &schema, true, Some(format("person", true, &schema)), false),
        ("gpt-4o", &loose, false, Some(format("reply", false, &loose)), false),
        ("gpt-4o", &any, false, Some(object.clone()), true),
        ("gpt-4-turbo", &schema, false, Some(object.clone()), true),
        ("gpt-4-turbo", &list, false, None, true),
        ("gemini-2.5-pro", &schema, false, Some(format("person", true, &schema)), false),
        ("gemini-2.5-pro", &schema, true, None, true),
        ("some-model", &schema, false, None, true),
    ] {
        let body = sent(&openai(), model, asked, tools);
        assert_eq!(body.get("response_format"), native.as_ref(), "{model} {tools}");
        let system = body["messages"][0]["content"].as_str().unwrap();
        assert_eq!(system.contains("Your final reply has to be"), words, "{model}: {system}");
        let tells_schema = words && !asked.is_any_object();
        assert_eq!(system.contains(&asked.schema), tells_schema, "{model}: {system}");
    }
}

#[test]
fn anthropics_wire_takes_what_its_models_can_be_held_to() {
    let schema = ResponseSchema::new(None, &person());
    let format = json!({"type": "json_schema", "schema": person()});
    let mut optional = person();
    optional["properties"]["age"] = json!({"type": "integer"});
    let optional = ResponseSchema::new(None, &optional);
    let loose = ResponseSchema::new(None, &json!({"type": "object", "minProperties": 1}));
    let any = ResponseSchema::any_object();
    for (model, asked, is_native) in [
        ("claude-sonnet-4-5", &schema, true),
        ("claude-opus-4-6", &optional, true),
        ("claude-sonnet-4-5", &loose, false),
        ("claude-sonnet-4-5", &any, false),
        ("claude-3-5-haiku-20241022", &schema, false),
    ] {
        let body = sent(&anthropic(), model, asked, true);
        let sent = body.pointer("/output_config/format");
        assert_eq!(sent.is_some(), is_native, "{model}: {body}");
        assert!(sent.is_none_or(|it| *it == format || asked == &optional));
        let system = body["system"].to_string();
        assert_ne!(system.contains("Your final reply has to be"), is_native, "{system}");
    }
}
