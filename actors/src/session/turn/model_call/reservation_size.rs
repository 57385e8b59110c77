//! What the next attempt at a model call can cost at most, and what is reserved for it. Pure.
//!
//! Nothing is guessed from averages: a request has at most the tokens that its provider reported of the last one it begins
//! with, and one for each byte since. What the model writes has a cap, which is always sent where a limit holds.
//!
//! Invariant
//! - BUD-1 under a limit no call is sent before the append that has its hold: `budget_held` goes into the
//!   append of its `model_begun`.

use std::sync::Arc;

use clawnode_budget::holder::{AccountLimits, CallCost, CallNeeds, Need};
use clawnode_proto::{
    Attempt, CallId,
    budget::{AccountKey, BudgetHeld, BudgetUnit, SpendLimits},
    hook::HookPoint,
    lane::Lane,
    limits::TOOL_RESULT_CHARS,
    llm::{FailureClass, Message, ModelFailure, ModelRef},
    media::{Media, MediaKind},
    model::ModelPrice,
    reasoning::Reasoning,
    session::{Profile, TurnOutcome},
    tool::ToolSpec,
};

use super::super::{
    context::model_input::{Assembled, joining, shown_later},
    effect::{Want, WantedHold},
    state::{SessionState, Turn},
    state_parts::settled_cost::{MeasuredPrefix, tokens},
};
use super::first_model::Routed;
use crate::{
    agent::{CallBill, CallTerms, Grant},
    llm::profile::{self, CallPrice},
};

/// With less output than this, a call is of no use: its turn ends instead.
const LEAST_OUTPUT: u64 = 256;
/// Tokens that providers add to a request: what they tell the model of tools and schemas. The most that
/// one of them documents is 804.
const REQUEST_MOST: u64 = 1_024;
/// Of that, what may change between two requests that begin alike: another choice of tools.
const CHANGE_MOST: u64 = 256;
/// Tokens of a message, a tool, a call of it or its result, beside the text.
const PART_MOST: u64 = 32;
/// Tokens of a picture. Anthropic's newest models count up to 4,784, `OpenAI`'s up to 3,779 (with the factor
/// of `gpt-4.1-nano`), Gemini 2,240, or 258 for each of a few tiles.
const PICTURE_MOST: u64 = 6_000;
/// The same for models that multiply them: `gpt-4o-mini` counts 2,833 and 5,667 for each of at most 8 tiles.
const PICTURE_MOST_MINI: u64 = 50_000;
/// Tokens for a byte of a document, beside one page: text in it is compressed, and pages are pictures, too.
const DOCUMENT_MOST: u64 = 4;
/// Bytes of sound of one token: Gemini counts 32 a second, and speech has 750 bytes a second at least.
const SOUND_BYTES: u64 = 16;

/// The next attempt at a call, as it would be made now.
#[derive(Debug, PartialEq)]
pub(in crate::session::turn) struct NextCall {
    pub(in crate::session::turn) call: CallId,
    pub(in crate::session::turn) attempt: Attempt,
    pub(in crate::session::turn) routed: Routed,
    pub(in crate::session::turn) profile: Arc<Profile>,
    /// With what hooks changed of it, if they have judged it.
    pub(in crate::session::turn) request: Assembled,
    /// Hooks have to judge it first.
    pub(in crate::session::turn) waits_for_hooks: bool,
    /// What has to be left for its turn when it has ended: what the call that follows it can need.
    pub(in crate::session::turn) leaves: Vec<CallTerms>,
}

/// What follows from limits for the next attempt at a call.
pub(in crate::session::turn) enum BudgetVerdict {
    /// Nothing limits it.
    Free,
    /// It may not be made, and its turn ends.
    Refused(TurnOutcome),
    /// It may cost so much at most.
    Held(CallTerms),
}

/// Which model the next attempt at a call asks, and how.
pub(in crate::session::turn) fn asked(
    state: &SessionState,
    turn: &Turn,
    call: CallId,
    grant: &Grant,
) -> (Routed, Arc<Profile>) {
    let routed = state.routed(turn, &grant.options);
    let asked = |chain: &[ModelRef]| turn.model_of(call, chain, routed.row()).cloned();
    let settings = turn.settings(&grant.options.sampling);
    let profile = grant.profile_with(Some(&routed.first), &settings, asked);
    (routed, grant.placed(profile))
}

