//! Sessions, as clients list them, what people think of their turns, and which model answers in one next.

use clawnode_gateway::{HandlerResult, ReflectRequest, SessionPage, SessionRef, TurnRating};
use clawnode_proto::{
    AgentName, ErrorBody, ErrorCode, IdempotencyKey, Traceparent, TurnId, api::SessionsList,
    context_view::TurnPlace, feedback::FeedbackInput, feedback_view::FeedbackView,
    model_route::RouteView, view::SessionList,
};

use super::{
    backend::{NodeBackend, named, store},
    session_filter,
};

/// The idempotency key of an input, by the name that its client has for the request, if it has one.
fn request_name(method: &str, name: Option<String>) -> HandlerResult<IdempotencyKey> {
    let name = name.unwrap_or_else(|| ulid::Ulid::generate().to_string());
    format!("{method}:{name}").parse().map_err(|error| {
        let what = format!("parameter `idempotency_key`: {error}");
        ErrorBody::new(ErrorCode::InvalidParams, what)
    })
}

impl NodeBackend {
    /// One page of the sessions that a client asks for, with the nodes that own them.
    pub(super) async fn session_page(&self, page: SessionsList) -> HandlerResult<SessionList> {
        let wanted = session_filter::query(page, self.sessions.now())?;
        let mut list = self.sessions.list(&wanted).await.map_err(store)?;
        for row in &mut list.sessions {
            row.node = row.owner.and_then(|owner| self.overview.name_of(owner));
        }
        Ok(list)
    }

    /// Says what a person thinks of a turn of a session.
    pub(super) async fn take_feedback(
        &self,
        rating: TurnRating,
        trace: Option<Traceparent>,
    ) -> HandlerResult<()> {
        let TurnRating { session, turn, thumb, comment, name } = rating;
        let name = request_name("feedback", name)?;
        let turn = self.turn_at(&session, turn).await?;
        let given = FeedbackInput { turn, thumb, comment };
        let done = self.sessions.give_feedback(session.id, given, name, trace).await;
        done.map_err(|error| named(&session, error))
    }

    /// Has a model look back at a turn of a session.
    pub(super) async fn ask_reflection(
        &self,
        wanted: ReflectRequest,
        trace: Option<Traceparent>,
    ) -> HandlerResult<()> {
        let ReflectRequest { session, turn, name } = wanted;
        let name = request_name("reflect", name)?;
        let turn = match turn {
            Some(turn) => Some(self.turn_at(&session, turn).await?),
            None => None,
        };
        let done = self.sessions.reflect(session.id, turn, name, trace).await;
        done.map_err(|error| named(&session, error))
    }

    async fn turn_at(&self, session: &SessionRef, place: TurnPlace) -> HandlerResult<TurnId> {
        let found = self.sessions.turn_at(session.id, place).await;
        found.map_err(|error| named(session, error))
    }

    /// One page of the feedback on the turns of a session.
    pub(super) async fn feedback_page(&self, page: SessionPage) -> HandlerResult<FeedbackView> {
        let SessionPage { session, after, limit } = page;
        let found = self.sessions.feedback(session.id, after.as_ref(), limit).await;
        found.map_err(|error| named(&session, error))
    }

    /// Which model the next call of a session asks, and why.
    pub(super) async fn next_route(&self, session: &SessionRef) -> HandlerResult<RouteView> {
        let options = |agent: &AgentName| self.agents.options(agent);
        let found = self.sessions.next_route(session.id, options).await;
        let unknown = || {
            ErrorBody::new(ErrorCode::NotFound, "the session's agent is not in the configuration")
                .hint("`clawnode agents list` shows the agents there are")
        };
        found.map_err(|error| named(session, error))?.ok_or_else(unknown)
    }
}
