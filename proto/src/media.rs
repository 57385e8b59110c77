//! Attachments: pictures, documents and sound on messages and from tools. Their bytes are in the blob
//! store; only a model's provider is sent them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    codec::{self, CodecError},
    id::{Digest, EntityId, FileId},
    kind::Kind,
    limits::{ATTACHMENT_BYTES, ATTACHMENT_NAME_BYTES, FILE_KEPT},
    timestamp::Timestamp,
    visible::is_hidden,
};

/// What an attachment is to a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum MediaKind {
    /// A picture.
    Image,
    /// A document of pages.
    Document,
    /// Sound.
    Audio,
}

/// The types of content that can be attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum MediaType {
    /// A picture.
    #[serde(rename = "image/png")]
    Png,
    /// A picture.
    #[serde(rename = "image/jpeg")]
    Jpeg,
    /// A picture.
    #[serde(rename = "image/webp")]
    Webp,
    /// A picture.
    #[serde(rename = "image/gif")]
    Gif,
    /// A document.
    #[serde(rename = "application/pdf")]
    Pdf,
    /// Sound.
    #[serde(rename = "audio/wav")]
    Wav,
    /// Sound.
    #[serde(rename = "audio/mpeg")]
    Mp3,
}

/// An attachment by reference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Media {
    /// The type of its content, as its bytes say.
    pub media_type: MediaType,
    /// The blob that begins with its bytes.
    pub blob: Digest,
    /// Its size in bytes.
    pub bytes: u64,
    /// The name of its file, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its place in the text of a user's message: how many bytes of the text (UTF-8) are before it. If it is
    /// absent, or not a place in the text, all of the text is after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<u64>,
}

/// Content that can be attached: its bytes were judged.
#[derive(Clone, PartialEq, Eq)]
pub struct Content {
    media_type: MediaType,
    name: Option<String>,
    bytes: Vec<u8>,
}

/// What is kept of an uploaded file. Each change of it is by compare-and-set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileRecord {
    /// The type of its content, as its bytes say.
    pub media_type: MediaType,
    /// Its name, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its size in bytes.
    pub bytes: u64,
    /// The blobs that begin with its bytes, [`ATTACHMENT_BYTES`] each but for the last one. Named here
    /// before they are stored, so that what is left of an upload that broke off is found.
    pub parts: Vec<Digest>,
    /// When it was uploaded.
    pub at: Timestamp,
    /// A message names it, so it stays as long as its session.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_named: bool,
    /// It is about to be removed, so no message may name it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_going: bool,
}

/// A note about content in a blob of a session: no message may have come to name it. It is beside the
/// records of files, and is none: a build that does not know it leaves it alone. Each change of it is by
/// compare-and-set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ContentNote {
    /// The digest of the content, which is its place in the blob store.
    pub blob: Digest,
    /// When the content was stored last.
    pub at: Timestamp,
    /// The content is about to be removed, so no message may bring it now.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_going: bool,
}

/// An uploaded file, for clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileView {
    /// The file, for `attachments` of a message.
    pub file: FileId,
    /// The type of its content, as its bytes say.
    pub media_type: MediaType,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its name, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// When it was uploaded.
    #[serde(default)]
    pub at: Timestamp,
    /// When it may be removed. Absent if a message names it: then it stays as long as its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

/// Content of no type that can be attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is not {}", MediaType::ACCEPTED)]
pub struct UnknownMedia;

/// Why content cannot be attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MediaError {
    /// There is none.
    #[error("it is empty")]
    Empty,
    /// It is too large.
    #[error("it takes {0} bytes, at most {ATTACHMENT_BYTES} are allowed")]
    TooLarge(u64),
    /// It is of no type that can be attached.
    #[error(transparent)]
    Unknown(#[from] UnknownMedia),
}

// === impl Content ===

impl Content {
    /// Judges content by its bytes. Directories before a name, and what no person sees of it, are left
    /// out.
    pub fn new(name: Option<&str>, bytes: Vec<u8>) -> Result<Self, MediaError> {
        if bytes.is_empty() {
            return Err(MediaError::Empty);
        }
        if bytes.len() > ATTACHMENT_BYTES {
            return Err(MediaError::TooLarge(bytes.len() as u64));
        }
        let media_type = MediaType::of(&bytes)?;
        Ok(Self { media_type, name: name.and_then(file_name), bytes })
    }

    /// Its type.
    pub const fn media_type(&self) -> MediaType {
        self.media_type
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How it is referred to, once the blob with this digest begins with it.
    pub fn stored(self, blob: Digest) -> Media {
        let Self { media_type, name, bytes } = self;
        Media { media_type, blob, bytes: bytes.len() as u64, name, at: None }
    }
}

/// Without its bytes.
impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Content({:?}, {:?}, {} bytes)", self.media_type, self.name, self.bytes.len())
    }
}

