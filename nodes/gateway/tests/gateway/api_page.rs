//! `docs/api.md` names every route and every method, and no other.

use std::collections::BTreeSet;

use clawnode_proto::api::Method;
use reqwest::StatusCode;

use super::harness::{Gateway, TOKEN, http_client};

const PAGE: &str = include_str!("../../../../docs/api.md");
/// The table of routes.
const TABLE: &str = include_str!("../../src/routes.rs");

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
    let row = |line: &str| {
        let row = line.trim();
        let row = row.strip_prefix("a(").or_else(|| row.strip_prefix("own("))?;
        let (verb, rest) = row.split_once(", \"")?;
        Some((verb.to_uppercase(), rest.split_once('"')?.0.to_owned()))
    };
    TABLE.lines().filter_map(row).collect()
}

#[tokio::test]
async fn the_page_has_every_route_and_no_other() {
    let (documented, routed) = (documented(), routed());
    assert!(routed.len() > 60, "the routes are found: {routed:?}");
    assert_eq!(documented, routed);
    // A row of the table and one of the page name the same method.
    for line in TABLE.lines().map(str::trim).filter(|line| line.starts_with("a(")) {
        let path = line.split('"').nth(1).unwrap();
        let verb = line.trim_start_matches("a(").split(',').next().unwrap().to_uppercase();
        let variant = line.split_once("M::").unwrap().1.split([')', ',']).next().unwrap();
        let method = Method::ALL.iter().find(|it| format!("{it:?}") == variant).unwrap();
        let row = format!("| `{verb}` | `{path}` | `{}` |", method.as_str());
        assert!(PAGE.contains(&row), "{row}");
    }
    // And the gateway has each of them, for those who show the token.
    let open = ["/", "/healthz", "/readyz", "/ws", "/v1/docs"];
    let gateway = Gateway::start().await;
    for (verb, path) in &documented {
        let named = path.split('/').map(|part| if part.starts_with('{') { "x" } else { part });
        let url = gateway.url(&named.collect::<Vec<_>>().join("/"));
        let verb = reqwest::Method::from_bytes(verb.as_bytes()).unwrap();
        if !open.contains(&path.as_str()) {
            let foreign = http_client().request(verb.clone(), &url).send().await.unwrap();
            assert_eq!(foreign.status(), StatusCode::UNAUTHORIZED, "{verb} {path}");
        }
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
    // What a route is said to answer with is a method, and each has a route, but for `ping`.
    let (routes, _) = PAGE.split_once("\n## Methods\n").unwrap();
    let mut reached = BTreeSet::from(["ping"]);
    for line in routes.lines().filter(|line| line.starts_with("| `")) {
        let cell = line.split(" | ").nth(2).unwrap();
        for name in cell.split(", ").filter_map(|it| it.strip_prefix('`')) {
            let name = name.trim_end_matches('`');
            assert!(known.contains(name), "{line}");
            reached.insert(name);
        }
    }
    assert_eq!(reached, known);
}
