//! A bug planted where what runs is compared with what was decided on, for tests to find. Compiled
//! for tests only.

/// Which bug is planted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PolicyBug {
    #[default]
    None,
    /// A call runs even if another action was decided on.
    NotCompared,
    /// The policy does not judge the calls of running code.
    CodeUnjudged,
}
