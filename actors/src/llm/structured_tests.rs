//! Tests: how requests on each wire say what their replies have to fit.

use std::collections::BTreeMap;

use clawnode_proto::{
    llm::{Role, Sampling},
    model::SchemaStyle,
    response::ResponseSchema,
};
use serde_json::{Value, json};

use super::{
    ModelRequest, PlainMessage, ReplySchema, ToolOffer,
    anthropic::Anthropic,
    call::Dialect,
    gemini::Gemini,
    ollama::Ollama,
    openai::OpenAi,
    profile::{ModelOverride, ModelProfiles},
    responses::Responses,
    structured::ask,
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
    let (profiles, model) = (ModelProfiles::default(), format!("p/{model}").parse().unwrap());
    let style = profiles.schema(&model, wire.schema_style());
    ask(&mut request, style, |schema| wire.takes(schema), wire.shows_schema());
    serde_json::from_slice(&wire.prepare(request, &profiles.of(&model)).unwrap().body).unwrap()
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
        assert!(sent.is_none_or(|text| *text == format || asked == &optional));
        let system = body["system"].to_string();
        assert_ne!(system.contains("Your final reply has to be"), is_native, "{system}");
    }
}

/// Whether the system prompt of a body tells the schema in words.
fn has_words(body: &Value) -> bool {
    body.to_string().contains("Your final reply has to be")
}

#[test]
fn the_wire_of_responses_has_the_format_of_the_other_one() {
    let wire = Responses { base: "http://127.0.0.1:1/v1".parse().unwrap(), key: None };
    let schema = ResponseSchema::new(Some("person"), &person());
    let strict =
        json!({"type": "json_schema", "name": "person", "strict": true, "schema": person()});
    for (model, asked, format, words) in [
        ("gpt-4o", &schema, Some(strict.clone()), false),
        ("gpt-5", &schema, Some(strict), false),
        ("gpt-4o", &ResponseSchema::any_object(), Some(json!({"type": "json_object"})), true),
        ("some-model", &schema, None, true),
    ] {
        let body = sent(&wire, model, asked, true);
        assert_eq!(body.pointer("/text/format"), format.as_ref(), "{model}: {body}");
        assert_eq!(has_words(&body), words, "{body}");
    }
}

#[test]
fn gemini_takes_json_schema_beside_tools_only_where_its_model_can() {
    let wire = Gemini { base: "http://127.0.0.1:1".parse().unwrap(), key: None };
    let schema = ResponseSchema::new(None, &person());
    let mut short = person();
    short["properties"]["name"]["minLength"] = 1.into();
    let short = ResponseSchema::new(None, &short);
    for (model, asked, tools, native) in [
        ("gemini-2.5-flash", &schema, false, Some(person())),
        ("gemini-2.5-flash", &schema, true, None),
        ("gemini-3-pro-preview", &schema, true, Some(person())),
        ("gemini-3-pro-preview", &short, false, None),
        ("gemma-3-27b-it", &schema, false, None),
    ] {
        let body = sent(&wire, model, asked, tools);
        let config = &body["generationConfig"];
        assert_eq!(config.get("responseJsonSchema"), native.as_ref(), "{model}: {body}");
        let kind = native.is_some().then(|| json!("application/json"));
        assert_eq!(config.get("responseMimeType"), kind.as_ref(), "{model}: {body}");
        assert_eq!(has_words(&body), native.is_none(), "{body}");
    }
    let body = sent(&wire, "gemini-2.5-flash", &ResponseSchema::any_object(), false);
    assert_eq!(body["generationConfig"]["responseMimeType"], "application/json");
    assert!(has_words(&body), "{body}");
}

#[test]
fn ollama_holds_any_model_to_a_schema_and_words_tell_it_too() {
    let wire = Ollama { base: "http://127.0.0.1:1".parse().unwrap(), key: None };
    let schema = ResponseSchema::new(None, &person());
    let mut pattern = person();
    pattern["properties"]["name"]["pattern"] = "^a".into();
    let pattern = ResponseSchema::new(None, &pattern);
    for (asked, tools, format) in [
        (&schema, false, Some(person())),
        (&schema, true, None),
        (&pattern, false, None),
        (&ResponseSchema::any_object(), false, Some(json!("json"))),
    ] {
        let body = sent(&wire, "some-model", asked, tools);
        assert_eq!(body.get("format"), format.as_ref(), "{body}");
        assert!(has_words(&body), "{body}");
    }
    let set = ModelOverride { schema: Some(SchemaStyle::Words), ..ModelOverride::default() };
    let profiles = ModelProfiles::new(BTreeMap::from([("p/*".to_owned(), set)]));
    let style = profiles.schema(&"p/m".parse().unwrap(), wire.schema_style());
    assert_eq!(style, SchemaStyle::Words, "what is configured wins");
}
