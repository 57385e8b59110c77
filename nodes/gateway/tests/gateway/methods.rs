//! Every method of the table is answered over `/ws`, `/v1/rpc` and each of its routes. What they are
//! asked is made from the types of their parameters, so that a new method needs nothing here.

use clawnode_proto::{ExecutionId, SwitchId, api::Method};
use reqwest::{Method as Verb, Response, Url};
use serde_json::{Map, Value, json};

use super::{
    example,
    harness::{Client, Gateway, TOKEN, http_client, message},
    node::{CALL, approval},
};

const DOCUMENT: &str = include_str!("../../../../docs/openapi.json");
const SESSION: &str = "default:test:bot:ada";

/// What there is at the scripted node, by the names of the parameters that ask for it.
fn known(turn: &Value) -> Value {
    json!({
        "session": SESSION,
        "account": "cluster",
        "memory": "default/all",
        "day": "2026-11-26",
        "turn": turn,
        "call": CALL,
        "job": CALL,
        "action": approval().digest,
        "name": "out/page.html",
        "server": "clock",
        "model": "openai/gpt-4o",
        "latch": SwitchId::from_u128(1),
        "execution": ExecutionId::from_u128(1),
        "execution_id": ExecutionId::from_u128(1),
    })
}

/// Makes what a method may have removed; returns the turn.
async fn prepare(client: &mut Client) -> Value {
    client.call(0, "panic", json!({})).await;
    assert!(client.frame().await["result"].is_object());
    let mut hello = message("ada", "hello");
    hello["idempotency_key"] = "hello".into();
    client.call(0, "chat.send", hello).await;
    client.stream().await[0]["data"]["turn"].take()
}

/// The answer of a method over `/ws`, or its stream.
async fn over_ws(client: &mut Client, method: Method, params: Value) -> Option<Value> {
    client.call(1, method.as_str(), params).await;
    let mut frame = client.frame().await;
    if frame.get("event").is_none() {
        assert!(frame.get("result").is_some(), "{}: {frame}", method.as_str());
        return Some(frame["result"].take());
    }
    assert_eq!(frame["event"], "accepted", "{}: {frame}", method.as_str());
    assert_eq!(client.stream().await.pop().unwrap()["event"], "done");
    None
}

/// Asks a route for what it serves, with values of these names.
async fn over_rest(
    (gateway, http): (&Gateway, &reqwest::Client),
    (path, verb, operation): (&str, &str, &Value),
    known: &Value,
    types: &Map<String, Value>,
) -> Response {
    let all = known.as_object().unwrap();
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let named = path.split('/').map(|part| {
        match part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) {
            Some(name) => all.get(name).map_or_else(|| "x".to_owned(), text),
            None => part.to_owned(),
        }
    });
    let mut url: Url = gateway.url(&named.collect::<Vec<_>>().join("/")).parse().unwrap();
    for parameter in operation["parameters"].as_array().unwrap() {
        let name = parameter["name"].as_str().unwrap();
        if let (Some("query"), Some(value)) = (parameter["in"].as_str(), all.get(name)) {
            url.query_pairs_mut().append_pair(name, &text(value));
        }
    }
    let verb: Verb = verb.to_uppercase().parse().unwrap();
    let mut request = http.request(verb, url).bearer_auth(TOKEN);
    let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
    if !schema.is_null() {
        request = request.json(&example::body(schema, types, known));
    }
    request.send().await.unwrap()
}

/// The fields of an answer.
fn fields(answer: &Value) -> Vec<&String> {
    answer.as_object().map(|fields| fields.keys().collect()).unwrap_or_default()
}

#[tokio::test]
async fn every_method_is_answered_on_every_way() {
    let document: Value = serde_json::from_str(DOCUMENT).unwrap();
    let types = document["components"]["schemas"].as_object().unwrap();
    let gateway = Gateway::start().await;
    let (mut client, http) = (gateway.connect().await, http_client());
    for method in Method::ALL {
        let name = method.as_str();
        let mut known = known(&prepare(&mut client).await);
        if *method == Method::MemorySearch {
            // It searches one memory, or what a session may see.
            known.as_object_mut().unwrap().remove("session");
        }
        let params = example::params(*method, &known);
        let answered = over_ws(&mut client, *method, params.clone()).await;
        prepare(&mut client).await;
        let rpc = json!({"id": 1, "method": name, "params": params});
        let rpc = http.post(gateway.url("/v1/rpc")).bearer_auth(TOKEN).json(&rpc).send();
        let rpc: Value = rpc.await.unwrap().json().await.unwrap();
        match &answered {
            Some(answered) => assert_eq!(fields(answered), fields(&rpc["result"]), "{name}: {rpc}"),
            None => assert_eq!(rpc["error"]["data"]["code"], "unsupported", "{name}: {rpc}"),
        }
        let mut routes = 0;
        for (path, operations) in document["paths"].as_object().unwrap() {
            for (verb, operation) in operations.as_object().unwrap() {
                let methods = operation["x-methods"].as_array().map_or(&[][..], Vec::as_slice);
                if !methods.iter().any(|method| method == name) {
                    continue;
                }
                routes += 1;
                prepare(&mut client).await;
                let answer =
                    over_rest((&gateway, &http), (path, verb, operation), &known, types).await;
                let (status, url) = (answer.status(), answer.url().clone());
                let is_json = answer.headers()["content-type"] == "application/json";
                let text = answer.text().await.unwrap();
                assert!(status.is_success(), "{verb} {url}: {status} {text}");
                if let Some(answered) = answered.as_ref().filter(|_| is_json) {
                    let answer: Value = serde_json::from_str(&text).unwrap();
                    assert_eq!(fields(answered), fields(&answer), "{verb} {url}: {text}");
                }
            }
        }
        assert!(
            routes > 0 || *method == Method::Ping,
            "docs/openapi.json has no route of `{name}`"
        );
    }
    gateway.stop().await;
}
