//! `methods.md`: what the gateway can be asked, by JSON-RPC and by HTTP.

use std::collections::BTreeMap;

use clawnode_proto::api::Method;
use serde_json::Value;

use super::{
    page,
    schema::{Field, Schema},
};

const INTRO: &str = "\
[HTTP and JSON-RPC](../api.md) explains how to call them. `/ws` and `/v1/rpc` take the
parameters as `params`. A route takes them from its path, from the query that is listed beside it, and else from the
body. If a route lists a body, its body has these fields instead. `wait` is in seconds where the method has `wait_ms`.
A parameter is optional unless it is marked as required.
[openapi.json](../openapi.json) has every type in full.";

#[test]
fn reference_of_methods() {
    let document: Value = serde_json::from_str(&page::read("docs/openapi.json")).unwrap();
    let (mut by_method, mut others) = (BTreeMap::<&str, Vec<(String, &Value)>>::new(), Vec::new());
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (verb, operation) in operations.as_object().unwrap() {
            let route = page::code(&format!("{} {path}", verb.to_uppercase()));
            let methods = operation["x-methods"].as_array().map_or(&[][..], Vec::as_slice);
            for method in methods {
                let method = by_method.entry(method.as_str().unwrap()).or_default();
                method.push((route.clone(), operation));
            }
            if methods.is_empty() {
                others.push([route, operation["summary"].as_str().unwrap().to_owned()]);
            }
        }
    }
    let mut methods = Method::ALL.to_vec();
    methods.sort_by_key(|method| method.as_str());
    let (mut index, mut chapters) = (Vec::new(), String::new());
    for method in methods {
        let name = method.as_str();
        let routes = by_method.remove(name).unwrap_or_default();
        assert!(!routes.is_empty() || method == Method::Ping, "`{name}` has no route");
        let anchor = name.replace('.', "");
        let all: Vec<&str> = routes.iter().map(|(route, _)| route.as_str()).collect();
        let about = page::plain(method.about());
        index.push([format!("[`{name}`](#{anchor})"), all.join(", "), about]);
        chapters += &chapter(method, &routes, &document);
    }
    assert!(by_method.is_empty(), "no such method: {by_method:?}");
    let text = format!(
        "{INTRO}\n\n## Methods\n\n{}## Other routes\n\n`/ws` opens a WebSocket that supports every method.\n\n{}{chapters}",
        page::table(["method", "HTTP", "what it does"], &index),
        page::table(["HTTP", "what it does"], &others),
    );
    page::compare("methods", "Methods and routes", &text);
}

/// What a route has beside its path and body.
fn parameters(operation: &Value) -> String {
    let all = operation["parameters"].as_array().unwrap();
    let named = |place: &str| {
        let names = all
            .iter()
            .filter(|parameter| parameter["in"] == place)
            .map(|parameter| parameter["name"].as_str().unwrap());
        names.map(page::code).collect::<Vec<_>>().join(", ")
    };
    let said = |what: &str, names: String| {
        if names.is_empty() { names } else { format!(", {what} {names}") }
    };
    said("query", named("query")) + &said("header", named("header"))
}

/// The fields of a route's body, if the method does not have all of them as parameters.
fn own_body(operation: &Value, known: &[&str], document: &Value) -> String {
    let mut schema = &operation["requestBody"]["content"]["application/json"]["schema"];
    if let Some(path) = schema["$ref"].as_str() {
        schema = document.pointer(path.trim_start_matches('#')).unwrap();
    }
    let Some(fields) = schema["properties"].as_object() else { return String::new() };
    if fields.keys().all(|name| known.contains(&name.as_str())) {
        return String::new();
    }
    let names: Vec<_> = fields.keys().map(|name| page::code(name)).collect();
    format!(", body {}", names.join(", "))
}

fn chapter(method: Method, routes: &[(String, &Value)], document: &Value) -> String {
    let takes = Schema::made(true, |types| method.schemas(types).0.to_value());
    let answers = Schema::made(false, |types| method.schemas(types).1.to_value());
    let mut text = format!("## `{}`\n\n{}\n\n", method.as_str(), page::plain(method.about()));
    let fields = takes.fields(&takes.root, 4);
    let known: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
    for (route, operation) in routes {
        let body = own_body(operation, &known, document);
        text += &format!("- {route}{}{body}\n", parameters(operation));
    }
    text += "\n";
    let required = |field: Field| {
        let mark = if field.is_required { "Required. " } else { "" };
        [page::code(&field.name), field.kind, format!("{mark}{}", field.about)]
    };
    let params: Vec<_> = fields.into_iter().map(required).collect();
    text += &page::table(["parameter", "type", "meaning"], &params);
    let fields = answers.fields(&answers.root, 2).into_iter();
    let rows: Vec<_> =
        fields.map(|field| [page::code(&field.name), field.kind, field.about]).collect();
    if rows.is_empty() {
        text += &format!("Answer: {}.\n\n", answers.kind(&answers.root));
    }
    text + &page::table(["answer", "type", "meaning"], &rows)
}
