//! What jobs did, and what was said of that.

use std::collections::{BTreeMap, BTreeSet};

use clawnode_proto::{
    CallId, EntityId, IdempotencyKey, InputId, JobId, ProcessId, Timestamp, ToolName, TurnId,
    limits::JOB_AGE_MAX,
    session::{ToolAsked, ToolEnd},
    tool::{EffectClass, ToolSpec},
};

use crate::{JudgeViolation, book::Checked};

/// How wrong clocks are at most, in milliseconds.
const CLOCKS: u64 = 60 * 60 * 1_000;

/// How long a process may be frozen between what it stored and what it does, in milliseconds.
const FROZEN: u64 = 60 * 1_000;

/// What is known of a call that a job makes.
#[derive(Debug)]
struct Deed {
    /// When it was asked for, by the time of events.
    asked: Timestamp,
    class: EffectClass,
    did: Vec<ProcessId>,
    /// It was said not to have happened.
    undone: bool,
    /// When its result was stored.
    result: Option<u64>,
    /// When the end of its turn was published.
    told: Option<u64>,
}

/// What all jobs did.
#[derive(Debug)]
pub(super) struct Deeds {
    /// The tools that are run as jobs.
    tools: BTreeMap<ToolName, EffectClass>,
    calls: BTreeMap<CallId, Deed>,
    /// What their results are called.
    results: BTreeMap<InputId, CallId>,
    /// The calls of turns whose ends were not published. A turn comes again if its session was deleted.
    open: BTreeMap<TurnId, Vec<CallId>>,
    /// Who was held dead, and was not.
    wronged: BTreeSet<ProcessId>,
}

fn wrong(name: &'static str, text: String) -> Checked {
    Err(JudgeViolation::new(name, text))
}

// === impl Deed ===

impl Deed {
    /// Whether it must be known if it has happened.
    const fn matters(&self) -> bool {
        matches!(self.class, EffectClass::Check | EffectClass::Once)
    }
}

// === impl Deeds ===

impl Deeds {
    pub(super) fn new(specs: &[ToolSpec]) -> Self {
        let jobs = specs.iter().filter(|spec| spec.capability.is_some());
        let tools = jobs.map(|spec| (spec.name.clone(), spec.class)).collect();
        let (calls, results, open, wronged) = Default::default();
        Self { tools, calls, results, open, wronged }
    }

    pub(super) fn wrongs(&mut self, process: ProcessId) {
        self.wronged.insert(process);
    }

    pub(super) fn asked(&mut self, entity: EntityId, asked: Timestamp, tool: &ToolAsked) {
        let ToolAsked { turn, call, tool, by_client: _ } = tool;
        if let Some(class) = self.tools.get(tool).copied() {
            let did = Vec::new();
            let deed = Deed { asked, class, did, undone: false, result: None, told: None };
            self.calls.insert(*call, deed);
            self.open.entry(*turn).or_default().push(*call);
            let result = IdempotencyKey::of_job(JobId::from(*call));
            self.results.insert(InputId::derive(entity, &result), *call);
        }
    }

    /// An input was stored, which may be the result of a call.
    pub(super) fn stored(&mut self, now: u64, input: InputId) {
        let call = self.results.get(&input);
        if let Some(deed) = call.and_then(|call| self.calls.get_mut(call)) {
            deed.result.get_or_insert(now);
        }
    }

    /// A job is stored by its owner, who began to look for it at `since`.
    pub(super) fn gives(&self, call: CallId, since: u64) -> Checked {
        match self.calls.get(&call).and_then(|deed| deed.result) {
            Some(result) if result < since => {
                let before = since - result;
                wrong("JOB-8", format!("`{call}` is given again {before} ms after its result"))
            }
            _ => Ok(()),
        }
    }

    /// The end of a turn was published.
    pub(super) fn told(&mut self, now: u64, turn: TurnId) {
        for call in self.open.remove(&turn).unwrap_or_default() {
            if let Some(deed) = self.calls.get_mut(&call) {
                deed.told.get_or_insert(now);
            }
        }
    }

    /// A job begins to run.
    pub(super) fn begins(&self, now: u64, call: CallId) -> Checked {
        let Some(deed) = self.calls.get(&call) else { return Ok(()) };
        if deed.asked.plus(JOB_AGE_MAX).0 + CLOCKS < now {
            let late = now - deed.asked.0;
            return wrong("JOB-5", format!("`{call}` is begun {late} ms after it was asked for"));
        }
        match deed.told {
            Some(told) if told + FROZEN < now => {
                let text = format!("`{call}` is begun {} ms after its turn ended", now - told);
                wrong("JOB-7", text)
            }
            _ => Ok(()),
        }
    }

    /// A job has its effect.
    pub(super) fn does(&mut self, by: ProcessId, call: CallId) -> Checked {
        let Some(deed) = self.calls.get_mut(&call) else { return Ok(()) };
        // Who was held dead without being so may still do what it had begun.
        let before = deed.did.iter().find(|before| !self.wronged.contains(before)).copied();
        deed.did.push(by);
        if !deed.matters() || self.wronged.contains(&by) {
            return Ok(());
        }
        match before {
            Some(before) => {
                wrong("JOB-6", format!("`{by}` does `{call}`, which `{before}` has done"))
            }
            None if deed.undone => {
                wrong("JOB-6", format!("`{call}` happens, and was said not to have happened"))
            }
            None => Ok(()),
        }
    }

