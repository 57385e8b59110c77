//! The operator's view of a cluster on NATS: one gateway, two workers, one that dies.

use std::{collections::BTreeSet, process::Stdio};

use clawnode_proto::{
    NodeName,
    feed::EventBody,
    overview::{DeadView, FeedView, NodeList, PartitionList, StatsView, TreeView},
    tree::{Branch, ProcessTree},
    view::{SessionList, SessionRow, StatusView},
};
use clawnode_tests::{
    model::{ModelServer, Script},
    nats::{NatsServer, ServerOptions},
    process::{Client, Home, Message, Node, ProcessError, Start, TestBackend},
    wait::until,
};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

use super::Outcome;

/// Fewer than usual, so that a cluster is born sooner.
const PARTITIONS: u16 = 8;

/// One gateway and two workers.
struct Cluster {
    home: Home,
    gateway: Node,
    client: Client,
    first: Node,
    second: Node,
    _server: ModelServer,
    _nats: NatsServer,
}

fn named(role: &'static str, name: &str) -> Start {
    let vars = vec![("CLAWNODE_NODE__NAME", name.to_owned())];
    Start { role: Some(role), vars, ..Start::default() }
}

impl Cluster {
    async fn start() -> Result<Self, ProcessError> {
        let nats = NatsServer::start(ServerOptions::default()).await.unwrap();
        let server = ModelServer::start(Script::default()).await.unwrap();
        let backend = TestBackend::Nats { url: nats.url(), prefix: "ops".to_owned() };
        let home = Home::new(backend)?.anthropic(&server);
        let home = home.var("CLAWNODE_CLUSTER__PARTITIONS", &PARTITIONS.to_string());
        let gateway = Node::start(&home, named("gateway", "front")).await?;
        let client = gateway.client()?;
        let first = Node::start(&home, named("worker", "worker-1")).await?;
        let second = Node::start(&home, named("worker", "worker-2")).await?;
        let all = |list: &NodeList| list.nodes.len() == 3;
        let _: NodeList = client.call_when("nodes.list", json!({}), all).await?;
        Ok(Self { home, gateway, client, first, second, _server: server, _nats: nats })
    }

    /// A command's document.
    async fn document<T: serde::de::DeserializeOwned>(
        &self,
        args: &[&str],
    ) -> Result<T, ProcessError> {
        let ended = self.home.run(&[args, &["-o", "json"]].concat()).await?;
        assert_eq!(ended.code, 0, "{ended:?}");
        Ok(serde_json::from_value(ended.json()?).unwrap())
    }

    /// The same, once this is so of it.
    async fn document_when<T: serde::de::DeserializeOwned>(
        &self,
        args: &[&str],
        enough: impl Fn(&T) -> bool,
    ) -> Result<T, ProcessError> {
        let what = format!("what is expected of `clawnode {args:?}`");
        until(&what, async || Ok(Some(self.document(args).await?).filter(&enough))).await
    }

    /// What happened, once `enough` of it did.
    async fn events_when(
        &self,
        enough: impl Fn(&[EventBody]) -> bool,
    ) -> Result<Vec<EventBody>, ProcessError> {
        let bodies = |feed: &FeedView| -> Vec<EventBody> {
            feed.events.iter().map(|row| row.event.what.clone()).collect()
        };
        let params = json!({ "limit": 1_000 });
        let feed: FeedView =
            self.client.call_when("events.list", params, |feed| enough(&bodies(feed))).await?;
        Ok(bodies(&feed))
    }

    async fn stop(self) -> Outcome {
        self.gateway.stop().await?;
        self.first.stop().await?;
        self.second.stop().await
    }
}

fn name(text: &str) -> NodeName {
    text.parse().unwrap()
}

fn find<'a>(branches: &'a [Branch], kind: &str) -> Vec<&'a Branch> {
    branches
        .iter()
        .flat_map(|branch| {
            let own = (branch.kind == kind).then_some(branch);
            own.into_iter().chain(find(&branch.children, kind))
        })
        .collect()
}

