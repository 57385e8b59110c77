//! Money in the configuration: text of dollars, so that no float reads it. Limits, prices and agents read it
//! here, with `#[serde(with = "usd")]`, or with `usd::required` where it may not be absent.

use std::fmt;

use clawnode_proto::money::MicroUsd;
use serde::{Deserializer, Serializer, de};

struct UsdVisitor;

impl de::Visitor<'_> for UsdVisitor {
    type Value = MicroUsd;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an amount in USD as text, such as `\"0.50\"`")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<MicroUsd, E> {
        text.parse().map_err(E::custom)
    }
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<MicroUsd>, D::Error> {
    required::deserialize(deserializer).map(Some)
}

#[expect(clippy::ref_option, reason = "serde passes a reference to the field")]
pub(super) fn serialize<S: Serializer>(
    amount: &Option<MicroUsd>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match amount {
        Some(amount) => serializer.collect_str(amount),
        None => serializer.serialize_none(),
    }
}

/// The same of an amount that has to be there.
pub(super) mod required {
    use clawnode_proto::money::MicroUsd;
    use serde::{Deserializer, Serializer};

    use super::UsdVisitor;

    /// Numbers are visited, too, so that the error shows the one that is to be written as text.
    pub(in crate::config) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<MicroUsd, D::Error> {
        deserializer.deserialize_any(UsdVisitor)
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference to the field")]
    pub(in crate::config) fn serialize<S: Serializer>(
        amount: &MicroUsd,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(amount)
    }
}

#[cfg(test)]
mod tests {
    use super::super::AgentSection;
    use clawnode_proto::money::MicroUsd;

    #[test]
    fn money_is_text_and_comes_back_as_it_was() {
        let agent: AgentSection = toml::from_str("turn_usd = \"0.25\"").unwrap();
        assert_eq!(agent.turn_usd, Some(MicroUsd(250_000)));
        assert_eq!(agent.session_usd, None);
        assert!(toml::to_string(&agent).unwrap().contains("turn_usd = \"0.25\"\n"));
        for wrong in ["0.25", "\"-1\"", "\"0.0000001\"", "\"a\""] {
            let error = toml::from_str::<AgentSection>(&format!("session_usd = {wrong}"));
            let error = error.unwrap_err().to_string();
            assert!(error.contains("USD"), "{wrong}: {error}");
        }
    }
}
