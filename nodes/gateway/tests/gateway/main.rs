//! The gateway through real sockets, before a scripted node.
//!
//! Method: [`node::Node`] answers from its script; the clients are tokio-tungstenite, reqwest and
//! bare TCP. Nothing waits for time to pass, only for an answer, with one long patience.

#[cfg(test)]
mod anthropic;
#[cfg(test)]
mod client_tools;
#[cfg(test)]
mod events;
#[cfg(test)]
mod example;
#[cfg(test)]
mod files;
#[cfg(test)]
mod flood;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod http;
#[cfg(test)]
mod methods;
#[cfg(test)]
mod node;
#[cfg(test)]
mod openai;
#[cfg(test)]
mod openai_responses;
#[cfg(test)]
mod routes;
#[cfg(test)]
mod session_messages;
#[cfg(test)]
mod streams;
#[cfg(test)]
mod ws;
