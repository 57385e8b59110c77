//! S-13: the requests to an engine, whatever is asked of us. A daemon that only writes down each
//! request to make a container replaces the engine.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
};

use axum::{
    Json, Router,
    extract::{Path, State},
    http::{StatusCode, Uri},
    routing::{delete, get, post},
};
use clawnode_executors::{SandboxOptions, sandbox::SandboxBug};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::UnixListener;

use super::{Bench, told};

/// What a hostile argument, image or setting would like an engine to be told.
const HOSTILE: [&str; 18] = [
    "/:/host",
    "/var/run/docker.sock:/var/run/docker.sock",
    "../../var/run/docker.sock",
    "--network=host",
    "container:victim",
    "--pid=host",
    "--ipc=host",
    "--privileged",
    "--cap-add=ALL",
    "--device=/dev/sda",
    "seccomp=unconfined",
    "--userns=host",
    "--volumes-from=victim",
    "--cgroup-parent=/",
    "--runtime=runc-evil",
    "\",\"HostConfig\":{\"Privileged\":true},\"x\":\"",
    "a\nb\r\nHost: evil",
    "'; rm -rf / #",
];

/// What it was asked for: paths, and the bodies of requests to make a container.
#[derive(Clone, Default)]
struct Seen {
    made: Arc<Mutex<Vec<Value>>>,
    strange: Arc<Mutex<Vec<String>>>,
}

/// A daemon that takes everything and runs nothing.
fn daemon() -> (TempDir, PathBuf, Seen) {
    let seen = Seen::default();
    let make = |State(seen): State<Seen>, Json(body): Json<Value>| async move {
        seen.made.lock().unwrap().push(body);
        (StatusCode::CREATED, Json(json!({ "Id": "c1", "Warnings": [] })))
    };
    let image = |Path(_): Path<String>| async {
        Json(json!({ "Id": "sha256:1", "Config": { "Volumes": { "/data": {} } } }))
    };
    let app = Router::new()
        .route("/version", get(|| async { Json(json!({ "ApiVersion": "1.41" })) }))
        .route("/images/{name}/json", get(image))
        .route("/containers/create", post(make))
        .route("/containers/json", get(|| async { Json(json!([])) }))
        .route("/containers/c1/start", post(|| async { StatusCode::NO_CONTENT }))
        // No command is ever run.
        .route("/containers/c1/exec", post(|| async { StatusCode::NOT_IMPLEMENTED }))
        .route("/containers/c1", delete(|| async { StatusCode::NO_CONTENT }))
        .fallback(|State(seen): State<Seen>, uri: Uri| async move {
            seen.strange.lock().unwrap().push(uri.to_string());
            StatusCode::NOT_FOUND
        })
        .with_state(seen.clone());
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    let socket = dir.path().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    drop(tokio::spawn(async move { axum::serve(listener, app).await }));
    (dir, socket, seen)
}

/// All that may be asked for: every field with its only value, so whatever else there is is absent.
fn allowed() -> Value {
    let small = "rw,nosuid,nodev,noexec,size=67108864,mode=1777,uid=65534,gid=65534";
    json!({
        "Image": "busybox:test",
        "Entrypoint": ["sleep"],
        "Cmd": ["2147483647"],
        "Healthcheck": {"Test": ["NONE"]},
        "User": "65534:65534",
        "Hostname": "sandbox",
        "WorkingDir": "/tmp",
        "NetworkDisabled": true,
        "HostConfig": {
            "NetworkMode": "none",
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges:true"],
            "ReadonlyRootfs": true,
            "Tmpfs": {"/tmp": small, "/data": small, "/artifacts": small},
            "ShmSize": 16 << 20,
            "Memory": 512 << 20,
            "MemorySwap": 512 << 20,
            "NanoCpus": 1_000_000_000,
            "PidsLimit": 128,
            "Ulimits": [
                {"Name": "core", "Soft": 0, "Hard": 0},
                {"Name": "nofile", "Soft": 1024, "Hard": 1024},
            ],
            "IpcMode": "private",
            "Init": true,
            "LogConfig": {"Type": "none"},
        },
    })
}

