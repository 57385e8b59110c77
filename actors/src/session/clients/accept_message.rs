//! A message is stored before it is accepted: `send` makes an input of it that fits, and stores that in the
//! inbox of its session. So does everything else that clients have sessions do.

use std::{sync::atomic::Ordering, time::Duration};

use clawnode_cluster::StoreError;
use clawnode_kernel::EntityKind;
use clawnode_proto::{
    EntityId, IdempotencyKey, Input, Kind, SessionKey, Traceparent, TurnId,
    client_tool::{ClientResults, ClientTool},
    envelope::{
        ATTACHMENT_PLACES, ATTACHMENTS, CLIENT_TOOLS, FEEDBACK, KEPT_CHOICES, LANES, METADATA,
        REFLECT, RESPONSE_SCHEMA,
    },
    limits::{APPEND_BYTES, INLINE_BYTES, INPUT_BYTES, PENDING_INPUTS},
    llm::Text,
    session::{SessionInput, UserMessage},
    visible::is_hidden,
};
use futures_util::future::join;

use super::{
    follow::{FollowRequest, follow},
    send_error::SendError,
    sessions::{SentMessage, Sessions, start_of},
};
use crate::session::{texts::packed, turn::kind::Session};

/// Bytes of the texts in one input; the longest are stored as blobs until the others fit.
const TEXT_BYTES: usize = APPEND_BYTES / 2;

/// How long the sender of a steer waits to hear which turn it belongs to.
const JOINED_WITHIN: Duration = Duration::from_secs(2);
/// How soon that is looked for again; twice as late each time, up to [`LOOK_MOST`].
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// The longest time between two such looks.
const LOOK_MOST: Duration = Duration::from_millis(200);

// === impl Sessions ===

impl Sessions {
    /// Stores a message durably and follows its turn. A repeat under the same key finds the
    /// original turn. A session whose key looks like another's can be read and deleted, and takes
    /// no more messages.
    pub async fn send(
        &self,
        key: &SessionKey,
        input: SessionInput,
        idempotency_key: IdempotencyKey,
        trace: Option<Traceparent>,
    ) -> Result<SentMessage, SendError> {
        let session = key.entity();
        let name = key.to_string();
        if name.chars().any(is_hidden) {
            return Err(SendError::HiddenKey(name));
        }
        let input = self.fitted(session, input).await?;
        let mut stored = Input::new(Kind::SESSION, &name, idempotency_key, self.now(), &input)?;
        fits(&stored)?;
        self.mark(&mut stored, &input)?;
        stored.traceparent = trace;
        let mut turn = TurnId::from(stored.id);
        let steers = matches!(input, SessionInput::Steer(_));
        // Asked for before it is stored, so that no frame of the turn can be missed; waited for
        // together, because each takes a round trip.
        let listening = self.shared.ears.listen(self.storage(), session);
        let storing = self.storage().inbox.put_if_room(&stored, PENDING_INPUTS);
        let (listening, position) = join(listening, storing).await;
        if position?.is_none() {
            return Err(SendError::Overloaded { session: key.to_string() });
        }
        let heard_all = listening.is_ok();
        let frames = match listening {
            Ok(frames) => frames,
            // It is stored, so its sender should not hear of a failure that does not last.
            Err(_) => self.shared.ears.listen(self.storage(), session).await?,
        };
        if steers {
            turn = self.joined(session, turn).await;
        }
        let events = follow(FollowRequest {
            sessions: self.clone(),
            session,
            turn,
            after: None,
            from: None,
            frames,
            fresh: heard_all && !steers,
        });
        Ok(SentMessage { session, turn, cursor: start_of(turn), events })
    }

    /// Asks to cancel a turn; answers once that is stored.
    pub async fn cancel(
        &self,
        session: EntityId,
        turn: TurnId,
        idempotency_key: IdempotencyKey,
        trace: Option<Traceparent>,
    ) -> Result<(), SendError> {
        self.tell(session, &SessionInput::Cancel { turn }, idempotency_key, trace).await
    }

    /// Asks to delete a session; answers once that is stored.
    pub async fn delete(
        &self,
        session: EntityId,
        idempotency_key: IdempotencyKey,
    ) -> Result<(), SendError> {
        self.tell(session, &SessionInput::Delete, idempotency_key, None).await
    }

