//! Folders of skills, as they are on a disk.
//!
//! A folder is opened once and all else is opened through its handle, so that no link in it leads out of it. Each file
//! is read up to its limit and no further. A pipe or a device is never opened.

use std::{
    collections::BTreeMap,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

use cap_std::{
    ambient_authority,
    fs::{Dir, OpenOptions, OpenOptionsExt},
};
use clawnode_proto::{
    Digest,
    limits::{SKILL_BYTES, SKILL_FILE_BYTES, SKILL_FILES, SKILLS},
};
use rustix::fs::OFlags;

use super::format::{self, SkillHead};

/// The file that makes a folder a skill.
pub(super) const SKILL_FILE: &str = "SKILL.md";
/// Entries of a folder of skills that are looked at: four times as many as there may be skills.
const ENTRIES: usize = 4 * SKILLS;
/// Folders in each other in which files of a skill are found.
pub(super) const DEPTH: u32 = 4;

/// A skill as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skill {
    /// What its frontmatter says.
    pub head: SkillHead,
    /// Its instructions.
    pub text: String,
    /// The digest of the whole `SKILL.md`.
    pub digest: Digest,
    /// Its folder.
    pub folder: PathBuf,
    /// Its other files, relative to its folder.
    pub files: Vec<String>,
}

/// What keeps a skill out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillFault {
    /// The file or folder.
    pub path: PathBuf,
    /// What is wrong with it.
    pub what: String,
}

/// What is in some folders.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundSkills {
    /// The skills, by name.
    pub skills: Vec<Arc<Skill>>,
    /// What is not one, and why.
    pub faults: Vec<SkillFault>,
}

/// Reads folders of skills. Of two skills of one name, the one in the earlier folder counts.
pub fn read_folders(folders: &[PathBuf]) -> FoundSkills {
    let (mut skills, mut faults) = (BTreeMap::<String, Arc<Skill>>::new(), Vec::new());
    for folder in folders {
        let (dir, names) = match opened(folder).and_then(|dir| Ok((names(&dir)?, dir))) {
            Ok((names, dir)) => (dir, names),
            Err(error) => {
                faults.push(SkillFault { path: folder.clone(), what: error.to_string() });
                continue;
            }
        };
        for name in names {
            let place = folder.join(&name);
            let skill = match read_in(&dir, &name, &place) {
                Ok(Some(skill)) => skill,
                Ok(None) => continue,
                Err(fault) => {
                    faults.push(fault);
                    continue;
                }
            };
            let name = skill.head.name.clone();
            let other = skills.get(&name).map(|other| other.folder.display().to_string());
            let what = match other {
                Some(other) => format!("`{other}` has a skill of this name, which is used"),
                None if skills.len() >= SKILLS => {
                    format!("it is left out: {SKILLS} skills are the most")
                }
                None => {
                    skills.insert(name, Arc::new(skill));
                    continue;
                }
            };
            faults.push(SkillFault { path: place, what });
        }
    }
    FoundSkills { skills: skills.into_values().collect(), faults }
}

/// Reads the skill in this folder.
pub fn read_skill(place: &Path) -> Result<Skill, SkillFault> {
    let failed = |what: String| SkillFault { path: place.to_owned(), what };
    let place = std::path::absolute(place).map_err(|error| failed(error.to_string()))?;
    let (Some(parent), Some(name)) =
        (place.parent(), place.file_name().and_then(|name| name.to_str()))
    else {
        return Err(failed("it has no name".to_owned()));
    };
    let dir = opened(parent).map_err(|error| failed(error.to_string()))?;
    read_in(&dir, name, &place)?.ok_or_else(|| failed(format!("there is no `{SKILL_FILE}` in it")))
}

/// The files and folders whose times tell that something in a folder of skills has changed.
pub fn watched(folder: &Path) -> Vec<PathBuf> {
    let names = opened(folder).and_then(|dir| names(&dir)).unwrap_or_default();
    let each = names.into_iter().flat_map(|name| {
        let place = folder.join(name);
        [place.join(SKILL_FILE), place]
    });
    std::iter::once(folder.to_owned()).chain(each).collect()
}

pub(super) fn opened(folder: &Path) -> io::Result<Dir> {
    Dir::open_ambient_dir(folder, ambient_authority())
}

