//! The attempts of one call: which failure is followed by another attempt, and when.

use std::time::Duration;

use clawnode_proto::llm::{FailureClass, ModelFailure};
use tokio::time::Instant;
use tracing::warn;

use super::{circuit::millis, http::AttemptFailure, options::ProviderOptions, retry::Retry};

/// How often a call is made again whose reply broke off. Each reply that breaks off may be paid for.
const BREAKS_MAX: u32 = 2;

/// The attempts of one call.
#[derive(Debug)]
pub(super) struct Attempts {
    retry: Retry,
    breaks: u32,
    /// A connection broke, in a reply or before it.
    has_broken: bool,
    last: Option<ModelFailure>,
}

// === impl Attempts ===

impl Attempts {
    pub(super) fn new(options: &ProviderOptions, deadline: Instant) -> Self {
        Self { retry: Retry::new(options, deadline), breaks: 0, has_broken: false, last: None }
    }

    /// Why the last one failed, for a call that the circuit lets make no other.
    pub(super) fn last(&mut self) -> Option<ModelFailure> {
        self.last.take()
    }

    /// Which retry follows one that failed so, how long until then, and what to say of it; the failure of
    /// the call if none does. `open` is how long the circuit refuses calls.
    pub(super) fn after(
        &mut self,
        fault: AttemptFailure,
        open: Option<Duration>,
    ) -> Result<(u32, Duration, ModelFailure), ModelFailure> {
        let AttemptFailure { mut failure, again, after, in_reply } = fault;
        self.breaks += u32::from(in_reply);
        if !again || self.breaks > BREAKS_MAX || open.is_some() {
            failure.retry_after_ms = open.or(after).map(millis);
            return Err(failure);
        }
        // A connection that broke says nothing of how busy its provider is: a new one works, or shows at
        // once that another model has to answer.
        let broke = failure.class == FailureClass::BrokenStream;
        let at_once = broke && !std::mem::replace(&mut self.has_broken, true);
        let next = self.retry.next(after, at_once, Instant::now(), &mut rand::rng());
        let Some((nth, wait)) = next else {
            if let Some(after) = after {
                let seconds = after.as_secs_f64();
                let message = failure.message;
                failure.message = format!("{message} (it asks to wait {seconds} s)");
                failure.retry_after_ms = Some(millis(after));
            }
            return Err(failure);
        };
        // Not the message: providers quote the prompt in some of them.
        warn!(
            retry = nth,
            wait_ms = millis(wait),
            "error.type" = failure.code().as_str(),
            "model call refused, trying again"
        );
        self.last = Some(failure.clone());
        Ok((nth, wait, failure))
    }
}
