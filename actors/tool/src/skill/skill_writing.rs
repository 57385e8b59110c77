//! Writes skills into a folder of them. A reader, and a crash, finds the old skill or the new one, whole.

use std::{
    fs::{DirBuilder, File},
    io::{self, Write as _},
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use cap_std::fs::{Dir, OpenOptions};
use clawnode_proto::{Digest, limits::SKILLS};
use rustix::fs::{RenameFlags, renameat_with};

use super::skill_folder::{FoundSkills, SKILL_FILE, Skill, opened, read_folders, read_skill};

/// The mode of a folder of skills that is made.
const FOLDER_MODE: u32 = 0o700;
/// Hexadecimal digits at the end of a temporary name.
const TEMPORARY_DIGITS: usize = 16;

/// Where the skills of a node are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SkillFolders {
    /// The folders that are read, the first one first.
    pub read: Vec<PathBuf>,
    /// The folder for new skills, which is the first one that is read once it is there. Absent: the node has no
    /// configuration file.
    pub write: Option<PathBuf>,
}

// === impl SkillFolders ===

impl SkillFolders {
    /// Writes a `SKILL.md`. A skill that is there is replaced only if `replaces` is its digest. The same text again
    /// writes nothing.
    ///
    /// # Errors
    /// Why it is not written, for the model.
    pub(super) fn create(
        &self,
        name: &str,
        text: &str,
        replaces: Option<Digest>,
    ) -> Result<Skill, String> {
        let folder = self.new_skills()?;
        let place = folder.join(name);
        let failed = |error: io::Error| format!("`{}` cannot be written: {error}", place.display());
        made(folder).map_err(failed)?;
        let _lock = locked(folder).map_err(failed)?;
        let (found, digest) = (self.found(), Digest::of(text.as_bytes()));
        let there = found.skills.iter().find(|skill| skill.head.name == name);
        match there {
            Some(skill) if skill.digest == digest => return Ok(Skill::clone(skill)),
            Some(skill) if replaces != Some(skill.digest) => {
                return Err(format!(
                    "there is a skill `{name}`, and `replaces` does not name it; to replace it, call again with \
                     its digest, {}, which a person approves, or choose another name",
                    skill.digest
                ));
            }
            None if replaces.is_some() => {
                return Err(format!("there is no skill `{name}` to replace: leave out `replaces`"));
            }
            None if found.skills.len() >= SKILLS => {
                return Err(format!("this node has {SKILLS} skills, which are the most"));
            }
            Some(_) | None => {}
        }
        let may_replace = there.is_some_and(|skill| skill.folder == place);
        write_file(folder, name, text, may_replace).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => format!(
                "`{}` has files and is no valid skill: a person has to correct or remove it",
                place.display()
            ),
            _ => failed(error),
        })?;
        let written = read_skill(&place).map_err(|fault| fault.what)?;
        if written.digest == digest {
            return Ok(written);
        }
        // Its folder was exchanged in between: the model is not shown another text as its own.
        Err(format!("`{}` was changed meanwhile, and has another text now", place.display()))
    }

    /// What is in all of these folders now, also in one that has come since it was looked for.
    pub(super) fn found(&self) -> FoundSkills {
        let new = self.write.iter().filter(|folder| !self.read.contains(folder));
        let folders: Vec<PathBuf> = new.chain(&self.read).cloned().collect();
        read_folders(&folders)
    }

    /// The folder for new skills.
    pub(super) fn new_skills(&self) -> Result<&Path, String> {
        let folder = self.write.as_deref();
        folder.ok_or_else(|| {
            "this node has no folder for new skills: an operator sets `skills.folders`".to_owned()
        })
    }
}

/// Opens the folder of skills, which is made if it is not there.
pub(super) fn made(folder: &Path) -> io::Result<Dir> {
    DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder)?;
    opened(folder)
}

/// Waits until no other process writes skills into this folder, and keeps others out until it is dropped. A node and
/// `skills install` look at what is there and then replace it.
pub(super) fn locked(folder: &Path) -> io::Result<File> {
    let file = File::open(folder)?;
    // Some network file systems have no such locks. Each write is whole there, too.
    drop(file.lock());
    Ok(file)
}

