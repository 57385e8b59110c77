//! What follows from the tools that a model asks for: which calls run, which never will, and why.
//!
//! All of it is pure: a call's fate is decided from folded state and recorded, so it is the same
//! after a crash.

use clawnode_proto::{
    CallId, Capability, Digest, EntityId, EventId, JobId, SessionKey, Timestamp, TurnId,
    hook::HookTrail,
    json,
    limits::{BAD_CALLS, REPLY_TOOLS},
    llm::{StopReason, Text},
    media::Media,
    memory::MemorySource,
    policy::{Action, Verdict},
    session::{
        ApprovalAsked, ApprovalGiven, Profile, SessionEvent, ToolAsked, ToolDone, ToolEnd,
        ToolUncertain, TurnOutcome,
    },
    timeout::TimeLimit,
    tool::{ToolFailure, ToolOutcome, ToolSpec, ToolUse},
};
use clawnode_tool::schema;
use serde::{Deserialize, Serialize};

use super::super::{
    hooks::{self, HookFate, ToolJudged},
    state::{SessionState, Step, StepEnd, Turn},
};
use super::{
    approval::ApprovalState,
    ledger_entries::{EntryMark, LedgerCall, SessionLedger, is_of_ledger},
    permission::{permission, unfit},
};

/// One tool call of a model's reply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Its id.
    pub call: CallId,
    /// What the model asked for.
    pub using: ToolUse,
    /// How many calls of this turn asked for the same, with this one.
    pub times: u32,
    /// Whether the model is warned that it goes round in circles.
    pub warned: bool,
    /// What hooks decided about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judged: Option<ToolJudged>,
    /// That it was begun; absent while it waits, and for one that was never run.
    pub asked: Option<BegunToolCall>,
    /// That a person was asked about it.
    #[serde(default)]
    pub approval: Option<ApprovalState>,
    /// Its time is over: it is brought to an end, on any runner.
    pub overdue: bool,
    /// The limit that brings it to an end, if it is one of its turn or step.
    #[serde(default)]
    pub late: Option<TimeLimit>,
    /// How it ended, as an input says; the journal's own word follows.
    pub brought: Option<ToolEnd>,
    /// How it ended.
    pub end: Option<ToolEnd>,
    /// The entry that it wrote into the work ledger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<EntryMark>,
}

/// A tool call that was begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BegunToolCall {
    /// The event that asked; its result echoes it.
    pub nonce: EventId,
    /// When, by the writer's clock.
    pub at: Timestamp,
    /// What a node needs to run it; absent if it runs beside the session.
    pub capability: Option<Capability>,
    /// How long it may take.
    #[serde(default)]
    pub limit: Option<TimeLimit>,
    /// The client that offered its tool runs it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_client: bool,
    /// The number of the event that asked, if memories may learn from the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<u64>,
}

impl BegunToolCall {
    /// The source that memories keep: the same each time that it is run (MEM-3).
    pub(in crate::session::turn) fn source(&self, session: EntityId) -> Option<MemorySource> {
        let event = self.event?;
        Some(MemorySource { entity: session, event, part: 0, at: self.at })
    }
}

/// What comes next of a model's reply that asks for tools.
#[derive(Debug, PartialEq)]
pub(in crate::session) enum NextCalls {
    /// These are to be recorded.
    Record(Vec<SessionEvent>),
    /// The turn ends.
    End(TurnOutcome),
    /// Something runs, or the results of all are there.
    Nothing,
}

// === impl ToolCall ===

impl ToolCall {
    /// It was begun and nothing is heard of it.
    pub fn is_open(&self) -> bool {
        self.asked.is_some() && self.brought.is_none() && self.end.is_none()
    }

    /// Its job, if it was begun as one.
    pub(in crate::session) fn job(&self) -> Option<JobId> {
        let asked = self.asked.as_ref()?;
        asked.capability.as_ref().map(|_| JobId::from(self.call))
    }

    /// Whether it was refused for what it is.
    fn is_bad(&self) -> bool {
        matches!(
            &self.end,
            Some(ToolEnd::Known {
                outcome: ToolOutcome { failure: Some(ToolFailure::Invalid), .. }
            })
        )
    }

    /// How it ended: what was cancelled because its time was over has timed out.
    pub(in crate::session) fn ended(&self) -> Option<ToolEnd> {
        let end = self.end.clone()?;
        Some(match (end, &self.late) {
            (ToolEnd::Known { outcome }, Some(limit))
                if outcome.failure == Some(ToolFailure::Cancelled) =>
            {
                let content = match &outcome.content {
                    Text::Inline { text } => format!("{text}\n[{limit}]").into(),
                    content @ Text::Blob { .. } => content.clone(),
                };
                let failure = Some(ToolFailure::TimedOut);
                ToolEnd::Known { outcome: ToolOutcome { content, failure, ..outcome } }
            }
            (end, _) => end,
        })
    }