/// The names in a folder that may be skills, in order.
fn names(dir: &Dir) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in dir.entries()?.take(ENTRIES) {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        // A link may lead to a folder.
        if !name.starts_with('.') && !entry.file_type()?.is_file() {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Reads the skill in a folder of `dir`; nothing if it is none.
fn read_in(dir: &Dir, name: &str, place: &Path) -> Result<Option<Skill>, SkillFault> {
    let file = place.join(SKILL_FILE);
    let fault = |path: &Path, what: String| SkillFault { path: path.to_owned(), what };
    let own = match dir.open_dir(name) {
        Ok(own) => own,
        // Neither a folder nor a link to one.
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Ok(None),
        Err(error) => return Err(fault(place, unread(&error))),
    };
    let bytes = match read_file(&own, SKILL_FILE, SKILL_BYTES) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(fault(&file, unread(&error))),
    };
    let digest = Digest::of(&bytes);
    let text = String::from_utf8(bytes)
        .map_err(|_invalid| fault(&file, "it is not UTF-8 text".to_owned()))?;
    if text.contains('\0') {
        return Err(fault(&file, "it has zero bytes in it".to_owned()));
    }
    let (head, text) = format::parse(&text).map_err(|what| fault(&file, what))?;
    if head.name != name {
        let what =
            format!("`name` is `{}`, and its folder is `{name}`: they must be the same", head.name);
        return Err(fault(&file, what));
    }
    let mut files = Vec::new();
    list(&own, "", 1, &mut files).map_err(|error| fault(place, unread(&error)))?;
    Ok(Some(Skill { head, text, digest, folder: place.to_owned(), files }))
}

/// Adds the regular files below a folder. Links and hidden files are none of a skill's.
fn list(dir: &Dir, above: &str, depth: u32, files: &mut Vec<String>) -> io::Result<()> {
    let mut entries = Vec::new();
    for entry in dir.entries()?.take(SKILL_FILES * 2) {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let is_plain = !name.starts_with('.') && !name.chars().any(char::is_control);
        if is_plain && !(depth == 1 && name == SKILL_FILE) {
            entries.push((name, entry.file_type()?));
        }
    }
    entries.sort_by(|(one, _), (other, _)| one.cmp(other));
    for (name, kind) in entries {
        if files.len() >= SKILL_FILES {
            break;
        }
        let path = if above.is_empty() { name.clone() } else { format!("{above}/{name}") };
        if kind.is_file() {
            files.push(path);
        } else if kind.is_dir() && depth < DEPTH {
            list(&dir.open_dir(&name)?, &path, depth + 1, files)?;
        }
    }
    Ok(())
}

/// A regular file of at most so many bytes, opened without ever waiting for one.
pub(super) fn read_file(dir: &Dir, path: &str, most: usize) -> io::Result<Vec<u8>> {
    let no_file = || io::Error::other("it is not a regular file");
    if !dir.metadata(path)?.is_file() {
        return Err(no_file());
    }
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    let file = dir.open_with(path, OpenOptions::new().read(true).custom_flags(flags))?;
    // It may be another one by now.
    if !file.metadata()?.is_file() {
        return Err(no_file());
    }
    let mut bytes = Vec::new();
    file.take(most as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > most {
        return Err(io::Error::other(format!("it has more than {most} bytes")));
    }
    Ok(bytes)
}

/// Why something cannot be read.
fn unread(error: &io::Error) -> String {
    // What a handle says of a path that leads out of it.
    if error.kind() == io::ErrorKind::PermissionDenied && error.raw_os_error().is_none() {
        return "it is a link that leads out of the folder: put the files there, or name the other folder in `skills.folders`".to_owned();
    }
    error.to_string()
}

// === impl Skill ===

impl Skill {
    /// The text of one of its files, as it is now.
    pub fn file(&self, name: &str) -> Result<String, String> {
        if !self.files.iter().any(|file| file == name) {
            return Err(format!("the skill `{}` has no file `{name}`", self.head.name));
        }
        let read = opened(&self.folder).and_then(|dir| read_file(&dir, name, SKILL_FILE_BYTES));
        let bytes = read.map_err(|error| format!("`{name}` cannot be read: {}", unread(&error)))?;
        String::from_utf8(bytes).map_err(|_invalid| format!("`{name}` is not text"))
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    fn write(folder: &Path, name: &str, text: &[u8]) {
        fs::create_dir_all(folder.join(name)).unwrap();
        fs::write(folder.join(name).join(SKILL_FILE), text).unwrap();
    }

    fn good(name: &str) -> String {
        format!("---\nname: {name}\ndescription: Does {name}.\n---\nDo {name}.\n")
    }

    fn names(found: &FoundSkills) -> Vec<&str> {
        found.skills.iter().map(|skill| skill.head.name.as_str()).collect()
    }

    #[test]
    fn what_is_wrong_with_one_skill_keeps_out_no_other() {
        let (home, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let folder = home.path().join("skills");
        write(&folder, "beta", good("beta").as_bytes());
        write(&folder, "alpha", good("alpha").as_bytes());
        write(&folder, "huge", &[good("huge").as_bytes(), &vec![b'x'; SKILL_BYTES]].concat());
        write(&folder, "binary", &[0xff, 0xfe, 0x00]);
        write(&folder, "zero", good("zero\0").as_bytes());
        write(&folder, "broken", b"---\nname: [\n---\nx");
        write(&folder, "other-name", good("else").as_bytes());
        write(&folder, "paths", good("../paths").as_bytes());
        write(out.path(), "secret", good("secret").as_bytes());
        symlink(out.path().join("secret"), folder.join("secret")).unwrap();
        fs::create_dir_all(folder.join("linked")).unwrap();
        symlink(out.path().join("secret/SKILL.md"), folder.join("linked/SKILL.md")).unwrap();
        fs::create_dir_all(folder.join("folder/SKILL.md")).unwrap();
        let pipe = folder.join("pipe");
        fs::create_dir_all(&pipe).unwrap();
        let (fifo, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
        rustix::fs::mknodat(rustix::fs::CWD, pipe.join(SKILL_FILE), fifo, mode, 0).unwrap();
        // No skills, and nothing that is wrong.
        fs::write(folder.join("README.md"), "x").unwrap();
        fs::create_dir_all(folder.join("empty")).unwrap();
        write(&folder, ".git", b"x");
        let found = read_folders(std::slice::from_ref(&folder));
        assert_eq!(names(&found), ["alpha", "beta"]);
        let fault = |name: &str| {
            let is_it = |fault: &&SkillFault| fault.path.starts_with(folder.join(name));
            let mut all = found.faults.iter().filter(is_it);
            let fault = all.next().unwrap_or_else(|| panic!("{name}: {:?}", found.faults));
            assert_eq!(all.next(), None);
            fault.what.clone()
        };
        for (name, why) in [
            ("huge", "more than 65536 bytes"),
            ("binary", "not UTF-8"),
            ("zero", "zero bytes"),
            ("broken", "not YAML"),
            ("other-name", "must be the same"),
            ("paths", "a to z"),
            ("secret", "leads out of the folder"),
            ("linked", "leads out of the folder"),
            ("folder", "not a regular file"),
            ("pipe", "not a regular file"),
        ] {
            assert!(fault(name).contains(why), "{name}: {}", fault(name));
        }
        assert_eq!(found.faults.len(), 10, "{:?}", found.faults);
    }

    #[test]
    fn the_first_of_two_folders_counts_and_there_is_a_limit() {
        let home = tempfile::tempdir().unwrap();
        let (one, two) = (home.path().join("one"), home.path().join("two"));
        write(&one, "same", good("same").as_bytes());
        for number in 0..=SKILLS {
            write(&two, &format!("n{number:03}"), good(&format!("n{number:03}")).as_bytes());
        }
        write(&two, "same", good("same").as_bytes());
        let found = read_folders(&[one.clone(), two.clone(), home.path().join("absent")]);
        assert_eq!(found.skills.len(), SKILLS);
        assert_eq!(found.skills.last().unwrap().folder, one.join("same"));
        let told: Vec<(&Path, &str)> =
            found.faults.iter().map(|fault| (fault.path.as_path(), fault.what.as_str())).collect();
        assert_eq!(told.len(), 4, "{told:?}");
        assert!(told[0].0.ends_with("n199") && told[0].1.contains("200 skills"), "{told:?}");
        assert!(told[2].0 == two.join("same") && told[2].1.contains("of this name"), "{told:?}");
        assert!(told[3].0.ends_with("absent"));
    }

    #[test]
    fn its_files_are_named_and_read_and_no_others_are() {
        let home = tempfile::tempdir().unwrap();
        write(home.path(), "pdf", good("pdf").as_bytes());
        let own = home.path().join("pdf");
        fs::create_dir_all(own.join("references/deep/deeper/deepest")).unwrap();
        fs::write(own.join("references/forms.md"), "forms").unwrap();
        fs::write(own.join("references/deep/deeper/deepest/x.md"), "too deep").unwrap();
        fs::write(own.join("logo.png"), [0xff, 0xd8]).unwrap();
        fs::write(own.join("large.md"), vec![b'x'; SKILL_FILE_BYTES + 1]).unwrap();
        fs::write(home.path().join("outside.md"), "secret").unwrap();
        symlink(home.path().join("outside.md"), own.join("link.md")).unwrap();
        let skill = read_skill(&own).unwrap();
        assert_eq!(skill.files, ["large.md", "logo.png", "references/forms.md"]);
        assert_eq!(skill.file("references/forms.md").unwrap(), "forms");
        for (name, why) in [
            ("link.md", "no file"),
            ("../outside.md", "no file"),
            ("/etc/passwd", "no file"),
            ("logo.png", "not text"),
            ("large.md", "more than"),
        ] {
            let error = skill.file(name).unwrap_err();
            assert!(error.contains(why), "{name}: {error}");
        }
        // A link that takes the place of a file that was there.
        fs::remove_file(own.join("references/forms.md")).unwrap();
        symlink(home.path().join("outside.md"), own.join("references/forms.md")).unwrap();
        assert!(skill.file("references/forms.md").unwrap_err().contains("leads out"));
        let absent = read_skill(&home.path().join("absent")).unwrap_err();
        assert!(absent.path.ends_with("absent"));
    }

    #[test]
    fn what_changes_in_a_folder_is_watched() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("skills");
        assert_eq!(watched(&folder), std::slice::from_ref(&folder), "it may come");
        write(&folder, "a", good("a").as_bytes());
        assert_eq!(watched(&folder), [folder.clone(), folder.join("a/SKILL.md"), folder.join("a")]);
    }
}
