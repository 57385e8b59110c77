//! Which turns a session's state keeps. Pure.
//!
//! Under the rules of context of version 1 a request may show any turn, so the state keeps all of them. A session would
//! cost more the older it is. Under later rules older turns leave the state when a turn is settled: no call is under way
//! then, and each attempt at a call is shown the same. They are in the journal's archives, where readers find them
//! (`clients/archived_turns`). An owner never needs them.
//!
//! - Under version 2 the last 16 turns stay.
//! - Under version 3 the turns stay that the last request showed, because what was left out stays left out. By default
//!   the first ones leave once the history is long for any model (CTX-3): until then, a request to a model with a larger
//!   window may show them again. A history of which turns have left is bounded from then on.
//!
//! Turns leave in blocks, so that the requests between two blocks begin alike (CACHE-1).

use clawnode_proto::{
    CallId, TimerId, TurnId,
    block::Blocks,
    client_tool::ClientTool,
    context::{ContextMode, ContextRules, ContextSettings},
    limits::{KEPT_RECENT_TURNS, KEPT_TURN_BYTES},
    llm::{Role, Text},
    session::ToolEnd,
};
use serde::{Deserialize, Serialize};

use super::{
    context::bounded::most_kept,
    state::{SessionState, Step, StepEnd, Turn},
    tools::tool_calls::ToolCall,
};

/// The part of the room that one block frees: one in so many.
const BLOCK_SHARE: usize = 4;
/// The part of the room for text that a history fills which is long for any model: one in so many. 30,000 tokens of
/// prose have no more than that.
const LONG_SHARE: usize = 2;
/// Bytes of the first message that stay for a title.
const OPENING_BYTES: usize = 1_024;

/// What a state knows of the turns that left it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EarlierTurns {
    /// How many they are.
    pub turns: u64,
    /// The conversation that the session began with left it, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub seed: bool,
    /// The beginning of the session's first message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opening: Option<Text>,
    /// Where a reader of the past collects them. An owner does not.
    #[serde(skip)]
    shelf: Option<Vec<Turn>>,
}

/// How much a state keeps of turns that have ended.
#[derive(Clone, Copy, Debug)]
struct Room {
    turns: usize,
    bytes: usize,
}

// === impl EarlierTurns ===

impl EarlierTurns {
    /// Every turn is in the state.
    pub(super) const fn is_none(&self) -> bool {
        self.turns == 0
    }

    /// How many turns a request leaves out because the state does not have them. What the session began with counts
    /// as one.
    pub(super) fn left_out(&self) -> usize {
        usize::try_from(self.turns).unwrap_or(usize::MAX).saturating_add(usize::from(self.seed))
    }

    fn shelf(&self) -> &[Turn] {
        self.shelf.as_deref().unwrap_or_default()
    }
}

// === impl Room ===

impl Room {
    /// What a state may keep.
    fn most(rules: ContextRules) -> Self {
        let turns = most_kept(rules);
        #[cfg(feature = "test-util")]
        let turns = clawnode_kernel::fewer_kept_turns::few().unwrap_or(turns);
        Self { turns, bytes: KEPT_TURN_BYTES }
    }

    /// What stays after a block went.
    const fn without_block(self) -> Self {
        let Self { turns, bytes } = self;
        Self { turns: turns - turns / BLOCK_SHARE, bytes: bytes - bytes / BLOCK_SHARE }
    }

    /// How many of the newest turns it has room for; the last one always stays.
    fn holds(self, closed: &[Turn]) -> usize {
        let mut bytes = 0_usize;
        let newest = closed.iter().rev().take(self.turns);
        let fits = newest.take_while(|turn| {
            bytes = bytes.saturating_add(turn.bytes());
            bytes <= self.bytes
        });
        fits.count().max(1)
    }

    /// How many of the oldest turns have to go, for which it has no room.
    fn over(self, closed: &[Turn]) -> usize {
        if closed.len() <= self.holds(closed) {
            return 0;
        }
        closed.len().saturating_sub(self.without_block().holds(closed))
    }
}

