//! Bugs planted into the way out, for its tests to find. Compiled for tests only.

/// Which bug is planted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EgressBug {
    #[default]
    None,
    /// The name is looked up once more to connect.
    NoPin,
    /// Only the first address is checked.
    FirstAddressOnly,
    /// Redirects are followed unchecked.
    NoRecheck,
    /// What was granted is not looked at.
    NoGrants,
}
