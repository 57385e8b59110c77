//! The folder of hooks: `POINT/NAME` is one, and `POINT/NAME.toml` says how it is marked.

use std::{
    ffi::OsString,
    fs,
    io::{self, Read as _},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Component, Path, PathBuf},
};

use clawnode_proto::{
    AgentName, HookName,
    hook::{HookPoint, HookSpec},
    id::ParseIdError,
    limits::{HOOK_TIMEOUT_MAX, HOOKS_PER_POINT, RULE_CHARS},
};
use serde::Deserialize;

use super::Program;

/// Where a hook's programs are looked for.
pub(super) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The longest that a hook may take unless it is marked otherwise (5 s): it is in the way of a turn.
const TIMEOUT_MS: u64 = 5_000;
/// Files of one folder that are looked at.
const FILES_MAX: usize = 256;
/// Bytes of a file of marks.
const MARKS_BYTES: u64 = 16 << 10;
/// What the name of a file of marks ends with.
const MARKS: &str = "toml";
/// Anybody but the owner may write.
const OTHERS_WRITE: u32 = 0o022;
/// In a folder with this bit, a user may only remove their own files.
const STICKY: u32 = 0o1000;
/// Links on the way to one file that are followed, as by the kernel.
const LINKS_MAX: usize = 40;
/// Bytes of a script's first line that are looked at, as the kernel does.
const FIRST_LINE_BYTES: u64 = 256;
/// The owner may execute.
const EXECUTE: u32 = 0o100;
/// Whose files may be run beside this user's own.
const ROOT: u32 = 0;

/// A file in the folder, and what it is.
#[derive(Clone, Debug)]
pub struct HookFile {
    /// When it would be asked.
    pub point: HookPoint,
    /// Its file.
    pub path: PathBuf,
    /// The hook, or why it is none.
    pub hook: Result<Program, HookRefusal>,
}

/// Why a file is no hook, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HookRefusal {
    /// It is not there, or out of reach.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    /// A folder, a socket, or the like.
    #[error("it is not a file")]
    NotAFile,
    /// No user could run it.
    #[error("it is not executable; run `chmod u+x`, or move it elsewhere if it is not a hook")]
    NotExecutable,
    /// Its owner is neither root nor who runs the node.
    #[error("it belongs to user {0}, who is neither root nor the user of this node")]
    Foreign(u32),
    /// Others than its owner can change it, or its folder.
    #[error("others can write `{0}`; run `chmod go-w` on it")]
    Writable(PathBuf),
    /// Its first line names a program that is not here.
    #[error(
        "it cannot be started: its first line names `{0}`, which does not exist on this machine"
    )]
    NoInterpreter(String),
    /// Not a hook's name.
    #[error(transparent)]
    Name(ParseIdError),
    /// Its marks do not read.
    #[error("its marks, `{path}`: {detail}")]
    Marks { path: PathBuf, detail: String },
    /// There are marks, but no hook.
    #[error("these marks belong to a hook that does not exist; remove them, or add `{0}`")]
    NoHook(PathBuf),
    /// More than there may be.
    #[error("this point has more than {HOOKS_PER_POINT} hooks; remove some")]
    TooMany,
}

/// How a hook is marked.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Marks {
    required: bool,
    timeout_ms: Option<u64>,
    modifies: bool,
    agents: Vec<AgentName>,
    tools: Vec<String>,
}

/// All that is in the folder, by point and name; nothing if there is no folder.
pub fn find(folder: &Path) -> Vec<HookFile> {
    let mut entries = Vec::new();
    for point in HookPoint::ALL {
        let folder = folder.join(point.as_str());
        let paths = match listed(&folder) {
            Ok(paths) => paths,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => {
                let hook = Err(HookRefusal::Unreadable(error.to_string()));
                entries.push(HookFile { point, path: folder, hook });
                continue;
            }
        };
        let mut count = 0;
        for path in paths {
            let marks_of = path
                .extension()
                .filter(|extension| *extension == MARKS)
                .map(|_| path.with_extension(""));
            let hook = match marks_of {
                Some(program) if program.exists() => continue,
                Some(program) => Err(HookRefusal::NoHook(program)),
                None => program(point, &path),
            };
            count += 1;
            let hook = if count > HOOKS_PER_POINT { Err(HookRefusal::TooMany) } else { hook };
            entries.push(HookFile { point, path, hook });
        }
    }
    entries
}

