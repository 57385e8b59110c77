//! Protocol bugs that the simulator must find. Compiled for tests only.

/// Which bug is planted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Planted {
    /// None.
    #[default]
    None,
    /// The store answers before what it stored would survive a power cut.
    AcknowledgeBeforeSync,
    /// The store appends whatever the expected position is.
    NoFencing,
    /// The store forgets an input when it is delivered.
    ForgetOnDelivery,
    /// An input is acknowledged when it is handed to its actor.
    AckBeforeJournal,
    /// What ran before a crash is made again, whatever the journal says.
    RecallAfterOutcome,
}
