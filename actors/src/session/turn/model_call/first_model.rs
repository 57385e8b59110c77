//! Which model a call asks first: what its turn chose, else what the agent's routes say of its prompt and its
//! cost, else the agent's own. And which one its next attempt asks: a turn stays with the model that answered. Pure.
//!
//! Routes look at the whole conversation, and not at the request: within a turn it only grows, so the row
//! changes seldom, and a provider's cache stays useful. What a call was compared with is journaled.
//!
//! A model that does not take a setting of the turn is left out of its routes and of its chain. What a message or its
//! session chose, or the agent's own model where no row fits, stays: admission has judged it.

use clawnode_proto::{
    CallId,
    llm::{Message, ModelRef, Sampling},
    media::MediaKind,
    model_route::{InputKind, PromptFacts, RouteReason, RouteTaken, RouteView},
    session::{ModelBegun, Profile},
};

use super::super::{
    context::model_input::conversation,
    context::system_prompt::tokens_of_system,
    state::{SessionState, Step, StepEnd, Turn},
};
use super::give_way::GaveWay;
use crate::{agent::AgentOptions, llm::profile::LongestReply};

/// The model that a call asks first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::session) struct Routed {
    pub(in crate::session) first: ModelRef,
    /// What routes decided; absent if there are none, or if the turn chose its model.
    pub(in crate::session) taken: Option<RouteTaken>,
}

// === impl Routed ===

impl Routed {
    /// The row that decided.
    pub(in crate::session) fn row(&self) -> Option<u32> {
        self.taken.as_ref()?.row
    }
}

// === impl Turn ===

impl Turn {
    /// The call that is under way, or the next one.
    pub(in crate::session::turn) fn next_call(&self) -> CallId {
        match self.steps.last() {
            Some(Step { call, end: None, .. }) => *call,
            _ => self.call_at(self.steps.len()),
        }
    }

    /// The model that its next attempt asks: it stays with the one that answered last, until that one
    /// gives way or another row of the routes decides.
    pub(in crate::session) fn model_of<'a>(
        &self,
        call: CallId,
        chain: &'a [ModelRef],
        row: Option<u32>,
    ) -> Option<&'a ModelRef> {
        let is_done = |step: &&Step| matches!(step.end, Some(StepEnd::Done { .. }));
        let answered = self.steps.iter().rev().find(is_done).filter(|step| step.route == row);
        let answered = answered.and_then(|step| step.model.as_ref());
        let answered = chain.iter().filter(|model| answered == Some(*model));
        let in_order = answered.chain(chain);
        let step = self.steps.iter().find(|step| step.call == call);
        match step.and_then(|step| step.gave_way.as_ref()) {
            Some(gave_way) => gave_way.next(in_order).or(chain.first()),
            None => in_order.into_iter().next(),
        }
    }

    /// The settings that a model has to take to answer any call of it: its own, else those of its agent.
    pub(in crate::session::turn) fn settings(&self, agent: &Sampling) -> Sampling {
        let stop = if self.sampling.stop.is_empty() { &agent.stop } else { &self.sampling.stop };
        Sampling { stop: stop.clone(), ..self.sampling.clone() }
    }

    /// Whether another model of the chain can be asked if the one of `profile` does not answer.
    pub(in crate::session) fn has_other(&self, call: CallId, profile: &Profile) -> bool {
        let others = profile.chain.iter().filter(|model| **model != profile.model);
        let step = self.steps.iter().find(|step| step.call == call);
        let gave_way = GaveWay::of(step);
        gave_way.next(others).is_some()
    }
}

// === impl SessionState ===

impl SessionState {
    /// The model that the next call of this turn asks first.
    pub(in crate::session) fn routed(&self, turn: &Turn, options: &AgentOptions) -> Routed {
        let is_allowed = |model: &&ModelRef| !turn.model_is_kept || options.allows(model);
        if let Some(chosen) = turn.model.as_ref().filter(is_allowed) {
            return Routed { first: chosen.clone(), taken: None };
        }
        if options.routes.is_empty() || turn.plan.is_some() {
            return Routed { first: options.model.clone(), taken: None };
        }
        let taken = RouteTaken::by(&options.routes, self.prompt(Some(turn), options));
        let first = taken.model(&options.routes).unwrap_or(&options.model).clone();
        Routed { first, taken: Some(taken) }
    }

