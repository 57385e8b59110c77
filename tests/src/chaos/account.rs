//! Errands against the count of their effects: what sessions say happened, and what did. Pure.

use std::collections::{BTreeMap, BTreeSet};

use clawnode_proto::{CallId, JobId};

use super::{
    errands::{ASKED, COMMAND, Errand, Kind, TOOLS},
    evidence::{Evidence, Stored},
    judge::{Breach, Violation},
};

/// What the text says that a model gets if it is unknown whether a call happened.
const UNCERTAIN: &str = " knows whether the call of ";
/// The answer of a call that was done, by the counter and by a command.
const DONE: &str = "done";

/// What all errands came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Calls of tools that were asked for.
    pub calls: usize,
    /// Calls of class `once` of which it is unknown whether they happened.
    pub uncertain: usize,
    /// Calls of other classes that had their effect more than once.
    pub again: usize,
    /// Commands that ended with their container or its engine.
    pub interrupted: usize,
    /// Calls that a person approved.
    pub approvals: usize,
    /// Plans that ran to their end.
    pub plans: usize,
    /// All that must not be.
    pub violations: Vec<Violation>,
}

/// One call, as its session has it.
#[derive(Debug)]
struct Call {
    tool: String,
    job: String,
    uncertain: bool,
    approved: bool,
}

// === impl Account ===

impl Account {
    /// Holds the errands against the count.
    pub fn of(evidence: &Evidence) -> Self {
        let mut account = Self::default();
        let mut sessions: BTreeMap<&str, Vec<&Errand>> = BTreeMap::new();
        for errand in &evidence.errands {
            sessions.entry(&errand.session).or_default().push(errand);
            account.heard(errand);
        }
        let mut known = BTreeSet::new();
        for (key, errands) in &sessions {
            match evidence.sessions.get(*key) {
                Some(stored) => {
                    account.session((key, errands), stored, &evidence.effects, &mut known);
                }
                None => account.blame(Breach::Lost, format!("`{key}` is gone, with its errands")),
            }
        }
        for stray in evidence.effects.keys().filter(|key| !known.contains(*key)) {
            account.blame(
                Breach::Invariant,
                format!("an effect of `{stray}`, which no call asked for"),
            );
        }
        account
    }

    fn blame(&mut self, breach: Breach, what: String) {
        self.violations.push(Violation { breach, what });
    }

    fn heard(&mut self, errand: &Errand) {
        let name = format!("`{}` of `{}`", errand.key, errand.session);
        match &errand.ended {
            Some(Ok(())) => self.plans += usize::from(errand.kind == Kind::Plan),
            Some(Err(how)) => self.blame(Breach::Lost, format!("{name} ended badly: {how}")),
            None => {
                let last = errand.refusals.last().map_or("no answer", String::as_str);
                self.blame(Breach::Lost, format!("the end of {name} was never heard: {last}"));
            }
        }
    }

    fn session(
        &mut self,
        (key, errands): (&str, &[&Errand]),
        stored: &Stored,
        effects: &BTreeMap<String, usize>,
        known: &mut BTreeSet<String>,
    ) {
        let turns = stored.events.iter().filter(|event| event.kind == "turn_done").count();
        if turns != errands.len() {
            let breach = if turns < errands.len() { Breach::Lost } else { Breach::Duplicated };
            self.blame(breach, format!("`{key}`: {turns} turns of {} errands", errands.len()));
        }
        let calls = match calls(stored) {
            Ok(calls) => calls,
            Err(what) => return self.blame(Breach::Invariant, format!("`{key}`: {what}")),
        };
        let each: usize = errands.iter().map(|one| wanted(one.kind)).sum();
        if calls.len() != each {
            let what = format!("`{key}`: {} calls, where {each} were asked for", calls.len());
            self.blame(Breach::Lost, what);
        }
        let messages = stored.history.turns.iter().flat_map(|turn| &turn.messages);
        let told: Vec<(bool, &str)> = messages
            .flat_map(|message| &message.tool_replies)
            .map(|reply| (reply.is_error, reply.content.inline().unwrap_or_default()))
            .collect();
        if told.len() != calls.len() {
            let what = format!("`{key}`: {} replies to {} calls", told.len(), calls.len());
            self.blame(Breach::Lost, what);
        }
        for (call, told) in calls.iter().zip(told) {
            let count = effects.get(&call.job).copied().unwrap_or_default();
            self.call(key, call, told, count);
        }
        known.extend(calls.into_iter().map(|call| call.job));
    }

    /// One call: what its model was shown, and what the count says.
    fn call(&mut self, key: &str, call: &Call, (is_error, text): (bool, &str), count: usize) {
        let name = format!("`{key}`: `{}` of `{}`", call.job, call.tool);
        let is_once = call.tool == TOOLS[0] || call.tool == ASKED || call.tool == COMMAND;
        self.calls += 1;
        if is_once && count > 1 {
            let what = format!("{name} happened {count} times (JOB-4)");
            self.blame(Breach::Repeated, what);
        }
        self.again += usize::from(!is_once && count > 1);
        if call.tool == ASKED {
            self.approvals += usize::from(call.approved);
            if count > 0 && !call.approved {
                self.blame(Breach::Invariant, format!("{name}: no person was asked (APR-1)"));
            }
        }
        if call.uncertain {
            self.uncertain += 1;
            if !is_once {
                self.blame(Breach::Lost, format!("{name} may run again, and is uncertain"));
            }
            if !is_error || !text.contains(UNCERTAIN) {
                self.blame(Breach::Invariant, format!("{name} is uncertain, told as `{text}`"));
            }
        } else if is_error {
            // A command dies with its container, and its model learns that.
            if call.tool == COMMAND {
                self.interrupted += 1;
            } else {
                self.blame(Breach::Lost, format!("{name} failed: {text}"));
            }
        } else if count == 0 || text.trim_end() != DONE {
            let what = format!("{name} was reported as `{text}`, and happened {count} times");
            self.blame(Breach::Lost, what);
        }
    }
}

