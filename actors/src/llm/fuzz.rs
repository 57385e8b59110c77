//! Entry points for fuzzers and property tests: arbitrary bytes through the real decoders.

use bytes::Bytes;
use clawnode_proto::{
    limits::TOOL_ARGUMENTS_BYTES,
    llm::{ModelFailure, StopReason},
    tool::ToolUse,
};
use futures_util::{FutureExt, stream};

use super::{
    ModelEvent,
    call::{Decoder, ReplyPiece},
    call_stream::Finish,
    event_stream::with_right_crcs,
    framing::ReplyEvents,
    http::AttemptFailure,
    sse::EventsError,
    tool_uses::{MOST, NAME_BYTES},
    wire::Wire,
};

/// What a client that `offers` tools or none makes of a response whose body arrives in these
/// chunks: the same reader and decoder as in a call, without a connection. The last event is the
/// terminal one.
pub fn replay(
    wire: Wire,
    offers: bool,
    chunks: impl IntoIterator<Item = Vec<u8>>,
) -> Vec<ModelEvent> {
    let Some(row) = wire.row() else { return Vec::new() };
    let mut decoder = (row.reads.decoder)(offers);
    let chunks: Vec<_> = chunks.into_iter().map(|chunk| Ok(Bytes::from(chunk))).collect();
    let mut said = Vec::new();
    let events = row.reads.framing.read(stream::iter(chunks));
    let read = read(events, decoder.as_mut(), &mut said).now_or_never();
    said.push(match read {
        Some(Ok(Finish { stop, usage, model })) => ModelEvent::Done { stop, usage, model },
        Some(Err(failure)) => ModelEvent::Failed(failure),
        None => ModelEvent::Failed(
            AttemptFailure::broken("the reader waits, with all bytes there").failure,
        ),
    });
    said
}

/// What a client makes of a reply in one piece.
pub fn replay_whole(wire: Wire, offers: bool, body: &[u8]) -> Vec<ModelEvent> {
    let (mut pieces, mut said) = (Vec::new(), Vec::new());
    let Some(row) = wire.row() else { return Vec::new() };
    let read = (row.reads.decoder)(offers).whole(body, &mut pieces);
    let end = say(&mut pieces, &mut said);
    said.push(match (read, end) {
        (Ok(()), Some(Finish { stop, usage, model })) => ModelEvent::Done { stop, usage, model },
        (Ok(()), None) => {
            ModelEvent::Failed(AttemptFailure::broken("the reply has no end").failure)
        }
        (Err(fault), _) => ModelEvent::Failed(fault.failure),
    });
    said
}

fn say(pieces: &mut Vec<ReplyPiece>, said: &mut Vec<ModelEvent>) -> Option<Finish> {
    for piece in pieces.drain(..) {
        match piece {
            ReplyPiece::Text(text) => said.push(ModelEvent::Text(text)),
            ReplyPiece::Thought(text) => said.push(ModelEvent::Thought(text)),
            ReplyPiece::Item(item) => said.push(ModelEvent::Item(item)),
            ReplyPiece::ToolUse(tool_use) => said.push(ModelEvent::ToolUse(tool_use)),
            ReplyPiece::Usage(usage) => said.push(ModelEvent::Usage(usage)),
            ReplyPiece::End(finish) => return Some(finish),
        }
    }
    None
}

async fn read(
    mut events: ReplyEvents,
    decoder: &mut dyn Decoder,
    said: &mut Vec<ModelEvent>,
) -> Result<Finish, ModelFailure> {
    let mut pieces = Vec::new();
    while let Some(event) = events.next().await {
        let event = event.map_err(|error: EventsError| AttemptFailure::broken(error).failure)?;
        let read = decoder.event(&event, &mut pieces);
        if let Some(finish) = say(&mut pieces, said) {
            return Ok(finish);
        }
        read.map_err(|fault| fault.failure)?;
    }
    Err(AttemptFailure::broken("the reply ended too early").failure)
}

/// Words without which no reply on a wire has a good end.
const fn needed(wire: Wire) -> &'static [&'static [u8]] {
    match wire {
        Wire::Anthropic => &[b"message_start", b"message_stop"],
        Wire::Openai => &[b"finish_reason", b"[DONE]"],
        Wire::OpenaiResponses => &[b"response."],
        Wire::Gemini => &[b"Reason"],
        Wire::Ollama => &[b"done"],
        Wire::Bedrock => &[b"messageStart", b"messageStop", b"metadata"],
        Wire::Demo => &[],
    }
}

/// Any bytes as an answer on a wire. The first byte chooses the size of the chunks. No input may panic,
/// chunks may not matter, and without certain words there is no good end. Tool calls stay within their
/// bounds.
pub fn fuzz(wire: Wire, data: &[u8]) {
    let Some((size, data)) = data.split_first() else { return };
    judge(wire, *size, data);
    if wire == Wire::Bedrock {
        // Damage seldom passes the CRCs; what is behind them has to stand it all the same.
        judge(wire, *size, &with_right_crcs(data));
    }
}

fn judge(wire: Wire, size: u8, data: &[u8]) {
    for offers in [false, true] {
        let whole = replay(wire, offers, [data.to_vec()]);
        let chunks = data.chunks(usize::from(size) + 1).map(<[u8]>::to_vec);
        assert_eq!(whole, replay(wire, offers, chunks), "the reply depends on how it was cut");
        judge_calls(&whole, offers);
        if matches!(whole.last(), Some(ModelEvent::Done { .. })) {
            for word in needed(wire) {
                // An escape such as `\u005b` can spell a word in other bytes.
                let found = data.windows(word.len()).any(|at| at == *word) || data.contains(&b'\\');
                assert!(found, "a good end without `{}`", String::from_utf8_lossy(word));
            }
        }
        judge_calls(&replay_whole(wire, offers, data), offers);
    }
}

fn judge_calls(said: &[ModelEvent], offers: bool) {
    let (mut calls, mut bytes) = (0, 0);
    for event in said {
        if let ModelEvent::ToolUse(ToolUse { id, name, arguments }) = event {
            calls += 1;
            bytes += arguments.len();
            assert!(id.len().max(name.len()) <= NAME_BYTES, "a name is too long");
            assert!(!id.is_empty(), "a call has no id");
        }
    }
    assert!(calls <= MOST && bytes <= TOOL_ARGUMENTS_BYTES, "{calls} calls of {bytes} bytes");
    assert!(offers || calls == 0, "a call of a tool that the request did not offer");
    if let Some(ModelEvent::Done { stop, .. }) = said.last() {
        assert!(*stop != StopReason::ToolUse || calls > 0, "it waits for no tool");
        assert!(*stop != StopReason::EndTurn || calls == 0, "it waits for a tool and says no");
    }
}
