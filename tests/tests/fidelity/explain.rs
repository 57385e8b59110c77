//! What a world can do, and whether it can show what was seen.

use std::{collections::BTreeSet, fmt::Debug};

use clawnode_sim::{Bugs, Faults};
use clawnode_tests::conformance::Result;

use crate::operations::{EACH, Op, PARTITION, SEEDS_LOSSY_PAIR, SEEDS_PAIR, TRIES};
use crate::operator::{Operator, Seen};
use crate::worlds::world;

/// What else than a calm world may explain.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Allowed {
    /// A write may stay without an answer, and have taken effect or not, now or later.
    pub(crate) unknown: bool,
    /// An append may be refused without a cause.
    pub(crate) spurious: bool,
}

/// A sequence, and what was seen of it.
pub(crate) struct Trace {
    pub(crate) seed: u64,
    pub(crate) steps: Vec<(Op, Seen)>,
}

/// One way the world may take at one step.
#[derive(Clone, Copy, Debug)]
struct Choice {
    seed: u64,
    faults: Faults,
}

impl Seen {
    pub(crate) fn has(&self, what: &Self) -> bool {
        match self {
            Self::Both(both) => both.0 == *what || both.1 == *what,
            one => one == what,
        }
    }
}

/// All ways the world may take that could show this, the calm ones first.
fn choices(op: Op, seen: &Seen, allowed: Allowed) -> Vec<Choice> {
    let none = Faults::none();
    let is_pair = matches!(op, Op::AppendPair { .. } | Op::SetPair { .. });
    let is_append = matches!(op, Op::Append { .. } | Op::AppendPair { .. });
    let can_refuse = allowed.spurious && is_append && seen.has(&Seen::Refused);
    let mut faults = Vec::new();
    if !allowed.unknown || !seen.has(&Seen::Unknown) {
        faults.push(none);
    } else if is_pair {
        // Each of the two may fare otherwise.
        faults.push(Faults { lost_request: 0.3, lost_answer: 0.5, ..none });
        faults.push(Faults { ghost: 0.5, lost_answer: 0.3, ..none });
    } else {
        faults.push(Faults { lost_answer: 1.0, ..none });
        faults.push(Faults { lost_request: 1.0, ..none });
        faults.push(Faults { ghost: 1.0, ..none });
    }
    if can_refuse {
        let spurious_refusal = if is_pair { 0.5 } else { 1.0 };
        let refusing: Vec<_> =
            faults.iter().map(|faults| Faults { spurious_refusal, ..*faults }).collect();
        faults.extend(refusing);
    }
    let seeds = match (is_pair, faults.contains(&none) && !can_refuse) {
        (false, _) => 1,
        (true, true) => SEEDS_PAIR,
        (true, false) => SEEDS_LOSSY_PAIR,
    };
    let choices_with = |faults| (0..seeds).map(move |seed| Choice { seed, faults });
    faults.into_iter().flat_map(choices_with).collect()
}

/// Whether what became of the one can be seen in the other.
fn related(earlier: Op, later: Op) -> bool {
    let journal = |op| match op {
        Op::Append { journal, .. }
        | Op::AppendPair { journal, .. }
        | Op::Read { journal, .. }
        | Op::Tail { journal } => Some(journal),
        _ => None,
    };
    let keys = |op| match op {
        Op::Set { key, .. }
        | Op::SetPair { key, .. }
        | Op::Remove { key, .. }
        | Op::Get { key } => key..key + 1,
        Op::List => 0..EACH,
        _ => 0..0,
    };
    let is_same_journal = journal(earlier).is_some() && journal(earlier) == journal(later);
    is_same_journal || keys(earlier).any(|key| keys(later).contains(&key))
}

/// Runs the sequence in a new world that takes these choices, until it shows something else; says
/// how far that was, and what was shown there (`None` if that was tried before).
///
/// Steps from `changed` on lead somewhere new: a world whose state at one of them equals an earlier
/// one is not followed further, because what comes next depends on nothing else.
async fn replay(
    trace: &Trace,
    choices: &[Choice],
    bugs: Bugs,
    changed: usize,
    tried: &mut BTreeSet<(usize, String)>,
) -> Result<Option<(usize, Option<Seen>)>> {
    let (stores, storage) = world(bugs);
    let consumer = storage.inbox.consume(PARTITION, 0).await?;
    let mut operator = Operator::new(storage, consumer, trace.seed)?;
    let mut ghosts = Vec::new();
    for (step, ((op, seen), choice)) in trace.steps.iter().zip(choices).enumerate() {
        stores.disturb(choice.seed, choice.faults);
        let shown = operator.perform(*op).await?;
        if shown != *seen {
            return Ok(Some((step, Some(shown))));
        }
        if choice.faults.ghost > 0.0 {
            ghosts.push(step);
        }
        if seen.has(&Seen::Unknown) {
            stores.disturb(choice.seed, Faults::none());
            let stands = format!("{ghosts:?} {}", operator.truth().await?);
            if step >= changed && !tried.insert((step, stands)) {
                return Ok(Some((step, None)));
            }
        }
    }
    Ok(None)
}

/// How many steps needed a fault, or why no world shows what was seen.
pub(crate) async fn explain(
    trace: &Trace,
    allowed: Allowed,
    bugs: Bugs,
) -> Result<std::result::Result<usize, String>> {
    let all: Vec<Vec<Choice>> =
        trace.steps.iter().map(|(op, seen)| choices(*op, seen, allowed)).collect();
    let mut picks = vec![0; all.len()];
    let (mut furthest, mut shown_there, mut changed) = (0, Vec::new(), 0);
    let mut tried = BTreeSet::new();
    for _ in 0..TRIES {
        let taken: Vec<Choice> = all.iter().zip(&picks).map(|(all, pick)| all[*pick]).collect();
        let Some((mut step, shown)) = replay(trace, &taken, bugs, changed, &mut tried).await?
        else {
            return Ok(Ok(taken.iter().filter(|one| one.faults != Faults::none()).count()));
        };
        if step > furthest {
            (furthest, shown_there) = (step, Vec::new());
        }
        if let Some(shown) = shown
            && step == furthest
            && !shown_there.contains(&shown)
        {
            shown_there.push(shown);
        }
        // The next choice here; else another at an earlier step that is not known and matters here.
        let here = trace.steps[step].0;
        while picks[step] + 1 == all[step].len() {
            picks[step] = 0;
            let is_open = |earlier: &usize| {
                let (op, seen) = &trace.steps[*earlier];
                seen.has(&Seen::Unknown) && related(*op, here)
            };
            match (0..step).rev().find(is_open) {
                Some(earlier) => step = earlier,
                None => return Ok(Err(complaint(trace, furthest, &shown_there))),
            }
        }
        picks[step] += 1;
        changed = step;
        for (later, (op, _)) in trace.steps.iter().enumerate().skip(step + 1) {
            if related(*op, here) {
                picks[later] = 0;
            }
        }
    }
    Ok(Err(complaint(trace, furthest, &shown_there)))
}

fn complaint(trace: &Trace, step: usize, shown: &[Seen]) -> String {
    let (op, seen) = &trace.steps[step];
    let before: Vec<String> =
        trace.steps[..step].iter().map(|(op, seen)| format!("  {op:?}: {seen:?}")).collect();
    format!(
        "sequence {}, step {step}: {op:?} was seen to give {seen:?}, but a world gives {shown:?}, \
         after\n{}",
        trace.seed,
        before.join("\n")
    )
}
