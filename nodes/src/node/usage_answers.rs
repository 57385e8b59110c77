//! What model calls used, for clients.

use clawnode_actors::usage::{self, CallPlace};
use clawnode_gateway::HandlerResult;
use clawnode_proto::{
    ErrorBody, ErrorCode,
    limits::USAGE_DAYS,
    usage::{Day, UsageAudit, UsageCalls, UsageCallsParams, UsageParams, UsageView},
};

use super::{
    backend::{NodeBackend, store},
    session_filter,
};

impl NodeBackend {
    /// The sums.
    pub(super) async fn usage(&self, params: UsageParams) -> HandlerResult<UsageView> {
        let now = self.sessions.now();
        let since = params.since.map(|text| session_filter::parse_since(&text, now)).transpose()?;
        let shown = usage::show(self.sessions.storage(), now, params.by, since.map(Day::of));
        shown.await.map_err(store)
    }

    /// One row an attempt.
    pub(super) async fn calls_used(&self, page: UsageCallsParams) -> HandlerResult<UsageCalls> {
        let UsageCallsParams { since, cursor, limit } = page;
        let now = self.sessions.now();
        let since = since.map(|text| session_filter::parse_since(&text, now)).transpose()?;
        let place = cursor.as_ref().map(CallPlace::try_from).transpose()?;
        let limit = usize::try_from(limit.unwrap_or(1)).unwrap_or(1);
        let since = since.unwrap_or_default();
        usage::calls(&self.sessions, since, place, limit).await.map_err(store)
    }

    /// A day, counted again from the journals.
    pub(super) async fn audited_usage(&self, day: Day) -> HandlerResult<UsageAudit> {
        let (now, storage) = (self.sessions.now(), self.sessions.storage());
        let today = Day::of(now);
        if day > today || day.0.saturating_add(USAGE_DAYS) <= today.0 {
            let what = format!("parameter `day`: {day} is not one of the last {USAGE_DAYS} days");
            return Err(ErrorBody::new(ErrorCode::InvalidParams, what)
                .hint("usage is kept for these days only"));
        }
        usage::audit(storage, now, day).await.map_err(store)
    }
}
