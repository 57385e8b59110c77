//! What the API shows of an agent's work: the saved days, summed.

use std::collections::BTreeMap;

use clawnode_cluster::{Storage, StoreError};
use clawnode_proto::{
    AgentName, Timestamp,
    agent_profile::AgentProfile,
    agent_work::{AgentWork, WorkDay},
    limits::PROFILE_ROWS,
    usage::{Calls, Day, Followed, UsageDay, UsageRow},
};
use futures_util::future::BoxFuture;

use super::{
    counted_days::each_day,
    stopped::{CountingStopped, HEAD},
    stored::stored,
    usage_view::{behind_since, of_store, wait_until_counted},
};

/// Sums what is counted of an agent, and says how far that is behind.
pub fn profile<'a>(
    storage: &'a Storage,
    now: Timestamp,
    agent: &'a AgentName,
    since: Option<Day>,
) -> BoxFuture<'a, Result<AgentProfile, StoreError>> {
    Box::pin(async move {
        wait_until_counted(storage, now).await?;
        summed(storage, now, agent, since).await.map_err(of_store)
    })
}

async fn summed(
    storage: &Storage,
    now: Timestamp,
    agent: &AgentName,
    since: Option<Day>,
) -> Result<AgentProfile, CountingStopped> {
    // Before the days: what is counted meanwhile is shown as counted, or as still to be counted.
    let (followed, _) = stored::<Followed>(storage, HEAD).await?;
    let (mut work, mut first_day, mut is_left_out) = (AgentWork::default(), None::<String>, false);
    each_day(storage, since, |name, day: WorkDay| match day.agents.get(agent) {
        Some(of_day) => {
            let room = PROFILE_ROWS.saturating_sub(work.rows());
            work.add(of_day, room);
            first_day.get_or_insert_with(|| name.to_owned());
        }
        None => is_left_out |= day.left_out > 0,
    })
    .await?;
    let mut models: BTreeMap<String, Calls> = BTreeMap::new();
    each_day(storage, since, |name, day: UsageDay| {
        for (key, calls) in day.rows.into_iter().filter(|(key, _)| key.agent == *agent) {
            let sum = models.entry(key.model.to_string()).or_default();
            *sum = sum.plus(calls);
            if first_day.as_deref().is_none_or(|first| name < first) {
                first_day = Some(name.to_owned());
            }
        }
    })
    .await?;
    let profile = AgentProfile::of(agent.clone(), work);
    Ok(AgentProfile {
        first_day,
        calls: models.values().fold(Calls::default(), |sum, calls| sum.plus(*calls)),
        models: models.into_iter().map(|(name, calls)| UsageRow { name, calls }).collect(),
        behind_ms: behind_since(storage, now, &followed).await?,
        partial: profile.partial || is_left_out,
        ..profile
    })
}
