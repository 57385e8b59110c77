//! A gateway and workers with names, on one NATS server.

use std::collections::BTreeMap;

use clawnode_proto::{
    ProcessId,
    view::{EventView, StatusView},
};
use clawnode_tests::process::{Client, Message, Node, ProcessError, Start};
use serde_json::{Value, json};

use super::support::{Outcome, Scene};

/// What a variable of a node's environment is.
pub(crate) type Var = (&'static str, String);

/// A gateway and workers with names.
pub(crate) struct Fleet {
    pub(crate) gateway: Node,
    pub(crate) client: Client,
    pub(crate) workers: BTreeMap<&'static str, Node>,
}

impl Fleet {
    /// A gateway without workers.
    pub(crate) async fn new(scene: &Scene) -> Result<Self, ProcessError> {
        Self::with(scene, Vec::new()).await
    }

    /// The same, with these variables at the gateway.
    pub(crate) async fn with(scene: &Scene, vars: Vec<Var>) -> Result<Self, ProcessError> {
        let start = Start { vars, ..Start::role("gateway") };
        let gateway = Node::start(&scene.home, start).await?;
        Ok(Self { client: gateway.client()?, gateway, workers: BTreeMap::new() })
    }

    /// Adds a worker, and waits until the gateway knows it.
    pub(crate) async fn add(&mut self, scene: &Scene, name: &'static str) -> Outcome {
        self.add_with(scene, name, Vec::new()).await
    }

    /// The same, with these variables at the worker.
    pub(crate) async fn add_with(
        &mut self,
        scene: &Scene,
        name: &'static str,
        mut vars: Vec<Var>,
    ) -> Outcome {
        vars.push(("CLAWNODE_NODE__NAME", name.to_owned()));
        let worker = Node::start(&scene.home, Start { vars, ..Start::role("worker") }).await?;
        let process = worker.process().unwrap();
        self.workers.insert(name, worker);
        self.status_when(|status| status.nodes.iter().any(|node| node.process == process)).await?;
        Ok(())
    }

    /// The cluster's status, once this is so.
    pub(crate) async fn status_when(
        &self,
        enough: impl Fn(&StatusView) -> bool,
    ) -> Result<StatusView, ProcessError> {
        self.client.call_when("status", json!({}), enough).await
    }

    /// Once the gateway has heard that the worker drains.
    pub(crate) async fn drains(&self, name: &str) -> Outcome {
        let draining = |status: &StatusView| {
            status.nodes.iter().any(|node| node.node.as_str() == name && node.draining)
        };
        self.status_when(draining).await.map(drop)
    }

    /// The session's journal.
    pub(crate) async fn journal(&self, message: &Message) -> Result<Vec<EventView>, ProcessError> {
        self.client.journal(&message.session()).await
    }

    /// The processes that claimed the session, in order.
    pub(crate) async fn claims(&self, message: &Message) -> Result<Vec<ProcessId>, ProcessError> {
        let journal = self.journal(message).await?;
        let claims = journal.iter().filter(|event| event.kind == "claim");
        Ok(claims.map(|event| event.incarnation.process).collect())
    }

    /// The worker of this process.
    pub(crate) fn name_of(&self, process: ProcessId) -> Option<&'static str> {
        let mut all = self.workers.iter();
        all.find(|(_, node)| node.process() == Some(process)).map(|(name, _)| *name)
    }

    /// The worker that owns the session.
    pub(crate) async fn owner(&self, message: &Message) -> Result<&'static str, ProcessError> {
        let claims = self.claims(message).await?;
        Ok(claims.last().and_then(|last| self.name_of(*last)).unwrap())
    }

    /// A worker other than this.
    pub(crate) fn other(&self, name: &str) -> &'static str {
        self.workers.keys().copied().find(|other| *other != name).unwrap()
    }

    /// One worker, taken out.
    pub(crate) fn take(&mut self, name: &str) -> Node {
        self.workers.remove(name).unwrap()
    }

    pub(crate) async fn stop(self) -> Outcome {
        self.gateway.stop().await?;
        for worker in self.workers.into_values() {
            worker.stop().await?;
        }
        Ok(())
    }
}

/// Runs `clawnode ARGS` on the scene's home; anything but this exit code is an error.
pub(crate) async fn cli(scene: &Scene, args: &[&str], code: i32) -> Result<Value, ProcessError> {
    let args: Vec<&str> = args.iter().copied().chain(["--json"]).collect();
    let ended = scene.home.run(&args).await?;
    assert_eq!(ended.code, code, "{args:?}: {ended:?}");
    let text = if code == 0 { &ended.out } else { &ended.err };
    serde_json::from_str(text)
        .map_err(|error| ProcessError::Protocol(format!("{error}: {ended:?}")))
}
