//! The gateway has every route of `docs/openapi.json`, for those who show the token.

use reqwest::{Method, StatusCode};
use serde_json::Value;

use super::harness::{Gateway, TOKEN, http_client};

const DOCUMENT: &str = include_str!("../../../../docs/openapi.json");

#[tokio::test]
async fn every_route_is_served_and_needs_the_token() {
    let document: Value = serde_json::from_str(DOCUMENT).unwrap();
    let gateway = Gateway::start().await;
    let mut asked = 0;
    for (path, operations) in document["paths"].as_object().unwrap() {
        let named = path.split('/').map(|part| if part.starts_with('{') { "x" } else { part });
        let url = gateway.url(&named.collect::<Vec<_>>().join("/"));
        for (verb, operation) in operations.as_object().unwrap() {
            let verb: Method = verb.to_uppercase().parse().unwrap();
            let is_open = operation["security"].as_array().is_some_and(Vec::is_empty);
            if !is_open {
                let foreign = http_client().request(verb.clone(), &url).send().await.unwrap();
                assert_eq!(foreign.status(), StatusCode::UNAUTHORIZED, "{verb} {path}");
            }
            let answer = http_client().request(verb.clone(), &url).bearer_auth(TOKEN).send();
            let answer = answer.await.unwrap();
            assert_ne!(answer.status(), StatusCode::METHOD_NOT_ALLOWED, "{verb} {path}");
            if answer.status() == StatusCode::NOT_FOUND {
                let text = answer.text().await.unwrap();
                assert!(!text.contains("there is nothing at"), "{verb} {path}: {text}");
            }
            asked += 1;
        }
    }
    assert!(asked > 60, "{asked}");
    gateway.stop().await;
}
