//! Publishes the end of a turn, and removes the timers and questions that the turn needed.

use bytes::Bytes;
use clawnode_cluster::Backoff;
use clawnode_proto::{
    EntityId, Frame, FrameBody, FrameKey, TimerId, codec, feed::EventBody, llm::UsageRecord,
};
use tracing::debug;

use super::session_runner::{AGAIN, SessionRunner};
use crate::session::turn::prepare::EmitJob;

impl SessionRunner {
    /// Publishes that a turn has ended; repeats until the bus has it.
    pub(in crate::session) async fn emit(&self, entity: EntityId, job: &EmitJob) {
        let mut frames = Vec::new();
        if let Some(error) = job.outcome.error() {
            let key = FrameKey { index: FrameKey::ERROR, ..job.done };
            frames.push(Frame { key, body: FrameBody::Error { error } });
        }
        let (outcome, structured) = (job.outcome.clone(), job.structured.clone());
        let body = FrameBody::Done { outcome, text_bytes: job.text_bytes, structured };
        frames.push(Frame { key: job.done, body });
        let mut backoff = Backoff::new(AGAIN.0, AGAIN.1);
        while let Err(failure) = self.publish(entity, None, frames.clone()).await {
            debug!(%entity, %failure, "cannot publish the end of a turn now; trying again");
            let wait = backoff.next(&mut rand::rng());
            tokio::time::sleep(wait).await;
        }
        let (turn, outcome) = (job.done.turn, job.outcome.name().to_owned());
        self.parts.feed.tell(EventBody::TurnEnded { session: entity, turn, outcome });
        // At once: the next turn of this person may search for it by now. A memory that has no room must not keep the rest waiting.
        let teaches = async {
            if let Some(learns) = &job.learns {
                self.teach(entity, learns).await;
            }
        };
        tokio::join!(teaches, self.clear_turn(entity, job));
        if let Some(agent) = &job.agent {
            for model_call in &job.calls {
                let record = UsageRecord {
                    session: entity,
                    agent: agent.clone(),
                    model: model_call.model.clone(),
                    turn: job.done.turn,
                    call: model_call.call,
                    attempt: model_call.attempt,
                    usage: model_call.usage,
                };
                self.record(&record).await;
            }
        }
    }

    /// Removes what the turn needed, and nothing after it.
    async fn clear_turn(&self, entity: EntityId, job: &EmitJob) {
        self.close(entity, &job.jobs).await;
        self.forget_approvals(entity, &job.approvals).await;
        for call in &job.clients {
            self.forget_timer(entity, TimerId::of_client(*call)).await;
        }
        for timer in &job.timers {
            self.forget_timer(entity, *timer).await;
        }
        // Not kept for clients that resume: the journal has the end, and the next turn may run by now.
        self.parts.hub.ended(entity, job.done.turn);
    }

    /// For those who listen now. For billing, `Settled` in the journal counts.
    pub(super) async fn record(&self, record: &UsageRecord) {
        let Ok(bytes) = codec::encode(record) else { return };
        let subject = self.parts.storage.prefix.usage();
        if let Err(failure) =
            self.parts.storage.bus.publish(subject, None, Bytes::from(bytes)).await
        {
            debug!(%failure, "cannot publish a usage record");
        }
    }
}
