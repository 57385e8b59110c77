//! How large what people say is.

use clawnode_proto::{limits::INLINE_BYTES, session::UserMessage};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::client_tools::offered;

/// Bytes of a message that is as large as one may be, all that is around its text included.
const LARGEST: usize = 300 << 10;

/// How large the messages of a seed are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sizes {
    /// A few words each.
    Small,
    /// Of any size, with those around the limits before all.
    Any,
}

// === impl Sizes ===

impl Sizes {
    /// A user's message: its first word is like no other.
    pub(super) fn message(self, number: usize, rng: &mut ChaCha8Rng) -> UserMessage {
        let text = format!("#{number} ");
        let long = match self {
            Self::Small => 0,
            Self::Any => match rng.random_range(0..6) {
                0 => INLINE_BYTES - rng.random_range(0..80),
                1 => rng.random_range(200 << 10..INLINE_BYTES),
                2 => rng.random_range(INLINE_BYTES / 2 - 100..INLINE_BYTES / 2 + 100),
                3 => rng.random_range(10 << 10..100 << 10),
                _ => 0,
            },
        };
        let more = if self == Self::Any && long > 200 << 10 && rng.random_bool(0.3) {
            Some("m".repeat(LARGEST - long))
        } else {
            None
        };
        let rest = long.saturating_sub(text.len());
        let tools = offered(number);
        UserMessage { system: more, tools, ..UserMessage::text(text + &"t".repeat(rest)) }
    }
}
