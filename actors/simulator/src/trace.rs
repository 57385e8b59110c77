//! The trace: the last steps, for people who read a failure.

use std::collections::VecDeque;

use clawnode_kernel::partition;
use clawnode_proto::{Position, ProcessId, event::decode_record};
use clawnode_sim::{Happening, StoreChange};

use super::{CLIENTS, FATE, Sim, process::PlannedNote};

/// Lines that are kept.
const KEPT: usize = 200_000;
/// Lines that a failure shows.
const TAIL: usize = 120;

/// What happened last, a line each.
#[derive(Debug, Default)]
pub(super) struct RunTrace(VecDeque<String>);

impl RunTrace {
    pub(super) fn keep(&mut self, line: String) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(line);
    }

    /// The last lines about the entities that `detail` names: with very many sessions, the last lines of all are
    /// about others.
    pub(super) fn tail(self, detail: &str) -> Vec<String> {
        let named: Vec<&str> = detail.split('`').skip(1).step_by(2).collect();
        let about = |line: &&String| named.iter().any(|name| line.contains(name));
        let mentioned = if self.0.len() == KEPT { self.0.iter().filter(about).count() } else { 0 };
        if mentioned == 0 {
            let from = self.0.len().saturating_sub(TAIL);
            return self.0.into_iter().skip(from).collect();
        }
        let skip = mentioned.saturating_sub(TAIL);
        self.0.iter().filter(about).skip(skip).cloned().collect()
    }
}

// === impl Sim ===

impl Sim {
    pub(super) fn note(&mut self, to: ProcessId, happening: &Happening<PlannedNote>) {
        let kind = match happening {
            Happening::Answer(ticket, _) => ticket.0 << 2,
            Happening::Delivery(delivered) => delivered.token.0.0 << 2 | 1,
            Happening::Own(_) => 2,
            Happening::Job(delivered) => delivered.token.0.0 << 2 | 3,
        };
        let [.., a, b, c, d] = to.as_u128().to_be_bytes();
        let who = u64::from(u32::from_be_bytes([a, b, c, d]));
        for word in [self.world.now().0, who, kind] {
            self.hash = (self.hash ^ word).wrapping_mul(0x0100_0000_01b3);
        }
        let tick = matches!(
            happening,
            Happening::Own(
                PlannedNote::Tick
                    | PlannedNote::Watch
                    | PlannedNote::Dispatch(_, partition::PartitionInput::Tick)
            )
        );
        if let Some(trace) = &mut self.trace
            && !tick
        {
            let at = self.world.now().0.saturating_sub(self.started);
            let mut what = format!("{happening:?}");
            if what.len() > 360 {
                what = what.chars().take(360).collect();
            }
            trace.keep(format!("{at:>7} {} {what}", short(to)));
        }
    }

    pub(super) fn mix(&mut self, change: &StoreChange) {
        if let StoreChange::Appended {
            record: clawnode_cluster::Record { position, bytes }, ..
        } = change
        {
            let digest = clawnode_proto::Digest::of(bytes);
            let word = digest
                .as_bytes()
                .iter()
                .fold(position.0, |sum, byte| sum.rotate_left(7) ^ u64::from(*byte));
            self.hash = (self.hash ^ word).wrapping_mul(0x0100_0000_01b3);
        }
        if let Some(trace) = &mut self.trace {
            let at = self.world.now().0.saturating_sub(self.started);
            trace.keep(format!("{at:>7} store   {}", told(change)));
        }
    }

    /// What a trace says of something that is planned; nothing if no trace is kept.
    pub(super) fn about(&self, what: impl FnOnce() -> String) -> String {
        if self.trace.is_some() { what() } else { String::new() }
    }

    pub(super) fn remark(&mut self, process: ProcessId, what: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            let at = self.world.now().0.saturating_sub(self.started);
            trace.keep(format!("{at:>7} {} {}", short(process), what()));
        }
    }
}

fn short(process: ProcessId) -> String {
    match process {
        CLIENTS => "client".to_owned(),
        FATE => "fate".to_owned(),
        other => other.to_string().chars().rev().take(4).collect(),
    }
}

/// A change in few words.
fn told(change: &StoreChange) -> String {
    match change {
        StoreChange::Appended { entity, record, rollup } => {
            let events = decode_record(&record.bytes).unwrap_or_default();
            let names: Vec<&str> = events.iter().map(|event| event.head.kind.as_str()).collect();
            let by = events.first().map(|event| event.head.incarnation);
            let Position(at) = record.position;
            format!("{entity} @{at} by {by:?}{}: {names:?}", if *rollup { " rollup" } else { "" })
        }
        StoreChange::Put(entity, input) => format!("{entity} inbox + {input}"),
        StoreChange::Removed(entity, input) => format!("{entity} inbox - {input}"),
        StoreChange::JobPut(job) => format!("jobs + {job}"),
        StoreChange::JobRemoved(job) => format!("jobs - {job}"),
    }
}
