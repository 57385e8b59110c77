//! What gateways do about calls that wait for a person, and turns that wait for more steps.
//!
//! What is shown comes from the bucket, where the session's owner put it; what decides is an input
//! of the session, which its journal judges: the first one about a call counts. Who decides reads
//! what counts, as the journal has it, or will have it once it takes what waits. The note in the
//! bucket that something was decided is for lists alone.

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

use super::{client::Sessions, send_error::SendError};

/// How long after its end a wait for a provider still counts: its turn may not have begun to ask.
const NOTE_KEPT: Duration = Duration::from_secs(5);
/// How long what waits for a person is looked for. One process may tell of all calls of a reply
/// while another still stores the last of them, and people's programs answer at once.
const RECORDED_WITHIN: Duration = Duration::from_secs(1);
/// How often it is looked for.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

impl Sessions {
    /// The calls that wait for a person now, the oldest first: at most `limit` of those after `after`.
    /// When a call was asked about never changes, so one that waits all the time is on one page.
    pub async fn approvals(
        &self,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<ApprovalList, SendError> {
        const LIST: Method = Method::ApprovalsList;
        let after = after.map(|cursor| cursor.read::<Pair<u64, CallId>>(LIST)).transpose()?;
        let place = |it: &Approval| Pair(it.asked.0, it.action.call);
        let mut approvals = self.waiting_approvals().await?;
        approvals.retain(|it| after.is_none_or(|after| place(it) > after));
        approvals.sort_by_key(place);
        let is_more = approvals.len() > limit;
        approvals.truncate(limit);
        let last = approvals.last().filter(|_| is_more);
        let next = last.map(|last| Cursor::new(LIST, place(last)));
        Ok(ApprovalList { approvals, next })
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
    /// The first one about a call does: one that says something else is refused, with what counts.
    pub async fn decide(
        &self,
        call: CallId,
        action: Digest,
        decided: Decided,
    ) -> Result<Approval, SendError> {
        let approval = self.approval(call).await?;
        let of = call.to_string();
        if approval.digest != action || approval.action.digest()? != action {
            return Err(SendError::OtherAction { call: of });
        }
        if let Some(counts) = &approval.decided {
            let counts = counts.clone();
            return agreed(approval, decided.decision, counts);
        }
        if self.now() > approval.expires {
            return Err(SendError::Decided { call: of, what: "its time limit passed".to_owned() });
        }
        let decision = decided.decision;
        let key = named(&format!("{}:{call}:{action}", decision.as_str()))?;
        let reason = decided.reason.map(|text| text.chars().take(DECISION_CHARS).collect());
        let decided = Decided { reason, ..decided };
        let input = SessionInput::ApprovalDecided(ApprovalDecided { call, action, decided });
        self.tell(approval.action.session.entity(), &input, key, None).await?;
        let Some(counts) = self.counts(&approval).await? else {
            let what = "its time limit passed, or its turn ended".to_owned();
            return Err(SendError::Decided { call: of, what });
        };
        self.note(&Approval { decided: Some(counts.clone()), ..approval.clone() }).await;
        agreed(approval, decision, counts)
    }

    /// The decision about an action that counts: what the journal has taken, else the first that
    /// waits in the inbox, from which the journal will take it.
    async fn counts(&self, approval: &Approval) -> Result<Option<Decided>, SendError> {
        let action = &approval.action;
        let session = action.session.entity();
        // The inbox first: what is taken out of it meanwhile is in the journal by then.
        let waiting = self.storage().inbox.read(session, Position(0)).await?;
        let state = self.read(session).await?.state;
        let tools = state.turn(action.turn).map(|turn| turn.steps.iter().flat_map(|it| &it.tools));
        let Some(tool) = tools.and_then(|mut tools| tools.find(|it| it.call == action.call)) else {
            return Ok(None);
        };
        if !tool.is_asked_about() {
            let taken = tool.approval.as_ref();
            return Ok(taken.and_then(|it| it.given.clone().or_else(|| it.brought.clone())));
        }
        Ok(waiting.iter().find_map(|one| {
            let input = Input::from_bytes(&one.bytes).ok()?;
            match codec::decode(&input.body).ok()? {
                SessionInput::ApprovalDecided(it)
                    if it.call == action.call && it.action == approval.digest =>
                {
                    Some(it.decided)
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

    /// Gives a turn that has used up its steps more of them; answers once that is stored. The
    /// running turn, if none is named.
    pub async fn go_on(
        &self,
        session: EntityId,
        turn: Option<TurnId>,
    ) -> Result<TurnId, SendError> {
        let state = self.read(session).await?.state;
        let waiting = state.running().filter(|one| turn.is_none_or(|turn| one.id == turn));
        let waiting = waiting.and_then(|one| one.limit_reached.map(|reached| (one.id, reached)));
        let Some((turn, reached)) = waiting else {
            return Err(SendError::NoStepsWanted { session: session.to_string() });
        };
        let key = named(&format!("continue:{turn}:{}", reached.limit))?;
        self.tell(session, &SessionInput::Continue { turn }, key, None).await?;
        Ok(turn)
    }
}

/// The approval with the decision that counts, for who decided the same.
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
