//! What each role may publish and subscribe to: the one table, made from the names in
//! [`Prefix`] and `topology`.
//!
//! GRANT-1: a role may do what its code needs and no more. GRANT-2: `docs/stolen-credentials.md`
//! lists all that a thief can do with a credential. NATS grants subjects, not messages: a user with
//! `STREAM.MSG.GET` on a stream may read all of it, and a user that may send any request to a
//! server may have the answer written anywhere. A process's own request subject carries an id that
//! it makes at its start, so a node may listen on those of others too. A false answer there costs
//! time, or gives a client false embeddings; sessions do not depend on it.

use std::fmt;

use clawnode_cluster::INBOX;
use clawnode_proto::{
    node::NodeRole,
    subject::{
        AGENT_KEYS, APPROVAL_KEYS, ARCHIVE_KEYS, BUDGET_KEYS, FILE_KEYS, JOB_KEYS, LETTER_KEYS,
        MCP_KEYS, MEMORY_KEYS, OUTAGE_KEYS, PROBATION_KEYS, Prefix, SSH_KEYS, STORE_KEYS,
        SWITCH_KEYS, USAGE_KEYS,
    },
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    signals::elections,
    topology::{DUE_CONSUMER, StreamNames, TAKERS},
};

/// The template that the server replaces by a user's public key.
const SUBJECT: &str = "{{subject()}}";

/// The role of a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BusRole {
    /// A node that owns sessions.
    Worker,
    /// A node that holds client connections.
    Gateway,
    /// A node that does both.
    Node,
    /// Creates the cluster, and offers nodes their credentials.
    Admin,
    /// A node that has a join token and nothing else yet.
    Admission,
}

/// The rights of a role.
#[derive(Clone, Debug, Default)]
pub(super) struct RoleGrants {
    pub(super) publish: Vec<String>,
    pub(super) subscribe: Vec<String>,
}

// === impl BusRole ===

impl BusRole {
    pub const ALL: [Self; 5] =
        [Self::Worker, Self::Gateway, Self::Node, Self::Admin, Self::Admission];

    /// The role of a node that does this; `None` for nothing.
    pub fn of(roles: &[NodeRole]) -> Option<Self> {
        match (roles.contains(&NodeRole::Gateway), roles.contains(&NodeRole::Worker)) {
            (true, true) => Some(Self::Node),
            (true, false) => Some(Self::Gateway),
            (false, true) => Some(Self::Worker),
            (false, false) => None,
        }
    }

    /// Its name, as people write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Worker => "worker",
            Self::Gateway => "gateway",
            Self::Node => "node",
            Self::Admin => "admin",
            Self::Admission => "admission",
        }
    }

    pub(super) fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == name)
    }

    /// Whether a node that does this may use it.
    pub fn covers(self, roles: &[NodeRole]) -> bool {
        roles.iter().all(|role| match role {
            NodeRole::Gateway => matches!(self, Self::Gateway | Self::Node),
            NodeRole::Worker => matches!(self, Self::Worker | Self::Node),
        })
    }
}

impl fmt::Display for BusRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

// === impl RoleGrants ===

impl RoleGrants {
    /// The rights of `role` in the cluster of this prefix.
    pub(super) fn of(role: BusRole, prefix: &Prefix) -> Self {
        let names = StreamNames::new(prefix);
        let mut grants = Self::default();
        if role != BusRole::Admission {
            // Answers come here; to measure a round trip, send a request to this inbox without a
            // listener.
            let inbox = format!("{INBOX}.{SUBJECT}.>");
            grants.publish.push(inbox.clone());
            grants.subscribe.push(inbox);
        }
        match role {
            BusRole::Worker => grants.worker(prefix, &names),
            BusRole::Gateway => grants.gateway(prefix, &names),
            BusRole::Node => {
                grants.worker(prefix, &names);
                grants.gateway(prefix, &names);
            }
            BusRole::Admin => grants.admin(prefix, &names),
            // It waits for its own offer, of which the server sends one. It may say nothing, not even
            // ask: the server would write its answers wherever a question says. And it may not listen
            // to answers, which are for the node that has the same user by now.
            BusRole::Admission => {
                grants.subscribe.push(format!("{} {TAKERS}", prefix.joining(SUBJECT)));
            }
        }
        grants.publish.sort_unstable();
        grants.publish.dedup();
        grants.subscribe.sort_unstable();
        grants.subscribe.dedup();
        grants
    }

