//! What requests look like for models of different profiles, on each wire.

use clawnode_proto::{
    llm::{Role, Sampling},
    media::MediaType,
    reasoning::Reasoning,
};
use serde_json::{Value, json};

use super::ModelProfiles;
use crate::llm::{
    ModelRequest, PlainMessage, ToolOffer,
    anthropic::Anthropic,
    bedrock::Bedrock,
    call::Dialect,
    gemini::Gemini,
    media::tests::{media, picture_at},
    ollama::Ollama,
    openai::OpenAi,
    responses::Responses,
};

fn asked(model: &str, max_tokens: Option<u32>) -> ModelRequest {
    let sampling =
        Sampling { temperature: Some(0.5), top_p: Some(0.9), max_tokens, ..Sampling::default() };
    ModelRequest {
        model: model.to_owned(),
        system: "be brief".to_owned(),
        messages: vec![PlainMessage::text(Role::User, "hi")],
        tools: Vec::new(),
        sampling,
        idempotency_key: "k".to_owned(),
        reply_schema: None,
        cache_key: "ses".to_owned(),
    }
}

fn sent(wire: &dyn Dialect, model: &str, max_tokens: Option<u32>) -> Value {
    body(wire, asked(model, max_tokens))
}

fn body(wire: &dyn Dialect, request: ModelRequest) -> Value {
    let profile = ModelProfiles::default().of(&format!("p/{}", request.model).parse().unwrap());
    let prepared = wire.prepare(request, &profile).unwrap();
    serde_json::from_slice(&prepared.body).unwrap()
}

fn openai(base: &str) -> OpenAi {
    OpenAi { base: base.parse().unwrap(), key: None }
}

#[test]
fn a_reasoning_model_is_written_to_as_it_wants_it() {
    let local = openai("http://127.0.0.1:1/v1");
    let body = sent(&local, "o3", Some(200_000));
    assert_eq!(body["max_completion_tokens"], 100_000, "no more than it can write");
    assert_eq!(body["messages"][0]["role"], "developer");
    for absent in ["max_tokens", "temperature", "top_p"] {
        assert_eq!(body.get(absent), None, "{absent}");
    }
}

#[test]
fn other_models_are_written_to_as_before() {
    let body = sent(&openai("http://127.0.0.1:1/v1"), "some-model", Some(64));
    assert_eq!((&body["max_tokens"], &body["temperature"]), (&json!(64), &json!(0.5)));
    assert_eq!(body["messages"][0]["role"], "system");
    let body = sent(&openai("https://api.openai.com/v1"), "gpt-4o", Some(64));
    assert_eq!((&body["max_completion_tokens"], body.get("max_tokens")), (&json!(64), None));
    assert_eq!(body["top_p"], 0.9);
}

#[test]
fn anthropics_limit_is_what_the_model_can_write() {
    let wire = Anthropic { base: "http://h".parse().unwrap(), key: None, max_tokens: 8_192 };
    for (model, asked, limit) in [
        ("claude-3-haiku-20240307", None, 4_096),
        ("claude-sonnet-4-5", None, 8_192),
        ("claude-sonnet-4-5", Some(1_000_000), 64_000),
        ("unknown", Some(1_000_000), 1_000_000),
    ] {
        assert_eq!(sent(&wire, model, asked)["max_tokens"], limit, "{model}");
    }
    assert_eq!(sent(&wire, "claude-sonnet-4-5", None)["temperature"], 0.5);
    assert_eq!(sent(&wire, "claude-opus-5", None).get("temperature"), None);
}

