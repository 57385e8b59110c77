//! Files that go with a message: text as a part of it; pictures, PDFs and sound as attachments.

use std::{io::Read, path::Path};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use clawnode_proto::{
    api::Attachment,
    limits::{ATTACHMENT_BYTES, ATTACHMENTS, MESSAGE_BYTES},
    media::{Content, MediaError, MediaType},
};

use crate::cli::output::{exact, size};

/// Bytes of attachments that go in the message itself. In base64 and with a text they fit into a frame;
/// more is uploaded.
const INLINE_BYTES: usize = 2 << 20;

/// A file, read when it was named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AttachedFile {
    pub name: String,
    pub content: AttachedContent,
}

/// What is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AttachedContent {
    Text(String),
    Media(Content),
}

/// Reads a file; else says why that one cannot go with a message.
pub(super) fn read(path: &Path) -> Result<AttachedFile, String> {
    let name = path.display();
    let failed = |error: std::io::Error| format!("cannot read `{name}`: {error}");
    let about = std::fs::metadata(path).map_err(failed)?;
    if !about.is_file() {
        return Err(format!("`{name}` is not a regular file"));
    }
    let most = ATTACHMENT_BYTES as u64;
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(most + 1).read_to_end(&mut bytes).map_err(failed)?;
    let content = if MediaType::of(&bytes).is_ok() {
        let media = Content::new(path.to_str(), bytes);
        AttachedContent::Media(media.map_err(|error| refused(&name.to_string(), error))?)
    } else if bytes.len() > MESSAGE_BYTES {
        let most = MESSAGE_BYTES >> 20;
        return Err(format!("`{name}` is over {most} MiB, the most that a message may have"));
    } else {
        let text = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
        AttachedContent::Text(text.ok_or_else(|| {
            format!("`{name}` cannot be attached: it is neither text nor {}", MediaType::ACCEPTED)
        })?)
    };
    Ok(AttachedFile { name: name.to_string(), content })
}

fn refused(name: &str, error: MediaError) -> String {
    match error {
        // No more than that was read.
        MediaError::TooLarge(_) => {
            let most = size(ATTACHMENT_BYTES as u64);
            format!("`{name}` is over {most}, the most that an attachment may have")
        }
        error => format!("`{name}` cannot be attached: {error}"),
    }
}

/// Why these files cannot go with one message together.
pub(super) fn too_many(files: &[AttachedFile]) -> Option<String> {
    let count = files.iter().filter(|file| file.media().is_some()).count();
    let many = || {
        format!("a message takes at most {ATTACHMENTS} attachments; send these before you add more")
    };
    (count > ATTACHMENTS).then(many)
}

/// What goes with the next message, for people.
pub(super) fn listed(files: &[AttachedFile]) -> String {
    if files.is_empty() {
        return "nothing is attached; /attach FILE attaches a picture, a PDF, sound or text"
            .to_owned();
    }
    let lines = files.iter().map(|file| format!("{} goes with your next message", file.about()));
    lines.collect::<Vec<_>>().join("\n")
}

/// Takes back the file of this name that was attached last, or all; what that comes to, for people.
pub(super) fn detach(files: &mut Vec<AttachedFile>, name: Option<&str>) -> String {
    if files.is_empty() {
        return listed(files);
    }
    let Some(name) = name else {
        files.clear();
        return "nothing is attached any more".to_owned();
    };
    // A path is fine too: it was one that was attached.
    let name = name.trim_matches(['"', '\'']);
    let name = Path::new(name).file_name().map_or(name.into(), |name| name.to_string_lossy());
    match files.iter().rposition(|file| file.name == name) {
        Some(at) => {
            let file = files.remove(at);
            format!("{} does not go with your next message", file.about())
        }
        None => format!("no file {} is attached\n{}", exact(&name), listed(files)),
    }
}

/// A message with its text files, each in a fence that nothing in it ends.
pub(super) fn joined(text: &str, files: &[AttachedFile]) -> String {
    let mut out = text.to_owned();
    for AttachedFile { name, content } in files {
        let AttachedContent::Text(text) = content else { continue };
        let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
        let fence = "`".repeat((longest + 1).max(3));
        let end = if text.ends_with('\n') { "" } else { "\n" };
        out = format!("{out}\n\nFile `{name}`:\n{fence}\n{text}{end}{fence}");
    }
    out
}

