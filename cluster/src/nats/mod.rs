//! Many processes over NATS: `JetStream` streams behind every door but the bus.