#[test]
fn a_model_is_told_to_think_as_its_profile_says() {
    let wire = Anthropic { base: "http://h".parse().unwrap(), key: None, max_tokens: 8_192 };
    let thinks = |model, max_tokens, reasoning| {
        let mut request = asked(model, max_tokens);
        request.sampling.reasoning = Some(reasoning);
        body(&wire, request)
    };
    let budget = |tokens: u32| json!({"type": "enabled", "budget_tokens": tokens});
    let sent = thinks("claude-sonnet-4-5", Some(100), Reasoning::Medium);
    assert_eq!((&sent["thinking"], &sent["max_tokens"]), (&budget(8_192), &json!(8_292)));
    assert_eq!((sent.get("output_config"), sent.get("temperature")), (None, None));
    // The limit is the model's own, and the budget has to be below it.
    let sent = thinks("claude-sonnet-4-5", Some(60_000), Reasoning::Tokens(60_000));
    assert_eq!((&sent["thinking"], &sent["max_tokens"]), (&budget(32_000), &json!(64_000)));
    let sent = thinks("claude-opus-4-6", Some(100), Reasoning::Medium);
    assert_eq!(sent["thinking"], json!({"type": "adaptive"}));
    assert_eq!(sent["output_config"], json!({"effort": "medium"}));
    let sent = thinks("claude-opus-4-6", Some(100), Reasoning::Off);
    assert_eq!((sent.get("thinking"), sent.get("output_config")), (None, None));
}

#[test]
fn a_model_that_thinks_by_itself_is_told_to_show_it_or_not_to() {
    let wire = Anthropic { base: "http://h".parse().unwrap(), key: None, max_tokens: 8_192 };
    let thinking = |kind: &str| Some(json!({"type": kind}));
    let shown = |kind: &str| Some(json!({"type": kind, "display": "summarized"}));
    let effort = |effort: &str| Some(json!({"effort": effort}));
    for (model, reasoning, thinking, output) in [
        ("claude-opus-4-6", None, None, None),
        ("claude-opus-4-7", None, None, None),
        ("claude-opus-4-7", Some(Reasoning::Off), None, None),
        ("claude-opus-4-7", Some(Reasoning::Low), shown("adaptive"), effort("low")),
        ("claude-opus-5", None, shown("adaptive"), None),
        ("claude-opus-5", Some(Reasoning::High), shown("adaptive"), effort("high")),
        ("claude-opus-5", Some(Reasoning::Off), thinking("disabled"), None),
        ("claude-sonnet-5-5", Some(Reasoning::Off), shown("between_tools"), None),
        ("claude-opus-5-5", Some(Reasoning::Off), shown("adaptive"), effort("low")),
        // Nothing is known of it but that it adapts.
        ("claude-opus-5-next", Some(Reasoning::Off), None, None),
    ] {
        let mut request = asked(model, None);
        request.sampling.reasoning = reasoning;
        let sent = body(&wire, request);
        let found = (sent.get("thinking"), sent.get("output_config"));
        assert_eq!(found, (thinking.as_ref(), output.as_ref()), "{model} {reasoning:?}");
    }
}

#[test]
fn a_model_that_is_known_not_to_think_is_not_asked_to() {
    let anthropic = Anthropic { base: "http://h".parse().unwrap(), key: None, max_tokens: 8_192 };
    let openai = openai("http://127.0.0.1:1/v1");
    let wires: [(&dyn Dialect, _); 2] = [(&anthropic, "thinking"), (&openai, "reasoning_effort")];
    for (wire, field) in wires {
        for (model, is_asked) in [
            ("claude-3-haiku-20240307", false),
            ("gpt-4o", false),
            ("llama3.2", false),
            ("o3", true),
            ("claude-sonnet-4-5", true),
            ("unknown", true),
        ] {
            let mut request = asked(model, None);
            request.sampling.reasoning = Some(Reasoning::Low);
            assert_eq!(body(wire, request).get(field).is_some(), is_asked, "{model} {field}");
        }
    }
    for (model, is_asked) in [("gpt-5.4", false), ("gpt-5.5-pro", false), ("gpt-5.1", true)] {
        let mut request = asked(model, None);
        request.sampling.reasoning = Some(Reasoning::Low);
        assert!(body(&openai, request.clone()).get("reasoning_effort").is_some(), "{model}");
        request.tools = vec![ToolOffer {
            name: "look".parse().unwrap(),
            description: String::new(),
            input_schema: json!({"type": "object"}),
        }];
        let asks = body(&openai, request).get("reasoning_effort").is_some();
        assert_eq!(asks, is_asked, "{model} beside tools");
    }
}

