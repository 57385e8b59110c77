//! Reports of servers to their system account: whose connection has ended.

use async_nats::Client;
use clawnode_proto::ProcessId;
use futures_util::StreamExt;
use serde::Deserialize;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

/// The end of any connection of any account.
pub(super) const DISCONNECTS: &str = "$SYS.ACCOUNT.*.DISCONNECT";
/// The server's reason when it ends itself: then its clients live, and connect to another one.
const SHUTDOWN: &str = "Server Shutdown";

/// The part of the event that matters here.
#[derive(Deserialize)]
struct Disconnect {
    client: Who,
    #[serde(default)]
    reason: String,
}

#[derive(Deserialize)]
struct Who {
    #[serde(default)]
    name: String,
}

/// Listens with the rights of the system account, until `closing`.
pub(super) async fn watch(
    sys: Client,
    partings: broadcast::Sender<ProcessId>,
    closing: CancellationToken,
) -> Result<(), async_nats::SubscribeError> {
    let mut events = sys.subscribe(DISCONNECTS).await?;
    tokio::spawn(closing.run_until_cancelled_owned(async move {
        while let Some(event) = events.next().await {
            match parted(&event.payload) {
                Ok(Some(process)) => {
                    // Without listeners while membership is being restarted.
                    let heard_by = partings.send(process).unwrap_or_default();
                    debug!(%process, heard_by, "a server reports that a process has disconnected");
                }
                Ok(None) => {}
                Err(error) => warn!(%error, "a server's report about a connection is not readable"),
            }
        }
        // The connection is kept while this task listens.
        drop(sys);
    }));
    Ok(())
}

/// The process whose connection has ended, if it was one and its server lives on.
fn parted(payload: &[u8]) -> Result<Option<ProcessId>, serde_json::Error> {
    let Disconnect { client, reason } = serde_json::from_slice(payload)?;
    Ok(client.name.parse().ok().filter(|_| reason != SHUTDOWN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parting_names_its_process_unless_the_server_ends() {
        let process = ProcessId::from_u128(7);
        let event = |name: &str, reason: &str| {
            let event = serde_json::json!({
                "client": { "name": name, "acc": "A" }, "reason": reason, "server": { "id": "N" }
            });
            parted(event.to_string().as_bytes()).unwrap()
        };
        assert_eq!(event(&process.to_string(), "Client Closed"), Some(process));
        assert_eq!(event(&process.to_string(), SHUTDOWN), None);
        assert_eq!(event("nats-cli", "Client Closed"), None);
        assert!(parted(b"{}").is_err());
    }
}
