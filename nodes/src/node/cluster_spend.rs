//! Model calls that no session makes: embeddings, and tests of models. What they can cost is reserved from the limits
//! of the cluster, because no agent and no user asks. They have no journal.

use std::time::Duration;

use clawnode_actors::{
    agent::Agents,
    llm::profile::{self, CallPrice},
    session::effect::budget_reservation::outcome,
};
use clawnode_budget::holder::{CallCost, CallHold, CallNeeds, CallUsage, Need};
use clawnode_kernel::EntityError;
use clawnode_proto::{
    ErrorBody, ErrorCode,
    budget::{AccountKey, BudgetUnit, LimitKey},
    lane::Lane,
    llm::{FailureClass, ModelFailure, ModelRef, Usage},
    model::ModelPrice,
    session::TurnOutcome,
};
use tokio::time::timeout;

/// How long such a call may wait for a budget: its client waits, too.
pub(super) const BUDGET_TIME: Duration = Duration::from_secs(30);
/// A report of tokens is believed up to so many times what was reserved, and [`BELIEVED_MORE`] more.
const BELIEVED_TIMES: u64 = 4;
/// What a provider may add by itself to a request.
const BELIEVED_MORE: u64 = 100_000;

/// The tokens that a call can have at most.
#[derive(Clone, Copy, Debug)]
pub(super) struct MostTokens {
    /// Of its request.
    pub(super) input: u64,
    /// The cap on what the model writes.
    pub(super) output: u64,
}

/// What a call has reserved, and the price at which it is settled.
#[derive(Debug)]
pub(super) struct PaidCall {
    hold: CallHold,
    price: ModelPrice,
    most: MostTokens,
}

/// Reserves the most that a call can cost, if a limit holds. It is no step of a turn, so limits of loops do not count
/// it.
pub(super) async fn reserved(
    agents: &Agents,
    model: &ModelRef,
    most: MostTokens,
) -> Result<Option<PaidCall>, ErrorBody> {
    let view = agents.budgets().accounts();
    let Some(limits) = view.accounts.get(&AccountKey::Cluster) else { return Ok(None) };
    let profiles = agents.profiles();
    let price = profiles.call_price(model);
    if matches!(price, CallPrice::Unknown(_)) {
        if limits.has_money_of_person() {
            return Err(unpriced(model));
        }
        profiles.warn_unpriced(model);
    }
    let price = price.held();
    let need = |limit: LimitKey| {
        let fixed = match limit.unit {
            BudgetUnit::Usd => price.most(most.input, most.output).0,
            BudgetUnit::Tokens => most.all(),
            BudgetUnit::Loops => return None,
        };
        let cost = CallCost { fixed, per_million: 0 };
        Some(Need { account: AccountKey::Cluster, limit, cost, beside: 0 })
    };
    let needs: Vec<Need> = limits.of_lane(Lane::Interactive).filter_map(need).collect();
    if needs.is_empty() {
        return Ok(None);
    }
    let needs = CallNeeds { needs, least_output: 0, most_output: 0 };
    let answer = timeout(BUDGET_TIME, agents.budgets().reserved_unjournaled(needs)).await;
    match answer.ok().transpose().map_err(EntityError::from)?.flatten() {
        Some(Ok(hold)) => Ok(Some(PaidCall { hold, price, most })),
        Some(Err(refusal)) => Err(outcome(refusal).error().unwrap_or_else(no_budget)),
        None => Err(no_budget()),
    }
}

// === impl MostTokens ===

impl MostTokens {
    const fn all(self) -> u64 {
        self.input.saturating_add(self.output)
    }
}

// === impl PaidCall ===

impl PaidCall {
    /// The request is about to be sent. If this is dropped after that, it counts whole.
    pub(super) fn sent(&self) {
        self.hold.sent();
    }

    /// The call has ended: at what its provider counted, and whole if that did not count, or cannot be true. What the
    /// provider refused costs nothing.
    pub(super) fn ends(&self, ended: Result<Usage, FailureClass>) {
        match ended {
            Ok(usage) if self.is_counted(&usage) => {
                let tokens = usage.input_tokens.saturating_add(usage.output_tokens);
                let usd = self.price.cost(&usage).0;
                self.hold.settle(CallUsage::Known { usd, tokens });
            }
            Err(class) if class.is_free() => self.hold.release(),
            Ok(_) | Err(_) => self.hold.settle(CallUsage::Unknown),
        }
    }

    fn is_counted(&self, usage: &Usage) -> bool {
        let tokens = usage.input_tokens.saturating_add(usage.output_tokens);
        let believed = self.most.all().saturating_mul(BELIEVED_TIMES).saturating_add(BELIEVED_MORE);
        !usage.estimated && (1..=believed).contains(&tokens)
    }
}

fn unpriced(model: &ModelRef) -> ErrorBody {
    let what = profile::unpriced(model, "budget `cluster`");
    let lines = profile::price_lines(model);
    let message = format!("{what}; add to the configuration:\n{lines}");
    failed(ModelFailure::new(FailureClass::BudgetNotAllowed, message))
}

fn no_budget() -> ErrorBody {
    let what = format!(
        "the budget `cluster` had nothing left for this request within {} s",
        BUDGET_TIME.as_secs()
    );
    ErrorBody::new(ErrorCode::BudgetUnavailable, what)
        .hint("`clawnode budget show cluster` shows who has the rest")
}

/// As of any other call.
pub(super) fn failed(failure: ModelFailure) -> ErrorBody {
    let (code, message) = (failure.code(), failure.message.clone());
    TurnOutcome::from(failure).error().unwrap_or_else(|| ErrorBody::new(code, message))
}
