//! What the crash tests share.

use std::path::PathBuf;

use clawnode_tests::{
    model::{Logged, ModelServer, Script, Setup, read_log},
    nats::{NatsServer, ServerOptions},
    process::{Client, Found, Home, Message, Node, ProcessError, Start, TestBackend, judge, sound},
};
use tempfile::TempDir;

pub(crate) type Outcome = Result<(), ProcessError>;

/// What a scene's nodes stand on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Under {
    Local,
    Nats,
}

/// A model server, a home that uses it, and how often a node was killed there.
pub(crate) struct Scene {
    pub(crate) server: ModelServer,
    pub(crate) home: Home,
    pub(crate) kills: u32,
    pub(crate) backend: TestBackend,
    /// The bus, if it is not the test's own.
    pub(crate) nats: Option<NatsServer>,
    log: PathBuf,
    _dir: TempDir,
}

impl Scene {
    pub(crate) async fn new(script: Script) -> Self {
        Self::on(Under::Local, script).await
    }

    pub(crate) async fn on(under: Under, script: Script) -> Self {
        if under == Under::Local {
            return Self::at(TestBackend::Local, None, script).await;
        }
        let nats = NatsServer::start(ServerOptions::default()).await.unwrap();
        let backend = TestBackend::Nats { url: nats.url(), prefix: "crash".to_owned() };
        Self::at(backend, Some(nats), script).await
    }

    pub(crate) async fn at(backend: TestBackend, nats: Option<NatsServer>, script: Script) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("calls.jsonl");
        let setup = Setup {
            log: Some(log.clone()),
            api_key: Some(Home::key().to_owned()),
            ..Setup::from(script)
        };
        let server = ModelServer::start(setup).await.unwrap();
        // Fewer than usual, so that a cluster is born sooner.
        let home = Home::new(backend.clone()).unwrap().anthropic(&server);
        let home = home.var("CLAWNODE_CLUSTER__PARTITIONS", "8");
        Self { server, home, kills: 0, backend, nats, log, _dir: dir }
    }

    /// The same, with a variable in the environment of its nodes.
    pub(crate) fn with_var(mut self, name: &str, value: &str) -> Self {
        self.home = self.home.var(name, value);
        self
    }

    /// Writes the configuration of its nodes.
    pub(crate) fn configure(&self, config: &str) {
        let file = self.home.path().join(".config/clawnode/config.toml");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, config).unwrap();
    }

    /// A node that kills itself at `point` is given `message`, and dies of it.
    pub(crate) async fn die_at(&mut self, point: &str, message: &Message) -> Outcome {
        let mut node = Node::start(&self.home, Start::killed(point)).await?;
        // Accepted or not: the answer is lost with the process, or came just before.
        match node.client()?.chat(message).await {
            Ok(_) => {}
            Err(error) if error.is_lost() => {}
            Err(error) => return Err(error),
        }
        self.died(&mut node).await
    }

    /// A node dies by its own kill.
    pub(crate) async fn died(&mut self, node: &mut Node) -> Outcome {
        use std::os::unix::process::ExitStatusExt;
        let status = node.ended().await?;
        assert_eq!(status.signal(), Some(9), "{status}");
        self.kills += 1;
        Ok(())
    }

    /// A node that finds what it finds at its start, and dies of it, ready or not.
    pub(crate) async fn die_at_start(&mut self, point: &str) -> Outcome {
        match Node::start(&self.home, Start::killed(point)).await {
            Ok(mut node) => self.died(&mut node).await,
            Err(ProcessError::NotReady { status, .. }) => {
                assert!(status.contains("SIGKILL"), "{status}");
                self.kills += 1;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// What the model server was asked.
    pub(crate) fn asked(&self) -> Vec<Logged> {
        read_log(&self.log).unwrap()
    }

    /// All of `messages` are sent again under their keys and answered, then judged.
    pub(crate) async fn settle(&self, messages: &[Message]) -> Result<Found, ProcessError> {
        let node = Node::up(&self.home).await?;
        let client = node.client()?;
        for message in messages {
            client.chat(message).await?;
        }
        let found = self.judge(&client, messages).await?;
        node.stop().await?;
        if matches!(self.backend, TestBackend::Local) {
            // And again by the command itself, where no node runs.
            sound(&self.home).await?;
        }
        Ok(found)
    }

    /// The judge's word on `messages`, and the journals'.
    pub(crate) async fn judge(
        &self,
        client: &Client,
        messages: &[Message],
    ) -> Result<Found, ProcessError> {
        let found = judge(client, messages, &self.asked(), self.kills).await?;
        assert!(sound(&self.home).await? > 0, "there are journals");
        Ok(found)
    }
}
