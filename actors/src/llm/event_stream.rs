//! Amazon's event stream (`application/vnd.amazon.eventstream`) out of bytes, with bounds. Sans-I/O.
//!
//! A message is a prelude (the lengths of the message and of its headers, and the CRC of both), the headers, a
//! payload, and the CRC of everything before. Nothing of a message is used before both CRCs are right.

use bytes::{Buf, BytesMut};

use super::sse::{EVENT_BYTES, EventsError, STREAM_BYTES, SseEvent};

/// Before the type of an exception, in the name of its event.
pub(super) const EXCEPTION: &str = "exception:";
/// Before the code of an error that is no exception.
pub(super) const ERROR: &str = "error:";

/// Bytes of a prelude: two lengths and a CRC.
const PRELUDE: usize = 12;
/// Bytes of a CRC.
const CRC: usize = 4;

/// The messages of one response, as far as their bytes have come.
#[derive(Debug, Default)]
pub(super) struct EventStream {
    pending: BytesMut,
    total: usize,
}

/// The headers of a message that are read.
#[derive(Default)]
struct MessageHeaders<'a> {
    message_type: &'a str,
    event_type: &'a str,
    exception_type: &'a str,
    error_code: &'a str,
    error_message: &'a str,
}

// === impl EventStream ===

impl EventStream {
    /// More bytes.
    pub(super) fn push(&mut self, chunk: &[u8]) -> Result<(), EventsError> {
        self.total = self.total.saturating_add(chunk.len());
        if self.total > STREAM_BYTES {
            return Err(EventsError::TooLong(STREAM_BYTES));
        }
        self.pending.extend_from_slice(chunk);
        Ok(())
    }

    /// The next message, if it is whole.
    pub(super) fn next(&mut self) -> Result<Option<SseEvent>, EventsError> {
        let Some((prelude, _)) = self.pending.split_first_chunk::<PRELUDE>() else {
            return Ok(None);
        };
        let [mut lengths, mut crc] = [&prelude[..PRELUDE - CRC], &prelude[PRELUDE - CRC..]];
        let is_right = crc32fast::hash(lengths) == crc.get_u32();
        let (length, headers) = (lengths.get_u32() as usize, lengths.get_u32() as usize);
        if length > EVENT_BYTES {
            return Err(EventsError::TooLong(EVENT_BYTES));
        }
        if !is_right {
            return Err(EventsError::Damaged("the CRC of a prelude is wrong"));
        }
        if length < PRELUDE + headers + CRC {
            return Err(EventsError::Damaged("the headers are longer than their message"));
        }
        if self.pending.len() < length {
            return Ok(None);
        }
        let message = self.pending.split_to(length);
        let (body, mut crc) = message.split_at(length - CRC);
        if crc32fast::hash(body) != crc.get_u32() {
            return Err(EventsError::Damaged("the CRC of a message is wrong"));
        }
        let (headers, payload) = body[PRELUDE..].split_at(headers);
        let headers = MessageHeaders::read(headers)
            .ok_or(EventsError::Damaged("the headers of a message are malformed"))?;
        headers.event(payload).map(Some)
    }
}

// === impl MessageHeaders ===

impl<'a> MessageHeaders<'a> {
    /// Nothing if they are not made of whole headers of known types.
    fn read(mut bytes: &'a [u8]) -> Option<Self> {
        let mut read = Self::default();
        while !bytes.is_empty() {
            let name = take_short(&mut bytes)?;
            let (kind, rest) = bytes.split_first()?;
            bytes = rest;
            let length = match kind {
                0 | 1 => 0,
                2 => 1,
                3 => 2,
                4 => 4,
                5 | 8 => 8,
                6 | 7 => usize::from(u16::from_be_bytes(take(&mut bytes, 2)?.try_into().ok()?)),
                9 => 16,
                _ => return None,
            };
            let value = take(&mut bytes, length)?;
            let place = match name {
                b":message-type" => &mut read.message_type,
                b":event-type" => &mut read.event_type,
                b":exception-type" => &mut read.exception_type,
                b":error-code" => &mut read.error_code,
                b":error-message" => &mut read.error_message,
                _ => continue,
            };
            *place = if *kind == 7 { std::str::from_utf8(value).ok()? } else { return None };
        }
        Some(read)
    }

