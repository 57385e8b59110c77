//! The real stores, explained; and broken ones, found.

use std::sync::Arc;

use clawnode_cluster::{Storage, SystemClock};
use clawnode_local::{LocalOptions, open};
use clawnode_nats::{NatsOptions, Replicas, connect};
use clawnode_proto::subject::Prefix;
use clawnode_sim::{Bugs, Faults};
use clawnode_tests::{
    conformance::Result,
    nats::{NatsCluster, NatsServer, ServerOptions},
};

use crate::explain::{Allowed, Trace, explain};
use crate::operations::{ACK_WAIT, Op, PARTITION, PARTITIONS, operations};
use crate::operator::{Operator, Seen};
use crate::worlds::{real, simulated, world};

/// Runs sequences on a storage backend; `before` gets each operation that comes, or the end.
async fn observe(
    storage: Storage,
    seeds: std::ops::Range<u64>,
    mut before: impl FnMut(Option<Op>),
) -> Result<Vec<Trace>> {
    let mut consumer = storage.inbox.consume(PARTITION, 0).await?;
    let mut traces = Vec::new();
    for seed in seeds {
        let mut operator = Operator::new(storage.clone(), consumer, seed)?;
        let mut steps = Vec::new();
        for op in operations(seed) {
            before(Some(op));
            steps.push((op, operator.perform(op).await?));
        }
        traces.push(Trace { seed, steps });
        before(None);
        consumer = operator.leave().await?;
    }
    Ok(traces)
}

/// Fails with the first trace that no world shows.
fn all_explained(backend: &str, traces: &[Trace], allowed: Allowed) -> Result {
    let mut disturbed = 0;
    for trace in traces {
        disturbed += simulated(explain(trace, allowed, Bugs::default()))??;
    }
    let seen = |what: &Seen| -> usize {
        traces.iter().flat_map(|trace| &trace.steps).filter(|(_, seen)| seen.has(what)).count()
    };
    let steps: usize = traces.iter().map(|trace| trace.steps.len()).sum();
    let (stored, refused) = (seen(&Seen::Stored { above: true }), seen(&Seen::Refused));
    let unknown = seen(&Seen::Unknown);
    println!(
        "{backend}: {steps} steps, {stored} stored, {refused} refused, {unknown} without an answer; \
         {disturbed} only by a fault"
    );
    assert!(stored > steps / 20 && refused > steps / 20, "the sequences exercise too little");
    Ok(())
}

/// How many of some sequences, seen in a world with some bugs, no world with others shows.
fn unexplained(seen_with: Bugs, explained_with: Bugs) -> Result<usize> {
    let traces = simulated(async {
        let (_stores, storage) = world(seen_with);
        observe(storage, 0..10, |_| {}).await
    })?;
    let mut count = 0;
    for trace in &traces {
        let explained = simulated(explain(trace, Allowed::default(), explained_with))?;
        count += usize::from(explained.is_err());
    }
    Ok(count)
}

#[test]
fn local_does_what_a_world_can() -> Result {
    let dir = tempfile::tempdir()?;
    let traces = real(async {
        let mut options = LocalOptions::new(Prefix::default(), Arc::new(SystemClock));
        (options.ack_wait, options.partitions, options.head_room) = (ACK_WAIT, PARTITIONS, 0);
        let (storage, _control) = open(dir.path(), options)?;
        let traces = observe(storage.clone(), 0..40, |_| {}).await?;
        storage.health.close().await;
        Ok(traces)
    })?;
    all_explained("local", &traces, Allowed::default())
}

async fn on_nats(urls: Vec<String>, replicas: Replicas) -> Result<Vec<Trace>> {
    let options = NatsOptions {
        partitions: Some(PARTITIONS),
        replicas,
        ack_wait: ACK_WAIT,
        ..NatsOptions::new(urls)
    };
    let storage = connect(options).await?;
    let traces = observe(storage.clone(), 0..20, |_| {}).await?;
    storage.health.close().await;
    Ok(traces)
}

#[test]
fn nats_r1_does_what_a_world_can() -> Result {
    let traces = real(async {
        let server = NatsServer::start(ServerOptions::default()).await?;
        on_nats(vec![server.url()], Replicas::One).await
    })?;
    all_explained("nats R1", &traces, Allowed { unknown: true, spurious: false })
}

#[test]
fn nats_r3_does_what_a_world_can() -> Result {
    let traces = real(async {
        let cluster = NatsCluster::start(3, ServerOptions::default()).await?;
        on_nats(cluster.urls(), Replicas::Three).await
    })?;
    all_explained("nats R3", &traces, Allowed { unknown: true, spurious: true })
}

/// The search itself: a world that loses requests and answers is explained, and not by a calm one.
#[test]
fn writes_without_an_answer_are_explained() -> Result {
    let traces = simulated(async {
        let (stores, storage) = world(Bugs::default());
        let mut seed = 0;
        observe(storage, 0..10, |op| {
            seed += 1;
            let mut faults = Faults::none();
            if let Some(Op::Append { .. } | Op::AppendPair { .. } | Op::Set { .. }) = op {
                (faults.lost_request, faults.lost_answer) = (0.1, 0.2);
            }
            stores.disturb(seed, faults);
        })
        .await
    })?;
    all_explained("a world that loses", &traces, Allowed { unknown: true, spurious: false })?;
    for trace in traces {
        let lost = trace.steps.iter().any(|(_, seen)| seen.has(&Seen::Unknown));
        let calm = simulated(explain(&trace, Allowed::default(), Bugs::default()))?;
        assert_eq!(calm.is_err(), lost, "only losses need faults");
    }
    Ok(())
}

#[test]
fn a_store_that_refuses_nothing_is_found() -> Result {
    let (sound, planted) = (Bugs::default(), Bugs { no_fencing: true, ..Bugs::default() });
    assert_eq!(unexplained(sound, sound)?, 0);
    assert_eq!(unexplained(planted, sound)?, 10, "as a real store");
    assert_eq!(unexplained(sound, planted)?, 10, "as a world that explains");
    Ok(())
}

#[test]
fn a_store_that_forgets_on_delivery_is_found() -> Result {
    let planted = Bugs { forget_on_delivery: true, ..Bugs::default() };
    assert!(unexplained(planted, Bugs::default())? > 5);
    Ok(())
}
