//! Two live nodes never have the same name.
//!
//! A node answers under its name, so a newcomer knows at once whether it is taken. If several ask
//! for a name at the same moment, the one with the smallest process id gets it. A name from the
//! configuration is refused when it is taken. The host's name, which is the default of all nodes on
//! a host, gets a number, and the data directory remembers which: a node that starts again on it
//! keeps its name. Names are for people; nothing is fenced by them.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use clawnode_cluster::{BusEvent, BusMessage, RequestError, Storage, StoreError, Subscription};
use clawnode_kernel::supervise::Supervisor;
use clawnode_proto::{NodeName, ProcessId};
use futures_util::StreamExt;
use tracing::{debug, warn};

use crate::{
    config::{LoadedConfig, ValueOrigin},
    start_error::StartError,
};

/// How long the holder of a name may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// How long those that start in the same moment have to hear of each other.
const TOGETHER: Duration = Duration::from_millis(100);
/// How many nodes of one host get a number by themselves.
const NUMBERS: u32 = 64;
/// The file of a data directory that has the name which a node got by itself.
const REMEMBERED: &str = "node-name";

/// The name of this node, and those who ask for it.
#[derive(Clone)]
struct HeldName {
    storage: Storage,
    name: NodeName,
    me: ProcessId,
    /// Taken by the first who answers.
    asked: Arc<Mutex<Option<Subscription>>>,
}

/// The result of asking for a name.
enum NameClaim {
    /// No other node has it. This subscription hears other nodes that ask for it now.
    Free(Subscription),
    /// This process has it, or gets it.
    Taken(String),
}

/// Gives this node a name that no other live node has, and answers under it.
pub async fn begin(
    loaded: &mut LoadedConfig,
    me: ProcessId,
    storage: &Storage,
    supervisor: &Supervisor,
) -> Result<(), StartError> {
    if !storage.shared {
        return Ok(());
    }
    let chosen = loaded.origin_of(&["node", "name"]) != ValueOrigin::Default;
    let node = &mut loaded.config.node;
    let names = if chosen {
        vec![node.name.clone()]
    } else {
        let kept = remembered(&node.data_dir, &node.name);
        kept.into_iter().chain(numbered(&node.name)).collect()
    };
    let (name, asked) = first_free(storage, names, me).await?;
    if !chosen && name != node.name {
        remember(&node.data_dir, &name);
    }
    node.name = name.clone();
    let (storage, asked) = (storage.clone(), Arc::new(Mutex::new(Some(asked))));
    let held = HeldName { storage, name, me, asked };
    let adopted = supervisor.adopt_task("name", move || held.clone().answer()).await;
    adopted.map_err(|error| {
        StartError::failed("internal", format!("an actor cannot be started: {error}"))
    })
}

/// `host`, `host-2`, `host-3`, …
fn numbered(host: &NodeName) -> impl Iterator<Item = NodeName> {
    let host = host.clone();
    (1..NUMBERS).filter_map(move |number| match number {
        1 => Some(host.clone()),
        number => format!("{host}-{number}").parse().ok(),
    })
}

/// The number that a node of this host got before.
fn remembered(dir: &Path, host: &NodeName) -> Option<NodeName> {
    let text = std::fs::read_to_string(dir.join(REMEMBERED)).ok()?;
    numbered(host).find(|name| name.to_string() == text.trim())
}

fn remember(dir: &Path, name: &NodeName) {
    let kept = std::fs::create_dir_all(dir)
        .and_then(|()| std::fs::write(dir.join(REMEMBERED), format!("{name}\n")));
    if let Err(error) = kept {
        debug!(%name, %error, "cannot store the node's name");
    }
}

/// The first of these names that no other node has.
async fn first_free(
    storage: &Storage,
    names: Vec<NodeName>,
    me: ProcessId,
) -> Result<(NodeName, Subscription), StartError> {
    let mut refused = None;
    for name in names {
        match claim(storage, &name, me).await? {
            NameClaim::Free(asked) => return Ok((name, asked)),
            NameClaim::Taken(holder) => refused = Some(taken(&name, &holder)),
        }
    }
    Err(refused.unwrap_or_else(|| StartError::failed("internal", "a node needs a name")))
}

fn taken(name: &NodeName, holder: &str) -> StartError {
    let message = format!("a node called `{name}` is alive already: process `{holder}`");
    StartError::config("node_name_taken", message).hint(
        "give this node another name (`[node] name`, or `CLAWNODE_NODE__NAME`), or stop that one",
    )
}

