//! The keys of accounts.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{
    id::{AgentName, EntityId, KeyPart, Kind, ParseIdError},
    name::{CONVERSATION, SessionKey},
};

/// Whose budget it is. Its text is the account's readable key; accounts are asked in its order.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum AccountKey {
    /// An agent's: `agent:NAME`.
    Agent(AgentName),
    /// The whole cluster's: `cluster`.
    Cluster,
    /// A user's: `user:CHANNEL:ACCOUNT:PEER`.
    User {
        /// As in a session's key.
        channel: KeyPart,
        /// As in a session's key.
        account: KeyPart,
        /// As in a session's key, without a conversation.
        peer: KeyPart,
    },
}

impl AccountKey {
    /// The account of the user of a session. All of their conversations spend from it.
    pub fn of_user(session: &SessionKey) -> Self {
        let SessionKey { channel, account, peer, .. } = session.clone();
        let person = peer.as_str().split_once(CONVERSATION);
        let person = person.and_then(|(person, _)| person.parse().ok());
        let peer = person.unwrap_or(peer);
        Self::User { channel, account, peer }
    }

    /// The entity with this account.
    pub fn entity(&self) -> EntityId {
        EntityId::derive(Kind::BUDGET, &self.to_string())
    }
}

impl fmt::Display for AccountKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agent(name) => write!(f, "agent:{name}"),
            Self::Cluster => f.write_str("cluster"),
            Self::User { channel, account, peer } => write!(f, "user:{channel}:{account}:{peer}"),
        }
    }
}

impl fmt::Debug for AccountKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl FromStr for AccountKey {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let expected =
            "the key of a budget: `cluster`, `agent:NAME` or `user:CHANNEL:ACCOUNT:PEER`";
        let malformed = || ParseIdError::new(text, expected);
        let parts: Vec<&str> = text.split(':').collect();
        match parts.as_slice() {
            ["cluster"] => Ok(Self::Cluster),
            ["agent", name] => Ok(Self::Agent(name.parse()?)),
            ["user", channel, account, peer] => {
                let expected = "the key of a user's budget: `user:CHANNEL:ACCOUNT:PEER`, with the first three \
                                parts of their sessions' keys after the agent, none of them empty";
                // The whole text: a part alone, which may be empty, does not say where it is.
                let part =
                    |part: &str| part.parse().ok().ok_or_else(|| ParseIdError::new(text, expected));
                Ok(Self::User {
                    channel: part(channel)?,
                    account: part(account)?,
                    peer: part(peer)?,
                })
            }
            _ => Err(malformed()),
        }
    }
}

impl TryFrom<String> for AccountKey {
    type Error = ParseIdError;

    fn try_from(text: String) -> Result<Self, ParseIdError> {
        text.parse()
    }
}

impl From<AccountKey> for String {
    fn from(key: AccountKey) -> Self {
        key.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_have_keys_of_three_forms() {
        let keys = ["agent:research", "cluster", "user:web:bot:ada"];
        let parsed: Vec<AccountKey> = keys.iter().map(|key| key.parse().unwrap()).collect();
        assert!(parsed.is_sorted(), "in the order of their texts");
        for (key, parsed) in keys.iter().zip(&parsed) {
            assert_eq!(parsed.to_string(), *key);
            assert_eq!(parsed.entity(), EntityId::derive(Kind::of("budget"), key));
        }
        let session: SessionKey = "research:web:bot:ada".parse().unwrap();
        assert_eq!(AccountKey::of_user(&session), parsed[2]);
        let session: SessionKey = "research:web:bot:ada~20261126-1".parse().unwrap();
        assert_eq!(AccountKey::of_user(&session), parsed[2], "a new conversation is no new money");
    }

    #[test]
    fn a_malformed_key_is_refused_whole() {
        for key in [
            "",
            "Cluster",
            "cluster:",
            "agent",
            "agent:",
            "agent:a b",
            "agent:a:b",
            "user:web:bot",
            "user:web:bot:",
            "user:web:bot:ada:1",
            "organisation",
            "user:web:\n:ada",
        ] {
            key.parse::<AccountKey>().unwrap_err();
        }
        let error = "team:a".parse::<AccountKey>().unwrap_err().to_string();
        assert!(error.contains("`user:CHANNEL:ACCOUNT:PEER`"), "{error}");
        for text in ["user:web:bot:", "user:web:\n:ada", "user::bot:ada"] {
            let error = text.parse::<AccountKey>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{text}` is not the key of a user's")), "{error}");
        }
    }
}
