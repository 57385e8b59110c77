//! Agents' commands in sandboxes: a real Docker engine, real bubblewrap, and a daemon that only
//! writes down what it is asked for.
#![expect(clippy::unwrap_used, reason = "helpers of tests: their panic is the test's failure")]

mod calls;
mod code;
mod containers;
mod create;
mod engine;
mod escape;
mod inherited;
mod limits;
mod processes;
mod walls;

use std::{path::Path, sync::Arc, time::Duration};

use clawnode_executors::{
    SandboxOptions,
    sandbox::{Commands, ContainerOwner, Docker, Processes, SandboxBug, Steps},
};
use clawnode_proto::{
    CallId, JobId, ProcessId,
    tool::{ToolFailure, ToolOutcome},
};
use clawnode_tests::{
    docker::Engine,
    process::{ProcessError, binary},
};
use clawnode_tool::{Executor, ToolRun, Toolbox};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

type Outcome = Result<(), ProcessError>;

/// This process, as containers know it.
const ME: ProcessId = ProcessId::from_u128(1);
/// One that is held dead.
const DEAD: ProcessId = ProcessId::from_u128(2);
/// One of the same cluster that is alive.
const OTHER: ProcessId = ProcessId::from_u128(3);

/// What runs commands, and the containers behind it.
struct Bench {
    toolbox: Toolbox,
    docker: Docker,
    keeping: JoinHandle<()>,
}

impl Bench {
    /// On the engine at this socket, with more settings of `[sandbox.docker]`.
    fn new(socket: &Path, docker: Value, planted: SandboxBug) -> Self {
        let mut options = json!({});
        options["docker"] = docker;
        Self::with(socket, options, planted, None)
    }

    /// On the engine at this socket, with settings of `[sandbox]`.
    fn with(socket: &Path, mut options: Value, planted: SandboxBug, root: Option<&Path>) -> Self {
        let docker = &mut options["docker"];
        docker["socket"] = json!(socket);
        for (key, value) in [("image", "busybox:test"), ("python_image", "python:test")] {
            if docker[key].is_null() {
                docker[key] = json!(value);
            }
        }
        let options: SandboxOptions = serde_json::from_value(options).unwrap();
        options.check().unwrap();
        let owner = ContainerOwner::new("tests", ME);
        let docker =
            Docker::new(options.docker.clone(), owner, Arc::new(|process| process == DEAD));
        let docker = docker.with_bug(planted);
        let commands = Commands::in_docker(&options, docker.clone(), root.map(Path::to_owned));
        let toolbox = Toolbox::new([Arc::new(commands) as Arc<dyn Executor>]).unwrap();
        let keeping = tokio::spawn(docker.clone().keep());
        Self { toolbox, docker, keeping }
    }

    async fn call(&self, tool: &str, arguments: Value) -> ToolOutcome {
        call(&self.toolbox, tool, arguments, CancellationToken::new()).await
    }

    /// A line for the shell; how it failed, and the text of its outcome.
    async fn sh(&self, line: &str) -> (Option<ToolFailure>, String) {
        told(self.call("run_command", json!({ "command": line })).await)
    }

    /// Removes all that is its own.
    async fn close(self) {
        self.keeping.abort();
        self.docker.close().await;
    }
}

/// Commands as processes of this host, with more settings of `[sandbox]`.
fn processes(mut options: Value, planted: SandboxBug, root: Option<&Path>) -> Toolbox {
    options["run_in"] = json!("process");
    let options: SandboxOptions = serde_json::from_value(options).unwrap();
    options.check().unwrap();
    let processes = Processes::new(options.process.clone()).with_bug(planted).walled_by(steps());
    let commands = Commands::in_processes(&options, processes, root.map(Path::to_owned));
    Toolbox::new([Arc::new(commands) as Arc<dyn Executor>]).unwrap()
}

/// Who puts the second wall up.
fn steps() -> Steps {
    Steps { binary: binary().unwrap(), command: "sandboxed-exec".into() }
}

/// A run of a call, each of another job.
async fn call(
    toolbox: &Toolbox,
    tool: &str,
    arguments: Value,
    cancelled: CancellationToken,
) -> ToolOutcome {
    let Value::Object(arguments) = arguments else { unreachable!("arguments are an object") };
    let tool: clawnode_proto::ToolName = tool.parse().unwrap();
    let timeout = toolbox.find(&tool).map_or(30_000, |tool| tool.spec().timeout_ms);
    let call = CallId::from_u128(ulid());
    let run = ToolRun {
        call,
        agent: "main".parse().unwrap(),
        tool,
        arguments,
        idempotency_key: JobId::from(call).to_string(),
        timeout: Duration::from_millis(u64::from(timeout)),
        sink: clawnode_tool::RunSink::default(),
        shown: clawnode_tool::ShownMedia::default(),
        limit: None,
    };
    toolbox.execute(run, cancelled).await
}

/// Another number each time.
fn ulid() -> u128 {
    rand::random()
}

fn told(outcome: ToolOutcome) -> (Option<ToolFailure>, String) {
    let ToolOutcome { content, failure, media: _ } = outcome;
    (failure, content.inline().unwrap_or_default().to_owned())
}

/// An engine with busybox.
async fn engine() -> Result<Engine, ProcessError> {
    let engine = Engine::start().await?;
    engine.import_busybox().await?;
    Ok(engine)
}
