//! Protocol bugs that the simulator must find. Compiled for tests only.

/// Which bug is planted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Planted {
    /// None.
    #[default]
    None,
}
