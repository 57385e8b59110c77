//! How much is kept of an account in memory: its state, and the inputs that the kernel remembers of it.

use std::collections::VecDeque;

use clawnode_cluster::{AppendAnswer, Record};
use clawnode_kernel::{
    Activation, Entity, LoadedJournal, Machine, MachineInput, MachineOptions, MachineOutput, Now,
};
use clawnode_proto::{
    Incarnation, Position, ProcessId, Timestamp,
    budget::{AccountKey, BudgetInput, LimitSource},
};

use super::{
    Budget,
    tests::{USD, ask, limit, report},
};

/// An account as its owner has it, and its journal.
struct Resident {
    machine: Machine<Budget>,
    records: Vec<Record>,
    now: u64,
    inputs: u64,
}

fn at(millis: u64) -> Now {
    Now { wall: Timestamp(millis), steady: Timestamp(millis) }
}

impl Resident {
    fn new() -> Self {
        let me = Incarnation { process: ProcessId::from_u128(99), counter: 1 };
        let options = MachineOptions { snapshot_every: 100_000, ..MachineOptions::default() };
        let entity = AccountKey::Cluster.entity();
        let (machine, _) = Machine::new(entity, me, Activation::Fresh, options, at(1));
        let mut resident = Self { machine, records: Vec::new(), now: 1_000, inputs: 0 };
        resident.takes(MachineInput::Loaded(LoadedJournal::default()));
        let (source, limits) = (LimitSource::Configured, Some(vec![limit(USD, 1_000_000_000)]));
        resident.hears(&BudgetInput::Set { source, limits, decides: None });
        resident
    }

    fn hears(&mut self, body: &BudgetInput) {
        self.inputs += 1;
        let name = format!("n{}", self.inputs).parse().unwrap();
        let input = Budget::input(&AccountKey::Cluster, name, Timestamp(self.now), body).unwrap();
        self.takes(MachineInput::Deliver(vec![input]));
    }

    fn asks(&mut self, by: u128) {
        let process = ProcessId::from_u128(by);
        let asks = vec![ask(1, 50_000, 5)];
        self.hears(&BudgetInput::Ask { process, asks, reports: Vec::new(), dead: Vec::new() });
    }

    fn reports(&mut self, by: u128, seq: u64) {
        let process = ProcessId::from_u128(by);
        let reports = vec![report(1, seq, seq, false)];
        self.hears(&BudgetInput::Report { process, reports });
    }

    fn takes(&mut self, input: MachineInput<Budget>) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            for out in self.machine.handle(at(self.now), input) {
                match out {
                    MachineOutput::Append { write, .. } => {
                        let position = Position(self.records.len() as u64 + 1);
                        self.records.push(Record { position, bytes: write.bytes });
                        let stored = AppendAnswer::Stored(position);
                        inputs.push_back(MachineInput::Answered(stored));
                    }
                    MachineOutput::Start(effect, _) => {
                        inputs.push_back(MachineInput::Confirmed(effect));
                    }
                    MachineOutput::Archive { .. } => inputs.push_back(MachineInput::ArchiveFailed),
                    MachineOutput::Stop(end) => panic!("{end:?}"),
                    _ => {}
                }
            }
        }
    }

    /// All that its owner keeps of it, encoded.
    fn bytes(&self) -> usize {
        let loaded = LoadedJournal { records: self.records.clone(), snapshot: None };
        let entity = Entity::<Budget>::of(AccountKey::Cluster.entity(), &loaded).unwrap();
        entity.snapshot().unwrap().len()
    }
}

/// Three processes that report each second: 900 ids of inputs, of 42 bytes each, take most of it.
#[test]
fn what_is_kept_of_a_busy_account_has_an_end() {
    let mut account = Resident::new();
    (1..=3).for_each(|by| account.asks(by));
    let mut sizes = Vec::new();
    for second in 1..=720 {
        account.now += 1_000;
        (1..=3).for_each(|by| account.reports(by, second));
        if second % 360 == 0 {
            sizes.push(account.bytes());
        }
    }
    let (early, late) = (sizes[0], sizes[1]);
    println!("{late} bytes are kept of a busy account");
    assert!(late <= early + 256, "{early} bytes after 6 minutes, {late} after 12");
    assert!(late <= 48 << 10, "{late} bytes");
}

#[test]
fn an_account_with_a_report_in_ten_seconds_is_small() {
    let mut account = Resident::new();
    account.asks(1);
    for report in 1..=72 {
        account.now += 10_000;
        account.reports(1, report);
    }
    let bytes = account.bytes();
    assert!(bytes <= 8 << 10, "{bytes} bytes");
}
