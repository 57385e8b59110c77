//! Who is who: nodes with one name, clusters on one prefix, clusters that were changed.

use clawnode_nats::{ConnectError, NatsOptions, connect};
use clawnode_tests::{
    nats::{NatsServer, ServerOptions},
    process::{Home, TestBackend},
};

use crate::support::{Result, node, refused};

fn home(server: &NatsServer) -> Result<Home> {
    let backend = TestBackend::Nats { url: server.url(), prefix: "cn".to_owned() };
    Ok(Home::new(backend)?.var("CLAWNODE_CLUSTER__PARTITIONS", "4"))
}

#[tokio::test]
async fn a_name_that_a_live_node_has_on_nats_is_refused() -> Result {
    let server = NatsServer::start(ServerOptions::default()).await?;
    let named = |name: &str| {
        Ok::<_, Box<dyn std::error::Error>>(home(&server)?.var("CLAWNODE_NODE__NAME", name))
    };
    let (first, twin) = (named("rack-1.a")?, named("rack-1.a")?);
    let holder = node(&first, "worker").await?;
    let ended = refused(&twin, "gateway").await?;
    assert_eq!(ended.code, 78, "{ended:?}");
    assert!(ended.err.contains("`rack-1.a`") && ended.err.contains("proc"), "{ended:?}");
    // Another name is free, and so is this one once its holder is gone.
    node(&named("rack-1-a")?, "worker").await?.stop().await?;
    holder.kill().await?;
    node(&twin, "gateway").await?.stop().await?;
    // Default names make room by themselves: several nodes of one host.
    let (one, two) = (home(&server)?, home(&server)?);
    let one = node(&one, "worker").await?;
    let two = node(&two, "worker").await?;
    one.stop().await?;
    two.stop().await?;
    Ok(())
}

#[tokio::test]
async fn a_node_knows_its_cluster_again_on_nats() -> Result {
    let server = NatsServer::start(ServerOptions::default()).await?;
    let first = home(&server)?;
    node(&first, "worker").await?.stop().await?;
    let known = std::fs::read_to_string(first.data().join("bus/cluster-id"))?;
    // The same prefix on other servers is another cluster.
    let elsewhere = NatsServer::start(ServerOptions::default()).await?;
    let moved = home(&elsewhere)?;
    node(&moved, "worker").await?.stop().await?;
    std::fs::write(moved.data().join("bus/cluster-id"), &known)?;
    let ended = refused(&moved, "worker").await?;
    assert_eq!(ended.code, 78, "{ended:?}");
    assert!(ended.err.contains(known.trim()) && ended.err.contains("data directory"), "{ended:?}");
    // And another number of partitions is refused before any work is taken.
    let ended = refused(&first.var("CLAWNODE_CLUSTER__PARTITIONS", "8"), "worker").await?;
    assert_eq!(ended.code, 78, "{ended:?}");
    assert!(ended.err.contains("created with 4 partitions"), "{ended:?}");
    Ok(())
}

#[tokio::test]
async fn without_jetstream_nats_is_refused_with_the_way_out() -> Result {
    let plain = ServerOptions { jetstream: false, ..ServerOptions::default() };
    let server = NatsServer::start(plain).await?;
    let ended = refused(&home(&server)?, "worker").await?;
    assert!(ended.code == 78 && ended.err.contains("jetstream {"), "{ended:?}");
    let error = connect(NatsOptions::new([server.url()])).await.err().unwrap();
    assert!(matches!(error, ConnectError::NoJetStream { .. }), "{error}");
    Ok(())
}