/// A process of the tree has what its roles run, and the session if it is the owner.
fn is_as_it_runs(process: &ProcessTree, session: &SessionRow) {
    let ProcessTree { branches, .. } = process;
    let gateways = find(branches, "gateway").len();
    assert_eq!(gateways, usize::from(process.node == name("front")));
    assert_eq!(find(branches, "agent").len(), 1, "{branches:?}");
    assert!(find(branches, "task").iter().any(|task| task.name == "membership"));
    let entities = find(branches, "entity");
    if Some(process.process) == session.owner {
        assert_eq!(Some(&process.node), session.node.as_ref());
        assert_eq!(
            (entities[0].name.clone(), entities[0].state.as_str()),
            (session.id.to_string(), "active")
        );
    } else {
        assert!(entities.is_empty(), "{entities:?}");
    }
    let groups = find(branches, "group");
    match groups.first() {
        Some(all) => {
            assert_eq!(all.children.len() as u64 + all.more, u64::from(PARTITIONS));
        }
        None => assert_eq!(process.node, name("front"), "workers have dispatchers"),
    }
}

#[tokio::test]
async fn nodes_partitions_and_trees_are_those_of_the_cluster() -> Outcome {
    let cluster = Cluster::start().await?;
    let nodes: NodeList = cluster.document(&["nodes"]).await?;
    let names: Vec<&str> = nodes.nodes.iter().map(|node| node.node.as_str()).collect();
    assert_eq!(names, ["front", "worker-1", "worker-2"]);

    let message = Message::new("ada", "hello");
    cluster.client.chat(&message).await?;

    // A store that takes its time leaves the counts out.
    let counted = |list: &PartitionList| {
        list.partitions.iter().all(|one| one.waiting.is_some() && one.in_hand.is_some())
    };
    let list: PartitionList = cluster.document_when(&["partitions"], counted).await?;
    assert_eq!(list.partitions.len(), usize::from(PARTITIONS));
    let workers: BTreeSet<_> =
        [&cluster.first, &cluster.second].map(|node| node.process().unwrap()).into();
    for partition in &list.partitions {
        assert_eq!(partition.serve.iter().copied().collect::<BTreeSet<_>>(), workers);
    }
    let idle = |list: &PartitionList| {
        list.partitions
            .iter()
            .all(|partition| (partition.waiting, partition.in_hand) == (Some(0), Some(0)))
    };
    let _: PartitionList = cluster.client.call_when("partitions.list", json!({}), idle).await?;

    // The session is in the memory of one worker, and every node shows which.
    let sessions: SessionList = cluster.document(&["sessions", "list"]).await?;
    let session = &sessions.sessions[0];
    assert!(session.owner.is_some() && session.node.is_some(), "{session:?}");
    // Who does not answer at once is left out.
    let whole = |tree: &TreeView| {
        let mut all =
            tree.processes.iter().flat_map(|process| find(&process.branches, "dispatcher"));
        tree.silent.is_empty() && all.all(|one| one.state != "silent")
    };
    let tree: TreeView = cluster.document_when(&["tree"], whole).await?;
    assert_eq!(tree.processes.len(), 3);
    for process in &tree.processes {
        is_as_it_runs(process, session);
    }
    let one: TreeView = cluster.document_when(&["tree", "worker-2"], whole).await?;
    assert_eq!(
        one.processes.iter().map(|process| &process.node).collect::<Vec<_>>(),
        [&name("worker-2")]
    );
    let ended = cluster.home.run(&["tree", "absent"]).await?;
    assert_eq!(ended.code, 1, "{ended:?}");
    assert!(ended.err.contains("clawnode nodes"), "{ended:?}");

    let answered = |status: &StatusView| {
        let stores = status.bus.as_ref().map(|bus| &bus.stores);
        stores.is_some_and(|stores| stores.iter().all(|store| store.problem.is_none()))
    };
    let status: StatusView = cluster.document_when(&["status"], answered).await?;
    assert_eq!((status.sessions, status.nodes.len()), (1, 3));
    let bus = status.bus.unwrap();
    assert_eq!(bus.stores.len(), 6);
    assert!(bus.stores.iter().all(|store| store.replicas == 1), "{bus:?}");
    // What nothing can be done about is no warning.
    assert_eq!(status.warnings, []);
    cluster.stop().await
}

