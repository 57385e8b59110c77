//! The layers around commands inside bubblewrap: what was asked for, what the host has, what works.
//!
//! Where it was seen to work it is never left out again: what breaks it later breaks the command.

use std::sync::OnceLock;

use tracing::{info, warn};

use super::{Landlock, landlock_rules::Strength, sandboxed_exec::Steps};
use crate::sandbox::SandboxError;

/// What a node knows of it.
#[derive(Debug)]
pub(super) struct SecondLayer {
    wanted: Landlock,
    steps: Option<Steps>,
    /// What the host has.
    host: Option<Strength>,
    /// What commands have, once that is known.
    settled: OnceLock<SettledConfinement>,
}

/// What a command shuts itself in with before it is the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Confinement {
    /// The second wall.
    pub(super) wall: Option<Strength>,
    /// The filter of system calls.
    pub(super) filter: bool,
}

/// The layers around a command, and what sets them up; absent if there are none.
pub(super) type Around<'a> = Option<(&'a Steps, Confinement)>;

#[derive(Debug)]
struct SettledConfinement {
    shut: Option<Confinement>,
    /// Why it is not more.
    why: String,
}

// === impl SecondLayer ===

impl SecondLayer {
    pub(super) fn new(wanted: Landlock, steps: Option<Steps>) -> Self {
        let host = Strength::of_host();
        Self { wanted, steps, host, settled: OnceLock::new() }
    }

    /// What the second wall of commands keeps, or why there is none, for people.
    pub(super) fn wall(&self) -> Result<Strength, String> {
        if let Some(lack) = self.lack() {
            return Err(lack.to_owned());
        }
        let settled = match self.settled.get() {
            Some(SettledConfinement { shut, why }) => shut.and_then(|shut| shut.wall).ok_or(why),
            None => return self.host.ok_or_else(String::new),
        };
        settled.map_err(Clone::clone)
    }

    /// Why there cannot be a second wall.
    fn lack(&self) -> Option<&'static str> {
        match (self.wanted, self.host, &self.steps) {
            (Landlock::Off, ..) => Some("`sandbox.process.landlock` is \"off\""),
            (_, None, _) => Some("this kernel has no Landlock that protects files"),
            (_, _, None) => Some("this process cannot apply it"),
            (_, Some(_), Some(_)) => None,
        }
    }

    /// Whether system calls of commands are filtered, or why not, for people.
    pub(super) fn filter(&self) -> Result<(), String> {
        match (self.settled.get(), &self.steps) {
            (_, None) => Err("this process cannot apply it".to_owned()),
            (Some(SettledConfinement { shut, why }), _)
                if !shut.is_some_and(|shut| shut.filter) =>
            {
                Err(why.clone())
            }
            _ => Ok(()),
        }
    }

    /// What a command gets; nothing is run without what is required.
    pub(super) fn of_command(&self) -> Result<Around<'_>, SandboxError> {
        let wall = self.wall();
        if self.wanted == Landlock::Required {
            let lacks = match &wall {
                Ok(strength) if *strength >= Strength::FULL => None,
                Ok(strength) => {
                    Some(format!("this kernel lacks {}", Strength::lacks(Some(*strength))))
                }
                Err(why) => Some(why.clone()),
            };
            if let Some(lacks) = lacks {
                return Err(SandboxError::NoSecondWall(lacks));
            }
        }
        let shut = match self.settled.get() {
            Some(settled) => settled.shut,
            None => Some(Confinement { wall: wall.ok(), filter: true }),
        };
        Ok(self.steps.as_ref().zip(shut))
    }

    /// What there is to try if `shut` does not work, the most first; at last nothing.
    pub(super) fn less(&self, shut: Confinement) -> Vec<Around<'_>> {
        let without_wall = shut.wall.map(|_| Confinement { wall: None, ..shut });
        let without_filter = shut.wall.map(|_| Confinement { filter: false, ..shut });
        let less = [without_wall, without_filter].into_iter().flatten();
        let less = less.map(|shut| self.steps.as_ref().zip(Some(shut)));
        less.chain([None]).collect()
    }

    /// It was seen to work.
    pub(super) fn works(&self, shut: Confinement) {
        let why = String::new();
        if self.settled.set(SettledConfinement { shut: Some(shut), why }).is_ok() {
            let landlock = shut.wall.map(|strength| strength.to_string());
            info!(landlock, filter = shut.filter, "commands are isolated in more than one layer");
        }
    }

    /// It was seen not to work, where this does. Whether commands do with that.
    pub(super) fn fails(&self, less: Around<'_>, why: &str) -> bool {
        let shut = less.map(|(_, shut)| shut);
        if self.wanted == Landlock::Required && shut.is_none_or(|shut| shut.wall.is_none()) {
            return false;
        }
        if self.settled.set(SettledConfinement { shut, why: why.to_owned() }).is_ok() {
            warn!(why, ?shut, "commands run with less isolation than this kernel offers");
        }
        // Another thread may have seen it work meanwhile.
        self.settled.get().is_some_and(|settled| settled.shut == shut)
    }
}
