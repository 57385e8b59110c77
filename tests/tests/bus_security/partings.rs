//! A node that is given a credential of the system account hears whose connection has ended.

use clawnode_nats::{NatsOptions, auth::BusRole, connect};
use clawnode_proto::ProcessId;
use tokio::time::timeout;

use crate::support::{Operator, PATIENCE, Result, now};

#[tokio::test]
async fn a_system_credential_hears_of_ended_connections_on_nats() -> Result {
    let operator = Operator::new(1).await?;
    operator.token("worker").await?;
    let mut authority = operator.authority()?;
    let file = operator.home.data().join("listener.creds");
    std::fs::write(&file, authority.listener(now(), 600)?.to_creds())?;
    let worker = authority.issue(BusRole::Worker, "w", now(), 600)?;

    let hears = NatsOptions { sys_credentials: Some(file), ..operator.options(&worker) };
    let hears = connect(hears).await?;
    let mut partings = hears.bus.partings().ok_or("it hears nothing")?;
    let plain = connect(operator.options(&worker)).await?;
    assert!(plain.bus.partings().is_none(), "it was given nothing to hear with");
    let process = ProcessId::from_u128(7);
    let other = NatsOptions { process: Some(process), ..operator.options(&worker) };
    connect(other).await?.health.close().await;
    assert_eq!(timeout(PATIENCE, partings.recv()).await??, process);
    let log = operator.nats.log();
    assert!(!log.contains("Violation"), "{log}");
    Ok(())
}