    /// The message as an event: exceptions and errors have names that no event has.
    fn event(&self, payload: &[u8]) -> Result<SseEvent, EventsError> {
        let name = match self.message_type {
            "event" => self.event_type.to_owned(),
            "exception" => format!("{EXCEPTION}{}", self.exception_type),
            "error" => {
                let (name, data) =
                    (format!("{ERROR}{}", self.error_code), self.error_message.to_owned());
                return Ok(SseEvent { name, data });
            }
            _ => return Err(EventsError::Damaged("a message is of no known type")),
        };
        let data = std::str::from_utf8(payload)
            .map_err(|error| EventsError::Garbled(sse_stream::Error::Utf8Parse(error)))?;
        Ok(SseEvent { name, data: data.to_owned() })
    }
}

/// The next `length` bytes.
fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(taken)
}

/// The next bytes, after a byte that says how many.
fn take_short<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = bytes.split_first()?;
    *bytes = rest;
    take(bytes, usize::from(*length))
}

/// Makes the CRCs right again that damage made wrong, so that a fuzzer sees what is behind them.
#[cfg(feature = "test-util")]
pub(super) fn with_right_crcs(data: &[u8]) -> Vec<u8> {
    let (mut data, mut at) = (data.to_vec(), 0);
    while let Some(rest) = data.get_mut(at..).filter(|rest| rest.len() >= PRELUDE + CRC) {
        let mut length = &rest[..CRC];
        let length = (length.get_u32() as usize).clamp(PRELUDE + CRC, rest.len());
        let (message, _) = rest.split_at_mut(length);
        message[..CRC].copy_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
        let crc = crc32fast::hash(&message[..PRELUDE - CRC]);
        message[PRELUDE - CRC..PRELUDE].copy_from_slice(&crc.to_be_bytes());
        let crc = crc32fast::hash(&message[..length - CRC]);
        message[length - CRC..].copy_from_slice(&crc.to_be_bytes());
        at += length;
    }
    data
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A message with headers of strings.
    pub(in crate::llm) fn message(headers: &[(&str, &str)], payload: &[u8]) -> Vec<u8> {
        let mut head = Vec::new();
        for (name, value) in headers {
            head.push(u8::try_from(name.len()).unwrap());
            head.extend_from_slice(name.as_bytes());
            head.push(7);
            head.extend_from_slice(&u16::try_from(value.len()).unwrap().to_be_bytes());
            head.extend_from_slice(value.as_bytes());
        }
        raw(&head, payload)
    }

    fn raw(head: &[u8], payload: &[u8]) -> Vec<u8> {
        let length = PRELUDE + head.len() + payload.len() + CRC;
        let mut message = u32::try_from(length).unwrap().to_be_bytes().to_vec();
        message.extend_from_slice(&u32::try_from(head.len()).unwrap().to_be_bytes());
        message.extend_from_slice(&crc32fast::hash(&message).to_be_bytes());
        message.extend_from_slice(head);
        message.extend_from_slice(payload);
        message.extend_from_slice(&crc32fast::hash(&message).to_be_bytes());
        message
    }

    fn event(name: &str, payload: &str) -> Vec<u8> {
        let json = ("content-type", "application/json");
        message(&[(":event-type", name), json, (":message-type", "event")], payload.as_bytes())
    }

    /// The messages in these chunks as far as they can be read, and why not further.
    fn read<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> (Vec<SseEvent>, Option<String>) {
        let (mut stream, mut said) = (EventStream::default(), Vec::new());
        for chunk in chunks {
            if let Err(error) = stream.push(chunk) {
                return (said, Some(error.to_string()));
            }
            loop {
                match stream.next() {
                    Ok(Some(event)) => said.push(event),
                    Ok(None) => break,
                    Err(error) => return (said, Some(error.to_string())),
                }
            }
        }
        (said, None)
    }

    fn named(name: &str, data: &str) -> SseEvent {
        SseEvent { name: name.to_owned(), data: data.to_owned() }
    }

    #[test]
    fn the_prelude_and_the_crcs_are_those_of_the_specification() {
        // An empty message, from the specification of the format.
        let empty = [0, 0, 0, 16, 0, 0, 0, 0, 5, 194, 72, 235, 125, 152, 200, 255];
        assert_eq!(raw(&[], &[]), empty);
        let (said, why) = read([&empty[..]]);
        assert_eq!((said.len(), why.unwrap().contains("no known type")), (0, true));
    }

    #[test]
    fn messages_come_out_whole_however_they_are_cut() {
        let mut all = event("messageStart", r#"{"role":"assistant"}"#);
        // Headers of every other type are skipped.
        let mut head = Vec::new();
        for (kind, length) in [(0, 0), (1, 0), (2, 1), (3, 2), (4, 4), (5, 8), (8, 8), (9, 16)] {
            head.extend_from_slice(&[1, b'x', kind]);
            head.extend(vec![0xff; length]);
        }
        head.extend_from_slice(&[1, b'y', 6, 0, 2, 0xff, 0xfe]);
        head.extend_from_slice(b"\x0d:message-type\x07\x00\x05event\x0b:event-type\x07\x00\x01e");
        all.extend(raw(&head, "é🦀".as_bytes()));
        let exception =
            [(":message-type", "exception"), (":exception-type", "throttlingException")];
        all.extend(message(&exception, br#"{"message":"slow"}"#));
        let error = [
            (":message-type", "error"),
            (":error-code", "InternalError"),
            (":error-message", "no luck"),
        ];
        all.extend(message(&error, b""));
        let whole = [
            named("messageStart", r#"{"role":"assistant"}"#),
            named("e", "é🦀"),
            named("exception:throttlingException", r#"{"message":"slow"}"#),
            named("error:InternalError", "no luck"),
        ];
        for size in [1, 2, 3, 7, 64, all.len()] {
            assert_eq!(read(all.chunks(size)), (whole.to_vec(), None), "{size}");
        }
        for end in 0..all.len() {
            let (said, why) = read([&all[..end]]);
            assert!(whole.starts_with(&said) && said.len() < whole.len(), "{end}");
            assert_eq!(why, None, "what is not there yet is no error: {end}");
        }
    }

    #[test]
    fn no_damage_is_taken_for_a_message() {
        let good = event("messageStart", r#"{"role":"assistant"}"#);
        for at in 0..good.len() {
            for bit in [1, 0x80] {
                let mut bad = good.clone();
                bad[at] ^= bit;
                let (said, why) = read([&bad[..]]);
                assert!(said.is_empty(), "byte {at}");
                // Only a longer length could be waited for, and the CRC of the prelude covers it.
                let why = why.unwrap();
                assert!(why.contains("CRC") || why.contains("1048576"), "byte {at}: {why}");
            }
        }
    }

    #[test]
    fn what_is_malformed_within_right_crcs_is_an_error() {
        let mut long = raw(b"abcd", b"");
        long[4..8].copy_from_slice(&9_u32.to_be_bytes());
        let crc = crc32fast::hash(&long[..8]);
        long[8..12].copy_from_slice(&crc.to_be_bytes());
        let typed = |kind: &[u8]| [b"\x0d:message-type", kind].concat();
        for (bad, says) in [
            (long, "longer than their message"),
            (raw(&typed(b"\x07\x00\x09event"), b""), "malformed"),
            (raw(&typed(b"\x07\x00"), b""), "malformed"),
            (raw(&typed(b"\x0a"), b""), "malformed"),
            (raw(&typed(b"\x00"), b""), "malformed"),
            (raw(&typed(b""), b""), "malformed"),
            (raw(b"\x20x", b""), "malformed"),
            (raw(&typed(b"\x07\x00\x02\xff\xfe"), b""), "malformed"),
            (message(&[(":message-type", "novelty")], b""), "no known type"),
            (message(&[(":message-type", "event")], b"\xff"), "not valid text"),
        ] {
            let (said, why) = read([&bad[..]]);
            assert!(said.is_empty() && why.as_ref().unwrap().contains(says), "{says}: {why:?}");
        }
    }

    #[test]
    fn giant_messages_and_streams_are_refused_before_they_are_kept() {
        let mut giant = u32::try_from(EVENT_BYTES + 1).unwrap().to_be_bytes().to_vec();
        giant.extend([0; 8]);
        assert!(read([&giant[..]]).1.unwrap().contains("1048576"));
        let most = event("e", &"a".repeat(EVENT_BYTES - 100));
        let many = STREAM_BYTES / most.len() + 1;
        let (said, why) = read(std::iter::repeat_n(&most[..], many));
        assert_eq!((said.len(), why.unwrap().contains("67108864")), (many - 1, true));
    }
}