/// Whether only the node's own user, and root, decide what is run.
pub fn is_safe(path: &Path) -> Result<(), HookRefusal> {
    let about = fs::metadata(path).map_err(|error| HookRefusal::Unreadable(error.to_string()))?;
    if !about.is_file() {
        return Err(HookRefusal::NotAFile);
    }
    own(path)?;
    // Who can write a folder on the way can put another one in its place.
    on_the_way(path)?;
    if about.permissions().mode() & EXECUTE == 0 {
        return Err(HookRefusal::NotExecutable);
    }
    Ok(())
}

/// Only the node's own user, or root, has it.
fn own(path: &Path) -> Result<(), HookRefusal> {
    let about = fs::metadata(path).map_err(|error| HookRefusal::Unreadable(error.to_string()))?;
    owned(&about)?;
    if about.permissions().mode() & OTHERS_WRITE != 0 {
        return Err(HookRefusal::Writable(path.to_owned()));
    }
    Ok(())
}

fn owned(about: &fs::Metadata) -> Result<(), HookRefusal> {
    let me = rustix::process::geteuid().as_raw();
    if about.uid() == ROOT || about.uid() == me {
        Ok(())
    } else {
        Err(HookRefusal::Foreign(about.uid()))
    }
}

/// Judges every folder and every link that a path leads through, from the root on: no other user
/// can make it lead elsewhere. In a folder such as `/tmp` others can add names, but take none away.
fn on_the_way(path: &Path) -> Result<(), HookRefusal> {
    let unreadable = |error: io::Error| HookRefusal::Unreadable(error.to_string());
    let path = std::path::absolute(path).map_err(unreadable)?;
    let mut left: Vec<OsString> = names(&path).rev().collect();
    let (mut at, mut links) = (PathBuf::from("/"), 0);
    while let Some(name) = left.pop() {
        folder(&at)?;
        if name == ".." {
            at.pop();
            continue;
        }
        let next = at.join(&name);
        let about = fs::symlink_metadata(&next).map_err(unreadable)?;
        owned(&about)?;
        if !about.is_symlink() {
            at = next;
            continue;
        }
        links += 1;
        if links > LINKS_MAX {
            return Err(HookRefusal::Unreadable("too many links on the way".to_owned()));
        }
        let target = fs::read_link(&next).map_err(unreadable)?;
        if target.is_absolute() {
            at = PathBuf::from("/");
        }
        left.extend(names(&target).rev());
    }
    Ok(())
}

/// The names of a path, one after the other, `..` among them.
fn names(path: &Path) -> impl DoubleEndedIterator<Item = OsString> {
    let named = |part: &Component<'_>| matches!(part, Component::Normal(_) | Component::ParentDir);
    path.components().filter(named).map(|part| part.as_os_str().to_owned())
}

/// Checks that no other user can remove anything from this folder.
fn folder(path: &Path) -> Result<(), HookRefusal> {
    let about =
        fs::symlink_metadata(path).map_err(|error| HookRefusal::Unreadable(error.to_string()))?;
    owned(&about)?;
    let mode = about.permissions().mode();
    if mode & OTHERS_WRITE != 0 && mode & STICKY == 0 {
        return Err(HookRefusal::Writable(path.to_owned()));
    }
    Ok(())
}

/// The files of a folder in the order of their names, without hidden ones.
fn listed(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder)?.take(FILES_MAX) {
        let entry = entry?;
        if !entry.file_name().as_encoded_bytes().starts_with(b".") {
            paths.push(entry.path());
        }
    }
    paths.sort();
    Ok(paths)
}

fn program(point: HookPoint, path: &Path) -> Result<Program, HookRefusal> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let name: HookName = name.parse().map_err(HookRefusal::Name)?;
    is_safe(path)?;
    startable(path)?;
    let at = path.with_file_name(format!("{name}.{MARKS}"));
    let marks = marks(&at)?;
    if point == HookPoint::BeforeLlmCall && !marks.tools.is_empty() {
        let detail = "`tools` is for hooks of tool calls".to_owned();
        return Err(HookRefusal::Marks { path: at, detail });
    }
    let timeout_ms = marks.timeout_ms.unwrap_or(TIMEOUT_MS);
    let spec = HookSpec {
        point,
        name,
        required: marks.required,
        timeout_ms: u32::try_from(timeout_ms).unwrap_or(u32::MAX),
        modifies: marks.modifies,
        tools: marks.tools,
    };
    Ok(Program { spec, agents: marks.agents, path: path.to_owned() })
}