/// What a request says beyond what it may, or lacks; its labels are looked at apart.
fn wrong(mut body: Value) -> Option<String> {
    let labels = body["Labels"].take();
    body.as_object_mut().unwrap().remove("Labels");
    let mut names: Vec<&String> = labels.as_object().unwrap().keys().collect();
    names.sort();
    let known = ["cluster", "container", "job", "policy", "process"];
    if names != known.map(|name| format!("clawnode.{name}")).iter().collect::<Vec<_>>() {
        return Some(format!("labels {names:?}"));
    }
    (body != allowed()).then(|| body.to_string())
}

/// The requests of a call with every hostile value in every place that a call has.
async fn asked(planted: SandboxBug) -> (Vec<Value>, Vec<String>) {
    let (_dir, socket, seen) = daemon();
    let tools = json!({
        "shout": {
            "description": "Shouts.",
            "input_schema": json!({
                "type": "object",
                "properties": {"text": {"type": "string"}},
                "required": ["text"],
            })
            .to_string(),
            "command": ["echo", "{text}"],
        }
    });
    // No container is ready: every call makes its own.
    let options = json!({ "docker": { "warm": 0 }, "tools": tools });
    let bench = Bench::with(&socket, options, planted, None);
    for hostile in HOSTILE {
        for (tool, arguments) in [
            ("run_command", json!({ "argv": [hostile, hostile], "stdin": hostile })),
            ("run_command", json!({ "command": hostile })),
            ("run_python", json!({ "code": hostile, "image": "evil", "binds": ["/:/host"] })),
            ("shout", json!({ "text": hostile, "HostConfig": { "Privileged": true } })),
        ] {
            let (failure, text) = told(bench.call(tool, arguments).await);
            assert!(failure.is_some(), "nothing is run here: {text}");
        }
    }
    bench.close().await;
    let (made, strange) = (seen.made.lock().unwrap().clone(), seen.strange.lock().unwrap().clone());
    (made, strange)
}

#[tokio::test]
async fn s_13_no_value_of_a_call_reaches_a_field_of_the_container() {
    let (made, strange) = asked(SandboxBug::None).await;
    assert_eq!(strange, [""; 0], "requests that must not be made");
    assert_eq!(made.len(), 3 * HOSTILE.len(), "`run_python` takes no such arguments");
    for body in made {
        assert_eq!(wrong(body), None);
    }
}

/// The twins: each makes the container another one, and is seen.
#[tokio::test]
async fn s_13_a_planted_bug_is_found() {
    for planted in SandboxBug::ALL {
        if matches!(planted, SandboxBug::SharedPids | SandboxBug::HostFiles | SandboxBug::NoFilter)
        {
            continue;
        }
        let (made, _) = asked(planted).await;
        assert!(made.into_iter().all(|body| wrong(body).is_some()), "{planted:?}");
    }
}

/// What a person could write, if there were a word for it.
#[test]
fn s_13_no_setting_asks_for_more() {
    for (key, value) in [
        ("binds", json!(["/:/host"])),
        ("volumes", json!(["/var/run/docker.sock"])),
        ("privileged", json!(true)),
        ("cap_add", json!(["ALL"])),
        ("devices", json!(["/dev/sda"])),
        ("security_opt", json!(["seccomp=unconfined"])),
        ("userns", json!("host")),
        ("pid", json!("host")),
        ("ipc", json!("host")),
        ("runtime", json!("runc-evil")),
        ("cgroup_parent", json!("/")),
        ("volumes_from", json!(["victim"])),
        ("user", json!("root")),
        ("network", json!("host")),
        ("network", json!("container:victim")),
        ("image", json!("../containers/victim")),
        ("image", json!("a?b=c")),
        ("pids", json!(-1)),
        ("pids", json!(0)),
        ("memory", json!("-1m")),
        ("memory", json!("0m")),
        ("cpus", json!(-1.0)),
    ] {
        let options = json!({ "docker": { key: value } });
        let read = serde_json::from_value::<SandboxOptions>(options.clone());
        assert!(read.is_err(), "{options}");
        let tool = json!({ "description": "d", "command": ["a"], key: value });
        let tool = json!({ "tools": { "t": tool } });
        assert!(serde_json::from_value::<SandboxOptions>(tool.clone()).is_err(), "{tool}");
    }
}
