//! Who changed the limits of an account, in words.

use clawnode_budget::account::CHANGES_MOST;
use clawnode_proto::budget::{
    AccountChange, BudgetLimit, BudgetUnit, ChangeKind, CountedLanes, LimitKey, LimitSource,
    WindowLength, amount_text,
};

use super::output::{clean, time};

/// An account begins with none.
const NO_LIMITS: &[BudgetLimit] = &[];

/// What is known of the limits before a change.
#[derive(Clone, Copy, Debug)]
struct LimitsBefore<'a> {
    /// What the configuration says.
    configured: Option<&'a [BudgetLimit]>,
    /// Those that had effect.
    in_force: Option<&'a [BudgetLimit]>,
    /// A person may have set some of them.
    may_be_persons: bool,
}

/// The changes, newest first: when, who and what.
pub(super) fn rows(changes: &[AccountChange]) -> Vec<Vec<String>> {
    // Where older ones are gone, it is not known what was before.
    let is_whole = changes.len() < CHANGES_MOST;
    let nothing = is_whole.then_some(NO_LIMITS);
    let mut before =
        LimitsBefore { configured: nothing, in_force: nothing, may_be_persons: !is_whole };
    let mut rows = Vec::new();
    for changed in changes.iter().rev() {
        rows.push(vec![time(changed.at), author(&changed.by), change(before, changed)]);
        before = before.after(changed);
    }
    rows.reverse();
    rows
}

/// A limit in words: `$5.00 per day`.
pub(super) fn limit_text(key: LimitKey, amount: u64, lanes: CountedLanes) -> String {
    let amount = amount_text(key.unit, amount);
    let what = match key.unit {
        BudgetUnit::Usd => amount,
        BudgetUnit::Tokens | BudgetUnit::Loops => format!("{amount} {}", key.unit),
    };
    match key.window {
        WindowLength::Forever => format!("{what} in all{}", lanes.suffix()),
        window => format!("{what} per {window}{}", lanes.suffix()),
    }
}

fn author(by: &LimitSource) -> String {
    if let LimitSource::Person { name } = by {
        clean(name)
    } else if *by == LimitSource::Configured {
        "configuration".to_owned()
    } else {
        "built-in default".to_owned()
    }
}

fn change(before: LimitsBefore<'_>, changed: &AccountChange) -> String {
    match &changed.what {
        ChangeKind::Set { limits } => {
            let is_person = matches!(changed.by, LimitSource::Person { .. });
            let difference = before.in_force.filter(|_| is_person);
            difference.and_then(|before| changed_to(before, limits)).unwrap_or_else(|| set(limits))
        }
        ChangeKind::Reset => "took away what a person had set".to_owned(),
        ChangeKind::Allowed { limit } => format!("allowed more of {limit}"),
    }
}

/// What differs, if anything does: what a person leaves as it is, they have not set.
fn changed_to(before: &[BudgetLimit], after: &[BudgetLimit]) -> Option<String> {
    let new: Vec<BudgetLimit> =
        after.iter().filter(|limit| !before.contains(limit)).copied().collect();
    let is_gone = |limit: &&BudgetLimit| after.iter().all(|other| other.key != limit.key);
    let gone: Vec<String> = before
        .iter()
        .filter(is_gone)
        .map(|limit| limit_text(limit.key, limit.amount, limit.lanes))
        .collect();
    let mut said: Vec<String> = (!new.is_empty()).then(|| set(&new)).into_iter().collect();
    if !gone.is_empty() {
        said.push(format!("took away {}", gone.join(", ")));
    }
    (!said.is_empty()).then(|| said.join("; "))
}

fn set(limits: &[BudgetLimit]) -> String {
    if limits.is_empty() {
        return "set no limits".to_owned();
    }
    let limits = limits.iter().map(|set| {
        let limit = limit_text(set.key, set.amount, set.lanes);
        format!("{limit} (warns at {} %, asks at {} %)", set.warn_at, set.ask_at)
    });
    format!("set {}", limits.collect::<Vec<String>>().join(", "))
}

// === impl LimitsBefore ===

impl<'a> LimitsBefore<'a> {
    fn after(self, changed: &'a AccountChange) -> Self {
        match (&changed.what, &changed.by) {
            (ChangeKind::Set { limits }, LimitSource::Person { .. }) => {
                Self { in_force: Some(limits.as_slice()), may_be_persons: true, ..self }
            }
            (ChangeKind::Set { limits }, LimitSource::Configured | LimitSource::BuiltIn) => {
                let configured = Some(limits.as_slice());
                // What a person left to the configuration follows it, and that is no change of theirs.
                let in_force = configured.filter(|_| !self.may_be_persons);
                Self { configured, in_force, ..self }
            }
            (ChangeKind::Reset, _) => {
                Self { in_force: self.configured, may_be_persons: false, ..self }
            }
            (ChangeKind::Allowed { .. }, _) => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use clawnode_proto::Timestamp;

    use super::*;

    const fn limit(unit: BudgetUnit, amount: u64) -> BudgetLimit {
        BudgetLimit::new(unit, WindowLength::Day, amount)
    }

    const USD: BudgetLimit = limit(BudgetUnit::Usd, 5_000_000);
    const LOOPS: BudgetLimit = limit(BudgetUnit::Loops, 50);
    const DEAR: BudgetLimit = limit(BudgetUnit::Usd, 9_000_000);

    /// The changes in words, the oldest first.
    fn said(changes: Vec<(LimitSource, ChangeKind)>) -> Vec<String> {
        let at = Timestamp(0);
        let mut changes: Vec<_> =
            changes.into_iter().map(|(by, what)| AccountChange { at, by, what }).collect();
        changes.reverse();
        let said = rows(&changes).into_iter().rev();
        said.map(|row| row[2].replace(" (warns at 75 %, asks at 90 %)", "")).collect()
    }

    fn person() -> LimitSource {
        LimitSource::Person { name: "ada".to_owned() }
    }

    fn to(limits: &[BudgetLimit]) -> ChangeKind {
        ChangeKind::Set { limits: limits.to_vec() }
    }

    #[test]
    fn a_person_is_said_to_have_set_what_they_changed() {
        let found = said(vec![
            (LimitSource::BuiltIn, to(&[USD, LOOPS])),
            (person(), to(&[DEAR, LOOPS])),
            (person(), to(&[DEAR])),
            (person(), to(&[DEAR])),
            (person(), ChangeKind::Reset),
            (person(), to(&[DEAR, LOOPS])),
        ]);
        assert_eq!(
            found,
            [
                "set $5.00 per day, 50 loops per day",
                "set $9.00 per day",
                "took away 50 loops per day",
                "set $9.00 per day",
                "took away what a person had set",
                "set $9.00 per day",
            ]
        );
    }

    #[test]
    fn what_was_before_is_not_guessed() {
        let both = "set $9.00 per day, 50 loops per day";
        let found = said(vec![
            (person(), to(&[USD, LOOPS])),
            (LimitSource::Configured, to(&[LOOPS])),
            (person(), to(&[DEAR, LOOPS])),
        ]);
        assert_eq!(found[2], both, "their limits may have followed the configuration");
        let older = (LimitSource::BuiltIn, to(&[USD, LOOPS]));
        let mut changes = vec![older; CHANGES_MOST - 1];
        changes.push((person(), to(&[DEAR, LOOPS])));
        assert_eq!(said(changes).pop().unwrap(), both, "a person may have set others before");
    }
}
