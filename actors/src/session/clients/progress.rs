//! What a reader has seen of a turn, and what it sees next: pure.
//!
//! [`Progress`] puts frames in order and drops repeated and superseded ones. What it has shown of the reply,
//! and takes back when that is void, is in `reset`. A reader that resumes got frames that
//! this process never saw. For it, `Progress` counts the frames that the owner still has up to the reader's
//! cursor, and sends only those after it. So the reader misses nothing and gets nothing twice.

use clawnode_proto::{
    CallId, Frame, FrameBody, FrameKey, TurnId,
    turn::{TurnBody, TurnEvent},
};
use serde_json::Value;

use super::{follow_from::FollowFrom, reset::ShownReply};

/// What the reader has seen of a turn.
#[derive(Debug)]
pub(in crate::session) struct Progress {
    turn: TurnId,
    /// The last frame that was taken.
    at: Option<FrameKey>,
    /// Calls that were superseded by a later one.
    past: Vec<CallId>,
    shown: ShownReply,
    /// The reader's cursor when it resumed, until the owner's frames have reached it.
    resumed: Option<FrameKey>,
}

// === impl Progress ===

impl Progress {
    /// For a reader that has seen everything up to `after`, or nothing yet.
    pub(in crate::session) fn new(turn: TurnId, after: Option<FrameKey>) -> Self {
        let is_start = |key: &FrameKey| key.attempt.0 == 0 && key.index == 0;
        let resumed = after.filter(|key| key.turn == turn && !is_start(key));
        Self {
            turn,
            at: resumed,
            past: Vec::new(),
            // A reader that resumes got text that is not counted here.
            shown: ShownReply::new(0, resumed.is_some()),
            resumed,
        }
    }

    /// For a reader that has brought results of tools, and has seen everything before them.
    pub(in crate::session) fn from(seen: &FollowFrom) -> Self {
        let (turn, past) = (seen.cursor.turn, seen.seen.clone());
        let shown = ShownReply::new(seen.text_bytes, false);
        Self { at: Some(seen.cursor), past, shown, ..Self::new(turn, None) }
    }

    pub(in crate::session) const fn turn(&self) -> TurnId {
        self.turn
    }

    /// The turn that the followed one has joined.
    pub(in crate::session) fn is_of(&mut self, turn: TurnId) {
        self.turn = turn;
    }

    /// The last frame that was taken.
    pub(in crate::session) const fn at(&self) -> Option<FrameKey> {
        self.at
    }

    /// Whether the reader may have been shown anything.
    pub(in crate::session) const fn has_begun(&self) -> bool {
        self.at.is_some()
    }

    /// Whether text may be missing.
    pub(in crate::session) const fn has_holes(&self) -> bool {
        self.shown.has_holes()
    }

    /// Whether taking these frames, which follow each other, would leave out one before them.
    pub(in crate::session) fn misses_before(&self, frames: &[Frame]) -> bool {
        let first = frames.iter().find(|frame| self.is_new(&frame.key));
        first.is_some_and(|frame| self.misses(&frame.key))
    }

    /// Whether a frame is of this turn and not yet taken or superseded.
    fn is_new(&self, key: &FrameKey) -> bool {
        if key.turn != self.turn || self.past.contains(&key.call) {
            return false;
        }
        self.at.is_none_or(|at| {
            at.call != key.call || (key.attempt, key.index) > (at.attempt, at.index)
        })
    }

    /// Whether taking a new frame with this key would leave out one before it.
    fn misses(&self, key: &FrameKey) -> bool {
        if key.index >= FrameKey::ERROR {
            return false;
        }
        match self.at {
            Some(at) if at.call == key.call && key.attempt == at.attempt => {
                key.index > at.index.saturating_add(1)
            }
            Some(_) | None => key.index != 0,
        }
    }

    /// Takes the frames that the owner still has, in order.
    pub(in crate::session) fn recall(&mut self, mut frames: Vec<Frame>) -> Vec<TurnEvent> {
        let seen = self.resumed.and_then(|cursor| {
            frames.iter().position(|frame| self.at == Some(cursor) && frame.key == cursor)
        });
        if let Some(seen) = seen {
            // Counted from their beginning: what comes before the cursor was shown elsewhere.
            let mut counted = Self::new(self.turn, None);
            // What the reader was shown of calls before these frames may be void by now.
            let is_later = |frame: &Frame| !frame.key.call.is_at(self.turn, 0);
            counted.shown.misses(frames.first().is_some_and(is_later));
            for frame in frames.drain(..=seen) {
                drop(counted.take(frame));
            }
            *self = counted;
        }
        frames.into_iter().flat_map(|frame| self.take(frame)).collect()
    }