/// Asks for a name: whether a node has it, and then whether another one asks for it now.
async fn claim(storage: &Storage, name: &NodeName, me: ProcessId) -> Result<NameClaim, StartError> {
    if let Some(holder) = holder(storage, name).await? {
        return Ok(NameClaim::Taken(holder));
    }
    let subject = storage.prefix.name(name);
    let mut asked =
        storage.bus.subscribe(subject.clone()).await.map_err(|failure| silent(&failure))?;
    // Of two that do this, one at least hears the other: its question comes after both listen.
    let question = storage.bus.request(subject, Bytes::from(me.to_string()), TOGETHER);
    tokio::pin!(question);
    loop {
        tokio::select! {
            answer = &mut question => return match answer {
                Ok(answer) => Ok(NameClaim::Taken(named(&answer))),
                Err(RequestError::NoResponders { .. } | RequestError::Timeout { .. }) => {
                    Ok(NameClaim::Free(asked))
                }
                Err(RequestError::Bus(error)) => Err(silent(&error)),
            },
            Some(event) = asked.next() => {
                let BusEvent::Message(message) = event else { continue };
                match named(&message.payload).parse::<ProcessId>() {
                    Ok(other) if other < me => return Ok(NameClaim::Taken(other.to_string())),
                    Ok(own) if own == me => {}
                    // One that only wants to know, or gives way.
                    _ => tell(storage, &message, me).await,
                }
            }
        }
    }
}

fn silent(error: &StoreError) -> StartError {
    let message = format!("the bus does not answer: {error}");
    StartError::unreachable("nats_unreachable", message)
}

/// A process id, as another process wrote it.
fn named(bytes: &[u8]) -> String {
    let fits = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
    String::from_utf8_lossy(bytes).chars().filter(fits).take(64).collect()
}

/// The process that answers under this name, as it calls itself.
async fn holder(storage: &Storage, name: &NodeName) -> Result<Option<String>, StartError> {
    let subject = storage.prefix.name(name);
    match storage.bus.request(subject, Bytes::new(), ANSWER_WITHIN).await {
        Ok(answer) => Ok(Some(named(&answer))),
        Err(RequestError::NoResponders { .. }) => Ok(None),
        Err(RequestError::Timeout { .. }) => {
            // A process listens and does not answer: it is frozen, or its connection is half open.
            warn!(%name, "a process with this node's name does not answer; taking over the name");
            Ok(None)
        }
        Err(RequestError::Bus(error)) => Err(silent(&error)),
    }
}

/// Tells who asks that this process has the name.
async fn tell(storage: &Storage, message: &BusMessage, me: ProcessId) {
    let Some(reply) = message.answer_to() else { return };
    let told = storage.bus.publish(reply.to_owned(), None, Bytes::from(me.to_string())).await;
    if let Err(failure) = told {
        debug!(%failure, "an answer about the node's name was lost");
    }
}

impl HeldName {
    /// Answers under the name for as long as the node lives.
    async fn answer(self) {
        let heard = self.asked.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut asked = match heard {
            Some(asked) => asked,
            None => match self.storage.bus.subscribe(self.storage.prefix.name(&self.name)).await {
                Ok(asked) => asked,
                Err(failure) => {
                    warn!(%failure, "cannot listen under the node's name; trying again");
                    return;
                }
            },
        };
        while let Some(event) = asked.next().await {
            if let BusEvent::Message(message) = event {
                tell(&self.storage, &message, self.me).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use clawnode_cluster::SystemClock;
    use clawnode_local::{LocalOptions, open};
    use clawnode_proto::subject::Prefix;

    use super::*;

    fn storage() -> (tempfile::TempDir, Storage) {
        let dir = tempfile::tempdir().unwrap();
        let mut options = LocalOptions::new(Prefix::default(), Arc::new(SystemClock));
        options.head_room = 0;
        let (storage, _control) = open(dir.path(), options).unwrap();
        (dir, storage)
    }

    fn host() -> NodeName {
        "vm".parse().unwrap()
    }

    /// They all start in the same moment, and then another one does.
    #[tokio::test]
    async fn nodes_that_start_together_are_called_otherwise() {
        let (_dir, storage) = storage();
        let names = || numbered(&host()).collect::<Vec<_>>();
        let process = ProcessId::from_u128;
        let (one, two, three) = tokio::join!(
            first_free(&storage, names(), process(3)),
            first_free(&storage, names(), process(1)),
            first_free(&storage, names(), process(2)),
        );
        let mut called = Vec::new();
        for (found, me) in [(one, 3), (two, 1), (three, 2)] {
            let (name, asked) = found.unwrap();
            called.push(name.to_string());
            let asked = Arc::new(Mutex::new(Some(asked)));
            let held = HeldName { storage: storage.clone(), name, me: process(me), asked };
            tokio::spawn(held.answer());
        }
        called.sort();
        assert_eq!(called, ["vm", "vm-2", "vm-3"]);
        let (late, _) = first_free(&storage, names(), process(0)).await.unwrap();
        assert_eq!(late.to_string(), "vm-4");
        let refused = first_free(&storage, vec![host()], process(0)).await;
        let Err(refused) = refused else { panic!("it is taken") };
        assert_eq!(refused.code, "node_name_taken");
        assert!(refused.message.contains("process `proc_"), "{}", refused.message);
    }

    #[test]
    fn a_directory_remembers_the_number_of_its_host() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        assert_eq!(remembered(&data, &host()), None);
        remember(&data, &"vm-3".parse().unwrap());
        assert_eq!(remembered(&data, &host()).unwrap().to_string(), "vm-3");
        assert_eq!(remembered(&data, &"other".parse().unwrap()), None, "it was moved there");
        std::fs::write(data.join(REMEMBERED), "vm-x\n").unwrap();
        assert_eq!(remembered(&data, &host()), None);
    }
}
