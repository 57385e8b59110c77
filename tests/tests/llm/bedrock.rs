//! What is particular to Amazon Bedrock: signatures, keys of its own, names of models in paths, and what its
//! models want back (LLM-2). The scripted server computes signatures itself.

use std::{collections::BTreeMap, io::Write as _, sync::Arc, time::Duration};

use clawnode_actors::llm::{
    EmbedRequest, Item, Model, ModelEvent, ModelRequest, Models, PlainBlock, PlainMessage,
    PlainReply, Wire, fuzz::replay_whole,
};
use clawnode_cluster::{Clock, SystemClock};
use clawnode_proto::{
    ErrorChain,
    llm::{FailureClass, ModelRef, Role},
    reasoning::Reasoning,
    tool::ToolUse,
    tool_choice::ToolChoice,
};
use clawnode_tests::model::{Act, AwsAccount, ModelServer, Reply, Script, Setup, Step, WireName};
use serde_json::{Value, json};

use crate::{
    ask, call,
    calls::Written,
    client, done, failed, offer, own_words, retries, server,
    server::post,
    text,
    thoughts::{asked, kept, start, thinking},
};

const ARN: &str = "arn:aws:bedrock:eu-central-1:123456789012:inference-profile/\
                   eu.anthropic.claude-sonnet-4-5-20250929-v1:0";
const SECRET: &str = "hunter2/+wJalrXUtnFEMI";
const TOKEN: &str = "hunter3+token==";

fn account(session_token: Option<&str>) -> AwsAccount {
    AwsAccount {
        access_key_id: "AKIDEXAMPLE".to_owned(),
        secret_access_key: SECRET.to_owned(),
        session_token: session_token.map(str::to_owned),
        region: "eu-central-1".to_owned(),
    }
}

async fn signed(account: AwsAccount, script: Script) -> ModelServer {
    ModelServer::start(Setup { aws: Some(account), ..Setup::from(script) }).await.unwrap()
}

/// The built-in provider, as the environment has it.
fn built_in(server: &ModelServer, env: &[(&str, &str)]) -> Result<Arc<dyn Model>, String> {
    let url = server.url();
    let lookup = |name: &str| match name {
        "AWS_ENDPOINT_URL_BEDROCK_RUNTIME" => Some(url.clone()),
        name => env.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()),
    };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let models = Models::new(BTreeMap::new(), &lookup, &clock);
    let model = ModelRef { provider: "bedrock".to_owned(), model: "m".to_owned() };
    models.resolve(&model).map_err(|error| ErrorChain(&error).to_string())
}

const ENV: [(&str, &str); 3] = [
    ("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE"),
    ("AWS_SECRET_ACCESS_KEY", SECRET),
    ("AWS_REGION", "eu-central-1"),
];

#[tokio::test]
async fn requests_are_signed_whatever_the_model_is_called() {
    for token in [None, Some(TOKEN)] {
        let busy = Act::status(429, "busy");
        let server = signed(account(token), Script::queue([busy])).await;
        let mut env = ENV.to_vec();
        env.extend(token.map(|token| ("AWS_SESSION_TOKEN", token)));
        let client = built_in(&server, &env).unwrap();
        for model in ["m", ARN, "us.amazon.nova-lite-v1:0", "a b/ü%2F+~.x", "model..x/../y"] {
            let request = ModelRequest { model: model.to_owned(), ..ask("hi") };
            let events = call(&*client, request).await;
            assert_eq!(text(&events), "reply to: hi", "{model}");
            assert_eq!(done(&events).2, model, "the whole name arrived");
        }
        assert_eq!(server.stop().await.unwrap().len(), 6, "a retry has a signature too");
    }
}

#[tokio::test]
async fn requests_for_vectors_are_signed_too() {
    let server = signed(account(Some(TOKEN)), Script::queue([Act::status(429, "busy")])).await;
    let mut env = ENV.to_vec();
    env.push(("AWS_SESSION_TOKEN", TOKEN));
    let client = built_in(&server, &env).unwrap();
    let (model, texts) = ("amazon.titan-embed-text-v1".to_owned(), vec!["hi".to_owned()]);
    let request = EmbedRequest { model, texts, dimensions: None };
    let reply = client.embed(request).unwrap().await.unwrap();
    assert_eq!(reply.vectors.len(), 1);
    assert_eq!(server.stop().await.unwrap().len(), 2, "a retry has a signature too");
}

