//! The agent of `examples/tools`: every executor in one chat, on two hosts of a cluster with keys, of
//! which one has Docker, and loses it in the middle of its work.

use std::path::Path;

use clawnode_proto::{archive::JobList, kill_switch::PanicView, overview::NodeList};
use clawnode_tests::{
    docker::Engine,
    mcp::{MARK, marked, reference},
    nats::SecuredNats,
    process::{Client, Home, Message, Node, ProcessError, Start, TestBackend},
    wait::until,
};
use clawnode_wasm::text::PluginText;
use serde_json::{Value, json};

use super::{Outcome, server::Host};

/// One call of each executor; the model is the demo.
const EACH: &str = r#"/tool calculate {"expression":"6*7"}
/tool file_write {"path":"a.txt","content":"forty-two"}
/tool run_command {"command":"echo in a container"}
/tool execute_code {"code":"clawnode.tools.calculate(expression='7*7')"}
/tool kernel {}
/tool everything__echo {"message":"hi"}
/tool echo__run {"x":7}
/tool ssh_db {"command":"echo on a third host"}"#;

/// The cluster.
struct Scene {
    nats: SecuredNats,
    engine: Engine,
    third: Host,
    /// Without Docker, with agents' files; and with Docker.
    homes: [Home; 2],
    _operator: Home,
}

impl Scene {
    async fn new() -> Result<Self, ProcessError> {
        let engine = Engine::start().await?;
        engine.import_busybox().await?;
        engine.import_python().await?;
        let operator = Home::new(TestBackend::Local)?.var("CLAWNODE_CLUSTER__PARTITIONS", "4");
        let port = SecuredNats::free_port().unwrap();
        let server = format!("n=127.0.0.1:{port}");
        let made = operator.run(&["cluster", "init", "--server", &server]).await?;
        assert_eq!(made.code, 0, "{made:?}");
        let folder = operator.data().join("cluster/servers/n");
        let nats = SecuredNats::start(vec![(folder, port)]).await.unwrap();
        let (third, mut homes) = (Host::of_tester(), Vec::new());
        for name in ["without-docker", "with-docker"] {
            let args = ["cluster", "join-token", "--role", "gateway,worker", "--json"];
            let token = operator.run(&args).await?.json()?;
            let home = Home::new(TestBackend::Local)?
                .var("CLAWNODE_JOIN", token["token"].as_str().unwrap())
                .var("CLAWNODE_NODE__NAME", name)
                // A Docker engine may take its time to come back.
                .var("CLAWNODE_TOOLS__JOB_WAIT", "5m");
            configure(&home, &engine, &third)?;
            homes.push(home);
        }
        let files = homes[0].path().join("files");
        std::fs::create_dir_all(&files).unwrap();
        let without = homes.remove(0);
        let without = without
            .var("CLAWNODE_SANDBOX__DOCKER__SOCKET", "/nowhere/docker.sock")
            .var("CLAWNODE_WORKSPACE__ROOT", &files.display().to_string());
        let homes = [without, homes.remove(0)];
        Ok(Self { nats, engine, third, homes, _operator: operator })
    }

    /// Starts a node on one of the hosts.
    async fn start(&self, host: usize) -> Result<Node, ProcessError> {
        let start = Start {
            role: Some("gateway,worker"),
            flags: vec!["--model", "demo/echo"],
            ..Start::default()
        };
        Node::start(&self.homes[host], start).await
    }

    /// What an MCP server has started, on either host.
    fn servers(&self) -> Vec<i32> {
        self.homes.iter().flat_map(|home| marked(&mark(home))).collect()
    }

    /// Waits until a container runs the command of a call.
    async fn at_work(&self) -> Outcome {
        until("a container at work", async || {
            for name in self.engine.containers().await? {
                let top = self.engine.docker(&["top", &name]).await;
                if top.is_ok_and(|top| top.contains("sleep 100")) {
                    return Ok(Some(()));
                }
            }
            Ok(None)
        })
        .await
    }

    async fn no_container_of_a_call(&self) -> Outcome {
        until("no container of a call", async || {
            let names = self.engine.containers().await?;
            let none = !names.iter().any(|name| name.starts_with("clawnode-job_"));
            Ok(none.then_some(()))
        })
        .await
    }
}

