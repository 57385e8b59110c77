//! From a name to its addresses, and from there no way back.

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
};

use async_trait::async_trait;
use reqwest::dns::{Addrs, Name, Resolving};
use tokio::net::lookup_host;

/// Looks names up.
#[async_trait]
pub trait Resolve: Send + Sync + fmt::Debug {
    /// All addresses of this name.
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>>;
}

/// As the machine looks names up.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

#[async_trait]
impl Resolve for SystemResolver {
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        Ok(lookup_host((name, 0)).await?.map(|address| address.ip()).collect())
    }
}

/// What a connection is made with: one name and the addresses that were checked. It never looks
/// anything up, so nothing can change between check and connection.
pub(super) struct Pinned {
    pub(super) name: String,
    pub(super) addresses: Vec<IpAddr>,
}

impl reqwest::dns::Resolve for Pinned {
    fn resolve(&self, name: Name) -> Resolving {
        // The connection asks for the name as the URL has it; anything else was never checked.
        let known = name.as_str() == self.name;
        let addresses = if known { self.addresses.clone() } else { Vec::new() };
        Box::pin(async move {
            if addresses.is_empty() {
                return Err("not a name that was checked".into());
            }
            Ok(sockets(addresses))
        })
    }
}

/// Looks up again to connect: the bug that pinning is for.
#[cfg(feature = "test-util")]
pub(super) struct Unpinned(pub(super) std::sync::Arc<dyn Resolve>);

#[cfg(feature = "test-util")]
impl reqwest::dns::Resolve for Unpinned {
    fn resolve(&self, name: Name) -> Resolving {
        let resolver = std::sync::Arc::clone(&self.0);
        Box::pin(async move { Ok(sockets(resolver.resolve(name.as_str()).await?)) })
    }
}

fn sockets(addresses: Vec<IpAddr>) -> Addrs {
    // The URL's port takes the place of 0.
    Box::new(addresses.into_iter().map(|address| SocketAddr::new(address, 0)))
}
