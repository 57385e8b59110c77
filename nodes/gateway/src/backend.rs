//! What the gateway asks of the node behind it: a small trait, in the types of `proto`.
//!
//! The gateway holds connections and owns nothing; whatever it shows comes through here.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use async_trait::async_trait;
use bytes::Bytes;
use clawnode_proto::{
    AgentName, CallId, EntityId, ErrorBody, FileId, FrameKey, IdempotencyKey, JobId, SessionKey,
    Timestamp, Traceparent, TurnId,
    api::SendMode,
    client_tool::ClientTool,
    embed::{EmbedTexts, Embedded},
    llm::Sampling,
    media::{Content, FileView},
    methods::types,
    route::Inbound,
    session::UserMessage,
    turn::TurnEvent,
    view::AcceptedView,
};
use futures_util::stream::BoxStream;

use super::params::given;
pub use super::session_ref::SessionRef;

/// What a handler answers.
pub type HandlerResult<T> = Result<T, ErrorBody>;

/// Something to attach to a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewAttachment {
    /// The place of its message in the history, unless it is the new message's.
    pub history: Option<usize>,
    /// How many bytes of its message's text (UTF-8) are before it; absent for none.
    pub at: Option<u64>,
    /// What it is.
    pub source: AttachmentSource,
}

/// Where an attachment comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttachmentSource {
    /// The request.
    Content(Content),
    /// An earlier upload to the same session.
    File(FileId),
    /// Another server, which the node asks for it.
    Remote(RemoteFile),
}

/// A file at an `https` URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteFile {
    /// Its URL, as the client wrote it.
    pub url: String,
    /// Its name, if the client gives one.
    pub name: Option<String>,
}

/// A message on its way to a session.
#[derive(Clone, Debug, PartialEq)]
pub struct SendRequest {
    /// To whom.
    pub session: SessionKey,
    /// What is said.
    pub message: UserMessage,
    /// What the node attaches to it.
    pub attachments: Vec<NewAttachment>,
    /// A turn of its own, or part of the running one.
    pub mode: SendMode,
    /// The client's name for this request; sending again with the same one is harmless.
    pub key: IdempotencyKey,
    /// The trace that the request belongs to.
    pub trace: Option<Traceparent>,
    /// Its client has sent it before, under a key that is not known: if a turn of the session began with
    /// this text lately, that turn is followed.
    pub sent_before: bool,
}

/// Results of tools that a client ran, on their way to the turn that waits for them.
#[derive(Clone, Debug, PartialEq)]
pub struct ResultsRequest {
    pub session: EntityId,
    /// The agent that the client names.
    pub agent: AgentName,
    /// What the tools answered.
    pub results: Vec<(CallId, String)>,
    /// Pictures and files that they answered with.
    pub attachments: Vec<(CallId, AttachmentSource)>,
    /// Those of the calls whose tool has failed.
    pub failed: BTreeSet<CallId>,
    /// Text that follows the agent's system prompt from here on.
    pub system: Option<String>,
    /// The settings from here on.
    pub sampling: Sampling,
    /// The tools that the client offers from here on.
    pub tools: Vec<ClientTool>,
    /// Pairs that the client gives what follows.
    pub metadata: BTreeMap<String, String>,
    /// The trace that the request belongs to.
    pub trace: Option<Traceparent>,
}

/// Who asks, as far as a handler may know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestCaller {
    /// The trace that the request belongs to.
    pub trace: Option<Traceparent>,
    /// Whose word it is.
    pub credential: &'static str,
}

/// What is recorded of a turn, or of the part of it between two answers to its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnRecord {
    /// Its session; absent while its first message is only stored.
    pub session: Option<SessionKey>,
    /// When its first model call was begun.
    pub begun: Option<Timestamp>,
    /// How far it is.
    pub state: TurnState,
    /// The turn of the same session after it.
    pub next: Option<TurnId>,
    /// Whether its session has nothing else.
    pub is_only: bool,
    /// Pairs that its client gave it.
    pub metadata: BTreeMap<String, String>,
}

/// How far a turn is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnState {
    /// Its message is stored.
    Queued,
    /// It runs, or waits for something.
    Running,
    /// It has ended, or waits for its client.
    Over,
}

/// A turn that is being followed.
///
/// Dropping it stops the following and nothing else: a lost client never cancels a turn.
pub struct Following {
    /// The session, the turn, and where to resume from before any event was seen.
    pub accepted: AcceptedView,
    /// What happens, in order; ends after [`TurnBody::Done`](clawnode_proto::turn::TurnBody::Done).
    ///
    /// Bounded, and never a brake: while events are not taken, this stream waits and the turn does not.
    /// What is lost meanwhile is made good before `Done`. An end without `Done` means that the node lost
    /// sight of the turn, not that the turn ended.
    pub events: BoxStream<'static, TurnEvent>,
}