    /// The journal or a result says how a call ended.
    pub(super) fn says(&mut self, call: CallId, end: &ToolEnd) -> Checked {
        let (ToolEnd::Known { outcome }, Some(deed)) = (end, self.calls.get_mut(&call)) else {
            return Ok(());
        };
        if outcome.failure.is_none() && deed.did.is_empty() {
            return wrong("JOB-6", format!("`{call}` is said to have happened, and has not"));
        }
        if outcome.failure.is_none() {
            return Ok(());
        }
        deed.undone = true;
        let excused = deed.did.iter().any(|by| self.wronged.contains(by));
        if deed.matters() && !deed.did.is_empty() && !excused {
            return wrong("JOB-6", format!("`{call}` is said not to have happened, and has"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clawnode_proto::tool::{Risk, ToolFailure, ToolOutcome};

    use super::*;

    const CALL: CallId = CallId::from_u128(1);
    const SESSION: EntityId = EntityId::from_u128(1);
    const TURN: TurnId = TurnId::from_u128(1);
    const HOUR: u64 = 60 * 60 * 1_000;

    fn by(n: u128) -> ProcessId {
        ProcessId::from_u128(n)
    }

    /// A call that was asked for at 0.
    fn asked(class: EffectClass) -> Deeds {
        let tool: ToolName = "it".parse().unwrap();
        let mut deeds = Deeds::new(&[ToolSpec {
            name: tool.clone(),
            description: String::new(),
            input_schema: "{}".to_owned(),
            class,
            risk: Risk::ReadOnly,
            capability: Some("sim".parse().unwrap()),
            timeout_ms: 1,
            pin: None,
            time: None,
        }]);
        deeds.asked(
            SESSION,
            Timestamp(0),
            &ToolAsked { turn: TURN, call: CALL, tool, by_client: false },
        );
        deeds
    }

    fn done() -> ToolEnd {
        ToolEnd::Known { outcome: ToolOutcome::done("did") }
    }

    fn failed() -> ToolEnd {
        ToolEnd::Known { outcome: ToolOutcome::failed(ToolFailure::Unavailable, "no node") }
    }

    fn is(name: &str, checked: &Checked) -> bool {
        checked.as_ref().err().is_some_and(|violation| violation.name == name)
    }

    #[test]
    fn job_5_what_is_days_old_does_not_begin() {
        let deeds = asked(EffectClass::Once);
        assert!(deeds.begins(72 * HOUR, CALL).is_ok());
        assert!(is("JOB-5", &deeds.begins(74 * HOUR, CALL)));
    }

    #[test]
    fn job_7_what_nobody_waits_for_does_not_begin() {
        let mut deeds = asked(EffectClass::Safe);
        deeds.told(1_000, TURN);
        assert!(deeds.begins(1_000 + FROZEN, CALL).is_ok());
        assert!(is("JOB-7", &deeds.begins(1_001 + FROZEN, CALL)));
        // The turn comes again after a deletion, with other calls.
        let (call, tool) = (CallId::from_u128(2), "it".parse().unwrap());
        let again = ToolAsked { turn: TURN, call, tool, by_client: false };
        deeds.asked(SESSION, Timestamp(1_001 + FROZEN), &again);
        assert!(deeds.begins(1_001 + FROZEN, call).is_ok());
        assert!(is("JOB-7", &deeds.begins(1_001 + FROZEN, CALL)));
    }

    #[test]
    fn job_8_what_has_a_result_is_not_given_again() {
        let mut deeds = asked(EffectClass::Safe);
        assert!(deeds.gives(CALL, HOUR).is_ok());
        deeds.stored(5, InputId::derive(SESSION, &IdempotencyKey::of_job(JobId::from(CALL))));
        assert!(deeds.gives(CALL, 5).is_ok(), "it may have read what was before");
        assert!(is("JOB-8", &deeds.gives(CALL, 6)));
    }

    #[test]
    fn job_6_what_is_said_of_a_job_is_so() {
        for class in [EffectClass::Once, EffectClass::Check] {
            assert!(is("JOB-6", &asked(class).says(CALL, &done())), "it has not happened");
            let mut deeds = asked(class);
            assert!(deeds.does(by(1), CALL).is_ok());
            assert!(deeds.says(CALL, &done()).is_ok());
            assert!(is("JOB-6", &deeds.says(CALL, &failed())), "it has happened");
            assert!(is("JOB-6", &deeds.does(by(2), CALL)), "it happens again");
            let mut deeds = asked(class);
            assert!(deeds.says(CALL, &failed()).is_ok());
            assert!(is("JOB-6", &deeds.does(by(1), CALL)), "it happens after all");
            // Held dead, and alive.
            let mut deeds = asked(class);
            deeds.wrongs(by(1));
            assert!(deeds.does(by(1), CALL).is_ok() && deeds.does(by(2), CALL).is_ok());
            assert!(is("JOB-6", &deeds.does(by(3), CALL)));
        }
        let mut safe = asked(EffectClass::Safe);
        assert!(safe.does(by(1), CALL).is_ok() && safe.does(by(2), CALL).is_ok());
        assert!(safe.says(CALL, &failed()).is_ok());
    }
}