    /// Takes a frame; returns what the reader sees of it.
    pub(in crate::session) fn take(&mut self, frame: Frame) -> Vec<TurnEvent> {
        let key = frame.key;
        if !self.is_new(&key) {
            return Vec::new();
        }
        let mut events = Vec::new();
        let misses = self.misses(&key);
        match self.at {
            Some(at) if at.call == key.call && at.attempt == key.attempt => {}
            Some(at) if at.call == key.call => {
                // A higher attempt: the text of the lower one is void. The cursor stays, so that a reader that
                // loses its connection here gets the reset once more.
                events.extend(self.shown.void(at, false));
            }
            Some(at) => {
                self.past.push(at.call);
                self.shown.next_call();
            }
            None => {}
        }
        self.shown.misses(misses);
        self.at = Some(key);
        match frame.body {
            FrameBody::Reset { whole } => events.extend(self.shown.void(key, whole)),
            FrameBody::Done { outcome, text_bytes, structured } => {
                self.shown.ends(text_bytes);
                let structured = structured.as_deref().and_then(in_json);
                events.push(TurnEvent::done_with(key, outcome, structured));
            }
            body => {
                match &body {
                    FrameBody::Text { delta } => self.shown.text(delta),
                    FrameBody::Thought { .. } => self.shown.thought(),
                    _ => {}
                }
                events.extend(TurnBody::of_frame(body).map(|body| TurnEvent::at(key, body)));
            }
        }
        debug_assert_eq!(key.turn, self.turn, "I7: frames of one turn only");
        events
    }
}

