//! `sandbox::docker`: a short command in a ready container, beside one for which a container is
//! made, started, waited for and removed; and as an isolated process.
//!
//! An engine of the bench's own, with busybox; rounds alternate. Warm is `run_command` through the
//! toolbox, as a job runs it, once a container is ready; cold is the plainest client of the engine
//! with the same limits (create, attach, start, read, wait, remove), without this program. Takes
//! root. Run with `cargo run --release -p clawnode-bench --bin containers`.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use bollard::{
    API_DEFAULT_VERSION, Docker as Client,
    models::{ContainerCreateBody, HostConfig},
    query_parameters::{
        AttachContainerOptionsBuilder, CreateContainerOptions, RemoveContainerOptionsBuilder,
        WaitContainerOptions,
    },
};
use clap::Parser;
use clawnode_bench::{Row, Table, percentile};
use clawnode_executors::{
    SandboxOptions,
    sandbox::{Commands, ContainerOwner, Docker, Processes},
};
use clawnode_proto::{CallId, JobId, ProcessId, id::ParseIdError};
use clawnode_tests::{docker::Engine, process::ProcessError};
use clawnode_tool::{Executor, RunSink, ToolRun, Toolbox, ToolboxError};
use futures_util::StreamExt;
use serde_json::json;
use tokio_util::sync::CancellationToken;

/// The target: warm to cold.
const TARGET: f64 = 0.35;
/// The longest that one command may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Between two looks for ready containers.
const LOOK: Duration = Duration::from_millis(10);

/// Compares commands in containers that stand ready with others.
#[derive(Debug, Parser)]
struct Args {
    /// Commands of each kind
    #[arg(long, default_value_t = 50)]
    rounds: u32,
}

