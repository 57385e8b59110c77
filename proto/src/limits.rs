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
/// Bytes of one input's body as it is encoded (384 KiB): with its envelope, a claim and a birth it
/// fits into one append. What is over it is refused where it comes in.
pub const INPUT_BYTES: usize = 384 << 10;
/// Bytes of one stored input (496 KiB): what is larger than that fits into no append, and becomes a
/// dead letter.
pub const INPUT_STORED_BYTES: usize = APPEND_BYTES - (16 << 10);
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
/// Claims without progress after which an entity is activated on probation: alone, and noted as in
/// hand, so that only what dies with it is held against it (C16).
pub const CLAIMS_BEFORE_PROBATION: u32 = 2;
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
/// Tools that one agent may have.
pub const AGENT_TOOLS: usize = 128;
/// Bytes of the descriptions and schemas of all tools of one agent (128 KiB): they are journaled
/// with its configuration and read by the model with each call.
pub const TOOL_SPECS_BYTES: usize = 128 << 10;
/// Tool calls in one reply; what a model asks for beyond it is not run.
pub const REPLY_TOOLS: usize = 32;
/// Bytes of the arguments of all tool calls of one reply (128 KiB): with the reply's text they fit
/// into one append. Beyond it they are cut, which makes them invalid.
pub const TOOL_ARGUMENTS_BYTES: usize = 128 << 10;
/// Characters of a tool's result that the model is shown; the rest is left out, and it is told.
pub const TOOL_RESULT_CHARS: usize = 50_000;
/// Bytes of a tool's result that are kept in its event (8 KiB): the results of all tools of a reply
/// may come at once, and have to fit into one append. Longer ones go to the blob store first.
pub const TOOL_RESULT_INLINE: usize = 8 << 10;
/// Characters of arguments and results in frames.
pub const FRAME_TOOL_CHARS: usize = 4_000;
/// How long the state key of a job stays after its result was folded, so that a job that is
/// delivered late is known to be done.
pub const JOB_CLOSED_TTL: Duration = Duration::from_hours(7 * 24);
/// How long after it was asked for a job may be begun, and how long a queue keeps one (3 days): well
/// below [`JOB_CLOSED_TTL`], so that a queue forgets a job before the bucket forgets that it is
/// closed, also where clocks differ by days.
pub const JOB_AGE_MAX: Duration = Duration::from_hours(3 * 24);
/// The longest that a session waits until a node takes a tool call (2 days): below [`JOB_AGE_MAX`],
/// also where clocks differ by hours.
pub const JOB_WAIT_MAX: Duration = Duration::from_hours(2 * 24);
/// Pieces of work of one provider that a node remembers: enough to see a change, and soon forgotten.
pub const PROVIDER_RUNS: usize = 64;
/// Providers that one heartbeat tells of.
pub const PROVIDERS_TOLD: usize = 64;
/// Characters of what one heartbeat says of a configuration file that is not taken.
pub const FILE_PROBLEM_CHARS: usize = 400;
/// Bytes of a key in a plugin's store.
pub const PLUGIN_KEY_BYTES: usize = 128;
/// Bytes of a value in a plugin's store (64 KiB): what is larger is a file.
pub const PLUGIN_VALUE_BYTES: usize = 64 << 10;
/// Keys of one store of a plugin: their names are written anew with each that comes and goes.
pub const PLUGIN_STORE_KEYS: usize = 1_000;
/// Steps of what a planner wants done.
pub const EXECUTION_STEPS: usize = 64;
/// Bytes of the arguments of all steps of a plan (128 KiB): it is one input, and one event.
pub const PLAN_BYTES: usize = 128 << 10;
/// Characters of a step's output that `execute.show` has: those of all steps fit into one answer.
pub const EXECUTION_OUTPUT_CHARS: usize = 8_000;
/// Characters of what a step's failure says in its turn's end.
pub const STEP_FAILURE_CHARS: usize = 500;
/// Rules of one agent's policy: they are journaled with its configuration.
pub const POLICY_RULES: usize = 64;
/// Commands that are known to only look: they are journaled with each agent's configuration.
pub const READ_ONLY_COMMANDS: usize = 64;
/// Characters of one pattern or reason of a rule.
pub const RULE_CHARS: usize = 1_000;
/// Characters of what a person says with a decision.
pub const DECISION_CHARS: usize = 1_000;
/// The longest that a person is waited for: 90 days.
pub const APPROVAL_WAIT_MAX: Duration = Duration::from_hours(90 * 24);
/// How much longer than the wait itself what a person is shown stays: for clocks that differ.
pub const APPROVAL_KEPT: Duration = Duration::from_hours(24);
/// Steps that a turn is given when it is told to go on.
pub const MORE_STEPS: u32 = 25;
/// Characters of an operator's reason for a latch.
pub const LATCH_TEXT: usize = 500;
/// Scopes that have a latch, on or cleared lately; who wants one more is refused.
pub const LATCHES_MAX: usize = 256;
/// Tool calls that cannot be run, of one turn, that the model is told about; the next ends it.
pub const BAD_CALLS: u32 = 2;
/// Bytes of one line of a job's log; a longer one is several.
pub const LOG_LINE_BYTES: usize = 8 << 10;
/// What the beginning of a job's log may cost (256 KiB): its text, and [`LOG_LINE_COST`] a line.
pub const LOG_FIRST_BYTES: usize = 256 << 10;
/// What the end of a job's log may cost (768 KiB). What is between the two is left out.
pub const LOG_LAST_BYTES: usize = 768 << 10;
/// What a line costs beside its text: its number, its time.
pub const LOG_LINE_COST: usize = 64;
/// Bytes of what one run says that are looked at (64 MiB); what is beyond is only counted.
pub const LOG_HEARD_BYTES: u64 = 64 << 20;
/// Bytes of a log in one message between processes (256 KiB).
pub const LOG_PART_BYTES: usize = 256 << 10;
/// Characters of a job's arguments in its record; the journal has all of them.
pub const JOB_ARGUMENTS_CHARS: usize = 256;
/// Runs of one job that are kept; the oldest go first.
pub const RUNS_KEPT: usize = 8;
/// Files of one run that are kept.
pub const ARTIFACTS_KEPT: usize = 32;
/// Bytes of all files of one run that are kept (16 MiB): they are in memory until they are stored.
pub const ARTIFACTS_BYTES: usize = 16 << 20;
/// Bytes of the name of such a file.
pub const ARTIFACT_NAME: usize = 200;
/// Bytes of a file in one answer (2 MiB): in base64 it fits into a WebSocket frame.
pub const ARTIFACT_PART_BYTES: usize = 2 << 20;
/// Jobs that one request removes from the archive.
pub const CLEAN_JOBS: usize = 500;
/// Hooks of one point that one agent may have (16): they are journaled with its configuration, and
/// each takes its time of every call.
pub const HOOKS_PER_POINT: usize = 16;
/// The longest that a hook may take (60 s).
pub const HOOK_TIMEOUT_MAX: Duration = Duration::from_mins(1);
/// Bytes of what all hooks change of one model request (64 KiB): it is journaled.
pub const HOOK_PATCH_BYTES: usize = 64 << 10;
/// Bytes of a tool call's arguments that a hook has changed (32 KiB): they are journaled, and those of
/// several calls may come at once.
pub const HOOK_ARGUMENTS_BYTES: usize = 32 << 10;
/// Characters of a hook's reason.
pub const HOOK_REASON_CHARS: usize = 1_000;

/// Rows of one day of usage that name a user and an answering model (1,000); further ones are counted
/// without.
pub const USAGE_ROWS: usize = 1_000;
/// Bytes of the names in those rows (128 KiB). With an eighth more of both, and some 290 bytes a row beside
/// its names, a day is about 470 KiB at most: it fits in a value of the bucket.
pub const USAGE_BYTES: usize = 128 << 10;
/// Days of which usage is kept.
pub const USAGE_DAYS: u64 = 100;
