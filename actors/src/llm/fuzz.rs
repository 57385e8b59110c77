//! Entry points for fuzzers and property tests: arbitrary bytes through the real decoders.

use bytes::Bytes;
use clawnode_proto::llm::ModelFailure;
use futures_util::{FutureExt, stream};

use super::{
    ModelEvent,
    anthropic::Reader as Anthropic,
    call::{Decoder, Piece},
    http::Fault,
    openai::Reader as OpenAi,
    options::Wire,
    sse::{Events, EventsError},
    tell::Finish,
};

/// What a client makes of a response whose body arrives in these chunks: the same reader and
/// decoder as in a call, without a connection. The last event is the terminal one.
pub fn replay(wire: Wire, chunks: impl IntoIterator<Item = Vec<u8>>) -> Vec<ModelEvent> {
    let mut decoder: Box<dyn Decoder> = match wire {
        Wire::Anthropic => Box::new(Anthropic::default()),
        Wire::Openai | Wire::Demo => Box::new(OpenAi::default()),
    };
    let chunks: Vec<_> = chunks.into_iter().map(|chunk| Ok(Bytes::from(chunk))).collect();
    let mut said = Vec::new();
    let read = read(stream::iter(chunks), decoder.as_mut(), &mut said).now_or_never();
    said.push(match read {
        Some(Ok(Finish { stop, usage, model })) => ModelEvent::Done { stop, usage, model },
        Some(Err(failure)) => ModelEvent::Failed(failure),
        None => ModelEvent::Failed(Fault::broken("the reader waits, with all bytes there").failure),
    });
    said
}

async fn read(
    bytes: impl stream::Stream<Item = Result<Bytes, EventsError>> + Send + 'static,
    decoder: &mut dyn Decoder,
    said: &mut Vec<ModelEvent>,
) -> Result<Finish, ModelFailure> {
    let mut events = Events::new(bytes);
    let mut pieces = Vec::new();
    while let Some(event) = events.next().await {
        let event = event.map_err(|error| Fault::broken(error).failure)?;
        let read = decoder.event(&event, &mut pieces);
        for piece in pieces.drain(..) {
            match piece {
                Piece::Text(text) => said.push(ModelEvent::Text(text)),
                Piece::Usage(usage) => said.push(ModelEvent::Usage(usage)),
                Piece::End(finish) => return Ok(finish),
            }
        }
        read.map_err(|fault| fault.failure)?;
    }
    Err(Fault::broken("it ended before its proper end").failure)
}

/// Any bytes as an answer on Anthropic's wire.
pub fn fuzz_anthropic(data: &[u8]) {
    fuzz(Wire::Anthropic, data, &[b"message_start", b"message_stop"]);
}

/// Any bytes as an answer on `OpenAI`'s wire.
pub fn fuzz_openai(data: &[u8]) {
    fuzz(Wire::Openai, data, &[b"finish_reason", b"[DONE]"]);
}

/// The first byte chooses the size of the chunks. No input may panic, chunks may not matter, and
/// without these words there is no good end.
fn fuzz(wire: Wire, data: &[u8], needed: &[&[u8]]) {
    let Some((size, data)) = data.split_first() else { return };
    let whole = replay(wire, [data.to_vec()]);
    let chunked = replay(wire, data.chunks(usize::from(*size) + 1).map(<[u8]>::to_vec));
    assert_eq!(whole, chunked, "the reply depends on how it was cut");
    if matches!(whole.last(), Some(ModelEvent::Done { .. })) {
        for word in needed {
            // An escape such as `\u005b` can spell a word in other bytes.
            let found = data.windows(word.len()).any(|at| at == *word) || data.contains(&b'\\');
            assert!(found, "a good end without `{}`", String::from_utf8_lossy(word));
        }
    }
}
