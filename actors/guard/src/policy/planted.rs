//! A bug planted where what runs is compared with what was decided on, for tests to find. Compiled
//! for tests only.

/// Which bug is planted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PolicyBug {
    #[default]
    None,
    /// Whatever was decided on, this runs.
    NotCompared,
    /// What running code calls is not held against the policy.
    CodeUnjudged,
}
