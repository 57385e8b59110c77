//! A turn as a client follows it: which request to send next, and what a frame means for what is
//! shown. Pure; [`super::chat`] does the talking.

use clawnode_proto::{
    CallId, ErrorBody, ErrorCode, FrameKey, TurnId,
    api::{ChatSend, Method, SessionsResume},
    frame::{ApprovalRequest, ToolFinished, ToolStarted},
    llm::Usage,
    session::TurnOutcome,
    turn::{ReplyReset, TurnBody, TurnEvent},
    view::AcceptedView,
};
use serde_json::Value;

/// Characters of a tool's result that a terminal is shown.
const LINE_CHARS: usize = 160;
/// Characters of why a tool call failed: what is wrong often comes last.
const FAILURE_CHARS: usize = 1_000;

/// One turn, from what is said to how it ended.
#[derive(Debug)]
pub(super) struct ShownTurn {
    begin: TurnStart,
    accepted: Option<AcceptedView>,
    /// The last place in the turn that was seen.
    cursor: Option<FrameKey>,
    /// Calls that a later one has followed.
    past: Vec<CallId>,
    error: Option<ErrorBody>,
    reply: PrintedReply,
}

/// How it begins.
#[derive(Debug)]
enum TurnStart {
    /// By saying something.
    Say(Box<ChatSend>),
    /// It has begun already.
    Follow { session: String, turn: TurnId },
}

/// The reply, and what of it was printed, which cannot be taken back.
#[derive(Debug, Default)]
struct PrintedReply {
    /// All of it so far.
    text: String,
    /// What was printed since it was last said that it begins again.
    printed: String,
}

/// What to do about a frame.
#[derive(Debug, PartialEq)]
#[must_use]
pub(super) enum TurnStep {
    /// Show more of the reply.
    Show(String),
    /// Show more of the model's thoughts.
    Think(String),
    /// What was shown is void: the reply begins again, with this.
    Anew(String),
    /// Tell the person something.
    Tell(String),
    /// Ask the person about a tool call.
    Ask(ApprovalRequest),
    /// The model asks for a tool call; whether it runs is not decided by that.
    Use(ToolStarted),
    /// A tool call has ended.
    Used(ToolFinished),
    /// What a call of the model used.
    Usage(Usage),
    /// Nothing.
    Wait,
    /// The turn has ended well.
    Completed,
    /// The turn has ended otherwise.
    Failed(ErrorBody),
    /// The node lost sight of the turn: send [`Turn::request`] again.
    Again,
}

impl ShownTurn {
    /// A turn that begins by saying `say`. It needs an idempotency key, because it may be sent
    /// again.
    pub(super) fn new(say: ChatSend) -> Self {
        Self::of(TurnStart::Say(Box::new(say)))
    }

    /// A turn that has begun.
    pub(super) fn begun(session: String, turn: TurnId) -> Self {
        Self::of(TurnStart::Follow { session, turn })
    }

    fn of(begin: TurnStart) -> Self {
        let (past, reply) = (Vec::new(), PrintedReply::default());
        Self { begin, accepted: None, cursor: None, past, error: None, reply }
    }

    /// What to send now: the message until it is stored, from then on the wish to follow. At any
    /// gateway.
    pub(super) fn request(&self) -> Result<(Method, Value), serde_json::Error> {
        let (session, turn) = match (&self.accepted, &self.begin) {
            (Some(accepted), _) => (&accepted.session, accepted.turn),
            (None, TurnStart::Follow { session, turn }) => (session, *turn),
            (None, TurnStart::Say(say)) => {
                return Ok((Method::ChatSend, serde_json::to_value(say)?));
            }
        };
        let cursor = self.cursor.or(self.accepted.as_ref().map(|accepted| accepted.cursor));
        let resume = SessionsResume {
            session: session.clone(),
            turn: Some(turn.to_string()),
            cursor: cursor.map(|cursor| cursor.to_string()),
        };
        Ok((Method::SessionsResume, serde_json::to_value(resume)?))
    }

    /// The session and turn, once stored.
    pub(super) const fn accepted(&self) -> Option<&AcceptedView> {
        self.accepted.as_ref()
    }

    /// The reply so far.
    pub(super) fn text(&self) -> &str {
        &self.reply.text
    }

