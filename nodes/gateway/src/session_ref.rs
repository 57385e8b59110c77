//! A session, as clients name it.

use clawnode_proto::{EntityId, SessionKey};

/// A session as a client named it: by key, or by id alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRef {
    pub id: EntityId,
    /// Its readable key, if that is how it was named.
    pub key: Option<SessionKey>,
}

impl From<SessionKey> for SessionRef {
    fn from(key: SessionKey) -> Self {
        Self { id: key.entity(), key: Some(key) }
    }
}

impl std::str::FromStr for SessionRef {
    type Err = clawnode_proto::id::ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.starts_with(EntityId::PREFIX) {
            return Ok(Self { id: text.parse()?, key: None });
        }
        text.parse::<SessionKey>().map(Self::from)
    }
}
