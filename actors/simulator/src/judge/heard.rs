//! What a session's senders said, and what its models were shown of that.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use clawnode_proto::{
    CallId, EntityId, Order, TurnId,
    llm::{FailureClass, Message, Role},
    response::ResponseSchema,
    session::{SessionInput, TurnOutcome, UserMessage},
};

use crate::{JudgeViolation, book::Checked};

/// One model call, as its provider sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShownCall<'a> {
    pub(crate) turn: TurnId,
    pub(crate) call: CallId,
    pub(crate) messages: &'a [Message],
    /// What its reply has to fit.
    pub(crate) schema: Option<&'a ResponseSchema>,
    /// Whether older turns were left out.
    pub(crate) cut: bool,
}

/// What became of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TextFate {
    #[default]
    Waits,
    /// New in this turn.
    New(TurnId),
    /// Told as past only: its turn ended before a model was called.
    Past,
    /// Deleted after it was shown.
    Gone,
}

/// The text of a message.
#[derive(Debug)]
struct KnownText {
    place: u64,
    /// It may join a turn that runs.
    joins: bool,
    fate: TextFate,
    /// It need not be shown to any model.
    excused: bool,
    /// The journal that knew it was damaged and is gone: said again, it is new.
    forgotten: bool,
}

/// The messages that a session got, and what it showed.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is about something else that happened")]
pub(super) struct SessionTexts {
    texts: BTreeMap<TurnId, KnownText>,
    /// How each begins: no two alike.
    marks: BTreeMap<String, TurnId>,
    /// Those that wait, by their place.
    waiting: BTreeMap<u64, TurnId>,
    /// The places of those that are in the inbox: a text may be there more than once.
    inbox: BTreeMap<TurnId, VecDeque<u64>>,
    cancelled: BTreeSet<TurnId>,
    /// A turn that something joined was cancelled by that, or all were by a deletion.
    any_cancelled: bool,
    /// A turn ended early, with what had joined it for a call that its owner did not live to make.
    cut_short: bool,
    /// What each call was the first to show.
    calls: BTreeMap<CallId, Vec<TurnId>>,
    /// What was shown, in this order, since it was deleted.
    told: Vec<TurnId>,
    /// The place of the last message among those.
    last: u64,
    may_be_deleted: bool,
    damaged: bool,
}

/// The first word of a message.
fn mark(message: &UserMessage) -> Option<&str> {
    word(message.content.inline()?)
}

fn word(text: &str) -> Option<&str> {
    text.split(' ').next().filter(|word| word.starts_with('#'))
}

fn once(text: String) -> Checked {
    Err(JudgeViolation::new("MSG-1", text))
}

// === impl SessionTexts ===

impl SessionTexts {
    /// Something is in the inbox, at this place.
    pub(super) fn put(&mut self, turn: TurnId, place: u64, body: &SessionInput) {
        match body {
            SessionInput::UserMessage(message) => self.said(turn, place, message, false),
            SessionInput::Steer(message) => self.said(turn, place, message, true),
            SessionInput::Cancel { turn } => {
                self.cancelled.insert(*turn);
                self.any_cancelled |= self.texts.get(turn).is_some_and(|text| text.joins);
            }
            SessionInput::Delete => (self.may_be_deleted, self.any_cancelled) = (true, true),
            _ => {}
        }
    }

    /// Something is not in the inbox any more, once.
    pub(super) fn removed(&mut self, turn: TurnId) {
        if let Some(places) = self.inbox.get_mut(&turn) {
            places.pop_front();
        }
    }

    fn said(&mut self, turn: TurnId, place: u64, message: &UserMessage, joins: bool) {
        let Some(mark) = mark(message) else { return };
        self.inbox.entry(turn).or_default().push_back(place);
        // Said again, it is what it was.
        if let Some(text) = self.texts.get_mut(&turn) {
            if std::mem::take(&mut text.forgotten) {
                text.place = place;
                self.waiting.insert(place, turn);
            }
            return;
        }
        self.marks.insert(mark.to_owned(), turn);
        self.waiting.insert(place, turn);
        self.texts.insert(
            turn,
            KnownText { place, joins, fate: TextFate::Waits, excused: false, forgotten: false },
        );
    }

    pub(super) fn ordered(&mut self, order: Order) {
        self.may_be_deleted |= order == Order::Bury;
    }

    pub(super) fn refused(&mut self, turn: TurnId) {
        if let Some(text) = self.texts.get_mut(&turn) {
            text.excused = true;
        }
    }

    fn is_excused(&self, turn: TurnId) -> bool {
        let joined = |text: &KnownText| text.joins && self.cut_short;
        let excused = |text: &KnownText| text.excused || joined(text);
        self.cancelled.contains(&turn) || self.texts.get(&turn).is_some_and(excused)
    }

