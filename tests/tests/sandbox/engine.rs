//! The engine: not there, gone in mid-run, back again; and what others left on it.

use std::{path::Path, sync::Arc};

use clawnode_cluster::Peek;
use clawnode_executors::sandbox::{Commands, ContainerOwner, Docker, SandboxBug};
use clawnode_guard::kill_switch::SwitchGate;
use clawnode_proto::tool::ToolFailure;
use clawnode_tests::{process::ProcessError, wait::until};
use clawnode_tool::{Executor, Executors};
use serde_json::json;

use super::{Bench, DEAD, ME, OTHER, Outcome, engine, told};

#[tokio::test]
async fn a_docker_engine_that_is_not_there_is_named() {
    let bench = Bench::new(Path::new("/nowhere/docker.sock"), json!({}), SandboxBug::None);
    let (failure, text) = bench.sh("echo a").await;
    assert_eq!(failure, Some(ToolFailure::Unavailable));
    assert!(
        text.starts_with("sandbox_unavailable: no Docker engine answers at `/nowhere/"),
        "{text}"
    );
    let why = bench.docker.health_check().await.unwrap_err().to_string();
    assert!(why.contains("sandbox.docker.socket"), "{why}");
    bench.close().await;
}

/// F-11.
#[tokio::test]
async fn f_11_an_engine_of_docker_that_is_killed_is_noticed_and_so_is_its_return() -> Outcome {
    let mut engine = engine().await?;
    let bench = Bench::new(&engine.socket(), json!({ "warm": 1 }), SandboxBug::None);
    // What a node announces follows.
    let options = serde_json::from_value(json!({})).unwrap();
    let commands: Arc<dyn Executor> =
        Arc::new(Commands::in_docker(&options, bench.docker.clone(), None));
    let executors = Executors::open(vec![commands], SwitchGate::default()).await.unwrap();
    let mut available = executors.available();
    let looking = tokio::spawn(executors.keep());
    assert!(available.peek(|available| {
        available.capabilities.iter().any(|capability| capability.as_str() == "docker")
    }));

    let running = bench.sh("echo begun; sleep 1000");
    let kill = async {
        until("the command to begin", async || {
            for name in engine.containers().await? {
                // Not every container has begun; some stand ready.
                let top = engine.docker(&["top", &name]).await;
                if top.is_ok_and(|top| top.contains("sleep 1000")) {
                    return Ok(Some(()));
                }
            }
            Ok(None)
        })
        .await?;
        engine.kill().await?;
        Ok::<_, ProcessError>(())
    };
    let ((failure, text), killed) = tokio::join!(running, kill);
    killed?;
    assert_eq!(failure, Some(ToolFailure::Crashed), "{text}");
    assert!(text.starts_with("sandbox_unavailable: the Docker engine went away"), "{text}");
    assert!(text.contains("whether it did anything is not known"), "{text}");
    available.wait_for(|now| now.capabilities.is_empty()).await.unwrap();
    let (failure, text) = bench.sh("echo a").await;
    assert_eq!(failure, Some(ToolFailure::Unavailable), "{text}");

    engine.start_again().await?;
    available.wait_for(|now| !now.capabilities.is_empty()).await.unwrap();
    let (failure, text) = bench.sh("echo back").await;
    assert_eq!((failure, text.as_str()), (None, "back\n"));
    until("what was left to be removed", async || {
        let left = engine.containers().await?;
        Ok((left.len() == bench.docker.ready() && left.len() <= 1).then_some(()))
    })
    .await?;
    looking.abort();
    bench.close().await;
    assert_eq!(engine.containers().await?, [""; 0]);
    engine.stop().await
}

/// Only containers of this cluster are removed that are not needed.
#[tokio::test]
async fn the_containers_of_the_dead_are_removed_and_no_others() -> Outcome {
    let engine = engine().await?;
    // Each process has a ready container, and is not seen again.
    let processes = [("tests", DEAD), ("tests", OTHER), ("tests", ME), ("others", DEAD)];
    for (at, (cluster, process)) in processes.into_iter().enumerate() {
        let options = serde_json::from_value(json!({
            "docker": { "socket": engine.socket(), "image": "busybox:test", "warm": 1 }
        }))
        .unwrap();
        let owner = ContainerOwner::new(cluster, process);
        let docker = Docker::new(
            clawnode_executors::SandboxOptions::clone(&options).docker,
            owner,
            Arc::new(|_| false),
        );
        let commands: Arc<dyn Executor> =
            Arc::new(Commands::in_docker(&options, docker.clone(), None));
        let toolbox = clawnode_tool::Toolbox::new([commands]).unwrap();
        let keeping = tokio::spawn(docker.clone().keep());
        let arguments = json!({ "command": "true" });
        let done = super::call(
            &toolbox,
            "run_command",
            arguments,
            tokio_util::sync::CancellationToken::new(),
        );
        assert_eq!(told(done.await).0, None);
        until("one ready container", async || {
            let count = engine.containers().await?.len();
            Ok((docker.ready() == 1 && count == at + 1).then_some(()))
        })
        .await?;
        keeping.abort();
    }
    engine
        .docker(&["run", "-d", "--name", "clawnode-foreign", "busybox:test", "sleep", "1000"])
        .await?;
    let bench = Bench::new(&engine.socket(), json!({ "warm": 0 }), SandboxBug::None);
    until("the containers of the dead to be removed", async || {
        Ok((engine.containers().await?.len() == 3).then_some(()))
    })
    .await?;
    let labels = "{{.Label \"clawnode.process\"}}";
    let left = engine.docker(&["ps", "-a", "--format", labels]).await?;
    let mut left: Vec<&str> = left.lines().collect();
    left.sort_unstable();
    let (other, dead) = (OTHER.to_string(), DEAD.to_string());
    assert_eq!(
        left,
        ["", dead.as_str(), other.as_str()],
        "the living, another cluster, a stranger"
    );
    bench.close().await;
    assert_eq!(engine.containers().await?.len(), 3, "closing removes one's own");
    engine.stop().await
}
