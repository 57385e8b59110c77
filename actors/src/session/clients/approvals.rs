//! How gateways handle calls that wait for a person, and turns that wait for more steps.
//!
//! The session's owner puts such a call into the bucket, and gateways show it from there. A decision is an
//! input of the session, and its journal judges it: the first decision about a call counts. A person who
//! decides gets the decision that counts, from the journal or from the inputs that the journal will take
//! next. The note of a decision in the bucket is only for lists.

use std::time::Duration;

use clawnode_cluster::{BucketError, StoreError};
use clawnode_proto::{
    CallId, Cursor, Digest, EntityId, IdempotencyKey, Input, Position, Timestamp, TurnId,
    api::Method,
    codec,
    cursor::Pair,
    limits::{APPROVAL_KEPT, DECISION_CHARS},
    policy::{Approval, Decided, Decision},
    session::{ApprovalDecided, SessionInput},
    subject::{APPROVAL_KEYS, OUTAGE_KEYS, approval_key},
    view::ApprovalList,
};
use tracing::debug;

use super::{send_error::SendError, sessions::Sessions};

/// How long after its end a wait for a provider still counts: its turn may not have begun to ask.
const NOTE_KEPT: Duration = Duration::from_secs(5);
/// How long to look for a call that should wait for a person. One process may report all calls of a reply
/// while another still stores the last of them, and programs answer at once.
const RECORDED_WITHIN: Duration = Duration::from_secs(1);
/// How long to wait between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