    /// Deletes a session that is out of service, with what is parked or waits for it. Answers once its
    /// tombstone is stored.
    pub async fn discard(&self, session: EntityId) -> Result<(), SendError> {
        match self.entities().kind(session).await {
            Ok(Some(kind)) if kind != Session::KIND => {
                return Err(SendError::OtherKind { entity: session, kind });
            }
            // What cannot be read says no kind.
            Ok(_) | Err(StoreError::Corrupt { .. }) => {}
            Err(failure) => return Err(failure.into()),
        }
        self.entities().discard(session).await?;
        Ok(())
    }

    pub(in crate::session) async fn tell(
        &self,
        session: EntityId,
        input: &SessionInput,
        idempotency_key: IdempotencyKey,
        trace: Option<Traceparent>,
    ) -> Result<(), SendError> {
        let mut stored = self.addressed(session, input, idempotency_key).await?;
        stored.traceparent = trace;
        self.storage().inbox.put(&stored).await?;
        Ok(())
    }

    /// An input for a session that there is.
    pub(in crate::session) async fn addressed(
        &self,
        session: EntityId,
        input: &SessionInput,
        idempotency_key: IdempotencyKey,
    ) -> Result<Input, SendError> {
        // Only the key is wanted: the kernel's part has it, and its kind need not be folded.
        let core = self.own(session).await?;
        let key = core.key.ok_or_else(|| SendError::NotFound { session: session.to_string() })?;
        let now = self.now();
        let mut stored = Input::new(Kind::SESSION, &key, idempotency_key, now, input)?;
        fits(&stored)?;
        self.mark(&mut stored, input)?;
        Ok(stored)
    }

    /// Says who may read an input.
    fn mark(&self, stored: &mut Input, input: &SessionInput) -> Result<(), SendError> {
        stored.v = self.writes();
        if let Some((needs, what)) = needs(input) {
            // Once it is accepted, an older build that takes the session over would not see that.
            if self.version.load(Ordering::Relaxed) < needs {
                return Err(SendError::OlderBuild(what));
            }
            (stored.v, stored.v_min) = (needs, needs);
        }
        Ok(())
    }

    /// The turn that a stored steer belongs to: the one it joined, or its own. Only the journal
    /// knows, once it has it; until then it may be either, and following its own id finds it.
    async fn joined(&self, session: EntityId, own: TurnId) -> TurnId {
        let look = async {
            let mut wait = LOOK_AGAIN;
            let mut seen = None;
            loop {
                let tail = self.storage().journal.position(session).await.ok();
                if tail.is_none_or(|tail| seen != Some(tail))
                    && let Ok(entity) = self.read_with_turn(session, own).await
                {
                    if let Some(turn) = entity.state.turn(own) {
                        return turn.id;
                    }
                    seen = tail;
                }
                tokio::time::sleep(wait).await;
                wait = LOOK_MOST.min(wait * 2);
            }
        };
        tokio::time::timeout(JOINED_WITHIN, look).await.unwrap_or(own)
    }

    /// The message with its longest texts in the blob store, until the rest fits in an append.
    pub(in crate::session) async fn fitted(
        &self,
        session: EntityId,
        input: SessionInput,
    ) -> Result<SessionInput, SendError> {
        Ok(match input {
            SessionInput::UserMessage(message) => {
                SessionInput::UserMessage(self.fitted_message(session, message).await?)
            }
            SessionInput::Steer(message) => {
                SessionInput::Steer(self.fitted_message(session, message).await?)
            }
            SessionInput::ClientResults(results) => {
                SessionInput::ClientResults(self.fitted_results(session, results).await?)
            }
            // Bounded where it is made.
            other @ (SessionInput::Execute(_)
            | SessionInput::Cancel { .. }
            | SessionInput::ToolResult(_)
            | SessionInput::ApprovalDecided(_)
            | SessionInput::Continue { .. }
            | SessionInput::Feedback(_)
            | SessionInput::Reflect(_)
            | SessionInput::TimerFired { .. }
            | SessionInput::Delete) => other,
        })
    }

