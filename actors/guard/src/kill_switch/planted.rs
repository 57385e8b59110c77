//! Bugs that the tests must find.

/// What a kill switch does wrong, in tests only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SwitchBug {
    #[default]
    None,
    /// Executors of tools do not ask for a permit.
    ToolsUnasked,
    /// Running work is not cancelled.
    NothingCancelled,
    /// A record that comes late replaces a newer one.
    LastHeard,
}