impl Sessions {
    /// The calls that wait for a person now, the oldest first: at most `limit` of those after `after`.
    /// The time of the question never changes, so a call that waits all the time is on exactly one page.
    pub async fn approvals(
        &self,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<ApprovalList, SendError> {
        const LIST: Method = Method::ApprovalsList;
        let after = after.map(|cursor| cursor.read::<Pair<u64, CallId>>(LIST)).transpose()?;
        let place = |approval: &Approval| Pair(approval.asked.0, approval.action.call);
        let mut approvals = self.waiting_approvals().await?;
        approvals.retain(|approval| after.is_none_or(|after| place(approval) > after));
        approvals.sort_by_key(place);
        let is_more = approvals.len() > limit;
        approvals.truncate(limit);
        let last = approvals.last().filter(|_| is_more);
        let next = last.map(|last| Cursor::new(LIST, place(last)));
        Ok(ApprovalList { approvals, budgets: Vec::new(), next })
    }

    /// All calls that wait for a person now, in no order.
    pub async fn waiting_approvals(&self) -> Result<Vec<Approval>, SendError> {
        let now = self.now();
        let mut waiting: Vec<Approval> = Vec::new();
        for (key, entry) in self.storage().bucket.list(APPROVAL_KEYS).await? {
            match Approval::from_bytes(&entry.value) {
                Ok(approval) if waits(&approval, now) => waiting.push(approval),
                Ok(_over) => {}
                Err(failure) => debug!(key, %failure, "an approval is not readable here"),
            }
        }
        Ok(waiting)
    }

    /// How many turns wait for a provider now.
    pub async fn waiting_for_providers(&self) -> Result<u64, SendError> {
        let now = self.now();
        let notes = self.storage().bucket.list(OUTAGE_KEYS).await?;
        let until =
            notes.iter().filter_map(|(_, note)| codec::decode::<Timestamp>(&note.value).ok());
        Ok(until.filter(|until| until.plus(NOTE_KEPT) > now).count() as u64)
    }

    /// The call of this id that waits, or has waited, for a person.
    pub async fn approval(&self, call: CallId) -> Result<Approval, SendError> {
        let key = approval_key(call);
        let recorded = async {
            loop {
                if let Some(entry) = self.storage().bucket.get(&key).await? {
                    return Ok(Approval::from_bytes(&entry.value)?);
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        match tokio::time::timeout(RECORDED_WITHIN, recorded).await {
            Ok(found) => found,
            Err(_elapsed) => Err(SendError::NoApproval { call: call.to_string() }),
        }
    }

    /// Decides about the action with this digest; answers once the decision is stored and counts.
    /// The first decision about a call counts. Another one is refused, and the error names the first.
    pub async fn decide(
        &self,
        call: CallId,
        action: Digest,
        decided: Decided,
    ) -> Result<Approval, SendError> {
        let approval = self.approval(call).await?;
        let call_text = call.to_string();
        if approval.digest != action || approval.action.digest()? != action {
            return Err(SendError::OtherAction { call: call_text });
        }
        if let Some(counts) = &approval.decided {
            let counts = counts.clone();
            return agreed(approval, decided.decision, counts);
        }
        if self.now() > approval.expires {
            return Err(SendError::Decided {
                call: call_text,
                what: "its time limit passed".to_owned(),
            });
        }
        let decision = decided.decision;
        let key = named(&format!("{}:{call}:{action}", decision.as_str()))?;
        let reason = decided.reason.map(|text| text.chars().take(DECISION_CHARS).collect());
        let decided = Decided { reason, ..decided };
        let input = SessionInput::ApprovalDecided(ApprovalDecided { call, action, decided });
        self.tell(approval.action.session.entity(), &input, key, None).await?;
        let Some(counts) = self.counts(&approval).await? else {
            let what = "its time limit passed, or its turn ended".to_owned();
            return Err(SendError::Decided { call: call_text, what });
        };
        self.note(&Approval { decided: Some(counts.clone()), ..approval.clone() }).await;
        agreed(approval, decision, counts)
    }

    /// The decision about an action that counts: the one in the journal, else the first in the inbox,
    /// which the journal will take.
    async fn counts(&self, approval: &Approval) -> Result<Option<Decided>, SendError> {
        let action = &approval.action;
        let session = action.session.entity();
        // The inbox first: an input that leaves it meanwhile is in the journal by then.
        let waiting = self.storage().inbox.read(session, Position(0)).await?;
        let state = self.read_with_turn(session, action.turn).await?.state;
        let tools =
            state.turn(action.turn).map(|turn| turn.steps.iter().flat_map(|step| &step.tools));
        let Some(tool) = tools.and_then(|mut tools| tools.find(|tool| tool.call == action.call))
        else {
            return Ok(None);
        };
        if !tool.is_asked_about() {
            let taken = tool.approval.as_ref();
            return Ok(
                taken.and_then(|taken| taken.given.clone().or_else(|| taken.brought.clone()))
            );
        }
        Ok(waiting.iter().find_map(|one| {
            let input = Input::from_bytes(&one.bytes).ok()?;
            match codec::decode(&input.body).ok()? {
                SessionInput::ApprovalDecided(decision)
                    if decision.call == action.call && decision.action == approval.digest =>
                {
                    Some(decision.decided)
                }
                _ => None,
            }
        }))
    }

    /// Best effort: the session's journal decides, and its owner takes the note away.
    async fn note(&self, approval: &Approval) {
        let key = approval_key(approval.action.call);
        let noting = async {
            let Some(entry) = self.storage().bucket.get(&key).await? else { return Ok(()) };
            let Ok(bytes) = approval.to_bytes() else { return Ok(()) };
            let left = approval.expires.since(self.now());
            let ttl = Some(left + APPROVAL_KEPT);
            self.storage().bucket.put(&key, entry.position, bytes.into(), ttl).await.map(drop)
        };
        let noted: Result<(), BucketError> = noting.await;
        if let Err(failure) = noted {
            debug!(call = %approval.action.call, %failure, "cannot record a decision");
        }
    }

    /// Gives more steps to a turn that has used up its own; answers once that is stored. Without a turn,
    /// the running one gets them.
    pub async fn go_on(
        &self,
        session: EntityId,
        turn: Option<TurnId>,
    ) -> Result<TurnId, SendError> {
        let state = self.read(session).await?.state;
        let waiting = state.running().filter(|one| turn.is_none_or(|turn| one.id == turn));
        let Some((one, reached)) = waiting.and_then(|one| Some((one, one.limit_reached?))) else {
            return Err(SendError::NoStepsWanted { session: session.to_string() });
        };
        let (turn, key) = (one.id, format!("continue:{}:{}", one.timers(), reached.limit));
        let key = named(&key)?;
        self.tell(session, &SessionInput::Continue { turn }, key, None).await?;
        Ok(turn)
    }
}

/// The approval with the decision that counts, for a person who decided the same.
fn agreed(approval: Approval, decision: Decision, counts: Decided) -> Result<Approval, SendError> {
    if counts.decision == decision {
        return Ok(Approval { decided: Some(counts), ..approval });
    }
    let what = format!("{} said `{}`", counts.by, counts.decision.as_str());
    Err(SendError::Decided { call: approval.action.call.to_string(), what })
}

fn waits(approval: &Approval, now: Timestamp) -> bool {
    approval.decided.is_none() && now <= approval.expires
}

fn named(text: &str) -> Result<IdempotencyKey, SendError> {
    let refused = |detail: String| SendError::Store(StoreError::Refused { store: "inbox", detail });
    text.parse().map_err(|error| refused(format!("{error}")))
}
