//! Amazon's event stream, written as its specification has it, and not by the code that reads it.

use serde_json::json;

/// The type of a string in a header.
const STRING: u8 = 7;

/// A message with these headers.
pub(super) fn message(headers: &[(&str, &str)], payload: &[u8]) -> Vec<u8> {
    let mut head = Vec::new();
    for (name, value) in headers {
        let [.., name_bytes] = name.len().to_be_bytes();
        head.push(name_bytes);
        head.extend_from_slice(name.as_bytes());
        head.push(STRING);
        let [.., high, low] = value.len().to_be_bytes();
        head.extend_from_slice(&[high, low]);
        head.extend_from_slice(value.as_bytes());
    }
    let mut message = length(16 + head.len() + payload.len()).to_vec();
    message.extend_from_slice(&length(head.len()));
    message.extend_from_slice(&crc(&message));
    message.extend_from_slice(&head);
    message.extend_from_slice(payload);
    message.extend_from_slice(&crc(&message));
    message
}

pub(super) fn event(name: &str, payload: &[u8]) -> Vec<u8> {
    let kind = (":content-type", "application/json");
    message(&[(":event-type", name), kind, (":message-type", "event")], payload)
}

pub(super) fn exception(name: &str, payload: &[u8]) -> Vec<u8> {
    let kind = (":content-type", "application/json");
    message(&[(":exception-type", name), kind, (":message-type", "exception")], payload)
}

/// The bytes of a stream that is written down for people, a line for each message: `NAME JSON` is an event,
/// `!NAME WORDS` an exception, `~error CODE WORDS` an error. Of the last message, `~cut N` leaves so many bytes
/// out, and `~flip N` changes the byte that is so many bytes before its end.
pub fn event_stream(text: &str) -> Vec<u8> {
    let mut bytes: Vec<u8> = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
        let number = || rest.trim().parse::<usize>().unwrap_or_default();
        match name {
            "~cut" => bytes.truncate(bytes.len().saturating_sub(number())),
            "~flip" => {
                let at = bytes.len().saturating_sub(number());
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1;
                }
            }
            "~error" => {
                let (code, words) = rest.split_once(' ').unwrap_or((rest, ""));
                let headers =
                    [(":message-type", "error"), (":error-code", code), (":error-message", words)];
                bytes.extend(message(&headers, b""));
            }
            name => match name.strip_prefix('!') {
                Some(name) => {
                    let words = json!({"message": rest}).to_string();
                    bytes.extend(exception(name, words.as_bytes()));
                }
                None => bytes.extend(event(name, rest.as_bytes())),
            },
        }
    }
    bytes
}

fn length(bytes: usize) -> [u8; 4] {
    let [.., a, b, c, d] = bytes.to_be_bytes();
    [a, b, c, d]
}

/// CRC-32, bit by bit.
fn crc(bytes: &[u8]) -> [u8; 4] {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    (!crc).to_be_bytes()
}
