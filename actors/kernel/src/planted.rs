//! Protocol bugs that the simulator must find. Compiled for tests only.

use std::cell::Cell;

/// Which bug is planted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KernelBug {
    #[default]
    None,
    /// The store answers before what it stored would survive a power cut.
    AcknowledgeBeforeSync,
    /// The store ignores the expected position of an append.
    NoFencing,
    /// The store forgets an input when it is delivered.
    ForgetOnDelivery,
    /// An input is acknowledged when it is handed to its actor.
    AckBeforeJournal,
    /// An input that a read does not show is taken to be acknowledged by another process.
    AckWhenAbsent,
    /// The input that was journaled last is acknowledged while there is work left.
    AckAnchorEarly,
    /// Inputs are acknowledged before a turn's end is sent.
    AckBeforeEmit,
    /// Inputs are acknowledged while a deletion is due.
    AckBeforeTombstone,
    /// A tombstone does not know what was deleted with it.
    BuryForgetsWaiting,
    /// A session that begins again after its deletion gives the ids that it gave before.
    GivesIdsAgain,
    /// Only the last accepted input is known again.
    DedupByWindowOnly,
    /// What follows from an append is done before the append is stored.
    ActBeforeAppend,
    /// What an account says is said before the append that it follows from is stored.
    AnswersBeforeAppend,
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
    /// Appends after another activation's events, without a claim.
    WriteWithoutClaim,
    /// The state that a new snapshot loads from is removed with those before it.
    DiscardNewestState,
    /// A call that ran before a crash is made again, whatever the journal says.
    RecallAfterOutcome,
    /// A hook's decision takes effect, and the journal does not record it.
    HookUnjournaled,
    /// A tool is run before its `started` is stored.
    RunBeforeStarted,
    /// A tool that may run once is run again when its runner died.
    RunOnceAgain,
    /// A process that claimed since admission is not asked.
    PreviousOwnerIgnored,
    /// An owner that lives is never asked.
    NeverAsks,
    /// A drain gives up entities whose calls run.
    ReleasesWhileRunning,
    /// An append is acted upon though another process has claimed after it.
    ActsFenced,
    /// A dispatcher hands on the latest input first.
    HandsOnBackwards,
    /// A decision about another action counts, if it is about the same call.
    ApprovalOfAnything,
    /// A decision that comes too late counts.
    ApprovalTooLate,
    /// The last results of tools that a client runs count.
    LaterResultsCount,
    /// A message that comes too late to join a turn is forgotten.
    LateSteersDropped,
    /// What a provider needs back is sent back in another order.
    ThoughtsTurnedRound,
    /// What a model thought is sent to another one that answers instead.
    ForeignThoughtsKept,
    /// A circuit that has opened never lets a call try its provider again.
    CircuitStaysOpen,
    /// A call whose attempt gave way is taken to have failed.
    GivesUpAtOnce,
    /// A call that is ended for another is not made again.
    DropsPreempted,
    /// A new owner does not set the timer of a turn that waits for a provider again.
    ProviderWaitForgotten,
    /// What was given back or found is folded before anybody has claimed it.
    FoldsFirst,
    /// A tool with a probe is run again unprobed when its runner died.
    ProbesNothing,
    /// No job is too old to be begun.
    OldJobsRun,
    /// A call that a dead process had begun is reported as not happened.
    DeniesWhatBegan,
    /// The jobs of a turn that has ended are not closed.
    ClosesNothing,
    /// A new owner does not set the timers of turns again.
    TimersNotSetAgain,
    /// A small input passes a larger one that does not fit.
    SmallOvertakes,
    /// A job that may have been given away before is given without a check.
    GivesBlindly,
    /// An input is remembered for a minute only, and not after thirty others.
    ShortMemory,
    /// A counter that waits for a timer forgets inputs meanwhile.
    CounterForgets,
    /// A call may be made if enough is left, and what it costs is taken only when it ends.
    ChecksThenSpends,
    /// A limit that is lowered stays as it was.
    KeepsHigherLimit,
    /// An account grants more than the share at which a person has to allow it.
    GrantsUnallowed,
    /// What a call costs is rounded down.
    RoundsDown,
    /// A call settles at what its tokens cost when it ends.
    SettlesAtNewPrice,
    /// What calls cost is rounded once for each turn.
    RoundsPerTurn,
    /// A call that ends without being made keeps what it reserved.
    LosesRelease,
    /// A slice whose answer was lost is asked for again as another one.
    AsksAsAnother,
    /// The slices of a process that is held dead are given back.
    GivesBackForTheDead,
    /// What is settled late counts in the window that is current then.
    SettlesIntoCurrentWindow,
    /// A holder reports what was spent since its last report.
    ReportsDifferences,
    /// What a call has used is taken to be nothing if it is unknown.
    EstimatesNothing,
    /// A call that is made again after its process died has no reservation of its own.
    ForgetsHold,
    /// The call of a summary is sent without a reservation.
    SummaryUnheld,
    /// The call of a reflection is sent without a reservation.
    ReflectionUnheld,
    /// Each owner sends the lessons of a reflection under names of its own.
    ReflectsByOwner,
    /// The call of a reflection is sent beside the append that says so.
    ReflectsBeforeAppend,
    /// Each owner sends the facts that a model found under names of its own.
    FactsByOwner,
    /// The call of a reflection that is made again after its process died has no reservation of its own.
    ReflectionHoldForgotten,
    /// A message does not end the call of a reflection.
    ReflectionOutstays,
    /// A reflection is tried as often as crashes interrupt it.
    ReflectsOnAndOn,
    /// A reflection that has ended is made again.
    ReflectsAgain,
    /// A fact in the words of a model has the trust of the person.
    FactsTrusted,
    /// The memory of a person is sent what a session said that is to be deleted.
    LearnsOfDeleted,
    /// A call begins with its first grant, whatever else it wants.
    BeginsWithFirstGrant,
    /// What a call that is not wanted any more has is released, and taken to be there when it is wanted again.
    KeepsWhatItReleased,
    /// What a call that is not wanted any more has is not released.
    KeepsUnwanted,
    /// Slots are given away as if all calls were of one lane.
    SlotsIgnoreLanes,
    /// Slots are given away as if all agents had the same weight.
    SlotsIgnoreWeights,
    /// A call begins though its process has stopped its agent.
    BeginsWhilePaused,
    /// A reply that does not fit its schema after all corrections is taken to fit.
    MisfitsCount,
    /// A model is not told what was wrong with its reply.
    CorrectsInSilence,
    /// A step of a plan gets the outputs of an earlier plan.
    FillsFromAnother,
    /// A compaction takes turns out of requests before its summary is stored.
    CompactsFirst,
    /// A turn leaves the state of its session before its end is published.
    PrunesUnpublished,
    /// A purge leaves the oldest archive.
    PurgeKeepsArchive,
    /// A memory adds a point again when its source comes again.
    PointsDoubled,
    /// What a turn is reminded of is shown to its model, and the journal does not record it.
    ShowsUnjournaled,
    /// A turn also looks in the memories that its message names.
    ScopesFromText,
    /// What a store finds of a memory is shown, whatever the journal of the memory says.
    BelievesStore,
    /// The end of a turn is confirmed before its memory has the facts.
    ConfirmsUntaught,
    /// Each owner gives the facts of a turn sources of its own.
    LessonsByOwner,
    /// An owner that sends memories feedback again gives it an id of its own.
    FeedbackByOwner,
    /// Memories are sent feedback before the journal of its session has it.
    RatesUnjournaled,
    /// Feedback moves what another turn was shown.
    RatesUnrecalled,
    /// A memory counts feedback again when it comes again.
    RatingsDoubled,
}

thread_local! {
    static IN_FOLDS: Cell<KernelBug> = const { Cell::new(KernelBug::None) };
}

/// While it lives, the folds of this thread have a bug. Folds take only events, so no argument can
/// carry it.
#[derive(Debug)]
pub struct InFolds(());

// === impl KernelBug ===

impl KernelBug {
    /// Plants this bug in the folds of this thread.
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