macro_rules! handlers {
    ($(
        $(#[doc = $about:literal])*
        $variant:ident $($handler:ident)? = $wire:literal: $takes:ident => $answers:ident
        $([$($routes:tt)*])?;
    )*) => {
        /// What the node answers: a handler for each method of the table that names one. It is given
        /// the parameters once they make sense, and is safe to drop half-way.
        #[async_trait]
        pub trait Answers: Send + Sync {
            $( $(
                #[doc = concat!("Answers `", $wire, "`.")]
                async fn $handler(
                    &self,
                    caller: &RequestCaller,
                    params: given::$takes,
                ) -> HandlerResult<types::$answers>;
            )? )*
        }
    };
}

clawnode_proto::methods!(handlers);

/// The node, as its gateway sees it. All methods are safe to drop half-way.
#[async_trait]
pub trait Backend: Answers {
    /// The agent that answers a message which names none (the binding router).
    fn route(&self, inbound: &Inbound<'_>) -> AgentName;

    /// Whether the replies of this agent have to fit a schema.
    fn has_schema(&self, _agent: &AgentName) -> bool {
        false
    }

    /// The agents whose names are nearest to this one, the nearest first, three at most. An agent that has
    /// the name itself is the first.
    fn agents_like(&self, name: &str) -> Vec<AgentName>;

    /// Whether new messages can be stored now.
    async fn ready(&self) -> bool;

    /// Stores a message durably and follows its turn from the start.
    ///
    /// Returns once it is stored; `overloaded` when [`clawnode_proto::limits::PENDING_INPUTS`]
    /// wait. The turn's id derives from the input's, so a repeat finds the original turn.
    async fn send(&self, request: SendRequest) -> Result<Following, ErrorBody>;

    /// Stores results durably and follows the turn that waits for them, from what its client has seen.
    /// A repeat finds what followed.
    async fn results(&self, request: ResultsRequest) -> Result<Following, ErrorBody>;

    /// Follows a turn (the running or last one if none is named) from after a cursor, or from its
    /// start.
    async fn follow(
        &self,
        session: &SessionRef,
        turn: Option<TurnId>,
        after: Option<FrameKey>,
    ) -> Result<Following, ErrorBody>;

    /// Follows a turn from after this call, whose result its client has brought.
    async fn follow_results(&self, session: EntityId, call: CallId)
    -> Result<Following, ErrorBody>;

    /// What is recorded of a turn; with `after`, of the part of it that follows this call of its client.
    async fn turn_record(
        &self,
        session: EntityId,
        turn: TurnId,
        after: Option<CallId>,
    ) -> Result<TurnRecord, ErrorBody>;

    /// Stores a file of a session, for messages that name it. Dropped half-way, it stores nothing that
    /// stays.
    async fn store_file(
        &self,
        session: EntityId,
        name: Option<String>,
        content: BoxStream<'static, Result<Bytes, ErrorBody>>,
    ) -> Result<FileView, ErrorBody>;

    /// A file of a session, and its content.
    async fn file(
        &self,
        session: EntityId,
        file: FileId,
    ) -> Result<(FileView, BoxStream<'static, Result<Bytes, ErrorBody>>), ErrorBody>;

    /// The files of a session, the oldest first.
    async fn files(&self, session: EntityId) -> Result<Vec<FileView>, ErrorBody>;

    /// Deletes a file that no message names.
    async fn delete_file(&self, session: EntityId, file: FileId) -> Result<(), ErrorBody>;

    /// About how many tokens a model call of this agent would have that is asked this alone. What is attached
    /// is not stored.
    async fn count_tokens(
        &self,
        agent: &AgentName,
        message: UserMessage,
        attachments: Vec<NewAttachment>,
    ) -> Result<u64, ErrorBody>;

    /// The vectors of texts, from a provider of models. Nothing of it is stored.
    async fn embed(&self, request: EmbedTexts) -> Result<Embedded, ErrorBody>;

    /// A whole file that a job made.
    async fn artifact(&self, job: JobId, run: Option<u32>, name: &str) -> Result<Bytes, ErrorBody>;

    /// Appends what the node itself counts, in Prometheus' text format.
    fn metrics(&self, out: &mut String);
}

// === impl Following ===

impl fmt::Debug for Following {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Following").field("accepted", &self.accepted).finish_non_exhaustive()
    }
}
