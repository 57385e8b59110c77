//! The trace: what happened last, for whoever reads a failure.

use std::collections::VecDeque;

use clawnode_proto::{Position, ProcessId, event::decode_record};
use clawnode_sim::StoreChange;

use super::{CLIENTS, FATE};

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

    /// Its end, of what `detail` is about: among very many sessions the last lines are others'.
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

pub(super) fn short(process: ProcessId) -> String {
    match process {
        CLIENTS => "client".to_owned(),
        FATE => "fate".to_owned(),
        other => other.to_string().chars().rev().take(4).collect(),
    }
}

/// A change in few words.
pub(super) fn told(change: &StoreChange) -> String {
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