fn mark(home: &Home) -> String {
    home.path().display().to_string()
}

/// The same configuration for both hosts, but for what the environment says.
fn configure(home: &Home, engine: &Engine, third: &Host) -> Outcome {
    let settings = home.path().join(".config/clawnode");
    std::fs::create_dir_all(&settings).unwrap();
    std::fs::write(settings.join("echo.wasm"), PluginText::default().bytes().unwrap()).unwrap();
    std::fs::write(settings.join("echo.toml"), "name = \"echo\"\nversion = \"1\"\n").unwrap();
    let tools = [
        "calculate",
        "file_write",
        "run_command",
        "execute_code",
        "wait",
        "kernel",
        "nap",
        "ssh_db",
        "echo__run",
        "everything__*",
    ];
    let own = |name: &str, env: &str, command: &[&str]| {
        format!(
            "[sandbox.tools.{name}]\ndescription = \"It.\"\nenv = \"{env}\"\nclass = \"safe\"\n\
             timeout = \"2m\"\ninput_schema = '{{\"type\":\"object\"}}'\ncommand = {}\n",
            json!(command)
        )
    };
    let (section, everything) = (third.section(json!({})), reference("everything")?);
    let text = format!(
        "[agents.default]\ntools = {}\n[[agents.default.rules]]\nverdict = \"allow\"\n\
         [sandbox]\nrun_in = \"docker\"\n[sandbox.docker]\nsocket = \"{}\"\n\
         image = \"busybox:test\"\npython_image = \"python:test\"\n{}{}{}\
         [[mcp_servers]]\nname = \"everything\"\ncommand = \"node\"\nargs = [\"{}\"]\n\
         env = {{ {MARK} = \"{}\" }}\n[[plugins]]\nname = \"echo\"\npath = \"echo.wasm\"\n\
         [[ssh_hosts]]\nname = \"db\"\nhost = \"127.0.0.1\"\nport = {}\nuser = {}\nkey = {}\n",
        json!(tools),
        engine.socket().display(),
        own("wait", "docker", &["sh", "-c", "sleep 10 && echo waited"]),
        own("kernel", "process", &["uname", "-s"]),
        own("nap", "process", &["sleep", &sleep_of("nap")]),
        everything.display(),
        mark(home),
        section["port"],
        section["user"],
        section["key"],
    );
    std::fs::write(settings.join("config.toml"), text).unwrap();
    Ok(())
}

/// Seconds that no process but one of this test sleeps.
fn sleep_of(whose: &str) -> String {
    format!("8{}{}", whose.len(), std::process::id())
}

/// Whether a process sleeps so long.
fn sleeps(seconds: &str) -> bool {
    let wanted = format!("sleep\0{seconds}\0");
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(|process| std::fs::read(Path::join(&process.path(), "cmdline")).ok())
        .any(|line| line == wanted.as_bytes())
}

/// A message of several lines, the only one of its session.
fn lines(peer: &str, content: &str) -> Message {
    Message { key: peer.to_owned(), ..Message::new(peer, content) }
}

/// Which node ran a tool last.
async fn ran(client: &Client, tool: &str) -> Result<String, ProcessError> {
    let known = |list: &JobList| !list.jobs.is_empty();
    let list: JobList = client.call_when("jobs.list", json!({ "tool": tool }), known).await?;
    Ok(list.jobs[0].runs.last().unwrap().node.to_string())
}

async fn each_runs_where_it_can(client: &Client, time: &str) -> Outcome {
    let mut asked = 0;
    let reply = until("every executor", async || {
        asked += 1;
        let reply = client.chat(&lines(&format!("{time}-{asked}"), EACH)).await?;
        // The MCP server starts beside its node, and agents are given its tools then.
        Ok(reply.contains("`everything__echo` said").then_some(reply))
    })
    .await?;
    for said in [
        "`calculate` said: 42",
        "`file_write` said: ",
        "`run_command` said: in a container",
        "`execute_code` said: 49",
        "`kernel` said: Linux",
        "`everything__echo` said: Echo: hi",
        "`echo__run` said: {\"x\":7}",
        "`ssh_db` said: on a third host",
    ] {
        assert!(reply.contains(said), "{said}: {reply}");
    }
    for tool in ["run_command", "execute_code"] {
        assert_eq!(ran(client, tool).await?, "with-docker", "{tool}");
    }
    assert_eq!(ran(client, "file_write").await?, "without-docker");
    Ok(())
}