    /// A model is shown this.
    pub(super) fn shows(&mut self, shown: &ShownCall<'_>) -> Checked {
        if self.damaged {
            return Ok(());
        }
        let ShownCall { turn, call, messages, cut, .. } = *shown;
        let said = messages.iter().filter(|message| message.role == Role::User);
        let words = said.filter_map(|message| word(message.content.inline()?));
        let seen: Vec<TurnId> = words.filter_map(|mark| self.marks.get(mark).copied()).collect();
        if seen.iter().collect::<BTreeSet<_>>().len() < seen.len() {
            return once(format!("`{call}` shows a text twice"));
        }
        let Some(own) = seen.iter().position(|one| *one == turn) else {
            return once(format!("`{call}` does not show what its turn `{turn}` is about"));
        };
        let before = self.calls.get(&call);
        if let Some(lost) = before.and_then(|all| all.iter().find(|one| !seen.contains(one))) {
            return once(format!("`{call}` does not show `{lost}` when it is made again"));
        }
        let again = before.is_some();
        let mut new = Vec::new();
        for (at, one) in seen.iter().copied().enumerate() {
            let fate = self.texts.get(&one).map(|text| text.fate).unwrap_or_default();
            match fate {
                TextFate::Gone => {
                    let text = format!("`{call}` shows `{one}`, which was deleted");
                    return Err(JudgeViolation::new("MSG-4", text));
                }
                TextFate::Waits if at < own => self.passes(one)?,
                TextFate::Waits if !again => {
                    self.is_new(one, turn, call)?;
                    new.push(one);
                }
                TextFate::New(new_turn) if (new_turn == turn) == (at >= own) => {}
                TextFate::Past if at < own => {}
                TextFate::Waits | TextFate::New(_) | TextFate::Past => {
                    return once(format!("`{call}` of `{turn}` shows `{one}` ({fate:?})"));
                }
            }
        }
        self.calls.entry(call).or_insert(new);
        self.is_whole(call, &seen, cut)
    }

    /// A text is shown as past, and was never shown as new.
    fn passes(&mut self, turn: TurnId) -> Checked {
        if !self.is_excused(turn) {
            return once(format!("`{turn}` is shown as past, and was never new"));
        }
        if let Some(text) = self.texts.get_mut(&turn) {
            self.waiting.remove(&text.place);
            text.fate = TextFate::Past;
        }
        Ok(())
    }

    /// A text is shown as new: its turn's own in its first call, or one that joins a later one.
    fn is_new(&mut self, one: TurnId, turn: TurnId, call: CallId) -> Checked {
        let Some(text) = self.texts.get_mut(&one) else { return Ok(()) };
        let first = call.is_at(turn, 0);
        if first != (one == turn) || (!first && !text.joins) {
            return once(format!("`{one}` is new in a call of `{turn}`, where it does not belong"));
        }
        let place = text.place;
        let joins = text.joins;
        text.fate = TextFate::New(turn);
        self.waiting.remove(&place);
        let passed_by = self.waiting.range(..place).map(|(_, before)| *before);
        let passed_by = passed_by.filter(|_| !joins).find(|before| !self.is_excused(*before));
        if let Some(before) = passed_by {
            let text = format!("`{one}` is shown before `{before}`, which came first");
            return Err(JudgeViolation::new("MSG-2", text));
        }
        if place < self.last {
            let text = format!("`{one}` is shown after a message that came later");
            return Err(JudgeViolation::new("MSG-2", text));
        }
        if !joins {
            self.last = place;
        }
        self.told.push(one);
        Ok(())
    }

    /// What was shown before is shown in the same order, and only the oldest may be left out.
    fn is_whole(&self, call: CallId, seen: &[TurnId], cut: bool) -> Checked {
        let known: Vec<TurnId> = seen.iter().copied().filter(|one| !self.is_past(*one)).collect();
        if !self.told.ends_with(&known) || (!cut && known.len() < self.told.len()) {
            return once(format!("`{call}` does not show all that was said, as it was said"));
        }
        Ok(())
    }

    fn is_past(&self, turn: TurnId) -> bool {
        self.texts.get(&turn).is_some_and(|text| text.fate == TextFate::Past)
    }

    /// A turn's end is published.
    pub(super) fn ends(&mut self, turn: TurnId, outcome: &TurnOutcome) -> Checked {
        self.cut_short |= matches!(
            outcome,
            TurnOutcome::Cancelled | TurnOutcome::TimedOut { .. } | TurnOutcome::Stopped { .. }
        );
        let Some(text) = self.texts.get_mut(&turn) else { return Ok(()) };
        if text.fate != TextFate::Waits || self.damaged {
            return Ok(());
        }
        let may = match outcome {
            TurnOutcome::Cancelled => self.any_cancelled || self.cancelled.contains(&turn),
            // An owner that died had begun its call, and did not make it.
            TurnOutcome::TimedOut { .. } => true,
            TurnOutcome::Failed { failure } if failure.class == FailureClass::NoAgent => {
                text.excused
            }
            TurnOutcome::Blocked { .. } | TurnOutcome::Stopped { .. } => text.excused,
            _ => false,
        };
        text.excused |= may;
        if may {
            return Ok(());
        }
        let text = format!("`{turn}` ended ({}), and no model was shown it", outcome.name());
        Err(JudgeViolation::new("MSG-3", text))
    }