    /// Its result as the model reads it, and whether that is an error.
    pub fn told(&self) -> (Text, bool) {
        let name: String = self.using.name.chars().take(80).collect();
        // Only what came late is copied: results may be long.
        let late = self.late.as_ref().and_then(|_| self.ended());
        match late.as_ref().or(self.end.as_ref()) {
            Some(ToolEnd::Known { outcome: ToolOutcome { content, failure: None, .. } }) => {
                (content.clone(), false)
            }
            Some(ToolEnd::Known {
                outcome: ToolOutcome { content, failure: Some(failure), .. },
            }) => {
                let text = content.inline().filter(|_| *failure == ToolFailure::Invalid);
                match text {
                    Some(why) => (format!("The call of `{name}` was not run: {why}").into(), true),
                    None => (content.clone(), true),
                }
            }
            Some(ToolEnd::Uncertain { detail }) => {
                let text = format!(
                    "Nobody knows whether the call of `{name}` happened: {detail}. It is not made \
                     again by itself; find out before you ask for it again."
                );
                (text.into(), true)
            }
            None => (format!("The call of `{name}` was not finished.").into(), true),
        }
    }

    /// What the model is shown besides.
    pub fn media(&self) -> Vec<Media> {
        match &self.end {
            Some(ToolEnd::Known { outcome }) => outcome.media.clone(),
            Some(ToolEnd::Uncertain { .. }) | None => Vec::new(),
        }
    }

    /// What the model reads when it makes the same calls again and again.
    pub(in crate::session) fn warning(&self) -> Text {
        let name: String = self.using.name.chars().take(80).collect();
        format!(
            "You have now made the same call of `{name}` {} times in this turn. If its result does \
             not change, do something else.",
            self.times
        )
        .into()
    }

    /// Whether providers take it as it is: a tool's name, and a JSON object. What is not so is not
    /// shown to the model again as a call, but told in words.
    pub fn is_well_formed(&self) -> bool {
        self.using.name.parse::<clawnode_proto::ToolName>().is_ok()
            && matches!(
                serde_json::from_str(&self.using.arguments),
                Ok(serde_json::Value::Object(_))
            )
    }
}

// === what comes next ===

/// What comes next of the last reply of `turn`, whose tools are not all done with.
pub(in crate::session) fn next(
    state: &SessionState,
    session: &SessionKey,
    profile: &Profile,
    turn: &Turn,
    step: &Step,
) -> NextCalls {
    let brought = brought(profile, turn, step);
    if !brought.is_empty() {
        return NextCalls::Record(brought);
    }
    if let Some(tool) = step.tools.iter().find(|tool| tool.times >= profile.loop_guard.end) {
        let (tool, times) = (tool.using.name.clone(), tool.times);
        return NextCalls::End(TurnOutcome::Looped { tool, times });
    }
    let events = match state.step_over() {
        Some(over) => give_up(turn, step, &over),
        None => begin(session, &state.ledger, profile, turn, step),
    };
    if !events.is_empty() {
        return NextCalls::Record(events);
    }
    if turn.plan.is_none()
        && step.tools.iter().all(|tool| tool.end.is_some())
        && let Some(detail) = too_many_bad(turn)
    {
        return NextCalls::End(TurnOutcome::BadCalls { detail });
    }
    NextCalls::Nothing
}

/// What inputs say about the ends of a reply's calls, or was decided about them.
pub(in crate::session) fn brought(
    profile: &Profile,
    turn: &Turn,
    step: &Step,
) -> Vec<SessionEvent> {
    let brought: Vec<SessionEvent> = step
        .tools
        .iter()
        .filter(|tool| tool.end.is_none() && !hooks::is_result_to_be_judged(profile, tool))
        .filter_map(|tool| match tool.brought.as_ref()? {
            ToolEnd::Known { .. } => Some(done(turn.id, tool.call, None)),
            ToolEnd::Uncertain { .. } => {
                Some(ToolUncertain { turn: turn.id, call: tool.call, detail: None }.into())
            }
        })
        .collect();
    let decided = step.tools.iter().filter_map(|tool| {
        let approval = tool.approval.as_ref().filter(|_| tool.end.is_none())?;
        let (turn, call, action) = (turn.id, tool.call, approval.action);
        let decided = approval.brought.clone()?;
        Some(ApprovalGiven { turn, call, action, decided }.into())
    });
    brought.into_iter().chain(decided).collect()
}