pub(in crate::session::turn) fn attempt(turn: &Turn, call: CallId) -> Attempt {
    let step = turn.steps.iter().find(|step| step.call == call).map(|step| step.attempt);
    let summary = || {
        turn.compaction
            .as_ref()
            .filter(|compaction| compaction.call == call)
            .map(|compaction| compaction.attempt)
    };
    step.or_else(summary).map_or(Attempt(1), Attempt::next)
}

// === what is reserved ===

/// Whether the next attempt at a call may have to reserve something beside what it was granted.
pub(in crate::session::turn) fn may_want(
    state: &SessionState,
    turn: &Turn,
    call: CallId,
    grant: &Grant,
) -> bool {
    let has = || grant.hold.is_some() && terms_of(turn, call, grant).is_some();
    turn.plan.is_none() && !accounts(state, grant).is_empty() && !has()
}

/// What the next attempt at a call has to reserve. One that is refused begins, and ends its turn.
pub(in crate::session::turn) fn want(
    state: &SessionState,
    turn: &Turn,
    next: &NextCall,
    grant: &Grant,
) -> Option<Want> {
    // Those for which something else was reserved are over.
    let grant = Grant { terms: None, hold: None, ..grant.clone() };
    let BudgetVerdict::Held(terms) = verdict(state, turn, next, &grant) else { return None };
    let needs = needs(&accounts(state, &grant), &terms, &next.leaves, grant.permit.lane());
    let grant = Grant { terms: Some(Arc::new(terms)), ..grant.clone() };
    Some(Want::Hold(Box::new(WantedHold { turn: turn.id, call: next.call, grant, needs })))
}

/// Tokens that the next attempt at a call reads at most, and what it reserves, whether or not that is to be had.
pub(in crate::session::turn) fn expected(
    state: &SessionState,
    turn: &Turn,
    next: &NextCall,
    grant: &Grant,
) -> (u64, CallNeeds) {
    let terms = unlimited(state, turn, next, grant);
    let terms = within(state, turn, next, terms.clone()).unwrap_or(terms);
    (terms.input, needs(&accounts(state, grant), &terms, &next.leaves, grant.permit.lane()))
}

/// The most that the next attempt at a call can use, whatever limits say.
fn unlimited(state: &SessionState, turn: &Turn, next: &NextCall, grant: &Grant) -> CallTerms {
    let price = grant.options.profiles.call_price(&next.request.model);
    terms(state, turn, next, grant, price.held())
}

/// What a call before this one has to leave for it, if `text` more bytes may join its request. With `is_sure`, also if
/// limits of the turn and the session do not allow it by now.
pub(in crate::session::turn) fn left_for(
    state: &SessionState,
    turn: &Turn,
    next: &NextCall,
    grant: &Grant,
    text: u64,
    is_sure: bool,
) -> Option<CallTerms> {
    let terms = unlimited(state, turn, next, grant);
    let is_allowed = is_sure || within(state, turn, next, terms.clone()).is_ok();
    let input = terms.input.saturating_add(text);
    is_allowed.then_some(CallTerms { input, ..terms })
}

/// Whether anything limits the calls of a session.
pub(in crate::session::turn) fn is_limited(state: &SessionState, grant: &Grant) -> bool {
    !grant.profile.limits.is_none() || !accounts(state, grant).is_empty()
}

/// What limits make of the next attempt at a call.
pub(in crate::session::turn) fn verdict(
    state: &SessionState,
    turn: &Turn,
    next: &NextCall,
    grant: &Grant,
) -> BudgetVerdict {
    let limits = next.profile.limits;
    let accounts = accounts(state, grant);
    if accounts.is_empty() && limits.is_none() {
        return BudgetVerdict::Free;
    }
    if let Some(terms) = terms_of(turn, next.call, grant).filter(|_| grant.hold.is_some()) {
        return BudgetVerdict::Held(terms.clone());
    }
    let price = grant.options.profiles.call_price(&next.request.model);
    if matches!(price, CallPrice::Unknown(_)) {
        let in_money = accounts.iter().find(|(_, limits)| limits.has_money_of_person());
        let account = in_money.map(|(key, _)| format!("budget `{key}`"));
        let own = || limits.has_money().then(|| format!("agent `{}`", next.profile.agent));
        if let Some(limited) = account.or_else(own) {
            return BudgetVerdict::Refused(unpriced(&next.request.model, &limited));
        }
    }
    let terms = terms(state, turn, next, grant, price.held());
    match within(state, turn, next, terms) {
        Ok(terms) => BudgetVerdict::Held(terms),
        Err(outcome) => BudgetVerdict::Refused(outcome),
    }
}