    pub(super) fn deleted(&mut self, entity: EntityId) -> Checked {
        if !self.may_be_deleted {
            let text = format!("`{entity}` is deleted without an order");
            return Err(JudgeViolation::new("MSG-4", text));
        }
        for (turn, text) in &mut self.texts {
            if self.damaged {
                // What only the damaged journal knew may come again. What is in the inbox now has its place there.
                let place = self.inbox.get(turn).and_then(VecDeque::front).copied();
                (text.fate, text.excused, text.forgotten) =
                    (TextFate::Waits, true, place.is_none());
                if let Some(place) = place {
                    self.waiting.remove(&text.place);
                    self.waiting.insert(place, *turn);
                    text.place = place;
                }
            } else if text.fate == TextFate::Waits {
                text.excused = true;
            } else {
                text.fate = TextFate::Gone;
            }
        }
        if std::mem::take(&mut self.damaged) {
            self.calls.clear();
        }
        self.told.clear();
        self.last = 0;
        Ok(())
    }

    pub(super) fn damaged(&mut self) {
        self.damaged = true;
    }

    pub(super) fn at_the_end(&self, entity: EntityId) -> Checked {
        // What was shown since its journal was damaged is not known.
        if self.damaged {
            return Ok(());
        }
        let waits = |turn: &&TurnId| !self.is_excused(**turn);
        match self.waiting.values().find(waits) {
            Some(turn) => {
                let text = format!("`{turn}` was accepted for `{entity}`, and no model saw it");
                Err(JudgeViolation::new("MSG-3", text))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{
        llm::{Message, ModelFailure, Text},
        timeout::TimeLevel,
    };

    use super::*;

    fn turn(n: u128) -> TurnId {
        TurnId::from_u128(n)
    }

    fn text(n: u128) -> String {
        format!("#{n} text")
    }

    /// A session that got messages 1 to 3, and then one that joins the running turn.
    fn told() -> SessionTexts {
        let mut heard = SessionTexts::default();
        for n in 1..=3 {
            let body = SessionInput::UserMessage(UserMessage::text(text(n)));
            heard.put(turn(n), u64::try_from(n).unwrap(), &body);
        }
        heard.put(turn(4), 4, &SessionInput::Steer(UserMessage::text(text(4))));
        heard
    }

    /// Call `step` of turn `of` shows these.
    fn shows(heard: &mut SessionTexts, number: u128, step: u32, texts: &[u128]) -> &'static str {
        let call = CallId::derive(turn(number), step);
        let messages: Vec<Message> =
            texts.iter().map(|n| Message::text(Role::User, Text::from(text(*n)))).collect();
        let shown =
            ShownCall { turn: turn(number), call, messages: &messages, schema: None, cut: false };
        heard.shows(&shown).err().map_or("", |violation| violation.name)
    }

    fn at_the_end(heard: &SessionTexts) -> &'static str {
        let entity = EntityId::from_u128(1);
        heard.at_the_end(entity).err().map_or("", |violation| violation.name)
    }

    #[test]
    fn what_is_shown_once_in_order_is_right() {
        let mut heard = told();
        assert_eq!(shows(&mut heard, 1, 0, &[1]), "");
        assert_eq!(shows(&mut heard, 1, 0, &[1]), "", "another attempt");
        assert_eq!(shows(&mut heard, 1, 1, &[1, 4]), "", "it joins, and comes first");
        assert_eq!(shows(&mut heard, 2, 0, &[1, 4, 2]), "");
        assert_eq!(at_the_end(&heard), "MSG-3");
        assert_eq!(shows(&mut heard, 3, 0, &[1, 4, 2, 3]), "");
        assert_eq!(at_the_end(&heard), "");
    }

    #[test]
    fn msg_1_nothing_is_new_twice_or_in_the_wrong_place() {
        assert_eq!(shows(&mut told(), 1, 0, &[1, 1]), "MSG-1");
        assert_eq!(shows(&mut told(), 1, 0, &[]), "MSG-1");
        assert_eq!(shows(&mut told(), 1, 1, &[1]), "MSG-1", "its first call was never made");
        assert_eq!(shows(&mut told(), 1, 0, &[1, 4]), "MSG-1", "nothing joins a first call");
        let mut heard = told();
        shows(&mut heard, 1, 0, &[1]);
        assert_eq!(shows(&mut heard, 1, 1, &[1, 2]), "MSG-1", "a message joins nothing");
        let mut heard = told();
        shows(&mut heard, 1, 0, &[1]);
        assert_eq!(shows(&mut heard, 2, 0, &[2]), "MSG-1", "what was said is missing");
        let mut heard = told();
        shows(&mut heard, 1, 0, &[1]);
        shows(&mut heard, 1, 1, &[1, 4]);
        assert_eq!(shows(&mut heard, 4, 0, &[1, 4]), "MSG-1", "it joined another turn");
        let mut heard = told();
        shows(&mut heard, 1, 0, &[1]);
        shows(&mut heard, 2, 0, &[1, 2]);
        assert_eq!(shows(&mut heard, 3, 0, &[2, 1, 3]), "MSG-1", "in another order");
    }

    #[test]
    fn msg_2_nothing_overtakes_a_message() {
        assert_eq!(shows(&mut told(), 2, 0, &[2]), "MSG-2");
        let mut heard = told();
        heard.put(turn(9), 9, &SessionInput::Cancel { turn: turn(1) });
        assert_eq!(shows(&mut heard, 2, 0, &[1, 2]), "", "the first was cancelled");
        let mut heard = told();
        heard.put(turn(9), 9, &SessionInput::Cancel { turn: turn(1) });
        shows(&mut heard, 2, 0, &[2]);
        assert_eq!(shows(&mut heard, 1, 0, &[2, 1]), "MSG-2", "and is shown after all");
    }

    #[test]
    fn msg_2_a_damaged_journal_changes_no_place_in_the_inbox() {
        let damaged = |comes_again: u128| {
            let mut heard = told();
            heard.removed(turn(1));
            heard.damaged();
            heard.ordered(Order::Bury);
            heard.deleted(EntityId::from_u128(1)).unwrap();
            heard.put(turn(5), 5, &SessionInput::UserMessage(UserMessage::text(text(5))));
            let body = SessionInput::UserMessage(UserMessage::text(text(comes_again)));
            heard.put(turn(comes_again), 6, &body);
            heard
        };
        let mut heard = damaged(2);
        assert_eq!(shows(&mut heard, 2, 0, &[2]), "", "it was in the inbox before");
        assert_eq!(shows(&mut heard, 5, 0, &[2, 5]), "");
        assert_eq!(shows(&mut damaged(1), 1, 0, &[1]), "MSG-2", "only the journal had it");
    }

    #[test]
    fn msg_3_what_ends_unseen_has_a_reason() {
        let ends =
            |heard: &mut SessionTexts, outcome: &TurnOutcome| heard.ends(turn(1), outcome).is_ok();
        let mut heard = told();
        assert!(!ends(&mut heard, &TurnOutcome::Cancelled));
        heard.put(turn(9), 9, &SessionInput::Cancel { turn: turn(1) });
        assert!(ends(&mut heard, &TurnOutcome::Cancelled));
        let (message, status) = (String::new(), None);
        let failure = ModelFailure { status, ..ModelFailure::new(FailureClass::NoAgent, message) };
        let none = TurnOutcome::Failed { failure };
        let mut heard = told();
        assert!(!ends(&mut heard, &none));
        heard.refused(turn(1));
        assert!(ends(&mut heard, &none));
        let late = TurnOutcome::TimedOut { level: TimeLevel::Global, detail: String::new() };
        let mut heard = told();
        assert!(ends(&mut heard, &late));
        assert_eq!(shows(&mut heard, 2, 0, &[1, 2]), "");
    }

    #[test]
    fn msg_1_what_joined_a_turn_that_was_cut_short_ends_with_it() {
        for is_cut_short in [false, true] {
            let mut heard = told();
            shows(&mut heard, 1, 0, &[1]);
            if is_cut_short {
                heard.ends(turn(1), &TurnOutcome::Cancelled).unwrap();
            }
            let name = if is_cut_short { "" } else { "MSG-1" };
            assert_eq!(shows(&mut heard, 2, 0, &[1, 4, 2]), name);
        }
    }

    #[test]
    fn msg_4_what_is_deleted_was_asked_for_and_is_gone() {
        let entity = EntityId::from_u128(1);
        let mut heard = told();
        shows(&mut heard, 1, 0, &[1]);
        assert!(heard.deleted(entity).is_err());
        heard.put(turn(9), 9, &SessionInput::Delete);
        assert!(heard.deleted(entity).is_ok());
        assert_eq!(at_the_end(&heard), "", "what waited went with it");
        assert_eq!(shows(&mut heard, 2, 0, &[1, 2]), "MSG-4");
        assert_eq!(shows(&mut heard, 2, 0, &[2]), "");
    }
}
