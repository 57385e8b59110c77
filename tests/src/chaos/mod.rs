//! Chaos: real processes under load, harm done to them on a seeded schedule, and a judge.
//!
//! A [`Scenario`] is played on a [`Stage`]: gateways, workers, NATS servers and the model server,
//! each a process, on loopback or on hosts made of network namespaces ([`hosts`]). Clients talk
//! without a pause ([`load`]) and resume over any gateway by their cursors ([`client`]); others have
//! [`errands`]: tools, approvals and plans, whose effects are counted ([`account`]). The model
//! server is the effect counter: a process that nothing is done to (but for an outage of providers,
//! [`models`]), which syncs a line for each call before it answers. At the end the judge ([`judge()`]) compares the clients' transcripts, the
//! journals and that log; [`resume`] says how long clients waited; [`run()`] writes the
//! [`Scorecard`], and adds long runs to the [`Ledger`]. In a short run two scenarios play at a time,
//! each on a stage of its own; one that measures has the machine to itself ([`turns`]).
//!
//! The program is `clawnode-chaos`, which `clawnode verify --chaos` runs.

mod account;
mod budget;
pub mod bus;
pub mod client;
pub mod daemon;
pub mod disk;
mod engine;
pub mod errands;
mod error;
pub mod evidence;
pub mod hosts;
pub mod judge;
mod ledger;
pub mod load;
mod models;
pub mod nodes;
mod operator;
pub mod options;
mod outage;
pub mod resume;
mod run;
mod scenario;
pub mod scorecard;
mod script;
pub mod stage;
pub mod transcript;
mod turns;
mod wait;

pub use account::Account;
pub use error::ChaosError;
pub use judge::{Breach, Verdict, Violation, judge};
pub use ledger::Ledger;
pub use run::run;
pub use scenario::{Needs, Scenario};
pub use scorecard::{Score, Scorecard};
pub use stage::{Shape, Stage};
