//! Egress: every request to another machine on an agent's behalf leaves here.
//!
//! A model writes the URL, so the URL may be an attack on what only this node can reach. One
//! request goes: parse (`target`) → host allowed to this agent (`options`) → resolve (`resolve`) →
//! **every** address public (`address`) → connect to those addresses and nothing else (`client`
//! pins them: no second look-up can say something else) → and the same from the beginning for each
//! redirect. No proxy of the environment is used, nothing is decompressed, nothing is unbounded.
//!
//! A refusal does not name the address that a name led to: a model may not map a network with it.

mod address;
mod client;
mod error;
mod headers;
mod options;
#[cfg(feature = "test-util")]
mod planted;
mod resolve;
mod target;
mod text;
mod tls;

pub use address::{Cidr, ParseCidrError, Special};
pub use client::{Egress, EgressBody, EgressReply, EgressRequest};
pub use error::EgressError;
pub use headers::HeaderBounds;
pub use options::{EgressOptions, HostPattern, ParseHostPatternError};
#[cfg(feature = "test-util")]
pub use planted::EgressBug;
pub use resolve::{Resolve, SystemResolver};
pub use text::Decoded;
pub use text::whole_characters;
pub use tls::tls;
