//! `/v1/files`, as OpenAI's clients use them.

use clawnode_proto::{SessionKey, media::shared_files};
use serde_json::{Value, json};

use super::harness::{Gateway, TOKEN, http_client};

const SESSION: &str = "default:a:b:c";

/// A form of these parts: the name, the name of the file and the content of each.
fn form(parts: &[(&str, Option<&str>, &str)]) -> String {
    let part = |(name, file, content): &(&str, Option<&str>, &str)| {
        let file = file.map(|file| format!("; filename=\"{file}\"")).unwrap_or_default();
        format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n{content}\r\n")
    };
    parts.iter().map(part).collect::<String>() + "--b--\r\n"
}

async fn post(gateway: &Gateway, session: Option<&str>, body: String) -> (u16, Value) {
    let request = http_client().post(gateway.url("/v1/files")).bearer_auth(TOKEN);
    let request = request.header("content-type", "multipart/form-data; boundary=b").body(body);
    let request = session
        .into_iter()
        .fold(request, |request, session| request.header("clawnode-session", session));
    let answer = request.send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

#[tokio::test]
async fn a_file_of_a_form_goes_to_its_session_or_to_those_of_none() {
    let gateway = Gateway::start().await;
    let (file, purpose) =
        (("file", Some("dir/a.png"), "\u{89}PNG\r\n"), ("purpose", None, "vision"));
    let key: SessionKey = SESSION.parse().unwrap();
    // Python's client sends the purpose first, that of JavaScript last.
    for (session, parts, owner) in
        [(Some(SESSION), [file, purpose], key.entity()), (None, [purpose, file], shared_files())]
    {
        let (status, answer) = post(&gateway, session, form(&parts)).await;
        let id = format!("file_{}", owner.to_string().split_once('_').unwrap().1);
        let expected = json!({"id": id, "object": "file", "bytes": 7, "created_at": 2, "expires_at": 9,
            "filename": "dir/a.png", "purpose": "user_data", "status": "processed"});
        assert_eq!((status, &answer), (200, &expected), "{answer}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_form_that_is_none_is_refused_by_the_name_of_its_part() {
    let gateway = Gateway::start().await;
    let (file, purpose) = (("file", Some("a"), "x"), ("purpose", None, "user_data"));
    let broken = form(&[purpose, file]).replace("--b--", "--");
    let long = "x".repeat(200);
    for (form, param, says) in [
        (form(&[file]), Some("purpose"), "`purpose` of the form is missing"),
        (form(&[purpose]), Some("file"), "`file` of the form is missing"),
        (form(&[("purpose", None, "batch"), file]), Some("purpose"), "files for `batch`"),
        (form(&[file, ("purpose", None, "batch")]), Some("purpose"), "files for `batch`"),
        (form(&[("purpose", None, &long), file]), Some("purpose"), "too long"),
        (form(&[purpose, file, file]), Some("file"), "more than one part `file`"),
        (
            form(&[purpose, file, ("expires_after[seconds]", None, "9")]),
            None,
            "`expires_after[seconds]`",
        ),
        (broken, None, "ended early"),
        ("x".to_owned(), None, "ended early"),
    ] {
        let (status, answer) = post(&gateway, None, form).await;
        let (message, named) =
            (answer["error"]["message"].as_str().unwrap(), &answer["error"]["param"]);
        assert_eq!((status, named.as_str()), (400, param), "{says}: {answer}");
        assert!(message.contains(says), "{says}: {answer}");
    }
    let refused =
        post(&gateway, Some("ent_00000000000000000000000001"), form(&[purpose, file])).await;
    assert_eq!(refused.0, 400, "an id may be that of no session: {}", refused.1);
    let json = gateway.post("/v1/files").json(&json!({})).send().await.unwrap();
    assert!(json.text().await.unwrap().contains("multipart/form-data"));
    gateway.stop().await;
}

#[tokio::test]
async fn files_are_listed_read_and_deleted() {
    let gateway = Gateway::start().await;
    let file = format!("file_{}", shared_files().to_string().split_once('_').unwrap().1);
    let ask = async |verb: &str, path: &str, session: Option<&str>| {
        let verb = reqwest::Method::from_bytes(verb.as_bytes()).unwrap();
        let request = http_client().request(verb, gateway.url(path)).bearer_auth(TOKEN);
        let request = session
            .into_iter()
            .fold(request, |request, session| request.header("clawnode-session", session));
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    let (status, listed) = ask("GET", "/v1/files", None).await;
    let listed = read(&listed);
    assert_eq!(
        (status, &listed["data"][1]["id"]),
        (200, &json!(file)),
        "the newest first: {listed}"
    );
    assert_eq!((&listed["last_id"], &listed["has_more"]), (&json!(file), &json!(false)));
    let path = format!("/v1/files/{file}");
    let shown = read(&ask("GET", &path, None).await.1);
    assert_eq!(shown["filename"], format!("{file}.pdf"), "it has no name of its own");
    assert_eq!(shown.get("expires_at"), None);
    assert_eq!(ask("GET", &format!("{path}/content"), None).await, (200, "%PDF".to_owned()));
    let (status, other) = ask("GET", &path, Some(SESSION)).await;
    assert_eq!((status, &read(&other)["error"]["code"]), (404, &json!("not_found")), "{other}");
    assert_eq!(ask("DELETE", &path, Some(SESSION)).await.0, 404);
    let deleted = read(&ask("DELETE", &path, None).await.1);
    assert_eq!(deleted, json!({"id": file, "object": "file", "deleted": true}));
    gateway.stop().await;
}

/// More than a socket holds: a client that is cut off while it sends reads no answer.
#[tokio::test]
async fn a_client_that_still_sends_reads_why_its_file_is_refused() {
    let gateway = Gateway::start().await;
    let large = "x".repeat(8 << 20);
    let form = form(&[("purpose", None, "batch"), ("file", Some("a"), &large)]);
    let (status, answer) = post(&gateway, None, form).await;
    assert_eq!((status, answer["error"]["param"].as_str()), (400, Some("purpose")), "{answer}");
    gateway.stop().await;
}
