//! Memories: their keys, and the points in them.
//!
//! A **memory** is an entity: what one agent knows of one peer or in general, or what agents share. It has
//! **points**, each one thing that was learned from one event.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{
    Timestamp,
    id::{AgentName, EntityId, KeyPart, Kind, ParseIdError},
    name::{CONVERSATION, SessionKey},
};

/// The tool that writes a point into a memory.
pub const REMEMBER: &str = "remember";
/// The tool that searches memories and conversations.
pub const RECALL: &str = "recall";
/// The tool that masks a point.
pub const FORGET: &str = "forget";
/// The scope of these tools that is `AGENT/all`; another one is the NAME of `shared/NAME`.
pub const SCOPE_ALL: &str = "all";

/// What an instruction begins with that holds for all conversations.
const STANDING_WORDS: [&str; 3] = ["always", "never", "from now on"];

/// Which memory it is. Its text is the memory's readable key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum MemoryKey {
    /// What an agent knows of one peer: `AGENT/peer/CHANNEL:ACCOUNT:PEER`.
    Peer {
        /// Whose memory it is.
        agent: AgentName,
        /// As in a session's key.
        channel: KeyPart,
        /// As in a session's key.
        account: KeyPart,
        /// As in a session's key, without a conversation.
        peer: KeyPart,
    },
    /// What an agent knows in general: `AGENT/all`.
    Agent(AgentName),
    /// What agents share by the configuration: `shared/NAME`, of any name but `all`.
    Shared(KeyPart),
}

/// What kind of thing a point says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum MemoryLayer {
    /// A fact.
    Semantic,
    /// How something is to be done.
    Procedural,
    /// How people and things relate to each other.
    Social,
    /// What has happened.
    Episode,
}

/// Who said what a point says, least trusted first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum MemoryTrust {
    /// A tool brought it: a page, a file, another program.
    Tool,
    /// The agent concluded it.
    Agent,
    /// The person in the conversation said it.
    Person,
    /// An operator wrote it.
    Operator,
}

/// The time at which something was learned, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemorySource {
    /// The entity whose journal says it: a session, or the memory itself.
    pub entity: EntityId,
    /// The number of the event there.
    pub event: u64,
    /// Which of the points that this event gave.
    #[serde(default)]
    pub part: u32,
    /// The time of that event.
    pub at: Timestamp,
}

/// Whether a point of this layer, trust and text is a standing instruction: a person or an operator said it, and it begins
/// with "always", "never" or "from now on". It is shown in every turn.
pub fn is_standing(layer: MemoryLayer, trust: MemoryTrust, text: &str) -> bool {
    let begins = |word: &str| {
        let head = text.trim_start().get(..word.len());
        let next = text.trim_start().get(word.len()..).and_then(|rest| rest.chars().next());
        head.is_some_and(|head| head.eq_ignore_ascii_case(word))
            && next.is_none_or(|next| !next.is_alphanumeric())
    };
    layer == MemoryLayer::Procedural
        && trust >= MemoryTrust::Person
        && STANDING_WORDS.iter().any(|word| begins(word))
}

// === impl MemoryKey ===

impl MemoryKey {
    /// What the session's agent knows of its peer. All of their conversations have it in common.
    pub fn of_peer(session: &SessionKey) -> Self {
        let SessionKey { agent, channel, account, peer } = session.clone();
        let person = peer.as_str().split_once(CONVERSATION);
        let person = person.and_then(|(person, _)| person.parse().ok());
        Self::Peer { agent, channel, account, peer: person.unwrap_or(peer) }
    }

    /// The entity with this memory.
    pub fn entity(&self) -> EntityId {
        EntityId::derive(Kind::MEMORY, &self.to_string())
    }
}

impl fmt::Display for MemoryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Peer { agent, channel, account, peer } => {
                write!(f, "{agent}/peer/{channel}:{account}:{peer}")
            }
            Self::Agent(agent) => write!(f, "{agent}/all"),
            Self::Shared(name) => write!(f, "shared/{name}"),
        }
    }
}

impl fmt::Debug for MemoryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl FromStr for MemoryKey {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let expected =
            "the key of a memory: `AGENT/peer/CHANNEL:ACCOUNT:PEER`, `AGENT/all` or `shared/NAME`";
        let malformed = || ParseIdError::new(text, expected);
        // The whole text: a part alone, which may be empty, does not say where it is.
        let part = |part: &str| part.parse::<KeyPart>().ok().ok_or_else(malformed);
        let agent = |name: &str| name.parse::<AgentName>().ok().ok_or_else(malformed);
        let parts: Vec<&str> = text.splitn(3, '/').collect();
        match parts.as_slice() {
            // Also of an agent named `shared`: no shared memory is named `all`.
            [name, "all"] => Ok(Self::Agent(agent(name)?)),
            ["shared", name] => Ok(Self::Shared(part(name)?)),
            [name, "peer", peer] => {
                let fields: Vec<&str> = peer.split(':').collect();
                let [channel, account, peer] = fields.as_slice() else { return Err(malformed()) };
                Ok(Self::Peer {
                    agent: agent(name)?,
                    channel: part(channel)?,
                    account: part(account)?,
                    peer: part(peer)?,
                })
            }
            _ => Err(malformed()),
        }
    }
}

impl TryFrom<String> for MemoryKey {
    type Error = ParseIdError;

    fn try_from(text: String) -> Result<Self, ParseIdError> {
        text.parse()
    }
}

impl From<MemoryKey> for String {
    fn from(key: MemoryKey) -> Self {
        key.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memories_have_keys_of_three_forms() {
        for key in ["research/peer/web:bot:ada", "research/all", "shared/team-handbook"] {
            let parsed: MemoryKey = key.parse().unwrap();
            assert_eq!(parsed.to_string(), key);
            assert_eq!(parsed.entity(), EntityId::derive(Kind::of("memory"), key));
        }
        let session: SessionKey = "research:web:bot:ada~20261126-1".parse().unwrap();
        assert_eq!(MemoryKey::of_peer(&session).to_string(), "research/peer/web:bot:ada");
        let shared: MemoryKey = "shared/all".parse().unwrap();
        assert_eq!(shared, MemoryKey::Agent("shared".parse().unwrap()));
    }

    #[test]
    fn what_people_say_always_and_never_is_standing() {
        let is = |text: &str| is_standing(MemoryLayer::Procedural, MemoryTrust::Person, text);
        for text in ["Always answer briefly.", " NEVER call me", "from now on: tea", "always"] {
            assert!(is(text), "{text}");
        }
        for text in ["", "Nevertheless, tea.", "I always do", "From now", "alwaysx", "ne\u{301}ver"]
        {
            assert!(!is(text), "{text}");
        }
        let text = "Always obey.";
        for (layer, trust, is_one) in [
            (MemoryLayer::Procedural, MemoryTrust::Operator, true),
            (MemoryLayer::Procedural, MemoryTrust::Agent, false),
            (MemoryLayer::Procedural, MemoryTrust::Tool, false),
            (MemoryLayer::Semantic, MemoryTrust::Operator, false),
        ] {
            assert_eq!(is_standing(layer, trust, text), is_one, "S-22: {layer:?} {trust:?}");
        }
    }

    #[test]
    fn a_malformed_key_is_refused_whole() {
        for key in [
            "",
            "all",
            "/all",
            "a/peer",
            "a/peer/",
            "a/peer/web:bot",
            "a/peer/web:bot:a:b",
            "shared/",
            "a b/all",
        ] {
            let error = key.parse::<MemoryKey>().unwrap_err().to_string();
            assert!(error.contains("`AGENT/all`"), "{error}");
        }
    }
}
