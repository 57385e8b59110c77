//! Bugs on purpose: the tests of changes that a server may make must find each of them.

/// The bugs that a test can plant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum McpBug {
    #[default]
    None,
    /// A tool is run even if the server describes it differently now.
    Unpinned,
}
