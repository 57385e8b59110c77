//! `GET /v1/openapi.json`: the API for programs that make clients of it.
//!
//! The document is a file of the repository. It is made from the table of routes and from the types of
//! the methods by the test below, so that a running node carries no schemas but the text.

use axum::response::Response;

use super::rest;

/// `OpenAPI` 3.1.
const DOCUMENT: &str = include_str!("../../../docs/openapi.json");

/// The route.
pub(super) async fn document() -> Response {
    rest::json(DOCUMENT.to_owned())
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, env, fs};

    use clawnode_proto::{
        ErrorCode,
        api::{Method, SessionMessage},
        execute::{ExecuteParams, ExecutionView},
        media::FileView,
        policy::Approval,
        turn::TurnEvent,
        view::ReplyView,
    };
    use schemars::{JsonSchema as _, SchemaGenerator, generate::SchemaSettings};
    use serde_json::{Map, Value, json};

    use super::DOCUMENT;
    use crate::{
        route::{QueryKind, Route, RouteBody, Serves, Verb},
        routes::routes,
    };

    const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
    /// For a body with a shape of its own that is not ours to state.
    const ANY_OBJECT: &str = "object";

    /// What a route takes in its body and answers.
    struct Shape {
        about: &'static str,
        takes: Value,
        /// The status, the media type and the schema of each success.
        answers: Vec<(u16, &'static str, Value)>,
    }

    /// Where the document has its schemas.
    const SCHEMAS: &str = "#/components/schemas/";
    const ANSWERS: &str = "#/components/schemas/Answer";
    const JSON: &str = "application/json";
    const EVENTS: &str = "text/event-stream";
    /// The name of the schema of one server-sent event of a turn.
    const EVENT: &str = "StreamedEvent";

    fn any() -> Value {
        json!({ "type": ANY_OBJECT })
    }

    fn text() -> Value {
        json!({ "type": "string" })
    }

    fn said(about: &str) -> Value {
        json!({ "type": "string", "description": about })
    }

    fn of<T: schemars::JsonSchema>(takes: &mut SchemaGenerator) -> Value {
        takes.subschema_for::<T>().to_value()
    }

    /// One server-sent event: that of a WebSocket, with its data as text and its cursor as `id`.
    fn told(answers: &mut SchemaGenerator) -> Value {
        let mut event = TurnEvent::json_schema(answers).to_value();
        for one in event["oneOf"].as_array_mut().unwrap() {
            let data = one["properties"]["data"].take();
            one["properties"]["data"] = json!({
                "type": "string",
                "contentMediaType": JSON,
                "contentSchema": data,
            });
        }
        event["description"] = "One server-sent event of a turn; `data` is JSON.".into();
        let cursor = event["properties"]["cursor"].take();
        event["properties"] = json!({ "id": cursor });
        answers.definitions_mut().insert(EVENT.to_owned(), event);
        json!({ "$ref": format!("#/components/schemas/{EVENT}") })
    }

    #[expect(clippy::too_many_lines, reason = "one flat match over the routes")]
    fn shape(route: &Route, takes: &mut SchemaGenerator, answers: &mut SchemaGenerator) -> Shape {
        if let Serves::Method(method) = route.serves {
            let about = method.about().trim();
            // Of each half only the one side is asked for.
            let (params, _) = method.schemas(takes);
            let (_, answer) = method.schemas(answers);
            let answers = vec![(200, JSON, answer.to_value())];
            return Shape { about, takes: params.to_value(), answers };
        }
        let answered = |about, takes, answers| Shape { about, takes, answers };
        match (route.verb, route.path) {
            (Verb::Get, "/") => answered(
                "A web page that explains the API.",
                any(),
                vec![(200, "text/html", text())],
            ),
            (Verb::Get, "/healthz") => answered(
                "Answers `ok` while the node runs.",
                any(),
                vec![(200, "text/plain", text())],
            ),
            (Verb::Get, "/readyz") => answered(
                "Answers `ok` if the node can serve.",
                any(),
                vec![(200, "text/plain", text())],
            ),
            (Verb::Get, "/metrics") => {
                answered("Metrics, for Prometheus.", any(), vec![(200, "text/plain", text())])
            }
            (Verb::Get, "/v1/docs") => answered(
                "A page that shows this document.",
                any(),
                vec![(200, "text/html", text())],
            ),
            (Verb::Get, "/v1/openapi.json") => {
                answered("The API as OpenAPI 3.1.", any(), vec![(200, JSON, any())])
            }
            (Verb::Get, "/v1/models") => answered(
                "The agents, as models of OpenAI's API or of Anthropic's.",
                any(),
                vec![(200, JSON, any())],
            ),
            (Verb::Get, "/v1/models/{model}") => answered(
                "One agent, as a model of OpenAI's API or of Anthropic's.",
                any(),
                vec![(200, JSON, any())],
            ),
            (Verb::Post, "/v1/chat/completions") => answered(
                "OpenAI: a turn, streamed or not. `user` names a session.",
                any(),
                vec![(200, JSON, any()), (200, EVENTS, any())],
            ),
            (Verb::Get, "/v1/chat/completions/{completion}") => answered(
                "OpenAI: a chat completion that has ended, with its `metadata`.",
                any(),
                vec![(200, JSON, any())],
            ),
            (Verb::Post, "/v1/embeddings") => answered(
                "OpenAI: texts as vectors of numbers. Nothing is stored.",
                any(),
                vec![(200, JSON, any())],
            ),
            (Verb::Post, "/v1/messages") => answered(
                "Anthropic: a turn, streamed or not. `metadata.user_id` names a session.",
                any(),
                vec![(200, JSON, any()), (200, EVENTS, any())],
            ),
            (Verb::Post, "/v1/messages/count_tokens") => answered(
                "Anthropic: about how many tokens a request has. Nothing is stored, and no model is asked.",
                any(),
                vec![(200, JSON, any())],
            ),
            (Verb::Post, "/v1/responses") => answered(
                "OpenAI: a response, streamed, whole or in the background.",
                any(),
                vec![(200, JSON, any()), (200, EVENTS, any())],
            ),
            (Verb::Get, "/v1/responses/{response}") => answered(
                "OpenAI: a response as it is now. Streamed, from the event after `starting_after` on.",
                any(),
                vec![(200, JSON, any()), (200, EVENTS, any())],
            ),
            (Verb::Delete, "/v1/responses/{response}") => answered(
                "OpenAI: deletes a response with its session, if that has nothing else.",
                any(),
                vec![(200, JSON, any())],
            ),
            (Verb::Post, "/v1/responses/{response}/cancel") => {
                answered("OpenAI: cancels a response.", any(), vec![(200, JSON, any())])
            }
            (Verb::Post, "/v1/rpc") => {
                answered("JSON-RPC: any method that answers once.", any(), vec![(200, JSON, any())])
            }
            (Verb::Post, "/v1/sessions/{session}/messages") => answered(
                "Sends a message to a session. Answers when its turn has ended, or streams it.",
                of::<SessionMessage>(takes),
                vec![(200, JSON, of::<ReplyView>(answers)), (200, EVENTS, told(answers))],
            ),
            (Verb::Get, "/v1/sessions/{session}/events") => answered(
                "Streams a turn, from the event after `Last-Event-ID` on. 204 after its end.",
                any(),
                vec![(200, EVENTS, told(answers)), (204, "", Value::Null)],
            ),
            (Verb::Post, "/v1/sessions/{session}/files") => answered(
                "Stores a file of a session, up to 50 MB. The body is the file. A message names it in \
                 `attachments`.",
                any(),
                vec![(201, JSON, of::<FileView>(answers))],
            ),
            (Verb::Get, "/v1/sessions/{session}/files/{file}") => answered(
                "A file of a session.",
                any(),
                vec![(200, "application/octet-stream", json!({}))],
            ),
            (Verb::Post, "/v1/files") => answered(
                "OpenAI: stores a file, up to 50 MB: a form with `file` and `purpose`. A message names it as \
                 `file_id`. The header `Clawnode-Session` names its session.",
                any(),
                vec![(200, JSON, any())],
            ),
            (Verb::Get, "/v1/files") => answered(
                "OpenAI: the files of a session or of none, the newest first.",
                any(),
                vec![(200, JSON, any())],
            ),
            (Verb::Get, "/v1/files/{file}") => {
                answered("OpenAI: what is known of a file.", any(), vec![(200, JSON, any())])
            }
            (Verb::Get, "/v1/files/{file}/content") => answered(
                "OpenAI: a file itself.",
                any(),
                vec![(200, "application/octet-stream", json!({}))],
            ),
            (Verb::Delete, "/v1/files/{file}") => answered(
                "OpenAI: deletes a file that no message names.",
                any(),
                vec![(200, JSON, any())],
            ),
            (Verb::Post, "/v1/approvals/{call}") => answered(
                "Approves or denies a tool call that waits for a person.",
                json!({
                    "type": "object",
                    "additionalProperties": false,
                    "required": ["decision"],
                    "properties": {
                        "decision": { "enum": ["approve", "deny"] },
                        "digest": { "type": "string" },
                        "action": { "type": "string" },
                        "reason": { "type": ["string", "null"] },
                    },
                }),
                vec![(200, JSON, of::<Approval>(answers))],
            ),
            (Verb::Get, "/v1/jobs/{job}/artifacts/{*name}") => answered(
                "A file that a job created.",
                any(),
                vec![(200, "application/octet-stream", json!({}))],
            ),
            (Verb::Post, "/v1/execute") => answered(
                Method::Execute.about().trim(),
                of::<ExecuteParams>(takes),
                executions(answers),
            ),
            (Verb::Get, "/v1/execute/{execution}") => answered(
                Method::ExecuteShow.about().trim(),
                any(),
                vec![(200, JSON, of::<ExecutionView>(answers))],
            ),
            (Verb::Post, "/v1/execute/{execution}/cancel") => {
                answered(Method::ExecuteCancel.about().trim(), any(), executions(answers))
            }
            other => panic!("{other:?} does not say here what it takes and answers"),
        }
    }

    /// The methods of JSON-RPC that a route calls.
    fn methods(route: &Route) -> Vec<Method> {
        if let Serves::Method(method) = route.serves {
            return vec![method];
        }
        match (route.verb, route.path) {
            (Verb::Post, "/v1/sessions/{session}/messages") => vec![Method::ChatSend],
            (Verb::Get, "/v1/sessions/{session}/events") => vec![Method::SessionsResume],
            (Verb::Post, "/v1/approvals/{call}") => {
                vec![Method::ApprovalsApprove, Method::ApprovalsDeny]
            }
            (Verb::Get, "/v1/jobs/{job}/artifacts/{*name}") => vec![Method::JobsArtifact],
            (Verb::Post, "/v1/execute") => vec![Method::Execute],
            (Verb::Get, "/v1/execute/{execution}") => vec![Method::ExecuteShow],
            (Verb::Post, "/v1/execute/{execution}/cancel") => vec![Method::ExecuteCancel],
            _ => Vec::new(),
        }
    }

    /// What has not ended is only accepted.
    fn executions(answers: &mut SchemaGenerator) -> Vec<(u16, &'static str, Value)> {
        [200, 202].map(|status| (status, JSON, of::<ExecutionView>(answers))).into()
    }

    fn generator(answers: bool) -> SchemaGenerator {
        let settings = SchemaSettings::draft2020_12().with(|settings| {
            settings.definitions_path = "/components/schemas".into();
            settings.meta_schema = None;
        });
        if answers { settings.for_serialize() } else { settings.for_deserialize() }.into_generator()
    }

    /// What a route answers when it refuses or fails.
    fn refusal(route: &Route) -> Value {
        // In OpenAI's words, Anthropic's, or JSON-RPC's.
        const OTHERS: [&str; 7] = [
            "/v1/chat",
            "/v1/embeddings",
            "/v1/files",
            "/v1/messages",
            "/v1/models",
            "/v1/responses",
            "/v1/rpc",
        ];
        if OTHERS.iter().any(|its| route.path.starts_with(its)) {
            return json!({
                "description": "The error.",
                "content": { JSON: { "schema": any() } },
            });
        }
        json!({ "$ref": "#/components/responses/Problem" })
    }

    /// A path's parameters are named in the address, not in the body.
    fn without(schema: Value, named: &[String], all: &Map<String, Value>) -> Value {
        let mut whole = resolved(&schema, all).clone();
        if !named.iter().any(|name| whole["properties"].get(name).is_some()) {
            return schema;
        }
        for name in named {
            whole["properties"].as_object_mut().unwrap().remove(name);
        }
        if let Some(required) = whole["required"].as_array_mut() {
            required.retain(|one| !named.iter().any(|name| one == name.as_str()));
        }
        whole
    }

    /// The schema that a reference leads to, or the schema itself.
    fn resolved<'a>(schema: &'a Value, all: &'a Map<String, Value>) -> &'a Value {
        let target = schema["$ref"].as_str().and_then(|reference| reference.rsplit('/').next());
        target.and_then(|name| all.get(name)).unwrap_or(schema)
    }

    /// What the route's parameters are for, from the type of its parameters.
    fn parameters(route: &Route, named: &[String], takes: &Value) -> Vec<Value> {
        let about = |mut parameter: Value| {
            let name = parameter["name"].as_str().unwrap_or_default();
            let text = match (name, &takes["properties"][name]["description"]) {
                (_, Value::String(text)) => text.as_str(),
                ("session", _) => "`agent:channel:account:peer`, or `ent_…`.",
                ("turn", _) => "The turn; the running or last one if absent.",
                ("cursor", _) => "Only what follows this cursor.",
                ("wait", _) => "How many seconds to wait for the end.",
                ("starting_after", _) => "The `sequence_number` of the last event that was seen.",
                ("stream", _) => "Whether to stream it.",
                ("run", _) => "Which run of the job; the last one that made the file if absent.",
                _ => return parameter,
            };
            parameter["description"] = text.into();
            parameter
        };
        let path = named.iter().map(|name| {
            json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } })
        });
        let query = route.query.iter().map(|(name, kind)| {
            let schema = match kind {
                QueryKind::Text => json!({ "type": "string" }),
                QueryKind::Number => json!({ "type": "integer", "minimum": 0 }),
                QueryKind::Flag => json!({ "type": "boolean" }),
            };
            json!({ "name": name, "in": "query", "schema": schema })
        });
        let mut all: Vec<Value> = path.chain(query).map(about).collect();
        let header = |name: &str, about: &str| json!({ "name": name, "in": "header", "description": about, "schema": text() });
        match route.path {
            "/v1/sessions/{session}/messages"
            | "/v1/execute"
            | "/v1/chat/completions"
            | "/v1/messages"
            | "/v1/responses" => {
                let about = "Sending again with the same key is harmless for seven days.";
                all.push(header("Idempotency-Key", about));
                if route.path != "/v1/execute" {
                    let about = "The lane of the turn: `interactive` or `background`.";
                    all.push(header("Clawnode-Lane", about));
                }
            }
            "/v1/sessions/{session}/events" => {
                all.push(header("Last-Event-ID", "The `id` of the last event that was seen."));
            }
            _ => {}
        }
        all
    }

    /// The schemas of both generators under one roof: those of answers have names of their own, until it
    /// is known which of them are needed.
    fn renamed(value: &mut Value, from: &str, to: &str) {
        match value {
            Value::String(text) if text.starts_with(from) => *text = text.replacen(from, to, 1),
            Value::Array(all) => all.iter_mut().for_each(|one| renamed(one, from, to)),
            Value::Object(all) => all.values_mut().for_each(|one| renamed(one, from, to)),
            _ => {}
        }
    }

    /// One verb of one path: its name, and what is said of it.
    fn operation(
        route: &Route,
        shape: Shape,
        named: &[String],
        all: &Map<String, Value>,
    ) -> (&'static str, Value) {
        let mut responses = Map::new();
        for (status, media, schema) in shape.answers {
            let mut schema = schema;
            renamed(&mut schema, SCHEMAS, ANSWERS);
            let answer = responses.entry(status.to_string());
            let answer = answer.or_insert_with(|| json!({ "description": "Done." }));
            if !media.is_empty() {
                answer["content"][media] = json!({ "schema": schema });
            }
        }
        responses.insert("default".to_owned(), refusal(route));
        let verb = match route.verb {
            Verb::Get => "get",
            Verb::Post => "post",
            Verb::Put => "put",
            Verb::Delete => "delete",
        };
        let words = route.path.split(|c: char| !c.is_ascii_alphanumeric());
        let words: Vec<&str> = words.filter(|word| !word.is_empty() && *word != "v1").collect();
        let mut operation = json!({
            "operationId": format!("{verb}_{}", words.join("_")).trim_end_matches('_'),
            "tags": [words.first().filter(|_| route.path.starts_with("/v1/")).unwrap_or(&"node")],
            "summary": shape.about,
            "parameters": parameters(route, named, resolved(&shape.takes, all)),
            "responses": responses,
        });
        let methods: Vec<&str> = methods(route).into_iter().map(Method::as_str).collect();
        if !methods.is_empty() {
            operation["x-methods"] = json!(methods);
        }
        if matches!(route.path, "/" | "/healthz" | "/readyz" | "/v1/docs") {
            operation["security"] = json!([]);
        }
        if let RouteBody::Optional(example) | RouteBody::Object(example) = route.body {
            let schema = without(shape.takes, named, all);
            let example: Value = serde_json::from_str(example).unwrap();
            operation["requestBody"] = json!({
                "required": matches!(route.body, RouteBody::Object(_)),
                "content": { JSON: { "schema": schema, "example": example } },
            });
        }
        (verb, operation)
    }

    /// The body of a refusal, with all codes that it may have.
    fn problem() -> Value {
        let codes = ErrorCode::ALL.iter().map(|code| format!("`{code}` ({})", code.http_status()));
        let codes = format!("Stable. One of {}.", codes.collect::<Vec<_>>().join(", "));
        json!({
            "type": "object",
            "required": ["title", "status", "detail", "code"],
            "properties": {
                "title": text(),
                "status": { "type": "integer", "description": "The HTTP status." },
                "detail": said("What happened, for people."),
                "code": said(&codes),
                "session": said("The session, if its turn failed."),
                "turn": said("The turn that failed."),
                "cursor": said("Where to go on in the stream of the turn."),
                "hint": said("What to do next."),
                "retry_after_ms": {
                    "type": "integer",
                    "minimum": 0,
                    "description": "How long a provider asks to be left alone.",
                },
            },
        })
    }

    fn made() -> Value {
        let (mut takes, mut answers) = (generator(false), generator(true));
        // OpenAPI cannot describe a WebSocket.
        let routes: Vec<&Route> = routes().filter(|route| route.path != "/ws").collect();
        let shapes: Vec<Shape> =
            routes.iter().map(|route| shape(route, &mut takes, &mut answers)).collect();
        let read = takes.take_definitions(true);
        let mut paths = Map::new();
        for (route, shape) in routes.into_iter().zip(shapes) {
            let path = route.path.replace("{*", "{");
            let named: Vec<String> = path
                .split('/')
                .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}').map(str::to_owned))
                .collect();
            let (verb, operation) = operation(route, shape, &named, &read);
            let entry = paths.entry(path).or_insert_with(|| json!({}));
            entry[verb] = operation;
        }
        let mut schemas = used(&paths, read);
        let answers = answers.take_definitions(true).into_iter().map(|(name, mut schema)| {
            renamed(&mut schema, SCHEMAS, ANSWERS);
            (format!("Answer{name}"), schema)
        });
        let answers = used(&paths, answers.collect());
        let known: BTreeSet<String> = schemas.keys().cloned().collect();
        let name_of = |name: &str| {
            let own = name.strip_prefix("Answer").filter(|own| !known.contains(*own));
            own.unwrap_or(name).to_owned()
        };
        schemas.extend(answers.into_iter().map(|(name, schema)| (name_of(&name), schema)));
        schemas.insert("Problem".to_owned(), problem());
        let mut document = json!({
            "openapi": "3.1.0",
            "info": {
                "title": "clawnode",
                "version": env!("CARGO_PKG_VERSION"),
                "description": "Durable agents. docs/api.md explains the API.",
                "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
            },
            "servers": [{ "url": "http://127.0.0.1:3100" }],
            "security": [{ "token": [] }],
            "paths": paths,
            "components": {
                "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
                "schemas": schemas,
                "responses": { "Problem": {
                    "description": "The error, as in RFC 9457.",
                    "content": { "application/problem+json": {
                        "schema": { "$ref": "#/components/schemas/Problem" },
                    } },
                } },
            },
        });
        tidied(&mut document, &name_of);
        document
    }

    /// A choice of texts is an enumeration: some makers of clients know a choice of constants only as
    /// a choice of types. What the texts mean is in the description.
    fn enumerated(all: &mut Map<String, Value>) {
        let Some(choice) = all.get("oneOf").and_then(Value::as_array) else { return };
        let (mut texts, mut about) = (Vec::new(), Vec::new());
        about.extend(all.get("description").and_then(Value::as_str).map(str::to_owned));
        for one in choice {
            let of_one = [one["const"].clone()];
            let named = one["enum"].as_array().map_or(of_one.as_slice(), Vec::as_slice);
            if !named.iter().all(Value::is_string) {
                return;
            }
            let meaning = one["description"].as_str().map(|text| (named, text));
            about.extend(
                meaning.map(|(group, text)| format!("`{}`: {text}", group[0].as_str().unwrap())),
            );
            texts.extend_from_slice(named);
        }
        all.remove("oneOf");
        all.insert("type".to_owned(), "string".into());
        all.insert("enum".to_owned(), texts.into());
        all.insert("description".to_owned(), about.join("\n").into());
    }

    fn any_is_empty(schema: &mut Value) {
        if *schema == true {
            *schema = json!({});
        }
    }

    /// Links between types mean nothing outside their own documents. Some makers of clients know no
    /// schema `true`, which is `{}`.
    fn tidied(value: &mut Value, name_of: &impl Fn(&str) -> String) {
        match value {
            Value::String(text) => {
                if let Some(name) = text.strip_prefix(SCHEMAS) {
                    *text = format!("{SCHEMAS}{}", name_of(name));
                }
                while let Some((before, rest)) = text.split_once("[`")
                    && let Some((name, after)) = rest.split_once("`]")
                {
                    let target = after.starts_with('(').then(|| after.split_once(')')).flatten();
                    let after = target.map_or(after, |(_, after)| after);
                    *text = format!("{before}`{name}`{after}");
                }
            }
            Value::Array(all) => all.iter_mut().for_each(|one| tidied(one, name_of)),
            Value::Object(all) => {
                enumerated(all);
                for (key, one) in all {
                    if let ("properties", Value::Object(fields)) = (key.as_str(), &mut *one) {
                        fields.values_mut().for_each(any_is_empty);
                    }
                    if ["schema", "items"].contains(&key.as_str()) {
                        any_is_empty(one);
                    }
                    tidied(one, name_of);
                }
            }
            _ => {}
        }
    }

    /// Those that something refers to.
    fn used(paths: &Map<String, Value>, mut all: Map<String, Value>) -> Map<String, Value> {
        let mut used = Map::new();
        let mut text = Value::Object(paths.clone()).to_string();
        loop {
            let is_used = |name: &str| text.contains(&format!("schemas/{name}\""));
            let Some(name) = all.keys().find(|name| is_used(name)).cloned() else { return used };
            if let Some(schema) = all.remove(&name) {
                text.push_str(&schema.to_string());
                used.insert(name, schema);
            }
        }
    }

    /// `INSTA_UPDATE=always` writes the file again.
    #[test]
    fn the_document_is_made_from_the_routes_and_types() {
        let made = serde_json::to_string_pretty(&made()).unwrap() + "\n";
        if made != DOCUMENT && env::var("INSTA_UPDATE").is_ok_and(|value| value == "always") {
            fs::write(FILE, &made).unwrap();
            return;
        }
        assert!(made == DOCUMENT, "docs/openapi.json is not what the code says: write it again");
    }

    #[test]
    fn every_reference_leads_to_a_schema() {
        let document: Value = serde_json::from_str(DOCUMENT).unwrap();
        let mut found = 0;
        let mut left = vec![&document];
        while let Some(value) = left.pop() {
            match value {
                Value::Object(fields) => {
                    if let Some(to) = fields.get("$ref").and_then(Value::as_str) {
                        let to = to.strip_prefix('#').unwrap();
                        assert!(document.pointer(to).is_some(), "{to}");
                        found += 1;
                    }
                    left.extend(fields.values());
                }
                Value::Array(all) => left.extend(all),
                _ => {}
            }
        }
        assert!(found > 100, "{found}");
    }
}
