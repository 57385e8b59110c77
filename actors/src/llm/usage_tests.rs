//! What each wire makes of reports of tokens: those that are absent, and those that cannot be true.

use clawnode_proto::llm::Usage;

use super::{ModelEvent, Wire, fuzz::replay, fuzz::replay_whole, token_counts::IMPOSSIBLE};

/// A whole reply on each wire with `USAGE` in the place of its report, and how a report is written with these
/// two counts.
const WIRES: [(Wire, &str, &str); 6] = [
    (
        Wire::Anthropic,
        r#"{"type":"message","model":"c","content":[{"type":"text","text":"Hi"}],
            "stop_reason":"end_turn","usage":USAGE}"#,
        r#"{"input_tokens":INPUT,"output_tokens":OUTPUT}"#,
    ),
    (
        Wire::Openai,
        r#"{"model":"c","choices":[{"index":0,"message":{"role":"assistant","content":"Hi"},
            "finish_reason":"stop"}],"usage":USAGE}"#,
        r#"{"prompt_tokens":INPUT,"completion_tokens":OUTPUT}"#,
    ),
    (
        Wire::OpenaiResponses,
        r#"{"model":"c","status":"completed","output":[{"type":"message","content":
            [{"type":"output_text","text":"Hi"}]}],"usage":USAGE}"#,
        r#"{"input_tokens":INPUT,"output_tokens":OUTPUT}"#,
    ),
    (
        Wire::Gemini,
        r#"{"modelVersion":"c","candidates":[{"index":0,"content":{"parts":[{"text":"Hi"}]},
            "finishReason":"STOP"}],"usageMetadata":USAGE}"#,
        r#"{"promptTokenCount":INPUT,"candidatesTokenCount":OUTPUT}"#,
    ),
    (
        Wire::Ollama,
        r#"{"model":"c","message":{"role":"assistant","content":"Hi"},"done":true,
            "done_reason":"stop"USAGE}"#,
        r#","prompt_eval_count":INPUT,"eval_count":OUTPUT"#,
    ),
    (
        Wire::Bedrock,
        r#"{"output":{"message":{"content":[{"text":"Hi"}]}},"stopReason":"end_turn","usage":USAGE}"#,
        r#"{"inputTokens":INPUT,"outputTokens":OUTPUT}"#,
    ),
];

fn usage(events: &[ModelEvent], name: &str) -> Usage {
    let done = events.last().and_then(|end| match end {
        ModelEvent::Done { usage, .. } => Some(*usage),
        _ => None,
    });
    done.unwrap_or_else(|| unreachable!("{name}: {events:?}"))
}

/// What a wire makes of a reply with these counts; without a report if there are none.
fn read((wire, body, report): (Wire, &str, &str), counts: Option<(&str, &str)>) -> Usage {
    let none = if wire == Wire::Ollama { "" } else { "null" };
    let report = counts.map_or_else(
        || none.to_owned(),
        |(input, output)| report.replace("INPUT", input).replace("OUTPUT", output),
    );
    let body = body.replace("USAGE", &report);
    usage(&replay_whole(wire, false, body.as_bytes()), &body)
}

#[test]
fn what_is_absent_is_not_nothing_on_any_wire() {
    for wire in WIRES {
        assert_eq!(read(wire, None), Usage::UNREPORTED, "{wire:?}");
        let partly = read(wire, Some(("null", "7")));
        assert_eq!((partly.output_tokens, partly.estimated), (7, true), "{wire:?}");
        let partly = read(wire, Some(("7", "null")));
        assert_eq!((partly.input_tokens, partly.estimated), (7, true), "{wire:?}");
        let whole = Usage { input_tokens: 5, output_tokens: 7, ..Usage::default() };
        assert_eq!(read(wire, Some(("5", "7"))), whole, "{wire:?}");
        assert_eq!(read(wire, Some(("0", "0"))), Usage::default(), "{wire:?}");
    }
}

#[test]
fn what_cannot_be_a_count_ends_no_reply_and_is_no_small_number_on_any_wire() {
    for wire in WIRES {
        for wrong in ["-1", "-9223372036854775808", "99999999999999999999", "1.5", "\"many\""] {
            let read = read(wire, Some((wrong, wrong)));
            let counts = (read.input_tokens, read.output_tokens);
            assert_eq!(counts, (IMPOSSIBLE, IMPOSSIBLE), "{wire:?}: {wrong}");
        }
        let huge = read(wire, Some(("18446744073709551615", "18446744073709551615")));
        assert_eq!(huge.input_tokens, u64::MAX, "{wire:?}");
    }
}