/// The attachments among files as they go in a message; `None` if they are too large for that, and have
/// to be uploaded.
pub(super) fn inline(files: &[AttachedFile]) -> Option<Vec<Attachment>> {
    let media = || files.iter().filter_map(|file| Some((file, file.media()?)));
    let bytes: usize = media().map(|(_, content)| content.bytes().len()).sum();
    let attachment = |(file, content): (&AttachedFile, &Content)| Attachment {
        file: None,
        data: Some(STANDARD.encode(content.bytes())),
        name: Some(file.name.clone()),
    };
    (bytes <= INLINE_BYTES).then(|| media().map(attachment).collect())
}

/// What tells these files from others, for the key of a message that is sent again.
pub(super) fn fingerprint(files: &[AttachedFile]) -> String {
    let media = files.iter().filter_map(AttachedFile::media);
    let digests = media.map(|content| clawnode_proto::Digest::of(content.bytes()).to_string());
    digests.collect::<Vec<_>>().join("\0")
}

// === impl AttachedFile ===

impl AttachedFile {
    pub(super) fn media(&self) -> Option<&Content> {
        match &self.content {
            AttachedContent::Media(content) => Some(content),
            AttachedContent::Text(_) => None,
        }
    }

    /// Its name and what it is.
    pub(super) fn about(&self) -> String {
        let name = exact(&self.name);
        match &self.content {
            AttachedContent::Text(text) => format!("{name} ({})", size(text.len() as u64)),
            AttachedContent::Media(content) => {
                let (kind, bytes) = (content.media_type().spoken(), content.bytes().len());
                format!("{name} ({kind}, {})", size(bytes as u64))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

    #[test]
    fn one_file_is_taken_back_by_its_name_or_its_path() {
        let file = |name: &str| AttachedFile {
            name: name.to_owned(),
            content: AttachedContent::Text("text".to_owned()),
        };
        let mut files = vec![file("a.md"), file("b c.md"), file("a.md")];
        let mut detach = |name| detach(&mut files, name);
        assert!(detach(Some("x.md")).contains("no file x.md is attached\na.md"));
        assert!(detach(Some("../notes/a.md")).starts_with("a.md ("));
        assert!(detach(Some("\"b c.md\"")).ends_with("does not go with your next message"));
        assert_eq!(detach(None), "nothing is attached any more");
        assert!(detach(Some("a.md")).contains("/attach FILE"), "nothing is left");
    }

    #[test]
    fn text_and_media_go_with_a_message_and_nothing_else_does() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        let file = read(&path("a.md", b"x\n````\ny")).unwrap();
        let file = AttachedFile { name: "a.md".to_owned(), ..file };
        let picture = read(&path("a.txt", PNG)).unwrap();
        let picture = AttachedFile { name: "a.txt".to_owned(), ..picture };
        let files = [file, picture];
        assert_eq!(joined("look", &files), "look\n\nFile `a.md`:\n`````\nx\n````\ny\n`````");
        let attached = inline(&files).unwrap();
        let [Attachment { data: Some(data), name: Some(name), file: None }] = &attached[..] else {
            panic!("{attached:?}");
        };
        assert_eq!((data.as_str(), name.as_str()), ("iVBORw0KGgo=", "a.txt"));
        assert!(listed(&files).contains("a.txt (a PNG picture, 8 B)"), "{}", listed(&files));
        assert!(listed(&[]).contains("nothing is attached"));
        for bytes in [&b"\x89PNG\xff"[..], b"a\0b"] {
            assert!(read(&path("b", bytes)).unwrap_err().contains("neither text nor a PNG"));
        }
        assert!(read(dir.path()).unwrap_err().contains("not a regular file"));
        let long = vec![b'x'; MESSAGE_BYTES + 1];
        assert!(read(&path("c", &long)).unwrap_err().contains("over 1 MiB"));
        let mut large = PNG.to_vec();
        large.resize(ATTACHMENT_BYTES + 1, 0);
        assert!(read(&path("d", &large)).unwrap_err().contains("an attachment may have"));
        assert!(read(Path::new("/nowhere")).unwrap_err().contains("cannot read"));
    }

    #[test]
    fn what_is_large_is_uploaded_and_too_many_are_refused() {
        let picture = |bytes: usize| {
            let mut content = PNG.to_vec();
            content.resize(bytes, 0);
            let content = AttachedContent::Media(Content::new(None, content).unwrap());
            AttachedFile { name: "a.png".to_owned(), content }
        };
        assert!(inline(&[picture(INLINE_BYTES)]).is_some());
        assert!(inline(&[picture(INLINE_BYTES), picture(8)]).is_none());
        assert_ne!(fingerprint(&[picture(8)]), fingerprint(&[picture(9)]));
        assert_eq!(too_many(&vec![picture(8); ATTACHMENTS]), None);
        assert!(too_many(&vec![picture(8); ATTACHMENTS + 1]).is_some());
    }
}
