//! Reads a turn's events into a response. [`ResponseReply`] is the pure part.
//!
//! What was said may be void later. The gateway never takes back an event that a client has. It composes the
//! same events again, and sends those that follow. If they are not the same, the client learns that.

use std::{sync::Arc, time::Instant};

use clawnode_proto::{
    CallId, ErrorBody, FrameKey,
    frame::ApprovalRequest,
    session::TurnOutcome,
    turn::{StreamEnd, TurnBody, TurnEvent},
};
use futures_util::stream::BoxStream;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::{
    super::{
        super::{
            backend::Following,
            gateway::Gateway,
            slow_client_stream::{count, lost},
        },
        id::ResponseId,
        reply::{FinishReason, OpenAiReply, ReplyStep},
        stream::diverged,
    },
    composed_events::{Composer, Events},
    event_number::EventNumber,
    response_object::{ResponseLabel, Status},
};

/// A response as far as it was read.
pub(super) struct ResponseReply {
    label: ResponseLabel,
    now: Composer,
    /// As it was before the call whose events come now.
    before_call: Composer,
    call: Option<CallId>,
    /// What is said at the end, because it may be corrected until then.
    held: Option<String>,
    /// The first event, if it is of a later call: the next one says whether events were missed before it.
    first: Option<TurnEvent>,
    /// The first events were missed: only those at the end are whole.
    is_late: bool,
}

/// What follows from an event.
#[derive(Debug, PartialEq)]
pub(super) enum ResponseStep {
    More,
    /// A tool call waits for a person.
    Asks(ApprovalRequest),
    Ended(Status),
    /// What was read is not the whole: the turn is to be followed from its start.
    Again,
    /// Its client has other events.
    Other,
    /// The node lost sight of the turn.
    Lost,
}

/// A response, and the turn that it is read from.
pub(super) struct ResponseReader {
    pub(super) gateway: Arc<Gateway>,
    pub(super) reply: ResponseReply,
    pub(super) events: BoxStream<'static, TurnEvent>,
    /// When its message was sent, if that was by this request: only those turns are counted.
    pub(super) sent: Option<Instant>,
    is_followed_again: bool,
}

/// Follows the turn of a response from the response's start.
pub(in super::super) async fn follow(
    gateway: &Gateway,
    id: &ResponseId,
) -> Result<Following, ErrorBody> {
    match id.after {
        None => gateway.backend.follow(&id.session(), Some(id.turn), None).await,
        Some(call) => gateway.backend.follow_results(id.session, call).await,
    }
}

// === impl ResponseReply ===

impl ResponseReply {
    /// Of a client that has all events up to this one.
    pub(super) fn new(label: ResponseLabel, told: Option<EventNumber>) -> Self {
        let held = label.id.is_held.then(String::new);
        let now = Composer::after(told);
        Self { label, before_call: now.clone(), now, call: None, held, first: None, is_late: false }
    }

    /// Begins to tell.
    pub(super) fn begin(&mut self, out: &mut Events) {
        self.now.begin(&self.label, out);
    }

    /// The response as it is.
    pub(super) fn response(&self, status: &Status) -> Value {
        self.label.response(status, self.now.output(), self.now.usage())
    }

    /// The event of an error that is not the turn's.
    pub(super) fn error(&self, error: &ErrorBody) -> (&'static str, Value) {
        let message = match &error.hint {
            Some(hint) => format!("{} ({hint})", error.message),
            None => error.message.clone(),
        };
        self.now.error(error.code.as_str(), &message)
    }

    /// Takes an event.
    pub(super) fn take(&mut self, event: TurnEvent, out: &mut Events) -> ResponseStep {
        if let Some(first) = self.first.take() {
            // What the journal tells has one cursor; frames have one each.
            if first.cursor == event.cursor {
                self.read(first, out);
            } else {
                self.is_late = true;
            }
        } else if self.is_of_later_call(&event) {
            self.first = Some(event);
            return ResponseStep::More;
        }
        let step = self.read(event, out);
        if self.now.is_other() {
            return ResponseStep::Other;
        }
        step
    }