    /// What routes look at: all that was said, and what waits to join this turn.
    fn prompt(&self, turn: Option<&Turn>, options: &AgentOptions) -> PromptFacts {
        let more = turn.and_then(|turn| turn.system.as_deref());
        let tokens = tokens_of_system(&options.system_with_skills(), more);
        let mut facts = PromptFacts { tokens, ..PromptFacts::default() };
        let mut kinds = Vec::new();
        for (messages, tokens) in conversation(self, turn) {
            facts.tokens = facts.tokens.saturating_add(tokens);
            kinds.extend(messages.iter().flat_map(media_kinds));
        }
        let all = InputKind::ALL.into_iter().filter_map(InputKind::media);
        facts.media = all.filter(|kind| kinds.contains(kind)).collect();
        let chosen = turn.map(|turn| &turn.sampling);
        let max_tokens =
            chosen.and_then(|choice| choice.max_tokens).or(options.sampling.max_tokens);
        let reasoning = chosen.and_then(|choice| choice.reasoning).or(options.sampling.reasoning);
        let longest = LongestReply { max_tokens, reasoning };
        facts.costs = options.profiles.route_costs(&options.routes, facts.tokens, longest);
        let settings = settings_of(turn, options);
        facts.refusals = options.profiles.route_refusals(&options.routes, &settings);
        facts
    }

    /// The model that its next call asks, and why.
    pub(in crate::session) fn route_view(&self, options: &AgentOptions) -> RouteView {
        let AgentOptions { name, model, fallback, routes, .. } = options;
        let turn = self.running();
        let prompt = self.prompt(turn, options);
        let mut view = RouteView::of(name.clone(), model, fallback, routes, prompt);
        let settings = settings_of(turn, options);
        view.fallback.retain(|other| options.profiles.refused(other, &settings).is_none());
        let Some(turn) = turn else {
            let Some(kept) = self.kept.model.as_ref().filter(|model| options.allows(model)) else {
                return view;
            };
            let mut fallback = options.chain_with(kept, &settings);
            fallback.remove(0);
            return RouteView {
                model: kept.clone(),
                reason: RouteReason::Session,
                fallback,
                ..view
            };
        };
        let routed = self.routed(turn, options);
        let chain = options.chain_with(&routed.first, &settings);
        let asked = turn.model_of(turn.next_call(), &chain, routed.row());
        let model = asked.unwrap_or(&routed.first).clone();
        let reason = if turn.plan.is_some() {
            RouteReason::Plan
        } else if model != routed.first {
            RouteReason::Fallback
        } else if turn.model.as_ref() == Some(&model) {
            if turn.model_is_kept { RouteReason::Session } else { RouteReason::Message }
        } else {
            view.reason
        };
        let fallback = chain.into_iter().filter(|other| *other != model).collect();
        RouteView { model, reason, fallback, ..view }
    }
}

/// The settings of a turn, or of one that would begin now.
fn settings_of(turn: Option<&Turn>, options: &AgentOptions) -> Sampling {
    let agent = &options.sampling;
    turn.map_or_else(|| agent.clone(), |turn| turn.settings(agent))
}

/// Whether the journal's configuration decides about a call as the journal says.
pub(in crate::session::turn) fn is_by_routes(profile: &Profile, begun: &ModelBegun) -> bool {
    let Some(taken) = &begun.route else { return true };
    let again = RouteTaken::by(&profile.routes, taken.prompt.clone());
    let first = profile.chain.first().unwrap_or(&profile.model);
    again == *taken && taken.model(&profile.routes).is_none_or(|model| model == first)
}

/// The kinds of all that is attached to a message.
fn media_kinds(message: &Message) -> impl Iterator<Item = MediaKind> {
    let given = message.tool_replies.iter().flat_map(|reply| &reply.media);
    message.attachments.iter().chain(given).map(|media| media.media_type.kind())
}
