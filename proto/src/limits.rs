//! Every hard limit, with its unit and its reason. Defaults that a person may change live beside
//! what they configure; these limits are part of the contract between processes.

use std::time::Duration;

/// A limit, for `docs/reference/limits.md`.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// The heading that it belongs under.
    pub group: &'static str,
    /// The constant.
    pub name: &'static str,
    /// Its value.
    pub amount: Amount,
    /// What it limits, and why.
    pub about: &'static str,
}

/// The value of a limit.
#[derive(Clone, Copy, Debug)]
pub enum Amount {
    /// A number, and what it counts.
    Number(u64, &'static str),
    /// A duration.
    Time(Duration),
}

macro_rules! limits {
    ($($group:literal {
        $( $(#[doc = $about:literal])* $name:ident: $type:ident = $value:expr $(, $unit:literal)?; )*
    })*) => {
        $($( $(#[doc = $about])* pub const $name: $type = $value; )*)*

        /// All of them, in the order of the file.
        pub const ALL: &[Limit] = &[$($( Limit {
            group: $group,
            name: stringify!($name),
            amount: limits!(@amount $name $($unit)?),
            about: concat!($($about),*),
        }, )*)*];
    };
    (@amount $name:ident) => { Amount::Time($name) };
    (@amount $name:ident $unit:literal) => { Amount::Number($name as u64, $unit) };
}

limits! {
    "Messages and journals" {
        /// One user message. Upload larger content as a file.
        MESSAGE_BYTES: usize = 1 << 20, "bytes";
        /// User messages that wait in one session. The gateway refuses further ones with 429.
        PENDING_INPUTS: usize = 256, "messages";
        /// One WebSocket frame. A message fits even if JSON escapes every byte of it.
        WS_FRAME_BYTES: usize = 4 << 20, "bytes";
        /// One append to a journal. Every storage backend allows more.
        APPEND_BYTES: usize = 512 << 10, "bytes";
        /// Events in one append. Further events go into the next one.
        APPEND_EVENTS: usize = 64, "events";
        /// A text in an event. The blob store keeps longer texts.
        INLINE_BYTES: usize = 256 << 10, "bytes";
        /// The encoded body of one input. With its envelope and the first events of an entity, it fits into
        /// one append.
        INPUT_BYTES: usize = 384 << 10, "bytes";
        /// One stored input. A larger one fits into no append and becomes a dead letter.
        INPUT_STORED_BYTES: usize = APPEND_BYTES - (16 << 10), "bytes";
        /// Idempotency keys that an entity remembers at least, however old they are.
        DEDUP_MIN: usize = 1_024, "keys";
        /// How long an entity remembers an idempotency key.
        DEDUP_AGE: Duration = Duration::from_hours(7 * 24);
        /// Turns that have ended and that the state of a session keeps at most, unless its context is `window`. A
        /// context of so many turns is bounded. Older ones are in the session's archives.
        KEPT_TURNS: usize = 512, "turns";
        /// The newest of them, which stay even if no request shows them, as far as `KEPT_TURN_BYTES` allow it.
        KEPT_RECENT_TURNS: usize = 8, "turns";
        /// Text of these turns together, unless the last one alone has more. A text in the blob store does not count.
        KEPT_TURN_BYTES: usize = 256 << 10, "bytes";
        /// Frames of a turn that its owner keeps for clients that reconnect.
        FRAMES_KEPT: usize = 4_096, "frames";
        /// Arguments, or the result, of a tool call in a frame. The rest is cut.
        FRAME_TOOL_CHARS: usize = 4_000, "characters";
    }
    "Attachments" {
        /// Attachments of one message, and of one tool's result.
        ATTACHMENTS: usize = 8, "attachments";
        /// One attachment.
        ATTACHMENT_BYTES: usize = 5_000_000, "bytes";
        /// The name of an attachment. A longer one is cut.
        ATTACHMENT_NAME_BYTES: usize = 200, "bytes";
        /// Attachments in one request to a model, the newest first. A sentence takes the place of each other one. In
        /// base64 they fit into the 32 MB that providers take.
        ATTACHMENTS_SENT_BYTES: u64 = 20_000_000, "bytes";
        /// One uploaded file. Only files within `ATTACHMENT_BYTES` can be attached.
        FILE_BYTES: usize = 50_000_000, "bytes";
        /// Files of one session. Those that no message names go for newer ones once they are
        /// `FILE_KEPT` old.
        FILES: usize = 256, "files";
        /// Files of one session that no message names yet.
        FILES_UNSENT: usize = 32, "files";
        /// All files of one session that no message names yet, together.
        FILES_UNSENT_BYTES: u64 = 200_000_000, "bytes";
        /// How long an uploaded file is kept for a message that names it.
        FILE_KEPT: Duration = Duration::from_hours(24);
        /// A body of `POST /v1/chat/completions`, which can have attachments in base64.
        COMPLETION_BYTES: usize = 32 << 20, "bytes";
    }
    "Structured replies" {
        /// A JSON Schema for replies. It is journaled with its message or its agent.
        RESPONSE_SCHEMA_BYTES: usize = 64 << 10, "bytes";
        /// A reply that has to fit a schema. It is journaled as text and as JSON.
        RESPONSE_BYTES: usize = 128 << 10, "bytes";
        /// How often a model is asked to correct a reply that does not fit its schema.
        RESPONSE_MENDS: usize = 2, "calls";
    }
    "Embeddings" {
        /// Texts of one request for embeddings, as OpenAI has it.
        EMBED_TEXTS: usize = 2_048, "texts";
        /// A body of `POST /v1/embeddings`.
        EMBED_BODY_BYTES: usize = 8 << 20, "bytes";
        /// One text of such a request. No model reads as much.
        EMBED_TEXT_BYTES: usize = 256 << 10, "bytes";
        /// Texts in one request to a provider of embeddings. Their vectors fit into one message on the bus.
        EMBED_BATCH: usize = 24, "texts";
        /// Bytes of these texts together, unless one text alone has more.
        EMBED_BATCH_BYTES: usize = 256 << 10, "bytes";
        /// The numbers of one vector.
        EMBED_DIMENSIONS: usize = 8_192, "numbers";
    }
    "Memories" {
        /// Live points of one memory, unless `memory.points` of the configuration says another number. Consolidation
        /// makes room for further ones.
        MEMORY_POINTS: usize = 2_000, "points";
        /// The largest number that it may say.
        MEMORY_POINTS_MOST: usize = 20_000, "points";
        /// Text of the live points of one memory.
        MEMORY_BYTES: usize = 2 << 20, "bytes";
        /// The text of one point.
        MEMORY_TEXT_CHARS: usize = 1_000, "characters";
        /// The subject, the predicate or the object of one point.
        MEMORY_NAME_CHARS: usize = 200, "characters";
        /// Points that one request adds to a memory. All of them are one input.
        MEMORY_PUT_POINTS: usize = 64, "points";
        /// Text of the points of one such request. With its events it fits into one append.
        MEMORY_PUT_BYTES: usize = 128 << 10, "bytes";
        /// A text that is searched for in memories and conversations.
        MEMORY_QUERY_CHARS: usize = 2_000, "characters";
        /// What one such search gives.
        MEMORY_FOUND: u32 = 100, "documents";
        /// Points that were superseded, joined or archived and that a memory still shows. Older ones are in its
        /// journal only.
        MEMORY_PAST_POINTS: usize = 500, "points";
        /// Text of these points together.
        MEMORY_PAST_BYTES: usize = 512 << 10, "bytes";
        /// Points that left a memory and whose sources add nothing when they come again. Older ones would be
        /// added again, after 7 days. A memory that ever had more than 2,000 live points at once has room for as many more.
        MEMORY_GONE: usize = 10_000, "points";
        /// Feedback that a memory remembers, so that it counts once. Older feedback would count again, after 7 days.
        MEMORY_RATINGS: usize = 1_000, "feedbacks";
        /// What one turn is shown that was recalled, with labels. It is in the append of the turn's first call.
        RECALL_BYTES: usize = 8 << 10, "bytes";
        /// The same, by the estimate of 3 bytes a token. In a context of fewer than 5,000 tokens: 3 of 10 of them.
        RECALL_TOKENS: usize = 1_500, "tokens";
        /// Points that one turn recalls, if its agent is configured to the most.
        RECALL_POINTS: usize = 20, "points";
        /// Passages of conversations that one turn recalls.
        RECALL_PASSAGES: usize = 5, "passages";
        /// Standing instructions that one turn is shown.
        RECALL_STANDING: usize = 10, "points";
        /// The same, by the estimate of 3 bytes a token. It counts in `RECALL_BYTES`, too.
        RECALL_STANDING_TOKENS: usize = 300, "tokens";
        /// Text that one process finds in its store for another one. The best come first; what has no room is left out.
        STORE_FOUND_BYTES: usize = 512 << 10, "bytes";
        /// Points that are learned from what a person says of themselves in one message.
        LEARNED_POINTS: usize = 5, "points";
        /// How much of a message is read for them. The rest of a longer one is not read.
        LEARNED_CHARS: usize = 2_000, "characters";
        /// Shared memories that one agent reads.
        AGENT_SHARED_MEMORIES: usize = 16, "memories";
    }
    "Entities and the cluster" {
        /// Claims without progress after which an entity is quarantined.
        CLAIMS_WITHOUT_PROGRESS: u32 = 5, "claims";
        /// Claims without progress after which an entity runs on probation: alone, and marked as
        /// active, so that only a crash during its own work counts against it.
        CLAIMS_BEFORE_PROBATION: u32 = 2, "claims";
        /// Partitions of a cluster.
        PARTITIONS_MAX: u16 = 512, "partitions";
        /// Partitions of a node without NATS.
        PARTITIONS_LOCAL: u16 = 16, "partitions";
        /// Partitions of a cluster on NATS, unless its first node sets another number.
        PARTITIONS_NATS: u16 = 256, "partitions";
        /// How long the inbox waits for an acknowledgement or a sign of progress. Then it delivers the
        /// input again.
        ACK_WAIT: Duration = Duration::from_secs(30);
        /// How often a worker reports progress on an input that it holds.
        ACK_PROGRESS: Duration = Duration::from_secs(5);
        /// Event kinds and versions that a heartbeat lists as not supported.
        LACKS_TOLD: usize = 8, "kinds";
        /// Entities that a process lists in `clawnode tree`. It only counts the rest.
        TREE_ENTITIES: usize = 256, "entities";
        /// Cluster events that a gateway remembers.
        EVENTS_KEPT: usize = 1_024, "events";
        /// Cluster events in one message on the bus.
        EVENTS_BATCH: usize = 64, "events";
        /// A text in a cluster event. The rest is cut.
        EVENT_TEXT: usize = 200, "characters";
        /// Recent runs of a provider from which a node computes the provider's health.
        PROVIDER_RUNS: usize = 64, "runs";
        /// Providers in one heartbeat.
        PROVIDERS_TOLD: usize = 64, "providers";
        /// Agents with limits on tool calls, egress or turns. Each heartbeat has the counts of all of them.
        AGENT_COUNTS_TOLD: usize = 64, "agents";
        /// Changes of the circuit of a provider of models that its process remembers.
        CIRCUIT_CHANGES: usize = 8, "changes";
        /// Limits of one provider of models in a heartbeat, the newest first.
        PROVIDER_LIMITS: usize = 8, "limits";
        /// The name of a model in such a limit. The rest is cut.
        LIMIT_MODEL_CHARS: usize = 80, "characters";
        /// What a heartbeat says about a configuration file that the node does not accept.
        FILE_PROBLEM_CHARS: usize = 400, "characters";
    }
    "Agents and turns" {
        /// Tools of one agent.
        AGENT_TOOLS: usize = 128, "tools";
        /// Descriptions and schemas of all tools of one agent. The journal keeps them, and the model reads
        /// them with each call.
        TOOL_SPECS_BYTES: usize = 128 << 10, "bytes";
        /// A system prompt in files, the one that `soul` names and the one beside it together.
        SOUL_BYTES: u64 = 128 << 10, "bytes";
        /// A system prompt in an event. The blob store keeps longer ones, once for each session and each text.
        SYSTEM_PROMPT_INLINE: usize = 4 << 10, "bytes";
        /// Tools that a client offers with one request.
        CLIENT_TOOLS: usize = 128, "tools";
        /// Descriptions and schemas of all tools that a client offers with one request. The journal keeps them
        /// with the message, and the model reads them with each call.
        CLIENT_TOOLS_BYTES: usize = 64 << 10, "bytes";
        /// How long a turn waits for the results of tools that its client runs. The agent's time does not count
        /// meanwhile.
        CLIENT_TOOLS_WAIT: Duration = Duration::from_hours(24);
        /// Tool calls in one reply of a model. Further calls are not run.
        REPLY_TOOLS: usize = 32, "calls";
        /// Arguments of all tool calls of one reply. Longer arguments are cut, which makes them invalid.
        /// With the text of the reply they fit into one append.
        TOOL_ARGUMENTS_BYTES: usize = 128 << 10, "bytes";
        /// What one reply says beside its text and tool calls: thoughts, signatures, opaque items. A thought
        /// that is longer is cut, and is not sent back.
        REPLY_BLOCKS_BYTES: usize = 1 << 20, "bytes";
        /// Thoughts and opaque items of one reply. Further ones are left out.
        REPLY_BLOCKS: usize = 256, "blocks";
        /// The same of one reply in its event. The blob store keeps what is more, so that it fits into one
        /// append with the text and the arguments.
        REPLY_BLOCKS_INLINE: usize = 32 << 10, "bytes";
        /// A tool's result as the model sees it. The rest is left out, and the result says so.
        TOOL_RESULT_CHARS: usize = 50_000, "characters";
        /// A tool's result in its event. The blob store keeps longer results, so that the results of a
        /// whole reply fit into one append.
        TOOL_RESULT_INLINE: usize = 8 << 10, "bytes";
        /// Tool calls of one turn that cannot be run. The next one ends the turn.
        BAD_CALLS: u32 = 2, "calls";
        /// Steps that `chat.continue` gives to a turn.
        MORE_STEPS: u32 = 25, "steps";
        /// The summary of a conversation's older turns.
        SUMMARY_CHARS: usize = 8_000, "characters";
        /// How long the model that makes a summary may take, and how long its call waits for a budget. Then the turn
        /// goes on without one.
        SUMMARY_TIME: Duration = Duration::from_mins(1);
        /// What a list of sessions says about how a turn failed. The rest is cut.
        LAST_ERROR_CHARS: usize = 200, "characters";
        /// The text of one entry of a work ledger.
        LEDGER_ENTRY_CHARS: usize = 2_000, "characters";
        /// Entries of a work ledger that the state of a session keeps. Older ones are in its archives.
        LEDGER_ENTRIES: usize = 1_000, "entries";
        /// Text of these entries together, unless the last one alone has more.
        LEDGER_BYTES: usize = 256 << 10, "bytes";
        /// What one call of `ledger_read` shows. It is in the append that records the call.
        LEDGER_READ_BYTES: usize = 6 << 10, "bytes";
        /// Calls of `ledger_append` and `ledger_read` in one reply. Each is three events of one append.
        LEDGER_CALLS: usize = 16, "calls";
        /// Lessons of one reflection.
        REFLECTION_LESSONS: usize = 3, "lessons";
        /// The text of one lesson.
        LESSON_CHARS: usize = 300, "characters";
        /// Turns of one session that wait for a rating by a model, as many that wait for facts, and reflections whose lessons or
        /// facts no memory has yet. A request for a further one is refused.
        REFLECTIONS_WAITING: usize = 4, "turns";
        /// How long the model that looks back at a turn may take, and how long its call waits for a budget. Then there
        /// are no lessons.
        REFLECTION_TIME: Duration = Duration::from_mins(1);
        /// The comment of feedback.
        FEEDBACK_CHARS: usize = 1_000, "characters";
        /// Changes of the feedback of one turn. A further one is refused.
        FEEDBACK_OF_TURN: u32 = 16, "changes";
        /// Rules of one agent.
        POLICY_RULES: usize = 64, "rules";
        /// Commands in `[tools.run_command] read_only`.
        READ_ONLY_COMMANDS: usize = 64, "commands";
        /// A pattern or a reason in a rule.
        RULE_CHARS: usize = 1_000, "characters";
    }
    "Skills" {
        /// Skills that a node reads from its folders. Further ones are left out.
        SKILLS: usize = 200, "skills";
        /// The file `SKILL.md` of a skill. A larger one is refused.
        SKILL_BYTES: usize = 64 << 10, "bytes";
        /// Other files of a skill that a model can read. Further ones are not named.
        SKILL_FILES: usize = 100, "files";
        /// One of these files.
        SKILL_FILE_BYTES: usize = 256 << 10, "bytes";
        /// Skills that the triggers of one message activate.
        SKILLS_TRIGGERED: usize = 3, "skills";
        /// The text of these skills together. It is journaled with the turn.
        SKILLS_SHOWN_BYTES: usize = 64 << 10, "bytes";
        /// Entries of a work ledger that one call of `create_skill` names.
        SKILL_ENTRIES: usize = 64, "entries";
        /// The file of a bundle, which has all files of a skill.
        SKILL_BUNDLE_BYTES: usize = 16 << 20, "bytes";
    }
    "Approvals, plans and the kill switch" {
        /// How long a tool call can wait for a person.
        APPROVAL_WAIT_MAX: Duration = Duration::from_hours(90 * 24);
        /// How long an approval stays visible after its wait ends. It allows for clocks that differ.
        APPROVAL_KEPT: Duration = Duration::from_hours(24);
        /// The reason that a person gives with a decision.
        DECISION_CHARS: usize = 1_000, "characters";
        /// Steps of one plan.
        EXECUTION_STEPS: usize = 64, "steps";
        /// Arguments of all steps of a plan. A plan is one input and one event.
        PLAN_BYTES: usize = 128 << 10, "bytes";
        /// The file of a pipeline.
        PIPELINE_BYTES: usize = 64 << 10, "bytes";
        /// Inputs of one pipeline.
        PIPELINE_INPUTS: usize = 32, "inputs";
        /// The output of a step in `execute.show`.
        EXECUTION_OUTPUT_CHARS: usize = 8_000, "characters";
        /// The text about a failed step in the end of its turn.
        STEP_FAILURE_CHARS: usize = 500, "characters";
        /// An operator's reason for a kill switch.
        SWITCH_TEXT: usize = 500, "characters";
        /// Kill switches that are set or were cleared recently. Another one is refused.
        SWITCHES_MAX: usize = 256, "kill switches";
    }
    "Jobs" {
        /// How long a session waits until a node takes a tool call. This is less than `JOB_AGE_MAX`, even if
        /// clocks differ by hours.
        JOB_WAIT_MAX: Duration = Duration::from_hours(2 * 24);
        /// How long a queue keeps a job, and how long after its creation a job can start. Much less than
        /// `JOB_CLOSED_TTL`, also if clocks differ by days.
        JOB_AGE_MAX: Duration = Duration::from_hours(3 * 24);
        /// How long a node remembers that a job has ended, so that a late delivery does not run it again.
        JOB_CLOSED_TTL: Duration = Duration::from_hours(7 * 24);
        /// A job's arguments in its record. The journal has all of them.
        JOB_ARGUMENTS_CHARS: usize = 256, "characters";
        /// Runs of one job that are kept. The oldest ones are deleted first.
        RUNS_KEPT: usize = 8, "runs";
        /// Files of one run that are kept.
        ARTIFACTS_KEPT: usize = 32, "files";
        /// All files of one run that are kept. The node holds them in memory until it has stored them.
        ARTIFACTS_BYTES: usize = 16 << 20, "bytes";
        /// The name of such a file.
        ARTIFACT_NAME: usize = 200, "bytes";
        /// A part of a file in one answer. In base64 it fits into a WebSocket frame.
        ARTIFACT_PART_BYTES: usize = 2 << 20, "bytes";
        /// One line of a job's log. A longer line becomes several lines.
        LOG_LINE_BYTES: usize = 8 << 10, "bytes";
        /// The beginning of a job's log: its text, and `LOG_LINE_COST` for each line.
        LOG_FIRST_BYTES: usize = 256 << 10, "bytes";
        /// The end of a job's log. What is between the beginning and the end is left out.
        LOG_LAST_BYTES: usize = 768 << 10, "bytes";
        /// What a line of a log counts besides its text, for its number and time.
        LOG_LINE_COST: usize = 64, "bytes";
        /// Output of one run that the node reads. It only counts the rest.
        LOG_HEARD_BYTES: u64 = 64 << 20, "bytes";
        /// A part of a log in one message between processes.
        LOG_PART_BYTES: usize = 256 << 10, "bytes";
        /// Jobs that one request deletes.
        CLEAN_JOBS: usize = 500, "jobs";
    }
    "Plugins and hooks" {
        /// A key in a plugin's store.
        PLUGIN_KEY_BYTES: usize = 128, "bytes";
        /// A value in a plugin's store. Keep larger values in files.
        PLUGIN_VALUE_BYTES: usize = 64 << 10, "bytes";
        /// Keys in one store of a plugin. The node writes the list of keys again whenever a key is added or
        /// removed.
        PLUGIN_STORE_KEYS: usize = 1_000, "keys";
        /// Hooks of one agent at one point. The journal keeps the list, and each hook delays each call.
        HOOKS_PER_POINT: usize = 16, "hooks";
        /// How long a hook can run.
        HOOK_TIMEOUT_MAX: Duration = Duration::from_mins(1);
        /// What all hooks change in one model request. The journal keeps it.
        HOOK_PATCH_BYTES: usize = 64 << 10, "bytes";
        /// Arguments of a tool call that a hook has changed. The journal keeps them, and one append can
        /// hold several calls.
        HOOK_ARGUMENTS_BYTES: usize = 32 << 10, "bytes";
        /// The reason that a hook gives.
        HOOK_REASON_CHARS: usize = 1_000, "characters";
    }
    "Usage" {
        /// Rows of one day of usage that name a user and a model. Further calls are counted without these
        /// names.
        USAGE_ROWS: usize = 800, "rows";
        /// Names in those rows. With an eighth more of both, and 380 bytes a row, a day is at most about
        /// 480 KiB and fits into one value of the key-value store.
        USAGE_BYTES: usize = 128 << 10, "bytes";
        /// Days of usage and of agents' work that are kept.
        USAGE_DAYS: u64 = 100, "days";
        /// Agents of one day whose work is counted. What further ones do has no profile.
        PROFILE_AGENTS: usize = 128, "agents";
        /// Tools and skills that one day names, of all agents. Further ones of an agent count together. So a day is at
        /// most about 400 KiB and fits into one value of the key-value store.
        PROFILE_ROWS: usize = 1_000, "rows";
    }
}