    fn read(&mut self, event: TurnEvent, out: &mut Events) -> ResponseStep {
        if let Some(cursor) = event.cursor {
            self.see(cursor);
        }
        let label = &self.label;
        match event.body {
            TurnBody::Done(_) | TurnBody::ClientCalls(_) if self.is_late => {
                return ResponseStep::Again;
            }
            TurnBody::Usage(usage) => self.now.add_usage(usage),
            TurnBody::Error(error) => return self.end(Status::Failed(error), out),
            TurnBody::Done(end) => return self.done(end, out),
            _ if self.is_late => {}
            TurnBody::Text(more) => match &mut self.held {
                Some(held) => held.push_str(&more),
                None => self.now.say(label, &more, out),
            },
            TurnBody::Thought(more) => self.now.think(label, &more, out),
            TurnBody::ToolUse(started) => self.now.start(started),
            TurnBody::ToolResult(finished) => self.now.ran(label, &finished, out),
            TurnBody::ApprovalRequest(request) => {
                self.now.ask(label, &request, out);
                return ResponseStep::Asks(request);
            }
            TurnBody::ClientCalls(calls) => {
                self.now.call(label, &calls, out);
                return self.end(Status::Ended(FinishReason::ToolCalls), out);
            }
            TurnBody::Reset(reset) => return self.reset(reset.text, out),
            TurnBody::Accepted(_)
            | TurnBody::Notice(_)
            | TurnBody::Lagged(_)
            | TurnBody::Unknown { .. } => {}
        }
        ResponseStep::More
    }

    /// Whether this is the first event, and not of the turn's first call. An event at the end has no place
    /// of its own.
    fn is_of_later_call(&self, event: &TurnEvent) -> bool {
        let Some(cursor) = event.cursor.filter(|cursor| cursor.index < FrameKey::ERROR) else {
            return false;
        };
        let first = cursor.call.is_at(cursor.turn, 0) || cursor.call.is_of_tools_at(cursor.turn, 0);
        self.call.is_none() && self.label.id.after.is_none() && !first
    }

    /// Notes which call the event belongs to.
    fn see(&mut self, cursor: FrameKey) {
        if self.call == Some(cursor.call) {
            return;
        }
        self.call = Some(cursor.call);
        self.before_call = self.now.clone();
    }

    /// What was said before is void, and this is said instead; nothing means that of the last call.
    fn reset(&mut self, text: String, out: &mut Events) -> ResponseStep {
        if let Some(held) = &mut self.held {
            *held = text;
            self.now.break_off(out);
            return ResponseStep::More;
        }
        if !text.is_empty() {
            let is_same = self.now.text() == text;
            return if is_same { ResponseStep::More } else { ResponseStep::Again };
        }
        if self.now.has_only_thought_since(&self.before_call) {
            // Thoughts are no part of the reply: those that were told stay.
            self.now.break_off(out);
            self.before_call = self.now.clone();
        } else {
            self.now = self.before_call.before(&self.now);
        }
        ResponseStep::More
    }

    fn done(&mut self, end: StreamEnd, out: &mut Events) -> ResponseStep {
        let Some(outcome) = end.outcome else { return ResponseStep::Lost };
        let status = match OpenAiReply::end(&outcome) {
            _ if outcome == TurnOutcome::Cancelled => Status::Cancelled,
            ReplyStep::Finished(reason) => Status::Ended(reason),
            ReplyStep::Failed(error) => Status::Failed(error),
            _ => return ResponseStep::Lost,
        };
        if let Some(text) = self.held.take() {
            // Clients read the whole as JSON.
            let text = match end.structured {
                Some(json) if serde_json::from_str::<IgnoredAny>(&text).is_err() => {
                    json.to_string()
                }
                _ => text,
            };
            self.now.say(&self.label, &text, out);
        }
        self.end(status, out)
    }

    fn end(&mut self, status: Status, out: &mut Events) -> ResponseStep {
        self.now.end(&self.label, &status, out);
        if self.now.is_behind() { ResponseStep::Other } else { ResponseStep::Ended(status) }
    }
}

// === impl ResponseReader ===

impl ResponseReader {
    pub(super) fn new(
        gateway: Arc<Gateway>,
        reply: ResponseReply,
        events: BoxStream<'static, TurnEvent>,
        sent: Option<Instant>,
    ) -> Self {
        Self { gateway, reply, events, sent, is_followed_again: false }
    }

    /// Whether what comes now is the turn from its start, once more.
    pub(super) const fn is_followed_again(&self) -> bool {
        self.is_followed_again
    }

