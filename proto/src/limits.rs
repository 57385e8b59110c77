//! Every hard limit, with its unit and its reason. Defaults that a person may change live beside
//! what they configure; what stands here is part of the contract between processes.

use std::time::Duration;

/// Bytes of one user message (1 MiB); larger content is an upload.
pub const MESSAGE_BYTES: usize = 1 << 20;
/// Bytes of one WebSocket frame (4 MiB): a message in JSON with every byte escaped still fits.
pub const WS_FRAME_BYTES: usize = 4 << 20;
/// Bytes of one journal append (512 KiB), under every store's own limit.
pub const APPEND_BYTES: usize = 512 << 10;
/// Bytes of text kept inline in an event (256 KiB); longer text goes to the blob store first.
pub const INLINE_BYTES: usize = 256 << 10;
/// Events in one append; what queues beyond it rides in the next.
pub const APPEND_EVENTS: usize = 64;
/// User messages waiting in one session before the gateway refuses more (429).
pub const PENDING_INPUTS: usize = 256;
/// Frames of a turn that its owner keeps for readers that resume.
pub const FRAMES_KEPT: usize = 4_096;
/// Idempotency keys an entity remembers at least, whatever their age.
pub const DEDUP_MIN: usize = 1_024;
/// How long an entity remembers an idempotency key, in event time.
pub const DEDUP_AGE: Duration = Duration::from_hours(7 * 24);
/// Claims without progress in between after which an entity is quarantined (C16).
pub const CLAIMS_WITHOUT_PROGRESS: u32 = 5;
/// Most partitions a cluster may be born with.
pub const PARTITIONS_MAX: u16 = 512;
/// Partitions of a one-process cluster.
pub const PARTITIONS_LOCAL: u16 = 16;
/// Partitions of a cluster on NATS unless its first node says otherwise.
pub const PARTITIONS_NATS: u16 = 256;
/// How long the inbox waits for an acknowledgement or a sign of progress before it delivers again.
pub const ACK_WAIT: Duration = Duration::from_secs(30);
/// How often a holder of a delivery says that it is alive.
pub const ACK_PROGRESS: Duration = Duration::from_secs(5);
/// Kinds of events and versions that one heartbeat names as lacking: more are the same news.
pub const LACKS_TOLD: usize = 8;
/// Entities that one process names in its tree; the rest are counted.
pub const TREE_ENTITIES: usize = 256;
/// Cluster events that a gateway remembers.
pub const EVENTS_KEPT: usize = 1_024;
/// Cluster events in one message on the bus.
pub const EVENTS_BATCH: usize = 64;
/// Characters of a text in a cluster event; more is cut.
pub const EVENT_TEXT: usize = 200;
