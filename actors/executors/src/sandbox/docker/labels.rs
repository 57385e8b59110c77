//! Whose a container is: what its labels and its name say.

use std::collections::HashMap;

use clawnode_proto::{Digest, ProcessId};

const CLUSTER: &str = "clawnode.cluster";
const PROCESS: &str = "clawnode.process";
const CONTAINER: &str = "clawnode.container";
const POLICY: &str = "clawnode.policy";
const JOB: &str = "clawnode.job";
/// What the name of a container of ours begins with.
const NAME: &str = "clawnode-";

/// On whose account containers are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerOwner {
    /// Which cluster, so that clusters can share an engine.
    cluster: String,
    process: ProcessId,
}

/// What is known of a container of this cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FoundContainer {
    /// As the engine calls it.
    pub(super) id: String,
    /// The process that made it; absent if that cannot be read.
    pub(super) process: Option<ProcessId>,
    /// As the process that made it calls it.
    pub(super) key: String,
    /// For which job it is, or was.
    pub(super) job: Option<String>,
}

// === impl ContainerOwner ===

impl ContainerOwner {
    /// A process of the cluster that the text `cluster` identifies.
    pub fn new(cluster: &str, process: ProcessId) -> Self {
        let mut digest = Digest::of(cluster.as_bytes()).to_string();
        digest.truncate(digest.floor_char_boundary(16));
        Self { cluster: digest, process }
    }

    pub const fn process(&self) -> ProcessId {
        self.process
    }

    /// The labels of a container.
    pub(super) fn labels(
        &self,
        key: &str,
        policy: &str,
        job: Option<&str>,
    ) -> HashMap<String, String> {
        let mut labels: HashMap<String, String> = [
            (CLUSTER, self.cluster.clone()),
            (PROCESS, self.process.to_string()),
            (CONTAINER, key.to_owned()),
            (POLICY, policy.to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        labels.extend(job.map(|job| (JOB.to_owned(), job.to_owned())));
        labels
    }

    /// What to ask an engine for to see all containers of the cluster.
    pub(super) fn filters(&self) -> HashMap<String, Vec<String>> {
        [("label".to_owned(), vec![format!("{CLUSTER}={}", self.cluster)])].into()
    }

    /// What is known of a container of this cluster; nothing of others'.
    pub(super) fn found(
        &self,
        id: String,
        names: &[String],
        labels: &HashMap<String, String>,
    ) -> Option<FoundContainer> {
        // The engine was asked for these alone; whose it is decides over removal, so it is looked at.
        if labels.get(CLUSTER) != Some(&self.cluster) {
            return None;
        }
        let process = labels.get(PROCESS).and_then(|text| text.parse().ok());
        let key = labels.get(CONTAINER).cloned().unwrap_or_default();
        let of_name = || {
            let name =
                names.iter().find_map(|name| name.trim_start_matches('/').strip_prefix(NAME));
            name.filter(|name| *name != key).map(str::to_owned)
        };
        let job = labels.get(JOB).cloned().or_else(of_name);
        Some(FoundContainer { id, process, key, job })
    }
}

/// The name of the container of a job, or of one that waits ready.
pub(super) fn name(text: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
    format!("{NAME}{}", text.chars().take(100).map(safe).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_containers_of_the_cluster_are_known() {
        let owner = ContainerOwner::new("one", ProcessId::from_u128(1));
        let labels = owner.labels("k1", "p", None);
        let names = [format!("/{}", name("k1"))];
        let found = owner.found("id".to_owned(), &names, &labels).unwrap();
        assert_eq!(found.process, Some(ProcessId::from_u128(1)));
        assert_eq!((found.key.as_str(), found.job), ("k1", None));
        let renamed = [format!("/{}", name("job_7"))];
        let found = owner.found("id".to_owned(), &renamed, &labels).unwrap();
        assert_eq!(found.job.as_deref(), Some("job_7"));
        for other in [
            ContainerOwner::new("two", ProcessId::from_u128(1)).labels("k1", "p", None),
            HashMap::new(),
        ] {
            assert_eq!(owner.found("id".to_owned(), &names, &other), None);
        }
    }

    #[test]
    fn a_name_is_what_an_engine_takes() {
        assert_eq!(name("job_01"), "clawnode-job_01");
        assert_eq!(name("../a b/é?x"), "clawnode-___a_b___x");
        assert!(name(&"a".repeat(900)).len() < 128);
    }
}
