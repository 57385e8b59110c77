//! What tool calls that any node may run have said and made: kept, shown, followed, removed.

use std::path::Path;

use clawnode_proto::archive::{
    ArchiveStats, CleanView, JobList, JobStatus, JobView, LogStream, LogView,
};
use clawnode_tests::{
    docker::Engine,
    model::{Act, ModelServer, Script, Setup},
    nats::{NatsServer, ServerOptions},
    process::{Client, Home, Message, Node, ProcessError, Start, TestBackend},
    wait::until,
};
use serde_json::{Value, json};

use super::Outcome;

/// A home whose agent may run commands there.
fn home(backend: TestBackend, server: &ModelServer, socket: &Path, run_in: &str) -> Home {
    let home = Home::new(backend).unwrap().anthropic(server);
    let settings = home.path().join(".config/clawnode");
    std::fs::create_dir_all(&settings).unwrap();
    let socket = socket.display();
    let config = format!(
        "[agents.default]\ntools = [\"run_command\", \"wait\"]\n\
         [[agents.default.rules]]\nverdict = \"allow\"\n\
         [sandbox]\nrun_in = \"{run_in}\"\n\
         [sandbox.tools.wait]\ndescription = \"Waits.\"\nenv = \"{run_in}\"\nclass = \"safe\"\n\
         timeout = \"4m\"\ncommand = [\"sh\", \"-c\", \"echo begun; sleep 1000\"]\n\
         [sandbox.docker]\nsocket = \"{socket}\"\nimage = \"busybox:test\"\n"
    );
    std::fs::write(settings.join("config.toml"), config).unwrap();
    home
}

async fn server(acts: Vec<Act>) -> ModelServer {
    let setup = Setup { api_key: Some(Home::key().to_owned()), ..Setup::from(Script::queue(acts)) };
    ModelServer::start(setup).await.unwrap()
}

fn runs(command: &str) -> Act {
    Act::tools([("run_command", json!({ "command": command }))])
}

/// The only job there is, once it is in this state.
async fn job(client: &Client, status: JobStatus) -> Result<JobView, ProcessError> {
    let is_so = |list: &JobList| list.jobs.first().is_some_and(|job| job.status == status);
    let list: JobList = client.call_when("jobs.list", json!({}), is_so).await?;
    assert_eq!((list.jobs.len(), list.more), (1, 0), "{list:?}");
    Ok(list.jobs.into_iter().next().unwrap())
}

async fn log(client: &Client, job: &JobView, rest: Value) -> Result<LogView, ProcessError> {
    let mut params = rest;
    params["job"] = json!(job.job.to_string());
    client.call("jobs.logs", params).await
}

fn texts(log: &LogView) -> Vec<&str> {
    log.lines.iter().map(|line| line.text.as_str()).collect()
}

