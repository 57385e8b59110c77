//! Routes, credentials, names, methods over HTTP, TLS.

use std::{net::SocketAddr, sync::atomic::Ordering};

#[cfg(feature = "tls")]
use clawnode_gateway::TlsFiles;
use clawnode_gateway::{GatewayOptions, ServeError, serve};
use reqwest::Method as Verb;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_util::sync::CancellationToken;

use super::harness::{Gateway, TOKEN, http_client, message, patiently};

/// Every route, and some that are none: verb, path, body, status with the token.
const ROUTES: [(&str, &str, &str, u16); 81] = [
    ("GET", "/metrics", "", 200),
    ("GET", "/v1/status", "", 200),
    ("GET", "/v1/agents", "", 200),
    ("GET", "/v1/agents/default/profile?since=7d", "", 200),
    ("GET", "/v1/agents/no%20name/profile", "", 400),
    ("POST", "/v1/panic", "", 200),
    ("POST", "/v1/panic", r#"{"scope":"egress","why":"x"}"#, 200),
    ("POST", "/v1/panic?_=1", "null", 200),
    ("POST", "/v1/panic", "stop!", 400),
    ("GET", "/v1/quarantine/%FF", "", 400),
    ("POST", "/v1/panic", r#"{"scope":"egress","scope":"all"}"#, 400),
    ("GET", "/v1/panic", "", 200),
    ("DELETE", "/v1/panic?latch=latch_00000000000000000000000002", "", 404),
    ("GET", "/v1/sessions?limit=5", "", 200),
    ("GET", "/v1/sessions/default:a:b:c", "", 404),
    ("DELETE", "/v1/sessions/default:a:b:c", "", 404),
    ("GET", "/v1/nodes", "", 200),
    ("POST", "/v1/nodes/absent/drain", r#"{"force":1}"#, 400),
    ("POST", "/v1/nodes/absent/drain", "[]", 400),
    ("GET", "/v1/events?limit=1", "", 200),
    ("GET", "/v1/events?limit=x", "", 400),
    ("GET", "/v1/sessions/default:a:b:c/journal?after=1", "", 400),
    ("POST", "/v1/sessions/default:a:b:c/messages", r#"{"content":"hi"}"#, 200),
    ("POST", "/v1/sessions/default:a:b:c/messages", r#"{"content":"hi","stream":true}"#, 200),
    ("POST", "/v1/sessions/default:a:b:c/messages", r#"{"content":""}"#, 400),
    ("POST", "/v1/sessions/default:a:b:c/messages", r#"{"text":"hi"}"#, 400),
    ("POST", "/v1/sessions/default:a:b:c/messages", "", 400),
    ("POST", "/v1/sessions/ent_00000000000000000000000001/messages", r#"{"content":"hi"}"#, 400),
    ("GET", "/v1/sessions/default:a:b:c/messages", "", 405),
    ("POST", "/v1/sessions/default:a:b:c/messages", r#"{"content":"","attachments":[{}]}"#, 400),
    ("POST", "/v1/sessions/default:a:b:c/files?name=a.png", "x", 201),
    ("POST", "/v1/sessions/ent_00000000000000000000000001/files", "x", 400),
    ("GET", "/v1/sessions/default:a:b:c/files/file_00000000000000000000000001", "", 404),
    ("GET", "/v1/sessions/default:a:b:c/files/x", "", 400),
    ("POST", "/v1/files", "x", 400),
    ("GET", "/v1/files", "", 200),
    ("GET", "/v1/files/file_00000000000000000000000001", "", 404),
    ("GET", "/v1/files/x/content", "", 400),
    ("DELETE", "/v1/files/file_00000000000000000000000001", "", 404),
    ("POST", "/v1/sessions/default:a:b:c/cancel", r#"{"turn":"x"}"#, 400),
    ("POST", "/v1/tickets", "", 200),
    ("GET", "/v1/jobs?state=failed&limit=5", "", 200),
    ("GET", "/v1/jobs?state=asleep", "", 400),
    ("DELETE", "/v1/jobs?older_than_ms=5", "", 200),
    ("DELETE", "/v1/jobs", "", 400),
    ("GET", "/v1/jobs/stats", "", 200),
    ("GET", "/v1/jobs/job_00000000000000000000000001", "", 200),
    ("GET", "/v1/jobs/nonsense", "", 400),
    ("DELETE", "/v1/jobs/job_00000000000000000000000001", "", 200),
    ("GET", "/v1/jobs/job_00000000000000000000000001/logs?tail=2&search=a%20b", "", 200),
    ("GET", "/v1/jobs/job_00000000000000000000000001/artifacts", "", 200),
    ("GET", "/v1/jobs/job_00000000000000000000000001/artifacts/out/none", "", 404),
    ("POST", "/v1/execute", r#"{"execution_spec":{"steps":[{"action":"a"}]}}"#, 202),
    ("POST", "/v1/execute?wait=5", r#"{"execution_spec":{"actions":[{"tool":"a"}]}}"#, 200),
    ("POST", "/v1/execute?wait=11", r#"{"execution_spec":{"steps":[{"action":"a"}]}}"#, 400),
    ("POST", "/v1/execute", r#"{"execution_spec":{"steps":[]}}"#, 503),
    ("POST", "/v1/execute", r#"{"execution_spec":{"steps":[]},"request_id":"taken"}"#, 409),
    ("POST", "/v1/execute", r#"{"execution_spec":{"steps":[]},"agent":"../x"}"#, 400),
    ("POST", "/v1/execute", "{}", 400),
    ("POST", "/v1/execute", r#"{"execution_spec":{"steps":[{"action":"a","action":"b"}]}}"#, 400),
    ("GET", "/v1/execute", "", 405),
    ("GET", "/v1/execute/exe_00000000000000000000000001", "", 200),
    ("GET", "/v1/execute/exe_00000000000000000000000000", "", 404),
    ("GET", "/v1/execute/nonsense", "", 400),
    ("POST", "/v1/execute/exe_00000000000000000000000001/cancel", "", 202),
    ("POST", "/v1/rpc", r#"{"id":1,"method":"ping"}"#, 200),
    ("POST", "/v1/rpc", r#"{"id":1,"method":"ping","method":"panic"}"#, 400),
    ("POST", "/v1/rpc", r#"{"id":1,"method":"ping","params":{"a":1,"a":1}}"#, 400),
    ("GET", "/v1/models", "", 200),
    ("GET", "/v1/models/default", "", 200),
    ("POST", "/v1/chat/completions", "{}", 400),
    ("GET", "/v1/chat/completions", "", 405),
    ("GET", "/v1/chat/completions/nonsense", "", 400),
    ("POST", "/v1/responses", "{}", 400),
    ("GET", "/v1/responses/nonsense", "", 400),
    ("DELETE", "/v1/responses/nonsense", "", 400),
    ("POST", "/v1/responses/nonsense/cancel", "", 400),
    ("GET", "/v1/nothing", "", 404),
    ("GET", "/admin", "", 404),
    ("POST", "/healthz", "", 405),
    ("GET", "/v1/../healthz", "", 200),
];

/// As `GET` names it; a request with something else is answered with what to send.
#[tokio::test]
async fn a_decision_names_the_digest_or_is_told_how() {
    let gateway = Gateway::start().await;
    let decide = |body: Value| {
        let url = gateway.url("/v1/approvals/call_00000000000000000000000001");
        http_client().post(url).bearer_auth(TOKEN).json(&body)
    };
    let other = "0".repeat(64);
    for field in ["digest", "action"] {
        let answer = decide(json!({ "decision": "approve", (field): other })).send().await.unwrap();
        let answer: Value = answer.json().await.unwrap();
        assert_eq!(answer["code"], "not_found", "{field} is read: {answer}");
    }
    for wrong in [
        json!({ "approve": true }),
        json!({ "decision": "approve" }),
        json!({ "decision": "approve", "digest": other, "action": other }),
        json!({ "decision": "approve", "digest": other, "id": "x" }),
    ] {
        let answer = decide(wrong).send().await.unwrap();
        assert_eq!(answer.status(), 400);
        let answer: Value = answer.json().await.unwrap();
        assert!(answer["hint"].as_str().unwrap().contains(r#""digest":"DIGEST""#), "{answer}");
    }
    gateway.stop().await;
}

/// What a command made must not become a page that acts for its viewer.
#[tokio::test]
async fn a_file_of_a_job_is_never_a_page_of_the_gateway() {
    let gateway = Gateway::start().await;
    let url = gateway.url("/v1/jobs/job_00000000000000000000000001/artifacts/out/page.html");
    let response = http_client().get(url).bearer_auth(TOKEN).send().await.unwrap();
    let headers = response.headers().clone();
    assert_eq!(headers["content-type"], "application/octet-stream");
    assert_eq!(headers["content-disposition"], "attachment");
    assert_eq!(headers["x-content-type-options"], "nosniff");
    assert!(headers["content-security-policy"].to_str().unwrap().contains("default-src 'none'"));
    assert_eq!(response.text().await.unwrap(), "<script>1</script>");
    gateway.stop().await;
}

#[tokio::test]
async fn a_file_is_streamed_both_ways_and_refused_when_it_is_too_large() {
    let gateway = Gateway::start().await;
    let url = gateway.url("/v1/sessions/default:a:b:c/files");
    let client = http_client();
    let pieces = futures_util::stream::iter([Ok("ab"), Ok::<_, std::io::Error>("cd")]);
    let body = reqwest::Body::wrap_stream(pieces);
    let request = client.post(format!("{url}?name=a%20b.png")).bearer_auth(TOKEN).body(body);
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), 201);
    let stored: Value = response.json().await.unwrap();
    assert_eq!((&stored["bytes"], &stored["name"]), (&json!(4), &json!("a b.png")), "{stored}");
    let file = stored["file"].as_str().unwrap();
    let response = client.get(format!("{url}/{file}")).bearer_auth(TOKEN).send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "application/pdf");
    assert_eq!(response.headers()["content-disposition"], "attachment", "no page of this origin");
    assert_eq!(response.headers()["content-length"], "4");
    assert_eq!(response.text().await.unwrap(), "%PDF");
    let mut raw = TcpStream::connect(gateway.serving.addr).await.unwrap();
    let head = format!(
        "POST /v1/sessions/default:a:b:c/files HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {TOKEN}\r\n\
         Content-Length: 50000001\r\nConnection: close\r\n\r\n",
        gateway.serving.addr
    );
    raw.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    raw.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 413"), "before any of it came: {answer}");
    gateway.stop().await;
}

/// GATE-1.
#[tokio::test]
async fn s_02_every_route_but_four_needs_the_token() {
    let gateway = Gateway::start().await;
    for (verb, path, body, status) in ROUTES {
        let open = path.ends_with("/healthz");
        let request = || {
            let verb = Verb::from_bytes(verb.as_bytes()).unwrap();
            http_client().request(verb, gateway.url(path)).body(body)
        };
        for wrong in ["", "Bearer", "Bearer wrong", "Basic czNjcmV0", TOKEN] {
            let request =
                if wrong.is_empty() { request() } else { request().header("authorization", wrong) };
            let response = request.send().await.unwrap();
            let expected = if open { status } else { 401 };
            assert_eq!(response.status(), expected, "{verb} {path} with `{wrong}`");
            if !open {
                assert_eq!(response.headers()["www-authenticate"], "Bearer", "{path}");
            }
        }
        let response = request().bearer_auth(TOKEN).send().await.unwrap();
        assert_eq!(response.status(), status, "{verb} {path} with the token");
    }
    for path in ["/", "/healthz", "/readyz", "/v1/docs"] {
        assert_eq!(gateway.get(path).send().await.unwrap().status(), 200, "{path}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn every_answer_wears_the_security_headers() {
    let gateway = Gateway::start().await;
    for (path, status) in
        [("/", 200), ("/healthz", 200), ("/v1/docs", 200), ("/v1/status", 401), ("/nothing", 401)]
    {
        let response = gateway.get(path).send().await.unwrap();
        assert_eq!(response.status(), status, "{path}");
        let headers = response.headers();
        let policy = headers["content-security-policy"].to_str().unwrap();
        assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"));
        assert_eq!(headers["x-content-type-options"], "nosniff");
        assert_eq!(headers["x-frame-options"], "DENY");
        assert_eq!(headers["referrer-policy"], "no-referrer");
        assert_eq!(headers["cache-control"], "no-store");
        assert_eq!(headers["cross-origin-opener-policy"], "same-origin");
    }
    gateway.stop().await;
}

/// The page has no secret and loads nothing from elsewhere; its script runs by the nonce of the answer.
#[tokio::test]
async fn the_page_of_the_document_runs_its_own_script_and_no_other() {
    let gateway = Gateway::start().await;
    let mut nonces = Vec::new();
    for _ in 0..2 {
        let response = gateway.get("/v1/docs").send().await.unwrap();
        let policy = response.headers()["content-security-policy"].to_str().unwrap().to_owned();
        let nonce = policy.split_once("script-src 'nonce-").unwrap().1.split_once('\'').unwrap().0;
        let expected = format!(
            "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; \
             connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
             require-trusted-types-for 'script'"
        );
        assert_eq!(policy, expected);
        let page = response.text().await.unwrap();
        assert_eq!(page.matches(&format!("nonce=\"{nonce}\"")).count(), 2, "a style and a script");
        assert_eq!((page.matches("<script").count(), page.matches("<style").count()), (1, 1));
        for elsewhere in ["src=", "://", "@import", "innerHTML", "style=", "onclick"] {
            assert!(!page.contains(elsewhere), "{elsewhere}");
        }
        assert!(!page.contains(TOKEN) && page.contains("/v1/openapi.json"));
        nonces.push(nonce.to_owned());
    }
    assert_ne!(nonces[0], nonces[1]);
    gateway.stop().await;
}

#[tokio::test]
async fn health_says_only_ok_or_not() {
    let gateway = Gateway::start().await;
    let text = |path: &'static str| {
        let request = gateway.get(path);
        async move {
            let response = request.send().await.unwrap();
            (response.status().as_u16(), response.text().await.unwrap())
        }
    };
    assert_eq!(text("/healthz").await, (200, "ok\n".to_owned()));
    assert_eq!(text("/readyz").await, (200, "ok\n".to_owned()));
    gateway.node.not_ready.store(true, Ordering::Relaxed);
    assert_eq!(text("/readyz").await, (503, "not ok\n".to_owned()));
    assert_eq!(text("/healthz").await, (200, "ok\n".to_owned()));
    gateway.stop().await;
}

#[tokio::test]
async fn the_page_says_how_to_connect() {
    let gateway = Gateway::start().await;
    let page = gateway.get("/").send().await.unwrap().text().await.unwrap();
    assert!(page.contains(&format!("curl -N http://{}/v1/chat", gateway.serving.addr)), "{page}");
    assert!(page.contains("$CLAWNODE_TOKEN") && !page.contains(TOKEN));
    assert!(!page.contains("<script") && !page.contains("<style"));
    gateway.stop().await;
}

/// Sends bytes over bare TCP; the status of the answer.
async fn raw(addr: SocketAddr, head: &str) -> u16 {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let mut buffer = [0; 1024];
    while !answer.windows(2).any(|pair| pair == b"\r\n") {
        let count = patiently("an answer", stream.read(&mut buffer)).await.unwrap();
        assert!(count > 0, "hung up on {head:?}");
        answer.extend_from_slice(&buffer[..count]);
    }
    let line = String::from_utf8_lossy(&answer);
    line.split(' ').nth(1).unwrap().parse().unwrap()
}

/// GATE-1.
#[tokio::test]
async fn s_05_host_and_origin_over_bare_tcp() {
    let gateway = Gateway::start_with(|options| {
        options.allowed_hosts = vec!["claw.example".to_owned()];
        options.allowed_origins = vec!["https://app.example".to_owned()];
    })
    .await;
    let addr = gateway.serving.addr;
    let port = addr.port();
    let here = format!("Host: 127.0.0.1:{port}\r\n");
    let table: Vec<(String, bool)> = vec![
        (here.clone(), true),
        (format!("Host: localhost:{port}\r\n"), true),
        (format!("HOST: LOCALHOST:{port}\r\n"), true),
        (format!("Host: [::1]:{port}\r\n"), true),
        ("Host: claw.example\r\n".to_owned(), true),
        (format!("{here}Origin: http://localhost:{port}\r\n"), true),
        (format!("{here}Origin: https://app.example\r\n"), true),
        ("Host: claw.example\r\nOrigin: https://claw.example\r\n".to_owned(), true),
        (String::new(), false),
        ("Host:\r\n".to_owned(), false),
        (format!("{here}{here}"), false),
        (format!("{here}Host: evil.test\r\n"), false),
        (format!("Host: evil.test:{port}\r\n"), false),
        (format!("Host: 127.evil.test:{port}\r\n"), false),
        (format!("Host: localhost.:{port}\r\n"), false),
        (format!("Host: 127.0.0.1.evil.test:{port}\r\n"), false),
        (format!("Host: [::ffff:127.0.0.1]:{port}\r\n"), false),
        ("Host: 127.0.0.1\r\n".to_owned(), false),
        ("Host: localhost:1\r\n".to_owned(), false),
        (format!("Host: evil.test@localhost:{port}\r\n"), false),
        (format!("Host: 0.0.0.0:{port}\r\n"), false),
        (format!("Host: 2130706433:{port}\r\n"), false),
        (format!("{here}Origin: null\r\n"), false),
        (format!("{here}Origin:\r\n"), false),
        (format!("{here}Origin: http://evil.test\r\n"), false),
        (format!("{here}Origin: http://localhost:1\r\n"), false),
        (format!("{here}Origin: https://localhost:{port}\r\n"), false),
        (format!("{here}Origin: http://127.evil.test:{port}\r\n"), false),
        (format!("{here}Origin: http://localhost.:{port}\r\n"), false),
        (format!("{here}Origin: http://app.example\r\n"), false),
        (format!("{here}Origin: http://localhost:{port}\r\nOrigin: null\r\n"), false),
    ];
    let auth = format!("Authorization: Bearer {TOKEN}\r\n");
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let body = r#"{"id":1,"method":"ping"}"#;
    let posted = format!("Content-Length: {}\r\n", body.len());
    let chat = "{}";
    let routes = [
        ("GET /healthz", "", "", 200),
        ("GET /v1/status", "", "", 200),
        ("GET /v1/models", "", "", 200),
        ("GET /nothing", "", "", 404),
        ("GET /ws", upgrade, "", 101),
        ("POST /v1/rpc", posted.as_str(), body, 200),
        ("POST /v1/chat/completions", "Content-Length: 2\r\n", chat, 400),
    ];
    for (names, allowed) in &table {
        for (line, headers, body, status) in routes {
            let head = format!("{line} HTTP/1.1\r\n{names}{auth}{headers}\r\n{body}");
            let expected = if *allowed { status } else { 403 };
            let found = raw(addr, &head).await;
            // A request without any `Host` may be refused before we see it.
            let refused = !allowed && found == 400 && names.is_empty();
            assert!(found == expected || refused, "{found}, not {expected}, for {head}");
        }
    }
    let absolute = format!("GET http://evil.test/healthz HTTP/1.1\r\n{here}\r\n");
    assert_eq!(raw(addr, &absolute).await, 403, "an absolute target names a host too");
    gateway.stop().await;
}

#[tokio::test]
async fn rpc_answers_once_and_refuses_streams() {
    let gateway = Gateway::start().await;
    assert_eq!(gateway.rpc("ping", json!({})).await, json!({"id": 1, "result": "pong"}));
    for method in ["chat.send", "sessions.resume"] {
        let refused = gateway.rpc(method, message("ada", "hi")).await;
        assert_eq!(refused["error"]["data"]["code"], "unsupported");
        assert!(refused["error"]["data"]["hint"].as_str().unwrap().contains("/ws"));
    }
    let paused = gateway.rpc("agents.pause", json!({"agent": "default"})).await;
    assert_eq!(paused["result"]["paused"], true);
    let resumed = gateway.rpc("agents.resume", json!({"agent": "default"})).await;
    assert_eq!(resumed["result"]["paused"], false);
    let (mut cursor, mut numbers) = (Value::Null, Vec::new());
    for _ in 0..2 {
        let page = json!({"session": "default:a:b:c", "cursor": cursor, "limit": 2});
        let page = gateway.rpc("journal.show", page).await["result"].take();
        numbers.extend(page["events"].as_array().unwrap().iter().map(|event| event["n"].clone()));
        cursor = page["next"].clone();
    }
    assert_eq!(numbers, [1, 2, 3, 4]);
    // A cursor of one list is refused by another, with what to do.
    let foreign = gateway.rpc("jobs.list", json!({"cursor": cursor})).await["error"].take();
    assert_eq!(foreign["data"]["code"], "invalid_params", "{foreign}");
    assert!(foreign["data"]["message"].as_str().unwrap().contains("`cursor`"), "{foreign}");
    assert!(foreign["data"]["hint"].as_str().unwrap().contains("`next`"), "{foreign}");
    let table = [
        ("{", 400, -32700),
        (r#"{"id":1,"method":"nope"}"#, 404, -32601),
        (r#"{"id":1,"method":"agents.show"}"#, 400, -32602),
        (r#"{"id":1,"method":"agents.show","params":{"agent":"absent"}}"#, 404, -32013),
        (r#"{"id":1,"method":"chat.send"}"#, 400, -32022),
    ];
    for (body, status, code) in table {
        let response = gateway.post("/v1/rpc").body(body).send().await.unwrap();
        assert_eq!(response.status(), status, "{body}");
        let answer: Value = response.json().await.unwrap();
        assert_eq!(answer["error"]["code"], code, "{body}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn bodies_have_a_bound_and_are_text() {
    let gateway = Gateway::start().await;
    let large = "x".repeat((4 << 20) + 1);
    let response = gateway.post("/v1/rpc").body(large).send().await.unwrap();
    assert_eq!(response.status(), 413);
    let answer: Value = response.json().await.unwrap();
    assert_eq!(answer["error"]["data"]["code"], "too_large");
    let binary = gateway.post("/v1/rpc").body(vec![0xff, 0xfe]).send().await.unwrap();
    assert_eq!(binary.status(), 400);
    gateway.stop().await;
}

/// A client may read the answer only after it has sent all of its body.
#[tokio::test]
async fn a_body_that_is_too_large_is_read_so_that_its_client_reads_the_answer() {
    let gateway = Gateway::start().await;
    let addr = gateway.serving.addr;
    let head = |bytes: usize| {
        format!(
            "POST /v1/rpc HTTP/1.1\r\nHost: {addr}\r\nAuthorization: Bearer {TOKEN}\r\n\
             Content-Length: {bytes}\r\n\r\n"
        )
    };
    let mut raw = TcpStream::connect(addr).await.unwrap();
    let bytes = 12 << 20;
    raw.write_all(head(bytes).as_bytes()).await.unwrap();
    raw.write_all(&vec![b'x'; bytes]).await.unwrap();
    let next = format!("GET /healthz HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\n\r\n");
    raw.write_all(next.as_bytes()).await.unwrap();
    let mut answers = String::new();
    patiently("both answers", raw.read_to_string(&mut answers)).await.unwrap();
    assert!(answers.starts_with("HTTP/1.1 413"), "{answers}");
    assert!(answers.contains("HTTP/1.1 200"), "the connection lives on: {answers}");
    // Not for ever.
    let mut raw = TcpStream::connect(addr).await.unwrap();
    raw.write_all(head(1 << 30).as_bytes()).await.unwrap();
    let piece = vec![b'x'; 1 << 20];
    let mut taken = 0;
    while taken < 64 && patiently("an end", raw.write_all(&piece)).await.is_ok() {
        taken += 1;
    }
    assert!((20..64).contains(&taken), "{taken} MiB were taken");
    gateway.stop().await;
}

#[tokio::test]
async fn rest_is_the_same_methods() {
    let gateway = Gateway::start().await;
    let mut client = gateway.connect().await;
    client.send(1, "ada", "hello").await;
    client.stream().await;
    let get = |path: &'static str| {
        let request = gateway.get(path).bearer_auth(TOKEN);
        async move { request.send().await.unwrap().json::<Value>().await.unwrap() }
    };
    assert_eq!(get("/v1/status").await, gateway.rpc("status", json!({})).await["result"]);
    let page = get("/v1/sessions?limit=1&cursor=ent_x").await;
    assert_eq!(page["sessions"][0]["detail"], "ent_x");
    let page = get("/v1/sessions?stateless=true&since=2026-11-23T10%3A00%3A00Z").await;
    assert_eq!(page["sessions"][0]["detail"], "2026-11-23T10:00:00Z");
    assert_eq!(page["sessions"][0]["stateless"], true);
    assert_eq!(get("/v1/sessions?stateless=perhaps").await["code"], "invalid_params");
    assert_eq!(get("/v1/sessions?limit=0").await["code"], "invalid_params");
    assert_eq!(get("/v1/sessions?colour=red").await["code"], "invalid_params");
    let history = get("/v1/sessions/default:test:bot:ada").await;
    assert_eq!(history["key"], "default:test:bot:ada");
    let gone = http_client()
        .delete(gateway.url("/v1/sessions/default:test:bot:ada"))
        .bearer_auth(TOKEN)
        .send()
        .await
        .unwrap();
    assert_eq!(gone.status(), 200);
    assert_eq!(get("/v1/sessions/default:test:bot:ada").await["code"], "not_found");
    assert_eq!(get("/v1/sessions/nonsense").await["code"], "invalid_params");
    gateway.stop().await;
}

#[tokio::test]
async fn metrics_count() {
    let gateway = Gateway::start().await;
    let mut client = gateway.connect().await;
    client.send(1, "ada", "hello").await;
    client.stream().await;
    client.send(2, "ada", "refuse quarantined").await;
    client.stream().await;
    gateway.get("/v1/status").send().await.unwrap();
    let metrics = gateway.get("/metrics").bearer_auth(TOKEN).send().await.unwrap();
    assert!(metrics.headers()["content-type"].to_str().unwrap().starts_with("text/plain"));
    let metrics = metrics.text().await.unwrap();
    for line in [
        "clawnode_gateway_accepted_total 1\n",
        "clawnode_gateway_turns_total{outcome=\"completed\"} 1\n",
        "clawnode_gateway_tokens_total{direction=\"input\"} 3\n",
        "clawnode_gateway_sockets 1\n",
        "clawnode_gateway_calls_total{method=\"chat.send\"} 2\n",
        "clawnode_gateway_refusals_total{code=\"quarantined\"} 1\n",
        "clawnode_gateway_refusals_total{code=\"unauthorized\"} 1\n",
        "clawnode_gateway_requests_total{route=\"/v1/status\",status=\"401\"} 1\n",
        "clawnode_gateway_first_text_seconds_count 1\n",
        "node_speaks 1\n",
    ] {
        assert!(metrics.contains(line), "{line}\nin\n{metrics}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn what_cannot_start_says_why() {
    let start = |change: fn(&mut GatewayOptions)| async move {
        let mut options =
            GatewayOptions { listen: "127.0.0.1:0".parse().unwrap(), ..GatewayOptions::default() };
        change(&mut options);
        let node = std::sync::Arc::new(super::node::Node::default());
        serve(options, node, CancellationToken::new()).await.map(|serving| serving.addr)
    };
    let open = start(|options| options.listen = "0.0.0.0:0".parse().unwrap()).await;
    assert!(matches!(open, Err(ServeError::TokenRequired { .. })), "{open:?}");
    let host = start(|options| options.allowed_hosts = vec!["http://x".to_owned()]).await;
    assert!(matches!(host, Err(ServeError::AllowList { .. })), "{host:?}");
    let taken = Gateway::start().await;
    let mut options = GatewayOptions { listen: taken.serving.addr, ..GatewayOptions::default() };
    let node = std::sync::Arc::new(super::node::Node::default());
    options.tls = None;
    let bound = serve(options, node, CancellationToken::new()).await;
    let error = bound.unwrap_err();
    assert!(error.to_string().contains(&taken.serving.addr.to_string()), "{error}");
    taken.stop().await;
}

#[cfg(feature = "tls")]
fn files() -> TlsFiles {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gateway/tls");
    TlsFiles { cert: format!("{folder}/cert.pem").into(), key: format!("{folder}/key.pem").into() }
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn tls_serves_http_and_plain_text_gets_nowhere() {
    let gateway = Gateway::start_with(|options| options.tls = Some(files())).await;
    assert!(gateway.serving.url.starts_with("https://"));
    let certificate = std::fs::read(files().cert).unwrap();
    rustls::crypto::ring::default_provider().install_default().ok();
    let client = reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([reqwest::Certificate::from_pem(&certificate).unwrap()])
        .build()
        .unwrap();
    let status = client.get(gateway.url("/v1/status")).bearer_auth(TOKEN).send().await.unwrap();
    assert_eq!(status.status(), 200);
    let mut plain = TcpStream::connect(gateway.serving.addr).await.unwrap();
    plain.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    // Either an alert or a reset; no HTTP.
    patiently("an end", plain.read_to_end(&mut answer)).await.ok();
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    gateway.stop().await;
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn tls_files_that_are_none_are_named() {
    let broken = [
        TlsFiles { cert: "/nonexistent/cert.pem".into(), ..files() },
        TlsFiles { key: "/nonexistent/key.pem".into(), ..files() },
        TlsFiles { cert: files().key, key: files().key },
        TlsFiles { cert: files().cert, key: files().cert },
    ];
    for tls in broken {
        let options = GatewayOptions {
            listen: "127.0.0.1:0".parse().unwrap(),
            tls: Some(tls.clone()),
            ..GatewayOptions::default()
        };
        let node = std::sync::Arc::new(super::node::Node::default());
        let refused = serve(options, node, CancellationToken::new()).await;
        assert!(matches!(refused, Err(ServeError::Tls { .. })), "{tls:?}: {refused:?}");
    }
}
