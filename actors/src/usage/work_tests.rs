//! Tests: what an agent did, counted from the journals of its sessions.

use clawnode_cluster::Record;
use clawnode_kernel::{LoadedJournal, MachineInput, MachineOptions};
use clawnode_proto::{
    CallId, EventId, Position, Timestamp, TurnId,
    agent_profile::{AgentProfile, OutcomeCount, ToolProfile},
    agent_work::{AgentWork, ToolEnds, TurnEnds},
    event::decode_record,
    feedback::{FeedbackInput, Thumb},
    hook::HookTrail,
    kernel::SNAPSHOT,
    llm::{FailureClass, Usage},
    policy::{Decided, Decision},
    session::{ApprovalDecided, SessionInput, ToolEnd, ToolResult},
    subject::USAGE_KEYS,
    tool::{ToolFailure, ToolOutcome},
    usage::Day,
};

use super::{
    agent_work::WorkMeter,
    profile,
    session_usage::{CountedEvent, Meter, gone_on},
    tests::World,
};
use crate::session::{
    Outcome, SessionJob,
    played::{PlayedActivation, key},
};

/// A job that runs: its call, and what its result echoes.
pub(super) type AwaitedJob = (CallId, EventId);

impl World {
    pub(super) async fn profile(&self) -> AgentProfile {
        profile(&self.storage, Timestamp(1), &key().agent, None).await.unwrap()
    }

