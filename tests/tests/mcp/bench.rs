//! One MCP server on a store of its own, without a node.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use clawnode_cluster::{Bucket, Storage, SystemClock, membership::Members};
use clawnode_executors::mcp::{
    self, McpBug, McpContext, McpOptions, McpServer, McpTools, McpTransport, Pins, StdioOptions,
};
use clawnode_guard::kill_switch::SwitchGate;
use clawnode_kernel::job_machine::Probe;
use clawnode_local as local;
use clawnode_proto::{CallId, ProcessId, tool::ToolOutcome};
use clawnode_tests::{
    mcp::{MARK, hostile, marked},
    wait::until,
};
use clawnode_tool::{Executor, ToolRun, Toolbox};
use tempfile::TempDir;
use tokio::{sync::watch, task::JoinHandle};
use tokio_util::sync::CancellationToken;

pub(crate) struct Bench {
    pub(crate) server: McpServer,
    pub(crate) tools: Arc<McpTools>,
    pub(crate) storage: Storage,
    pub(crate) pins: watch::Receiver<Pins>,
    pub(crate) mark: String,
    pub(crate) gate: SwitchGate,
    _dir: TempDir,
    tasks: Vec<JoinHandle<()>>,
    _members: watch::Sender<Members>,
}

/// The server that does harm in this way, with further arguments.
pub(crate) fn harmful(mode: &str, args: &[String]) -> McpOptions {
    let mut all = vec![hostile().display().to_string(), mode.to_owned()];
    all.extend_from_slice(args);
    let stdio = StdioOptions {
        command: "python3".to_owned(),
        args: all,
        env: BTreeMap::from([("KEY".to_owned(), "hunter22".to_owned().into())]),
        cwd: "/".into(),
        hidden: None,
        base_env: BTreeMap::from([("PATH".to_owned(), std::env::var("PATH").unwrap())]),
        keeper: (keeper(), "mcp-keeper".to_owned()),
    };
    let mut options = McpOptions::new("bad".parse().unwrap(), McpTransport::Stdio(stdio));
    options.start_timeout = Duration::from_secs(5);
    options.restart_first = Duration::from_millis(50);
    options
}

fn keeper() -> PathBuf {
    std::env::var_os("CLAWNODE_BIN").map_or_else(
        || std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().join("clawnode"),
        PathBuf::from,
    )
}

fn run(tool: &str, arguments: serde_json::Map<String, serde_json::Value>) -> ToolRun {
    ToolRun {
        call: CallId::from_u128(7),
        agent: "main".parse().unwrap(),
        tool: tool.parse().unwrap(),
        arguments,
        idempotency_key: "job_7".to_owned(),
        timeout: Duration::from_secs(30),
        limit: None,
        sink: clawnode_tool::RunSink::default(),
        shown: clawnode_tool::ShownMedia::default(),
    }
}

impl Bench {
    pub(crate) fn start(options: McpOptions) -> Self {
        Self::with_bug(options, McpBug::None)
    }

    /// One that keeps what is approved in this bucket.
    pub(crate) fn on_bucket(options: McpOptions, bucket: Box<dyn Bucket>) -> Self {
        Self::made(options, McpBug::None, Some(bucket.into()))
    }

    pub(crate) fn with_bug(options: McpOptions, planted: McpBug) -> Self {
        Self::made(options, planted, None)
    }

    fn made(mut options: McpOptions, planted: McpBug, bucket: Option<Arc<dyn Bucket>>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mark = dir.path().display().to_string();
        if let McpTransport::Stdio(stdio) = &mut options.transport {
            stdio.env.insert(MARK.to_owned(), mark.clone().into());
        }
        let local = local::LocalOptions::new("cn".parse().unwrap(), Arc::new(SystemClock));
        let (storage, _control) = local::open(dir.path(), local).unwrap();
        let (tell, pins) = watch::channel(Pins::default());
        let (members, peers) = watch::channel(Members::default());
        let gate = SwitchGate::default();
        let context = McpContext {
            bucket: bucket.unwrap_or_else(|| Arc::clone(&storage.bucket)),
            clock: Arc::new(SystemClock),
            node: "bench".parse().unwrap(),
            process: ProcessId::from_u128(1),
            shared: false,
            peers,
            pins: pins.clone(),
            switch_gate: gate.clone(),
        };
        let server = McpServer::with_bug(options, context, planted);
        let follow = mcp::follow(Arc::clone(&storage.bucket), tell);
        let tasks = vec![tokio::spawn(follow), tokio::spawn(server.clone().run())];
        let tools = Arc::new(McpTools::new(server.clone()));
        Self { server, tools, storage, pins, mark, gate, _dir: dir, tasks, _members: members }
    }

    /// Once it is up and its tools are known.
    pub(crate) async fn up(&self) {
        until("the server is up", async || {
            Ok((self.tools.health_check().await.is_ok() && !self.tools.tools().is_empty())
                .then_some(()))
        })
        .await
        .unwrap();
    }

    /// Once it is down with these words.
    pub(crate) async fn down(&self, words: &str) -> String {
        let mut last = String::new();
        let down = until(words, async || {
            let health = self.tools.health_check().await;
            last = health.err().unwrap_or_default();
            Ok(last.contains(words).then(|| last.clone()))
        });
        down.await.unwrap()
    }

    /// Calls one of its tools.
    pub(crate) async fn call(&self, tool: &str, timeout: Duration) -> ToolOutcome {
        let run = ToolRun { timeout, ..run(tool, serde_json::Map::new()) };
        self.toolbox().execute(run, CancellationToken::new()).await
    }

    /// Asks whether a call of a tool with these arguments has happened.
    pub(crate) async fn probe(&self, tool: &str, arguments: serde_json::Value) -> Probe {
        let arguments = arguments.as_object().cloned().unwrap();
        self.toolbox().probe(run(tool, arguments)).await
    }

    fn toolbox(&self) -> Toolbox {
        let executor: Arc<dyn Executor> = self.tools.clone();
        Toolbox::new([executor]).unwrap()
    }

    /// Ends it; nothing of it may be left.
    pub(crate) async fn stop(self) {
        self.server.stop().await;
        assert_eq!(marked(&self.mark), Vec::<i32>::new(), "MCP-1: nothing is left of it");
        for task in &self.tasks {
            task.abort();
        }
        self.storage.health.close().await;
    }
}
