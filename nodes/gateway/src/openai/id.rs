//! The id of a response or of a chat completion: pure, and all that is known of it.

use std::{fmt, str::FromStr};

use clawnode_proto::{CallId, EntityId, TurnId};

use super::super::{backend::SessionRef, error::OpenAiError};

/// What ids of responses begin with, and those of chat completions.
const PREFIX: &str = "resp_";
const COMPLETION: &str = "chatcmpl-";
/// Hexadecimal digits of each part.
const DIGITS: usize = 32;
/// The last character of an id whose reply the client gets only at the end.
const HELD: char = 'j';

/// What a response is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ResponseId {
    pub(super) session: EntityId,
    pub(super) turn: TurnId,
    /// The first call whose result its client brought with the request: the response begins after it.
    pub(super) after: Option<CallId>,
    /// Whether its reply has to fit a schema, so that the client gets it only at the end.
    pub(super) is_held: bool,
}

// === impl ResponseId ===

impl ResponseId {
    /// Reads the id that a client names.
    pub(super) fn read(text: &str, param: &str) -> Result<Self, OpenAiError> {
        text.parse().map_err(|Unreadable| {
            let text: String = text.chars().take(2 * DIGITS).collect();
            OpenAiError::invalid(
                param,
                format!("`{text}` is not the id of a response of this server"),
            )
        })
    }

    /// The same part of a turn as a chat completion. It is read whole, so it says nothing of a held reply.
    pub(super) fn of_completion(self) -> String {
        format!("{COMPLETION}{}", self.digits())
    }

    /// Reads the id of a chat completion that a client names.
    pub(super) fn read_completion(text: &str, param: &str) -> Result<Self, OpenAiError> {
        let id =
            text.strip_prefix(COMPLETION).map(|rest| format!("{PREFIX}{rest}").parse::<Self>());
        match id {
            Some(Ok(id)) if !id.is_held => Ok(id),
            _ => {
                let text: String = text.chars().take(2 * DIGITS).collect();
                let what = format!("`{text}` is not the id of a chat completion of this server");
                Err(OpenAiError::invalid(param, what))
            }
        }
    }

    pub(super) const fn session(&self) -> SessionRef {
        SessionRef { id: self.session, key: None }
    }

    /// The id of an item of it, which no other item has that is called `own` there.
    pub(super) fn item(&self, kind: &str, own: impl fmt::Display) -> String {
        format!("{kind}_{}_{own}", self.digits())
    }

    /// The response whose item has this id.
    pub(super) fn of_item(text: &str) -> Option<Self> {
        let (_kind, rest) = text.split_once('_')?;
        let (digits, _own) = rest.split_once('_')?;
        format!("{PREFIX}{digits}").parse().ok()
    }

    fn digits(&self) -> String {
        let after = self.after.map(|call| format!("{:032x}", call.as_u128())).unwrap_or_default();
        format!("{:032x}{:032x}{after}", self.session.as_u128(), self.turn.as_u128())
    }
}

impl fmt::Display for ResponseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", self.digits())?;
        if self.is_held { write!(f, "{HELD}") } else { Ok(()) }
    }
}

/// It is no id of a response.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unreadable;

impl FromStr for ResponseId {
    type Err = Unreadable;

    fn from_str(text: &str) -> Result<Self, Unreadable> {
        let rest = text.strip_prefix(PREFIX).ok_or(Unreadable)?;
        let (rest, is_held) = match rest.strip_suffix(HELD) {
            Some(rest) => (rest, true),
            None => (rest, false),
        };
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if !rest.bytes().all(is_hex) {
            return Err(Unreadable);
        }
        let number = |part: &str| u128::from_str_radix(part, 16).map_err(|_digits| Unreadable);
        let (session, rest) = rest.split_at_checked(DIGITS).ok_or(Unreadable)?;
        let (turn, rest) = rest.split_at_checked(DIGITS).ok_or(Unreadable)?;
        let after = match rest.len() {
            0 => None,
            DIGITS => Some(CallId::from_u128(number(rest)?)),
            _ => return Err(Unreadable),
        };
        let (session, turn) = (number(session)?, number(turn)?);
        let (session, turn) = (EntityId::from_u128(session), TurnId::from_u128(turn));
        Ok(Self { session, turn, after, is_held })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_names_all_that_there_is_to_know() {
        let (session, turn) = (EntityId::from_u128(1), TurnId::from_u128(u128::MAX));
        for after in [None, Some(CallId::from_u128(7))] {
            for is_held in [false, true] {
                let id = ResponseId { session, turn, after, is_held };
                assert_eq!(id.to_string().parse(), Ok(id));
            }
        }
        let good = ResponseId { session, turn, after: None, is_held: false }.to_string();
        let short = good.get(..40).unwrap();
        for bad in ["", "resp_", "resp_j", short, &format!("{good}0")] {
            assert_eq!(bad.parse::<ResponseId>(), Err(Unreadable), "{bad}");
        }
        assert_eq!(good.to_uppercase().parse::<ResponseId>(), Err(Unreadable));
        assert_eq!("resp_+1".parse::<ResponseId>(), Err(Unreadable));
    }

    #[test]
    fn an_item_names_its_response() {
        let (session, turn) = (EntityId::from_u128(1), TurnId::from_u128(2));
        for after in [None, Some(CallId::from_u128(7))] {
            let id = ResponseId { session, turn, after, is_held: false };
            let (first, second) = (id.item("msg", 0), id.item("msg", 1));
            assert_ne!(first, second);
            assert_eq!([&first, &second].map(|item| ResponseId::of_item(item)), [Some(id); 2]);
        }
        for bad in ["", "msg", "msg_1", "msg__", "msg_12_0", "resp_1"] {
            assert_eq!(ResponseId::of_item(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_completion_has_an_id_of_its_own_kind() {
        let (session, turn) = (EntityId::from_u128(1), TurnId::from_u128(2));
        for after in [None, Some(CallId::from_u128(7))] {
            let id = ResponseId { session, turn, after, is_held: false };
            let text = id.of_completion();
            assert!(text.starts_with("chatcmpl-"), "{text}");
            assert_eq!(ResponseId::read_completion(&text, "p").unwrap(), id);
            for bad in [id.to_string(), format!("{text}j"), "chatcmpl-".to_owned()] {
                let error = ResponseId::read_completion(&bad, "p").unwrap_err();
                assert_eq!(error.param.as_deref(), Some("p"), "{bad}");
            }
        }
    }
}