/// What was reserved for the next attempt at a call, unless another request would be made by now.
fn terms_of<'a>(turn: &Turn, call: CallId, grant: &'a Grant) -> Option<&'a CallTerms> {
    let terms = grant.terms.as_deref()?;
    let joining = turn.joining().len();
    let now = (call, attempt(turn, call), joining);
    ((terms.call, terms.attempt, terms.joining) == now).then_some(terms)
}

/// What the journal says of a call that begins by these terms.
pub(in crate::session::turn) fn held(terms: &CallTerms, grant: &Grant) -> BudgetHeld {
    let hold = grant.hold.as_ref();
    BudgetHeld {
        call: terms.call,
        attempt: terms.attempt,
        process: grant.process,
        model: terms.model.clone(),
        price: terms.price,
        input: terms.input,
        max_output: hold.map_or(terms.output, |hold| hold.output),
        holds: hold.map_or_else(Vec::new, |hold| hold.holds.clone()),
    }
}

/// What a call that is granted so has to settle.
pub(in crate::session::turn) fn bill(held: &BudgetHeld, grant: &Grant) -> CallBill {
    let BudgetHeld { price, input, max_output, .. } = *held;
    CallBill { hold: grant.hold.clone(), price, input, max_output }
}

/// A request with the cap on output that was paid for.
pub(in crate::session::turn) fn capped(
    mut request: Assembled,
    max_output: Option<u64>,
) -> Assembled {
    if let Some(max_output) = max_output {
        let cap = max_output.saturating_sub(thoughts(&request));
        request.sampling.max_tokens = Some(u32::try_from(cap).unwrap_or(u32::MAX));
    }
    request
}

/// The accounts that limit calls of a session.
fn accounts<'a>(state: &SessionState, grant: &'a Grant) -> Vec<(AccountKey, &'a AccountLimits)> {
    let view = &grant.accounts;
    let Some(key) = &state.key else { return Vec::new() };
    if view.accounts.is_empty() && view.each_user.is_none() {
        return Vec::new();
    }
    view.of_call(&key.agent, &AccountKey::of_user(key), grant.permit.lane())
}

fn needs(
    accounts: &[(AccountKey, &AccountLimits)],
    terms: &CallTerms,
    leaves: &[CallTerms],
    lane: Lane,
) -> CallNeeds {
    let limits = accounts.iter().flat_map(|(account, limits)| {
        limits.of_lane(lane).map(move |limit| Need {
            account: account.clone(),
            limit,
            cost: cost(terms, limit.unit),
            beside: most_left(leaves, limit.unit),
        })
    });
    let needs = limits.collect();
    CallNeeds { needs, least_output: terms.least_output, most_output: terms.output }
}

/// What has to be left in a unit for one of these calls to be of use.
fn most_left(leaves: &[CallTerms], unit: BudgetUnit) -> u64 {
    leaves.iter().map(|tokens| cost(tokens, unit).at(tokens.least_output)).max().unwrap_or_default()
}

/// The most that a call costs in a unit.
fn cost(terms: &CallTerms, unit: BudgetUnit) -> CallCost {
    let CallTerms { price, input, .. } = terms;
    match unit {
        BudgetUnit::Usd => CallCost { fixed: price.most(*input, 0).0, per_million: price.output },
        BudgetUnit::Tokens => CallCost { fixed: *input, per_million: 1_000_000 },
        BudgetUnit::Loops => CallCost { fixed: 1, per_million: 0 },
    }
}

// === how large it is ===

fn terms(
    state: &SessionState,
    turn: &Turn,
    next: &NextCall,
    grant: &Grant,
    price: ModelPrice,
) -> CallTerms {
    let request = &next.request;
    let thoughts = thoughts(request);
    let unknown = profile::unknown_output(next.profile.window_tokens);
    let reply = request.sampling.max_tokens.map_or(unknown, u64::from);
    CallTerms {
        call: next.call,
        attempt: next.attempt,
        joining: turn.joining().len(),
        model: request.model.clone(),
        price,
        input: most_input(state, turn, next, grant),
        thoughts,
        output: thoughts.saturating_add(reply),
        least_output: thoughts.saturating_add(reply.min(LEAST_OUTPUT)),
    }
}