#[tokio::test]
async fn what_a_command_says_is_kept_shown_searched_and_removed() -> Outcome {
    let command = "echo one; echo two >&2; seq 100; echo LAST; exit 3";
    let server = server(vec![runs(command), Act::say("done")]).await;
    let home = home(TestBackend::Local, &server, Path::new("/nowhere"), "process");
    let node = Node::up(&home).await?;
    let (client, message) = (node.client()?, Message::new("ada", "go"));
    client.chat(&message).await?;

    let kept = job(&client, JobStatus::Failed).await?;
    assert_eq!((kept.tool.as_str(), kept.capability.as_str()), ("run_command", "process"));
    assert_eq!(kept.session.to_string(), message.session());
    let all = log(&client, &kept, json!({ "limit": 1_000 })).await?;
    assert!(all.over && all.cut.is_none() && all.lost.is_empty(), "{all:?}");
    assert_eq!(all.lines.len(), 103);
    let lines_of = |stream| all.lines.iter().filter(move |line| line.stream == stream);
    assert!(lines_of(LogStream::Stderr).map(|line| line.text.as_str()).eq(["two"]));
    assert_eq!(lines_of(LogStream::Stdout).next_back().unwrap().text, "LAST");
    let tail = log(&client, &kept, json!({ "tail": 2, "stream": "stdout" })).await?;
    assert_eq!(texts(&tail), ["100", "LAST"]);
    let found = log(&client, &kept, json!({ "search": "last" })).await?;
    assert_eq!(texts(&found), ["LAST"]);

    // The same at the terminal, by the id of the call too.
    let id = kept.call.to_string();
    let shown = home.run(&["jobs", "logs", &id, "--stream", "stderr"]).await?;
    assert_eq!((shown.code, shown.out.as_str()), (0, "two\n"), "{shown:?}");
    let args = ["jobs", "logs", &id, "--follow", "--tail", "1", "--stream", "stdout"];
    let shown = home.run(&args).await?;
    assert_eq!(shown.out, "LAST\n", "a job that has ended is followed to its end: {shown:?}");
    let listed = home.run(&["jobs", "list", "--state", "failed", "--json"]).await?.json()?;
    assert_eq!(listed["jobs"][0]["job"], json!(kept.job.to_string()));
    let nothing = home.run(&["jobs", "list", "--agent", "absent"]).await?;
    assert_eq!(nothing.out, "no job matches\n");
    let card = home.run(&["jobs", "show", &id]).await?;
    assert!(card.out.contains("failed: failed") && card.out.contains("103 lines"), "{card:?}");

    let stats: ArchiveStats = client.call("jobs.stats", json!({})).await?;
    assert_eq!((stats.jobs, stats.runs), (1, 1));
    let old: CleanView = client.call("jobs.clean", json!({ "older_than_ms": 3_600_000 })).await?;
    assert_eq!(old, CleanView::default(), "it is not old");
    let removed = home.run(&["jobs", "clean", "--older-than", "0s", "--json"]).await?.json()?;
    assert_eq!((&removed["jobs"], &removed["blobs"]), (&json!(1), &json!(1)), "{removed}");
    let gone = log(&client, &kept, json!({})).await.unwrap_err();
    assert!(gone.refusal().unwrap().message.contains("is kept"), "{gone}");
    // The session has its result all the same.
    let told = serde_json::to_string(&client.history(&message.session()).await?).unwrap();
    assert!(told.contains("[exit code 3]"), "{told}");
    node.stop().await
}

/// What is kept of a job is personal: it goes with its session, a run under way included.
#[tokio::test]
async fn a_deleted_session_leaves_no_logs() -> Outcome {
    let server = server(vec![runs("echo secret"), Act::say("done"), runs("echo more; sleep 1000")]);
    let server = server.await;
    let home = home(TestBackend::Local, &server, Path::new("/nowhere"), "process");
    let node = Node::up(&home).await?;
    let (client, message) = (node.client()?, Message::new("ada", "go"));
    client.chat(&message).await?;
    job(&client, JobStatus::Done).await?;
    let turn = client.send(&Message::new("ada", "again")).await?;
    let two = |list: &JobList| {
        list.jobs.len() == 2 && list.jobs.iter().any(|job| job.status == JobStatus::Running)
    };
    let _: JobList = client.call_when("jobs.list", json!({}), two).await?;
    let session = message.session();
    let _: Value = client.call("sessions.delete", json!({ "session": session })).await?;
    drop(turn);
    // The node's end waits for what is being stored: nothing comes back after it.
    node.stop().await?;
    let blobs = home.data().join("blobs");
    let node = Node::up(&home).await?;
    let list: JobList = node.client()?.call("jobs.list", json!({})).await?;
    assert_eq!(list, JobList::default());
    node.stop().await?;
    if let Ok(left) = std::fs::read_dir(blobs) {
        for blob in left.flatten() {
            let content = std::fs::read(blob.path()).unwrap();
            let text = String::from_utf8_lossy(&content);
            assert!(!text.contains("\"stream\""), "a log is left: {text}");
        }
    }
    Ok(())
}

