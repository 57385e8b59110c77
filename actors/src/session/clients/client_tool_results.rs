//! What a client brings of the tools that it runs: checked against the turn that waits, stored as an input of
//! it, and followed from there.
//!
//! The results of one reply come together, and once: the input is named by the model call, so that a repeated
//! request stores nothing. A client that repeats it gets what follows, also when the turn has continued since.

use std::time::Duration;

use clawnode_proto::{
    CallId, EntityId, IdempotencyKey, Traceparent,
    client_tool::{ClientResult, ClientResults},
    session::{SessionInput, ToolEnd},
};

use super::{
    follow::{FollowRequest, follow},
    follow_from::FollowFrom,
    send_error::SendError,
    sessions::{SentMessage, Sessions},
};
use crate::session::turn::{
    state::{SessionState, Step, Turn},
    tools::tool_calls::ToolCall,
};

/// How long a call is looked for: who hears of it may answer before a read shows it.
const RECORDED_WITHIN: Duration = Duration::from_secs(1);
/// How often it is looked for.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The calls that results are for.
struct ResultsPlace {
    /// Their model call.
    call: CallId,
    from: FollowFrom,
    /// They were brought before.
    again: bool,
}

// === impl Sessions ===

impl Sessions {
    /// Stores the results of tools that a client ran, and follows the turn that waits for them. A repeat
    /// finds what followed the first time. The turn is that of the calls, whatever `results` says.
    pub async fn bring(
        &self,
        session: EntityId,
        results: ClientResults,
        trace: Option<Traceparent>,
    ) -> Result<SentMessage, SendError> {
        let input = self.fitted(session, SessionInput::ClientResults(results)).await?;
        let SessionInput::ClientResults(mut results) = input else {
            return Err(SendError::Results("there are no results".to_owned()));
        };
        let ResultsPlace { call, from, again } = self.placed(session, &results.results).await?;
        let (turn, cursor) = (from.cursor.turn, from.cursor);
        // Before they are stored, so that nothing that follows is missed.
        let frames = self.shared.ears.listen_together(self.storage(), session).await?;
        if !again {
            results.turn = turn;
            let key: IdempotencyKey = format!("client-results:{call}")
                .parse()
                .map_err(|error| SendError::Results(format!("{error}")))?;
            self.tell(session, &SessionInput::ClientResults(results), key, trace).await?;
        }
        let (sessions, after, from) = (self.clone(), Some(cursor), Some(from));
        let request = FollowRequest { sessions, session, turn, after, from, frames, fresh: false };
        Ok(SentMessage { session, turn, cursor, events: follow(request) })
    }

    /// The calls that these results are for.
    async fn placed(
        &self,
        session: EntityId,
        results: &[ClientResult],
    ) -> Result<ResultsPlace, SendError> {
        let Some(first) = results.first().map(|result| result.call) else {
            return Err(SendError::Results("there are no results".to_owned()));
        };
        let looks = async {
            let mut is_first = true;
            loop {
                // What left the session's state does not come back.
                let read = if std::mem::take(&mut is_first) {
                    self.read_with_call(session, first).await
                } else {
                    self.read(session).await
                };
                let entity = match read {
                    Ok(entity) => entity,
                    Err(SendError::NotFound { .. }) => return Err(unknown(first)),
                    Err(failure) => return Err(failure),
                };
                if let Some(place) = placed(&entity.state, first, results) {
                    return place;
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        let found = tokio::time::timeout(RECORDED_WITHIN, looks).await;
        found.unwrap_or_else(|_elapsed| Err(unknown(first)))
    }
}

/// The calls that these results are for, if the session has the first of them.
fn placed(
    state: &SessionState,
    first: CallId,
    results: &[ClientResult],
) -> Option<Result<ResultsPlace, SendError>> {
    let (turn, at) = state.place_of_call(first)?;
    let (step, from) = (turn.steps.get(at)?, FollowFrom::of(turn, at)?);
    let again = are_known(turn, step, results);
    Some(again.map(|again| ResultsPlace { call: step.call, from, again }))
}

/// Whether these results were brought before; refused if they are not those that are waited for.
fn are_known(turn: &Turn, step: &Step, results: &[ClientResult]) -> Result<bool, SendError> {
    let of_client: Vec<&ToolCall> = step.tools.iter().filter(|tool| tool.is_of_client()).collect();
    for (nth, result) in results.iter().enumerate() {
        if !of_client.iter().any(|tool| tool.call == result.call) {
            return Err(unknown(result.call));
        }
        if results.iter().take(nth).any(|before| before.call == result.call) {
            let what = format!("there are two results for tool call `{}`", result.call);
            return Err(SendError::Results(what));
        }
    }
    let result_of = |tool: &ToolCall| results.iter().find(|result| result.call == tool.call);
    if let Some(missing) = of_client.iter().find(|tool| result_of(tool).is_none()) {
        let (call, name) = (missing.call, &missing.using.name);
        let what = format!("there is no result for tool call `{call}` (`{name}`)");
        return Err(SendError::Results(what));
    }
    if turn.outcome.is_none() && of_client.iter().all(|tool| tool.is_with_client()) {
        return Ok(false);
    }
    let is_same = |tool: &&ToolCall| match tool.end.as_ref().or(tool.brought.as_ref()) {
        Some(ToolEnd::Known { outcome }) => {
            result_of(tool).is_some_and(|result| result.outcome() == *outcome)
        }
        Some(_) | None => false,
    };
    if of_client.iter().all(is_same) {
        return Ok(true);
    }
    let what = if of_client.iter().any(|tool| tool.end.is_some() || tool.brought.is_some()) {
        "other results of these tool calls were brought before, and count"
    } else {
        "the turn that waited for these tool calls has ended"
    };
    Err(SendError::LateResults(what.to_owned()))
}

pub(super) fn unknown(call: CallId) -> SendError {
    SendError::Results(format!("no tool call `{call}` waits for a client's result"))
}
