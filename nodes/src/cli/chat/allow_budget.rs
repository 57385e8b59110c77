//! `/allow`: a person allows more of a budget that their conversation waits for, also while its turn runs.

use std::collections::BTreeMap;

use clawnode_proto::{
    api::{SessionParams, calls},
    budget::{AccountKey, BudgetAllowParams, CallForecast, LimitKey},
    frame::Notice,
    turn::TurnBody,
};

use super::{Chat, keys::Key};
use crate::{cli::turn::TurnStep, failure::Failure};

/// The command.
pub(super) const ALLOW: &str = "/allow";

impl Chat<'_> {
    /// Allows more of each budget that asks a person about the next call of this conversation.
    pub(super) async fn allow(&mut self) -> Result<(), Failure> {
        let Some(key) = self.conversation.key() else {
            return self.aside("no budget waits: nothing was said in this conversation yet");
        };
        let client = self.gateways.current().clone();
        let params = SessionParams { session: key.to_string() };
        let view = client.call(calls::BudgetExplain, &params).await?;
        let mut asks: BTreeMap<AccountKey, Vec<LimitKey>> = BTreeMap::new();
        for limit in view.limits.iter().filter(|limit| limit.forecast == CallForecast::NeedsPerson)
        {
            asks.entry(limit.account.clone()).or_default().push(limit.limit.key());
        }
        if asks.is_empty() {
            let other =
                view.limits.into_iter().find(|limit| limit.forecast != CallForecast::Possible);
            let why =
                other.map(|limit| format!(": {} {}", limit.account, limit.why)).unwrap_or_default();
            return self.aside(&format!("no budget of this conversation waits for a person{why}"));
        }
        for (account, limits) in asks {
            let named: Vec<String> = limits.iter().map(ToString::to_string).collect();
            let params = BudgetAllowParams { account: account.clone(), limits };
            client.call(calls::BudgetAllow, &params).await?;
            let named = named.join(", ");
            self.aside(&format!("allowed: {account} may spend the rest of its limit ({named})"))?;
        }
        Ok(())
    }

    /// A key that is typed while a turn runs: the line `/allow` has effect at once. Other keys are for the next
    /// message.
    pub(super) async fn allows(&mut self, key: &Key) -> Result<bool, Failure> {
        let Some(desk) = &mut self.desk else { return Ok(false) };
        if *key != Key::Enter || !desk.asks_budget || !desk.takes_line(ALLOW) {
            return Ok(false);
        }
        match self.allow().await {
            Err(failure) if failure.code != "output_closed" => {
                self.failure(&failure)?;
            }
            done => done?,
        }
        Ok(true)
    }

    /// What the person at the terminal reads of a turn that waits for them: how they allow it here.
    pub(super) fn with_allow(&mut self, body: &TurnBody) -> Option<TurnStep> {
        let TurnBody::Notice(notice) = body else { return None };
        let desk = self.desk.as_mut().filter(|_| notice.name == Notice::BUDGET_ASKS)?;
        desk.asks_budget = true;
        Some(TurnStep::Tell(format!("{}; or type {ALLOW} here", notice.message)))
    }
}
