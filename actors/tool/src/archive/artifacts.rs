//! What a run made, from the archive that a sandbox hands out: pure, and trusting nothing of it.
//!
//! The program in the sandbox may have written every byte. Only regular files are taken, under
//! paths that go down. Links are never followed, because nothing is ever opened by these names.

use bytes::Bytes;
use clawnode_proto::{
    archive::RESULT_NAME,
    limits::{ARTIFACT_NAME, ARTIFACTS_BYTES, ARTIFACTS_KEPT},
};

/// Files with their names, and what was left out.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ArchivedFiles {
    pub files: Vec<(String, Bytes)>,
    pub left_out: Vec<String>,
}

/// Reads a tar archive; `is_cut` says that its end is missing.
pub fn read(tar: &Bytes, is_cut: bool) -> ArchivedFiles {
    let mut found = ArchivedFiles::default();
    let (mut others, mut misnamed, mut over) = (0_u32, 0_u32, 0_u32);
    let mut room = ARTIFACTS_BYTES as u64;
    let mut broken = is_cut;
    let mut archive = tar::Archive::new(&tar[..]);
    let Ok(entries) = archive.entries() else { return found };
    for entry in entries {
        let Ok(entry) = entry else {
            broken = true;
            break;
        };
        let kind = entry.header().entry_type();
        if kind.is_dir() {
            continue;
        }
        if !kind.is_file() {
            others += 1;
            continue;
        }
        let Some(name) = name_of(&entry.path_bytes()) else {
            misnamed += 1;
            continue;
        };
        let bytes = entry.size();
        if found.files.len() >= ARTIFACTS_KEPT || bytes > room {
            over += 1;
            continue;
        }
        // It is no copy, and a size that is not true is found here.
        let from = usize::try_from(entry.raw_file_position()).unwrap_or(usize::MAX);
        let to = usize::try_from(bytes).ok().and_then(|bytes| from.checked_add(bytes));
        let Some(to) = to.filter(|to| *to <= tar.len()) else {
            broken = true;
            break;
        };
        room -= bytes;
        // Of two files with one name, the later one was there at the end.
        found.files.retain(|(known, _)| *known != name);
        found.files.push((name, tar.slice(from..to)));
    }
    if others > 0 {
        found.left_out.push(format!("{others} that are not regular files"));
    }
    if misnamed > 0 {
        found.left_out.push(format!("{misnamed} with names that cannot be kept"));
    }
    if over > 0 {
        let mib = ARTIFACTS_BYTES >> 20;
        found.left_out.push(format!("{over} beyond {ARTIFACTS_KEPT} files or {mib} MiB"));
    }
    if broken {
        found.left_out.push("what could not be read to its end".to_owned());
    }
    found
}

/// A path that goes down and nowhere else, as text.
fn name_of(path: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(path).ok()?;
    let text = text.strip_prefix("./").unwrap_or(text);
    let is_plain = |part: &str| !matches!(part, "" | "." | "..");
    let fits = text.len() <= ARTIFACT_NAME
        && text != RESULT_NAME
        && !text.chars().any(|c| c.is_control() || c == '\\')
        && text.split('/').all(is_plain);
    fits.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tar::{Builder, EntryType, Header};

    use super::*;

    /// A tar archive, names unchecked, as a hostile command would write them.
    fn tar(entries: &[(EntryType, &str, &[u8])]) -> Bytes {
        let mut builder = Builder::new(Vec::new());
        for (kind, name, content) in entries {
            let mut header = Header::new_gnu();
            header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_entry_type(*kind);
            header.set_size(content.len() as u64);
            if kind.is_symlink() || kind.is_hard_link() {
                header.set_link_name("/etc/shadow").unwrap();
            }
            header.set_cksum();
            builder.append(&header, *content).unwrap();
        }
        builder.into_inner().unwrap().into()
    }

    fn names(files: &ArchivedFiles) -> Vec<&str> {
        files.files.iter().map(|(name, _)| name.as_str()).collect()
    }

    #[test]
    fn only_regular_files_below_the_directory_are_taken() {
        use EntryType::{Block, Directory, Fifo, Link, Regular, Symlink};
        let found = read(
            &tar(&[
                (Directory, "./", b""),
                (Regular, "./a", b"1"),
                (Regular, "./d/b c", b"2"),
                (Regular, "./a", b"3"),
                (Symlink, "./s", b""),
                (Link, "./h", b""),
                (Fifo, "./f", b""),
                (Block, "./b", b""),
                (Regular, "../up", b"x"),
                (Regular, "./d/../../up", b"x"),
                (Regular, "/etc/cron.d/x", b"x"),
                (Regular, "./@result", b"x"),
                (Regular, "./a\x1b[2J", b"x"),
                (Regular, "./d//x", b"x"),
            ]),
            false,
        );
        assert_eq!(names(&found), ["d/b c", "a"]);
        assert_eq!(found.files[1].1.as_ref(), b"3");
        let out = ["4 that are not regular files", "6 with names that cannot be kept"];
        assert_eq!(found.left_out, out);
    }

    #[test]
    fn files_are_bounded_in_number_and_in_bytes() {
        let many: Vec<String> = (0..ARTIFACTS_KEPT + 3).map(|n| format!("{n}")).collect();
        let entries: Vec<_> =
            many.iter().map(|name| (EntryType::Regular, name.as_str(), &b"x"[..])).collect();
        let found = read(&tar(&entries), false);
        assert_eq!(found.files.len(), ARTIFACTS_KEPT);
        assert!(found.left_out[0].starts_with("3 beyond"));
        let large = vec![0; ARTIFACTS_BYTES];
        let regular = EntryType::Regular;
        let found = read(
            &tar(&[(regular, "a", b"x"), (regular, "b", &large), (regular, "c", b"x")]),
            false,
        );
        assert_eq!(names(&found), ["a", "c"]);
    }

    #[test]
    fn what_is_cut_off_is_told_and_what_is_before_it_is_kept() {
        let whole =
            tar(&[(EntryType::Regular, "a", &[1; 700]), (EntryType::Regular, "b", &[2; 700])]);
        let found = read(&whole.slice(..512 + 1_024 + 512 + 100), true);
        assert_eq!(names(&found), ["a"]);
        assert_eq!(found.left_out, ["what could not be read to its end"]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_within_the_bounds(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..4_000),
            real in any::<bool>(),
            at in any::<proptest::sample::Index>(),
            to in any::<u8>(),
        ) {
            if real {
                bytes = tar(&[(EntryType::Regular, "a/b", &bytes), (EntryType::Regular, "c", b"x")]).into();
                let at = at.index(bytes.len());
                bytes[at] = to;
            }
            let bytes = Bytes::from(bytes);
            let found = read(&bytes, false);
            prop_assert!(found.files.len() <= ARTIFACTS_KEPT);
            for (name, content) in &found.files {
                prop_assert!(!name.starts_with('/') && !name.split('/').any(|part| part == ".."));
                prop_assert!(content.len() <= bytes.len());
            }
        }
    }
}
