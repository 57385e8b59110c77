//! No two live nodes are called alike.
//!
//! Whoever has a name answers under it, so a newcomer knows at once whether somebody has it. A name
//! that a person chose is refused when it is taken; the host's name, which several nodes of one host
//! have by default, gets a number. Two that start in the same moment may both get a name: names are
//! for people, and nothing is fenced by them.

use std::time::Duration;

use bytes::Bytes;
use clawnode_cluster::{BusEvent, RequestError, Substrate};
use clawnode_proto::{NodeName, ProcessId};
use futures_util::StreamExt;
use tracing::{debug, warn};

use crate::{
    config::{Loaded, Origin},
    failure::{Exit, Failure},
};

/// How long the holder of a name may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// How many nodes of one host get a number by themselves.
const NUMBERS: u32 = 64;

/// Gives this node a name that no other live node has.
pub async fn settle(loaded: &mut Loaded, substrate: &Substrate) -> Result<(), Failure> {
    if !substrate.shared {
        return Ok(());
    }
    let chosen = loaded.origin_of(&["node", "name"]) != Origin::Default;
    let name = &mut loaded.config.node.name;
    *name = free(substrate, name, chosen).await?;
    Ok(())
}

/// A name that nobody has: `wanted`, or, unless somebody `chose` that, one with a number.
async fn free(substrate: &Substrate, wanted: &NodeName, chosen: bool) -> Result<NodeName, Failure> {
    let mut name = wanted.clone();
    for number in 2..NUMBERS {
        let Some(holder) = holder(substrate, &name).await? else { return Ok(name) };
        let numbered = format!("{wanted}-{number}").parse();
        match numbered {
            Ok(numbered) if !chosen => name = numbered,
            _ => return Err(taken(&name, &holder)),
        }
    }
    Err(taken(wanted, "one of many"))
}

fn taken(name: &NodeName, holder: &str) -> Failure {
    let message = format!("a node called `{name}` is alive already: process `{holder}`");
    Failure::new(Exit::Config, "node_name_taken", message).hint(
        "give this node another name (`[node] name`, or `CLAWNODE_NODE__NAME`), or stop that one",
    )
}

/// The process that answers under this name, as it calls itself.
async fn holder(substrate: &Substrate, name: &NodeName) -> Result<Option<String>, Failure> {
    let subject = substrate.prefix.name(name);
    match substrate.bus.request(subject, Bytes::new(), ANSWER_WITHIN).await {
        Ok(answer) => {
            let text = String::from_utf8_lossy(&answer);
            Ok(Some(text.chars().filter(char::is_ascii_alphanumeric).take(64).collect()))
        }
        Err(RequestError::NoResponders { .. }) => Ok(None),
        Err(RequestError::Timeout { .. }) => {
            // Somebody listens and does not answer: frozen, or its connection is half open.
            warn!(%name, "whoever has this node's name does not answer; it is taken over");
            Ok(None)
        }
        Err(RequestError::Bus(error)) => {
            let message = format!("the bus does not answer: {error}");
            Err(Failure::new(Exit::Unreachable, "nats_unreachable", message))
        }
    }
}

/// Answers under the name for as long as the node lives.
pub async fn answer(substrate: Substrate, name: NodeName, process: ProcessId) {
    let mut asked = match substrate.bus.subscribe(substrate.prefix.name(&name)).await {
        Ok(asked) => asked,
        Err(failure) => {
            warn!(%failure, "cannot listen for the node's name; trying again");
            return;
        }
    };
    while let Some(event) = asked.next().await {
        let BusEvent::Message(message) = event else { continue };
        let Some(reply) = message.answer_to() else { continue };
        let told =
            substrate.bus.publish(reply.to_owned(), None, Bytes::from(process.to_string())).await;
        if let Err(failure) = told {
            debug!(%failure, "an answer about the node's name was lost");
        }
    }
}
