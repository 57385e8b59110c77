//! What both wires demand of pictures, documents and sound.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use clawnode_proto::media::MediaType;

/// Content as a message has it: base64, of the type that it claims and one of `types`, and no larger than
/// `most` bytes of base64.
pub(super) fn check(
    claimed: &str,
    data: &str,
    types: &[MediaType],
    most: usize,
) -> Result<(), String> {
    if data.len() > most {
        return Err(format!("{} bytes of base64, at most {most} are allowed", data.len()));
    }
    let bytes = STANDARD.decode(data).map_err(|error| format!("no base64: {error}"))?;
    let found = MediaType::of(&bytes).map_err(|error| format!("of {claimed}: {error}"))?;
    if found.as_str() != claimed {
        return Err(format!("{claimed} that is {}", found.as_str()));
    }
    if types.contains(&found) { Ok(()) } else { Err(format!("{claimed} where it cannot stand")) }
}

/// The same in a URL.
pub(super) fn check_url(url: &str, types: &[MediaType], most: usize) -> Result<(), String> {
    let parts = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
    let (claimed, data) = parts.ok_or_else(|| "a URL that is no data URL".to_owned())?;
    check(claimed, data, types, most)
}

/// What is a picture.
pub(super) const IMAGES: [MediaType; 4] =
    [MediaType::Png, MediaType::Jpeg, MediaType::Webp, MediaType::Gif];