/// What files are stored under that were uploaded for no session in particular. It is the id of no session:
/// the key of one has four parts.
pub fn shared_files() -> EntityId {
    EntityId::derive(Kind::SESSION, "files")
}

/// The last part of a path as a name: bounded, and of visible characters that need no escapes.
pub fn file_name(path: &str) -> Option<String> {
    let name = path.rsplit(['/', '\\']).next().unwrap_or(path);
    let is_plain = |c: &char| !c.is_control() && *c != '"' && !is_hidden(*c);
    let mut name: String = name.chars().filter(is_plain).collect();
    name.truncate(name.floor_char_boundary(ATTACHMENT_NAME_BYTES));
    (!name.trim().is_empty()).then_some(name)
}

// === impl FileRecord ===

impl FileRecord {
    /// Its bytes in the key-value store.
    pub fn to_bytes(&self) -> Result<Vec<u8>, CodecError> {
        codec::encode(self)
    }

    /// Reads a record.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, CodecError> {
        codec::decode(bytes)
    }

    /// The same for clients.
    pub fn view(self, file: FileId) -> FileView {
        let Self { media_type, name, bytes, at, is_named, .. } = self;
        let expires_at = (!is_named).then(|| at.plus(FILE_KEPT));
        FileView { file, media_type, bytes, name, at, expires_at }
    }
}

// === impl ContentNote ===

impl ContentNote {
    /// Its bytes in the key-value store.
    pub fn to_bytes(self) -> Result<Vec<u8>, CodecError> {
        codec::encode(&self)
    }

    /// Reads a note.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, CodecError> {
        codec::decode(bytes)
    }
}

// === impl MediaType ===

impl MediaType {
    /// What can be attached, for people.
    pub const ACCEPTED: &'static str =
        "a PNG, JPEG, WebP or GIF picture, a PDF, or WAV or MP3 sound";

    /// Bytes from the beginning of a content that [`MediaType::of`] needs to see.
    pub const HEAD: usize = 16;

    /// The type of content that begins with these bytes. Names and claims do not count.
    pub fn of(content: &[u8]) -> Result<Self, UnknownMedia> {
        Ok(match content {
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Self::Png,
            [0xff, 0xd8, 0xff, ..] => Self::Jpeg,
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Self::Gif,
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Self::Webp,
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'A', b'V', b'E', ..] => Self::Wav,
            [b'%', b'P', b'D', b'F', b'-', ..] => Self::Pdf,
            [b'I', b'D', b'3', 2..=4, revision, ..] if *revision != 0xff => Self::Mp3,
            [0xff, second, third, ..] if is_mp3_frame(*second, *third) => Self::Mp3,
            _ => return Err(UnknownMedia),
        })
    }

    /// What it is to a model.
    pub const fn kind(self) -> MediaKind {
        match self {
            Self::Png | Self::Jpeg | Self::Webp | Self::Gif => MediaKind::Image,
            Self::Pdf => MediaKind::Document,
            Self::Wav | Self::Mp3 => MediaKind::Audio,
        }
    }

    /// Its name on the web.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Webp => "image/webp",
            Self::Gif => "image/gif",
            Self::Pdf => "application/pdf",
            Self::Wav => "audio/wav",
            Self::Mp3 => "audio/mpeg",
        }
    }

    /// Its name among people, with an article.
    pub const fn spoken(self) -> &'static str {
        match self {
            Self::Png => "a PNG picture",
            Self::Jpeg => "a JPEG picture",
            Self::Webp => "a WebP picture",
            Self::Gif => "a GIF picture",
            Self::Pdf => "a PDF",
            Self::Wav => "a WAV recording",
            Self::Mp3 => "an MP3 recording",
        }
    }

    /// What its files' names usually end with.
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Png => "png",
            Self::Jpeg => "jpg",
            Self::Webp => "webp",
            Self::Gif => "gif",
            Self::Pdf => "pdf",
            Self::Wav => "wav",
            Self::Mp3 => "mp3",
        }
    }
}

/// The header of a frame of MPEG audio, layer III, with a bit rate and a sample rate that exist.
const fn is_mp3_frame(second: u8, third: u8) -> bool {
    let is_synced = second & 0xe0 == 0xe0;
    let has_version = second & 0x18 != 0x08;
    let is_layer_3 = second & 0x06 == 0x02;
    let has_rates = third & 0xf0 != 0xf0 && third & 0x0c != 0x0c;
    is_synced && has_version && is_layer_3 && has_rates
}

/// `a PDF "report.pdf", 120 kB`.
impl fmt::Display for Media {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.media_type.spoken())?;
        if let Some(name) = &self.name {
            write!(f, " \"{name}\"")?;
        }
        write!(f, ", {}", Size(self.bytes))
    }
}