    /// Takes a frame in. What was seen before, from this gateway or another, is not seen again.
    pub(super) fn take(&mut self, event: TurnEvent) -> TurnStep {
        let TurnEvent { body, cursor } = event;
        match body {
            TurnBody::Accepted(view) => {
                self.accepted.get_or_insert(view);
                TurnStep::Wait
            }
            TurnBody::Text(more) => {
                if cursor.is_some_and(|cursor| !self.advance(cursor)) {
                    return TurnStep::Wait;
                }
                self.reply.text.push_str(&more);
                self.reply.show()
            }
            TurnBody::Thought(more) => {
                if cursor.is_some_and(|cursor| !self.advance(cursor)) {
                    return TurnStep::Wait;
                }
                TurnStep::Think(more)
            }
            TurnBody::Reset(ReplyReset { text }) => {
                if let Some(cursor) = cursor {
                    self.go_to(cursor);
                }
                self.reply.text = text;
                self.reply.show()
            }
            body => {
                if let Some(cursor) = cursor {
                    self.advance(cursor);
                }
                self.tell(body)
            }
        }
    }

    fn tell(&mut self, body: TurnBody) -> TurnStep {
        match body {
            TurnBody::Notice(notice) => TurnStep::Tell(notice.message),
            TurnBody::ToolUse(started) => TurnStep::Use(started),
            TurnBody::ApprovalRequest(request) => TurnStep::Ask(request),
            TurnBody::ClientCalls(calls) => {
                let names: Vec<&str> = calls.calls.iter().map(|call| call.name.as_str()).collect();
                TurnStep::Tell(format!("the turn waits for its client to run {}", names.join(", ")))
            }
            TurnBody::ToolResult(finished) => TurnStep::Used(finished),
            TurnBody::Usage(usage) => TurnStep::Usage(usage),
            TurnBody::Lagged(_) => {
                TurnStep::Tell("some of the reply was left out for a moment".to_owned())
            }
            TurnBody::Error(error) => {
                self.error = Some(error);
                TurnStep::Wait
            }
            TurnBody::Done(end) => self.done(end.outcome),
            TurnBody::Accepted(_)
            | TurnBody::Text(_)
            | TurnBody::Thought(_)
            | TurnBody::Reset(_)
            | TurnBody::Unknown { .. } => TurnStep::Wait,
        }
    }

    /// Goes on to `cursor`, unless it was seen already.
    fn advance(&mut self, cursor: FrameKey) -> bool {
        match self.cursor {
            _ if self.past.contains(&cursor.call) => return false,
            Some(at) if at.call != cursor.call => self.past.push(at.call),
            Some(at) if (cursor.attempt, cursor.index) <= (at.attempt, at.index) => return false,
            Some(_) | None => {}
        }
        self.cursor = Some(cursor);
        true
    }

    /// Takes the gateway's word on where the reader is, which may be further back.
    fn go_to(&mut self, cursor: FrameKey) {
        if let Some(back) = self.past.iter().position(|call| *call == cursor.call) {
            self.past.truncate(back);
        } else if let Some(at) = self.cursor
            && at.call != cursor.call
        {
            self.past.push(at.call);
        }
        self.cursor = Some(cursor);
    }

    /// What is left to print once the turn has ended: a reply that began again and did not get as
    /// far as what was printed.
    pub(super) fn rest(&mut self) -> TurnStep {
        let PrintedReply { text, printed } = &mut self.reply;
        if *text == *printed {
            return TurnStep::Wait;
        }
        printed.clone_from(text);
        TurnStep::Anew(text.clone())
    }

    fn done(&mut self, outcome: Option<TurnOutcome>) -> TurnStep {
        let error = self.error.take();
        match (outcome, error) {
            (Some(TurnOutcome::Completed { .. }), _) => TurnStep::Completed,
            (Some(_), Some(error)) => TurnStep::Failed(error),
            (Some(outcome), None) => {
                TurnStep::Failed(outcome.error().unwrap_or_else(|| {
                    ErrorBody::new(ErrorCode::Cancelled, "the turn was cancelled")
                }))
            }
            // A refusal, unless the node only cannot just now.
            (None, Some(error)) if error.code != ErrorCode::Unavailable => TurnStep::Failed(error),
            (None, _) => TurnStep::Again,
        }
    }
}

/// The result of a tool call, in a line; clients of the API have more.
pub(super) fn result_line(content: &str, failed: bool) -> String {
    let text = content.trim_end();
    let (text, most) = if failed {
        (text.split_whitespace().collect::<Vec<&str>>().join(" "), FAILURE_CHARS)
    } else {
        (text.lines().next().unwrap_or_default().to_owned(), LINE_CHARS)
    };
    let line: String = text.chars().take(most).collect();
    let more = line.len() < text.len() || (!failed && content.trim_end().lines().nth(1).is_some());
    if more { format!("{line} …") } else { line }
}

// === impl PrintedReply ===