    /// A turn begins and calls a tool that runs elsewhere.
    pub(super) async fn begins_tool(&mut self, text: &str) -> AwaitedJob {
        self.run.says(text);
        self.run.replies(&[("far", r#"{"at":1}"#)]);
        let job = taken_job(&mut self.run);
        self.store().await;
        job
    }

    /// The result of the tool comes, and the turn ends.
    pub(super) async fn ends_tool(&mut self, job: AwaitedJob) {
        brings(&mut self.run, "did", job, ToolOutcome::done("did"));
        self.run.replies_for(Usage::default(), &[]);
        self.store().await;
    }

    fn last_turn(&self) -> TurnId {
        self.run.machine.settled().unwrap().state.closed.last().unwrap().id
    }

    fn says_of(&mut self, name: &str, turn: TurnId, thumb: Thumb) {
        let given = FeedbackInput { turn, thumb, comment: Some("private words".to_owned()) };
        self.run.hears(name, &SessionInput::Feedback(given));
    }

    async fn counted(&mut self) -> AgentProfile {
        self.store().await;
        self.count().await;
        self.save().await;
        self.profile().await
    }
}

fn taken_job(run: &mut PlayedActivation) -> AwaitedJob {
    let is_job = |job: &SessionJob| matches!(job, SessionJob::Publish(_));
    let at = run.started.iter().rposition(|(_, job)| is_job(job)).unwrap();
    let (_, SessionJob::Publish(publish)) = run.started.remove(at) else { panic!("no job") };
    (publish.job.call, publish.job.nonce)
}

fn brings(run: &mut PlayedActivation, name: &str, job: AwaitedJob, outcome: ToolOutcome) {
    let (call, nonce) = job;
    let end = ToolEnd::Known { outcome };
    let result = SessionInput::ToolResult(ToolResult { call, nonce, end });
    run.hears(&format!("{name} {call}"), &result);
}

/// The tool beside the session that was begun last ends.
fn ends(run: &mut PlayedActivation, outcome: ToolOutcome) {
    let at = run.started.iter().rposition(|(_, job)| matches!(job, SessionJob::Tool(_)));
    let (effect, _) = run.started.remove(at.unwrap());
    let end = ToolEnd::Known { outcome };
    run.feed(MachineInput::Ended(effect, Outcome::Tool(end, HookTrail::default())));
}

/// A person approves the call that was asked about last.
fn approves(run: &mut PlayedActivation) {
    let at = run.started.iter().rposition(|(_, job)| matches!(job, SessionJob::Ask(_)));
    let (_, SessionJob::Ask(ask)) = run.started.remove(at.unwrap()) else { panic!("none asked") };
    let (call, action) = (ask.approval.action.call, ask.approval.digest);
    let decided = Decided { decision: Decision::Approve, by: "ada".to_owned(), reason: None };
    run.hears("yes", &SessionInput::ApprovalDecided(ApprovalDecided { call, action, decided }));
}

fn tool(name: &str, ends: ToolEnds) -> ToolProfile {
    ToolProfile { name: name.to_owned(), calls: ends.total(), ends }
}

/// A turn with calls of each fate: failed, brought, never begun, and approved after a minute.
fn turn_of_many_tools(run: &mut PlayedActivation) {
    run.says("go");
    run.replies(&[
        ("look", r#"{"at":1}"#),
        ("far", r#"{"at":2}"#),
        ("none", "{}"),
        ("write", r#"{"at":3}"#),
    ]);
    let job = taken_job(run);
    ends(run, ToolOutcome::failed(ToolFailure::TimedOut, "slow"));
    run.now.wall = Timestamp(2_001);
    brings(run, "first", job, ToolOutcome::done("did"));
    brings(run, "second", job, ToolOutcome::failed(ToolFailure::Failed, "late"));
    run.now.wall = Timestamp(62_001);
    approves(run);
    run.now.wall = Timestamp(66_001);
    ends(run, ToolOutcome::done("written"));
    run.now.wall = Timestamp(70_001);
    run.replies(&[]);
}

#[tokio::test]
async fn each_turn_and_tool_call_counts_by_its_end() {
    let mut world = World::new(1_000);
    turn_of_many_tools(&mut world.run);
    world.run.says("fails");
    world.run.fails(FailureClass::Rejected);
    world.run.says("stops");
    let running = world.run.machine.settled().unwrap().state.open.front().unwrap().id;
    world.run.hears("cancel", &SessionInput::Cancel { turn: running });
    world.run.fails(FailureClass::Cancelled);
    let profile = world.counted().await;
    assert_eq!(profile.turns, TurnEnds { succeeded: 1, failed: 1, neither: 1 });
    assert_eq!(profile.success_rate, Some(0.5), "the cancelled turn says nothing");
    let named = |outcome: &str| OutcomeCount { outcome: outcome.to_owned(), turns: 1 };
    assert_eq!(profile.outcomes, ["cancelled", "completed", "failed"].map(named));
    let done = ToolEnds { done: 1, ..ToolEnds::default() };
    let failed = ToolEnds { failed: 1, ..ToolEnds::default() };
    assert_eq!(profile.tools, [tool("far", done), tool("look", failed), tool("write", done)]);
    assert_eq!((profile.not_run, profile.partial, profile.behind_ms), (1, false, 0));
    let time = profile.time.unwrap();
    // The first turn took 70 s, and waited 62 s of them for a person.
    let longest = time.p95_ms;
    assert!(time.turns == 2 && time.median_ms == 0 && longest.abs_diff(8_000) <= 1_000, "{time:?}");
    assert_eq!(profile.calls.done, 2);
    assert_eq!(profile.models[0].name, "sim/model");
    assert_eq!(profile.first_day.as_deref(), Some("1970-01-01"));
}

#[tokio::test]
async fn the_last_thumb_of_each_turn_counts_and_its_words_are_not_kept() {
    let mut world = World::new(1_000);
    world.turn("m1", 1).await;
    let first = world.last_turn();
    world.says_of("a", first, Thumb::Up);
    let profile = world.counted().await;
    assert_eq!((profile.feedback.up, profile.feedback.down), (1, 0));
    world.says_of("b", first, Thumb::Down);
    world.turn("m2", 1).await;
    let second = world.last_turn();
    world.says_of("c", second, Thumb::Up);
    world.says_of("d", second, Thumb::Up);
    let profile = world.counted().await;
    assert_eq!((profile.feedback.up, profile.feedback.down), (1, 1), "{profile:?}");
    assert_eq!(profile.feedback.up_rate, Some(0.5));
    for (key, entry) in world.storage.bucket.list(USAGE_KEYS).await.unwrap() {
        let has_words = entry.value.windows(7).any(|part| part == b"private");
        assert!(!has_words, "{key}");
    }
}

#[tokio::test]
async fn only_days_since_a_time_and_only_this_agent_count() {
    let mut world = World::new(1_000);
    world.turn("m1", 1).await;
    world.run.now.wall = Timestamp(3 * 86_400_000);
    world.turn("m2", 1).await;
    assert_eq!(world.counted().await.turns.succeeded, 2);
    let agent = key().agent;
    let since = profile(&world.storage, Timestamp(1), &agent, Some(Day(1))).await.unwrap();
    assert_eq!((since.turns.succeeded, since.calls.done), (1, 1));
    assert_eq!(since.first_day.as_deref(), Some("1970-01-04"));
    let other = "other".parse().unwrap();
    let other = profile(&world.storage, Timestamp(1), &other, None).await.unwrap();
    assert!(other.is_empty() && other.turns.total() == 0, "{other:?}");
}

/// What is counted of these records.
fn work(meter: Meter, records: &[Record]) -> Option<(Meter, AgentWork)> {
    let (meter, counted) = gone_on(meter, records)?;
    let mut all = AgentWork::default();
    for (_, counted) in counted {
        if let CountedEvent::Work(counted) = counted {
            all.add(&counted.work, 100);
        }
    }
    Some((meter, all))
}

/// Wherever a follower begins, and with a gap or a repeat in what it is given.
#[test]
fn a_gap_is_noticed_and_a_snapshot_knows_what_is_under_way() {
    let mut run = PlayedActivation::new(&[], Vec::new());
    turn_of_many_tools(&mut run);
    let journal = run.journal.clone();
    let (_, whole) = work(Meter::default(), &journal).unwrap();
    for at in 1..journal.len() {
        let (meter, mut sum) = work(Meter::default(), &journal[..at]).unwrap();
        assert!(work(meter.clone(), &journal[at - 1..]).is_none(), "a repeat");
        assert!(journal.len() == at + 1 || work(meter.clone(), &journal[at + 1..]).is_none());
        sum.add(&work(meter, &journal[at..]).unwrap().1, 100);
        assert_eq!(sum, whole);
    }
}

/// A snapshot in mid-turn has as much of the turn as its events.
#[test]
fn a_snapshot_in_mid_turn_goes_on_as_the_events_before_it() {
    let mut found = 0;
    for snapshot_every in 1..20 {
        let options = MachineOptions { snapshot_every, ..MachineOptions::default() };
        let mut run = PlayedActivation::with(&[], LoadedJournal::default(), options, true);
        turn_of_many_tools(&mut run);
        let mut followed = Meter::default();
        let mut next = Position(0);
        let archives = run.archives.iter().map(|(records, _)| records);
        for records in archives.chain([&run.journal]) {
            let begins = decode_record(&records[0].bytes).unwrap();
            if begins[0].head.kind == SNAPSHOT {
                let begin = LoadedJournal { records: records[..1].to_vec(), snapshot: None };
                let at = Meter::at_snapshot(key().entity(), &begin).unwrap();
                assert_eq!(at, followed, "every {snapshot_every}");
                found += usize::from(at.work != WorkMeter::default());
            }
            let new = records.iter().filter(|record| record.position > next).cloned();
            let new: Vec<_> = new.collect();
            followed = gone_on(followed, &new).unwrap().0;
            next = records.last().unwrap().position;
        }
    }
    assert!(found > 0, "no snapshot came in mid-turn");
}
