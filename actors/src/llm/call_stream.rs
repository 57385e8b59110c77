//! A call as a stream: one future tells it, and its result is the one terminal event.
//!
//! LLM-1: every call ends in exactly one `Done` or `Failed`, and nothing follows it. It holds by
//! construction: clients can only send what is not terminal, and return the rest.

use std::{future::Future, pin::Pin, task::Poll};

use clawnode_proto::{
    llm::{ModelFailure, StopReason, Usage},
    tool::ToolUse,
};
use futures_util::stream::{self, BoxStream, StreamExt};
use tokio::sync::mpsc;

use super::{Item, ModelEvent};

/// Events that a call may be ahead of its reader; beyond it the call waits, and so does the
/// provider, by the connection's own flow control.
const AHEAD: usize = 32;

/// How a call ended well.
#[derive(Debug)]
pub(super) struct Finish {
    pub(super) stop: StopReason,
    pub(super) usage: Usage,
    pub(super) model: String,
}

/// Where a call says what is not its end.
#[derive(Debug)]
pub(super) struct Teller(mpsc::Sender<ModelEvent>);

impl Teller {
    pub(super) async fn text(&self, text: String) {
        self.send(ModelEvent::Text(text)).await;
    }

    pub(super) async fn thought(&self, text: String) {
        self.send(ModelEvent::Thought(text)).await;
    }

    pub(super) async fn item(&self, item: Item) {
        self.send(ModelEvent::Item(item)).await;
    }

    pub(super) async fn tool_use(&self, tool_use: ToolUse) {
        self.send(ModelEvent::ToolUse(tool_use)).await;
    }

    pub(super) async fn arguments(&self, bytes: usize) {
        self.send(ModelEvent::Arguments { bytes }).await;
    }

    pub(super) async fn usage(&self, usage: Usage) {
        self.send(ModelEvent::Usage(usage)).await;
    }

    pub(super) async fn retrying(
        &self,
        retry: u32,
        wait: std::time::Duration,
        failure: ModelFailure,
    ) {
        self.send(ModelEvent::Retrying { retry, wait, failure }).await;
    }

    pub(super) async fn paced(&self, wait: std::time::Duration) {
        self.send(ModelEvent::Paced { wait }).await;
    }

    async fn send(&self, event: ModelEvent) {
        // The receiver lives in the same stream as the future that sends, so it cannot be gone
        // while this runs; if it were, no reader would be there to miss the event.
        if self.0.send(event).await.is_err() {
            tracing::debug!("the reader of a model call is gone");
        }
    }
}

/// Runs `call` whenever its stream is polled; dropping the stream drops it.
pub(super) fn tell<F>(call: impl FnOnce(Teller) -> F) -> BoxStream<'static, ModelEvent>
where
    F: Future<Output = Result<Finish, ModelFailure>> + Send + 'static,
{
    let (teller, mut told) = mpsc::channel(AHEAD);
    let mut call: Option<Pin<Box<F>>> = Some(Box::pin(call(Teller(teller))));
    let mut end = None;
    stream::poll_fn(move |cx| {
        if let Poll::Ready(Some(event)) = told.poll_recv(cx) {
            return Poll::Ready(Some(event));
        }
        if let Some(running) = &mut call {
            let Poll::Ready(result) = running.as_mut().poll(cx) else {
                return match told.poll_recv(cx) {
                    Poll::Ready(Some(event)) => Poll::Ready(Some(event)),
                    Poll::Ready(None) | Poll::Pending => Poll::Pending,
                };
            };
            call = None;
            end = Some(match result {
                Ok(Finish { stop, usage, model }) => ModelEvent::Done { stop, usage, model },
                Err(failure) => ModelEvent::Failed(failure),
            });
        }
        // Not polled: a task that has done much in one go has to wait though there is more, and
        // the end would overtake it.
        Poll::Ready(told.try_recv().ok().or_else(|| end.take()))
    })
    .boxed()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finish() -> Finish {
        Finish { stop: StopReason::EndTurn, usage: Usage::default(), model: "m".to_owned() }
    }

    #[tokio::test]
    async fn what_was_said_comes_before_the_end_and_nothing_after() {
        // More than AHEAD, so that the call has to wait for its reader.
        let events: Vec<_> = tell(|to| async move {
            for n in 0..100 {
                to.text(n.to_string()).await;
            }
            Ok(finish())
        })
        .collect()
        .await;
        assert_eq!(events.len(), 101);
        assert_eq!(events[99], ModelEvent::Text("99".to_owned()));
        assert!(matches!(events[100], ModelEvent::Done { .. }));
    }

    #[tokio::test]
    async fn nothing_is_lost_when_the_reader_is_to_give_way() {
        // tokio lets a task do 128 things in one go; the call ends before, at and after that.
        for count in 0..300_usize {
            let told = tell(move |to| async move {
                for n in 0..count {
                    to.text(n.to_string()).await;
                }
                Ok(finish())
            });
            let events: Vec<_> = told.collect().await;
            assert_eq!(events.len(), count + 1, "of {count}");
            assert!(matches!(events[count], ModelEvent::Done { .. }));
        }
    }

    #[tokio::test]
    async fn dropping_the_stream_drops_the_call() {
        let (gone, witness) = tokio::sync::oneshot::channel::<()>();
        let mut stream = tell(|to| async move {
            let _gone = gone;
            to.text("a".to_owned()).await;
            std::future::pending().await
        });
        assert_eq!(stream.next().await, Some(ModelEvent::Text("a".to_owned())));
        drop(stream);
        assert!(witness.await.is_err(), "the call's future is dropped with its stream");
    }
}
