//! The shipped compose file on a real Docker engine, with images made here.

use std::path::{Path, PathBuf};

use clawnode_proto::view::{EventView, StatusView};
use clawnode_tests::{
    docker::{Engine, run},
    nats::free_port,
    process::{Client, Message, ProcessError, Turn},
};
use serde_json::json;

use super::{Outcome, said};

/// The services of the compose file but Qdrant, whose image cannot be made here.
const SERVICES: [&str; 8] =
    ["nats-1", "nats-2", "nats-3", "gateway-1", "gateway-2", "worker-1", "worker-2", "worker-3"];
const TOKEN: &str = "the-token-of-the-containers-0123456789";

/// The compose file's cluster.
struct Cluster {
    engine: Engine,
    file: PathBuf,
    ports: [u16; 2],
}

impl Cluster {
    async fn compose(&self, args: &[&str]) -> Result<String, ProcessError> {
        let mut command = self.engine.command("docker-compose");
        command.args(["--project-name", "cn", "--file"]).arg(&self.file).args(args);
        command
            .env("CLAWNODE_IMAGE", "clawnode:test")
            .env("CLAWNODE_NATS_IMAGE", "nats:test")
            .env("CLAWNODE_TOKEN", TOKEN)
            .env("CLAWNODE_PORT_1", self.ports[0].to_string())
            .env("CLAWNODE_PORT_2", self.ports[1].to_string())
            .env("CLAWNODE_AGENTS__DEFAULT__MODEL", "demo/slow-300");
        run(&mut command).await
    }

    /// A client of the first or second gateway, once it serves the whole cluster.
    async fn client(&self, gateway: usize) -> Result<Client, ProcessError> {
        let data = self.engine.path("client");
        std::fs::create_dir_all(&data).unwrap();
        std::fs::write(data.join("token"), TOKEN).unwrap();
        let client = Client::new(&format!("http://127.0.0.1:{}", self.ports[gateway]), &data)?;
        client.until("status", |status: &StatusView| status.nodes.len() == 5).await?;
        Ok(client)
    }

    async fn kill(&self, service: &str) -> Result<(), ProcessError> {
        self.engine.docker(&["kill", &format!("cn_{service}_1")]).await.map(drop)
    }
}

async fn start() -> Result<Cluster, ProcessError> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let tool = |name: &str| PathBuf::from(std::env::var_os(name).unwrap_or_default());
    let binary = tool("CLAWNODE_BIN");
    let nats = tool("CLAWNODE_NATS_SERVER");
    assert!(binary.is_file() && nats.is_file(), "`cargo xtest containers` names both");
    let engine = Engine::start().await?;
    let stripped = engine.path("clawnode");
    run(tokio::process::Command::new("strip").arg("-o").arg(&stripped).arg(binary)).await?;
    let mut image = engine.command(&root.join("docker/image.sh").to_string_lossy());
    run(image.arg(&stripped).arg("clawnode:test")).await?;
    engine.import(&nats, "nats-server", "nats:test").await?;
    let ports = [free_port().unwrap(), free_port().unwrap()];
    let cluster = Cluster { engine, file: root.join("docker/compose.yaml"), ports };
    cluster.compose(&[&["up", "-d"], SERVICES.as_slice()].concat()).await?;
    Ok(cluster)
}

/// Which service owns a session.
async fn owner(client: &Client, session: &str) -> Result<String, ProcessError> {
    let events: Vec<EventView> = client.journal(session).await?;
    let process = events.last().unwrap().incarnation.process;
    let status: StatusView = client.call("status", json!({})).await?;
    let node = status.nodes.iter().find(|node| node.process == process).unwrap();
    Ok(node.node.to_string())
}

#[tokio::test]
async fn the_compose_file_runs_a_cluster_that_loses_containers_in_mid_turn() -> Outcome {
    let cluster = start().await?;
    let outcome = lose_a_worker_and_a_gateway(&cluster).await;
    if outcome.is_err() {
        for service in SERVICES {
            let log = cluster.compose(&["logs", "--tail=20", service]).await;
            eprintln!("{}", log.unwrap_or_else(|error| error.to_string()));
        }
    }
    cluster.engine.stop().await?;
    outcome
}

async fn lose_a_worker_and_a_gateway(cluster: &Cluster) -> Outcome {
    let who = "{{.Config.User}} {{.HostConfig.ReadonlyRootfs}} {{.HostConfig.CapDrop}}";
    let seen = cluster.engine.docker(&["inspect", "-f", who, "cn_worker-1_1"]).await?;
    assert_eq!(seen.trim(), "65532:65532 true [ALL]");

    // L8: only nodes share a network with servers that ask for no credentials.
    let networks = "{{range $name, $it := .NetworkSettings.Networks}}{{$name}} {{end}}";
    for (service, wanted) in [("nats-1", "cn_bus "), ("worker-1", "cn_bus cn_default ")] {
        let container = format!("cn_{service}_1");
        let seen = cluster.engine.docker(&["inspect", "-f", networks, &container]).await?;
        assert_eq!(seen.trim_end_matches('\n'), wanted, "{service}");
    }
    let bus = cluster.engine.docker(&["network", "inspect", "-f", "{{.Internal}}", "cn_bus"]);
    assert_eq!(bus.await?.trim(), "true");

    let (first, second) = (cluster.client(0).await?, cluster.client(1).await?);
    let message = Message::new("ada", "hello there");
    let session = message.session();
    let mut turn = first.send(&message).await?;
    turn.begun().await?;
    let lost = owner(&first, &session).await?;
    cluster.kill(&lost).await?;
    // The stream goes on over the dead worker; then the gateway under it dies as well.
    let mut again = second.resume(&session, &turn.turn).await?;
    again.begun().await?;
    cluster.kill("gateway-1").await?;
    let text = again.completed().await?;
    assert!(text.contains("You said: hello there"), "{text}");

    let mut next: Turn = second.send(&Message::new("ada", "and again")).await?;
    let text = next.completed().await?;
    assert!(text.contains("message 2 of yours"), "it remembers: {text}");
    let history = second.finished(&session, 2).await?;
    assert_eq!(said(&history.turns[0])[0], "hello there");
    assert_eq!(history.turns[0].lost_attempts, 1, "the call of {lost} was made once more");
    assert_ne!(owner(&second, &session).await?, lost);

    // What is left ends by itself when asked to.
    cluster.compose(&["stop", "gateway-2", "worker-1", "worker-2", "worker-3"]).await?;
    for service in ["gateway-2", "worker-1", "worker-2", "worker-3"] {
        let container = format!("cn_{service}_1");
        let code =
            cluster.engine.docker(&["inspect", "-f", "{{.State.ExitCode}}", &container]).await?;
        let killed = service == lost;
        assert_eq!(code.trim(), if killed { "137" } else { "0" }, "{service}");
    }
    Ok(())
}
