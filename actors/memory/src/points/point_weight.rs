//! How much a point matters now.

use std::time::Duration;

use clawnode_proto::{Timestamp, memory::MemoryTrust, memory_point::MemoryPoint};

/// In this time the weight of a point that an agent or a tool said halves.
const HALF_LIFE: Duration = Duration::from_hours(30 * 24);
/// Thousandths of an importance.
const UNIT: u64 = 1_000;

/// How much a point matters, in thousandths of an importance: its importance and confidence, halved every 30 days.
/// What a person or an operator said does not fade. Whole numbers only, so each process gets the same.
pub fn weight(point: &MemoryPoint, now: Timestamp) -> u32 {
    let content = &point.content;
    let fresh = u64::from(content.importance) * UNIT * u64::from(content.confidence) / 100;
    let faded =
        if is_kept(content.trust) { fresh } else { fade(fresh, now.since(point.source.at)) };
    u32::try_from(faded).unwrap_or(u32::MAX)
}

/// Whether consolidation never removes what they said.
pub(super) fn is_kept(trust: MemoryTrust) -> bool {
    trust >= MemoryTrust::Person
}

/// Exact after whole half-lives, and on a straight line between them.
fn fade(fresh: u64, age: Duration) -> u64 {
    let half = HALF_LIFE.as_millis();
    let halvings = u32::try_from(age.as_millis() / half).unwrap_or(u32::MAX);
    let whole = u128::from(fresh.checked_shr(halvings).unwrap_or_default());
    let faded = whole - whole * (age.as_millis() % half) / (2 * half);
    u64::try_from(faded).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{
        super::tests::{at, point},
        *,
    };

    const DAY: u64 = 86_400_000;

    #[test]
    fn what_an_agent_concluded_halves_in_thirty_days() {
        let mut learned = point("a", MemoryTrust::Agent);
        learned.source.at = at(5 * DAY);
        let after = |days: u64| weight(&learned, at((5 + days) * DAY));
        assert_eq!([after(0), after(30), after(60), after(90)], [5_000, 2_500, 1_250, 625]);
        assert_eq!(after(15), 3_750, "between them it is a straight line");
        assert_eq!((after(30 * 13), after(30 * 70)), (0, 0));
        assert_eq!(weight(&learned, at(0)), 5_000, "a clock that went back makes nothing heavier");
        learned.content.confidence = 50;
        assert_eq!(weight(&learned, at(5 * DAY)), 2_500);
    }

    #[test]
    fn what_people_said_does_not_fade() {
        for trust in [MemoryTrust::Person, MemoryTrust::Operator] {
            assert_eq!(weight(&point("a", trust), at(3_650 * DAY)), 5_000, "{trust:?}");
        }
        assert!(weight(&point("a", MemoryTrust::Tool), at(3_650 * DAY)) < 5);
    }
}