/// Anthropic's stream begins with the first of the tokens that it writes: without a report at its end, that is
/// not all of them.
#[test]
fn the_report_that_a_stream_begins_with_is_not_its_last() {
    let begin = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"c\",\
        \"content\":[],\"usage\":{\"input_tokens\":9,\"output_tokens\":1}}}\n\n";
    let delta = "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":\
        {\"stop_reason\":\"end_turn\"}USAGE}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
    for (report, estimated) in [("", true), (",\"usage\":{\"output_tokens\":1}", false)] {
        let stream = format!("{begin}{}", delta.replace("USAGE", report));
        let events = replay(Wire::Anthropic, false, [stream.into_bytes()]);
        let read = usage(&events, report);
        assert_eq!((read.input_tokens, read.output_tokens), (9, 1));
        assert_eq!(read.estimated, estimated, "{report}");
    }
}

/// An hour in the cache costs more than five minutes. What it says of a kind that no build knows is not taken for the
/// cheapest one, and says that the cost is an estimate.
#[test]
fn what_a_cache_keeps_counts_by_how_long_it_keeps_it() {
    let anthropic = |parts: &str| {
        let report =
            r#"{"input_tokens":5,"output_tokens":7,"cache_creation_input_tokens":30PARTS}"#;
        let body = WIRES[0].1.replace("USAGE", &report.replace("PARTS", parts));
        usage(&replay_whole(Wire::Anthropic, false, body.as_bytes()), &body)
    };
    let bedrock = |parts: &str| {
        let report = r#"{"inputTokens":5,"outputTokens":7,"cacheWriteInputTokens":30PARTS}"#;
        let body = WIRES[5].1.replace("USAGE", &report.replace("PARTS", parts));
        usage(&replay_whole(Wire::Bedrock, false, body.as_bytes()), &body)
    };
    let counts = |read: Usage| {
        let Usage { input_tokens, cache_write_tokens, cache_write_hour_tokens, .. } = read;
        (input_tokens, cache_write_tokens, cache_write_hour_tokens, read.estimated)
    };
    for (anthropics, bedrocks, expected) in [
        ("", "", (35, 30, 0, false)),
        (r#","cache_creation":null"#, r#","cacheDetails":null"#, (35, 30, 0, false)),
        (
            r#","cache_creation":{"ephemeral_5m_input_tokens":10,"ephemeral_1h_input_tokens":20}"#,
            r#","cacheDetails":[{"ttl":"5m","inputTokens":10},{"ttl":"1h","inputTokens":20}]"#,
            (35, 30, 20, false),
        ),
        (
            r#","cache_creation":{"ephemeral_5m_input_tokens":10,"ephemeral_1d_input_tokens":20}"#,
            r#","cacheDetails":[{"ttl":"5m","inputTokens":10},{"ttl":"1d","inputTokens":20}]"#,
            (35, 30, 20, true),
        ),
        // Of a kind that was not used.
        (
            r#","cache_creation":{"ephemeral_1d_input_tokens":0}"#,
            r#","cacheDetails":[{"ttl":"1d","inputTokens":0}]"#,
            (35, 30, 0, false),
        ),
        // More in parts than in all.
        (
            r#","cache_creation":{"ephemeral_1h_input_tokens":40}"#,
            r#","cacheDetails":[{"ttl":"1h","inputTokens":40}]"#,
            (45, 40, 40, false),
        ),
    ] {
        assert_eq!(counts(anthropic(anthropics)), expected, "{anthropics}");
        assert_eq!(counts(bedrock(bedrocks)), expected, "{bedrocks}");
    }
    let wrong = anthropic(r#","cache_creation":{"ephemeral_1h_input_tokens":-1}"#);
    assert_eq!(wrong.input_tokens, IMPOSSIBLE, "it is not believed");
}

/// A stream says the parts once.
#[test]
fn the_parts_of_what_was_cached_stay_known_in_a_stream() {
    let begin = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"c\",\
        \"content\":[],\"usage\":{\"input_tokens\":9,\"output_tokens\":1,\"cache_creation_input_tokens\":4,\
        \"cache_creation\":{\"ephemeral_1h_input_tokens\":4}}}}\n\n";
    let end = "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\
        \"usage\":{\"output_tokens\":1}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
    let events = replay(Wire::Anthropic, false, [format!("{begin}{end}").into_bytes()]);
    let read = usage(&events, end);
    assert_eq!((read.input_tokens, read.cache_write_hour_tokens), (13, 4));
}