/// Ends the calls that wait: there is no time left for them.
fn give_up(turn: &Turn, step: &Step, over: &TimeLimit) -> Vec<SessionEvent> {
    let waits =
        |tool: &&ToolCall| tool.asked.is_none() && tool.end.is_none() && !tool.is_asked_about();
    let late = || ToolOutcome::failed(ToolFailure::TimedOut, format!("not run: {over}"));
    step.tools.iter().filter(waits).map(|tool| ended(turn.id, tool.call, late())).collect()
}

/// Begins as many of the calls that wait as may run at a time; people are asked about those that
/// need it, and those that never will run are ended.
fn begin(
    session: &SessionKey,
    ledger: &SessionLedger,
    profile: &Profile,
    turn: &Turn,
    step: &Step,
) -> Vec<SessionEvent> {
    let most = usize::try_from(profile.max_parallel_tools.max(1)).unwrap_or(usize::MAX);
    let runs = |tool: &&ToolCall| tool.is_open() && !tool.is_of_client();
    let mut open = step.tools.iter().filter(runs).count();
    let mut events = Vec::new();
    let mut has_written = false;
    for (index, tool) in step.tools.iter().enumerate() {
        if tool.asked.is_some() || tool.end.is_some() {
            continue;
        }
        let judged = judge(profile, turn, step, index, tool).and_then(|callee| {
            let permitted = match &callee {
                Callee::Agent(spec) => permitted(session, ledger, profile, turn, tool, spec)?,
                Callee::Client(_) => Permitted::Yes,
            };
            Ok((callee, permitted))
        });
        match judged {
            Ok((Callee::Client(spec), _)) => {
                let (call, tool) = (tool.call, spec.name);
                events.push(ToolAsked { turn: turn.id, call, tool, by_client: true }.into());
            }
            // One at a time: each of them reads what those before it have written.
            Ok((Callee::Agent(spec), Permitted::Yes)) if is_of_ledger(spec) => {
                if !std::mem::replace(&mut has_written, true) {
                    events.extend(ledger.decide(ledger_call(profile, turn, step, index, spec)));
                }
            }
            Ok((Callee::Agent(spec), Permitted::Yes)) if open < most => {
                open += 1;
                let (call, tool) = (tool.call, spec.name.clone());
                events.push(ToolAsked { turn: turn.id, call, tool, by_client: false }.into());
            }
            Ok((_, Permitted::Yes | Permitted::Waits)) => {}
            Ok((_, Permitted::Asks { action, reason })) => {
                let (turn, call) = (turn.id, tool.call);
                events.push(ApprovalAsked { turn, call, action, reason }.into());
            }
            Err(outcome) => events.push(ended(turn.id, tool.call, outcome)),
        }
    }
    events
}

/// The call of this place, whose tool the session itself ends.
fn ledger_call<'a>(
    profile: &Profile,
    turn: &Turn,
    step: &'a Step,
    index: usize,
    spec: &'a ToolSpec,
) -> LedgerCall<'a> {
    let is_one = |tool: &&ToolCall| profile.tool(&tool.using.name).is_some_and(is_of_ledger);
    let earlier = step.tools.iter().take(index).filter(is_one).count();
    let (turn, arguments) = (turn.id, step.tools.get(index).map_or("", ToolCall::arguments));
    let call = step.tools.get(index).map_or(step.call, |tool| tool.call);
    LedgerCall { turn, call, spec, arguments, earlier }
}

/// The tool that a call names, by who runs it.
enum Callee<'a> {
    /// The cluster, for the agent.
    Agent(&'a ToolSpec),
    /// The client that offered it.
    Client(Box<ToolSpec>),
}

/// Whether policy and people let a call run.
enum Permitted {
    /// They do.
    Yes,
    /// A person is to be asked.
    Asks { action: Digest, reason: Option<String> },
    /// A person was asked, or hooks are to be.
    Waits,
}

impl Callee<'_> {
    const fn spec(&self) -> &ToolSpec {
        match self {
            Self::Agent(spec) => spec,
            Self::Client(spec) => spec,
        }
    }
}

