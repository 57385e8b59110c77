//! One small test for each fact of NATS that the design relies on. A server upgrade that changes a
//! fact fails its test. Facts, not our code: these speak to the server through its plain client.

mod connections;
mod deliveries;
mod leaders;
mod peer;
mod ranks;
mod streams;
mod timers;