impl PrintedReply {
    /// What was not printed yet. A reply that begins again is not printed again as long as it says
    /// the same as before.
    fn show(&mut self) -> TurnStep {
        if let Some(more) = self.text.strip_prefix(self.printed.as_str()) {
            let more = more.to_owned();
            self.printed.push_str(&more);
            return if more.is_empty() { TurnStep::Wait } else { TurnStep::Show(more) };
        }
        if self.printed.starts_with(&self.text) {
            return TurnStep::Wait;
        }
        self.printed.clone_from(&self.text);
        TurnStep::Anew(self.text.clone())
    }
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{
        Attempt,
        api::SendMode,
        llm::{FailureClass, ModelFailure, StopReason},
        turn::StreamEnd,
    };
    use proptest::prelude::*;

    use super::*;

    fn turn() -> ShownTurn {
        ShownTurn::new(ChatSend {
            channel: "cli".to_owned(),
            account: "local".to_owned(),
            peer: "ada".to_owned(),
            conversation: None,
            content: "hello".to_owned(),
            attachments: Vec::new(),
            guild: None,
            team: None,
            agent: None,
            model: None,
            idempotency_key: Some("k".to_owned()),
            mode: SendMode::Turn,
            reasoning: None,
            response_schema: None,
            keep: Vec::new(),
            lane: None,
        })
    }

    fn cursor(index: u32) -> FrameKey {
        let (turn, call) = (TurnId::from_u128(1), CallId::from_u128(2));
        FrameKey { turn, call, attempt: Attempt(1), index }
    }

    #[test]
    fn a_thought_is_shown_once_and_is_no_part_of_the_reply() {
        let mut turn = turn();
        let thought = || TurnEvent::at(cursor(1), TurnBody::Thought("hm".to_owned()));
        assert_eq!(turn.take(accepted()), TurnStep::Wait);
        assert_eq!(turn.take(thought()), TurnStep::Think("hm".to_owned()));
        assert_eq!(turn.take(thought()), TurnStep::Wait, "from another gateway");
        assert_eq!(turn.text(), "");
    }

    fn accepted() -> TurnEvent {
        let accepted = AcceptedView {
            session: "default:cli:local:ada".to_owned(),
            turn: TurnId::from_u128(1),
            cursor: cursor(0),
        };
        TurnBody::Accepted(accepted).into()
    }

    fn text(text: &str, cursor: FrameKey) -> TurnEvent {
        TurnEvent::at(cursor, TurnBody::Text(text.to_owned()))
    }

    fn reset(text: &str, cursor: FrameKey) -> TurnEvent {
        TurnEvent::at(cursor, TurnBody::Reset(ReplyReset { text: text.to_owned() }))
    }

    fn done(outcome: Option<TurnOutcome>) -> TurnEvent {
        TurnBody::Done(StreamEnd { outcome, ..StreamEnd::default() }).into()
    }

    #[test]
    fn before_it_is_stored_the_message_is_sent_again_and_after_it_is_followed() {
        let mut turn = turn();
        let first = turn.request().unwrap();
        assert_eq!(first.0, Method::ChatSend);
        assert_eq!(turn.request().unwrap(), first, "with the same key");
        assert_eq!(turn.take(accepted()), TurnStep::Wait);
        assert_eq!(turn.take(text("a", cursor(3))), TurnStep::Show("a".into()));
        assert_eq!(turn.take(done(None)), TurnStep::Again);
        let (method, params) = turn.request().unwrap();
        assert_eq!(method, Method::SessionsResume);
        assert_eq!(params["cursor"], cursor(3).to_string());
        assert_eq!(params["turn"], TurnId::from_u128(1).to_string());
    }

    #[test]
    fn each_end_has_its_name() {
        let refusal = ErrorBody::new(ErrorCode::Overloaded, "256 messages wait");
        let away = ErrorBody::new(ErrorCode::Unavailable, "no bus");
        let failure = ModelFailure::new(FailureClass::Timeout, "provider timeout".to_owned());
        let completed = TurnOutcome::Completed { stop: StopReason::EndTurn };
        let cases = [
            (None, Some(completed), TurnStep::Completed),
            (Some(refusal.clone()), None, TurnStep::Failed(refusal)),
            (Some(away), None, TurnStep::Again),
            (
                None,
                Some(TurnOutcome::Failed { failure }),
                TurnStep::Failed(ErrorBody::new(ErrorCode::ProviderTimeout, "provider timeout")),
            ),
            (
                None,
                Some(TurnOutcome::Cancelled),
                TurnStep::Failed(ErrorBody::new(ErrorCode::Cancelled, "the turn was cancelled")),
            ),
        ];
        for (error, outcome, step) in cases {
            let mut turn = turn();
            if let Some(error) = error {
                assert_eq!(turn.take(TurnBody::Error(error).into()), TurnStep::Wait);
            }
            assert_eq!(turn.take(done(outcome)), step);
        }
    }