#[test]
fn a_model_is_sent_what_it_takes() {
    let wires: [(&dyn Dialect, _, _); 2] = [
        (&openai("http://127.0.0.1:1/v1"), "deepseek-chat", "gpt-4o"),
        (
            &Anthropic { base: "http://h".parse().unwrap(), key: None, max_tokens: 8_192 },
            "deepseek-chat",
            "unknown",
        ),
    ];
    for (wire, blind, seeing) in wires {
        let shown = |model| {
            let mut request = asked(model, None);
            request.messages[0].media = vec![media(MediaType::Png, Some("a.png"))];
            body(wire, request)["messages"].to_string()
        };
        let told = shown(blind);
        assert!(told.contains("a PNG picture") && told.contains("cannot read"), "{told}");
        assert!(!told.contains("YWI="), "{told}");
        assert!(shown(seeing).contains("YWI="), "{}", shown(seeing));
    }
}

#[test]
fn a_model_is_told_to_think_in_the_words_of_gemini_and_ollama() {
    use Reasoning::{High, Low, Medium, Off, Tokens};
    let gemini = Gemini { base: "http://h".parse().unwrap(), key: None };
    let ollama = Ollama { base: "http://h".parse().unwrap(), key: None };
    let thinks = |wire: &dyn Dialect, model: &str, reasoning| {
        let mut request = asked(model, Some(100));
        request.sampling.reasoning = reasoning;
        body(wire, request)
    };
    let budget =
        |tokens: u32, shown: bool| json!({"includeThoughts": shown, "thinkingBudget": tokens});
    let level = |word: &str| json!({"includeThoughts": true, "thinkingLevel": word});
    for (model, reasoning, config) in [
        ("gemini-2.5-flash", None, Value::Null),
        ("gemini-2.5-flash", Some(Off), budget(0, false)),
        ("gemini-2.5-pro", Some(Off), budget(128, false)),
        ("gemini-2.5-pro", Some(Medium), budget(8_192, true)),
        ("gemini-2.5-flash", Some(Tokens(100_000)), budget(24_576, true)),
        ("gemini-3-pro-preview", Some(Low), level("low")),
        ("gemini-3-pro-preview", Some(Off), Value::Null),
        ("gemini-2.0-flash", Some(High), Value::Null),
        ("unknown", Some(High), level("high")),
    ] {
        let sent = &thinks(&gemini, model, reasoning)["generationConfig"];
        assert_eq!(sent["thinkingConfig"], config, "{model} {reasoning:?}");
    }
    let sent = &thinks(&gemini, "gemini-2.5-pro", Some(Medium))["generationConfig"];
    assert_eq!(sent["maxOutputTokens"], 8_292, "the reply keeps its room");
    for (model, reasoning, think) in [
        ("qwen3:8b", None, Value::Null),
        ("qwen3:8b", Some(Off), json!(false)),
        ("qwen3:8b", Some(High), json!(true)),
        ("gpt-oss:20b", Some(High), json!("high")),
        ("gpt-oss:20b", Some(Off), json!(false)),
        ("llama3.2", Some(High), Value::Null),
    ] {
        assert_eq!(thinks(&ollama, model, reasoning)["think"], think, "{model} {reasoning:?}");
    }
}

#[test]
fn what_a_model_has_reasoned_is_asked_for_only_of_one_that_reasons() {
    let wire = Responses { base: "https://api.openai.com/v1".parse().unwrap(), key: None };
    for (model, is_asked) in [("gpt-5.4", true), ("unknown", true), ("gpt-4o", false)] {
        let sent = sent(&wire, model, Some(64));
        assert_eq!(sent.get("include").is_some(), is_asked, "{model}");
        assert_eq!((&sent["store"], &sent["max_output_tokens"]), (&json!(false), &json!(64)));
        assert_eq!(sent.get("temperature").is_some(), model != "gpt-5.4", "{model}");
    }
}

