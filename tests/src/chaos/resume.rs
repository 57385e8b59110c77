//! How long clients waited: from a fault to the next token.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    evidence::{Evidence, Fault, Hits},
    transcript::{Seen, Sight, Transcript},
};

/// The longest that the first token takes if no process is lost; a turn that waits longer was hit.
const TAKES_AT_MOST: Duration = Duration::from_secs(2);

/// For each turn that a fault hit, the time from the fault until the reply went on: the end of the
/// longest silence after it. Sorted. A turn whose silence lasts beyond the next fault belongs to
/// that one.
pub fn resumes(evidence: &Evidence) -> Vec<Duration> {
    let mut found = Vec::new();
    for (at, fault) in evidence.faults.iter().enumerate() {
        let next = evidence.faults.get(at + 1).map(|next| next.at);
        let all = evidence.transcripts.iter().chain(&evidence.followed);
        for one in all.filter(|one| one.is_under_way(fault.at)) {
            if is_hit(evidence, fault, one)
                && let Some(end) = silence_end(one, fault.at)
                && next.is_none_or(|next| end < next)
            {
                found.push(end - fault.at);
            }
        }
    }
    found.sort_unstable();
    found
}

/// The value below which this part of the sorted samples lies.
pub fn percentile(sorted: &[Duration], part: f64) -> Option<Duration> {
    let last = sorted.len().checked_sub(1)?;
    // The nearest rank; there are never more samples than an `f64` counts exactly.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a part of a count is a count"
    )]
    let at = ((sorted.len() as f64 * part).ceil() as usize).saturating_sub(1);
    sorted.get(at.min(last)).copied()
}

fn is_hit(evidence: &Evidence, fault: &Fault, one: &Transcript) -> bool {
    // What had been sent and had begun nowhere is known by its wait only.
    let waited = || {
        !one.seen.iter().any(|seen| is_token(seen) && seen.at <= fault.at)
            && silence_end(one, fault.at).is_some_and(|end| end - fault.at > TAKES_AT_MOST)
    };
    match &fault.hits {
        Hits::Owners(owners) => {
            let stored = evidence.sessions.get(&one.session());
            let turn = one.turns.first();
            let owned =
                stored.zip(turn).is_some_and(|(stored, turn)| stored.was_with(*turn, owners));
            owned || waited()
        }
        Hits::Clients => {
            let before = one.seen.iter().rev().find(|seen| seen.at <= fault.at);
            let last = one.seen.last();
            let moved =
                before.zip(last).is_some_and(|(before, last)| before.connection != last.connection);
            moved || waited()
        }
        Hits::Everyone => true,
        Hits::Nothing => false,
    }
}

fn is_token(seen: &Seen) -> bool {
    matches!(seen.sight, Sight::Text(_) | Sight::Reset(_) | Sight::Done(_))
}

/// When the longest silence after `from` ended.
fn silence_end(one: &Transcript, from: Instant) -> Option<Instant> {
    let tokens = one.seen.iter().filter(|seen| is_token(seen) && seen.at > from);
    let mut before = from;
    let mut longest = (Duration::ZERO, None);
    for token in tokens {
        if token.at - before > longest.0 {
            longest = (token.at - before, Some(token.at));
        }
        before = token.at;
    }
    longest.1
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{TurnId, llm::StopReason, session::TurnOutcome};

    use super::*;

    #[test]
    fn a_silence_is_measured_from_its_fault_to_its_end() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut one = Transcript::new("p", "m", start);
        let mut see = |ms, connection, sight| {
            one.see(Seen { at: at(ms), connection, cursor: None, sight });
        };
        see(10, 1, Sight::Accepted(TurnId::from_u128(1)));
        see(50, 1, Sight::Text("a".to_owned()));
        see(120, 1, Sight::Text("b".to_owned()));
        see(2_500, 2, Sight::Text("c".to_owned()));
        let done = TurnOutcome::Completed { stop: StopReason::EndTurn };
        see(2_600, 2, Sight::Done(done));
        let wall = clawnode_proto::Timestamp(0);
        let fault = |ms, hits| Fault { at: at(ms), wall, what: String::new(), hits };
        let mut evidence = Evidence { transcripts: vec![one], ..Evidence::default() };
        // The token at 120 was on its way; what counts is the silence after it.
        evidence.faults = vec![fault(100, Hits::Everyone)];
        assert_eq!(resumes(&evidence), [Duration::from_millis(2_400)]);
        evidence.faults = vec![fault(100, Hits::Clients)];
        assert_eq!(resumes(&evidence), [Duration::from_millis(2_400)]);
        // It was over by then, or the fault hit nothing, or only owners that it never had.
        for (ms, hits) in
            [(2_700, Hits::Everyone), (100, Hits::Nothing), (100, Hits::Owners(Vec::new()))]
        {
            evidence.faults = vec![fault(ms, hits)];
            assert!(resumes(&evidence).is_empty());
        }
        // Before its first token it was in no journal; its wait shows which process it was with.
        evidence.faults = vec![fault(20, Hits::Owners(Vec::new()))];
        assert_eq!(resumes(&evidence), [Duration::from_millis(2_480)]);
        // The second fault falls into the silence of the first, and is the one that it waits for.
        evidence.faults = vec![fault(100, Hits::Everyone), fault(1_000, Hits::Everyone)];
        assert_eq!(resumes(&evidence), [Duration::from_millis(1_500)]);
    }

    #[test]
    fn percentiles_are_nearest_ranks() {
        let all: Vec<Duration> = (1..=200).map(Duration::from_millis).collect();
        assert_eq!(percentile(&all, 0.5), Some(Duration::from_millis(100)));
        assert_eq!(percentile(&all, 0.99), Some(Duration::from_millis(198)));
        assert_eq!(percentile(&all[..1], 0.99), Some(Duration::from_millis(1)));
        assert_eq!(percentile(&[], 0.5), None);
    }
}
