//! `http_fetch` and `http_post` as a model calls them.

use std::sync::Arc;

use clawnode_executors::HttpFetch;
use clawnode_proto::tool::ToolFailure;
use clawnode_tool::{Egress, EgressOptions, Executor};
use serde_json::json;

use crate::{
    egress::{Lab, Liar},
    server::{Answer, Seen},
    spellings::ALLOWED,
    support::{call, call_as, text},
};

fn pages(seen: &Seen, port: u16) -> Answer {
    match seen.path.as_str() {
        "/html" => Answer::with(
            "200 OK",
            "content-type: text/html; charset=iso-8859-1\r\nx-secret: 1\r\netag: \"7\"\r\n",
            b"<p>gr\xfcn</p>",
        ),
        "/png" => Answer::with("200 OK", "content-type: image/png\r\n", b"\x89PNG\r\n\x1a\n"),
        "/packed" => Answer::with("200 OK", "content-encoding: gzip\r\n", &[0x1f, 0x8b, 8, 0]),
        "/gone" => Answer::with("404 Not Found", "content-type: text/plain\r\n", b"nothing here"),
        "/moved" => Answer::to(&format!("http://lab.test:{port}/html")),
        "/echo" => Answer::ok(seen.headers.get("x-asked").map_or("none", String::as_str)),
        _ => Answer::ok("0123456789"),
    }
}

async fn lab() -> (Lab, Arc<dyn Executor>) {
    let lab = Lab::new(pages).await;
    let hosts = [("narrow".parse().unwrap(), vec!["*.example.org".parse().unwrap()])].into();
    let options = EgressOptions { hosts, ..lab.options() };
    let egress = Egress::with_resolver(options, Liar::saying([vec![ALLOWED.into()]]));
    (lab, Arc::new(HttpFetch::new(egress)))
}

#[tokio::test]
async fn a_page_is_shown_with_what_matters_of_its_head() {
    let (lab, fetch) = lab().await;
    let url = |path: &str| format!("http://lab.test:{}/{path}", lab.port);
    let told = call(fetch.clone(), "http_fetch", &json!({"url": url("html")})).await;
    assert_eq!(
        text(&told),
        "HTTP 200 OK\ncontent-type: text/html; charset=iso-8859-1\ncontent-length: 11\n\
         etag: \"7\"\n\n<p>grün</p>"
    );
    let told = call(fetch.clone(), "http_fetch", &json!({"url": url("moved")})).await;
    let begin = format!("HTTP 200 OK\nurl: {} (after redirects)\n", url("html"));
    assert!(text(&told).starts_with(&begin), "{told:?}");

    let told = call(fetch.clone(), "http_fetch", &json!({"url": url("gone")})).await;
    assert!(told.failure.is_none() && text(&told).starts_with("HTTP 404 Not Found\n"), "{told:?}");
    assert!(text(&told).ends_with("nothing here"));
    for (path, failure) in [("gone", Some(ToolFailure::Failed)), ("html", None)] {
        let arguments = json!({"url": url(path), "expect_success": true});
        let told = call(fetch.clone(), "http_fetch", &arguments).await;
        assert_eq!(told.failure, failure, "{told:?}");
        assert!(text(&told).starts_with("HTTP "), "{told:?}");
    }

    let told = call(fetch.clone(), "http_fetch", &json!({"url": url("png")})).await;
    assert_eq!(told.failure, Some(ToolFailure::Failed));
    assert!(text(&told).ends_with("The body is not text and is not shown: image/png, 8 bytes."));

    let arguments = json!({"url": url("cut"), "max_bytes": 4});
    let told = call(fetch.clone(), "http_fetch", &arguments).await;
    assert!(text(&told).ends_with("\n\n0123\n[cut: the first 4 bytes of 10 bytes]"), "{told:?}");

    let arguments = json!({"url": url("echo"), "headers": {"X-Asked": "yes"}});
    let told = call(fetch.clone(), "http_fetch", &arguments).await;
    assert!(text(&told).ends_with("\n\nyes"), "{told:?}");

    let told = call(fetch, "http_fetch", &json!({"url": url("html"), "method": "HEAD"})).await;
    assert!(told.failure.is_none(), "{told:?}");
}