    fn publish(&mut self, subject: String) {
        self.publish.push(subject);
    }

    fn api(&mut self, operation: &str, what: &str) {
        self.publish.push(format!("$JS.API.{operation}.{what}"));
    }

    /// The rights of every node: to check that the cluster is as it must be, and to see the other
    /// nodes.
    fn any_node(&mut self, prefix: &Prefix, names: &StreamNames) {
        self.publish("$JS.API.INFO".to_owned());
        for stream in names.all().iter().chain([&names.birth]) {
            self.api("STREAM.INFO", stream);
        }
        self.api("CONSUMER.INFO", &format!("{}.{DUE_CONSUMER}", names.timers));
        for stream in [&names.journal, &names.bucket, &names.blobs, &names.birth] {
            self.api("STREAM.MSG.GET", stream);
        }
        // Watching agents, kill switches, approved descriptions of MCP servers, and limits of spending: a
        // consumer of the watcher's own, of these keys only.
        for keys in [AGENT_KEYS, BUDGET_KEYS, SWITCH_KEYS, MCP_KEYS] {
            self.watches(keys, prefix, names);
        }
        for operation in ["CONSUMER.MSG.NEXT", "CONSUMER.DELETE", "CONSUMER.INFO"] {
            self.api(operation, &format!("{}.*", names.bucket));
        }
        self.publish(prefix.blobs());
        // A process id is made at start, so no permission can know whose requests are its own.
        for subject in [prefix.heartbeats(), prefix.all_hearsay(), prefix.names(), prefix.rpcs()] {
            self.publish(subject.clone());
            self.subscribe.push(subject);
        }
        self.publish(prefix.events());
        // A request is answered only at the sender's inbox. A permission to answer wherever a
        // request says (NATS' response permission) lets a user that sends itself requests publish
        // anywhere.
        self.publish(format!("{INBOX}.>"));
    }

    fn watches(&mut self, keys: &str, prefix: &Prefix, names: &StreamNames) {
        let watched = prefix.bucket(&format!("{keys}>"));
        self.api("CONSUMER.CREATE", &format!("{}.*.{watched}", names.bucket));
    }

    fn worker(&mut self, prefix: &Prefix, names: &StreamNames) {
        self.any_node(prefix, names);
        // The limits of accounts, which their owners show all who spend.
        self.publish(prefix.bucket(&format!("{BUDGET_KEYS}*")));
        self.publish(prefix.journals());
        self.api("STREAM.MSG.GET", &names.inbox);
        for operation in ["CONSUMER.INFO", "CONSUMER.MSG.NEXT"] {
            self.api(operation, &format!("{}.*", names.inbox));
        }
        self.publish(format!("$JS.ACK.{}.>", names.inbox));
        self.subscribe.push(elections(&names.inbox, "*"));
        // Jobs: any worker asks for them, and takes those that it can do. A consumer is of one
        // capability, whichever.
        self.publish(prefix.jobs_of_any());
        self.api("CONSUMER.CREATE", &format!("{}.*.{}", names.jobs, prefix.jobs_of_any()));
        for operation in ["CONSUMER.INFO", "CONSUMER.MSG.NEXT"] {
            self.api(operation, &format!("{}.*", names.jobs));
        }
        self.publish(format!("$JS.ACK.{}.>", names.jobs));
        self.subscribe.push(elections(&names.jobs, "*"));
        self.publish(prefix.bucket(&format!("{JOB_KEYS}*")));
        // Entities that may have killed their process.
        self.publish(prefix.bucket(&format!("{PROBATION_KEYS}*")));
        // The usage of model calls, as the first worker counts it.
        self.publish(prefix.bucket(&format!("{USAGE_KEYS}>")));
        // The archived jobs, for people.
        self.publish(prefix.bucket(&format!("{ARCHIVE_KEYS}*")));
        // Uploaded files, until they are too old or their session goes.
        self.publish(prefix.bucket(&format!("{FILE_KEYS}*.*")));
        // Calls that wait for a person are shown to people.
        self.publish(prefix.bucket(&format!("{APPROVAL_KEYS}*")));
        // Calls that wait for a provider, for `status`.
        self.publish(prefix.bucket(&format!("{OUTAGE_KEYS}*")));
        // The tools of an MCP server, written by the node that runs it.
        self.publish(prefix.bucket(&format!("{MCP_KEYS}*")));
        // Which memories there are, for operators.
        self.publish(prefix.bucket(&format!("{MEMORY_KEYS}*")));
        // The key of an SSH host, written by the first node that connects to it.
        self.publish(prefix.bucket(&format!("{SSH_KEYS}*")));
        // The stores of plugins: the keys of each, and their values.
        self.publish(prefix.bucket(&format!("{STORE_KEYS}*.*")));
        self.publish(prefix.bucket(&format!("{STORE_KEYS}*.*.*")));
        // The result of a job goes to its session, and a timer ends the wait for it.
        self.publish(prefix.inputs());
        self.publish(prefix.timers());
        // Timers that the server lost track of are found and stored again.
        self.api("STREAM.MSG.GET", &names.timers);
        self.api("STREAM.PURGE", &names.timers);
        self.api("STREAM.PURGE", &names.blobs);
        self.publish(prefix.all_frames());
        self.publish(prefix.usage());
        // Inputs that no node can read are put aside.
        self.publish(prefix.bucket(&format!("{LETTER_KEYS}>")));
    }

