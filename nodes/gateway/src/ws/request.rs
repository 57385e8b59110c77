//! The task of one request.

use std::{sync::Arc, time::Instant};

use clawnode_proto::ErrorBody;
use tokio::sync::oneshot;

use super::super::{
    backend::SendRequest,
    error,
    frame::{RequestId, Wording},
    gateway::Gateway,
    outbox::Outbox,
    rpc::{Promise, Resume},
    slow_client_stream::TurnStream,
};

/// Orders the sends to one session; dropping it lets the next one go.
pub(super) struct SendOrder {
    pub(super) before: Option<oneshot::Receiver<()>>,
    pub(super) done: oneshot::Sender<()>,
}

pub(super) async fn answer(
    gateway: Arc<Gateway>,
    out: Arc<Outbox>,
    id: RequestId,
    promise: Promise,
) {
    let answer = match promise.await {
        Ok(result) => id.result(&result),
        Err(error) => {
            gateway.metrics.refusal(error.code);
            error::rpc(id.as_str(), &error)
        }
    };
    // A closed socket cannot be informed.
    out.push_wait(answer).await.ok();
}

pub(super) async fn send(
    gateway: Arc<Gateway>,
    out: Arc<Outbox>,
    id: RequestId,
    request: Box<SendRequest>,
    turn: SendOrder,
) {
    let sent = Instant::now();
    let session = request.session.clone();
    if let Some(before) = turn.before {
        // It ends by being dropped, which is all we wait for.
        before.await.ok();
    }
    let outcome = gateway.backend.send(*request).await;
    drop(turn.done);
    match outcome {
        Ok(following) => {
            gateway.metrics.accepted();
            let stream = TurnStream {
                gateway: &gateway,
                out: &out,
                wording: Wording::Frames(&id),
                session: session.into(),
                seen: None,
                first: true,
                sent: Some(sent),
            };
            // A closed socket cannot be informed (GATE-4).
            stream.run(following).await.ok();
        }
        Err(error) => fail_stream(&gateway, &out, &id, &error).await,
    }
}

pub(super) async fn resume(
    gateway: Arc<Gateway>,
    out: Arc<Outbox>,
    id: RequestId,
    Resume { session, turn, after }: Resume,
) {
    match gateway.backend.follow(&session, turn, after).await {
        Ok(following) => {
            let stream = TurnStream {
                gateway: &gateway,
                out: &out,
                wording: Wording::Frames(&id),
                session,
                seen: after,
                first: true,
                sent: None,
            };
            // A closed socket cannot be informed.
            stream.run(following).await.ok();
        }
        Err(error) => fail_stream(&gateway, &out, &id, &error).await,
    }
}

async fn fail_stream(gateway: &Gateway, out: &Outbox, id: &RequestId, error: &ErrorBody) {
    gateway.metrics.refusal(error.code);
    if out.push_wait(id.error(error)).await.is_ok() {
        // A closed socket cannot be informed.
        out.push_wait(id.done_refused()).await.ok();
    }
}