// === impl SessionState ===

impl SessionState {
    /// All turns that it has, oldest first: also those that it collects for a reader.
    pub fn turns(&self) -> impl DoubleEndedIterator<Item = &Turn> {
        self.earlier.shelf().iter().chain(&self.closed).chain(&self.open)
    }

    /// How many turns there have been.
    pub fn turn_count(&self) -> u64 {
        let here = self.closed.len().saturating_add(self.open.len());
        self.earlier.turns.saturating_add(u64::try_from(here).unwrap_or(u64::MAX))
    }

    /// Whether [`turns`](Self::turns) are all that there have been.
    pub fn has_all_turns(&self) -> bool {
        self.earlier.turns == u64::try_from(self.earlier.shelf().len()).unwrap_or(u64::MAX)
    }

    /// The turn with this number, from 1, if it has it.
    pub fn turn_at(&self, number: u64) -> Option<&Turn> {
        let kept_turns = u64::try_from(self.earlier.shelf().len()).unwrap_or(u64::MAX);
        let left = self.earlier.turns.saturating_sub(kept_turns);
        let at = number.checked_sub(1)?.checked_sub(left)?;
        self.turns().nth(usize::try_from(at).ok()?)
    }

    /// The turn with this id, or that the input with this turn id joined.
    pub fn turn(&self, id: TurnId) -> Option<&Turn> {
        let is = |turn: &&Turn| turn.id == id || turn.joined.contains(&id);
        self.open.iter().find(is).or_else(|| self.turns().rev().find(is))
    }

    /// The turn that has this tool call, and the place of its model call.
    pub fn place_of_call(&self, call: CallId) -> Option<(&Turn, usize)> {
        self.turns().rev().find_map(|turn| {
            let has = |step: &Step| step.tools.iter().any(|tool| tool.call == call);
            Some((turn, turn.steps.iter().position(has)?))
        })
    }

    /// The only turn of a session of a request that names no user, if it has ended. One that was gone
    /// on with is a conversation, and stays.
    pub fn rest_timer(&self) -> Option<TimerId> {
        self.key.as_ref().filter(|key| key.is_stateless())?;
        let [only] = self.closed.as_slice() else { return None };
        (self.open.is_empty() && self.earlier.is_none()).then(|| TimerId::of_rest(only.timers()))
    }

    /// The first message of the session, or its beginning.
    pub(in crate::session) fn opening(&self) -> Option<&Text> {
        let seeded = self.seed.iter().find(|message| message.role == Role::User);
        let turn = self.closed.first().or_else(|| self.open.front());
        let said = || turn.and_then(|turn| turn.said.first()).map(|(_, text)| text);
        let first = || seeded.map(|message| &message.content).or_else(said);
        self.earlier.opening.as_ref().or_else(first)
    }

    /// Collects the turns that leave it from now on, for a reader of the past.
    pub(in crate::session) fn collect_turns(&mut self) {
        self.earlier.shelf.get_or_insert_default();
    }

    /// The turns that were collected, to keep some of them.
    pub(in crate::session) fn collected(&mut self) -> Option<&mut Vec<Turn>> {
        self.earlier.shelf.as_mut()
    }

