//! What a node answers is what `docs/openapi.json` says, whatever it is asked.

use std::collections::BTreeMap;

use clawnode_proto::archive::JobList;
use clawnode_tests::{
    model::Script,
    process::{Client, Node},
};
use reqwest::{Method as Verb, Response};
use serde_json::{Value, json};

use super::{Outcome, scene};

const SESSION: &str = "default:shop:main:ada";
/// What a parameter of a query is set to, one after the other.
const ODD: [&str; 8] =
    ["", "0", "-1", "x", "18446744073709551616", "%00", "%F0%9F%A6%80", "1&limit=1"];
/// What a body is, one after the other.
const BODIES: [&str; 7] =
    ["", "{", "[]", "7", "{}", r#"{"no such field":1}"#, r#"{"content":null}"#];
/// What ends the node, or all that it does: asked last, or not at all.
const ENDS: [&str; 2] = ["/v1/nodes/{node}/drain", "/v1/panic"];

struct Api {
    document: Value,
    client: Client,
    http: reqwest::Client,
    /// The values for the parameters of paths.
    names: BTreeMap<&'static str, String>,
}

impl Api {
    async fn new(node: &Node) -> Self {
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let client = node.client().unwrap();
        let url = format!("{}/v1/openapi.json", client.url());
        let document = http.get(url).bearer_auth(client.token()).send().await.unwrap();
        Self { document: document.json().await.unwrap(), client, http, names: BTreeMap::new() }
    }

    fn operations(&self) -> Vec<(String, String)> {
        let paths = self.document["paths"].as_object().unwrap();
        let all = paths.iter().flat_map(|(path, verbs)| {
            verbs.as_object().unwrap().keys().map(|verb| (path.clone(), verb.clone()))
        });
        all.collect()
    }

    /// Asks, and holds the answer against the document; the status and the body.
    async fn ask(&self, path: &str, verb: &str, query: &str, body: Option<&str>) -> (u16, Value) {
        let named = path.split('/').map(|part| {
            let name = part.strip_prefix('{').and_then(|part| part.strip_suffix('}'));
            name.map_or(part, |name| self.names.get(name).map_or("nothing", String::as_str))
        });
        let url = format!("{}{}{query}", self.client.url(), named.collect::<Vec<_>>().join("/"));
        let verb_of = Verb::from_bytes(verb.to_uppercase().as_bytes()).unwrap();
        let mut request = self.http.request(verb_of, &url).bearer_auth(self.client.token());
        if let Some(body) = body {
            request = request.body(body.to_owned());
        }
        let answer = request.send().await.unwrap();
        let what = format!("{verb} {url} with {body:?}");
        let operation = &self.document["paths"][path][verb];
        assert!(operation.is_object(), "{what} is no operation");
        self.judge(operation, answer, &what).await
    }

    async fn judge(&self, operation: &Value, answer: Response, what: &str) -> (u16, Value) {
        let status = answer.status().as_u16();
        assert!(status < 500 || status == 503, "{what}: {status}");
        let kind =
            answer.headers().get("content-type").map(|value| value.to_str().unwrap().to_owned());
        let media = kind.as_deref().unwrap_or_default().split(';').next().unwrap_or_default();
        let named = &operation["responses"][status.to_string()];
        if named.is_null() {
            assert!(status >= 400, "{what}: {status} is not in the document");
            let body: Value = answer.json().await.unwrap();
            if media == "application/problem+json" {
                self.fits(&json!({ "$ref": "#/components/schemas/Problem" }), &body, what);
                assert_eq!(body["status"], status, "{what}: {body}");
            } else {
                // OpenAI's routes, and JSON-RPC.
                assert!(body["error"]["message"].is_string(), "{what}: {body}");
            }
            return (status, body);
        }
        if status == 204 {
            return (status, Value::Null);
        }
        let schema = &named["content"][media]["schema"];
        // `true` means any JSON.
        assert!(schema.is_object() || *schema == json!(true), "{what}: {media} is not there");
        if media != "application/json" {
            return (status, Value::Null);
        }
        let body: Value = answer.json().await.unwrap();
        if schema.is_object() {
            self.fits(schema, &body, what);
        }
        (status, body)
    }

    fn fits(&self, schema: &Value, body: &Value, what: &str) {
        let mut schema = schema.clone();
        schema["components"] = self.document["components"].clone();
        let validator = jsonschema::validator_for(&schema).unwrap();
        let wrong: Vec<String> =
            validator.iter_errors(body).map(|error| error.to_string()).collect();
        assert!(wrong.is_empty(), "{what}: {wrong:#?} in {body}");
    }
}

/// Whether this node has nothing of that kind.
fn no_such_thing(path: &str) -> bool {
    // The points of a memory, which a query must name.
    path == "/v1/quarantine/{session}"
        || path.contains("artifacts/")
        || path == "/v1/memory/points"
        || path == "/v1/memory/stats"
        || path == "/v1/memory/search"
}

/// What a query must name a memory for.
async fn memories(api: &mut Api) {
    let point = r#"{"memory":"default/all","points":[{"text":"Tea is at four."}]}"#;
    let (status, put) = api.ask("/v1/memory/points", "post", "", Some(point)).await;
    assert_eq!(status, 200, "{put}");
    for path in ["/v1/memory/points", "/v1/memory/stats"] {
        let (status, known) = api.ask(path, "get", "?memory=default/all", None).await;
        assert_eq!(status, 200, "{path}: {known}");
    }
}

#[tokio::test]
async fn every_answer_is_as_the_document_has_it() -> Outcome {
    let (_server, home) = scene(Script::default()).await;
    let settings = home.path().join(".config/clawnode");
    std::fs::create_dir_all(&settings).unwrap();
    std::fs::write(
        settings.join("config.toml"),
        "[workspace]\nroot = \"agents\"\n[agents.default]\ntools = [\"file_read\"]\n",
    )
    .unwrap();
    let node = Node::up(&home).await?;
    let mut api = Api::new(&node).await;
    let messages = "/v1/sessions/{session}/messages";
    api.names.insert("session", SESSION.to_owned());
    let (status, reply) = api.ask(messages, "post", "", Some(r#"{"content":"hello"}"#)).await;
    assert_eq!((status, &reply["session"]), (200, &json!(SESSION)), "{reply}");
    let plan = r#"{"execution_spec":{"steps":[{"action":"file_read","params":{"path":"none"}}]}}"#;
    let (status, view) = api.ask("/v1/execute", "post", "?wait=5", Some(plan)).await;
    assert_eq!(status, 200, "{view}");
    api.names.insert("execution", view["execution_id"].as_str().unwrap().to_owned());
    // The archive hears of it a moment later.
    let kept = |list: &JobList| !list.jobs.is_empty();
    let jobs: JobList = api.client.call_when("jobs.list", json!({}), kept).await?;
    api.names.insert("job", jobs.jobs[0].job.to_string());
    api.names.insert("agent", "default".to_owned());
    let (_, nodes) = api.ask("/v1/nodes", "get", "", None).await;
    api.names.insert("node", nodes["nodes"][0]["node"].as_str().unwrap().to_owned());
    // Valid requests first; then invalid ones.
    let (mut good, mut bad) = (0, 0);
    for (path, verb) in api.operations() {
        if verb == "get" && !path.ends_with("/events") {
            let (status, body) = api.ask(&path, &verb, "", None).await;
            good += usize::from(status == 200);
            let known =
                path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
            if known.clone().all(|name| api.names.contains_key(name)) && !no_such_thing(&path) {
                assert_eq!(status, 200, "{path}: {body}");
            }
        }
        if ENDS.contains(&path.as_str()) || verb == "delete" {
            continue;
        }
        let operation = &api.document["paths"][&path][&verb];
        let queries = operation["parameters"].as_array().unwrap().iter();
        let queries = queries.filter(|one| one["in"] == "query").map(|one| one["name"].clone());
        let mut asked: Vec<String> = vec!["?no_such_parameter=1".to_owned()];
        for name in queries {
            asked.extend(ODD.map(|odd| format!("?{}={odd}", name.as_str().unwrap())));
        }
        for query in asked {
            api.ask(&path, &verb, &query, Some("{}")).await;
            bad += 1;
        }
        for body in BODIES {
            api.ask(&path, &verb, "", Some(body)).await;
            bad += 1;
        }
    }
    assert!(good > 25 && bad > 400, "{good} good ones, {bad} bad ones");
    for (path, verb) in api.operations() {
        if verb == "delete" {
            api.ask(&path, &verb, "?limit=x", None).await;
            api.ask(&path, &verb, "", None).await;
        }
    }
    memories(&mut api).await;
    let (status, stopped) = api.ask("/v1/panic", "post", "", None).await;
    assert_eq!(status, 200, "{stopped}");
    api.ask("/v1/nodes/{node}/drain", "post", "", Some(r#"{"force":1}"#)).await;
    node.stop().await
}
