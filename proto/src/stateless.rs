//! Sessions of requests that name no user: each has one of its own, to which nothing is said again.
//! This file alone knows how their keys are made.

use crate::id::{KeyPart, ParseIdError, SessionKey};

/// The channel of sessions of OpenAI's API.
pub const OPENAI: &str = "openai";
/// Our side of that channel.
pub const OPENAI_ACCOUNT: &str = "default";
/// What the peers of such sessions begin with; hexadecimal digits follow, 32 or 64 of them. `once-` is
/// one without a name of its own, `key-` one whose client named the request (`Idempotency-Key`).
const MARKS: [&str; 2] = ["once-", "key-"];

/// The peer of the session of one request.
#[derive(Clone, Copy, Debug)]
pub enum Once<'a> {
    /// No request is like it.
    Random(u128),
    /// The digest of the key that the gateway gave it.
    Repeatable(&'a str),
    /// The digest of the key that its client gave it.
    Named(&'a str),
}

impl Once<'_> {
    /// As part of a session's key.
    pub fn peer(self) -> Result<KeyPart, ParseIdError> {
        let [once, named] = MARKS;
        match self {
            Self::Random(number) => format!("{once}{number:032x}").parse(),
            Self::Repeatable(digest) => format!("{once}{digest}").parse(),
            Self::Named(digest) => format!("{named}{digest}").parse(),
        }
    }
}

/// Whether a peer is that of a single request. No person's name may look like one.
pub fn is_once(peer: &str) -> bool {
    let digits = MARKS.iter().find_map(|mark| peer.strip_prefix(mark));
    digits.is_some_and(|digits| {
        let hex = digits.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        hex && [32, 64].contains(&digits.len())
    })
}

impl SessionKey {
    /// Whether it is that of a request which names no user.
    pub fn is_stateless(&self) -> bool {
        self.channel.as_str() == OPENAI
            && self.account.as_str() == OPENAI_ACCOUNT
            && is_once(self.peer.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_made_for_one_request_is_stateless() {
        let digest = "0123456789abcdef".repeat(4);
        for once in [Once::Random(7), Once::Repeatable(&digest), Once::Named(&digest)] {
            let key: SessionKey =
                format!("default:openai:default:{}", once.peer().unwrap()).parse().unwrap();
            assert!(key.is_stateless(), "{key}");
        }
        let digits = "0".repeat(32);
        for other in [
            format!("default:cli:default:once-{digits}"),
            format!("default:openai:team:once-{digits}"),
            format!("default:openai:default:once-{digits}0"),
            format!("default:openai:default:Once-{digits}"),
            format!("default:openai:default:once-{}", "A".repeat(32)),
            "default:openai:default:once-".to_owned(),
            "default:openai:default:once-upon-a-time".to_owned(),
            "default:openai:default:ada".to_owned(),
        ] {
            let key: SessionKey = other.parse().unwrap();
            assert!(!key.is_stateless(), "{key}");
        }
    }
}