    fn gateway(&mut self, prefix: &Prefix, names: &StreamNames) {
        self.any_node(prefix, names);
        self.publish(prefix.inputs());
        // The inputs that wait for a session out of service are shown to people. A gateway reads
        // journals, which have all of them sooner or later.
        self.api("STREAM.MSG.GET", &names.inbox);
        self.publish(prefix.bucket(&format!("{AGENT_KEYS}>")));
        self.publish(prefix.bucket(&format!("{APPROVAL_KEYS}*")));
        self.publish(prefix.bucket(&format!("{SWITCH_KEYS}>")));
        // Files that clients upload, and messages name.
        self.publish(prefix.bucket(&format!("{FILE_KEYS}*.*")));
        // What a person approves of it.
        self.publish(prefix.bucket(&format!("{MCP_KEYS}*")));
        self.api("CONSUMER.LIST", &names.inbox);
        for subject in [prefix.all_frames(), prefix.events()] {
            self.subscribe.push(subject);
        }
    }

    fn admin(&mut self, prefix: &Prefix, names: &StreamNames) {
        self.publish("$JS.API.INFO".to_owned());
        for stream in names.all().iter().chain([&names.birth, &names.offers]) {
            self.api("STREAM.INFO", stream);
            self.api("STREAM.CREATE", stream);
        }
        // Streams that older builds made with other settings.
        for stream in [&names.bucket, &names.jobs] {
            self.api("STREAM.UPDATE", stream);
        }
        for consumer in [format!("{}.{DUE_CONSUMER}", names.timers), format!("{}.*", names.inbox)] {
            self.api("CONSUMER.DURABLE.CREATE", &consumer);
            self.api("CONSUMER.INFO", &consumer);
        }
        for stream in [&names.bucket, &names.birth] {
            self.api("STREAM.MSG.GET", stream);
        }
        self.publish(prefix.birth());
        let offers = prefix.offer("*");
        self.api("CONSUMER.CREATE", &format!("{}.*.{offers}", names.offers));
        self.api("CONSUMER.INFO", &format!("{}.*", names.offers));
        self.publish(offers);
    }

    /// The same for this user alone, where a signing key's template cannot express it: servers
    /// leave out composed names of groups.
    pub(super) fn of_user(role: BusRole, prefix: &Prefix, user: &str) -> Self {
        let named =
            |all: Vec<String>| all.iter().map(|subject| subject.replace(SUBJECT, user)).collect();
        let Self { publish, subscribe } = Self::of(role, prefix);
        Self { publish: named(publish), subscribe: named(subscribe) }
    }

