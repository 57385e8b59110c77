//! The manifest beside a plugin: what it is, and what it asks for.

use serde::Deserialize;

use super::{PluginCapability, PluginName};

/// Bytes of a manifest (64 KiB).
pub(super) const MANIFEST_BYTES: usize = 64 << 10;
/// Capabilities that a plugin may ask for (64).
const CAPABILITIES: usize = 64;
const VERSION_BYTES: usize = 64;

/// `echo.toml` beside `echo.wasm`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// What it calls itself; the configuration must call it the same.
    pub name: PluginName,
    /// Which version it is, for people.
    pub version: String,
    /// What it cannot do without.
    #[serde(default)]
    pub capabilities: Vec<PluginCapability>,
}

/// A text that is no manifest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// It is not TOML, or says what no manifest says.
    #[error("{0}")]
    Malformed(String),
    /// It is too long.
    #[error("it has {0} bytes, at most {MANIFEST_BYTES}")]
    TooLong(usize),
    /// There is too much of something in it.
    #[error("its {0} is too long for a manifest")]
    Field(&'static str),
}

impl Manifest {
    /// Reads the text of one.
    pub fn parse(text: &str) -> Result<Self, ManifestError> {
        if text.len() > MANIFEST_BYTES {
            return Err(ManifestError::TooLong(text.len()));
        }
        let manifest: Self = toml::from_str(text).map_err(|error| {
            let line = error.span().and_then(|span| text.get(..span.start));
            let line = line.map_or(1, |before| before.matches('\n').count() + 1);
            let what: String = error.message().chars().take(300).collect();
            ManifestError::Malformed(format!("line {line}: {}", what.replace('\n', ", ")))
        })?;
        if manifest.version.len() > VERSION_BYTES || manifest.version.contains(char::is_control) {
            return Err(ManifestError::Field("version"));
        }
        if manifest.capabilities.len() > CAPABILITIES {
            return Err(ManifestError::Field("list of capabilities"));
        }
        Ok(manifest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_names_itself_and_what_it_needs() {
        let text = "name = \"echo\"\nversion = \"1.2\"\ncapabilities = [\"http:example.org\"]\n";
        let manifest = Manifest::parse(text).unwrap();
        assert_eq!((manifest.name.as_str(), manifest.version.as_str()), ("echo", "1.2"));
        assert_eq!(manifest.capabilities[0].to_string(), "http:example.org");
        let bare = Manifest::parse("name = \"echo\"\nversion = \"1\"").unwrap();
        assert!(bare.capabilities.is_empty());
    }

    #[test]
    fn what_is_no_manifest_is_refused_with_its_line() {
        let long = format!("name = \"a\"\nversion = \"{}\"", "1".repeat(65));
        let many = format!(
            "name = \"a\"\nversion = \"1\"\ncapabilities = [{}]",
            "\"http:example.org\",".repeat(65)
        );
        for (text, why) in [
            ("", "line 1: missing field `name`"),
            ("name = \"a\"", "missing field `version`"),
            ("name = \"a\"\nversion = 1", "line 2: invalid type"),
            ("name = \"a\"\nversion = \"1\"\nfiles = true", "line 3: unknown field `files`"),
            ("name = \"a/b\"\nversion = \"1\"", "is not a plugin's name"),
            ("name = \"a\"\nversion = \"1\"\ncapabilities = \"all\"", "line 3: invalid type"),
            (
                "name = \"a\"\nversion = \"1\"\ncapabilities = [\"file:/etc\"]",
                "line 3: `file:/etc` is not a capability of plugins",
            ),
            ("name = \"a\"\nversion", "line 2:"),
            ("\u{0}\u{1}", "line 1:"),
            (&long, "its version is too long"),
            (&many, "its list of capabilities is too long"),
            (&"#".repeat(MANIFEST_BYTES + 1), "it has 65537 bytes"),
        ] {
            let error = Manifest::parse(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text:.60}: {error}");
        }
    }
}
