//! What a plugin's call can reach: granted hosts, through the one way out, and its stores.
//!
//! What it waits for here is part of its time: a wait ends at the call's deadline, and the call with it.

use std::sync::Arc;

use clawnode_proto::{AgentName, ErrorChain};
use clawnode_tool::egress::{self, Egress, HeaderBounds, HostPattern};
use clawnode_wasm::{
    Entry, Method, PluginHostCalls, Request, Response, StoreAnswer, StoreAsk, StoreCall, StoreError,
};
use reqwest::header::HeaderValue;
use tokio::{
    runtime::Handle,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{PluginStores, StoreFailure};

/// Requests of one call (64): a plugin is a tool, not a crawler.
const REQUESTS: u32 = 64;
/// What one call may ask of its stores (256): each is a round trip of the cluster, or several.
const STORE_CALLS: u32 = 256;
/// Headers of a request, and their bytes together.
const HEADERS: HeaderBounds = HeaderBounds { most: 40, bytes: 16 << 10 };

/// What a wait ends with that is cut off; the call ends before anybody reads it.
const OVER: &str = "the call is over";

/// The host of one call.
pub(super) struct PluginHost {
    pub(super) egress: Egress,
    pub(super) agent: AgentName,
    /// The hosts that its manifest asks for.
    pub(super) hosts: Arc<[HostPattern]>,
    /// The stores that it asks for; none where there is no cluster.
    pub(super) stores: Option<PluginStores>,
    pub(super) handle: Handle,
    pub(super) cancelled: CancellationToken,
    /// When the call is over.
    pub(super) deadline: Instant,
    pub(super) requests: u32,
    pub(super) store_calls: u32,
}

impl PluginHostCalls for PluginHost {
    fn fetch(&mut self, request: Request) -> Result<Response, String> {
        self.requests = self.requests.saturating_add(1);
        if self.requests > REQUESTS {
            return Err(format!("more than {REQUESTS} requests in one call"));
        }
        let given = request.headers.iter().map(|(name, value)| (&**name, &**value));
        let headers = HEADERS.read(given)?;
        let request = egress::EgressRequest {
            method: match request.method {
                Method::Get => reqwest::Method::GET,
                Method::Head => reqwest::Method::HEAD,
            },
            body: None,
            headers,
            url: request.url,
            max_bytes: self.egress.options().max_body_bytes,
        };
        let fetched = self.egress.fetch_within(Some(&self.agent), &self.hosts, request);
        let fetched =
            async { Box::pin(fetched).await.map_err(|error| ErrorChain(&error).to_string()) };
        self.wait(fetched).unwrap_or_else(|| Err(OVER.to_owned())).map(response)
    }

    fn store(&mut self, ask: StoreAsk) -> Result<StoreAnswer, StoreError> {
        self.store_calls = self.store_calls.saturating_add(1);
        if self.store_calls > STORE_CALLS {
            return Err(StoreError::Exhausted);
        }
        let Some(stores) = &self.stores else {
            return Err(StoreError::Unavailable("this node has no cluster".to_owned()));
        };
        let done = self.wait(answer(stores, ask));
        done.unwrap_or_else(|| Err(StoreError::Unavailable(OVER.to_owned())))
    }

    fn is_stopped(&self) -> bool {
        self.cancelled.is_cancelled()
    }
}

// === impl PluginHost ===

impl PluginHost {
    /// Waits for this, as long as the call has time; the plugin runs on a thread that may be blocked.
    fn wait<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        self.handle.block_on(async {
            tokio::select! {
                done = work => Some(done),
                () = self.cancelled.cancelled() => None,
                () = sleep_until(self.deadline) => None,
            }
        })
    }
}

async fn answer(stores: &PluginStores, ask: StoreAsk) -> Result<StoreAnswer, StoreError> {
    let store = &ask.store;
    let done = match ask.what {
        StoreCall::Get(key) => stores.get(store, &key).await.map(|found| {
            let entry = |kept: super::StoredValue| Entry {
                value: kept.value.into(),
                revision: kept.revision,
            };
            StoreAnswer::Got(found.map(entry))
        }),
        StoreCall::Put(key, value, expected) => {
            stores.put(store, &key, value, expected).await.map(StoreAnswer::Put)
        }
        StoreCall::Delete(key, expected) => {
            stores.delete(store, &key, expected).await.map(|()| StoreAnswer::Deleted)
        }
        StoreCall::Keys => stores.keys(store).await.map(StoreAnswer::Keys),
    };
    done.map_err(|failure| match &failure {
        StoreFailure::Denied(_) => StoreError::Denied(failure.told()),
        StoreFailure::Key(_) | StoreFailure::TooLarge(_) => StoreError::Invalid(failure.told()),
        StoreFailure::Conflict => StoreError::Conflict,
        StoreFailure::Full => StoreError::Full,
        StoreFailure::Busy | StoreFailure::Store(_) | StoreFailure::Damaged(_) => {
            StoreError::Unavailable(failure.told())
        }
    })
}

fn response(reply: egress::EgressReply) -> Response {
    let text = |value: &HeaderValue| value.to_str().ok().map(str::to_owned);
    let headers = reply.headers.iter();
    Response {
        status: reply.status.as_u16(),
        headers: headers
            .filter_map(|(name, value)| Some((name.as_str().to_owned(), text(value)?)))
            .collect(),
        body: reply.body.bytes,
        is_cut: reply.body.is_cut,
    }
}
