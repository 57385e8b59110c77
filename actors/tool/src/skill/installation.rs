//! Puts a verified bundle into the folder for new skills: all of it or nothing, and never an older one.
//!
//! A hidden file in the folder of the skill says which bundle it came from. A skill without one, or with files that
//! have changed since, is a person's or an agent's: it is replaced only if the caller says so.

use std::{collections::BTreeMap, io, path::Path};

use cap_std::fs::Dir;
use clawnode_proto::{Digest, limits::SKILLS};
use rustix::fs::{RenameFlags, renameat_with};
use serde::{Deserialize, Serialize};

use super::{
    BundleError, Skill, SkillFolders, VerifiedBundle,
    bundle::{self, BundleVersion},
    skill_folder::{opened, read_file},
    skill_writing::{keep_names, leftovers, locked, made, temporary, write_new},
};

/// The file that says which bundle a skill came from. Hidden files are none of a skill's.
const RECORD_FILE: &str = ".bundle.json";
/// The most bytes that are read of that file.
const RECORD_BYTES: usize = 4 << 10;

/// Which bundle a skill came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleRecord {
    /// Numbers with dots between them.
    pub version: String,
    /// The name of the key that verified it, in the configuration of that time.
    pub signer: String,
    /// That key, in base64.
    pub key: String,
    /// The digest of its files, as a payload has them.
    pub digest: Digest,
}

/// A skill that came from a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleState {
    pub record: BundleRecord,
    /// Whether its files are other ones than those of the bundle.
    pub is_changed: bool,
}

/// What an installation has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installed {
    /// There was no such skill.
    New,
    /// The skill that was there is gone.
    Replaced,
    /// The same files were there.
    Unchanged,
}

// === impl BundleState ===

impl BundleState {
    /// The bundle that a skill came from, if it came from one.
    pub fn of(skill: &Skill) -> Option<Self> {
        let record = record(&skill.folder)?;
        let is_changed = digest(skill) != Some(record.digest);
        Some(Self { record, is_changed })
    }
}

// === impl SkillFolders ===