#[test]
fn attachments_are_written_as_each_wire_has_them() {
    let all = [
        media(MediaType::Png, Some("a.png")),
        media(MediaType::Gif, None),
        media(MediaType::Pdf, Some("a.pdf")),
        media(MediaType::Mp3, None),
    ];
    let shown = |wire: &dyn Dialect| {
        let mut request = asked("unknown", None);
        request.messages[0].media = all.to_vec();
        body(wire, request)
    };
    let base = || "http://h".parse().unwrap();
    let words = |what: &str| format!("(attached: {what}, 2 bytes, which this model cannot read)");
    let inline = |kind: &str| json!({"inlineData": {"mimeType": kind, "data": "YWI="}});
    let gif = words("a GIF picture");
    let sent = shown(&Gemini { base: base(), key: None });
    let expected = json!([
        inline("image/png"), inline("application/pdf"), inline("audio/mp3"),
        {"text": format!("hi\n\n{gif}")},
    ]);
    assert_eq!(sent["contents"][0]["parts"], expected);
    let sent = shown(&Ollama { base: base(), key: None });
    assert_eq!(sent["messages"][1]["images"], json!(["YWI=", "YWI="]));
    let told = format!("hi\n\n{}\n\n{}", words("a PDF \"a.pdf\""), words("an MP3 recording"));
    assert_eq!(sent["messages"][1]["content"], told);
    let sent = shown(&Responses { base: base(), key: None });
    let picture = |kind: &str| {
        let url = format!("data:image/{kind};base64,YWI=");
        json!({"type": "input_image", "image_url": url, "detail": "auto"})
    };
    let pdf = "data:application/pdf;base64,YWI=";
    let expected = json!([
        picture("png"), picture("gif"),
        {"type": "input_file", "filename": "a.pdf", "file_data": pdf},
        {"type": "input_text", "text": format!("hi\n\n{}", words("an MP3 recording"))},
    ]);
    assert_eq!(sent["input"][0]["content"], expected);
}

#[test]
fn texts_and_pictures_keep_their_order_on_each_wire() {
    let shown = |wire: &dyn Dialect| {
        let mut request = asked("unknown", None);
        let text = "Before:\n\nAfter:\n\nwhat changed?";
        let media = vec![picture_at(7), picture_at(15)];
        request.messages = vec![PlainMessage { media, ..PlainMessage::text(Role::User, text) }];
        body(wire, request)
    };
    let base = || "http://h".parse().unwrap();
    let parts = |text: fn(&str) -> Value, picture: Value| {
        json!([text("Before:"), picture, text("After:"), picture, text("what changed?")])
    };
    let url = "data:image/png;base64,YWI=";
    let text = |text: &str| json!({"type": "text", "text": text});

    let sent = shown(&openai("http://h"));
    let picture = json!({"type": "image_url", "image_url": {"url": url}});
    assert_eq!(sent["messages"][1]["content"], parts(text, picture));

    let sent = shown(&Responses { base: base(), key: None });
    let picture = json!({"type": "input_image", "image_url": url, "detail": "auto"});
    let input = |text: &str| json!({"type": "input_text", "text": text});
    assert_eq!(sent["input"][0]["content"], parts(input, picture));

    let sent = shown(&Anthropic { base: base(), key: None, max_tokens: 9 });
    let source = json!({"type": "base64", "media_type": "image/png", "data": "YWI="});
    let picture = json!({"type": "image", "source": source});
    assert_eq!(sent["messages"][0]["content"], parts(text, picture));

    let sent = shown(&Bedrock { base: base(), key: None, max_tokens: 9, aws: None });
    let picture = json!({"image": {"format": "png", "source": {"bytes": "YWI="}}});
    let plain = |text: &str| json!({"text": text});
    assert_eq!(sent["messages"][0]["content"], parts(plain, picture));

    let sent = shown(&Gemini { base: base(), key: None });
    let picture = json!({"inlineData": {"mimeType": "image/png", "data": "YWI="}});
    assert_eq!(sent["contents"][0]["parts"], parts(plain, picture));

    let sent = shown(&Ollama { base: base(), key: None });
    assert_eq!(sent["messages"][1]["images"], json!(["YWI=", "YWI="]));
    let marked = "Before:\n[picture 1]\nAfter:\n[picture 2]\nwhat changed?";
    assert_eq!(sent["messages"][1]["content"], marked);
}