#[tokio::test]
async fn a_wrong_secret_is_refused_and_no_secret_is_shown() {
    let echo = format!("User: arn:aws:iam::1:user/x with {TOKEN} is not authorized");
    let server = signed(account(Some(TOKEN)), Script::queue([Act::status(403, &echo)])).await;
    let mut env = ENV.to_vec();
    env.push(("AWS_SESSION_TOKEN", TOKEN));
    let client = built_in(&server, &env).unwrap();
    let events = call(&*client, ask("hi")).await;
    let message = &failed(&events).message;
    assert!(message.contains("with [key] is not authorized"), "{message}");
    assert!(message.ends_with(" refused its key: check `AWS_ACCESS_KEY_ID`"), "{message}");
    env[1].1 = "hunter4/other";
    let other = built_in(&server, &env).unwrap();
    let events = call(&*other, ask("hi")).await;
    assert_eq!(failed(&events).class, FailureClass::Unauthorized, "{events:?}");
    for shown in [format!("{events:?}"), format!("{client:?}"), format!("{other:?}")] {
        assert!(!shown.contains("hunter"), "{shown}");
    }
    // The server looks at every part: without a key, nothing is taken.
    let anonymous = crate::client_at(Wire::Bedrock, &server.url(), |options| {
        options.api_key_env = None;
        options.retries = 0;
    });
    failed(&call(&*anonymous, ask("hi")).await);
    let violations = server.take_violations();
    assert!(violations[0].contains("a signature is missing"), "{violations:?}");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn what_is_signed_and_with_what_is_in_no_log() {
    let acts = [Act::status(500, "you said private"), Act::say("whisper")];
    let server = signed(account(Some(TOKEN)), Script::queue(acts)).await;
    let mut env = ENV.to_vec();
    env.push(("AWS_SESSION_TOKEN", TOKEN));
    let client = built_in(&server, &env).unwrap();
    let written = Written::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(written.clone())
        .finish();
    {
        let _guard = tracing::subscriber::set_default(subscriber);
        assert_eq!(text(&call(&*client, ask("private")).await), "whisper");
    }
    let log = written.text();
    assert!(log.contains("signing request"), "the library of signatures is heard: {log}");
    for word in ["private", "whisper", "hunter"] {
        assert!(!log.contains(word), "`{word}` in {log}");
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn keys_come_from_a_file_too_and_what_is_missing_is_named() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let id = "aws_access_key_id = AKIDEXAMPLE";
    write!(file, "[default]\n{id}\naws_secret_access_key = {SECRET}\n").unwrap();
    let server = signed(account(None), Script::default()).await;
    let client = crate::client_at(Wire::Bedrock, &server.url(), |options| {
        options.api_key_env = None;
        options.region = Some("eu-central-1".to_owned());
        options.credentials_file = Some(file.path().to_owned());
    });
    assert_eq!(text(&call(&*client, ask("hi")).await), "reply to: hi");
    let error = built_in(&server, &ENV[..2]).unwrap_err();
    assert!(error.contains("`AWS_REGION`"), "{error}");
    let error = built_in(&server, &ENV[2..]).unwrap_err();
    assert!(error.contains("`AWS_BEARER_TOKEN_BEDROCK`"), "{error}");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_key_of_bedrocks_own_needs_no_signature() {
    let setup = Setup { api_key: Some(crate::KEY.to_owned()), ..Setup::default() };
    let server = ModelServer::start(setup).await.unwrap();
    let mut env = ENV.to_vec();
    env.push(("AWS_BEARER_TOKEN_BEDROCK", crate::KEY));
    let client = built_in(&server, &env).unwrap();
    assert_eq!(text(&call(&*client, ask("hi")).await), "reply to: hi");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn refusals_are_classed_by_the_exception_and_say_what_to_do() {
    let named = |status, name: &str, words: &str| {
        let body = json!({"message": words}).to_string();
        let Act::Status(refusal) = Act::status_body(status, &body) else { unreachable!() };
        let headers = BTreeMap::from([("x-amzn-errortype".to_owned(), name.to_owned())]);
        Act::Status(clawnode_tests::model::Status { headers, ..refusal })
    };
    let server = server([
        named(403, "AccessDeniedException", "You don't have access to the model."),
        named(400, "ThrottlingException:http://internal.amazon.com/", "Too many requests"),
        Act::say("ok"),
        named(400, "ValidationException", "Input is too long for requested model."),
        named(424, "ModelErrorException", "The model failed."),
    ])
    .await
    .unwrap();
    let client = client(Wire::Bedrock, &server);
    let events = call(&*client, ask("hi")).await;
    assert_eq!(failed(&events).class, FailureClass::Unauthorized);
    assert!(own_words(failed(&events)).contains("`bedrock:InvokeModelWithResponseStream`"));
    let events = call(&*client, ask("hi")).await;
    assert_eq!(retries(&events)[0].1.class, FailureClass::RateLimited);
    assert_eq!(text(&events), "ok");
    let events = call(&*client, ask("hi")).await;
    assert!(failed(&events).too_long.is_some(), "{events:?}");
    let events = call(&*client, ask("hi")).await;
    assert_eq!(failed(&events).class, FailureClass::Overloaded, "another model may answer");
    server.stop().await.unwrap();
}

fn body_of(server: &ModelServer, nth: usize) -> Value {
    serde_json::from_slice(&server.calls()[nth].body).unwrap()
}

/// Whether the server refuses a second request in which the blocks of the first reply were changed.
async fn refuses(change: impl FnOnce(&mut Vec<PlainBlock>)) -> bool {
    let server = start().await;
    let mut request = thinking("go", None);
    let events = asked(Wire::Bedrock, &server, request.clone()).await;
    request.messages.extend(kept(&events));
    change(&mut request.messages[1].blocks);
    let events = asked(Wire::Bedrock, &server, request).await;
    let is_refused = !server.take_violations().is_empty();
    assert_eq!(is_refused, matches!(events.last(), Some(ModelEvent::Failed(_))), "{events:?}");
    server.stop().await.unwrap();
    is_refused
}

#[tokio::test]
async fn thoughts_go_back_with_their_signatures_and_no_other_way() {
    assert!(!refuses(|_| {}).await);
    assert!(!refuses(Vec::clear).await, "all of them may stay away");
    let altered = refuses(|blocks| {
        if let PlainBlock::Item(Item::Thinking { text, .. }) = &mut blocks[0] {
            text.push('!');
        }
    });
    assert!(altered.await);
    let forged = refuses(|blocks| {
        if let PlainBlock::Item(Item::Thinking { signature: Some(signature), .. }) = &mut blocks[0]
        {
            signature.push('A');
        }
    });
    assert!(forged.await);
    assert!(refuses(|blocks| drop(blocks.remove(0))).await, "one is left out");
    assert!(refuses(|blocks| blocks.swap(0, 1)).await, "in another place");
}

#[tokio::test]
async fn a_model_is_told_to_think_as_its_vendor_has_it() {
    let claude = "anthropic.claude-sonnet-4-5-20250929-v1:0";
    let budget = json!({"thinking": {"type": "enabled", "budget_tokens": 8_192}});
    let effort = json!({"thinking": {"type": "adaptive"}, "output_config": {"effort": "medium"}});
    let server = ModelServer::start(Script::default()).await.unwrap();
    for (nth, (model, fields, limit)) in [
        (claude, budget, 8_692),
        ("us.anthropic.claude-opus-4-6-v1", effort, 8_692),
        ("openai.gpt-oss-120b-1:0", json!({"reasoning_effort": "medium"}), 500),
        ("amazon.nova-pro-v1:0", Value::Null, 500),
        ("some.model-v1", Value::Null, 500),
    ]
    .into_iter()
    .enumerate()
    {
        let mut request = thinking("hi", Some(Reasoning::Medium));
        (request.sampling.temperature, request.sampling.top_p) = (Some(0.5), Some(0.5));
        let request = ModelRequest { model: model.to_owned(), ..request };
        done(&asked(Wire::Bedrock, &server, request).await);
        let body = body_of(&server, nth);
        assert_eq!(body["additionalModelRequestFields"], fields, "{model}");
        assert_eq!(body["inferenceConfig"]["maxTokens"], limit, "{model}");
        let thinks = body["additionalModelRequestFields"]["thinking"].is_object();
        assert_eq!(body["inferenceConfig"]["temperature"].is_null(), thinks, "{model}");
    }
    // A round that began without a thought goes on without, and so does a call that has to be made.
    let mut request = thinking("/tool get {}", Some(Reasoning::Medium));
    request.model = claude.to_owned();
    let events = asked(Wire::Bedrock, &server, request.clone()).await;
    request.messages.extend(kept(&events));
    done(&asked(Wire::Bedrock, &server, request).await);
    let mut request = thinking("hi", Some(Reasoning::Medium));
    request.model = claude.to_owned();
    request.sampling.tool_choice = Some(ToolChoice::Required);
    done(&asked(Wire::Bedrock, &server, request).await);
    let told = |nth| body_of(&server, nth)["additionalModelRequestFields"].is_object();
    assert_eq!([told(5), told(6), told(7)], [true, false, false]);
    assert_eq!(body_of(&server, 7)["toolConfig"]["toolChoice"], json!({"any": {}}));
    server.stop().await.unwrap();
}

/// A conversation in which a tool is called.
fn with_a_call(model: &str) -> ModelRequest {
    let using = ToolUse { id: "t1".to_owned(), name: "get".to_owned(), arguments: "{}".to_owned() };
    let reply = PlainReply {
        id: "t1".to_owned(),
        text: "no such place".to_owned(),
        is_error: true,
        media: Vec::new(),
    };
    let mut request = ModelRequest { tools: vec![offer("get")], ..ask("first") };
    model.clone_into(&mut request.model);
    request.messages.extend([
        PlainMessage { tool_uses: vec![using], ..PlainMessage::text(Role::Assistant, "") },
        PlainMessage { tool_replies: vec![reply], ..PlainMessage::text(Role::User, "") },
        PlainMessage::text(Role::Assistant, "It is gone."),
        PlainMessage::text(Role::User, "and now?"),
    ]);
    request
}

#[tokio::test]
async fn cache_points_are_where_each_model_takes_them() {
    let point = json!({"cachePoint": {"type": "default"}});
    let server = ModelServer::start(Script::default()).await.unwrap();
    for (nth, (model, tools, system, result, last)) in [
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", true, true, true, true),
        ("amazon.nova-lite-v1:0", false, true, false, true),
        ("anthropic.claude-3-haiku-20240307-v1:0", false, false, false, false),
        ("meta.llama3-3-70b-instruct-v1:0", false, false, false, false),
    ]
    .into_iter()
    .enumerate()
    {
        done(&asked(Wire::Bedrock, &server, with_a_call(model)).await);
        let body = body_of(&server, nth);
        for (place, is_marked) in [
            ("/toolConfig/tools", tools),
            ("/system", system),
            ("/messages/2/content", result),
            ("/messages/4/content", last),
        ] {
            let list = body.pointer(place).unwrap().as_array().unwrap();
            assert_eq!(list.contains(&point), is_marked, "{model} {place}: {body}");
            assert_eq!(list.last() == Some(&point), is_marked, "{model} {place}: {body}");
        }
        let points = body.to_string().matches("cachePoint").count();
        assert_eq!(points, [tools, system, result, last].iter().filter(|is_set| **is_set).count());
        let failed = &body["messages"][2]["content"][0]["toolResult"];
        let is_known = model.contains("claude") || model.contains("nova");
        assert_eq!(failed["status"].as_str(), is_known.then_some("error"), "{model}");
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn tools_of_the_past_are_declared_where_none_is_offered() {
    let server = ModelServer::start(Script::default()).await.unwrap();
    let request = ModelRequest { tools: Vec::new(), ..with_a_call("m") };
    done(&asked(Wire::Bedrock, &server, request).await);
    let body = body_of(&server, 0);
    assert_eq!(body["toolConfig"]["tools"][0]["toolSpec"]["name"], "get");
    let mut request = with_a_call("m");
    request.sampling.tool_choice = Some(ToolChoice::None);
    done(&asked(Wire::Bedrock, &server, request).await);
    let body = body_of(&server, 1);
    let told = body["toolConfig"]["tools"][0]["toolSpec"]["description"].as_str().unwrap();
    assert!(told.contains("Do not call it"), "{told}");
    assert_eq!(body["toolConfig"].get("toolChoice"), None);
    let mut request = ask("hi");
    request.sampling.tool_choice = Some(ToolChoice::None);
    done(&asked(Wire::Bedrock, &server, request).await);
    assert_eq!(body_of(&server, 2).get("toolConfig"), None);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn malformed_requests_are_violations() {
    let body = |set: &dyn Fn(&mut Value)| {
        let mut body = json!({
            "toolConfig": {"tools": [{"toolSpec": {"name": "get",
                "inputSchema": {"json": {"type": "object"}}}}]},
            "messages": [
                {"role": "user", "content": [{"text": "a"}]},
                {"role": "assistant", "content": [
                    {"text": "b"}, {"toolUse": {"toolUseId": "t1", "name": "get", "input": {}}},
                ]},
                {"role": "user", "content": [
                    {"toolResult": {"toolUseId": "t1", "content": [{"text": "c"}]}}, {"text": "d"},
                ]},
            ],
        });
        set(&mut body);
        body
    };
    let server = ModelServer::start(Setup::default()).await.unwrap();
    let (status, answer) = post(&server, WireName::Bedrock, &body(&|_| {})).await;
    assert_eq!((status, server.take_violations().len()), (200, 0), "{answer}");
    let thought = json!({"reasoningContent": {"reasoningText": {"text": "hm", "signature": "x"}}});
    let document = json!({"document": {"format": "pdf", "name": "a_b", "source": {"bytes": ""}}});
    for (at, value, says) in [
        ("/messages", json!([]), "not the user's"),
        ("/messages/0/role", json!("assistant"), "alternate"),
        ("/messages/0/content", json!([]), "without content"),
        ("/messages/0/content/0", json!({"text": " "}), "is blank"),
        ("/messages/0/content/0", json!({"novelty": 1}), "unknown variant `novelty`"),
        ("/messages/0/content/0", json!({"cachePoint": {"type": "default"}}), "after nothing"),
        ("/messages/0/content/0", document, "the name `a_b`"),
        ("/messages/1/content/0", thought, "Invalid `signature`"),
        ("/messages/1/content/1/toolUse/input", json!("{}"), "not an object"),
        ("/messages/2/content/0/toolResult/toolUseId", json!("t2"), "an orphan tool result `t2`"),
        ("/messages/2/content", json!([{"text": "d"}]), "no tool result for `t1`"),
        ("/toolConfig", Value::Null, "toolConfig field must be defined"),
        ("/toolConfig/tools/0/toolSpec/name", json!("g t"), "a tool name `g t`"),
    ] {
        let set = |body: &mut Value| *body.pointer_mut(at).unwrap() = value.clone();
        let (status, _) = post(&server, WireName::Bedrock, &body(&set)).await;
        let violations = server.take_violations();
        assert_eq!((status, violations.len()), (400, 1), "{at}");
        assert!(violations[0].contains(says), "{says}: {}", violations[0]);
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn replies_in_one_piece_say_the_same_as_streams() {
    let server = start().await;
    let streamed = kept(&asked(Wire::Bedrock, &server, thinking("go", None)).await);
    let body = body_of(&server, 0);
    let server = start().await;
    let (status, whole) = post(&server, WireName::Bedrock, &body).await;
    assert_eq!(status, 200, "{whole}");
    let events = replay_whole(Wire::Bedrock, true, whole.to_string().as_bytes());
    assert_eq!(kept(&events), streamed);
    let cut = json!({"output": {"message": {"content": [{"toolUse":
        {"toolUseId": "t", "name": "get", "input": {"b": 1, "a": 2}}}]}},
        "stopReason": "max_tokens"});
    let cut = cut.to_string().replace(r#"{"a":2,"b":1}"#, r#"{"b": 1, "a": 2.50}"#);
    let calls = crate::calls(&replay_whole(Wire::Bedrock, true, cut.as_bytes()));
    assert_eq!(calls[0].arguments, r#"{"b": 1, "a": 2.50"#, "as it was written, and left open");
}

#[tokio::test]
async fn damage_on_the_way_is_asked_for_again() {
    let fixtures = crate::fixtures(Wire::Bedrock);
    let (_, body) = fixtures.into_iter().find(|(name, _)| name == "bad_damaged_payload").unwrap();
    let content_type = crate::events_type(Wire::Bedrock);
    let server = server([Act::Bytes { content_type, body }, Act::say("ok")]).await.unwrap();
    let events = call(&*client(Wire::Bedrock, &server), ask("hi")).await;
    let waits = retries(&events);
    assert_eq!((waits.len(), text(&events).as_str()), (1, "ok"));
    assert!(waits[0].1.message.contains("CRC"), "{waits:?}");
    let malformed = Reply { stop: Some("malformed_tool_use".to_owned()), ..Reply::text(["x"]) };
    let server = crate::server([malformed.into(), Act::say("ok")]).await.unwrap();
    let events = call(&*client(Wire::Bedrock, &server), ask("hi")).await;
    assert_eq!(
        (retries(&events).len(), done(&events).0),
        (1, &clawnode_proto::llm::StopReason::EndTurn)
    );
}

#[tokio::test]
async fn a_limit_within_a_reply_is_tried_again() {
    let error = Step::Error { kind: "throttlingException".to_owned(), message: "slow".to_owned() };
    let steps = [Step::Text { text: "par".to_owned() }, error];
    let server = server([Reply::steps(steps).into(), Act::say("ok")]).await.unwrap();
    let events = call(&*client(Wire::Bedrock, &server), ask("hi")).await;
    let waits = retries(&events);
    assert_eq!((waits.len(), waits[0].1.class), (1, FailureClass::RateLimited));
    assert!(waits[0].0 < Duration::from_secs(1));
    server.stop().await.unwrap();
}
