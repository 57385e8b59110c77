//! What a client saw of one message, and what it must have been.

use clawnode_proto::{FrameKey, TurnId, session::TurnOutcome};
use tokio::time::Instant;

/// One message, and all that its client saw of it.
#[derive(Clone, Debug)]
pub struct Transcript {
    /// Whose session.
    pub peer: String,
    pub content: String,
    /// Makes sending again harmless.
    pub key: String,
    /// When it was first sent.
    pub sent: Instant,
    /// The turns that acceptances named; more than one is a violation.
    pub turns: Vec<TurnId>,
    /// What was seen, in order.
    pub seen: Vec<Seen>,
    /// The reply as the user reads it now.
    pub text: String,
    /// How often the gateways refused, and why.
    pub refusals: Vec<String>,
}

/// Something that was seen.
#[derive(Clone, Debug)]
pub struct Seen {
    pub at: Instant,
    /// On which of the client's connections.
    pub connection: u32,
    /// Its place in the turn.
    pub cursor: Option<FrameKey>,
    pub sight: Sight,
}

/// An event that a client saw.
#[derive(Clone, Debug, PartialEq)]
pub enum Sight {
    /// The message is taken, or its turn is followed.
    Accepted(TurnId),
    /// More of the reply.
    Text(String),
    /// The reply begins again, with this.
    Reset(String),
    /// Something was left out.
    Lagged,
    /// Usage, a notice.
    Other,
    /// The end.
    Done(TurnOutcome),
}

// === impl Transcript ===

impl Transcript {
    /// Of a message that is about to be sent.
    pub fn new(peer: &str, content: &str, sent: Instant) -> Self {
        Self {
            peer: peer.to_owned(),
            content: content.to_owned(),
            key: format!("{peer}/{content}"),
            sent,
            turns: Vec::new(),
            seen: Vec::new(),
            text: String::new(),
            refusals: Vec::new(),
        }
    }

    /// The session that it goes to.
    pub fn session(&self) -> String {
        format!("default:chaos:a:{}", self.peer)
    }

    /// Writes down what was seen.
    pub fn see(&mut self, seen: Seen) {
        match &seen.sight {
            Sight::Accepted(turn) if !self.turns.contains(turn) => self.turns.push(*turn),
            Sight::Text(text) => self.text.push_str(text),
            Sight::Reset(text) => self.text.clone_from(text),
            Sight::Accepted(_) | Sight::Lagged | Sight::Other | Sight::Done(_) => {}
        }
        self.seen.push(seen);
    }

    /// Whether it was accepted.
    pub fn is_accepted(&self) -> bool {
        !self.turns.is_empty()
    }

    /// How its turn ended, as its client heard.
    pub fn outcome(&self) -> Option<&TurnOutcome> {
        self.seen.iter().find_map(|one| match &one.sight {
            Sight::Done(outcome) => Some(outcome),
            _ => None,
        })
    }

    /// Whether it was sent by then, and its end not heard.
    pub fn is_under_way(&self, at: Instant) -> bool {
        let ended = |one: &Seen| matches!(one.sight, Sight::Done(_)) && one.at <= at;
        self.sent <= at && !self.seen.iter().any(ended)
    }
}
