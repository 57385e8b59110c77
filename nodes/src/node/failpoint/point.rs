//! The points by name.

/// Where the process may kill itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Point {
    /// C1: a message has come and is not stored.
    BeforePut,
    /// C1: a message is stored, its sender does not know.
    AfterPut,
    /// C2: an input is delivered, nothing is appended.
    BeforeAccepted,
    /// C3: a claim is appended alone.
    AfterClaim,
    /// C4: an input is accepted, no call is sent.
    AfterAccepted,
    /// C6: a call has ended, its outcome is not recorded.
    BeforeOutcome,
    /// C7: an outcome is recorded, and no client has heard of it.
    AfterOutcome,
    /// C6: an attempt gave way, which is not recorded.
    BeforeGiveWay,
    /// C6: an attempt gave way, and the next one is not sent.
    AfterGiveWay,
    /// C12: a turn's end was published, its input is not acknowledged.
    AfterEmit,
    /// C12: all is done but the acknowledgement.
    BeforeAck,
    /// C23: what a session learned is stored for a memory, and the session does not know that.
    AfterLearned,
    BeforeLearned,
    /// C13: the archive is stored, the snapshot is not.
    BeforeSnapshot,
    /// C13: the snapshot is stored.
    AfterSnapshot,
    /// C27: a memory is to be purged, and nothing is stored of that.
    BeforePurge,
    /// C27: a purge has begun, and nothing is removed.
    AfterPurge,
    /// C27: a blob is to be removed.
    BeforeRemoval,
    /// C8: a tool is asked for, its job is not stored.
    BeforeJob,
    /// C9: a job is stored, and nothing else.
    AfterJob,
    /// C9: a job is taken, nothing is written of it.
    BeforeStarted,
    /// C10: a run is begun and has not had its effect.
    AfterStarted,
    /// C10: a run has had its effect, nothing is written of it.
    BeforeDone,
    /// C9: the outcome of a job is written, its session has not heard of it.
    AfterDone,
    /// C9: a job's result is on its way; of a quick `safe` one (C10) nothing else is written.
    BeforeResult,
    /// C11: a job's result is stored, the job is not acknowledged.
    AfterResult,
    /// A kill switch is stored, and no node was notified.
    AfterSwitch,
}

/// All points by name.
pub(super) const POINTS: [(&str, Point); 27] = [
    ("before-put", Point::BeforePut),
    ("after-put", Point::AfterPut),
    ("before-accepted", Point::BeforeAccepted),
    ("after-claim", Point::AfterClaim),
    ("after-accepted", Point::AfterAccepted),
    ("before-outcome", Point::BeforeOutcome),
    ("after-outcome", Point::AfterOutcome),
    ("before-give-way", Point::BeforeGiveWay),
    ("after-give-way", Point::AfterGiveWay),
    ("after-emit", Point::AfterEmit),
    ("before-ack", Point::BeforeAck),
    ("before-learned", Point::BeforeLearned),
    ("after-learned", Point::AfterLearned),
    ("before-snapshot", Point::BeforeSnapshot),
    ("after-snapshot", Point::AfterSnapshot),
    ("before-purge", Point::BeforePurge),
    ("after-purge", Point::AfterPurge),
    ("before-removal", Point::BeforeRemoval),
    ("before-job", Point::BeforeJob),
    ("after-job", Point::AfterJob),
    ("before-started", Point::BeforeStarted),
    ("after-started", Point::AfterStarted),
    ("before-done", Point::BeforeDone),
    ("after-done", Point::AfterDone),
    ("before-result", Point::BeforeResult),
    ("after-result", Point::AfterResult),
    ("after-switch", Point::AfterSwitch),
];
