//! Commands on other hosts, over SSH: a real `sshd`.
#![expect(clippy::unwrap_used, reason = "helpers of tests: their panic is the test's failure")]

#[cfg(feature = "wasm")]
mod examples;
mod keys;
mod node;
mod runs;
mod server;
#[cfg(feature = "wasm")]
mod two_hosts;

use std::{sync::Arc, time::Duration};

use clawnode_cluster::{Bucket, SystemClock};
use clawnode_executors::ssh::{SshContext, SshHost, SshHostOptions};
use clawnode_local as local;
use clawnode_proto::{CallId, JobId, session::ToolEnd, tool::ToolFailure};
use clawnode_tests::process::ProcessError;
use clawnode_tool::{Executor, ToolRun, Toolbox};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

type Outcome = Result<(), ProcessError>;

/// What nodes of a cluster share: a bucket.
struct Cluster {
    bucket: Arc<dyn Bucket>,
    _dir: TempDir,
}

impl Cluster {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = local::LocalOptions::new("cn".parse().unwrap(), Arc::new(SystemClock));
        let (storage, _control) = local::open(dir.path(), options).unwrap();
        Self { bucket: storage.bucket, _dir: dir }
    }

    fn context(&self, node: &str) -> SshContext {
        SshContext::new(self.bucket.clone(), node.parse().unwrap(), Arc::new(SystemClock))
    }

    /// What a node of it runs commands with.
    fn host(&self, node: &str, options: SshHostOptions) -> Arc<SshHost> {
        Arc::new(SshHost::new(options, self.context(node)))
    }
}

fn toolbox(host: Arc<SshHost>) -> Toolbox {
    Toolbox::new([host as Arc<dyn Executor>]).unwrap()
}

/// A run of a call.
async fn end(toolbox: &Toolbox, arguments: Value, cancelled: CancellationToken) -> ToolEnd {
    let Value::Object(arguments) = arguments else { unreachable!("arguments are an object") };
    let call = CallId::from_u128(rand::random());
    let run = ToolRun {
        call,
        agent: "main".parse().unwrap(),
        tool: "ssh_db".parse().unwrap(),
        arguments,
        idempotency_key: JobId::from(call).to_string(),
        timeout: Duration::from_secs(140),
        limit: None,
        sink: clawnode_tool::RunSink::default(),
        shown: clawnode_tool::ShownMedia::default(),
    };
    toolbox.end(run, cancelled).await
}

/// The same for a line; how it failed, and the text of its outcome.
async fn sh(toolbox: &Toolbox, line: &str) -> (Option<ToolFailure>, String) {
    told(end(toolbox, json!({ "command": line }), CancellationToken::new()).await)
}

fn told(end: ToolEnd) -> (Option<ToolFailure>, String) {
    match end {
        ToolEnd::Known { outcome } => {
            (outcome.failure, outcome.content.inline().unwrap_or_default().to_owned())
        }
        ToolEnd::Uncertain { detail } => unreachable!("{detail}"),
    }
}
