//! Bugs planted into the engine, for its tests to find. Compiled for tests only.

/// Which bug is planted.
#[cfg(feature = "test-util")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WasmBug {
    #[default]
    None,
    /// The deadline is not checked.
    NoDeadline,
    /// Memory and tables grow as they like, within the room that is set aside.
    NoLimiter,
    /// Calls to the host are not counted.
    Uncounted,
    /// What is copied from a plugin has no bound worth the name.
    LooseLift,
    /// The cache does not look whether it wrote what it finds.
    Credulous,
}

/// What is planted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WasmBugs {
    #[cfg(feature = "test-util")]
    planted: WasmBug,
}

#[cfg(feature = "test-util")]
impl WasmBugs {
    pub(crate) const fn planted(planted: WasmBug) -> Self {
        Self { planted }
    }

    pub(crate) fn has_deadline(self) -> bool {
        self.planted != WasmBug::NoDeadline
    }

    pub(crate) fn has_limiter(self) -> bool {
        self.planted != WasmBug::NoLimiter
    }

    pub(crate) fn counts_calls(self) -> bool {
        self.planted != WasmBug::Uncounted
    }

    pub(crate) fn lifted_bytes(self) -> usize {
        if self.planted == WasmBug::LooseLift { 1 << 30 } else { crate::limits::LIFTED_BYTES }
    }

    pub(crate) fn verifies(self) -> bool {
        self.planted != WasmBug::Credulous
    }
}

#[cfg(not(feature = "test-util"))]
#[expect(clippy::unused_self, reason = "planted bugs read it")]
impl WasmBugs {
    pub(crate) const fn has_deadline(self) -> bool {
        true
    }

    pub(crate) const fn has_limiter(self) -> bool {
        true
    }

    pub(crate) const fn counts_calls(self) -> bool {
        true
    }

    pub(crate) const fn lifted_bytes(self) -> usize {
        crate::limits::LIFTED_BYTES
    }

    pub(crate) const fn verifies(self) -> bool {
        true
    }
}