    /// Lets the oldest turns go that no request needs, if the rules allow it and no call is under way. A turn stays
    /// until its end is published.
    pub(super) fn prune(&mut self) {
        let settings = self.profile.as_ref().and_then(|profile| profile.context);
        let Some(settings) = settings else { return };
        if self.open.front().is_some_and(Turn::has_begun) {
            return;
        }
        let older = Room::most(settings.rules).over(&self.closed).max(self.unshown(&settings));
        let is_over =
            |turn: &&Turn| !self.unemitted.contains(&turn.id) && !self.feedback.waits_for(turn.id);
        #[cfg(feature = "test-util")]
        let is_over = |turn: &&Turn| {
            is_over(turn) || clawnode_kernel::KernelBug::PrunesUnpublished.is_in_folds()
        };
        let going = self.closed.iter().take(older).take_while(is_over).count();
        if going == 0 {
            return;
        }
        if self.earlier.opening.is_none() {
            self.earlier.opening = self.opening().map(beginning);
        }
        self.earlier.seed |= !std::mem::take(&mut self.seed).is_empty();
        let gone = self.closed.drain(..going);
        self.earlier.turns = self.earlier.turns.saturating_add(gone.len() as u64);
        if let Some(shelf) = &mut self.earlier.shelf {
            shelf.extend(gone);
        } else {
            drop(gone);
        }
        let closed = &self.closed;
        self.reflections.keep_those(|id| closed.iter().any(|turn| turn.id == id));
    }

    /// How many of the oldest turns here no request shows any more: the last one left them out.
    fn unshown(&self, settings: &ContextSettings) -> usize {
        if settings.rules < ContextRules::V3 {
            return 0;
        }
        let may_be_short = settings.mode == ContextMode::Auto && self.earlier.is_none();
        let size = || self.closed.iter().map(Turn::bytes).sum::<usize>();
        if may_be_short && size() < KEPT_TURN_BYTES / LONG_SHARE {
            return 0;
        }
        let left_out = self.left_out.as_ref().zip(self.profile.as_ref());
        let left_out = left_out.map_or(0, |(left_out, profile)| left_out.under(profile));
        let beside = self.earlier.left_out().saturating_add(usize::from(!self.seed.is_empty()));
        let unshown = usize::try_from(left_out).unwrap_or(usize::MAX).saturating_sub(beside);
        unshown.min(self.closed.len().saturating_sub(KEPT_RECENT_TURNS))
    }
}

// === impl Turn ===

impl Turn {
    /// Whether its first call was judged, paid for or made.
    fn has_begun(&self) -> bool {
        let is_asked = self.compaction.is_some();
        is_asked || !self.steps.is_empty() || self.judged.is_some() || self.held.is_some()
    }

    /// Bytes of its text, without what is in the blob store.
    fn bytes(&self) -> usize {
        let said: usize = self.said.iter().map(|(_, text)| inline(text)).sum();
        let steps: usize = self.steps.iter().map(Step::bytes).sum();
        let offered: usize = self.offer.tools.iter().map(ClientTool::bytes).sum();
        let schema = self.response_schema.as_ref().map_or(0, |schema| schema.schema.len());
        let beside = self.system.iter().chain(&self.structured).map(String::len).sum::<usize>();
        [said, steps, offered, schema, beside].into_iter().fold(0, usize::saturating_add)
    }
}

impl Step {
    fn bytes(&self) -> usize {
        let end = match &self.end {
            Some(StepEnd::Done { content, blocks, .. }) => {
                let beside = blocks.iter().flat_map(Blocks::texts);
                inline(content) + beside.map(inline).sum::<usize>()
            }
            Some(StepEnd::Failed { partial, .. }) => inline(partial),
            None => 0,
        };
        let refused = self.refused.as_ref().map_or(0, String::len);
        end + refused + self.tools.iter().map(ToolCall::bytes).sum::<usize>()
    }
}

impl ToolCall {
    fn bytes(&self) -> usize {
        let result = match &self.end {
            Some(ToolEnd::Known { outcome }) => inline(&outcome.content),
            Some(ToolEnd::Uncertain { detail }) => detail.len(),
            None => 0,
        };
        result + self.using.name.len() + self.using.arguments.len()
    }
}

fn inline(text: &Text) -> usize {
    text.inline().map_or(0, str::len)
}

/// As much of a first message as a title needs.
fn beginning(text: &Text) -> Text {
    match text {
        Text::Inline { text } => {
            let text = text.trim_start();
            Text::from(text.get(..text.floor_char_boundary(OPENING_BYTES)).unwrap_or_default())
        }
        Text::Blob { .. } => text.clone(),
    }
}