#[tokio::test]
async fn a_text_is_posted_once_and_no_redirect_takes_it_elsewhere() {
    let (lab, fetch) = lab().await;
    let url = |path: &str| format!("http://lab.test:{}/{path}", lab.port);
    let arguments = json!({"url": url("post"), "body": "{\"grün\":1}"});
    let told = call(fetch.clone(), "http_post", &arguments).await;
    assert!(told.failure.is_none() && text(&told).ends_with("0123456789"), "{told:?}");
    let arguments =
        json!({"url": url("moved"), "body": "secret", "headers": {"Content-Type": "text/plain"}});
    let told = call(fetch.clone(), "http_post", &arguments).await;
    assert!(told.failure.is_none() && text(&told).contains("\nlocation: http://"), "{told:?}");
    let told = call(fetch.clone(), "http_post", &json!({"url": url("png"), "body": "z"})).await;
    assert!(told.failure.is_none() && text(&told).contains("not shown"), "{told:?}");
    // A redirect is no success, because it is not followed.
    let expects = json!({"url": url("moved"), "body": "y", "expect_success": true});
    let told = call(fetch.clone(), "http_post", &expects).await;
    assert_eq!(told.failure, Some(ToolFailure::Failed), "{told:?}");
    let refused = json!({"url": "http://127.0.0.1/", "body": "x"});
    let told = call(fetch.clone(), "http_post", &refused).await;
    assert_eq!(told.failure, Some(ToolFailure::Refused), "{told:?}");
    // What has no reply that can be read was sent all the same.
    let packed = json!({"url": url("packed"), "body": "x", "headers": {"content-type": "a/b"}});
    let told = call(fetch, "http_post", &packed).await;
    assert_eq!(told.failure, Some(ToolFailure::Failed), "{told:?}");
    assert!(text(&told).ends_with("; the server may have received it"), "{told:?}");
    let told = |seen: Seen| {
        let kind = seen.headers.get("content-type").cloned().unwrap_or_default();
        (seen.path, seen.body, kind)
    };
    let seen: Vec<_> = lab.allowed.seen().into_iter().map(told).collect();
    let wanted = [
        ("/post", "{\"grün\":1}", "application/json"),
        ("/moved", "secret", "text/plain"),
        ("/png", "z", "application/json"),
        ("/moved", "y", "application/json"),
        ("/packed", "x", "a/b"),
    ];
    let wanted =
        wanted.map(|(path, body, kind)| (path.to_owned(), body.to_owned(), kind.to_owned()));
    assert_eq!(seen, wanted);
    assert_eq!(lab.intruders(), 0);
}

#[tokio::test]
async fn what_may_not_be_fetched_says_so() {
    let (lab, fetch) = lab().await;
    for (arguments, failure, why) in [
        (json!({"url": "http://127.0.0.1/"}), ToolFailure::Refused, "a loopback address"),
        (json!({"url": "file:///etc/passwd"}), ToolFailure::Invalid, "not `http://`"),
        (
            json!({"url": "http://lab.test/", "headers": {"Host": "x"}}),
            ToolFailure::Invalid,
            "`host` cannot be set",
        ),
        (
            json!({"url": "http://lab.test/", "headers": {"a b": "x"}}),
            ToolFailure::Invalid,
            "`a b` is not the name",
        ),
        (
            json!({"url": "http://lab.test/", "headers": {"a": "x\r\nHost: y"}}),
            ToolFailure::Invalid,
            "what the header `a` is set to",
        ),
    ] {
        let told = call(fetch.clone(), "http_fetch", &arguments).await;
        assert_eq!(told.failure, Some(failure), "{told:?}");
        assert!(text(&told).contains(why), "{told:?}");
    }
    assert_eq!(lab.intruders(), 0);
}

#[tokio::test]
async fn an_agent_reaches_its_own_hosts() {
    let (lab, fetch) = lab().await;
    let port = lab.port;
    for (host, allowed) in
        [("a.example.org", true), ("example.org", false), ("lab.test", false), ("127.0.0.2", false)]
    {
        let arguments = json!({"url": format!("http://{host}:{port}/")});
        let told = call_as("narrow", fetch.clone(), "http_fetch", &arguments).await;
        assert_eq!(told.failure.is_none(), allowed, "{host}: {told:?}");
        let told = call_as("wide", fetch.clone(), "http_fetch", &arguments).await;
        assert!(told.failure.is_none(), "{host}: {told:?}");
    }
}
