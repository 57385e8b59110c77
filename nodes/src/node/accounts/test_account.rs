//! An account for tests: its state after inputs, as its owner folds them.

use clawnode_budget::{Budget, BudgetState};
use clawnode_kernel::EntityKind as _;
use clawnode_proto::{
    Epoch, EventId, Head, Incarnation, Input, ProcessId, Seq, Timestamp,
    budget::{
        AccountKey, BudgetInput, BudgetLimit, BudgetUnit, LimitKey, LimitSource, SliceAsk,
        SliceReport, WindowLength, WindowNumber,
    },
};

pub(super) const PROCESS: ProcessId = ProcessId::from_u128(1);
pub(super) const OTHER: ProcessId = ProcessId::from_u128(2);
pub(super) const NOW: Timestamp = Timestamp(1_000);
pub(super) const HOUR: u64 = 3_600_000;
pub(super) const USD: LimitKey = LimitKey { unit: BudgetUnit::Usd, window: WindowLength::Hour };

pub(super) fn key(text: &str) -> AccountKey {
    text.parse().unwrap()
}

/// A limit of dollars an hour.
pub(super) fn usd(amount: u64) -> BudgetLimit {
    BudgetLimit::new(USD.unit, USD.window, amount)
}

/// A first report about a slice of the first window, in which nothing has happened.
pub(super) fn report(number: u64) -> SliceReport {
    let (window, seq) = (WindowNumber(0), 1);
    let (spent, held, returned, over, closed) = (0, 0, 0, 0, false);
    SliceReport { number, window, seq, spent, held, returned, over, closed }
}

#[derive(Debug)]
pub(super) struct TestAccount {
    pub(super) state: BudgetState,
    n: u64,
}

impl TestAccount {
    /// The account of the cluster, with limits that `ada` set.
    pub(super) fn with(limits: &[BudgetLimit]) -> Self {
        let mut account = Self { state: BudgetState::default(), n: 0 };
        Budget::born(&mut account.state, "cluster").unwrap();
        account.set(Some(limits));
        account
    }

    pub(super) fn set(&mut self, limits: Option<&[BudgetLimit]>) {
        let source = LimitSource::Person { name: "ada".to_owned() };
        self.send(&BudgetInput::Set { source, limits: limits.map(<[_]>::to_vec), decides: None });
    }

    /// The person sets these limits, and leaves all but those with these keys to the configuration.
    pub(super) fn set_beside(&mut self, limits: &[BudgetLimit], keys: &[LimitKey]) {
        let source = LimitSource::Person { name: "ada".to_owned() };
        let (limits, decides) = (Some(limits.to_vec()), Some(keys.to_vec()));
        self.send(&BudgetInput::Set { source, limits, decides });
    }

    pub(super) fn reset(&mut self) {
        self.set(None);
    }

    pub(super) fn configured(&mut self, limits: &[BudgetLimit]) {
        let source = LimitSource::Configured;
        self.send(&BudgetInput::Set { source, limits: Some(limits.to_vec()), decides: None });
    }

    /// A process asks for one call of this size.
    pub(super) fn ask(&mut self, process: ProcessId, number: u64, call: u64) {
        let wants = SliceAsk { number, limit: USD, call, least: call, waits: call };
        self.send(&BudgetInput::Ask {
            process,
            asks: vec![wants],
            reports: Vec::new(),
            dead: Vec::new(),
        });
    }

    pub(super) fn report(&mut self, process: ProcessId, report: SliceReport) {
        self.send(&BudgetInput::Report { process, reports: vec![report] });
    }

    pub(super) fn allow(&mut self, window: WindowNumber) {
        self.send(&BudgetInput::Allow { by: "bob".to_owned(), limit: USD, window });
    }

    /// The first window ends.
    pub(super) fn fire(&mut self) {
        self.ask(OTHER, 99, 1);
        self.send(&BudgetInput::TimerFired { due: Timestamp(HOUR) });
    }

    pub(super) fn send(&mut self, body: &BudgetInput) {
        let name = format!("test:{}", self.n).parse().unwrap();
        let input: Input = Budget::input(&key("cluster"), name, NOW, body).unwrap();
        let head = self.head();
        Budget::accept(&mut self.state, &head, &input).unwrap();
        loop {
            let events = Budget::advance(&self.state);
            if events.is_empty() {
                return;
            }
            for event in events {
                let head = self.head();
                Budget::fold(&mut self.state, &head, &event).unwrap();
            }
        }
    }

    fn head(&mut self) -> Head {
        self.n += 1;
        Head {
            entity: key("cluster").entity(),
            n: Seq(self.n),
            v: clawnode_proto::event::VERSION,
            eid: EventId::from_u128(self.n.into()),
            epoch: Epoch(1),
            incarnation: Incarnation { process: OTHER, counter: 1 },
            ts: NOW,
            kind: String::new(),
            required: true,
            progress: true,
        }
    }
}
