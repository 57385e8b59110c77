//! The journals that a run leaves, for tests that keep some of them.

use std::collections::BTreeMap;

use bytes::Bytes;
use clawnode_proto::{Digest, EntityId};

use super::{JudgeViolation, Sim, SimOptions};

/// What the entities of a run have written.
#[derive(Debug)]
pub struct RunJournals {
    /// The records of each journal, oldest first.
    pub journals: BTreeMap<EntityId, Vec<Bytes>>,
    /// What is kept beside them: archives, states and long texts.
    pub blobs: BTreeMap<Digest, Bytes>,
}

/// Runs one seed. States keep as many turns as those of a node, whatever the options say.
pub fn journals_of(options: &SimOptions) -> Result<RunJournals, JudgeViolation> {
    let mut sim = Sim::new(&SimOptions { few_turns: false, ..*options });
    sim.run()?;
    let mut journals = BTreeMap::new();
    for id in sim.last_writer.keys() {
        let records = sim.world.journal(*id).into_iter().map(|record| record.bytes);
        journals.insert(*id, records.collect());
    }
    Ok(RunJournals { journals, blobs: sim.world.blobs().clone() })
}
