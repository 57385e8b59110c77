//! What a store is called, and what a key in it.

use std::{fmt, str::FromStr};

use clawnode_proto::{
    limits::PLUGIN_KEY_BYTES,
    subject::{store_keys_key, store_value_key},
};

use crate::plugin::PluginName;

/// Most bytes of a store's name.
const NAME_BYTES: usize = 32;
/// What the name of a shared store begins with.
const SHARED: &str = "shared/";

/// A store that a plugin asks for: `notes`, its own, or `shared/notes`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct StoreName {
    is_shared: bool,
    name: String,
}

/// A text that is no store's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a store's name: 1 to 32 of a-z, A-Z, 0-9, `-`, `_`, with `shared/` before it for \
     one that plugins share"
)]
pub struct ParseStoreNameError(String);

/// A place for a value: one store of one plugin, and a key of it that is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ValuePlace {
    /// Where the keys of the store are.
    pub(super) keys: String,
    /// Where the value is.
    pub(super) value: String,
    /// As the plugin calls it.
    pub(super) key: String,
}

// === impl StoreName ===

impl StoreName {
    /// Where the keys of this store are, for this plugin.
    pub(super) fn keys(&self, plugin: &PluginName) -> String {
        store_keys_key(self.owner(plugin), &self.name)
    }

    /// The place of a key; none for a text that is no key.
    pub(super) fn place(&self, plugin: &PluginName, key: &str) -> Option<ValuePlace> {
        is_key(key).then(|| ValuePlace {
            keys: self.keys(plugin),
            value: store_value_key(self.owner(plugin), &self.name, key),
            key: key.to_owned(),
        })
    }

    fn owner<'a>(&self, plugin: &'a PluginName) -> Option<&'a str> {
        (!self.is_shared).then(|| plugin.as_str())
    }

    /// Whether a plugin that says this means it.
    pub(super) fn is_called(&self, text: &str) -> bool {
        let own = if self.is_shared { text.strip_prefix(SHARED) } else { Some(text) };
        own == Some(&self.name)
    }
}

/// One token of the bucket's keys, and nothing else: no dot leads to another, no wildcard to many.
fn is_key(text: &str) -> bool {
    let allowed = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'=' | b':');
    !text.is_empty() && text.len() <= PLUGIN_KEY_BYTES && text.bytes().all(allowed)
}

impl FromStr for StoreName {
    type Err = ParseStoreNameError;

    fn from_str(text: &str) -> Result<Self, ParseStoreNameError> {
        let (is_shared, name) = match text.strip_prefix(SHARED) {
            Some(name) => (true, name),
            None => (false, text),
        };
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if name.is_empty() || name.len() > NAME_BYTES || !name.chars().all(allowed) {
            return Err(ParseStoreNameError(text.chars().take(80).collect()));
        }
        Ok(Self { is_shared, name: name.to_owned() })
    }
}

impl fmt::Display for StoreName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let before = if self.is_shared { SHARED } else { "" };
        write!(f, "{before}{}", self.name)
    }
}

impl fmt::Debug for StoreName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Names and keys that an attacker might try.
#[cfg(test)]
pub(super) const HOSTILE: [&str; 22] = [
    "", ".", "..", "a.b", ".a", "a.", "*", ">", "a.>", "a/b", "../a", "/", "a b", "a\n", "a\0",
    "é", "shared/", "shared/a", "=", "$JS", "a\\b", "%2e",
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn name(text: &str) -> StoreName {
        text.parse().unwrap()
    }

    #[test]
    fn a_store_is_a_plugins_own_or_one_that_all_share() {
        let (one, two): (PluginName, PluginName) = ("one".parse().unwrap(), "two".parse().unwrap());
        let place = |store: &str, plugin| name(store).place(plugin, "k:1").unwrap().value;
        assert_eq!(place("notes", &one), "store.one.notes.k:1");
        assert_eq!(place("shared/notes", &one), "store.=.notes.k:1");
        assert_eq!(place("shared/notes", &one), place("shared/notes", &two));
        let others = ["notes", "shared/notes", "Notes", "shared", "two"];
        let mut seen = BTreeSet::new();
        for plugin in [&one, &two] {
            seen.extend(others.map(|store| place(store, plugin)));
            seen.extend(others.map(|store| name(store).keys(plugin)));
        }
        // The shared one is one place, with one list of keys, for both.
        assert_eq!(seen.len(), 4 * others.len() - 2);
        for store in others {
            assert_eq!(name(store).to_string(), store);
            assert!(name(store).is_called(store));
            assert!(!name("notes2").is_called(store) && !name("shared/x").is_called(store));
        }
        assert!(
            !name("shared/notes").is_called("notes") && !name("notes").is_called("shared/notes")
        );
    }

    #[test]
    fn s_16_no_name_and_no_key_leads_out_of_a_store() {
        let plugin: PluginName = "one".parse().unwrap();
        for hostile in HOSTILE {
            let is_shared = hostile == "shared/a";
            assert_eq!(hostile.parse::<StoreName>().is_ok(), is_shared, "{hostile:?}");
            let store = name("notes");
            assert!(!store.is_called(hostile), "{hostile:?}");
            match store.place(&plugin, hostile) {
                None => {}
                Some(place) => assert_eq!(place.value, format!("store.one.notes.{hostile}")),
            }
            let is_key = store.place(&plugin, hostile).is_some();
            assert_eq!(is_key, hostile == "=", "{hostile:?}: `=` is a token like another");
        }
        let long = "a".repeat(PLUGIN_KEY_BYTES);
        assert!(name("notes").place(&plugin, &long).is_some());
        assert!(name("notes").place(&plugin, &format!("{long}a")).is_none());
        assert!("a".repeat(NAME_BYTES).parse::<StoreName>().is_ok());
        assert!("a".repeat(NAME_BYTES + 1).parse::<StoreName>().is_err());
        let error = "a.b".parse::<StoreName>().unwrap_err().to_string();
        assert!(error.starts_with("`a.b` is not a store's name"), "{error}");
    }
}