    /// As a signing key's template has it, or a user.
    pub(super) fn template(&self) -> Value {
        // To name nothing would be to allow everything.
        let allowed = |all: &[String]| match all {
            [] => json!({ "deny": [">"] }),
            some => json!({ "allow": some }),
        };
        json!({
            "subs": -1,
            "data": -1,
            "payload": -1,
            "pub": allowed(&self.publish),
            "sub": allowed(&self.subscribe),
            "allowed_connection_types": ["STANDARD"],
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_role_is_for_those_who_do_no_more() {
        use NodeRole::{Gateway, Worker};
        for (role, roles, fits) in [
            (BusRole::Worker, &[Worker][..], true),
            (BusRole::Worker, &[Gateway], false),
            (BusRole::Worker, &[Gateway, Worker], false),
            (BusRole::Gateway, &[Worker], false),
            (BusRole::Node, &[Worker], true),
            (BusRole::Node, &[Gateway, Worker], true),
            (BusRole::Admin, &[Worker], false),
            (BusRole::Admission, &[Gateway], false),
        ] {
            assert_eq!(role.covers(roles), fits, "{role} {roles:?}");
        }
    }

    #[test]
    fn grant_1_no_role_may_answer_wherever_a_request_says() {
        for role in BusRole::ALL {
            let template = RoleGrants::of(role, &Prefix::default()).template();
            assert!(template.get("resp").is_none(), "{role}: {template}");
            let is_node = !matches!(role, BusRole::Admin | BusRole::Admission);
            let granted = RoleGrants::of(role, &Prefix::default()).publish;
            assert_eq!(granted.contains(&format!("{INBOX}.>")), is_node, "{role}");
        }
    }

    /// The document has a row for all that may be written, so that its own test tries it on a server.
    #[test]
    fn grant_2_every_subject_that_is_written_is_in_the_document() {
        let document = include_str!("../../../../docs/stolen-credentials.md");
        let rows = document.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
        let family = |subject: &str| {
            let depth = if subject.starts_with("cn.kv.") { 3 } else { 2 };
            subject.split('.').take(depth).collect::<Vec<_>>().join(".")
        };
        let told: BTreeSet<String> = rows.map(family).collect();
        for role in BusRole::ALL {
            let granted = RoleGrants::of(role, &Prefix::default()).publish;
            for subject in granted.iter().filter(|subject| subject.starts_with("cn.")) {
                let family = family(subject);
                assert!(
                    told.contains(&family),
                    "{role} may write `{subject}`, and no row has `{family}`"
                );
            }
        }
    }

    #[test]
    fn grant_1_no_role_has_a_wildcard_over_more_than_it_uses() {
        let prefix = Prefix::default();
        for role in BusRole::ALL {
            let grants = RoleGrants::of(role, &prefix);
            let inboxes = format!("{INBOX}.>");
            let publish = grants.publish.iter().filter(|subject| **subject != inboxes);
            for subject in publish.chain(&grants.subscribe) {
                let first: Vec<&str> = subject.split('.').take(3).collect();
                assert!(!first[..2].iter().any(|token| ["*", ">"].contains(token)), "{subject}");
                assert!(!subject.starts_with("$SYS"), "{role}: {subject}");
                if first[0] == "$JS" {
                    assert!(!["*", ">"].contains(&first[2]), "{role}: {subject}");
                }
            }
        }
        let gateway = RoleGrants::of(BusRole::Gateway, &prefix);
        assert!(!gateway.publish.contains(&prefix.journals()));
        let worker = RoleGrants::of(BusRole::Worker, &prefix);
        assert!(!gateway.publish.contains(&prefix.jobs_of_any()));
        for keys in [AGENT_KEYS, SWITCH_KEYS] {
            let keys = prefix.bucket(keys);
            assert!(gateway.publish.iter().any(|subject| subject.starts_with(&keys)));
            assert!(!worker.publish.iter().any(|subject| subject.starts_with(&keys)));
        }
        let pins = prefix.bucket(&format!("{MCP_KEYS}*"));
        for grants in [&gateway, &worker] {
            assert!(grants.publish.contains(&pins));
            assert!(!grants.publish.contains(&prefix.buckets()));
        }
        let host_keys = prefix.bucket(&format!("{SSH_KEYS}*"));
        assert!(worker.publish.contains(&host_keys) && !gateway.publish.contains(&host_keys));
        let kept = prefix.bucket(STORE_KEYS);
        assert_eq!(worker.publish.iter().filter(|subject| subject.starts_with(&kept)).count(), 2);
        assert!(!gateway.publish.iter().any(|subject| subject.starts_with(&kept)));
        for grants in [gateway, worker] {
            assert!(!grants.publish.iter().any(|subject| subject.contains("STREAM.CREATE")));
            assert!(!grants.publish.iter().any(|subject| subject.contains("MSG.DELETE")));
        }
    }
}