#[tokio::test]
async fn what_happens_is_told_without_a_word_of_a_conversation() -> Outcome {
    let cluster = Cluster::start().await?;
    let mut command = cluster.home.command(&["events", "--follow", "--json"]);
    let mut following = command.stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines();

    let message = Message::new("ada", "the cat is called Schnurrli");
    cluster.client.chat(&message).await?;
    let mut told = Vec::new();
    let mut names = Vec::new();
    while names.last().is_none_or(|last| last != "turn_ended") {
        let line = lines.next_line().await.unwrap().expect("it follows until it is stopped");
        let row: Value = serde_json::from_str(&line).unwrap();
        names.push(row["event"]["what"]["type"].as_str().unwrap().to_owned());
        told.push(line);
    }
    assert!(told.iter().all(|line| !line.contains("Schnurrli")), "{told:?}");
    let at = |name: &str| names.iter().position(|event| event == name);
    assert!(at("turn_started") < at("turn_ended") && at("turn_started").is_some(), "{names:?}");
    assert_eq!(names.iter().filter(|event| *event == "node_joined").count(), 3, "{names:?}");
    following.kill().await.unwrap();

    // Someone who waits for the next event is answered when there is one, and the counts agree.
    let feed: FeedView = cluster.client.call("events.list", json!({})).await?;
    assert_eq!((feed.turns.ended, feed.turns.unsuccessful), (1, 0));
    let wait = json!({ "cursor": feed.next, "wait_ms": 10_000 });
    let more = Message::new("ada", "more");
    let (next, chatted) = tokio::join!(
        cluster.client.call::<FeedView>("events.list", wait),
        cluster.client.chat(&more)
    );
    chatted?;
    assert!(!next?.events.is_empty());
    // A client may hear of the end before operators do.
    let both = |stats: &StatsView| (stats.turns, stats.turn.samples) == (2, 2);
    let stats: StatsView = cluster.client.call_when("stats.show", json!({}), both).await?;
    assert!(stats.turn.p50_ms.is_some() && stats.first_text.p99_ms.is_some());
    cluster.stop().await
}

#[tokio::test]
#[expect(clippy::used_underscore_binding, reason = "handed on, to be kept until the end")]
async fn a_worker_that_dies_or_differs_is_shown_to_people() -> Outcome {
    let cluster = Cluster::start().await?;
    let gone = cluster.first.process().unwrap();
    let Cluster { home, gateway, client, first, second, _server, _nats } = cluster;
    first.kill().await?;
    let known = |dead: &DeadView| {
        dead.process == gone
            && dead.node == Some(name("worker-1"))
            && dead.ago_ms.is_some()
            && !dead.replaced
    };
    let dead = |list: &NodeList| list.dead.iter().any(known) && list.nodes.len() == 2;
    let _: NodeList = client.call_when("nodes.list", json!({}), dead).await?;

    // Another takes its place, with other agents.
    let mut start = named("worker", "worker-1");
    start.vars.push(("CLAWNODE_AGENTS__DEFAULT__STEP_LIMIT", "7".to_owned()));
    let first = Node::start(&home, start).await?;
    let cluster = Cluster { home, gateway, client, first, second, _server, _nats };
    let differs = |status: &StatusView| {
        status.warnings.iter().any(|warning| warning.name == "agents.config_differs")
    };
    let status: StatusView = cluster.client.call_when("status", json!({}), differs).await?;
    let configs: BTreeSet<_> = status.nodes.iter().map(|node| node.config).collect();
    assert_eq!(configs.len(), 2);
    let expected = EventBody::NodeDead { process: gone, node: Some(name("worker-1")) };
    let events = cluster
        .events_when(|events| {
            let warned = |body: &EventBody| {
                matches!(body, EventBody::Warning { name, .. }
                if name == "agents.config_differs")
            };
            events.contains(&expected) && events.iter().any(warned)
        })
        .await?;
    assert_eq!(
        events.iter().filter(|event| **event == expected).count(),
        1,
        "the eldest tells it once"
    );

    let ended = cluster.home.run(&["status"]).await?;
    assert!(ended.out.contains("agents.config_differs"), "{ended:?}");
    assert!(!ended.out.contains(&gone.to_string()), "one that lives has its name: {ended:?}");
    let wide = cluster.home.run(&["nodes", "-o", "wide"]).await?;
    assert!(wide.out.contains(&gone.to_string()), "{wide:?}");
    assert!(wide.out.contains(&cluster.second.process().unwrap().to_string()), "{wide:?}");

    // Who stops in good order has left, and is not dead.
    let Cluster { home, gateway, client, first, second, _server, _nats } = cluster;
    second.stop().await?;
    let params = json!({ "limit": 1_000 });
    let left = |feed: &FeedView| {
        let mut events = feed.events.iter().filter(|row| row.event.node == name("worker-2"));
        events.any(|row| row.event.what == EventBody::NodeLeft)
    };
    let _: FeedView = client.call_when("events.list", params, left).await?;
    gateway.stop().await?;
    first.stop().await?;
    drop(home);
    Ok(())
}
