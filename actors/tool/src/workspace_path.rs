//! A path in a workspace, parsed once at the edge.

use std::path::Path;

use clawnode_guard::policy;
use clawnode_proto::tool::ToolSpec;
use serde_json::{Map, Value};

/// Bytes of a path, of one of its names, and how many names: what every file system takes.
const PATH_BYTES: usize = 1_024;
const NAME_BYTES: usize = 255;
const NAMES: usize = 32;

/// The tools on files.
pub const FILE_READ: &str = "file_read";
/// Creates a file, or replaces all of it.
pub const FILE_WRITE: &str = "file_write";
/// Lists a directory.
pub const FILE_LIST: &str = "file_list";
/// Searches in files.
pub const FILE_SEARCH: &str = "file_search";
/// The capability of a node that has agents' files.
pub const CAPABILITY: &str = "workspace";

/// A text that is not a path in a workspace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{path}` is not a path in the workspace: {why}")]
pub struct PathError {
    /// As it was given, at most 200 characters of it.
    path: String,
    why: &'static str,
}

/// Why a call of a tool on files can never run: its path leads out of the workspace, whatever is in
/// it. Known before a person is asked about the call.
pub fn refusal(spec: &ToolSpec, arguments: &Map<String, Value>) -> Option<String> {
    let is_ours =
        spec.capability.as_ref().is_some_and(|capability| capability.as_str() == CAPABILITY)
            && [FILE_READ, FILE_WRITE, FILE_LIST, FILE_SEARCH].contains(&spec.name.as_str());
    let path = arguments.get("path").filter(|_| is_ours)?.as_str()?;
    WorkspacePath::parse(path).err().map(|error| error.to_string())
}

/// A relative path without `.`, `..` and empty names; none at all is the agent's directory itself.
///
/// It is not yet known whether a link on the way leads out: only a handle can tell, when it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkspacePath {
    /// As it was given: for messages.
    given: String,
    /// Its names, with `/` between.
    clean: String,
}

impl WorkspacePath {
    /// The agent's directory itself.
    pub fn whole() -> Self {
        Self { given: ".".to_owned(), clean: String::new() }
    }

    pub fn parse(text: &str) -> Result<Self, PathError> {
        let mut names = Vec::new();
        let why = if text.is_empty() {
            Some("it is empty; `.` is the workspace itself")
        } else if text.len() > PATH_BYTES {
            Some("it is longer than 1024 bytes")
        } else if text.starts_with('/') {
            Some("it is absolute; paths are relative to the workspace")
        } else if text.contains('\\') {
            Some("it has a backslash in it; names are separated by `/`")
        } else if text.chars().any(char::is_control) {
            Some("it has control characters in it")
        } else {
            names.extend(policy::names(text));
            of_names(&names)
        };
        match why {
            None => Ok(Self { given: text.to_owned(), clean: names.join("/") }),
            Some(why) => {
                let shown = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c });
                Err(PathError { path: shown.take(200).collect(), why })
            }
        }
    }

    pub fn given(&self) -> &str {
        &self.given
    }

    /// As it is used, with `/` between its names; empty for the agent's directory.
    pub fn as_str(&self) -> &str {
        &self.clean
    }

    /// The directory that it is in, and its name there; none for the agent's directory.
    pub fn split(&self) -> Option<(&Path, &str)> {
        match self.clean.rsplit_once('/') {
            Some((parent, name)) => Some((Path::new(parent), name)),
            None if self.clean.is_empty() => None,
            None => Some((Path::new(""), &self.clean)),
        }
    }

    /// For a directory handle, which knows no empty path.
    pub fn as_path(&self) -> &Path {
        Path::new(if self.clean.is_empty() { "." } else { &self.clean })
    }
}

fn of_names(names: &[&str]) -> Option<&'static str> {
    if names.contains(&"..") {
        Some("it has `..` in it")
    } else if names.len() > NAMES {
        Some("it is more than 32 directories deep")
    } else if names.iter().any(|name| name.len() > NAME_BYTES) {
        Some("a name in it is longer than 255 bytes")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_path_is_its_names() {
        for (text, clean) in [
            ("a", "a"),
            ("./a//b/", "a/b"),
            (".", ""),
            ("./", ""),
            ("a/.b/...", "a/.b/..."),
            ("%2e%2e/a", "%2e%2e/a"),
            ("grün/ 日本", "grün/ 日本"),
        ] {
            assert_eq!(WorkspacePath::parse(text).unwrap().as_str(), clean, "{text}");
        }
        let path = WorkspacePath::parse("a/b/c").unwrap();
        assert_eq!(path.split(), Some((Path::new("a/b"), "c")));
        assert_eq!(WorkspacePath::parse("c").unwrap().split(), Some((Path::new(""), "c")));
        assert_eq!(WorkspacePath::whole().split(), None);
    }

    #[test]
    fn what_is_no_path_is_named_as_it_was_given() {
        let long = "a/".repeat(600);
        let deep = "a/".repeat(33);
        let name = "a".repeat(256);
        for (text, why) in [
            ("", "is empty"),
            ("/etc/passwd", "absolute"),
            ("..", "`..`"),
            ("a/../b", "`..`"),
            ("a/..", "`..`"),
            ("..\\a", "backslash"),
            ("C:\\a", "backslash"),
            ("a\0b", "control"),
            ("a\nb", "control"),
            (&long, "longer than 1024"),
            (&deep, "32 directories"),
            (&name, "longer than 255"),
        ] {
            let error = WorkspacePath::parse(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_clean_path_goes_up(text in "([a.~%\\\\/ \0é]|\\.\\.|//){0,12}") {
            if let Ok(path) = WorkspacePath::parse(&text) {
                let clean = path.as_str();
                prop_assert_eq!(policy::path(&text), clean, "rules are held against the same path");
                prop_assert!(!clean.starts_with('/') && !clean.ends_with('/'));
                prop_assert!(clean.is_empty() || clean.split('/').all(|name| !matches!(name, "" | "." | "..")));
            }
        }
    }
}
