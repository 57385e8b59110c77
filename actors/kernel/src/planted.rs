//! Protocol bugs that the simulator must find. Compiled for tests only.

use std::cell::Cell;

/// Which bug is planted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KernelBug {
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
    /// An input that a read does not show is taken to be acknowledged by somebody else.
    AckWhenAbsent,
    /// The input that was journaled last is acknowledged while there is work left.
    AckAnchorEarly,
    /// Inputs are acknowledged before a turn's end is told.
    AckBeforeEmit,
    /// Inputs are acknowledged while a deletion is due.
    AckBeforeTombstone,
    /// A tombstone does not know what was deleted with it.
    BuryForgetsWaiting,
    /// Only the last accepted input is known again.
    DedupByWindowOnly,
    /// What follows from an append is done before the append is stored.
    ActBeforeAppend,
    /// A refused append is taken to be stored.
    FoldInconclusive,
    /// An append is sent again with other bytes.
    RetryWithNewBytes,
    /// A read that does not show an append is taken as proof, and it is drafted again.
    AbsentMeansFailed,
    /// A refused append is sent again behind what is there.
    RebaseOnConflict,
    /// A claim keeps the epoch that it finds.
    ClaimWithoutEpochBump,
    /// Writes on where another activation stopped, without a claim.
    WriteWithoutClaim,
    /// The state that a new snapshot loads from is removed with those before it.
    DiscardNewestState,
    /// What ran before a crash is made again, whatever the journal says.
    RecallAfterOutcome,
    /// What a hook decided takes effect, and the journal does not say so.
    HookUnjournaled,
    /// A tool is run before its `started` is stored.
    RunBeforeStarted,
    /// A tool that may run once is run again when its runner died.
    RunOnceAgain,
    /// Whoever claimed since admission is not asked.
    HeirIgnored,
    /// An owner that lives is never asked.
    NeverAsks,
    /// A drain gives up entities whose calls run.
    ReleasesWhileRunning,
    /// An append is acted upon though somebody else has claimed behind it.
    ActsFenced,
    /// A dispatcher hands on what came last first.
    HandsOnBackwards,
    /// A decision about another action counts, if it is about the same call.
    ApprovalOfAnything,
    /// A decision that comes too late counts.
    ApprovalTooLate,
    /// What comes too late to join a turn is forgotten.
    LateSteersDropped,
    /// What a provider needs back is sent back in another order.
    ThoughtsTurnedRound,
    /// What was given back or found is folded before anybody has claimed it.
    FoldsFirst,
    /// A tool with a probe is run again unprobed when its runner died.
    ProbesNothing,
    /// No job is too old to be begun.
    OldJobsRun,
    /// What a dead process had begun is said not to have happened.
    DeniesWhatBegan,
    /// The jobs of a turn that has ended are not closed.
    ClosesNothing,
    /// The timers of turns are not set again by who takes an entity over.
    TimersNotSetAgain,
    /// A small input passes a larger one that does not fit.
    SmallOvertakes,
    /// A job that may have been given away before is given without looking for it.
    GivesBlindly,
    /// An input is known again for a minute only, and not behind thirty others.
    ShortMemory,
    /// A counter that waits for a timer forgets what it is told meanwhile.
    CounterForgets,
}

thread_local! {
    static IN_FOLDS: Cell<KernelBug> = const { Cell::new(KernelBug::None) };
}

/// While it lives, the folds of this thread have a bug: they take nothing but events, so nobody
/// can tell them.
#[derive(Debug)]
pub struct InFolds(());

// === impl KernelBug ===

impl KernelBug {
    /// Has the folds of this thread have this bug.
    pub fn in_folds(self) -> InFolds {
        IN_FOLDS.set(self);
        InFolds(())
    }

    /// Whether the folds of this thread have this bug.
    pub fn is_in_folds(self) -> bool {
        IN_FOLDS.get() == self
    }
}

impl Drop for InFolds {
    fn drop(&mut self) {
        IN_FOLDS.set(KernelBug::None);
    }
}
