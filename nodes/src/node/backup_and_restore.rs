//! Keeping a data directory as one file, and restoring it: a tar of its truth.
//!
//! The index and the lock are left out, because they are made again, and so is the token: a copy in
//! an archive would be a forgotten credential. Older backups have it, and keep it.
//!
//! A backup holds every conversation: only its owner can read it (0600), and the files that are made
//! from it.
//!
//! A file to restore may come from anyone (S-18). Only plain files and folders below the names that
//! a backup has are made of it, each once, in a folder that no other process uses; anything else
//! refuses the whole. Nothing is written that the file itself does not hold byte by byte, so it
//! cannot fill a disk that it would not fill by itself.

use std::{
    ffi::OsStr,
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Component, Path, PathBuf},
};

use clawnode_proto::offline::BackupView;
use tar::EntryType;

use crate::{api_token::TOKEN_FILE, start_error::StartError};

/// The parts of a directory that a backup has. A node makes all others again.
const KEPT: &[&str] = &["format", "log", "blobs", "moved.json"];
/// Parts that only older backups have.
const KEPT_BEFORE: &[&str] = &[TOKEN_FILE];
/// The permission bits of the group and of others. A restored file has none of them.
const MASK: u32 = 0o077;
/// Files and folders of one backup at most: each blob is one, and each takes half a kilobyte of it.
const ENTRIES_MAX: u64 = 1 << 24;
/// Deepest file, the root's own being 1: blobs lie two folders deep.
const DEPTH_MAX: usize = 8;

/// Writes `dir` to `file`, which must not exist; `sessions` is for the report.
pub fn write(dir: &Path, file: &Path, sessions: u64) -> Result<BackupView, StartError> {
    if file.exists() {
        return Err(failed(file, &"it exists already").hint("name a file that does not exist"));
    }
    let temporary = part(file);
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary);
    let out = made.map_err(|error| failed(&temporary, &error))?;
    let mut tar = tar::Builder::new(out);
    for name in KEPT {
        let path = dir.join(name);
        let added = match fs::metadata(&path) {
            Ok(about) if about.is_dir() => tar.append_dir_all(name, &path),
            Ok(_) => tar.append_path_with_name(&path, name),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        };
        added.map_err(|error| failed(&path, &error))?;
    }
    let done = tar.into_inner().and_then(|out| {
        out.sync_all()?;
        out.metadata()
    });
    let bytes = done.map_err(|error| failed(&temporary, &error))?.len();
    rename(&temporary, file)?;
    Ok(BackupView { file: file.display().to_string(), bytes, sessions })
}

/// Fills `dir`, which must be empty or absent, from `file`.
pub fn read(file: &Path, dir: &Path) -> Result<u64, StartError> {
    let occupied = match fs::read_dir(dir) {
        Ok(mut entries) => entries.next().is_some(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => return Err(failed(dir, &error)),
    };
    if occupied {
        return Err(failed(dir, &"it is not empty")
            .hint("name an empty directory with `--data-dir`; nothing is overwritten"));
    }
    let input = File::open(file).map_err(|error| failed(file, &error))?;
    let bytes = input.metadata().map_err(|error| failed(file, &error))?.len();
    let temporary = part(dir);
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&temporary);
    made.map_err(|error| failed(&temporary, &error))?;
    let unpacked = unpack(input, &temporary);
    if let Err(error) = unpacked {
        if let Err(error) = fs::remove_dir_all(&temporary) {
            tracing::warn!(%error, "cannot remove an unfinished restore");
        }
        return Err(failed(file, &error).hint("is it a file that `clawnode backup` wrote?"));
    }
    if dir.exists() {
        fs::remove_dir(dir).map_err(|error| failed(dir, &error))?;
    }
    rename(&temporary, dir)?;
    Ok(bytes)
}

/// Gives a complete file its final name, durably.
fn rename(temporary: &Path, to: &Path) -> Result<(), StartError> {
    let renamed = fs::rename(temporary, to).and_then(|()| {
        let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
    });
    renamed.map_err(|error| failed(to, &error))
}

