//! What a model was shown: read from a session's whole journal, archives included.

use std::ops::ControlFlow;

use clawnode_kernel::{Entity, Service};
use clawnode_proto::{
    EntityId, Seq, TurnId,
    block::Blocks,
    context_view::{ContextPart, ContextPartKind, ContextPlace, ContextView, TurnPlace},
    llm::{Message, Text},
    session::SessionEvent,
};

use super::{send_error::SendError, sessions::Sessions};
use crate::session::{
    texts::shown_result,
    turn::{
        context::system_prompt::whole_prompt,
        explain_context::ContextReader,
        kind::Session,
        state::{SessionState, Turn},
    },
};

impl Sessions {
    /// What the model was shown by a call of a session: the one at this place, or the last one.
    pub async fn context(
        &self,
        id: EntityId,
        at: Option<ContextPlace>,
    ) -> Result<ContextView, SendError> {
        let known = self.known(id).await?;
        let session = known.core.key.clone().unwrap_or_else(|| id.to_string());
        let missing =
            || SendError::NoCall { session: session.clone(), place: at.map(|at| at.to_string()) };
        // A deleted session has no requests any more.
        if matches!(known.core.service, Service::Deleted) {
            return Err(SendError::NotFound { session });
        }
        let Some(wanted) = at.or_else(|| last_call(&known.state)) else { return Err(missing()) };
        drop(known);
        let mut entity = Entity::<Session>::unborn(id);
        let (mut reader, mut refused) = (ContextReader::new(wanted), None);
        let visit = |sealed: clawnode_proto::Sealed| {
            if let Ok(Some(event)) = sealed.event::<SessionEvent>()
                && reader.see(&entity.state, &event)
            {
                return ControlFlow::Break(());
            }
            match entity.apply(&sealed) {
                Ok(()) => ControlFlow::Continue(()),
                Err(failure) => {
                    refused = Some(failure);
                    ControlFlow::Break(())
                }
            }
        };
        self.entities().each_event(id, Seq(0), visit).await?;
        if let Some(failure) = refused {
            return Err(failure.into());
        }
        let prompt = reader.prompt();
        let mut view = reader.found().ok_or_else(missing)?;
        if let Some(prompt) = prompt {
            let own = self.text(&Text::from(prompt)).await?;
            let is_system = |part: &&mut ContextPart| part.kind == ContextPartKind::System;
            for part in view.parts.iter_mut().filter(is_system) {
                let more = part.text.as_deref().unwrap_or_default();
                part.text = Some(whole_prompt(own.clone(), more));
            }
        }
        for message in view.parts.iter_mut().flat_map(|part| &mut part.messages) {
            self.fill(message).await?;
        }
        Ok(view)
    }

    /// Puts texts into the places of their blobs, as the model was sent them.
    async fn fill(&self, message: &mut Message) -> Result<(), SendError> {
        message.content = Text::from(self.text(&message.content).await?);
        for text in message.blocks.iter_mut().flat_map(Blocks::texts_mut) {
            *text = Text::from(self.text(text).await?);
        }
        for reply in &mut message.tool_replies {
            reply.content = Text::from(shown_result(self.text(&reply.content).await?));
        }
        Ok(())
    }
}

/// The place of a session's last call.
fn last_call(state: &SessionState) -> Option<ContextPlace> {
    let place = |turn: TurnId| ContextPlace { turn: TurnPlace::Id(turn), step: None };
    let has_called = |turn: &&Turn| turn.plan.is_none() && !turn.steps.is_empty();
    let turns = state.open.iter().rev().chain(state.closed.iter().rev());
    turns.filter(has_called).map(|turn| place(turn.id)).next()
}
