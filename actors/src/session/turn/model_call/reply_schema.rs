//! Structured replies: whether a turn's reply fits its schema, and what follows if it does not. Pure.
//!
//! The verdict is journaled, with what the model reads about it: a later build may judge otherwise.

use clawnode_kernel::Violation;
use clawnode_proto::{
    CallId,
    limits::{RESPONSE_BYTES, RESPONSE_MENDS},
    llm::{StopReason, Text},
    response::ResponseSchema,
    session::{Profile, ReplyRefused, TurnOutcome},
};
use clawnode_tool::schema::judge_reply;

use super::super::state::{SessionState, Step, StepEnd, Turn};

/// What the model reads before what is wrong.
const REFUSED: &str = "Your reply does not fit what it has to be.";
/// What it reads after that.
const AGAIN: &str = "Reply again with the corrected JSON alone.";
/// Characters of the errors that people see when a turn failed.
const SHOWN: usize = 600;

/// The verdict on a turn's reply.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::session) enum JudgedReply {
    /// It is the turn's reply; if it had to fit a schema, with the JSON that does.
    Good(Option<String>),
    /// The model is asked to correct it.
    Refused(ReplyRefused),
    /// The turn ends.
    Failed(TurnOutcome),
}

// === impl Turn ===

impl Turn {
    /// What its reply has to fit. A plan has no reply.
    pub(in crate::session) fn response_schema<'a>(
        &'a self,
        profile: &'a Profile,
    ) -> Option<&'a ResponseSchema> {
        let own = self.response_schema.as_ref().or(profile.response_schema.as_ref());
        own.filter(|_| self.plan.is_none())
    }

    /// Whether this call asks the model to correct the reply of the call before it.
    pub(in crate::session) fn corrects(&self, call: CallId) -> bool {
        let at = self.steps.iter().position(|step| step.call == call).unwrap_or(self.steps.len());
        let before = at.checked_sub(1).and_then(|before| self.steps.get(before));
        before.is_some_and(|step| step.refused.is_some())
    }
}

// === impl Step ===

impl Step {
    /// What the model said as people are shown it: nothing if it did not fit its schema.
    pub fn shown(&self) -> Option<&Text> {
        self.text().filter(|_| self.refused.is_none())
    }
}

/// Judges the turn's last reply, which calls no tools.
pub(in crate::session) fn judge(
    profile: &Profile,
    turn: &Turn,
    step: &Step,
    why: &StopReason,
) -> JudgedReply {
    // What the provider withheld is not corrected by asking again.
    let schema = turn.response_schema(profile).filter(|_| *why != StopReason::Refusal);
    let Some(schema) = schema else { return JudgedReply::Good(None) };
    let Some(StepEnd::Done { content, .. }) = &step.end else { return JudgedReply::Good(None) };
    let judged = match content {
        Text::Inline { text } => judge_reply(schema, text),
        Text::Blob { bytes, .. } => {
            Err(format!("The reply is {bytes} bytes long; at most {RESPONSE_BYTES} are allowed."))
        }
    };
    let fault = match judged {
        Ok(json) => return JudgedReply::Good(Some(json.to_owned())),
        Err(fault) if *why == StopReason::MaxTokens => {
            format!("{fault}\nIt reached the limit of tokens for one reply: write less.")
        }
        Err(fault) => fault,
    };
    if turn.steps.iter().filter(|step| step.refused.is_some()).count() < RESPONSE_MENDS {
        let told = format!("{REFUSED}\n{fault}\n{AGAIN}");
        return JudgedReply::Refused(ReplyRefused { turn: turn.id, call: step.call, told });
    }
    #[cfg(feature = "test-util")]
    if clawnode_kernel::KernelBug::MisfitsCount.is_in_folds() {
        return JudgedReply::Good(content.inline().map(str::to_owned));
    }
    let detail = fault.lines().take_while(|line| !line.starts_with("What fits is"));
    let detail: String = detail.collect::<Vec<_>>().join(" ").chars().take(SHOWN).collect();
    JudgedReply::Failed(TurnOutcome::SchemaFailed { detail })
}

// === impl SessionState ===

impl SessionState {
    /// Takes note that the running turn's last reply was refused.
    pub(in crate::session) fn refused(&mut self, refused: &ReplyRefused) -> Result<(), Violation> {
        let turn = self.open.front_mut().filter(|turn| turn.id == refused.turn);
        let step = turn.and_then(|turn| turn.steps.last_mut());
        let step = step.filter(|step| {
            let is_reply = matches!(step.end, Some(StepEnd::Done { .. })) && step.tools.is_empty();
            step.call == refused.call && is_reply && step.refused.is_none()
        });
        let Some(step) = step else {
            return Err(Violation(format!("`{}` has no reply to refuse (SES-1)", refused.call)));
        };
        step.refused = Some(refused.told.clone());
        #[cfg(feature = "test-util")]
        if clawnode_kernel::KernelBug::CorrectsInSilence.is_in_folds() {
            step.refused = Some(String::new());
        }
        Ok(())
    }
}
