//! The gateways of one cluster: any of them serves any session, so a client that loses one goes on
//! at another.
//!
//! Some are named on the command line, the others are learnt from the first that answers. A token
//! is sent to a learnt address only if that is no step down: never to an address without TLS
//! learnt over TLS, and to loopback only from loopback, because another machine's loopback is not
//! ours.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use clawnode_proto::api::{Nothing, calls};
use rand::seq::IteratorRandom;
use reqwest::Url;
use tokio::time::timeout;

use super::{ClientError, NodeClient, NodeTarget, rpc::is_loopback};

/// Gateways that are remembered.
const KNOWN_MAX: usize = 64;
/// How long a gateway may take to name the others. No command waits for it.
const LEARN_TIMEOUT: Duration = Duration::from_secs(10);

/// The gateways that a client may use.
#[derive(Debug)]
pub struct Gateways {
    current: NodeClient,
    /// Also filled by who learns, beside the turns.
    known: Arc<Mutex<Vec<NodeClient>>>,
    /// Those that were lost, or tried in vain, since one answered.
    tried: BTreeSet<String>,
}

impl Gateways {
    /// All that `target` names. Nothing is sent yet.
    pub fn find(target: &NodeTarget) -> Result<Self, ClientError> {
        let mut clients = NodeClient::find_all(target)?;
        clients.truncate(KNOWN_MAX);
        let Some(first) = clients.first() else {
            return Err(ClientError::NotRunning { data_dir: target.data_dir.clone() });
        };
        let current = first.clone();
        Ok(Self { current, known: Arc::new(Mutex::new(clients)), tried: BTreeSet::new() })
    }

    /// This one, and no other.
    pub fn alone(client: NodeClient) -> Self {
        let known = Arc::new(Mutex::new(vec![client.clone()]));
        Self { current: client, known, tried: BTreeSet::new() }
    }

    /// The one to use.
    pub const fn current(&self) -> &NodeClient {
        &self.current
    }

    /// Finds the first that answers, in the order in which they were named.
    pub async fn reach(&mut self) -> Result<&NodeClient, ClientError> {
        let named = self.known().clone();
        let mut why = None;
        for client in named {
            match client.ping().await {
                Ok(()) => {
                    self.current = client;
                    return Ok(&self.current);
                }
                Err(error) if error.is_lost() || error.is_passing() => {
                    why.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        Err(why.unwrap_or_else(|| self.current.protocol("there is no gateway to ask")))
    }

    /// The current one is lost: another one's turn, any that was not tried since one answered.
    pub fn lost(&mut self) {
        self.tried.insert(self.current.url().to_owned());
        let known = self.known().clone();
        let others = known.iter().filter(|client| !self.tried.contains(client.url()));
        let next = others.choose(&mut rand::rng()).or_else(|| {
            // All of them again, the lost one last.
            self.tried.clear();
            let others = known.iter().filter(|client| client.url() != self.current.url());
            others.choose(&mut rand::rng())
        });
        if let Some(next) = next {
            self.current = next.clone();
        }
    }

    /// The current one does not let us in: it is used no more, if there is any other.
    pub fn forget(&mut self) -> bool {
        let mut known = self.known();
        if known.len() > 1 {
            let url = self.current.url();
            known.retain(|client| client.url() != url);
            drop(known);
            self.lost();
            return true;
        }
        false
    }

    /// The current one answers: asks it, beside everything else, for the others.
    pub fn found(&mut self) {
        self.tried.clear();
        let (client, known) = (self.current.clone(), Arc::clone(&self.known));
        // Detached: it ends with its answer, or its time.
        drop(tokio::spawn(async move {
            let asked = timeout(LEARN_TIMEOUT, client.call(calls::Status, &Nothing {})).await;
            match asked {
                Ok(Ok(status)) => {
                    let urls = status.nodes.into_iter().filter_map(|node| node.url);
                    let mut known = lock(&known);
                    learn(&client, &mut known, urls);
                    tracing::debug!(known = known.len(), "gateways are known");
                }
                Ok(Err(error)) => tracing::debug!(%error, "cannot list other gateways"),
                Err(error) => tracing::debug!(%error, "cannot list other gateways"),
            }
        }));
    }

    fn known(&self) -> MutexGuard<'_, Vec<NodeClient>> {
        lock(&self.known)
    }
}

fn lock(known: &Mutex<Vec<NodeClient>>) -> MutexGuard<'_, Vec<NodeClient>> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

fn learn(from: &NodeClient, known: &mut Vec<NodeClient>, urls: impl Iterator<Item = String>) {
    for url in urls {
        let url = url.trim_end_matches('/');
        let is_new = known.iter().all(|client| client.url() != url);
        if !is_new || known.len() >= KNOWN_MAX || !may_follow(from.url(), url) {
            continue;
        }
        match from.at(url) {
            Ok(client) => known.push(client),
            Err(error) => tracing::debug!(%error, "cannot use the address of a gateway"),
        }
    }
}

/// Whether the token that went to `from` may go to `to`.
fn may_follow(from: &str, to: &str) -> bool {
    let (Ok(from), Ok(to)) = (Url::parse(from), Url::parse(to)) else { return false };
    let as_safe = to.scheme() == "https" || from.scheme() == to.scheme();
    as_safe && (is_loopback(&from) || !is_loopback(&to))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(url: &str) -> NodeClient {
        NodeClient::new(url, None, None).unwrap()
    }

    #[test]
    fn a_token_takes_no_step_down() {
        let cases = [
            ("http://127.0.0.1:1", "http://127.0.0.1:2", true),
            ("http://localhost:1", "http://[::1]:2", true),
            ("http://10.0.0.1:1", "http://10.0.0.2:1", true),
            ("http://10.0.0.1:1", "https://10.0.0.2:1", true),
            ("https://a.example", "https://b.example", true),
            ("https://a.example", "http://b.example", false),
            ("http://10.0.0.1:1", "http://127.0.0.1:1", false),
            ("https://a.example", "https://localhost", false),
            ("http://10.0.0.1:1", "nonsense", false),
        ];
        for (from, to, may) in cases {
            assert_eq!(may_follow(from, to), may, "{from} {to}");
        }
    }

    #[tokio::test]
    async fn each_gateway_is_tried_before_any_is_tried_again() {
        drop(rustls::crypto::ring::default_provider().install_default());
        let mut gateways = Gateways::alone(client("http://127.0.0.1:1"));
        let urls = ["http://127.0.0.1:1", "http://127.0.0.1:2/", "http://127.0.0.1:3", "ftp://x"];
        learn(&client(urls[0]), &mut gateways.known(), urls.map(str::to_owned).into_iter());
        assert_eq!(gateways.known().len(), 3);
        for _ in 0..20 {
            let first = gateways.current().url().to_owned();
            let mut seen = BTreeSet::from([first]);
            for _ in 0..2 {
                gateways.lost();
                assert!(seen.insert(gateways.current().url().to_owned()), "tried twice");
            }
            gateways.lost();
            gateways.tried.clear();
        }
        let mut alone = Gateways::alone(client("http://127.0.0.1:1"));
        alone.lost();
        assert_eq!(alone.current().url(), "http://127.0.0.1:1");
    }
}