/// Whether a script's first line names a program that is here. The hook itself is not started: what
/// it would do without a question is not known.
fn startable(path: &Path) -> Result<(), HookRefusal> {
    let unreadable = |error: io::Error| HookRefusal::Unreadable(error.to_string());
    let mut head = Vec::new();
    let file = fs::File::open(path).map_err(unreadable)?;
    file.take(FIRST_LINE_BYTES).read_to_end(&mut head).map_err(unreadable)?;
    let Some(line) = head.strip_prefix(b"#!") else { return Ok(()) };
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line).into_owned();
    let mut words = line.split_whitespace();
    let Some(program) = words.next() else { return Ok(()) };
    if !is_program(Path::new(program)) {
        return Err(HookRefusal::NoInterpreter(program.to_owned()));
    }
    // `env` finds the program that it is given by the search path, which is the same for all hooks.
    let found = words.find(|word| !word.starts_with('-') && !word.contains('='));
    let (true, Some(name)) = (program.ends_with("/env"), found) else { return Ok(()) };
    let is_there = PATH.split(':').any(|folder| is_program(&Path::new(folder).join(name)));
    if is_there { Ok(()) } else { Err(HookRefusal::NoInterpreter(name.to_owned())) }
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

fn marks(path: &Path) -> Result<Marks, HookRefusal> {
    let refused = |detail: String| HookRefusal::Marks { path: path.to_owned(), detail };
    let about = match fs::metadata(path) {
        Ok(about) => about,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Marks::default()),
        Err(error) => return Err(refused(error.to_string())),
    };
    own(path)?;
    if about.len() > MARKS_BYTES {
        return Err(refused(format!("{} bytes, at most {MARKS_BYTES}", about.len())));
    }
    let text = fs::read_to_string(path).map_err(|error| refused(error.to_string()))?;
    let marks: Marks =
        toml::from_str(&text).map_err(|error| refused(error.message().to_owned()))?;
    let most = HOOK_TIMEOUT_MAX.as_millis();
    if marks.timeout_ms.is_some_and(|ms| ms == 0 || u128::from(ms) > most) {
        return Err(refused(format!("`timeout_ms` is 1 to {most}")));
    }
    if marks.tools.len() > HOOKS_PER_POINT
        || marks.tools.iter().any(|pattern| pattern.len() > RULE_CHARS)
    {
        let most = format!("{HOOKS_PER_POINT} patterns of {RULE_CHARS} bytes");
        return Err(refused(format!("`tools` has at most {most}")));
    }
    Ok(marks)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hook(folder: &Path, name: &str, mode: u32) -> PathBuf {
        let folder = folder.join("before_tool_call");
        fs::create_dir_all(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        let path = folder.join(name);
        fs::write(&path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    fn refusals(folder: &Path) -> Vec<String> {
        let told = |file: HookFile| file.hook.err().map(|refusal| refusal.to_string());
        find(folder).into_iter().filter_map(told).collect()
    }

    #[test]
    fn hooks_are_found_by_name_with_their_marks() {
        let dir = tempfile::tempdir().unwrap();
        assert!(find(&dir.path().join("nothing")).is_empty());
        for name in ["20-b", "10-a.sh", ".hidden"] {
            hook(dir.path(), name, 0o700);
        }
        let marks = hook(dir.path(), "10-a.sh.toml", 0o600);
        fs::write(&marks, "required = true\ntimeout_ms = 9\nmodifies = true\ntools = [\"x_*\"]\n")
            .unwrap();
        let found: Vec<HookSpec> =
            find(dir.path()).into_iter().map(|found| found.hook.unwrap().spec).collect();
        let names: Vec<&str> = found.iter().map(|spec| spec.name.as_str()).collect();
        assert_eq!(names, ["10-a.sh", "20-b"]);
        let (first, second) = (&found[0], &found[1]);
        assert!(first.required && first.modifies && !second.required && !second.modifies);
        assert_eq!((first.timeout_ms, second.timeout_ms), (9, 5_000));
        let fits = |pattern: &str, text: &str| {
            pattern.strip_suffix('*').is_some_and(|prefix| text.starts_with(prefix))
        };
        assert!(first.concerns(&"x_y".parse().unwrap(), fits));
        assert!(!first.concerns(&"y".parse().unwrap(), fits));
        assert!(second.concerns(&"y".parse().unwrap(), fits));
    }

    #[test]
    fn a_script_whose_interpreter_is_not_here_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = hook(dir.path(), "a", 0o700);
        for (text, missing) in [
            ("#!/bin/sh\n", None),
            ("#!/usr/bin/env -S sh -eu\n", None),
            ("echo\n", None),
            ("#! /nowhere/python3 -u\nimport json\n", Some("/nowhere/python3")),
            ("#!/usr/bin/env no-such-program\n", Some("no-such-program")),
            ("#!/usr/bin/env -S A=1 no-such-program\n", Some("no-such-program")),
            ("#!/tmp\n", Some("/tmp")),
        ] {
            fs::write(&path, text).unwrap();
            let refused = refusals(dir.path());
            let expected =
                missing.map(|program| HookRefusal::NoInterpreter(program.to_owned()).to_string());
            assert_eq!(refused, Vec::from_iter(expected), "{text}");
        }
    }

    #[test]
    fn what_others_decide_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = hook(dir.path(), "a", 0o700);
        assert_eq!(is_safe(&path), Ok(()));
        for (mode, why) in
            [(0o720, "others can write"), (0o702, "others can write"), (0o600, "not executable")]
        {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let refused = refusals(dir.path());
            assert!(refused.len() == 1 && refused[0].contains(why), "{mode:o}: {refused:?}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        // A folder that others can write is one in which the file is whatever they like.
        let folder = path.parent().unwrap();
        fs::set_permissions(folder, fs::Permissions::from_mode(0o770)).unwrap();
        assert!(
            matches!(is_safe(&path), Err(HookRefusal::Writable(writable)) if writable == folder)
        );
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).unwrap();
        // And so is one that a link leads to.
        let (open, link) = (tempfile::tempdir().unwrap(), folder.join("link"));
        let target = hook(open.path(), "target", 0o700);
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert_eq!(is_safe(&link), Ok(()));
        fs::set_permissions(target.parent().unwrap(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(is_safe(&link), Err(HookRefusal::Writable(_))));
        fs::remove_file(&link).unwrap();
        fs::create_dir(folder.join("folder")).unwrap();
        fs::write(folder.join("b.toml"), "").unwrap();
        fs::write(folder.join("a b"), "").unwrap();
        let refused = refusals(dir.path()).join("\n");
        for why in [
            "is not a hook's name",
            "marks belong to a hook that does not exist",
            "it is not a file",
        ] {
            assert!(refused.contains(why), "{why}: {refused}");
        }
    }

    /// A user that may write a folder above can replace all that is below it.
    #[test]
    fn a_hook_is_as_safe_as_every_folder_that_leads_to_it() {
        let root = tempfile::tempdir().unwrap();
        let mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        let hooks = root.path().join("etc/hooks");
        let path = hook(&hooks, "a", 0o700);
        assert_eq!(is_safe(&path), Ok(()), "below a folder such as /tmp");
        for above in [hooks.as_path(), hooks.parent().unwrap(), root.path()] {
            for bits in [0o777, 0o775, 0o757] {
                mode(above, bits);
                let refused = refusals(&hooks);
                assert!(
                    refused.len() == 1 && refused[0].contains(above.to_str().unwrap()),
                    "{bits:o}: {refused:?}"
                );
            }
            mode(above, 0o1777);
            assert_eq!(is_safe(&path), Ok(()));
            mode(above, 0o755);
        }
        // By a link to a link: the folder of the second is on the way too.
        let (open, between) = (root.path().join("open"), root.path().join("open/between"));
        fs::create_dir(&open).unwrap();
        std::os::unix::fs::symlink("../etc/../etc/hooks", &between).unwrap();
        let link = root.path().join("link");
        std::os::unix::fs::symlink(&between, &link).unwrap();
        let through = link.join("before_tool_call/a");
        assert_eq!(is_safe(&through), Ok(()));
        mode(&open, 0o777);
        assert!(
            matches!(is_safe(&through), Err(HookRefusal::Writable(writable)) if writable == open)
        );
        // A link that leads to itself ends in words.
        mode(&open, 0o755);
        fs::remove_file(&between).unwrap();
        std::os::unix::fs::symlink(&link, &between).unwrap();
        assert!(matches!(is_safe(&through), Err(HookRefusal::Unreadable(_))));
    }

    #[test]
    fn there_are_only_so_many_hooks_of_a_point() {
        let dir = tempfile::tempdir().unwrap();
        for at in 0..=HOOKS_PER_POINT {
            hook(dir.path(), &format!("h{at:02}"), 0o700);
        }
        let refused = refusals(dir.path());
        assert!(refused.len() == 1 && refused[0].contains("more than 16"), "{refused:?}");
    }
}
