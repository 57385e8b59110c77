//! `docs/api.md` names every route and every method, and no other.

use std::collections::BTreeSet;

use clawnode_proto::api::Method;
use reqwest::StatusCode;

use super::harness::{Gateway, TOKEN, http_client};

const PAGE: &str = include_str!("../../../docs/api.md");
/// Where routes are added.
const ROUTERS: [&str; 3] = [
    include_str!("../../src/gateway/rest.rs"),
    include_str!("../../src/gateway/jobs.rs"),
    include_str!("../../src/gateway/execute.rs"),
];

/// The verbs and routes of the page.
fn documented() -> BTreeSet<(String, String)> {
    let row = |line: &str| {
        let (verb, rest) = line.strip_prefix("| `")?.split_once("` | `/")?;
        Some((verb.to_owned(), format!("/{}", rest.split_once('`')?.0)))
    };
    PAGE.lines().filter_map(row).collect()
}

/// The verbs and routes of the program.
fn routed() -> BTreeSet<(String, String)> {
    let mut all = BTreeSet::new();
    for line in ROUTERS.iter().flat_map(|text| text.lines()) {
        let Some(rest) = line.trim().strip_prefix(".route(\"") else { continue };
        let (path, serves) =
            rest.split_once("\", ").expect("a route and who serves it in one line");
        // A WebSocket begins with `GET`; what answers the others says so.
        for (call, verb) in
            [("get(", "GET"), ("any(", "GET"), ("post(", "POST"), ("delete(", "DELETE")]
        {
            let begins = serves.starts_with(call) || serves.contains(&format!(".{call}"));
            all.extend(begins.then(|| (verb.to_owned(), path.to_owned())));
        }
    }
    all
}

#[tokio::test]
async fn the_page_has_every_route_and_no_other() {
    let (documented, routed) = (documented(), routed());
    assert!(routed.len() > 30, "the routes are found: {routed:?}");
    assert_eq!(documented, routed);
    // And the gateway has each of them.
    let gateway = Gateway::start().await;
    for (verb, path) in &documented {
        let named = path.split('/').map(|part| if part.starts_with('{') { "x" } else { part });
        let url = gateway.url(&named.collect::<Vec<_>>().join("/"));
        let verb = reqwest::Method::from_bytes(verb.as_bytes()).unwrap();
        let answer = http_client().request(verb.clone(), url).bearer_auth(TOKEN).send();
        let answer = answer.await.unwrap();
        assert_ne!(answer.status(), StatusCode::METHOD_NOT_ALLOWED, "{verb} {path}");
        if answer.status() == StatusCode::NOT_FOUND {
            let text = answer.text().await.unwrap();
            assert!(!text.contains("there is nothing at"), "{verb} {path}: {text}");
        }
    }
    gateway.stop().await;
}

#[test]
fn the_page_has_every_method_and_no_other() {
    let (_, methods) = PAGE.split_once("\n## Methods\n").unwrap();
    let row = |line: &'static str| line.strip_prefix("| `")?.split_once('`').map(|(name, _)| name);
    let documented: BTreeSet<&str> = methods.lines().filter_map(row).collect();
    let known: BTreeSet<&str> = Method::ALL.iter().map(|method| method.as_str()).collect();
    assert_eq!(documented, known);
    // What a route is said to answer with is a method.
    let (routes, _) = PAGE.split_once("\n## Methods\n").unwrap();
    for line in routes.lines().filter(|line| line.starts_with("| `")) {
        let cell = line.split(" | ").nth(2).unwrap();
        for name in cell.split(", ").filter_map(|it| it.strip_prefix('`')) {
            assert!(known.contains(name.trim_end_matches('`')), "{line}");
        }
    }
}