fn named(name: &str) -> Start {
    Start { vars: vec![("CLAWNODE_NODE__NAME", name.to_owned())], ..Start::default() }
}

/// What a job has said, once it has said something.
async fn said(client: &Client, job: &JobView, run: u32) -> Result<LogView, ProcessError> {
    until("the first line", async || {
        let said = log(client, job, json!({ "run": run, "wait_ms": 1_000 })).await?;
        Ok((!said.lines.is_empty()).then_some(said))
    })
    .await
}

/// The first run is lost with its node; the second, on another, has a part of its own.
#[tokio::test]
async fn on_nats_a_job_is_followed_from_any_node_and_each_run_has_its_own_log() -> Outcome {
    let nats = NatsServer::start(ServerOptions::default()).await.unwrap();
    let server = server(vec![Act::tools([("wait", json!({}))]), Act::say("well")]).await;
    let backend = TestBackend::Nats { url: nats.url(), prefix: "arc".to_owned() };
    let make = || {
        let home = home(backend.clone(), &server, Path::new("/nowhere"), "process");
        home.var("CLAWNODE_CLUSTER__PARTITIONS", "8")
    };
    let homes = [make(), make()];
    let mut nodes = Vec::new();
    for (home, name) in homes.iter().zip(["a", "b"]) {
        nodes.push(Node::start(home, named(name)).await?);
    }
    let message = Message::new("ada", "go");
    let turn = nodes[0].client()?.send(&message).await?;
    let first = job(&nodes[0].client()?, JobStatus::Running).await?;
    for node in &nodes {
        let client = node.client()?;
        let said = said(&client, &first, 1).await?;
        assert_eq!((texts(&said), said.over, said.runs), (vec!["begun"], false, 1));
        // Nothing more is there: an answer that waits comes without lines, and goes on after it.
        let after = log(&client, &first, json!({ "cursor": said.next, "wait_ms": 50 })).await?;
        assert_eq!((after.lines.len(), after.next, after.over), (0, said.next, false));
    }
    let process = first.runs[0].process;
    let at = nodes.iter().position(|node| node.process() == Some(process)).unwrap();
    nodes.swap_remove(at).kill().await?;
    let client = nodes[0].client()?;
    let again = |list: &JobList| {
        list.jobs.iter().any(|job| job.runs.len() == 2 && job.status == JobStatus::Running)
    };
    let _: JobList = client.call_when("jobs.list", json!({}), again).await?;
    assert_eq!(texts(&said(&client, &first, 2).await?), ["begun"]);
    let lost = log(&client, &first, json!({ "run": 1 })).await?;
    assert_eq!((lost.status, lost.over, lost.runs), (JobStatus::Lost, true, 2), "{lost:?}");
    assert!(lost.lines.is_empty() && lost.lost[0].contains(&process.to_string()), "{lost:?}");

    let params = json!({ "session": message.session(), "turn": turn.turn });
    let _: Value = client.call("chat.cancel", params).await?;
    let ended = job(&client, JobStatus::Failed).await?;
    assert_eq!((ended.runs[0].number, ended.runs[1].number), (1, 2));
    assert_ne!(ended.runs[1].process, process);
    let kept = log(&client, &ended, json!({})).await?;
    assert_eq!((texts(&kept)[0], kept.run, kept.over), ("begun", 2, true));
    nodes.remove(0).stop().await
}