    /// Takes an event, and follows the turn again if need be.
    pub(super) async fn take(&mut self, event: TurnEvent, out: &mut Events) -> ResponseStep {
        if let Some(sent) = self.sent {
            count(&self.gateway, &event.body, sent);
        }
        let step = self.reply.take(event, out);
        if step != ResponseStep::Again {
            return step;
        }
        if std::mem::replace(&mut self.is_followed_again, true) {
            return ResponseStep::Other;
        }
        match follow(&self.gateway, &self.reply.label.id).await {
            Ok(following) => {
                let told = self.reply.now.told();
                self.reply = ResponseReply::new(self.reply.label.clone(), told);
                self.reply.begin(out);
                self.events = following.events;
                // Its usage and its end were counted, or will be by what follows.
                self.sent = None;
                ResponseStep::More
            }
            Err(error) => {
                tracing::debug!(error = error.message, "a turn cannot be followed again");
                ResponseStep::Lost
            }
        }
    }
}

/// Why a stream ends before its response does.
pub(super) fn broken(step: &ResponseStep) -> ErrorBody {
    if *step == ResponseStep::Other { diverged() } else { lost() }
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{
        Attempt, EntityId, Timestamp, TurnId,
        client_tool::{ClientCall, ClientCalls},
        frame::{ToolFinished, ToolStarted},
        llm::{StopReason, Usage},
        turn::ReplyReset,
    };
    use serde_json::{Map, json};

    use super::*;

    const TURN: TurnId = TurnId::from_u128(7);

    fn label(is_held: bool) -> ResponseLabel {
        let id = ResponseId { session: EntityId::from_u128(1), turn: TURN, after: None, is_held };
        ResponseLabel { id, created: 1, model: "default".to_owned(), echo: Map::new() }
    }

    /// An event of this model call, or of its tools.
    fn at(call: u32, body: TurnBody) -> TurnEvent {
        let mut event_call = CallId::derive(TURN, call);
        if matches!(body, TurnBody::ToolUse(_) | TurnBody::ToolResult(_) | TurnBody::ClientCalls(_))
        {
            event_call = CallId::derive_tools(event_call);
        }
        TurnEvent::at(
            FrameKey { turn: TURN, call: event_call, attempt: Attempt(1), index: 0 },
            body,
        )
    }

    fn text(call: u32, text: &str) -> TurnEvent {
        at(call, TurnBody::Text(text.to_owned()))
    }

    fn thought(call: u32, text: &str) -> TurnEvent {
        at(call, TurnBody::Thought(text.to_owned()))
    }

    fn reset(call: u32, text: &str) -> TurnEvent {
        at(call, TurnBody::Reset(ReplyReset { text: text.to_owned() }))
    }

    fn tool_use(id: u128, name: &str) -> TurnBody {
        let (name, arguments) = (name.to_owned(), r#"{"at":1}"#.to_owned());
        TurnBody::ToolUse(ToolStarted { id: CallId::from_u128(id), name, arguments })
    }

    fn tool_result(id: u128, name: &str, failure: Option<&str>) -> TurnBody {
        let (name, content) = (name.to_owned(), "did".to_owned());
        let failure = failure.map(str::to_owned);
        let id = CallId::from_u128(id);
        TurnBody::ToolResult(ToolFinished { id, name, content, is_error: None, failure })
    }

    fn client_calls(id: u128) -> TurnBody {
        let (name, arguments) = ("look".to_owned(), "{}".to_owned());
        let call = ClientCall { id: CallId::from_u128(id), name, arguments };
        TurnBody::ClientCalls(ClientCalls { calls: vec![call], expires: Timestamp(9) })
    }

    fn end(stop: StopReason) -> TurnEvent {
        let key = FrameKey {
            turn: TURN,
            call: CallId::derive(TURN, 9),
            attempt: Attempt(1),
            index: FrameKey::DONE,
        };
        TurnEvent::done(key, TurnOutcome::Completed { stop })
    }

    /// The events of a response for a client that has all up to `told`, and how it ended.
    fn tell(events: &[TurnEvent], is_held: bool, told: Option<u64>) -> (Vec<Value>, ResponseStep) {
        let mut reply = ResponseReply::new(label(is_held), told.map(EventNumber::of));
        let (mut out, mut last) = (Events::new(), ResponseStep::More);
        reply.begin(&mut out);
        for event in events {
            last = reply.take(event.clone(), &mut out);
        }
        (out.into_iter().map(|(_, event)| event).collect(), last)
    }

    fn kinds(events: &[Value]) -> Vec<&str> {
        let kinds = events.iter().filter_map(|event| event["type"].as_str());
        kinds.map(|kind| kind.trim_start_matches("response.")).collect()
    }

    fn numbers(events: &[Value]) -> Vec<u64> {
        events.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect()
    }

    fn story() -> Vec<TurnEvent> {
        vec![
            thought(0, "let me see"),
            text(0, "I look "),
            text(0, "it up."),
            at(0, tool_use(1, "files__read")),
            at(0, tool_use(2, "time_now")),
            at(0, tool_result(1, "files__read", None)),
            at(0, tool_result(2, "time_now", Some("timed_out"))),
            at(0, TurnBody::Usage(Usage { input_tokens: 3, output_tokens: 2, ..Usage::default() })),
            text(1, "\n\nIt is noon."),
            end(StopReason::EndTurn),
        ]
    }

    #[test]
    fn a_turn_is_told_item_by_item() {
        let (events, step) = tell(&story(), false, None);
        assert_eq!(step, ResponseStep::Ended(Status::Ended(FinishReason::Stop)));
        let reasoning = ["reasoning_summary_part.added"].into_iter();
        let reasoning = reasoning.chain(["reasoning_summary_text.delta"; 3]);
        let reasoning =
            reasoning.chain(["reasoning_summary_text.done", "reasoning_summary_part.done"]);
        let message = |words| {
            let begins = ["output_item.added", "content_part.added"].into_iter();
            let deltas = std::iter::repeat_n("output_text.delta", words);
            begins.chain(deltas).chain([
                "output_text.done",
                "content_part.done",
                "output_item.done",
            ])
        };
        let tool = |ends| {
            let begins = ["output_item.added", "mcp_call.in_progress", "mcp_call_arguments.delta"];
            begins.into_iter().chain(["mcp_call_arguments.done", ends, "output_item.done"])
        };
        let expected: Vec<&str> = ["created", "in_progress", "output_item.added"]
            .into_iter()
            .chain(reasoning)
            .chain(["output_item.done"])
            .chain(message(4))
            .chain(tool("mcp_call.completed"))
            .chain(tool("mcp_call.failed"))
            .chain(message(5))
            .chain(["completed"])
            .collect();
        assert_eq!(kinds(&events), expected);
        let numbers = numbers(&events);
        assert_eq!(numbers[0], 0);
        assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
        assert!(numbers.iter().all(|number| *number < 1 << 53));
        let response = &events.last().unwrap()["response"];
        assert_eq!(response["status"], "completed");
        assert_eq!(response["usage"]["total_tokens"], 5);
        let output = response["output"].as_array().unwrap();
        assert_eq!(output[0]["summary"][0]["text"], "let me see");
        assert_eq!(output[1]["content"][0]["text"], "I look it up.");
        assert_eq!(
            (&output[2]["server_label"], &output[2]["name"]),
            (&json!("files"), &json!("read"))
        );
        assert_eq!(
            (&output[2]["output"], &output[2]["status"]),
            (&json!("did"), &json!("completed"))
        );
        assert_eq!(output[3]["server_label"], "clawnode");
        assert_eq!(output[3]["error"], "timed_out: did");
        assert_eq!(output[4]["content"][0]["text"], "\n\nIt is noon.");
    }

    /// What clients of OpenAI rely on: an item is added at its index, its parts belong to it, and its end
    /// has the same content as its deltas.
    #[test]
    fn the_deltas_of_an_item_are_the_item() {
        let (events, _) = tell(&story(), false, None);
        let (mut items, mut texts) = (Vec::new(), Vec::new());
        for event in &events {
            let index = || usize::try_from(event["output_index"].as_u64().unwrap()).unwrap();
            match event["type"].as_str().unwrap() {
                "response.output_item.added" => {
                    assert_eq!(index(), items.len());
                    items.push(event["item"]["id"].clone());
                    texts.push(String::new());
                }
                kind if kind.rsplit('.').next() == Some("delta") => {
                    assert_eq!(event["item_id"], items[index()]);
                    texts[index()].push_str(event["delta"].as_str().unwrap());
                }
                "response.output_item.done" => {
                    let item = &event["item"];
                    assert_eq!(item["id"], items[index()]);
                    let whole = [&item["content"][0]["text"], &item["summary"][0]["text"]];
                    let mut whole = whole.into_iter().chain([&item["arguments"]]);
                    let whole = whole.find_map(Value::as_str).unwrap();
                    assert_eq!(texts[index()], whole);
                }
                _ => {}
            }
        }
        assert_eq!(items.len(), 5);
    }

    #[test]
    fn the_numbers_do_not_depend_on_how_the_text_came() {
        let (whole, _) = tell(&story(), false, None);
        let letters = story().into_iter().flat_map(|event| {
            let cursor = event.cursor.unwrap();
            let one = |body| TurnEvent::at(cursor, body);
            match event.body {
                TurnBody::Text(text) => {
                    text.chars().map(|c| one(TurnBody::Text(c.to_string()))).collect()
                }
                TurnBody::Thought(text) => {
                    text.chars().map(|c| one(TurnBody::Thought(c.to_string()))).collect()
                }
                body => vec![one(body)],
            }
        });
        let letters: Vec<TurnEvent> = letters.collect();
        assert_eq!(tell(&letters, false, None).0, whole);
    }

    #[test]
    fn a_client_goes_on_after_any_number() {
        let (whole, _) = tell(&story(), false, None);
        for (at, number) in numbers(&whole).into_iter().enumerate() {
            let (rest, step) = tell(&story(), false, Some(number));
            assert_eq!(rest, whole[at + 1..], "{number}");
            assert!(matches!(step, ResponseStep::Ended(_)), "{number}: {step:?}");
        }
        let last = *numbers(&whole).last().unwrap();
        for other in [last + 1, last + (1 << 16), u64::MAX] {
            assert_eq!(tell(&story(), false, Some(other)).1, ResponseStep::Other, "{other}");
        }
    }

    #[test]
    fn a_client_that_was_told_something_else_learns_it() {
        let said = |words: &str| [text(0, words), end(StopReason::EndTurn)];
        let (first, _) = tell(&said("one two three four"), false, None);
        let third = numbers(&first)[6];
        let (rest, step) = tell(&said("one two three FOUR"), false, Some(third));
        assert!(matches!(step, ResponseStep::Ended(_)), "the events that it has are the same");
        assert_eq!(rest[0]["delta"], "FOUR");
        let (rest, step) = tell(&said("one TWO three four"), false, Some(third));
        assert_eq!((rest, step), (Vec::new(), ResponseStep::Other));
        assert_eq!(tell(&said("one"), false, Some(third)).1, ResponseStep::Other, "it is shorter");
    }

    #[test]
    fn a_reply_that_begins_again_goes_on_where_it_is_the_same() {
        let (plain, _) = tell(&[text(0, "one two three"), end(StopReason::EndTurn)], false, None);
        let again = |words: &str| {
            let events =
                [text(0, "one two "), reset(0, ""), text(0, words), end(StopReason::EndTurn)];
            tell(&events, false, None)
        };
        assert_eq!(again("one two three").0, plain);
        assert_eq!(again("one 2 three").1, ResponseStep::Other);
        // What a tool did before is not void.
        let mut events = story();
        events.splice(8..8, [text(1, "\n\nIt "), reset(1, "")]);
        assert_eq!(tell(&events, false, None).0, tell(&story(), false, None).0);
        // The journal says the same at the end.
        let mut events = story();
        events.insert(9, reset(1, "I look it up.\n\nIt is noon."));
        assert_eq!(tell(&events, false, None).0, tell(&story(), false, None).0);
        events[9] = reset(1, "something else");
        events.truncate(10);
        assert_eq!(tell(&events, false, None).1, ResponseStep::Again);
    }

    #[test]
    fn thoughts_that_are_void_stay_told_and_the_reply_goes_on() {
        let events = [
            thought(0, "hm"),
            reset(0, ""),
            thought(0, "aha"),
            text(0, "yes"),
            end(StopReason::EndTurn),
        ];
        let (events, step) = tell(&events, false, None);
        assert!(matches!(step, ResponseStep::Ended(_)), "{step:?}");
        let output = &events.last().unwrap()["response"]["output"];
        assert_eq!(
            (&output[0]["status"], &output[1]["status"]),
            (&json!("incomplete"), &json!("completed"))
        );
        assert_eq!(output[2]["content"][0]["text"], "yes");
    }

    #[test]
    fn a_client_that_is_to_run_tools_has_the_whole_response() {
        let events =
            [at(0, tool_use(1, "look")), at(0, tool_use(2, "own")), at(0, client_calls(1))];
        let (events, step) = tell(&events, false, None);
        assert_eq!(step, ResponseStep::Ended(Status::Ended(FinishReason::ToolCalls)));
        let expected = [
            "created",
            "in_progress",
            "output_item.added",
            "function_call_arguments.delta",
            "function_call_arguments.done",
            "output_item.done",
            "completed",
        ];
        assert_eq!(kinds(&events), expected);
        let call = &events[5]["item"];
        let (event_call, session) =
            crate::openai::tools::call_of(call["call_id"].as_str().unwrap()).unwrap();
        assert_eq!((event_call, session), (CallId::from_u128(1), EntityId::from_u128(1)));
        assert_eq!(call["name"], "look");
    }

    #[test]
    fn a_reply_with_a_schema_is_told_at_its_end() {
        let key = end(StopReason::EndTurn).cursor.unwrap();
        let outcome = TurnOutcome::Completed { stop: StopReason::EndTurn };
        let done = TurnEvent::done_with(key, outcome, Some(json!({"a": 1})));
        let events = [text(0, "```json"), reset(0, ""), text(0, "so: {\"a\":1}"), done];
        let (events, _) = tell(&events, true, None);
        let deltas: Vec<&Value> =
            events.iter().filter(|event| event["delta"].is_string()).collect();
        assert_eq!(deltas.len(), 1);
        assert_eq!(deltas[0]["delta"], r#"{"a":1}"#);
    }

    #[test]
    fn each_end_has_its_status() {
        let failed =
            at(0, TurnBody::Error(ErrorBody::new(clawnode_proto::ErrorCode::Internal, "no")));
        let key = end(StopReason::EndTurn).cursor.unwrap();
        for (event, kind, status, detail) in [
            (end(StopReason::EndTurn), "completed", "completed", json!(null)),
            (end(StopReason::MaxTokens), "incomplete", "incomplete", json!("max_output_tokens")),
            (end(StopReason::Refusal), "incomplete", "incomplete", json!("content_filter")),
            (TurnEvent::done(key, TurnOutcome::Cancelled), "incomplete", "cancelled", json!(null)),
            (failed, "failed", "failed", json!(null)),
        ] {
            let (events, _) = tell(&[text(0, "a"), event], false, None);
            let last = events.last().unwrap();
            assert_eq!(kinds(&events).last(), Some(&kind));
            assert_eq!(last["response"]["status"], status);
            assert_eq!(last["response"]["incomplete_details"]["reason"], detail, "{status}");
            let item = if status == "completed" { "completed" } else { "incomplete" };
            assert_eq!(last["response"]["output"][0]["status"], item);
            assert_eq!(last["response"]["error"].is_object(), status == "failed");
        }
    }

    /// The owner that asked the client is gone: the journal tells all that was said before with one cursor.
    #[test]
    fn what_the_journal_tells_is_no_less_than_frames() {
        let mut waits = story();
        waits.truncate(9);
        waits.push(at(1, tool_use(3, "look")));
        waits.push(at(1, client_calls(3)));
        let from_frames = tell(&waits, false, None);
        let cursor = waits.last().unwrap().cursor;
        for event in &mut waits {
            event.cursor = cursor;
        }
        assert_eq!(tell(&waits, false, None), from_frames);
        assert_eq!(from_frames.1, ResponseStep::Ended(Status::Ended(FinishReason::ToolCalls)));
    }

    /// The owner that told of earlier calls is gone: only the end has all of it.
    #[test]
    fn what_was_missed_is_read_at_the_end() {
        let more = TurnEvent::at(
            FrameKey { index: 1, ..text(1, "").cursor.unwrap() },
            TurnBody::Text(" noon.".to_owned()),
        );
        let late = [text(1, "\n\nIt is"), more, reset(1, "I look it up.\n\nIt is noon.")];
        let (events, step) = tell(&late, false, None);
        assert_eq!((kinds(&events), step), (vec!["created", "in_progress"], ResponseStep::More));
        let mut late = late.to_vec();
        late.push(end(StopReason::EndTurn));
        assert_eq!(tell(&late, false, None).1, ResponseStep::Again);
    }
}
