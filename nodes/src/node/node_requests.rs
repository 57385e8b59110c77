//! Requests to one node over the bus. A worker is also asked for what a gateway may not do itself.

use std::time::Duration;

use bytes::Bytes;
use clawnode_cluster::Storage;
use clawnode_proto::{
    ErrorBody, ErrorChain, ErrorCode, codec,
    node::{NodeReply, NodeRequest, NodeRole},
    view::NodeView,
};

/// How long a node may take to answer; it does nothing else before.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Has one of `nodes` forget a dead letter; whether there was one. It is for workers to remove what
/// came in.
pub(super) async fn drop_letter(
    storage: &Storage,
    nodes: &[NodeView],
    letter: &str,
) -> Result<bool, ErrorBody> {
    let works = |other: &&NodeView| other.roles.contains(&NodeRole::Worker) && !other.draining;
    let request = NodeRequest::DropLetter { letter: letter.to_owned() };
    let mut last = None;
    for node in nodes.iter().filter(works) {
        match ask(storage, node, &request).await {
            Ok(NodeReply::Ok) => return Ok(true),
            Ok(NodeReply::NotMine) => return Ok(false),
            Ok(other) => last = Some(unavailable(node, &format!("unexpected answer {other:?}"))),
            Err(failure) => last = Some(failure),
        }
    }
    Err(last.unwrap_or_else(|| {
        ErrorBody::new(ErrorCode::Unavailable, "no worker is alive to drop the dead letter")
            .hint("see `clawnode status`, and try again")
    }))
}

/// Asks a node for something that it only confirms.
pub(super) async fn tell(
    storage: &Storage,
    node: &NodeView,
    request: &NodeRequest,
) -> Result<(), ErrorBody> {
    match ask(storage, node, request).await? {
        NodeReply::Ok => Ok(()),
        other => Err(unavailable(node, &format!("unexpected answer {other:?}"))),
    }
}

async fn ask(
    storage: &Storage,
    node: &NodeView,
    request: &NodeRequest,
) -> Result<NodeReply, ErrorBody> {
    let bytes = codec::encode(request)
        .map_err(|failure| ErrorBody::new(ErrorCode::Internal, failure.to_string()))?;
    let subject = storage.prefix.rpc(node.process);
    let asked = storage.bus.request(subject, Bytes::from(bytes), ANSWER_WITHIN).await;
    let answer = asked.map_err(|failure| unavailable(node, &ErrorChain(&failure).to_string()))?;
    codec::decode(&answer).map_err(|failure| unavailable(node, &failure.to_string()))
}

fn unavailable(node: &NodeView, why: &str) -> ErrorBody {
    let message = format!("no usable answer from node `{}` ({}): {why}", node.node, node.process);
    ErrorBody::new(ErrorCode::Unavailable, message).hint("see `clawnode status`, and try again")
}