/// How many calls an errand makes.
const fn wanted(kind: Kind) -> usize {
    match kind {
        Kind::Tools | Kind::Plan => TOOLS.len(),
        Kind::Approval | Kind::Command => 1,
    }
}

/// The calls of one journal, in the order in which they were asked for; each has one end.
fn calls(stored: &Stored) -> Result<Vec<Call>, String> {
    let mut ends: BTreeMap<&str, bool> = BTreeMap::new();
    let mut approved = BTreeSet::new();
    let mut asked = Vec::new();
    for event in &stored.events {
        let call = event.body["call"].as_str().unwrap_or_default();
        match event.kind.as_str() {
            "approval_asked" => drop(approved.insert(call)),
            "tool_asked" => asked.push((call, event.body["tool"].as_str().unwrap_or_default())),
            "tool_done" | "tool_uncertain" => {
                let before = ends.insert(call, event.kind == "tool_uncertain");
                if before.is_some() {
                    return Err(format!("call `{call}` has two ends (I3)"));
                }
            }
            _ => {}
        }
    }
    let mut calls = Vec::new();
    for (call, tool) in asked {
        let uncertain = ends.remove(call).ok_or_else(|| format!("call `{call}` has no end"))?;
        let job = call.parse::<CallId>().map(|call| JobId::from(call).to_string());
        let job = job.map_err(|error| format!("call `{call}`: {error}"))?;
        let approved = approved.contains(call);
        calls.push(Call { tool: tool.to_owned(), job, uncertain, approved });
    }
    match ends.keys().next() {
        None => Ok(calls),
        Some(call) => Err(format!("call `{call}` has ended, and was never asked for")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(tool: &str, uncertain: bool, approved: bool) -> Call {
        Call { tool: tool.to_owned(), job: "job_1".to_owned(), uncertain, approved }
    }

    fn blamed(call: &Call, told: (bool, &str), count: usize) -> Vec<Breach> {
        let mut account = Account::default();
        account.call("s", call, told, count);
        account.violations.iter().map(|one| one.breach).collect()
    }

    #[test]
    fn what_may_be_is_not_blamed() {
        let unknown = "No one knows whether the call of `effect_once` happened";
        for (tool, uncertain, told, count) in [
            ("effect_once", false, (false, "done"), 1),
            ("effect_once", true, (true, unknown), 0),
            ("effect_once", true, (true, unknown), 1),
            ("effect_safe", false, (false, "done"), 3),
            ("run_command", false, (false, "done\n"), 1),
            ("run_command", false, (true, "[crashed]"), 0),
            ("run_command", false, (true, "[crashed]"), 1),
        ] {
            assert_eq!(blamed(&call(tool, uncertain, false), told, count), [], "{tool} {told:?}");
        }
        assert_eq!(blamed(&call("effect_asked", false, true), (false, "done"), 1), []);
    }

    #[test]
    fn what_must_not_be_is_blamed() {
        let unknown = "No one knows whether the call of `effect_once` happened";
        for (tool, uncertain, told, count, breach) in [
            ("effect_once", false, (false, "done"), 2, Breach::Repeated),
            ("effect_once", true, (true, unknown), 2, Breach::Repeated),
            ("run_command", false, (true, "[crashed]"), 2, Breach::Repeated),
            ("effect_once", false, (false, "done"), 0, Breach::Lost),
            ("effect_safe", false, (false, "done"), 0, Breach::Lost),
            ("effect_safe", false, (true, "not found"), 1, Breach::Lost),
            ("effect_safe", true, (true, unknown), 1, Breach::Lost),
            ("effect_once", true, (false, "done"), 1, Breach::Invariant),
            ("effect_asked", false, (false, "done"), 1, Breach::Invariant),
        ] {
            let found = blamed(&call(tool, uncertain, false), told, count);
            assert_eq!(found, [breach], "{tool} {told:?} {count}");
        }
    }

    #[test]
    fn an_errand_whose_end_or_session_is_missing_is_lost_and_a_stray_effect_is_seen() {
        let errand = Errand {
            kind: Kind::Plan,
            session: "s".to_owned(),
            key: "k".to_owned(),
            ended: None,
            refusals: Vec::new(),
        };
        let effects = [("job_2".to_owned(), 1)].into();
        let evidence = Evidence { errands: vec![errand], effects, ..Evidence::default() };
        let breaches: Vec<Breach> =
            Account::of(&evidence).violations.iter().map(|one| one.breach).collect();
        assert_eq!(breaches, [Breach::Lost, Breach::Lost, Breach::Invariant]);
    }
}
