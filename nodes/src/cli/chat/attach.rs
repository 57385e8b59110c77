//! Text files that go with a message.

use std::{io::Read, path::Path};

use clawnode_proto::limits;

/// A file, read when it was named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AttachedFile {
    pub name: String,
    pub text: String,
}

/// Reads a text file; else says why that one cannot go with a message.
pub(super) fn read(path: &Path) -> Result<AttachedFile, String> {
    let name = path.display();
    let failed = |error: std::io::Error| format!("cannot read `{name}`: {error}");
    let about = std::fs::metadata(path).map_err(failed)?;
    if !about.is_file() {
        return Err(format!("`{name}` is not a regular file"));
    }
    let most = limits::MESSAGE_BYTES as u64;
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(most + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > most {
        return Err(format!(
            "`{name}` is over {} MiB, the most that a message may have",
            most >> 20
        ));
    }
    match String::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Ok(AttachedFile { name: name.to_string(), text }),
        Ok(_) | Err(_) => Err(format!("`{name}` is not text; only text files can be attached yet")),
    }
}

/// A message with its files, each in a fence that nothing in it ends.
pub(super) fn joined(text: &str, files: &[AttachedFile]) -> String {
    let mut out = text.to_owned();
    for AttachedFile { name, text } in files {
        let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
        let fence = "`".repeat((longest + 1).max(3));
        let end = if text.ends_with('\n') { "" } else { "\n" };
        out = format!("{out}\n\nFile `{name}`:\n{fence}\n{text}{end}{fence}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_goes_with_a_message_and_nothing_else_does() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        let file = read(&path("a.md", b"x\n````\ny")).unwrap();
        let message = joined("look", &[AttachedFile { name: "a.md".to_owned(), ..file }]);
        assert_eq!(message, "look\n\nFile `a.md`:\n`````\nx\n````\ny\n`````");
        for bytes in [&b"\x89PNG\xff"[..], b"a\0b"] {
            assert!(read(&path("b", bytes)).unwrap_err().contains("not text"));
        }
        assert!(read(dir.path()).unwrap_err().contains("not a regular file"));
        let long = vec![b'x'; limits::MESSAGE_BYTES + 1];
        assert!(read(&path("c", &long)).unwrap_err().contains("over 1 MiB"));
        assert!(read(Path::new("/nowhere")).unwrap_err().contains("cannot read"));
    }
}