/// F-03: the host with Docker dies in the middle of two runs, and comes back.
async fn a_host_dies(scene: &mut Scene, client: &Client, node: Node) -> Result<Node, ProcessError> {
    let calls = "/tool run_command {\"command\":\"sleep 100\",\"timeout_s\":200}\n/tool wait {}";
    let mut turn = client.send(&lines("dies", calls)).await?;
    scene.at_work().await?;
    assert_eq!(ran(client, "wait").await?, "with-docker");
    node.kill().await?;
    scene.engine.kill().await?;
    scene.engine.start_again().await?;
    let [without, with] = std::mem::replace(
        &mut scene.homes,
        [Home::new(TestBackend::Local)?, Home::new(TestBackend::Local)?],
    );
    scene.homes = [without, with.var("CLAWNODE_JOIN", "")];
    let node = scene.start(1).await?;
    let reply = turn.completed().await?;
    let unknown = " knows whether the call of `run_command` happened";
    assert!(reply.contains(unknown), "it is held to run once: {reply}");
    assert!(reply.contains("`wait` said: waited"), "it may run again: {reply}");
    scene.no_container_of_a_call().await?;
    Ok(node)
}

/// A stop reaches all of it, and when it is said that all is dead, it is.
async fn all_is_stopped(scene: &Scene, client: &Client) -> Outcome {
    let (nap, far) = (sleep_of("nap"), sleep_of("far away"));
    let calls = format!(
        "/tool run_command {{\"command\":\"sleep 100\",\"timeout_s\":200}}\n/tool nap {{}}\n\
         /tool ssh_db {{\"command\":\"sleep {far}\"}}\n\
         /tool everything__trigger-long-running-operation {{\"duration\":100,\"steps\":2}}"
    );
    let turn = client.send(&lines("stopped", &calls)).await?;
    scene.at_work().await?;
    until("the processes", async || Ok((sleeps(&nap) && sleeps(&far)).then_some(()))).await?;
    let four = |list: &JobList| list.jobs.len() == 4;
    let running = json!({ "state": "running" });
    let _: JobList = client.call_when("jobs.list", running, four).await?;
    let stopped: PanicView = client.call("panic", json!({ "wait_ms": 10_000 })).await?;
    assert_eq!(stopped.nodes.len(), 2, "{stopped:?}");
    for ack in &stopped.nodes {
        assert!(ack.dead_ms.is_some() && ack.running == 0, "{stopped:?}");
    }
    assert!(!sleeps(&nap), "a process: {stopped:?}");
    assert_eq!(scene.servers(), Vec::<i32>::new(), "the MCP server: {stopped:?}");
    until("the third host", async || Ok((!sleeps(&far)).then_some(()))).await?;
    scene.no_container_of_a_call().await?;
    drop(turn);
    let _: Value = client.call("panic.clear", json!({ "latch": stopped.switch.id })).await?;
    Ok(())
}

#[tokio::test]
async fn an_agent_uses_every_executor_on_two_hosts_of_which_one_has_docker_and_dies() -> Outcome {
    let mut scene = Scene::new().await?;
    let (one, two) = (scene.start(0).await?, scene.start(1).await?);
    let client = one.client()?;
    let both = |list: &NodeList| list.nodes.len() == 2;
    let _: NodeList = client.call_when("nodes.list", json!({}), both).await?;
    each_runs_where_it_can(&client, "before").await?;
    let two = a_host_dies(&mut scene, &client, two).await?;
    all_is_stopped(&scene, &client).await?;
    each_runs_where_it_can(&client, "after").await?;
    one.stop().await?;
    two.stop().await?;
    assert_eq!(scene.servers(), Vec::<i32>::new(), "MCP-1");
    assert_eq!(scene.engine.containers().await?, [""; 0]);
    let log = scene.nats.log();
    assert!(!log.contains("Violation"), "{log}");
    drop(scene.third);
    scene.engine.stop().await
}
