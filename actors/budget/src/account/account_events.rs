//! What operators hear of an account on the feed of the cluster.

use std::time::Duration;

use clawnode_proto::{
    Head,
    budget::{AccountKey, BudgetEvent},
    feed::EventBody,
};

use super::state::{BudgetNews, BudgetState};

/// What is older is not said again by the next owner.
const NEWS_AGE: Duration = Duration::from_mins(1);
/// Events that are kept. Each limit has at most three in a window.
const NEWS_MOST: usize = 8;

impl BudgetState {
    /// Keeps what operators should hear of this event.
    pub(super) fn note_news(&mut self, head: &Head, event: &BudgetEvent) {
        self.news.retain(|item| head.ts.since(item.at) <= NEWS_AGE);
        let Ok(account) = self.key.parse::<AccountKey>() else { return };
        let what = match event {
            BudgetEvent::Warned(warned) => {
                let (limit_key, spent, limit) = (warned.limit, warned.spent, warned.amount);
                EventBody::BudgetWarned { account, of: limit_key, spent, limit }
            }
            BudgetEvent::Asked(asked) => {
                let (limit_key, spent, limit) = (asked.limit, asked.spent, asked.amount);
                EventBody::BudgetAsked { account, of: limit_key, spent, limit }
            }
            BudgetEvent::Over(over) => {
                EventBody::BudgetOver { account, of: over.limit, excess: over.excess }
            }
            BudgetEvent::Set(_)
            | BudgetEvent::Allowed(_)
            | BudgetEvent::Granted(_)
            | BudgetEvent::Window(_) => return,
        };
        self.news.push(BudgetNews { n: head.n.0, at: head.ts, what });
        let older = self.news.len().saturating_sub(NEWS_MOST);
        self.news.drain(..older);
    }

    /// The events that operators should know.
    pub(super) fn news(&self) -> impl Iterator<Item = u64> {
        self.news.iter().map(|item| item.n)
    }

    /// What they hear of this event.
    pub(super) fn news_of(&self, n: u64) -> Option<EventBody> {
        self.news.iter().find(|item| item.n == n).map(|item| item.what.clone())
    }
}

#[cfg(test)]
mod tests {
    use clawnode_kernel::EntityKind as _;
    use clawnode_proto::{
        Epoch, EventId, Incarnation, ProcessId, Seq, Timestamp,
        budget::{
            BudgetAsked, BudgetOver, BudgetUnit, BudgetWarned, LimitKey, WindowLength, WindowNumber,
        },
    };

    use super::{
        super::{Budget, BudgetEffect, BudgetJob},
        *,
    };

    fn head(n: u64, ts: u64) -> Head {
        Head {
            entity: AccountKey::Cluster.entity(),
            n: Seq(n),
            v: clawnode_proto::event::VERSION,
            eid: EventId::from_u128(n.into()),
            epoch: Epoch(1),
            incarnation: Incarnation { process: ProcessId::from_u128(1), counter: 1 },
            ts: Timestamp(ts),
            kind: String::new(),
            required: true,
            progress: true,
        }
    }

    #[test]
    fn operators_hear_once_of_what_needs_them() {
        let mut state = BudgetState::default();
        Budget::born(&mut state, "cluster").unwrap();
        let limit = LimitKey { unit: BudgetUnit::Usd, window: WindowLength::Day };
        let (window, spent, amount) = (WindowNumber(0), 75, 100);
        let events: [BudgetEvent; 3] = [
            BudgetWarned { limit, window, spent, amount }.into(),
            BudgetAsked { limit, window, spent, amount }.into(),
            BudgetOver { limit, window, excess: 5 }.into(),
        ];
        for (n, event) in (1..).zip(&events) {
            state.note_news(&head(n, n), event);
        }
        let effects = Budget::decide(&state);
        assert_eq!(effects, [1, 2, 3].map(BudgetEffect::News));
        let job = Budget::prepare(&state, &effects[1], false);
        let account = AccountKey::Cluster;
        let asked = EventBody::BudgetAsked { account, of: limit, spent: 75, limit: 100 };
        assert_eq!(job, Some(BudgetJob::News(asked)));
        // An owner that comes much later does not say it again.
        state.note_news(&head(4, 1_000_000), &events[0]);
        assert_eq!(Budget::decide(&state), [BudgetEffect::News(4)]);
    }
}
