//! From what the model shall see to what it is asked: texts in place, tools as they are offered.

use bytes::Bytes;
use clawnode_cluster::Backoff;
use clawnode_proto::{
    Digest, EntityId,
    llm::{FailureClass, Message, ModelFailure, Text},
    media::Media,
    tool::ToolSpec,
};
use tracing::warn;

use super::session_runner::{AGAIN, SessionRunner};
use crate::llm::{ModelRequest, PlainMedia, PlainMessage, PlainReply, ReplySchema, ToolOffer};
use crate::session::{
    texts::{content_of, shown_result, unpacked},
    turn::prepare::CallJob,
};

impl SessionRunner {
    /// The request of a call, with these messages of it.
    pub(in crate::session) async fn request(
        &self,
        entity: EntityId,
        job: &CallJob,
        mut assembled: Vec<Message>,
    ) -> Result<ModelRequest, ModelFailure> {
        let attached: Vec<_> = assembled.iter_mut().map(attachments).collect();
        let mut messages = self.messages(assembled).await?;
        for (plain, (said, replied)) in messages.iter_mut().zip(attached) {
            plain.media = self.media(said, &mut plain.text).await?;
            for (plain, replied) in plain.tool_replies.iter_mut().zip(replied) {
                plain.media = self.media(replied, &mut plain.text).await?;
            }
        }
        let schema = job.request.response_schema.as_ref();
        Ok(ModelRequest {
            model: job.request.model.model.clone(),
            system: self.system_prompt(entity, &job.agent, &job.request).await?,
            messages,
            tools: job.request.tools.iter().map(offer).collect::<Result<_, _>>()?,
            sampling: job.request.sampling.clone(),
            idempotency_key: format!("{}.{}", job.call, job.attempt),
            reply_schema: schema.map(ReplySchema::new).transpose().map_err(|error| {
                let message = format!("the schema of the reply is not JSON: {error}");
                ModelFailure::new(FailureClass::Rejected, message)
            })?,
            cache_key: entity.to_string(),
        })
    }

    /// Messages with their texts in place, without their attachments.
    pub(in crate::session) async fn messages(
        &self,
        assembled: Vec<Message>,
    ) -> Result<Vec<PlainMessage>, ModelFailure> {
        let mut messages: Vec<PlainMessage> = Vec::with_capacity(assembled.len());
        for message in assembled {
            let Message { role, content, tool_uses, tool_replies, blocks, attachments: _ } =
                message;
            let mut plain = PlainMessage::text(role, self.owned_text(content).await?);
            plain.tool_uses = tool_uses;
            if let Some(blocks) = &blocks {
                plain.blocks = self.blocks(blocks).await?;
            }
            for reply in tool_replies {
                let text = shown_result(self.owned_text(reply.content).await?);
                let (id, is_error) = (reply.id, reply.is_error);
                plain.tool_replies.push(PlainReply { id, text, is_error, media: Vec::new() });
            }
            messages.push(plain);
        }
        Ok(messages)
    }

    /// A text that nothing else needs.
    async fn owned_text(&self, text: Text) -> Result<String, ModelFailure> {
        match text {
            Text::Inline { text } => Ok(text),
            Text::Blob { .. } => self.text(&text).await,
        }
    }

    pub(in crate::session) async fn text(&self, text: &Text) -> Result<String, ModelFailure> {
        match text {
            Text::Inline { text } => Ok(text.clone()),
            Text::Blob { digest, bytes } => Ok(unpacked(&self.blob(*digest).await?, *bytes)),
        }
    }

    /// Attachments with their content in place. Of one whose content is gone, the text says so: a
    /// conversation goes on without a picture.
    async fn media(
        &self,
        attachments: Vec<Media>,
        text: &mut String,
    ) -> Result<Vec<PlainMedia>, ModelFailure> {
        let mut media = Vec::with_capacity(attachments.len());
        for about in attachments {
            if let Some(blob) = self.stored(about.blob).await? {
                let content = content_of(&blob, about.bytes);
                media.push(PlainMedia { about, content });
            } else {
                warn!(blob = %about.blob, "the content of an attachment is missing");
                let said = format!("(attached: {about}, which is not stored any more)");
                text.push_str(if text.is_empty() { "" } else { "\n\n" });
                text.push_str(&said);
            }
        }
        Ok(media)
    }

    async fn blob(&self, digest: Digest) -> Result<Bytes, ModelFailure> {
        self.stored(digest).await?.ok_or_else(|| {
            let message = format!("a part of the conversation (`{digest}`) is missing");
            ModelFailure::new(FailureClass::Rejected, message)
        })
    }

    async fn stored(&self, digest: Digest) -> Result<Option<Bytes>, ModelFailure> {
        let mut backoff = Backoff::new(AGAIN.0, AGAIN.1);
        loop {
            match self.parts.storage.blobs.get(digest).await {
                Ok(found) => return Ok(found),
                // Damage does not go away by waiting.
                Err(failure) if !failure.is_transient() => {
                    let message = format!("a part of the conversation cannot be read: {failure}");
                    let class = FailureClass::Rejected;
                    return Err(ModelFailure::new(class, message));
                }
                Err(failure) => {
                    warn!(%failure, "a part of the conversation cannot be read; trying again");
                    let wait = backoff.next(&mut rand::rng());
                    tokio::time::sleep(wait).await;
                }
            }
        }
    }
}

/// Takes what is attached to a message, and to each result in it.
fn attachments(message: &mut Message) -> (Vec<Media>, Vec<Vec<Media>>) {
    let replies = message.tool_replies.iter_mut();
    let media_of_replies = replies.map(|reply| std::mem::take(&mut reply.media)).collect();
    (std::mem::take(&mut message.attachments), media_of_replies)
}

/// A tool as a model is offered it.
fn offer(spec: &ToolSpec) -> Result<ToolOffer, ModelFailure> {
    let input_schema = serde_json::from_str(&spec.input_schema).map_err(|error| {
        ModelFailure::new(
            FailureClass::Rejected,
            format!("the schema of tool `{}` is not JSON: {error}", spec.name),
        )
    })?;
    let (name, description) = (spec.name.clone(), spec.description.clone());
    Ok(ToolOffer { name, description, input_schema })
}
