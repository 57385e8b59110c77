//! What a plugin's call can reach: granted hosts, through the one way out.

use std::sync::Arc;

use clawnode_proto::{AgentName, ErrorChain};
use clawnode_wasm::{Host, Method, Request, Response};
use reqwest::header::HeaderValue;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::tool::egress::{self, Egress, HeaderBounds, HostPattern};

/// Requests of one call (64): a plugin is a tool, not a crawler.
const REQUESTS: u32 = 64;
/// Headers of a request, and their bytes together.
const HEADERS: HeaderBounds = HeaderBounds { most: 40, bytes: 16 << 10 };

/// The host of one call.
pub(super) struct PluginHost {
    pub(super) egress: Egress,
    pub(super) agent: AgentName,
    /// The hosts that its manifest asks for.
    pub(super) hosts: Arc<[HostPattern]>,
    pub(super) handle: Handle,
    pub(super) cancelled: CancellationToken,
    pub(super) requests: u32,
}

impl Host for PluginHost {
    fn fetch(&mut self, request: Request) -> Result<Response, String> {
        self.requests = self.requests.saturating_add(1);
        if self.requests > REQUESTS {
            return Err(format!("more than {REQUESTS} requests in one call"));
        }
        let given = request.headers.iter().map(|(name, value)| (&**name, &**value));
        let headers = HEADERS.read(given)?;
        let request = egress::Request {
            method: match request.method {
                Method::Get => reqwest::Method::GET,
                Method::Head => reqwest::Method::HEAD,
            },
            headers,
            url: request.url,
            max_bytes: self.egress.options().max_body_bytes,
        };
        let fetched = self.egress.fetch_within(Some(&self.agent), &self.hosts, request);
        // The plugin runs on a thread that may be blocked.
        let reply = self.handle.block_on(async {
            tokio::select! {
                reply = Box::pin(fetched) => reply.map_err(|error| ErrorChain(&error).to_string()),
                () = self.cancelled.cancelled() => Err("the call was stopped".to_owned()),
            }
        })?;
        Ok(response(reply))
    }

    fn is_stopped(&self) -> bool {
        self.cancelled.is_cancelled()
    }
}

fn response(reply: egress::Reply) -> Response {
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