/// Tokens that the model may think beside the cap on its reply. Some wires count thoughts into the cap.
fn thoughts(request: &Assembled) -> u64 {
    request.sampling.reasoning.map_or(0, |reasoning: Reasoning| u64::from(reasoning.budget()))
}

/// Tokens that a request has at most.
fn most_input(state: &SessionState, turn: &Turn, next: &NextCall, grant: &Grant) -> u64 {
    let request = &next.request;
    let whole = whole(request);
    // The configuration that this call brings is not folded yet.
    let is_alike =
        state.profile.as_ref().is_some_and(|profile| begins_alike(profile, &next.profile));
    let prefix = state.prefix.as_ref().filter(|_| is_alike && !asks_hooks(&next.profile));
    let since = prefix.and_then(|prefix| {
        let added = added(state, turn, request, prefix)?;
        Some(prefix.tokens.saturating_add(added).saturating_add(CHANGE_MOST))
    });
    let most = since.map_or(whole, |since| since.min(whole));
    let profiles = &grant.options.profiles;
    let has_document = || request.messages.iter().flat_map(attached).any(is_document);
    if has_document() && !profiles.patterns(&request.model).is_empty() {
        // A longer request is refused.
        return most.min(u64::from(profiles.of(&request.model).window_tokens));
    }
    most
}

/// Whether hooks may change its requests.
pub(in crate::session::turn) fn asks_hooks(profile: &Profile) -> bool {
    profile.hooks.iter().any(|hook| hook.point == HookPoint::BeforeLlmCall)
}

/// Whether requests under two configurations begin alike, as far as those say.
pub(in crate::session::turn) fn begins_alike(one: &Profile, other: &Profile) -> bool {
    one.system == other.system
        && one.tools == other.tools
        && one.hooks == other.hooks
        && one.response_schema == other.response_schema
}

/// Tokens that all of a request has at most.
pub(in crate::session::turn) fn whole(request: &Assembled) -> u64 {
    let tools = request.tools.iter().map(|tool: &ToolSpec| {
        (tool.name.as_str().len() + tool.description.len() + tool.input_schema.len()) as u64
            + PART_MOST
    });
    let schema = request.response_schema.as_ref().map_or(0, |schema| schema.schema.len() as u64);
    let fixed = request.system_bytes() + schema + tools.sum::<u64>() + REQUEST_MOST;
    fixed.saturating_add(most_tokens(&request.model, &request.messages))
}

/// Tokens at most of the part of a request that a provider has not counted; nothing if the request does not begin
/// with that.
fn added(
    state: &SessionState,
    turn: &Turn,
    request: &Assembled,
    prefix: &MeasuredPrefix,
) -> Option<u64> {
    let is_longer = prefix.model == request.model
        && request.dropped_turns >= prefix.dropped_turns
        && request.closes_upto == turn.closes_upto
        && !request.left_out_attachments;
    if !is_longer {
        return None;
    }
    let counted = usize::try_from(prefix.messages).unwrap_or(usize::MAX);
    let most = |messages: &[Message], from: usize| {
        most_tokens(&request.model, messages.get(from..).unwrap_or_default())
    };
    let mut added = 0_u64;
    let mut from = counted;
    if prefix.turn != turn.id {
        let is_usual = |turn: &Turn| {
            turn.system.is_none() && turn.offer.is_none() && turn.response_schema.is_none()
        };
        let at = state.closed.iter().rposition(|one| one.id == prefix.turn)?;
        let since = state.closed.get(at..)?;
        if !is_usual(turn) || !since.first().is_some_and(is_usual) {
            return None;
        }
        for one in since {
            // What was refused is not shown any more: other messages are in those places.
            let is_changed = one.steps.iter().any(|step| step.refused.is_some());
            let messages = shown_later(one);
            let had_more = !one.skills.is_empty() || one.recalled.is_some();
            let is_changed = is_changed || had_more || messages.len() != one.messages().len();
            added = added.saturating_add(most(&messages, if is_changed { 0 } else { from }));
            from = 0;
        }
    }
    added = added.saturating_add(most(&turn.messages_running(), from));
    let joining = turn.joining().iter().map(|(_, steer)| joining(steer));
    let joining: Vec<Message> = joining.chain(turn.nudge(&request.tools)).collect();
    Some(added.saturating_add(most(&joining, 0)))
}

