//! `/ws`: JSON-RPC over one WebSocket, many requests at once.
//!
//! One task reads (`socket`), one writes (`writer`), and each request has its own (`request`); they
//! meet in the outbox. Messages to one session are stored in the order in which they were sent.

mod greeting;
mod request;
mod socket;
mod upgrade;
mod writer;

pub(super) use upgrade::upgrade;