    async fn fitted_message(
        &self,
        session: EntityId,
        mut message: UserMessage,
    ) -> Result<UserMessage, SendError> {
        let system = message.system.as_ref().map_or(0, String::len);
        let schema = message.response_schema.as_ref().map_or(0, |schema| schema.schema.len());
        let tools = message.tools.iter().map(ClientTool::bytes).sum::<usize>();
        let fixed = system + schema + tools;
        let mut texts: Vec<&mut Text> = vec![&mut message.content];
        for one in &mut message.history {
            texts.push(&mut one.content);
            texts.extend(one.tool_replies.iter_mut().map(|reply| &mut reply.content));
        }
        self.fit(session, fixed, texts).await?;
        Ok(message)
    }

    async fn fitted_results(
        &self,
        session: EntityId,
        mut results: ClientResults,
    ) -> Result<ClientResults, SendError> {
        let system = results.system.as_ref().map_or(0, String::len);
        let fixed = system + results.tools.iter().map(ClientTool::bytes).sum::<usize>();
        let texts = results.results.iter_mut().map(|one| &mut one.content).collect();
        self.fit(session, fixed, texts).await?;
        Ok(results)
    }

    /// Stores the longest of these texts as blobs, until the rest fits beside so many fixed bytes.
    async fn fit(
        &self,
        session: EntityId,
        fixed: usize,
        mut texts: Vec<&mut Text>,
    ) -> Result<(), SendError> {
        if fixed > TEXT_BYTES {
            return Err(SendError::TooLarge { found: fixed, limit: TEXT_BYTES });
        }
        let inline = |text: &Text| text.inline().map_or(64, str::len);
        let mut total: usize = fixed + texts.iter().map(|text| inline(text)).sum::<usize>();
        texts.sort_by_key(|text| std::cmp::Reverse(inline(text)));
        for text in texts {
            let size = inline(text);
            if total <= TEXT_BYTES && size <= INLINE_BYTES {
                break;
            }
            if let Text::Inline { text: content } = text {
                let bytes = content.len() as u64;
                let content = packed(session, std::mem::take(content));
                let digest = self.storage().blobs.put(content).await?;
                *text = Text::Blob { digest, bytes };
                total = total.saturating_sub(size) + 64;
            }
        }
        if total > TEXT_BYTES {
            return Err(SendError::TooLarge { found: total, limit: TEXT_BYTES });
        }
        Ok(())
    }
}

/// The oldest reader that would lose nothing of it, and what older ones do not know.
fn needs(input: &SessionInput) -> Option<(u16, &'static str)> {
    let message = match input {
        SessionInput::ClientResults(_) => return Some((CLIENT_TOOLS, "tools of clients")),
        SessionInput::Feedback(_) => return Some((FEEDBACK, "feedback")),
        SessionInput::Reflect(_) => return Some((REFLECT, "requests for reflections")),
        SessionInput::UserMessage(message) | SessionInput::Steer(message) => message,
        _ => return None,
    };
    if message.response_schema.is_some() {
        return Some((RESPONSE_SCHEMA, "`response_schema`"));
    }
    if !message.keep.is_empty() {
        return Some((KEPT_CHOICES, "`keep`"));
    }
    if !message.metadata.is_empty() {
        return Some((METADATA, "`metadata`"));
    }
    if message.lane.is_some() {
        return Some((LANES, "`lane`"));
    }
    if !message.tools.is_empty() || message.sampling.is_newer() {
        return Some((CLIENT_TOOLS, "tools of clients and newer settings of a message"));
    }
    let earlier = message.history.iter().flat_map(|message| &message.attachments);
    let mut attached = message.attachments.iter().chain(earlier).peekable();
    let has_attachments = attached.peek().is_some();
    if attached.any(|media| media.at.is_some()) {
        return Some((ATTACHMENT_PLACES, "attachments between texts"));
    }
    has_attachments.then_some((ATTACHMENTS, "attachments"))
}

/// Judged as it is encoded: many short texts take much more room than their characters.
fn fits(input: &Input) -> Result<(), SendError> {
    let found = input.body.len();
    if found > INPUT_BYTES {
        return Err(SendError::TooLarge { found, limit: INPUT_BYTES });
    }
    Ok(())
}
