//! What this program does between a node and a command, each time as another process: two steps, of
//! which each becomes the next program. So a process shuts itself in before it is the command, and no
//! thread of a node ever is.
//!
//! `begin PROGRAM ARGS…` runs outside, as the command's user. It waits for one byte on its standard
//! input: by then the node has put it into its control group, and so all that it starts. It opens the
//! file of this program and says in ARGS where it is, for the second step to be found in a sandbox that
//! does not show it. It moves the options of the sandbox from ARGS into a file in memory: a command line
//! can be read by everybody on the host for as long as the command runs, and by the command.
//! `enter PROGRAM ARGS…` runs in the sandbox: it puts the walls up that its environment describes, and
//! becomes the command.
//!
//! The command inherits its standard streams and nothing else: each process of this program marks what
//! else it has open before it does anything.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, ErrorKind, Seek, Write},
    os::{
        fd::{AsRawFd, IntoRawFd, OwnedFd},
        unix::{ffi::OsStrExt, process::CommandExt},
    },
    path::PathBuf,
    process::Command,
};

use clawnode_proto::ErrorChain;
use clawnode_tool::seccomp;
use rustix::fs::{MemfdFlags, Mode, OFlags};
use serde::{Deserialize, Serialize};

use super::landlock_rules::LandlockRules;
use crate::sandbox::spec::WALLS;

/// What the first step waits for.
pub(super) const GO: &[u8] = b"\n";
/// The first step.
const BEGIN: &str = "begin";
/// The second.
const ENTER: &str = "enter";
/// A placeholder for this program in the command line of the first step. Text from a model comes
/// later.
const ITSELF: &str = "clawnode-itself";
/// A placeholder for the descriptor of a file that has this many of the arguments that follow it;
/// they are only there. Text from a model comes later.
const UNSEEN: &str = "clawnode-unseen:";
/// This program, also after its file was replaced.
const OWN: &str = "/proc/self/exe";
/// As shells have it: a program that cannot be run, and one that is not there.
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

/// This program, and what makes it take a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steps {
    pub binary: PathBuf,
    /// Its hidden command: what follows is for [`step`].
    pub command: OsString,
}

/// What a command puts up around itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Walls {
    /// Around files, by Landlock.
    pub(super) files: Option<LandlockRules>,
    /// Whether its system calls are filtered.
    pub(super) filter: bool,
}

// === impl Steps ===

impl Steps {
    /// Precedes a command line that begins outside.
    pub(super) fn begin(&self) -> [OsString; 2] {
        [self.command.clone(), BEGIN.into()]
    }

    /// Precedes a command within its sandbox, in that line.
    pub(super) fn enter(&self) -> [OsString; 3] {
        [ITSELF.into(), self.command.clone(), ENTER.into()]
    }

    /// Precedes this many options in that line that must not be seen.
    pub(super) fn unseen(count: usize) -> [OsString; 2] {
        ["--args".into(), format!("{UNSEEN}{count}").into()]
    }
}

/// Takes the step that these arguments ask for. Returns what the process shall end with, if it does
/// not become another program.
pub fn step(args: &[OsString]) -> u8 {
    let failed = match args {
        [step, program, args @ ..] if step == BEGIN => begin(program, args),
        [step, program, args @ ..] if step == ENTER => enter(program, args),
        _ => Failed {
            why: "this command is internal: only nodes use it, to run commands".to_owned(),
            code: CANNOT_RUN,
        },
    };
    // The node reads this, and says it to people.
    let line = format!("clawnode: {}\n", failed.why);
    drop(io::stderr().write_all(line.as_bytes()));
    failed.code
}

struct Failed {
    why: String,
    code: u8,
}

fn begin(program: &OsStr, args: &[OsString]) -> Failed {
    // By no reader that takes more than this byte: the rest is the command's.
    let mut go = [0; GO.len()];
    if rustix::io::read(rustix::stdio::stdin(), &mut go) != Ok(GO.len()) {
        return Failed { why: "the node has gone".to_owned(), code: CANNOT_RUN };
    }
    // Without CLOEXEC: the last program in the line finds it.
    let own = match rustix::fs::open(OWN, OFlags::PATH, Mode::empty()) {
        Ok(own) => own,
        Err(error) => return Failed { why: format!("no {OWN}: {error}"), code: CANNOT_RUN },
    };
    let found = format!("/proc/self/fd/{}", own.as_raw_fd());
    let mut args = args.to_vec();
    if let Some(place) = args.iter_mut().find(|arg| *arg == ITSELF) {
        *place = found.into();
    }
    if let Err(error) = hide(&mut args) {
        return Failed { why: format!("no file for its options: {error}"), code: CANNOT_RUN };
    }
    become_program(program, &args)
}

/// Moves hidden options into a file in memory, which the last program in the line reads and closes.
fn hide(args: &mut Vec<OsString>) -> io::Result<()> {
    let count = |arg: &OsString| arg.to_str()?.strip_prefix(UNSEEN)?.parse::<usize>().ok();
    let found = args.iter().enumerate().find_map(|(at, arg)| Some((at, count(arg)?)));
    let Some((at, count)) = found else { return Ok(()) };
    let end = at.saturating_add(1).saturating_add(count).min(args.len());
    // Without CLOEXEC, as above.
    let file: OwnedFd = rustix::fs::memfd_create("options", MemfdFlags::empty())?;
    let mut file = File::from(file);
    for option in args.drain(at + 1..end) {
        file.write_all(option.as_bytes())?;
        file.write_all(b"\0")?;
    }
    file.rewind()?;
    if let Some(place) = args.get_mut(at) {
        *place = file.into_raw_fd().to_string().into();
    }
    Ok(())
}

fn enter(program: &OsStr, args: &[OsString]) -> Failed {
    let failed = |why| Failed { why, code: CANNOT_RUN };
    let walls = std::env::var(WALLS).unwrap_or_default();
    let walls = match serde_json::from_str::<Walls>(&walls) {
        Ok(walls) => walls,
        Err(error) => return failed(format!("the isolation settings are not readable: {error}")),
    };
    if let Some(wall) = &walls.files
        && let Err(error) = wall.put_up()
    {
        return failed(format!("Landlock cannot be applied: {}", ErrorChain(&error)));
    }
    if walls.filter
        && let Err(error) = seccomp::apply()
    {
        return failed(format!("system calls cannot be filtered: {}", ErrorChain(&error)));
    }
    become_program(program, args)
}

fn become_program(program: &OsStr, args: &[OsString]) -> Failed {
    let error = Command::new(program).args(args).env_remove(WALLS).exec();
    let code = if error.kind() == ErrorKind::NotFound { NOT_FOUND } else { CANNOT_RUN };
    Failed { why: format!("cannot run `{}`: {error}", program.display()), code }
}
