//! The store of memories on a Qdrant server, which the nodes of a cluster share.
//!
//! The server keeps the documents and says how far each scope is filled. It does not rank: each process has the words,
//! vectors and positions of the scopes that it searched lately in memory, compares them with the server before each
//! search, and ranks them as the local store does, so all stores give the same order. See `docs/internals/recall.md`.
//!
//! - `connection` is the way to the server: TLS, the key, and waits after failures.
//! - `setup` makes the collections, and refuses a server or collection that does not fit.
//! - `layout` says which points there are, and what is in them.
//! - `state` is how far a scope is filled, changed by compare-and-set, so that processes can fill one scope together.
//! - `cache` has in memory what is searched.
//! - `index` is a store of two collections, for one model of vectors; `vectors` gives its documents theirs, and builds it from
//!   the index of another model.
//! - `store` is the store: the index that answers.
//! - `fixture` is a server for tests.
//!
//! The crate is empty without its feature `qdrant`.

#![forbid(unsafe_code)]

#[cfg(feature = "qdrant")]
mod cache;
#[cfg(feature = "qdrant")]
mod connection;
#[cfg(all(feature = "qdrant", feature = "test-util"))]
pub mod fixture;
#[cfg(feature = "qdrant")]
mod index;
#[cfg(feature = "qdrant")]
mod layout;
#[cfg(feature = "qdrant")]
mod server;
#[cfg(feature = "qdrant")]
mod setup;
#[cfg(feature = "qdrant")]
mod state;
#[cfg(feature = "qdrant")]
mod store;
#[cfg(feature = "qdrant")]
mod vectors;

#[cfg(feature = "qdrant")]
pub use connection::QdrantOptions;
#[cfg(feature = "qdrant")]
pub use store::QdrantStore;
