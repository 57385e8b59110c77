//! Settings that not every wire has: what a wire has reaches its server, which knows all fields of its
//! requests, and what it lacks is refused by name before anything is sent.

use clawnode_actors::llm::{ModelRequest, ReplySchema, Wire};
use clawnode_proto::{
    llm::{FailureClass, Sampling},
    reasoning::Reasoning,
    response::ResponseSchema,
    tool_choice::ToolChoice,
};
use clawnode_tests::model::{ModelServer, Setup};
use serde_json::{Value, json};

use crate::{ask, call, client, done, failed, offer};

/// Where each setting is in the body of a request; what has no place is refused.
struct Places {
    wire: Wire,
    places: [(&'static str, Option<(&'static str, Value)>); 7],
}

fn with(setting: &str) -> Sampling {
    let none = Sampling::default();
    match setting {
        "stop" => Sampling { stop: vec!["END".to_owned()], ..none },
        "presence_penalty" => Sampling { presence_penalty: Some(0.5), ..none },
        "frequency_penalty" => Sampling { frequency_penalty: Some(0.5), ..none },
        "seed" => Sampling { seed: Some(7), ..none },
        "top_k" => Sampling { top_k: Some(40), ..none },
        "logit_bias" => Sampling { logit_bias: [("1".to_owned(), 1.0)].into(), ..none },
        _ => Sampling { parallel_tool_calls: Some(false), ..none },
    }
}

fn wires() -> [Places; 3] {
    let gemini = |name: &'static str, value: Value| Some((name, value));
    [
        Places {
            wire: Wire::Gemini,
            places: [
                ("stop", gemini("/generationConfig/stopSequences", json!(["END"]))),
                ("presence_penalty", gemini("/generationConfig/presencePenalty", json!(0.5))),
                ("frequency_penalty", gemini("/generationConfig/frequencyPenalty", json!(0.5))),
                ("seed", gemini("/generationConfig/seed", json!(7))),
                ("top_k", gemini("/generationConfig/topK", json!(40))),
                ("logit_bias", None),
                ("parallel_tool_calls", None),
            ],
        },
        Places {
            wire: Wire::Ollama,
            places: [
                ("stop", Some(("/options/stop", json!(["END"])))),
                ("presence_penalty", Some(("/options/presence_penalty", json!(0.5)))),
                ("frequency_penalty", Some(("/options/frequency_penalty", json!(0.5)))),
                ("seed", Some(("/options/seed", json!(7)))),
                ("top_k", Some(("/options/top_k", json!(40)))),
                ("logit_bias", None),
                ("parallel_tool_calls", None),
            ],
        },
        Places {
            wire: Wire::OpenaiResponses,
            places: [
                ("stop", None),
                ("presence_penalty", None),
                ("frequency_penalty", None),
                ("seed", None),
                ("top_k", None),
                ("logit_bias", None),
                ("parallel_tool_calls", Some(("/parallel_tool_calls", json!(false)))),
            ],
        },
    ]
}

/// The body of the one request that a call makes.
async fn body_of(wire: Wire, request: ModelRequest) -> Value {
    let server = ModelServer::start(Setup::default()).await.unwrap();
    done(&call(&*client(wire, &server), request).await);
    let body = serde_json::from_slice(&server.calls()[0].body).unwrap();
    server.stop().await.unwrap();
    body
}

#[tokio::test]
async fn a_setting_is_sent_or_refused_by_name() {
    for Places { wire, places } in wires() {
        for (setting, place) in places {
            let (sampling, tools) = (with(setting), vec![offer("get")]);
            let request = ModelRequest { sampling, tools, ..ask("hi") };
            if let Some((at, value)) = place {
                let body = body_of(wire, request).await;
                assert_eq!(body.pointer(at), Some(&value), "{wire:?} {setting}: {body}");
                continue;
            }
            let server = ModelServer::start(Setup::default()).await.unwrap();
            let events = call(&*client(wire, &server), request).await;
            let failure = failed(&events);
            assert_eq!(failure.class, FailureClass::Rejected, "{wire:?} {setting}");
            assert!(failure.message.contains(&format!("`{setting}`")), "{}", failure.message);
            assert_eq!(server.count(), 0, "{wire:?} {setting}");
        }
    }
}

