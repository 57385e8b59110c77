//! Thoughts, as vendors sign them and want them back.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use clawnode_proto::Digest;

/// The signature of block `index` of a reply that has so many thoughts: it holds the thought, its place
/// and that none is left out.
pub(super) fn sign(index: usize, thoughts: usize, text: &str) -> String {
    let digest = Digest::of(format!("{index}/{thoughts}/{text}").as_bytes()).to_string();
    format!("{index}.{thoughts}.{}", digest.get(..32).unwrap_or_default())
}

/// A thought that only this server can read.
pub(super) fn seal(index: usize, thoughts: usize, data: &str) -> String {
    format!("{data}.{}", sign(index, thoughts, data))
}

/// Holds block `index` of a message that has so many thoughts to its signature.
pub(super) fn check_signed(
    (index, thoughts): (usize, usize),
    text: &str,
    signature: &str,
) -> Result<(), String> {
    if signature == sign(index, thoughts, text) {
        return Ok(());
    }
    Err(format!(
        "content.{index}: Invalid `signature` in `thinking` block: it is of another thought, of another \
         place, or another thought of the message is missing"
    ))
}

/// The same for a sealed one.
pub(super) fn check_sealed((index, thoughts): (usize, usize), data: &str) -> Result<(), String> {
    let text = data.rsplitn(4, '.').nth(3).unwrap_or_default();
    if data == seal(index, thoughts, text) {
        return Ok(());
    }
    Err(format!("content.{index}: Invalid `data` in `redacted_thinking` block"))
}

/// The signature of a part of Gemini's: it holds what the part is and says.
pub(super) fn sign_part(parts: &[&str]) -> String {
    STANDARD.encode(Digest::of(parts.join("\0").as_bytes()).to_string())
}