/// Of a job that ends in the middle of being followed, its follower has each line once.
#[tokio::test]
async fn a_follower_at_the_terminal_has_each_line_once() -> Outcome {
    let command = "for n in $(seq 40); do echo line $n; sleep 0.05; done";
    let server = server(vec![runs(command), Act::say("done")]).await;
    let home = home(TestBackend::Local, &server, Path::new("/nowhere"), "process");
    let node = Node::up(&home).await?;
    let client = node.client()?;
    let turn = client.send(&Message::new("ada", "go")).await?;
    // On a busy machine it may have ended by now, and is followed to its end all the same.
    let begun = |list: &JobList| !list.jobs.is_empty();
    let list: JobList = client.call_when("jobs.list", json!({}), begun).await?;
    let followed = home.run(&["jobs", "logs", &list.jobs[0].job.to_string(), "-f"]).await?;
    let wanted: Vec<String> = (1..=40).map(|n| format!("line {n}")).collect();
    assert_eq!(followed.code, 0, "{}", followed.err);
    assert!(followed.out.lines().eq(wanted.iter()), "{}", followed.out);
    drop(turn);
    node.stop().await
}

/// What a command leaves that must not be followed, beside what is to be kept.
const MAKES: &str = "echo out; echo err >&2; cd $CLAWNODE_ARTIFACTS && mkdir -p a/b && \
                     echo made >a/b/c.txt && ln -s /etc/shadow link && ln a/b/c.txt hard && \
                     mkfifo pipe && echo x >@result && head -c 3000000 /dev/zero >zeros; exit 3";

#[tokio::test]
async fn what_a_process_makes_is_kept() -> Outcome {
    makes("process", Path::new("/nowhere")).await
}

#[tokio::test]
async fn what_a_command_in_docker_says_and_makes_is_kept() -> Outcome {
    let engine = Engine::start().await?;
    engine.import_busybox().await?;
    makes("docker", &engine.socket()).await?;
    assert_eq!(engine.containers().await?, [""; 0], "nothing is left for what was collected");
    engine.stop().await
}

async fn makes(place: &str, socket: &Path) -> Outcome {
    let server = server(vec![runs(MAKES), Act::say("done")]).await;
    let home = home(TestBackend::Local, &server, socket, place);
    let node = Node::up(&home).await?;
    let (client, message) = (node.client()?, Message::new("ada", "go"));
    client.chat(&message).await?;
    let told = serde_json::to_string(&client.history(&message.session()).await?).unwrap();
    assert!(told.contains("out\\n[stderr]\\nerr\\n[exit code 3]"), "{told}");
    let kept = job(&client, JobStatus::Failed).await?;
    let mut said = log(&client, &kept, json!({})).await?;
    said.lines.sort_by_key(|line| line.stream.as_str());
    assert_eq!(texts(&said), ["err", "out"]);
    let run = &kept.runs[0];
    let mut names: Vec<&str> =
        run.artifacts.iter().map(|artifact| artifact.name.as_str()).collect();
    names.sort_unstable();
    // One of two names of the same file has the content; the other is a link.
    assert!(names == ["a/b/c.txt", "zeros"] || names == ["hard", "zeros"], "{run:?}");
    assert_eq!(run.lost.len(), 2, "{run:?}");
    assert!(run.lost[0].contains("3 that are not regular files"), "{run:?}");
    assert!(run.lost[1].contains("1 with names"), "{run:?}");

    let id = kept.job.to_string();
    let listed = home.run(&["jobs", "artifacts", &id]).await?;
    assert!(listed.out.contains("zeros"), "{listed:?}");
    let to = home.path().join("fetched");
    let path = to.to_string_lossy();
    let fetched = home.run(&["jobs", "artifacts", &id, "zeros", "--to", &path]).await?;
    assert_eq!(fetched.code, 0, "{fetched:?}");
    assert!(std::fs::read(&to).unwrap() == vec![0; 3_000_000], "more than one part, whole");
    let printed = home.run(&["jobs", "artifacts", &id, names[0]]).await?;
    assert_eq!(printed.out, "made\n");
    let nothing = home.run(&["jobs", "artifacts", &id, "../x"]).await?;
    assert_eq!(nothing.code, 1, "{nothing:?}");

    let removed: CleanView = client.call("jobs.clean", json!({ "job": id })).await?;
    assert_eq!((removed.jobs, removed.blobs), (1, 3));
    node.stop().await
}