#[tokio::test]
async fn a_choice_of_tools_is_as_each_wire_has_it() {
    let one = ToolChoice::Tool { name: "get".parse().unwrap() };
    let mode = |mode: &str| json!({"functionCallingConfig": {"mode": mode}});
    let allowed = json!({"functionCallingConfig":
        {"mode": "ANY", "allowedFunctionNames": ["get"]}});
    for (wire, at, choice, value) in [
        (Wire::Gemini, "/toolConfig", ToolChoice::None, mode("NONE")),
        (Wire::Gemini, "/toolConfig", ToolChoice::Required, mode("ANY")),
        (Wire::Gemini, "/toolConfig", one.clone(), allowed),
        (Wire::OpenaiResponses, "/tool_choice", ToolChoice::None, json!("none")),
        (Wire::OpenaiResponses, "/tool_choice", ToolChoice::Required, json!("required")),
        (
            Wire::OpenaiResponses,
            "/tool_choice",
            one.clone(),
            json!({"type": "function", "name": "get"}),
        ),
    ] {
        let sampling = Sampling { tool_choice: Some(choice), ..Sampling::default() };
        let request = ModelRequest { sampling, tools: vec![offer("get")], ..ask("hi") };
        let body = body_of(wire, request).await;
        assert_eq!(body.pointer(at), Some(&value), "{wire:?}: {body}");
    }
    let server = ModelServer::start(Setup::default()).await.unwrap();
    let sampling = Sampling { tool_choice: Some(one), ..Sampling::default() };
    let request = ModelRequest { sampling, tools: vec![offer("get")], ..ask("hi") };
    let events = call(&*client(Wire::Ollama, &server), request).await;
    assert!(failed(&events).message.contains("`tool_choice`"), "Ollama has none: {events:?}");
}

#[tokio::test]
async fn a_schema_reaches_a_server_that_knows_its_field() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}},
        "required": ["a"], "additionalProperties": false});
    let reply_schema = ReplySchema::new(&ResponseSchema::new(None, &schema)).unwrap();
    for (wire, model, at) in [
        (Wire::Gemini, "gemini-2.5-flash", "/generationConfig/responseJsonSchema"),
        (Wire::Ollama, "qwen3:8b", "/format"),
        (Wire::OpenaiResponses, "gpt-4o", "/text/format/schema"),
    ] {
        let model = model.to_owned();
        let reply_schema = Some(reply_schema.clone());
        let body = body_of(wire, ModelRequest { model, reply_schema, ..ask("hi") }).await;
        assert_eq!(body.pointer(at), Some(&schema), "{wire:?}: {body}");
    }
    for (model, is_held) in [
        ("eu.anthropic.claude-sonnet-4-5-20250929-v1:0", true),
        ("anthropic.claude-3-haiku-20240307-v1:0", false),
        ("amazon.nova-lite-v1:0", false),
    ] {
        let (model, reply_schema) = (model.to_owned(), Some(reply_schema.clone()));
        let request = ModelRequest { model: model.clone(), reply_schema, ..ask("hi") };
        let body = body_of(Wire::Bedrock, request).await;
        let sent = body.pointer("/outputConfig/textFormat/structure/jsonSchema/schema");
        let sent = sent.and_then(Value::as_str).map(|text| serde_json::from_str(text).unwrap());
        assert_eq!(sent, is_held.then(|| schema.clone()), "{model}: {body}");
        let told = body["system"].to_string().contains("JSON Schema");
        assert_eq!(told, !is_held, "{model}: {body}");
    }
}

#[tokio::test]
async fn how_many_words_to_choose_from_is_as_each_vendor_has_it() {
    let asks = |wire, model: &str, reasoning| {
        let sampling = Sampling { top_k: Some(40), reasoning, ..Sampling::default() };
        (wire, ModelRequest { model: model.to_owned(), sampling, ..ask("hi") })
    };
    for ((wire, request), at) in [
        (asks(Wire::Anthropic, "claude-sonnet-4-5", None), "/top_k"),
        (
            asks(Wire::Bedrock, "eu.anthropic.claude-sonnet-4-5-v1:0", None),
            "/additionalModelRequestFields/top_k",
        ),
        (
            asks(Wire::Bedrock, "amazon.nova-lite-v1:0", None),
            "/additionalModelRequestFields/inferenceConfig/topK",
        ),
    ] {
        let body = body_of(wire, request).await;
        assert_eq!(body.pointer(at), Some(&json!(40)), "{wire:?}: {body}");
    }
    // Claude refuses it while it thinks. A turn must be able to go on with it.
    let thinks = Some(Reasoning::Tokens(2_048));
    for ((wire, request), thinking) in [
        (asks(Wire::Anthropic, "claude-sonnet-4-5", thinks), "/thinking"),
        (
            asks(Wire::Bedrock, "anthropic.claude-sonnet-4-5-v1:0", thinks),
            "/additionalModelRequestFields/thinking",
        ),
    ] {
        let body = body_of(wire, request).await;
        assert!(body.pointer(thinking).is_some(), "{wire:?}: {body}");
        assert!(!body.to_string().contains("top_k"), "{wire:?}: {body}");
    }
    for (wire, request) in
        [asks(Wire::Bedrock, "cohere.command-r-v1:0", None), asks(Wire::Openai, "gpt-4o", None)]
    {
        let server = ModelServer::start(Setup::default()).await.unwrap();
        let events = call(&*client(wire, &server), request).await;
        let failure = failed(&events);
        assert_eq!(failure.class, FailureClass::Rejected, "{wire:?}");
        assert!(failure.message.contains("`top_k`"), "{}", failure.message);
        assert_eq!(server.count(), 0, "{wire:?}");
    }
}