#[derive(Debug, thiserror::Error)]
enum BenchError {
    #[error(transparent)]
    Harness(#[from] ProcessError),
    #[error(transparent)]
    Engine(#[from] bollard::errors::Error),
    #[error(transparent)]
    Toolbox(#[from] ToolboxError),
    #[error(transparent)]
    Id(#[from] ParseIdError),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("a command said `{0}`")]
    Wrong(String),
}

#[tokio::main]
async fn main() -> Result<(), BenchError> {
    let args = Args::parse();
    let engine = Engine::start().await?;
    engine.import_busybox().await?;
    let figures = compare(&args, &engine).await;
    engine.stop().await?;
    let [mut cold, mut warm, mut process] = figures?;
    let mut table = Table::default();
    let milliseconds = |took: Duration| took.as_secs_f64() * 1_000.0;
    let mut p50 = [0.0; 3];
    for (at, (name, all)) in [("cold", &mut cold), ("warm", &mut warm), ("process", &mut process)]
        .into_iter()
        .enumerate()
    {
        all.sort_unstable();
        p50[at] = milliseconds(percentile(all, 500));
        let row = Row::new(format!("sandbox::docker/{name}"))
            .figure("p50 ms", p50[at])
            .figure("p95 ms", milliseconds(percentile(all, 950)));
        let ratio = p50[at] / p50[0];
        let row = row.figure("to cold", ratio);
        table.add(if name == "warm" {
            row.at_most("p50, warm to cold", ratio, TARGET)
        } else {
            row
        });
    }
    table.json()?;
    Ok(())
}

/// What each command took: cold, warm, as a process.
async fn compare(args: &Args, engine: &Engine) -> Result<[Vec<Duration>; 3], BenchError> {
    let options = json!({ "docker": { "socket": engine.socket(), "image": "busybox:test" } });
    let options: SandboxOptions = serde_json::from_value(options)?;
    let owner = ContainerOwner::new("bench", ProcessId::from_u128(1));
    let docker = Docker::new(options.docker.clone(), owner, Arc::new(|_| false));
    let commands: Arc<dyn Executor> = Arc::new(Commands::in_docker(&options, docker.clone(), None));
    let containers = Toolbox::new([commands])?;
    let as_processes: SandboxOptions = serde_json::from_value(json!({ "run_in": "process" }))?;
    let isolated = Processes::new(as_processes.process.clone());
    let commands: Arc<dyn Executor> =
        Arc::new(Commands::in_processes(&as_processes, isolated, None));
    let processes = Toolbox::new([commands])?;
    let socket = engine.socket();
    let client = Client::connect_with_unix(&socket.to_string_lossy(), 60, API_DEFAULT_VERSION)?;
    let client = client.negotiate_version().await?;
    let keeping = tokio::spawn(docker.clone().keep());
    run(&containers, 0).await?;
    let mut figures = [Vec::new(), Vec::new(), Vec::new()];
    for round in 1..=args.rounds {
        let began = Instant::now();
        cold(&client).await?;
        figures[0].push(began.elapsed());
        while docker.ready() < options.docker.warm {
            tokio::time::sleep(LOOK).await;
        }
        let began = Instant::now();
        run(&containers, round).await?;
        figures[1].push(began.elapsed());
        // What is removed and made again meanwhile is not to be in the others' way.
        while docker.ready() < options.docker.warm {
            tokio::time::sleep(LOOK).await;
        }
        let began = Instant::now();
        run(&processes, round).await?;
        figures[2].push(began.elapsed());
    }
    keeping.abort();
    docker.close().await;
    Ok(figures)
}

/// A short command, as a job runs it.
async fn run(toolbox: &Toolbox, round: u32) -> Result<(), BenchError> {
    let call = CallId::from_u128(u128::from(round) + 1);
    let run = ToolRun {
        call,
        agent: "main".parse()?,
        tool: "run_command".parse()?,
        arguments: [("argv".to_owned(), json!(["echo", "hi"]))].into_iter().collect(),
        idempotency_key: JobId::from(call).to_string(),
        timeout: TIMEOUT,
        sink: RunSink::default(),
        shown: clawnode_tool::ShownMedia::default(),
        limit: None,
    };
    let outcome = toolbox.execute(run, CancellationToken::new()).await;
    match outcome.content.inline() {
        Some("hi\n") => Ok(()),
        said => Err(BenchError::Wrong(said.unwrap_or_default().to_owned())),
    }
}

/// The same in a container that is made for it, and removed.
async fn cold(client: &Client) -> Result<(), BenchError> {
    let body = ContainerCreateBody {
        image: Some("busybox:test".to_owned()),
        cmd: Some(["echo", "hi"].map(str::to_owned).into()),
        user: Some("65534:65534".to_owned()),
        attach_stdout: Some(true),
        host_config: Some(HostConfig {
            network_mode: Some("none".to_owned()),
            cap_drop: Some(vec!["ALL".to_owned()]),
            security_opt: Some(vec!["no-new-privileges:true".to_owned()]),
            readonly_rootfs: Some(true),
            tmpfs: Some(HashMap::from([("/tmp".to_owned(), "size=67108864".to_owned())])),
            memory: Some(512 << 20),
            memory_swap: Some(512 << 20),
            nano_cpus: Some(1_000_000_000),
            pids_limit: Some(128),
            init: Some(true),
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    };
    let id = client.create_container(None::<CreateContainerOptions>, body).await?.id;
    let attach = AttachContainerOptionsBuilder::new().stream(true).stdout(true).build();
    let mut output = client.attach_container(&id, Some(attach)).await?.output;
    client.start_container(&id, None).await?;
    let mut said = Vec::new();
    while let Some(piece) = output.next().await {
        said.extend_from_slice(&piece?.into_bytes());
    }
    let mut ended = client.wait_container(&id, None::<WaitContainerOptions>);
    while let Some(end) = ended.next().await {
        end?;
    }
    let remove = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
    client.remove_container(&id, Some(remove)).await?;
    if said == b"hi\n" { Ok(()) } else { Err(BenchError::Wrong(format!("{} bytes", said.len()))) }
}