/// A number of bytes as people read it: `120 kB`, `4.9 MB`.
#[derive(Clone, Copy, Debug)]
pub struct Size(pub u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes @ 0..1_000 => write!(f, "{bytes} bytes"),
            bytes @ 1_000..1_000_000 => write!(f, "{} kB", bytes / 1_000),
            bytes => write!(f, "{}.{} MB", bytes / 1_000_000, bytes / 100_000 % 10),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_known_by_its_bytes() {
        let known: [(&[u8], MediaType); 10] = [
            (b"\x89PNG\r\n\x1a\nrest", MediaType::Png),
            (b"\xff\xd8\xff\xe0", MediaType::Jpeg),
            (b"RIFF\0\0\0\0WEBPVP8 ", MediaType::Webp),
            (b"GIF87a", MediaType::Gif),
            (b"GIF89a", MediaType::Gif),
            (b"%PDF-1.7", MediaType::Pdf),
            (b"RIFF\0\0\0\0WAVEfmt ", MediaType::Wav),
            (b"ID3\x04\0", MediaType::Mp3),
            (b"\xff\xfb\x90\x00", MediaType::Mp3),
            (b"\xff\xf3\x40", MediaType::Mp3),
        ];
        for (content, expected) in known {
            assert_eq!(MediaType::of(content), Ok(expected), "{content:?}");
            let json = serde_json::to_value(expected).unwrap();
            assert_eq!(json, expected.as_str(), "one spelling");
            assert!(content.len() <= MediaType::HEAD);
        }
        let unknown: [&[u8]; 10] = [
            b"",
            b"\x89PNG",
            b"hello.png",
            b"<svg xmlns=",
            b"RIFF\0\0\0\0AVI ",
            b"GIF88a",
            b"ID3 is a format",
            // No layer III, no bit rate, no sample rate.
            b"\xff\xf1\x50",
            b"\xff\xfb\xf0",
            b"\xff\xfb\x9c",
        ];
        for content in unknown {
            assert_eq!(MediaType::of(content), Err(UnknownMedia), "{content:?}");
        }
    }

    #[test]
    fn content_is_judged_before_it_is_attached() {
        let png = b"\x89PNG\r\n\x1a\n".to_vec();
        let content = Content::new(Some("../b/c\u{202e}at\".png"), png.clone()).unwrap();
        let media = content.stored(Digest::ZERO);
        assert_eq!(media.name.as_deref(), Some("cat.png"));
        assert_eq!((media.media_type, media.bytes), (MediaType::Png, 8));
        assert_eq!(Content::new(None, Vec::new()), Err(MediaError::Empty));
        let text = Content::new(Some("x.png"), b"hello".to_vec());
        assert_eq!(text, Err(MediaError::Unknown(UnknownMedia)), "names do not count");
        let mut large = png;
        large.resize(ATTACHMENT_BYTES, 0);
        Content::new(None, large.clone()).unwrap();
        large.push(0);
        let refused = Content::new(None, large).unwrap_err();
        assert_eq!(refused.to_string(), "it takes 5000001 bytes, at most 5000000 are allowed");
        for (path, expected) in [("/", None), (" ", None), ("a/b.png", Some("b.png"))] {
            assert_eq!(file_name(path).as_deref(), expected);
        }
        let long = file_name(&"é".repeat(ATTACHMENT_NAME_BYTES)).unwrap();
        assert_eq!(long.len(), ATTACHMENT_NAME_BYTES);
    }

    #[test]
    fn attachments_without_a_place_are_written_as_before() {
        let content = Content::new(None, b"%PDF-1.7".to_vec()).unwrap();
        let before = content.stored(Digest::ZERO);
        assert_eq!(serde_json::to_value(&before).unwrap().get("at"), None);
        let placed = Media { at: Some(7), ..before.clone() };
        for media in [before, placed] {
            let bytes = codec::encode(&media).unwrap();
            assert_eq!(codec::decode::<Media>(&bytes).unwrap(), media);
        }
    }

    #[test]
    fn people_read_what_it_is() {
        let media_type = MediaType::Pdf;
        let media = |bytes, name: Option<&str>| {
            let name = name.map(str::to_owned);
            Media { media_type, blob: Digest::ZERO, bytes, name, at: None }.to_string()
        };
        assert_eq!(media(120_400, Some("x.pdf")), "a PDF \"x.pdf\", 120 kB");
        assert_eq!(media(999, None), "a PDF, 999 bytes");
        assert_eq!(media(4_980_000, None), "a PDF, 4.9 MB");
        assert!(UnknownMedia.to_string().contains("PNG"), "it says what is accepted");
    }
}