fn unpack(input: File, into: &Path) -> io::Result<()> {
    let mut tar = tar::Archive::new(input);
    tar.set_overwrite(false);
    tar.set_mask(MASK);
    let mut entries = 0;
    for entry in tar.entries()? {
        entries += 1;
        if entries > ENTRIES_MAX {
            return Err(strange(&format!("more than {ENTRIES_MAX} files")));
        }
        let mut entry = entry?;
        let path = kept(&entry.path()?)?;
        let (kind, size) = (entry.header().entry_type(), entry.size());
        // A link would have the next entry, or the node, write elsewhere; a sparse file takes more
        // room than it has here.
        if !matches!(kind, EntryType::Regular | EntryType::Directory) {
            return Err(strange(&format!("`{}`, which is not a regular file", path.display())));
        }
        if !entry.unpack_in(into)? {
            return Err(strange(&format!("`{}`, which leads outside", path.display())));
        }
        if kind == EntryType::Regular && fs::symlink_metadata(into.join(&path))?.len() != size {
            return Err(io::Error::other(format!("it ends in the middle of `{}`", path.display())));
        }
    }
    if !into.join("format").is_file() {
        return Err(io::Error::other("it has no `format` file"));
    }
    // One call for all files and folders that were made.
    Ok(rustix::fs::syncfs(File::open(into)?)?)
}

/// The path of something that a backup has.
fn kept(path: &Path) -> io::Result<PathBuf> {
    let plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    let first = path.components().next().map(Component::as_os_str);
    let mut names = KEPT.iter().chain(KEPT_BEFORE);
    let known = first.is_some_and(|first| names.any(|kept| first == OsStr::new(kept)));
    if plain && known && path.components().count() <= DEPTH_MAX {
        Ok(path.to_owned())
    } else {
        Err(strange("an entry that does not belong to a backup"))
    }
}

fn strange(what: &str) -> io::Error {
    io::Error::other(format!("it holds {what}"))
}

fn part(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    path.with_file_name(name)
}