/// A reply that had to fit a schema, as clients get it.
pub(in crate::session) fn in_json(structured: &str) -> Option<Value> {
    serde_json::from_str(structured).ok()
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{Attempt, llm::StopReason, session::TurnOutcome, turn::ReplyReset};
    use proptest::prelude::*;

    use super::*;

    const TURN: TurnId = TurnId::from_u128(7);

    /// How a call went: pieces of text of each attempt, `!` where its provider broke off; only what
    /// follows the last of these in the last attempt is recorded.
    type Call = Vec<Vec<String>>;

    const BROKE_OFF: &str = "!";

    fn key(call: usize, attempt: usize, index: usize) -> FrameKey {
        let small = |number: usize| u32::try_from(number).unwrap();
        let call = CallId::derive(TURN, small(call));
        FrameKey { turn: TURN, call, attempt: Attempt(small(attempt + 1)), index: small(index) }
    }

    /// A turn's frames, in the order in which its owners publish them; each with how many frames
    /// before it its owner still has, because an owner that dies takes them with it.
    fn frames_of(calls: &[Call]) -> (Vec<Frame>, Vec<usize>, String) {
        let (mut frames, mut kept, mut text) = (Vec::new(), Vec::new(), String::new());
        let mut since = 0;
        for (number, call) in calls.iter().enumerate() {
            for (attempt, pieces) in call.iter().enumerate() {
                if attempt > 0 {
                    since = frames.len();
                }
                for (index, delta) in pieces.iter().enumerate() {
                    let body = match delta.as_str() {
                        BROKE_OFF => FrameBody::Reset { whole: false },
                        delta => FrameBody::Text { delta: delta.to_owned() },
                    };
                    kept.push(frames.len() - since);
                    frames.push(Frame { key: key(number, attempt, index), body });
                }
            }
            let said = call.last().into_iter().flatten().map(String::as_str).collect::<String>();
            text.push_str(said.rsplit(BROKE_OFF).next().unwrap_or_default());
        }
        let last = calls.len() - 1;
        let done = key(last, calls[last].len() - 1, FrameKey::DONE as usize);
        let outcome = TurnOutcome::Completed { stop: StopReason::EndTurn };
        let body = FrameBody::Done { outcome, text_bytes: text.len() as u64, structured: None };
        kept.push(frames.len() - since);
        frames.push(Frame { key: done, body });
        (frames, kept, text)
    }

    /// A reader, over as many connections as it takes.
    #[derive(Default)]
    struct Reader {
        text: String,
        cursor: Option<FrameKey>,
        resets: usize,
        done: bool,
    }

    impl Reader {
        fn see(&mut self, event: TurnEvent) {
            self.cursor = event.cursor;
            match event.body {
                TurnBody::Text(more) => self.text.push_str(&more),
                TurnBody::Reset(reset) => {
                    self.text = reset.text;
                    self.resets += 1;
                }
                TurnBody::Done(_) => self.done = true,
                _ => {}
            }
        }

        /// What a gateway does with events: at a `Done` with holes, it tells the journal's word.
        /// Stops after `most` events; says how many it saw.
        fn hear(
            &mut self,
            at: &Progress,
            events: Vec<TurnEvent>,
            whole: &str,
            most: usize,
        ) -> usize {
            let mut seen = 0;
            for event in events {
                if seen == most || self.done {
                    return seen;
                }
                if matches!(event.body, TurnBody::Done(_)) && at.has_holes() {
                    let body = TurnBody::Reset(ReplyReset { text: whole.to_owned() });
                    self.see(TurnEvent { body, cursor: event.cursor });
                }
                self.see(event);
                seen += 1;
            }
            seen
        }
    }

    fn call() -> impl Strategy<Value = Call> {
        let piece = prop_oneof![4 => "[a-c]{1,3}", 1 => Just(BROKE_OFF.to_owned())];
        let pieces = prop::collection::vec(piece, 1..5);
        prop::collection::vec(pieces, 1..3)
    }

    proptest! {
        /// GATE-5: cut off anywhere and resumed anywhere else, over and over, a reader has the
        /// reply at the end; and as long as no call was made again, without a reset.
        #[test]
        fn gate_5_a_reader_that_resumes_misses_nothing_and_repeats_nothing(
            calls in prop::collection::vec(call(), 1..4),
            cuts in prop::collection::vec((0..6_usize, 0..4_usize), 0..6),
        ) {
            let (frames, kept, whole) = frames_of(&calls);
            let broke_off = |attempt: &Vec<String>| attempt.iter().any(|piece| piece == BROKE_OFF);
            let again = calls.iter().any(|call| call.len() > 1 || call.iter().any(broke_off));
            let mut reader = Reader::default();
            // How many frames the owners have published, as each connection begins.
            let mut published = 0;
            let most = cuts.iter().copied().chain([(usize::MAX, 0)]);
            for (most, meanwhile) in most {
                if reader.done {
                    break;
                }
                published = (published + meanwhile).min(frames.len() - 1);
                let mut progress = Progress::new(TURN, reader.cursor);
                let mut left = most;
                if published > 0 {
                    let first = published - 1 - kept[published - 1];
                    let events = progress.recall(frames[first..published].to_vec());
                    left -= reader.hear(&progress, events, &whole, left);
                }
                while left > 0 && published < frames.len() {
                    let frame = frames[published].clone();
                    // A frame may be heard twice: live, and from the owner.
                    let mut events = progress.take(frame.clone());
                    events.extend(progress.take(frame));
                    published += 1;
                    left -= reader.hear(&progress, events, &whole, left).min(left);
                }
            }
            prop_assert!(reader.done);
            prop_assert_eq!(&reader.text, &whole);
            prop_assert!(again || reader.resets == 0, "GATE-5: {} resets", reader.resets);
        }
    }

    #[test]
    fn a_reset_that_was_seen_alone_is_told_again() {
        let frame = |attempt, index, text: &str| Frame {
            key: key(0, attempt, index),
            body: FrameBody::Text { delta: text.to_owned() },
        };
        let mut progress = Progress::new(TURN, None);
        drop(progress.take(frame(0, 0, "one")));
        let events = progress.take(frame(1, 0, "two"));
        assert_eq!(events[0].body, TurnBody::Reset(ReplyReset::default()));
        // The reader is cut off between the two.
        let mut progress = Progress::new(TURN, events[0].cursor);
        let again = progress.recall(vec![frame(1, 0, "two")]);
        assert_eq!(again, events);
        assert!(!progress.has_holes());
    }

    #[test]
    fn thoughts_alone_are_taken_back_too_and_only_those_of_the_call() {
        let thought = || FrameBody::Thought { delta: "hm".to_owned() };
        let frame = |key, body| Frame { key, body };
        let reset = |events: Vec<TurnEvent>| {
            events.iter().any(|event| matches!(event.body, TurnBody::Reset(_)))
        };
        let mut progress = Progress::new(TURN, None);
        assert!(!reset(progress.take(frame(key(0, 0, 0), FrameBody::Reset { whole: false }))));
        let shown = progress.take(frame(key(0, 0, 1), thought()));
        assert_eq!(shown[0].body, TurnBody::Thought("hm".to_owned()));
        assert!(reset(progress.take(frame(key(0, 0, 2), FrameBody::Reset { whole: false }))));
        progress.take(frame(key(0, 0, 3), thought()));
        assert!(reset(progress.take(frame(key(0, 1, 0), thought()))), "a higher attempt");
        assert!(
            !reset(progress.take(frame(key(1, 0, 0), FrameBody::Reset { whole: false }))),
            "another call"
        );
        assert!(!progress.has_holes(), "thoughts are no text");
    }

    #[test]
    fn a_reply_that_is_corrected_takes_back_what_the_call_before_said() {
        let frame = |key, body| Frame { key, body };
        let text = |delta: &str| FrameBody::Text { delta: delta.to_owned() };
        let correction = || FrameBody::Reset { whole: true };
        let mut progress = Progress::new(TURN, None);
        drop(progress.take(frame(key(0, 0, 0), text("bad"))));
        let events = progress.take(frame(key(1, 0, 0), correction()));
        assert_eq!(events[0].body, TurnBody::Reset(ReplyReset::default()));
        drop(progress.take(frame(key(1, 0, 1), text("go"))));
        // The process dies; the next one asks again.
        let events = progress.take(frame(key(1, 1, 0), correction()));
        assert!(events.iter().all(|event| matches!(event.body, TurnBody::Reset(_))));
        assert!(!events.is_empty());
        drop(progress.take(frame(key(1, 1, 1), text("[1]"))));
        let outcome = TurnOutcome::Completed { stop: StopReason::EndTurn };
        let structured = Some("[1]".to_owned());
        let done = FrameBody::Done { outcome, text_bytes: 3, structured };
        let events = progress.take(frame(key(1, 1, FrameKey::DONE as usize), done));
        assert!(!progress.has_holes(), "what was taken back is not missed");
        let TurnBody::Done(end) = &events[0].body else { panic!("{events:?}") };
        assert_eq!(end.structured, Some(serde_json::json!([1])));

        let mut silent = Progress::new(TURN, None);
        assert_eq!(silent.take(frame(key(0, 0, 0), correction())), [], "nothing was shown");
    }

    #[test]
    fn text_that_became_void_while_a_reader_was_away_is_taken_back() {
        let text = || FrameBody::Text { delta: "a".to_owned() };
        let frame = |call, body| Frame { key: key(call, 0, 0), body };
        // The reader has seen text of the first call, which said nothing in the end. Its owner died, and
        // the next one has the second call alone.
        let mut progress = Progress::new(TURN, Some(key(1, 0, 0)));
        drop(progress.recall(vec![frame(1, text())]));
        let outcome = TurnOutcome::Completed { stop: StopReason::EndTurn };
        let done = FrameBody::Done { outcome, text_bytes: 1, structured: None };
        drop(progress.take(Frame { key: key(1, 0, FrameKey::DONE as usize), body: done }));
        assert!(progress.has_holes(), "the journal tells what is to be shown");
    }

    #[test]
    fn what_is_left_out_is_noticed_before_it_is_taken() {
        let frame = |key| Frame { key, body: FrameBody::Text { delta: "a".to_owned() } };
        let misses = |progress: &Progress, keys: &[FrameKey]| {
            progress.misses_before(&keys.iter().copied().map(frame).collect::<Vec<_>>())
        };
        let mut progress = Progress::new(TURN, None);
        assert!(misses(&progress, &[key(0, 0, 1)]));
        assert!(!misses(&progress, &[key(0, 0, 0), key(0, 0, 1)]));
        drop(progress.take(frame(key(0, 0, 0))));
        let done = FrameKey::DONE as usize;
        for (keys, missing) in [
            (vec![key(0, 0, 0)], false),
            (vec![key(0, 0, 0), key(0, 0, 1), key(0, 0, 2)], false),
            (vec![key(0, 0, 1), key(0, 0, 2)], false),
            (vec![key(0, 0, 2)], true),
            (vec![key(0, 1, 0)], false),
            (vec![key(0, 1, 1)], true),
            (vec![key(1, 0, 0)], false),
            (vec![key(1, 0, 1)], true),
            (vec![key(0, 0, done)], false),
        ] {
            assert_eq!(misses(&progress, &keys), missing, "{keys:?}");
        }
    }
}