/// Tokens that messages have at most: no tokenizer makes more than one of a byte.
fn most_tokens(model: &ModelRef, messages: &[Message]) -> u64 {
    let result_most = (TOOL_RESULT_CHARS as u64) * 4 + PART_MOST;
    let size = |one: &Message| {
        let uses = one.tool_uses.iter().map(|tool_use| {
            (tool_use.id.len() + tool_use.name.len() + tool_use.arguments.len()) as u64 + PART_MOST
        });
        let replies = one.tool_replies.iter().map(|reply| {
            reply.id.len() as u64 + reply.content.bytes().min(result_most) + PART_MOST
        });
        let beside = one.blocks.as_ref().map_or(0, clawnode_proto::block::Blocks::bytes);
        let media = attached(one).map(|media| most_of_media(model, media));
        let parts = uses.chain(replies).chain(media).fold(0_u64, u64::saturating_add);
        PART_MOST + one.content.bytes().saturating_add(beside).saturating_add(parts)
    };
    messages.iter().map(size).fold(0, u64::saturating_add)
}

/// Tokens of an attachment at most, as the dearest wire counts it.
fn most_of_media(model: &ModelRef, media: &Media) -> u64 {
    let named = media.name.as_ref().map_or(0, String::len) as u64 + PART_MOST;
    let tokens = match media.media_type.kind() {
        MediaKind::Image if model.model.contains("4o-mini") => PICTURE_MOST_MINI,
        MediaKind::Image => PICTURE_MOST,
        MediaKind::Document => media.bytes.saturating_mul(DOCUMENT_MOST) + PICTURE_MOST,
        MediaKind::Audio => media.bytes / SOUND_BYTES,
    };
    tokens.saturating_add(named)
}

/// All that is attached to a message.
fn attached(message: &Message) -> impl Iterator<Item = &Media> {
    let given = message.tool_replies.iter().flat_map(|reply| &reply.media);
    message.attachments.iter().chain(given)
}

fn is_document(media: &Media) -> bool {
    media.media_type.kind() == MediaKind::Document
}

// === limits of the turn and the session ===

/// The terms with the cap on output that the limits of the turn and the session leave, or how the turn ends.
fn within(
    state: &SessionState,
    turn: &Turn,
    next: &NextCall,
    mut terms: CallTerms,
) -> Result<CallTerms, TurnOutcome> {
    let limits = next.profile.limits;
    if limits.is_none() {
        return Ok(terms);
    }
    let (of_turn, reported) = (turn.spending(), tokens(&turn.reported()));
    let turn_tokens = reported.saturating_add(of_turn.unreported_tokens);
    let before = tokens(&state.usage).saturating_add(state.spent.unreported_tokens);
    let session_usd = state.spent.usd.0.saturating_add(of_turn.usd.0);
    let (turn_name, session_name) = (SpendLimits::TURN, SpendLimits::SESSION);
    let (usd, of_tokens) = (BudgetUnit::Usd, BudgetUnit::Tokens);
    for (account, unit, limit, used) in [
        (turn_name, usd, limits.turn_usd.map(|amount| amount.0), of_turn.usd.0),
        (turn_name, of_tokens, limits.turn_tokens, turn_tokens),
        (session_name, usd, limits.session_usd.map(|amount| amount.0), session_usd),
        (session_name, of_tokens, limits.session_tokens, before.saturating_add(turn_tokens)),
    ] {
        let Some(limit) = limit else { continue };
        let cost = cost(&terms, unit);
        let beside = most_left(&next.leaves, unit);
        let room = limit.saturating_sub(used).checked_sub(beside);
        let output =
            room.and_then(|room| cost.output_for(room)).map(|tokens| tokens.min(terms.output));
        let Some(output) = output.filter(|output| *output >= terms.least_output) else {
            let needed = cost.at(terms.least_output).saturating_add(beside);
            let account = account.to_owned();
            let window = None;
            return Err(TurnOutcome::Bankrupt { account, unit, used, limit, needed, window });
        };
        terms.output = output;
    }
    Ok(terms)
}

/// How a turn ends whose model has no price, under a limit in money of this account or agent.
fn unpriced(model: &ModelRef, limited: &str) -> TurnOutcome {
    let (what, lines) = (profile::unpriced(model, limited), profile::price_lines(model));
    let message = format!("{what}; add to the configuration:\n{lines}");
    TurnOutcome::Failed { failure: ModelFailure::new(FailureClass::BudgetNotAllowed, message) }
}
