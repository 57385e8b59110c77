//! Every type that crosses a process or a restart, held to its bytes.
//!
//! A golden shows a value as JSON and its `MessagePack` in hexadecimal. A golden that changes is a
//! change of the wire: what older processes wrote is still out there, so a difference is approved
//! (`INSTA_UPDATE=always`) only when the old bytes can still be read, and `old_data` shows that.

#![expect(clippy::unwrap_used, reason = "helpers of tests: their panic is the test's failure")]

mod budget;
mod context;
mod evolution;
mod goldens;
mod memory;
mod record;
mod samples;

/// Bytes as people compare them.
fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap();
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}
