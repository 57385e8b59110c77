//! What gateways do about calls that wait for a person, and turns that wait for more steps.
//!
//! What is shown comes from the bucket, where the session's owner put it; what decides is an input
//! of the session, which its journal judges. The note in the bucket that something was decided is
//! for lists alone.

use clawnode_cluster::{BucketError, StoreError};
use clawnode_proto::{
    CallId, Digest, EntityId, IdempotencyKey, Timestamp, TurnId,
    limits::{APPROVAL_KEPT, DECISION_CHARS},
    policy::{Approval, Decided},
    session::{ApprovalDecided, SessionInput},
    subject::{APPROVAL_KEYS, approval_key},
};
use tracing::debug;

use super::client::{SendError, Sessions};

/// Approvals that one list has at most, the oldest first.
const LIST_MOST: usize = 1_000;

impl Sessions {
    /// The calls that wait for a person now, the oldest first; at most 1,000.
    pub async fn approvals(&self) -> Result<Vec<Approval>, SendError> {
        let now = self.clock.now();
        let mut waiting: Vec<Approval> = Vec::new();
        for (key, entry) in self.substrate.bucket.list(APPROVAL_KEYS).await? {
            match Approval::from_bytes(&entry.value) {
                Ok(approval) if waits(&approval, now) => waiting.push(approval),
                Ok(_over) => {}
                Err(failure) => debug!(key, %failure, "an approval is not readable here"),
            }
        }
        waiting.sort_by_key(|approval| (approval.asked, approval.action.call));
        waiting.truncate(LIST_MOST);
        Ok(waiting)
    }

    /// The call of this id that waits, or has waited, for a person.
    pub async fn approval(&self, call: CallId) -> Result<Approval, SendError> {
        let entry = self.substrate.bucket.get(&approval_key(call)).await?;
        let entry = entry.ok_or_else(|| SendError::NoApproval { call: call.to_string() })?;
        Ok(Approval::from_bytes(&entry.value)?)
    }

    /// Decides about the action with this digest; answers once the decision is stored. The first
    /// one about a call counts.
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
        if let Some(Decided { decision, by, .. }) = &approval.decided {
            let what = format!("{by} said `{}`", decision.as_str());
            return Err(SendError::Decided { call: of, what });
        }
        if self.clock.now() > approval.expires {
            return Err(SendError::Decided { call: of, what: "its time is over".to_owned() });
        }
        let decision = decided.decision.as_str();
        let key = named(&format!("{decision}:{call}:{action}"))?;
        let reason = decided.reason.map(|text| text.chars().take(DECISION_CHARS).collect());
        let decided = Decided { reason, ..decided };
        let input = SessionInput::ApprovalDecided(ApprovalDecided {
            call,
            action,
            decided: decided.clone(),
        });
        self.tell(approval.action.session.entity(), &input, key, None).await?;
        let noted = Approval { decided: Some(decided), ..approval };
        self.note(&noted).await;
        Ok(noted)
    }

    /// Best effort: the session's journal decides, and its owner takes the note away.
    async fn note(&self, approval: &Approval) {
        let key = approval_key(approval.action.call);
        let noting = async {
            let Some(entry) = self.substrate.bucket.get(&key).await? else { return Ok(()) };
            let Ok(bytes) = approval.to_bytes() else { return Ok(()) };
            let left = approval.expires.since(self.clock.now());
            let ttl = Some(left + APPROVAL_KEPT);
            self.substrate.bucket.put(&key, entry.position, bytes.into(), ttl).await.map(drop)
        };
        let noted: Result<(), BucketError> = noting.await;
        if let Err(failure) = noted {
            debug!(call = %approval.action.call, %failure, "a decision was not noted");
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

fn waits(approval: &Approval, now: Timestamp) -> bool {
    approval.decided.is_none() && now <= approval.expires
}

fn named(text: &str) -> Result<IdempotencyKey, SendError> {
    let refused = |detail: String| SendError::Store(StoreError::Refused { store: "inbox", detail });
    text.parse().map_err(|error| refused(format!("{error}")))
}
