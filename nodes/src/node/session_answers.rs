//! Sessions, as clients list them, and which model answers in one next.

use clawnode_gateway::{HandlerResult, SessionRef};
use clawnode_proto::{
    AgentName, ErrorBody, ErrorCode, api::SessionsList, model_route::RouteView, view::SessionList,
};

use super::{
    backend::{NodeBackend, named, store},
    session_filter,
};

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