fn permitted(
    session: &SessionKey,
    ledger: &SessionLedger,
    profile: &Profile,
    turn: &Turn,
    tool: &ToolCall,
    spec: &ToolSpec,
) -> Result<Permitted, ToolOutcome> {
    let refused = |why: String| Err(ToolOutcome::failed(ToolFailure::Refused, why));
    if let Some(approval) = &tool.approval {
        return match approval.refusal() {
            Some(refusal) => Err(refusal),
            None if approval.is_approved() => Ok(Permitted::Yes),
            None => Ok(Permitted::Waits),
        };
    }
    if let HookFate::Waits = hooks::fate(profile, tool, spec)? {
        return Ok(Permitted::Waits);
    }
    let Some(arguments) = json::read_object(tool.arguments()) else {
        return refused("its arguments are not a JSON object".to_owned());
    };
    // As hooks left it, and before a person is asked about what cannot run anyway.
    if let Some(why) = unfit(spec, &arguments, ledger) {
        return Err(ToolOutcome::failed(ToolFailure::Invalid, why));
    }
    let judgement = permission(&profile.policy, spec, &arguments);
    match judgement.verdict {
        Verdict::Allow => Ok(Permitted::Yes),
        Verdict::Deny => refused(match judgement.reason {
            Some(reason) => format!("the rules of this agent do not allow it: {reason}"),
            None => "the rules of this agent do not allow it".to_owned(),
        }),
        Verdict::Ask => match action_of(session, turn.id, tool, spec).digest() {
            Ok(action) => {
                let reason = judgement.reason.map(str::to_owned);
                Ok(Permitted::Asks { action, reason })
            }
            Err(failure) => refused(format!("cannot ask for approval: {failure}")),
        },
    }
}

/// Exactly what a call would do.
pub(in crate::session) fn action_of(
    session: &SessionKey,
    turn: TurnId,
    tool: &ToolCall,
    spec: &ToolSpec,
) -> Action {
    Action {
        session: session.clone(),
        turn,
        call: tool.call,
        tool: spec.name.clone(),
        pin: spec.pin,
        capability: spec.capability.clone(),
        class: spec.class,
        timeout_ms: spec.timeout_ms,
        arguments: tool.arguments().to_owned(),
    }
}

fn ended(turn: TurnId, call: CallId, outcome: ToolOutcome) -> SessionEvent {
    done(turn, call, Some(outcome))
}

fn done(turn: TurnId, call: CallId, outcome: Option<ToolOutcome>) -> SessionEvent {
    ToolDone { turn, call, outcome, hooks: HookTrail::default() }.into()
}

/// Whether a call may run, as its tool is now; or why it never will.
fn judge<'a>(
    profile: &'a Profile,
    turn: &Turn,
    step: &Step,
    index: usize,
    tool: &ToolCall,
) -> Result<Callee<'a>, ToolOutcome> {
    let invalid = |why: String| Err(ToolOutcome::failed(ToolFailure::Invalid, why));
    let refused = |why: String| Err(ToolOutcome::failed(ToolFailure::Refused, why));
    let using = &tool.using;
    if index >= REPLY_TOOLS {
        return refused(format!("one reply may make {REPLY_TOOLS} calls, and this is one more"));
    }
    // Some local servers name none of them.
    let twice = |before: &ToolCall| !using.id.is_empty() && before.using.id == using.id;
    if step.tools.iter().take(index).any(twice) {
        return invalid(format!("another call of the same reply has the id `{}`", using.id));
    }
    let agents = profile.tool(&using.name).map(Callee::Agent);
    let callee = agents.or_else(|| {
        turn.offer.spec(profile, &using.name).map(|spec| Callee::Client(Box::new(spec)))
    });
    let Some(callee) = callee else {
        let names = profile.tools.iter().map(|tool| tool.name.as_str());
        let of_client = turn.offer.beside(profile).map(|tool| tool.name.as_str());
        let names: Vec<&str> = names.chain(of_client).collect();
        let name: String = using.name.chars().take(80).collect();
        return invalid(format!("there is no tool `{name}`; there are: {}", names.join(", ")));
    };
    if let Err(why) = schema::judge(callee.spec(), &using.arguments) {
        let cut = matches!(step.end, Some(StepEnd::Done { stop: StopReason::MaxTokens, .. }));
        let hint =
            if cut { " The reply was cut off at its limit of tokens: ask for less." } else { "" };
        return invalid(format!("{why}{hint}"));
    }
    if tool.times >= profile.loop_guard.refuse {
        return refused(format!(
            "this turn has made the same call {} times; it was not run again. \
             Do something else, or say what keeps you from it.",
            tool.times
        ));
    }
    Ok(callee)
}

/// The last complaint, if the model has read as many about calls that cannot be run as it may.
fn too_many_bad(turn: &Turn) -> Option<String> {
    let bad = |step: &&Step| step.tools.iter().any(ToolCall::is_bad);
    if turn.steps.iter().filter(bad).count() as u64 <= u64::from(BAD_CALLS) {
        return None;
    }
    let last = turn.steps.iter().rev().find(bad)?.tools.iter().find(|tool| tool.is_bad())?;
    match &last.end {
        Some(ToolEnd::Known { outcome }) => Some(outcome.content.inline()?.to_owned()),
        _ => None,
    }
}