    #[test]
    fn a_reply_that_says_the_same_again_is_not_printed_again() {
        let mut turn = turn();
        assert_eq!(turn.take(text("Hello", cursor(0))), TurnStep::Show("Hello".into()));
        assert_eq!(turn.take(text("Hello", cursor(0))), TurnStep::Wait, "a repeat");
        assert_eq!(turn.take(reset("", cursor(0))), TurnStep::Wait);
        let again = |index| FrameKey { attempt: Attempt(2), ..cursor(index) };
        assert_eq!(turn.take(text("Hel", again(0))), TurnStep::Wait);
        assert_eq!(turn.take(text("lo, w", again(1))), TurnStep::Show(", w".into()));
        assert_eq!(turn.take(text("late", cursor(9))), TurnStep::Wait, "of the attempt before");
        assert_eq!(turn.take(reset("Hey", again(1))), TurnStep::Anew("Hey".into()));
        assert_eq!(turn.rest(), TurnStep::Wait);
        assert_eq!(turn.take(reset("He", again(2))), TurnStep::Wait);
        assert_eq!(turn.rest(), TurnStep::Anew("He".into()), "it ended before it got as far");
        assert_eq!(turn.text(), "He");
    }

    /// What is seen on a screen.
    #[derive(Default)]
    struct Screen(String);

    impl Screen {
        fn see(&mut self, step: TurnStep) {
            match step {
                TurnStep::Show(more) => self.0.push_str(&more),
                TurnStep::Anew(text) => self.0 = text,
                _ => {}
            }
        }
    }

    /// A piece of the reply, where it ends in the whole, and its place.
    struct Piece {
        text: String,
        before: usize,
        key: FrameKey,
    }

    fn pieces(calls: &[Vec<String>]) -> (Vec<Piece>, String) {
        let (mut pieces, mut whole) = (Vec::new(), String::new());
        for (call, texts) in calls.iter().enumerate() {
            for (index, text) in texts.iter().enumerate() {
                let index = u32::try_from(index).unwrap();
                let call = CallId::from_u128(call as u128 + 1);
                let key = FrameKey { call, ..cursor(index) };
                pieces.push(Piece { text: text.clone(), before: whole.len(), key });
                whole.push_str(text);
            }
        }
        (pieces, whole)
    }

    /// How one connection goes: how far before the reader's place the gateway begins, whether it
    /// resets there, how many pieces it joins, and how many it says until it is gone.
    type Connection = (usize, bool, usize, usize);

    proptest! {
        /// GATE-5, the client's side: whatever two gateways repeat, reset and join, and wherever
        /// each is cut off, the reply is shown once and whole.
        #[test]
        fn gate_5_frames_of_two_gateways_make_one_reply(
            calls in prop::collection::vec(prop::collection::vec("[a-c]{1,2}", 1..6), 1..4),
            connections in prop::collection::vec(
                (0..4_usize, any::<bool>(), 1..4_usize, 0..5_usize), 0..8,
            ),
        ) {
            let connections: Vec<Connection> = connections;
            let (pieces, whole) = pieces(&calls);
            let (mut turn, mut screen) = (turn(), Screen::default());
            let mut shown = String::new();
            let last = (0, false, 1, usize::MAX);
            for (back, resets, joined, most) in connections.into_iter().chain([last]) {
                // Where the reader is, by what it would ask for.
                let at = turn.cursor.map_or(0, |cursor| {
                    1 + pieces.iter().position(|piece| piece.key == cursor).unwrap()
                });
                let mut next = at.saturating_sub(back);
                let mut left = most;
                if resets && next > 0 && left > 0 {
                    let so_far = {
                        let told = pieces.get(next).map_or(whole.len(), |piece| piece.before);
                        whole.get(..told).unwrap()
                    };
                    let step = turn.take(reset(so_far, pieces[next - 1].key));
                    prop_assert!(!matches!(step, TurnStep::Anew(_)), "nothing has changed");
                    screen.see(step);
                    left -= 1;
                }
                while left > 0 && next < pieces.len() {
                    // What the reader has is repeated piece by piece, as it came.
                    let many = if next < at { 1 } else { joined };
                    // Texts of different calls are never joined.
                    let call = pieces[next].key.call;
                    let same = pieces[next..].iter().take(many);
                    let many = same.take_while(|piece| piece.key.call == call).count();
                    let some = &pieces[next..next + many];
                    let said: String = some.iter().map(|piece| piece.text.as_str()).collect();
                    let step = turn.take(text(&said, some.last().unwrap().key));
                    if let TurnStep::Show(more) = &step {
                        shown.push_str(more);
                    }
                    screen.see(step);
                    next += some.len();
                    left -= 1;
                }
            }
            prop_assert_eq!(turn.text(), whole.as_str());
            prop_assert_eq!(turn.rest(), TurnStep::Wait);
            prop_assert_eq!(&screen.0, &whole);
            prop_assert_eq!(shown, whole, "each piece once");
        }
    }
}