fn failed(path: &Path, why: &dyn std::fmt::Display) -> StartError {
    StartError::failed("backup_failed", format!("`{}`: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use tar::{Builder, Header};

    use super::*;

    /// One entry with these bytes in the file, even if a proper writer would refuse them.
    fn entry(kind: EntryType, path: &str, link: &str, size: u64, body: &[u8]) -> Vec<u8> {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(0o4777);
        header.set_size(size);
        let old = header.as_old_mut();
        old.name[..path.len()].copy_from_slice(path.as_bytes());
        old.linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_cksum();
        let mut bytes = header.as_bytes().to_vec();
        bytes.extend_from_slice(body);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
        bytes
    }

    fn file(path: &str, body: &str) -> Vec<u8> {
        entry(EntryType::Regular, path, "", body.len() as u64, body.as_bytes())
    }

    fn link(kind: EntryType, path: &str, to: &str) -> Vec<u8> {
        entry(kind, path, to, 0, b"")
    }

    /// A file of these entries, in a folder that nothing else is in.
    fn crafted(entries: &[Vec<u8>]) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("crafted.tar");
        let mut bytes = entries.concat();
        bytes.extend_from_slice(&[0; 1024]);
        fs::write(&path, bytes).unwrap();
        (dir, path)
    }

    /// S-18: nothing of a crafted file is left, nor anything made beside it.
    fn refused(why: &str, entries: &[Vec<u8>]) {
        let mut all = vec![file("format", "1")];
        all.extend_from_slice(entries);
        let (dir, path) = crafted(&all);
        let failure = read(&path, &dir.path().join("data")).unwrap_err();
        assert!(failure.message.contains(why), "{}", failure.message);
        let left: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }

    #[test]
    fn s_18_a_backup_that_leads_elsewhere_is_refused_whole() {
        let (_outside, victim) = crafted(&[]);
        let outside = victim.to_str().unwrap();
        for path in ["/etc/passwd", "../evil", "blobs/../../evil", "./../evil", "evil", ""] {
            refused("does not belong to a backup", &[file(path, "x")]);
        }
        refused("does not belong to a backup", &[file("blobs/a/b/c/d/e/f/g/h", "x")]);
        let plain = "not a regular file";
        refused(plain, &[link(EntryType::Symlink, "blobs", "/tmp"), file("blobs/evil", "x")]);
        refused(plain, &[link(EntryType::Symlink, "log", "../..")]);
        refused(plain, &[link(EntryType::Link, "token", outside)]);
        refused(plain, &[link(EntryType::Link, "token", "format")]);
        for kind in [EntryType::Char, EntryType::Block, EntryType::Fifo, EntryType::Continuous] {
            refused(plain, &[link(kind, "blobs/device", "")]);
        }
        refused("", &[entry(EntryType::GNUSparse, "blobs/bomb", "", 0, b"")]);
    }

    #[test]
    fn s_18_a_backup_that_says_what_is_not_so_is_refused_whole() {
        // The same name twice, also as a folder.
        refused("", &[file("token", "a"), file("token", "b")]);
        refused("", &[file("log", "a"), file("log/b", "b")]);
        // Ten gigabytes that are not there; and an end in the middle.
        refused("", &[entry(EntryType::Regular, "blobs/bomb", "", 10 << 30, b"x")]);
        // A long name in an entry of its own replaces the one in the header.
        let long = "../".repeat(60) + "evil";
        let name = entry(EntryType::GNULongName, "x", "", long.len() as u64, long.as_bytes());
        refused("does not belong to a backup", &[name, file("token", "x")]);
        // A name in an extended header does so as well.
        let pax = b"20 path=../../evil1\n";
        let pax = entry(EntryType::XHeader, "x", "", pax.len() as u64, pax);
        refused("does not belong to a backup", &[pax, file("token", "x")]);
        let (dir, path) = crafted(&[file("token", "x")]);
        let failure = read(&path, &dir.path().join("data")).unwrap_err();
        assert!(failure.message.contains("no `format`"), "{}", failure.message);
    }

    /// Whatever the umask of the process is, and whatever the archive says.
    #[test]
    fn a_backup_and_what_comes_of_it_are_their_owners_alone() {
        let mode = |path: &Path| {
            let about = fs::metadata(path).unwrap();
            std::os::unix::fs::PermissionsExt::mode(&about.permissions()) & 0o777
        };
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        for name in ["log", "blobs"] {
            fs::create_dir_all(data.join(name)).unwrap();
            fs::write(data.join(name).join("one"), "a conversation").unwrap();
        }
        fs::write(data.join("format"), "1").unwrap();
        fs::write(data.join(TOKEN_FILE), "the operator's token").unwrap();
        let file = dir.path().join("kept.tar");
        write(&data, &file, 1).unwrap();
        assert_eq!(mode(&file), 0o600);
        let bytes = fs::read(&file).unwrap();
        let has = |text: &str| bytes.windows(text.len()).any(|part| part == text.as_bytes());
        assert!(has("a conversation"));
        assert!(!has("the operator's token"), "a backup holds no credential");

        // Each folder of the archive says 0755 and each file 0644, as the umask of this test has it.
        let restored = dir.path().join("restored");
        read(&file, &restored).unwrap();
        for folder in ["", "log", "blobs"] {
            assert_eq!(mode(&restored.join(folder)) & 0o077, 0, "`{folder}`");
        }
        for path in ["format", "log/one", "blobs/one"] {
            assert_eq!(mode(&restored.join(path)) & 0o077, 0, "`{path}`");
        }
        assert!(!restored.join(TOKEN_FILE).exists());
    }

    /// The planted twin: what is refused here the library alone lets in.
    #[test]
    fn s_18_without_the_rules_a_link_gets_in() {
        let (dir, path) = crafted(&[link(EntryType::Symlink, "log", "/tmp")]);
        let into = dir.path().join("data");
        tar::Archive::new(File::open(path).unwrap()).unpack(&into).unwrap();
        assert!(fs::symlink_metadata(into.join("log")).unwrap().is_symlink());
    }

    /// Many entries cost time, and no more.
    #[test]
    fn s_18_a_backup_of_very_many_files_is_restored_without_the_rights_that_it_asks_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("many.tar");
        let mut tar = Builder::new(io::BufWriter::new(File::create(&path).unwrap()));
        for n in 0..10_000 {
            let mut header = Header::new_gnu();
            header.set_mode(0o4644);
            header.set_size(0);
            let name = if n == 0 { "format".to_owned() } else { format!("blobs/{n}") };
            tar.append_data(&mut header, name, io::empty()).unwrap();
        }
        tar.into_inner().unwrap();
        let data = dir.path().join("data");
        read(&path, &data).unwrap();
        assert_eq!(fs::read_dir(data.join("blobs")).unwrap().count(), 9_999);
        let mode = fs::metadata(data.join("format")).unwrap().permissions();
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o7000, 0);
    }
}