impl SkillFolders {
    /// Installs a bundle. `replaces`: also in the place of a skill that is not as a bundle had it. It waits for the disk.
    ///
    /// # Errors
    /// If what is there may not be replaced, or the disk fails. Then all is as it was.
    pub fn install(
        &self,
        bundle: &VerifiedBundle,
        replaces: bool,
    ) -> Result<Installed, BundleError> {
        let folder = self.new_skills().map_err(BundleError::Conflict)?;
        let name = bundle.head.name.as_str();
        let place = folder.join(name);
        let failed = |error: io::Error| {
            BundleError::Disk(format!("`{}` cannot be written: {error}", place.display()))
        };
        let dir = made(folder).map_err(failed)?;
        let _lock = locked(folder).map_err(failed)?;
        for left in leftovers(&dir, &format!(".{name}.")) {
            // It takes room and harms nothing.
            drop(dir.remove_dir_all(left));
        }
        let found = self.found();
        let there = found.skills.iter().find(|skill| skill.head.name == name);
        if let Some(skill) = there {
            if digest(skill) == Some(bundle.digest) {
                return Ok(Installed::Unchanged);
            }
            may_replace(skill, bundle, replaces)?;
        } else if found.skills.len() >= SKILLS {
            let what = format!("this node has {SKILLS} skills, which are the most");
            return Err(BundleError::Conflict(what));
        }
        // What is in its place may be no valid skill.
        is_not_older(bundle, &place, None)?;
        let is_valid = there.is_some_and(|skill| skill.folder == place);
        let is_there = match dir.symlink_metadata(name) {
            Ok(about) if about.is_dir() && (is_valid || replaces) => true,
            Ok(_) => {
                let what = format!(
                    "`{}` is there and is no valid skill: correct or remove it, or install with `--replace` if it is a \
                     folder",
                    place.display()
                );
                return Err(BundleError::Conflict(what));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(failed(error)),
        };
        let staged = temporary(&format!(".{name}."));
        let put = stage(&dir, folder, &staged, bundle)
            .and_then(|()| exchange(&dir, &staged, name, is_there));
        // After an exchange it is the old skill.
        if is_there || put.is_err() {
            drop(dir.remove_dir_all(&staged));
        }
        put.and_then(|()| keep_names(folder)).map_err(failed)?;
        Ok(if is_there { Installed::Replaced } else { Installed::New })
    }
}

/// The digest that a bundle of this skill would have; nothing if it cannot be packed.
fn digest(skill: &Skill) -> Option<Digest> {
    bundle::payload(&skill.folder).ok().map(|payload| Digest::of(&payload))
}

/// What the folder of a skill says of the bundle that it came from.
fn record(folder: &Path) -> Option<BundleRecord> {
    let dir = opened(folder).ok()?;
    let bytes = read_file(&dir, RECORD_FILE, RECORD_BYTES).ok()?;
    serde_json::from_slice(&bytes).ok()
}

/// Whether a bundle may take the place of a skill with other files.
fn may_replace(skill: &Skill, bundle: &VerifiedBundle, replaces: bool) -> Result<(), BundleError> {
    let (name, new) = (&skill.head.name, bundle.version);
    let there = bundle::version(&skill.head).ok();
    is_not_older(bundle, &skill.folder, there)?;
    if replaces {
        return Ok(());
    }
    let conflict = |what: String| Err(BundleError::Conflict(what));
    match BundleState::of(skill) {
        Some(state) if state.is_changed => conflict(format!(
            "the files of the skill `{name}` in `{}` have changed since its bundle was installed; to lose the changes, \
             install with `--replace`",
            skill.folder.display()
        )),
        // Each of the trusted keys would else be good for the skills of all others.
        Some(state) if state.record.key != bundle.key.to_string() => conflict(format!(
            "the skill `{name}` is there from a bundle of another key ({}), and this bundle is by `{}` ({}); if it is \
             meant to replace it, install with `--replace`",
            state.record.key, bundle.signer, bundle.key
        )),
        Some(_) if there == Some(new) => conflict(format!(
            "the skill `{name}` is there in version {new} with other files: pack the new files with a higher version"
        )),
        Some(_) => Ok(()),
        None => conflict(format!(
            "the skill `{name}` in `{}` came from no bundle: a person or an agent wrote it; to replace it, install with \
             `--replace`",
            skill.folder.display()
        )),
    }
}

/// Refuses a bundle that is older than the skill in this folder, or than the bundle that the skill came from: a change
/// of its files since then does not make it older. `there`: the version in the skill's own text.
fn is_not_older(
    bundle: &VerifiedBundle,
    folder: &Path,
    there: Option<BundleVersion>,
) -> Result<(), BundleError> {
    let recorded = record(folder).and_then(|record| record.version.parse::<BundleVersion>().ok());
    let Some(newer) = there.max(recorded).filter(|there| *there > bundle.version) else {
        return Ok(());
    };
    Err(BundleError::Conflict(format!(
        "the skill `{}` is there in version {newer}, and the bundle has the older version {}; to go back, remove `{}` \
         first",
        bundle.head.name,
        bundle.version,
        folder.display()
    )))
}

/// Writes all files of a bundle into a hidden folder, which no reader looks at.
fn stage(dir: &Dir, folder: &Path, staged: &str, bundle: &VerifiedBundle) -> io::Result<()> {
    dir.create_dir(staged)?;
    let own = dir.open_dir(staged)?;
    let record = BundleRecord {
        version: bundle.version.to_string(),
        signer: bundle.signer.clone(),
        key: bundle.key.to_string(),
        digest: bundle.digest,
    };
    write_files(&own, &bundle.files)?;
    write_new(&own, RECORD_FILE, &serde_json::to_vec(&record)?)?;
    keep_names(&folder.join(staged))
}

fn write_files(own: &Dir, files: &BTreeMap<String, Vec<u8>>) -> io::Result<()> {
    for (path, bytes) in files {
        if let Some((above, _)) = path.rsplit_once('/') {
            own.create_dir_all(above)?;
        }
        // The handle leads nowhere else, whatever the path is.
        write_new(own, path, bytes)?;
    }
    Ok(())
}

/// Puts the hidden folder into its place in one step. A skill that is there takes the hidden name.
fn exchange(dir: &Dir, staged: &str, name: &str, is_there: bool) -> io::Result<()> {
    let flags = if is_there { RenameFlags::EXCHANGE } else { RenameFlags::NOREPLACE };
    Ok(renameat_with(dir, staged, dir, name, flags)?)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{
        super::{BundleSigner, pack, read_skill, skill_folder::SKILL_FILE, verify},
        *,
    };

    /// A home with a key, skills to pack, and a folder to install them in.
    struct Shop {
        home: tempfile::TempDir,
        signer: BundleSigner,
        folders: SkillFolders,
    }

    impl Shop {
        fn new() -> Self {
            let home = tempfile::tempdir().unwrap();
            let pem = BundleSigner::generate().unwrap();
            let signer = BundleSigner::from_pem(pem.as_bytes()).unwrap();
            let folder = home.path().join("skills");
            let folders = SkillFolders { read: vec![folder.clone()], write: Some(folder) };
            Self { home, signer, folders }
        }

        fn write(&self, folder: &str, version: &str, body: &str) {
            let own = self.home.path().join(folder).join("ship");
            fs::create_dir_all(own.join("references")).unwrap();
            let text = format!(
                "---\nname: ship\ndescription: d\nmetadata:\n  version: \"{version}\"\n---\n{body}\n"
            );
            fs::write(own.join(SKILL_FILE), text).unwrap();
            fs::write(own.join("references/a.md"), body).unwrap();
        }

        fn bundle(&self, version: &str, body: &str) -> VerifiedBundle {
            self.bundle_by(&self.signer, version, body)
        }

        fn bundle_by(&self, signer: &BundleSigner, version: &str, body: &str) -> VerifiedBundle {
            self.write("source", version, body);
            let (_, bytes) = pack(&self.home.path().join("source/ship"), signer).unwrap();
            verify(&bytes, &[("team".to_owned(), signer.key())].into()).unwrap()
        }

        fn installed(&self) -> Skill {
            read_skill(&self.home.path().join("skills/ship")).unwrap()
        }

        fn refusal(&self, bundle: &VerifiedBundle, replaces: bool) -> String {
            let before = self.installed();
            let refused = self.folders.install(bundle, replaces).unwrap_err();
            assert!(matches!(refused, BundleError::Conflict(_)), "{refused:?}");
            assert_eq!(self.installed(), before);
            self.is_clean();
            refused.to_string()
        }

        /// Nothing is left beside the skill.
        fn is_clean(&self) {
            let names = fs::read_dir(self.home.path().join("skills")).unwrap();
            assert_eq!(names.count(), 1);
        }
    }

    #[test]
    fn a_newer_bundle_takes_the_place_and_an_older_one_is_refused() {
        let shop = Shop::new();
        let (one, two, ten) =
            (shop.bundle("1.1", "one"), shop.bundle("1.2", "two"), shop.bundle("1.10", "ten"));
        assert_eq!(shop.folders.install(&two, false), Ok(Installed::New));
        let there = shop.installed();
        assert_eq!(
            (there.text.as_str(), &there.files[..]),
            ("two", &["references/a.md".to_owned()][..])
        );
        assert_eq!(there.file("references/a.md").unwrap(), "two");
        let state = BundleState::of(&there).unwrap();
        assert_eq!((state.record.version.as_str(), state.is_changed), ("1.2", false));
        assert_eq!((state.record.signer, state.record.digest), ("team".to_owned(), two.digest));
        assert_eq!(shop.folders.install(&two, false), Ok(Installed::Unchanged));
        for replaces in [false, true] {
            let refused = shop.refusal(&one, replaces);
            assert!(refused.contains("older version 1.1"), "{refused}");
        }
        let other = shop.bundle("1.2", "not two");
        let refused = shop.refusal(&other, false);
        assert!(refused.contains("with other files"), "{refused}");
        assert_eq!(shop.folders.install(&ten, false), Ok(Installed::Replaced));
        assert_eq!(shop.installed().text, "ten");
        shop.is_clean();
    }

    #[test]
    fn what_a_person_wrote_is_replaced_only_if_that_is_asked_for() {
        let shop = Shop::new();
        shop.write("skills", "1", "by hand");
        let two = shop.bundle("2", "two");
        assert_eq!(BundleState::of(&shop.installed()), None);
        let refused = shop.refusal(&two, false);
        assert!(refused.contains("came from no bundle"), "{refused}");
        assert_eq!(shop.folders.install(&two, true), Ok(Installed::Replaced));
        let notes = shop.home.path().join("skills/ship/references/a.md");
        fs::write(notes, "mine").unwrap();
        assert!(BundleState::of(&shop.installed()).unwrap().is_changed);
        let refused = shop.refusal(&shop.bundle("3", "three"), false);
        assert!(refused.contains("have changed since"), "{refused}");
        // One that is not valid is a person's, too.
        fs::write(shop.home.path().join("skills/ship").join(SKILL_FILE), "x").unwrap();
        let refused = shop.folders.install(&two, false).unwrap_err().to_string();
        assert!(refused.contains("no valid skill"), "{refused}");
        assert_eq!(shop.folders.install(&two, true), Ok(Installed::Replaced));
        assert_eq!(shop.installed().text, "two");
    }

    /// Hidden folders with other names are a person's.
    #[test]
    fn what_a_killed_installation_left_is_removed_by_the_next_one() {
        let shop = Shop::new();
        let bundle = shop.bundle("1", "one");
        let skills = shop.home.path().join("skills");
        for hidden in [".ship.0123456789abcdef", ".ship.notes", ".other.0123456789abcdef"] {
            fs::create_dir_all(skills.join(hidden).join("references")).unwrap();
            fs::write(skills.join(hidden).join(SKILL_FILE), "x").unwrap();
        }
        assert_eq!(shop.folders.install(&bundle, false), Ok(Installed::New));
        assert!(!skills.join(".ship.0123456789abcdef").exists());
        assert!(skills.join(".ship.notes").exists());
        assert!(skills.join(".other.0123456789abcdef").exists());
    }

    /// The name of a key is of its configuration, so the key itself is compared.
    #[test]
    fn another_trusted_key_takes_no_skill_over_by_itself() {
        let shop = Shop::new();
        let pem = BundleSigner::generate().unwrap();
        let other = BundleSigner::from_pem(pem.as_bytes()).unwrap();
        shop.folders.install(&shop.bundle("1", "one"), false).unwrap();
        let theirs = shop.bundle_by(&other, "99", "theirs");
        let refused = shop.refusal(&theirs, false);
        assert!(refused.contains("another key") && refused.contains(&other.key().to_string()));
        assert_eq!(shop.folders.install(&theirs, true), Ok(Installed::Replaced));
        assert_eq!(shop.installed().text, "theirs");
        let refused = shop.refusal(&shop.bundle("100", "ours"), false);
        assert!(refused.contains("another key"), "{refused}");
    }

    /// An older bundle has faults that a newer one has mended.
    #[test]
    fn a_change_of_the_files_opens_no_way_back() {
        let shop = Shop::new();
        let (one, two) = (shop.bundle("1", "one"), shop.bundle("2", "two"));
        shop.folders.install(&two, false).unwrap();
        let file = shop.home.path().join("skills/ship").join(SKILL_FILE);
        fs::write(&file, "---\nname: ship\ndescription: d\n---\nno version\n").unwrap();
        let refused = shop.refusal(&one, true);
        assert!(refused.contains("older version 1"), "{refused}");
        fs::write(&file, "no skill").unwrap();
        let refused = shop.folders.install(&one, true).unwrap_err().to_string();
        assert!(refused.contains("older version 1"), "{refused}");
        assert_eq!(shop.folders.install(&two, true), Ok(Installed::Replaced));
        assert_eq!(shop.installed().text, "two");
    }

    /// A link in the place of the skill: what it leads to is not written.
    #[test]
    fn a_link_is_not_followed() {
        let shop = Shop::new();
        let (out, skills) = (tempfile::tempdir().unwrap(), shop.home.path().join("skills"));
        fs::create_dir_all(&skills).unwrap();
        std::os::unix::fs::symlink(out.path(), skills.join("ship")).unwrap();
        let bundle = shop.bundle("1", "one");
        for replaces in [false, true] {
            let refused = shop.folders.install(&bundle, replaces).unwrap_err();
            assert!(matches!(refused, BundleError::Conflict(_)), "{refused:?}");
        }
        assert_eq!(fs::read_dir(out.path()).unwrap().count(), 0);
        shop.is_clean();
    }
}