/// Writes a new file, and keeps it through a power cut.
pub(super) fn write_new(dir: &Dir, path: &str, bytes: &[u8]) -> io::Result<()> {
    let mut file = dir.open_with(path, OpenOptions::new().write(true).create_new(true))?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Keeps the names in a folder through a power cut.
pub(super) fn keep_names(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// A name for what is written first and put into its place then: hidden, and new.
pub(super) fn temporary(prefix: &str) -> String {
    format!("{prefix}{:0TEMPORARY_DIGITS$x}", rand::random::<u64>())
}

/// Such names that killed processes left.
pub(super) fn leftovers(dir: &Dir, prefix: &str) -> Vec<String> {
    let is_left = |name: &String| {
        name.strip_prefix(prefix).is_some_and(|digits| {
            digits.len() == TEMPORARY_DIGITS && digits.bytes().all(|c| c.is_ascii_hexdigit())
        })
    };
    let entries = dir.entries().into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).filter(is_left).collect()
}

/// Whether there is anything but hidden files.
fn has_files(dir: &Dir) -> io::Result<bool> {
    let mut entries = dir.entries()?;
    Ok(entries.any(|entry| {
        entry.is_ok_and(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."))
    }))
}

fn write_file(folder: &Path, name: &str, text: &str, may_replace: bool) -> io::Result<()> {
    let dir = made(folder)?;
    if let Err(error) = dir.create_dir(name)
        && error.kind() != io::ErrorKind::AlreadyExists
    {
        return Err(error);
    }
    // A link that leads out of the folder is not followed.
    let own = dir.open_dir(name)?;
    let prefix = format!(".{SKILL_FILE}.");
    for left in leftovers(&own, &prefix) {
        // It takes room and harms nothing.
        drop(own.remove_file(left));
    }
    // Files of something else would become files of this skill, which models read.
    if !may_replace && has_files(&own)? {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    let temporary = temporary(&prefix);
    let flags = if may_replace { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
    let written = write_new(&own, &temporary, text.as_bytes())
        .and_then(|()| Ok(renameat_with(&own, temporary.as_str(), &own, SKILL_FILE, flags)?));
    if written.is_err() {
        // The error that is returned says what was lost.
        drop(own.remove_file(&temporary));
        return written;
    }
    keep_names(&folder.join(name))?;
    keep_names(folder)
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{MetadataExt as _, symlink},
    };

    use super::*;

    fn text(name: &str, body: &str) -> String {
        format!("---\nname: {name}\ndescription: Does it.\n---\n{body}\n")
    }

    fn folders(home: &Path) -> SkillFolders {
        let (first, second) = (home.join("first"), home.join("second"));
        SkillFolders { read: vec![first.clone(), second], write: Some(first) }
    }

    fn put(folder: &Path, name: &str, body: &str) -> Digest {
        fs::create_dir_all(folder.join(name)).unwrap();
        let text = text(name, body);
        fs::write(folder.join(name).join(SKILL_FILE), &text).unwrap();
        Digest::of(text.as_bytes())
    }

    #[test]
    fn a_new_skill_is_written_once_and_nothing_stays_beside_it() {
        let home = tempfile::tempdir().unwrap();
        let folders = folders(home.path());
        let written = folders.create("ship", &text("ship", "Go."), None).unwrap();
        assert_eq!((written.text.as_str(), written.head.name.as_str()), ("Go.", "ship"));
        let own = home.path().join("first/ship");
        assert_eq!(written.folder, own);
        let inode = || fs::metadata(own.join(SKILL_FILE)).unwrap().ino();
        let first = inode();
        assert_eq!(folders.create("ship", &text("ship", "Go."), None).unwrap(), written);
        assert_eq!(inode(), first, "the same again writes nothing");
        assert_eq!(fs::read_dir(&own).unwrap().count(), 1);
        assert_eq!(fs::metadata(home.path().join("first")).unwrap().mode() & 0o777, 0o700);
        let nowhere = SkillFolders::default().create("ship", "x", None).unwrap_err();
        assert!(nowhere.contains("skills.folders"), "{nowhere}");
    }

    /// The usual folder is not read while it is not there.
    #[test]
    fn a_folder_that_was_made_is_looked_at() {
        let home = tempfile::tempdir().unwrap();
        let folders = SkillFolders { read: Vec::new(), write: Some(home.path().join("usual")) };
        let first = folders.create("ship", &text("ship", "Go."), None).unwrap();
        assert_eq!(folders.create("ship", &text("ship", "Go."), None).unwrap(), first);
        let refused = folders.create("ship", &text("ship", "Stay."), None).unwrap_err();
        assert!(refused.contains(&first.digest.to_string()), "{refused}");
    }

    #[test]
    fn what_a_person_wrote_is_replaced_only_by_its_digest() {
        let home = tempfile::tempdir().unwrap();
        let folders = folders(home.path());
        let digest = put(&home.path().join("first"), "ship", "By hand.");
        fs::write(home.path().join("first/ship/notes.md"), "notes").unwrap();
        let new = text("ship", "By an agent.");
        for wrong in [None, Some(Digest::ZERO)] {
            let refused = folders.create("ship", &new, wrong).unwrap_err();
            assert!(refused.contains(&digest.to_string()), "{refused}");
        }
        let refused = folders.create("other", &text("other", "x"), Some(digest)).unwrap_err();
        assert!(refused.contains("no skill `other`"), "{refused}");
        let there = read_skill(&home.path().join("first/ship")).unwrap();
        assert_eq!(there.digest, digest, "nothing was changed");
        let written = folders.create("ship", &new, Some(digest)).unwrap();
        assert_eq!(
            (written.text.as_str(), &written.files[..]),
            ("By an agent.", &["notes.md".to_owned()][..])
        );
        assert_eq!(folders.create("ship", &new, Some(digest)).unwrap(), written, "run again");
        // One of a later folder stays as it is, and the new one counts.
        let digest = put(&home.path().join("second"), "late", "By hand.");
        folders.create("late", &text("late", "x"), None).unwrap_err();
        let written = folders.create("late", &text("late", "x"), Some(digest)).unwrap();
        assert_eq!(written.folder, home.path().join("first/late"));
        assert_eq!(read_skill(&home.path().join("second/late")).unwrap().digest, digest);
    }

    /// What another process writes before the lock is free counts.
    #[test]
    fn a_call_waits_for_those_who_write_there() {
        let home = tempfile::tempdir().unwrap();
        let (folders, first) = (folders(home.path()), home.path().join("first"));
        let digest = put(&first, "ship", "One.");
        let new = text("ship", "By an agent.");
        let lock = locked(&first).unwrap();
        std::thread::scope(|scope| {
            let call = scope.spawn(|| folders.create("ship", &new, Some(digest)));
            let newer = put(&first, "ship", "Two.");
            drop(lock);
            let refused = call.join().unwrap().unwrap_err();
            assert!(refused.contains(&newer.to_string()), "{refused}");
        });
        assert_eq!(read_skill(&first.join("ship")).unwrap().text, "Two.");
    }

    #[test]
    fn what_is_no_skill_is_neither_replaced_nor_followed() {
        let (home, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (folders, first) = (folders(home.path()), home.path().join("first"));
        fs::create_dir_all(first.join("broken")).unwrap();
        fs::write(first.join("broken").join(SKILL_FILE), "a draft of a person").unwrap();
        let refused = folders.create("broken", &text("broken", "x"), None).unwrap_err();
        assert!(refused.contains("no valid skill"), "{refused}");
        let kept = fs::read_to_string(first.join("broken").join(SKILL_FILE)).unwrap();
        assert_eq!(kept, "a draft of a person");
        assert_eq!(fs::read_dir(first.join("broken")).unwrap().count(), 1);
        // A skill that a person has switched off.
        fs::create_dir_all(first.join("off")).unwrap();
        fs::write(first.join("off/pipeline.yaml"), "steps: []").unwrap();
        let refused = folders.create("off", &text("off", "x"), None).unwrap_err();
        assert!(refused.contains("no valid skill"), "{refused}");
        assert_eq!(fs::read_dir(first.join("off")).unwrap().count(), 1);
        symlink(out.path(), first.join("link")).unwrap();
        folders.create("link", &text("link", "x"), None).unwrap_err();
        assert_eq!(fs::read_dir(out.path()).unwrap().count(), 0);
        // What a crash left: a folder without its file.
        let empty = first.join("empty");
        fs::create_dir_all(&empty).unwrap();
        fs::write(empty.join(".SKILL.md.0123456789abcdef"), "half").unwrap();
        folders.create("empty", &text("empty", "x"), None).unwrap();
        assert_eq!(fs::read_dir(&empty).unwrap().count(), 1);
    }

    #[test]
    fn no_skill_is_written_that_would_not_be_read() {
        let home = tempfile::tempdir().unwrap();
        let folders = folders(home.path());
        for number in 0..SKILLS {
            put(&home.path().join("second"), &format!("n{number:03}"), "x");
        }
        let refused = folders.create("more", &text("more", "x"), None).unwrap_err();
        assert!(refused.contains("200 skills"), "{refused}");
        assert!(!home.path().join("first/more").exists());
    }
}
