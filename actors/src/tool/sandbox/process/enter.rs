//! What this program does between a node and a command, each time as another process: two steps, of
//! which each becomes the next program. So a process shuts itself in before it is the command, and no
//! thread of a node ever is.
//!
//! `begin PROGRAM ARGS…` runs outside, as the command's user: it opens the file of this program and
//! says in ARGS where it is, for the second step to be found in a sandbox that does not show it.
//! `enter WALL PROGRAM ARGS…` runs in the sandbox: it puts the wall up, and becomes the command.
//!
//! The command inherits that opened file, as a path alone: nothing can be read or run through it.

use std::{
    ffi::{OsStr, OsString},
    io::{self, ErrorKind, Write},
    os::{fd::AsRawFd, unix::process::CommandExt},
    path::PathBuf,
    process::Command,
};

use clawnode_proto::ErrorChain;
use rustix::fs::{Mode, OFlags};

use super::wall::Wall;

/// The first step.
const BEGIN: &str = "begin";
/// The second.
const ENTER: &str = "enter";
/// Stands for this program in the command line of the first step. Whatever a model wrote comes later.
const ITSELF: &str = "clawnode-itself";
/// This program, also after its file was replaced.
const OWN: &str = "/proc/self/exe";
/// As shells have it: a program that cannot be run, and one that is not there.
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

/// This program, and what makes it take a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steps {
    /// The program.
    pub binary: PathBuf,
    /// Its hidden command: what follows is for [`step`].
    pub command: OsString,
}

// === impl Steps ===

impl Steps {
    /// What stands before a command line that begins outside.
    pub(super) fn begin(&self) -> [OsString; 2] {
        [self.command.clone(), BEGIN.into()]
    }

    /// What stands before a command within its sandbox, in that line.
    pub(super) fn enter(&self, wall: &Wall) -> serde_json::Result<Vec<OsString>> {
        let wall = serde_json::to_string(wall)?;
        Ok(vec![ITSELF.into(), self.command.clone(), ENTER.into(), wall.into()])
    }
}

/// Takes the step that these arguments ask for. Returns what the process shall end with, if it does
/// not become another program.
pub fn step(args: &[OsString]) -> u8 {
    let failed = match args {
        [step, program, args @ ..] if step == BEGIN => begin(program, args),
        [step, wall, program, args @ ..] if step == ENTER => enter(wall, program, args),
        _ => Failed {
            why: "this is how nodes run commands, and nothing else".to_owned(),
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
    // Without CLOEXEC: whoever is last in the line finds it.
    let own = match rustix::fs::open(OWN, OFlags::PATH, Mode::empty()) {
        Ok(own) => own,
        Err(error) => return Failed { why: format!("no {OWN}: {error}"), code: CANNOT_RUN },
    };
    let found = format!("/proc/self/fd/{}", own.as_raw_fd());
    let mut args = args.to_vec();
    if let Some(place) = args.iter_mut().find(|it| *it == ITSELF) {
        *place = found.into();
    }
    become_program(program, &args)
}

fn enter(wall: &OsStr, program: &OsStr, args: &[OsString]) -> Failed {
    let wall = wall.to_str().map(serde_json::from_str::<Wall>);
    let wall = match wall {
        Some(Ok(wall)) => wall,
        Some(Err(error)) => {
            return Failed { why: format!("this is no wall: {error}"), code: CANNOT_RUN };
        }
        None => return Failed { why: "this is no wall".to_owned(), code: CANNOT_RUN },
    };
    if let Err(error) = wall.put_up() {
        let why = format!("the second wall cannot be put up: {}", ErrorChain(&error));
        return Failed { why, code: CANNOT_RUN };
    }
    become_program(program, args)
}

fn become_program(program: &OsStr, args: &[OsString]) -> Failed {
    let error = Command::new(program).args(args).exec();
    let code = if error.kind() == ErrorKind::NotFound { NOT_FOUND } else { CANNOT_RUN };
    Failed { why: format!("cannot run `{}`: {error}", program.display()), code }
}
