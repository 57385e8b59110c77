//! Whether commands have a second wall here: what was asked for, what the host has, what works.
//!
//! Where it was seen to work it is never left out again: what breaks it later breaks the command.

use std::sync::OnceLock;

use tracing::{info, warn};

use super::{Landlock, enter::Steps, wall::Strength};
use crate::tool::sandbox::SandboxError;

/// What a node knows of it.
#[derive(Debug)]
pub(super) struct Second {
    wanted: Landlock,
    steps: Option<Steps>,
    /// What the host has.
    host: Option<Strength>,
    /// Why there is none, once that is known, or what it keeps.
    settled: OnceLock<Result<Strength, String>>,
}

// === impl Second ===

impl Second {
    pub(super) fn new(wanted: Landlock, steps: Option<Steps>) -> Self {
        let host = Strength::of_host();
        Self { wanted, steps, host, settled: OnceLock::new() }
    }

    /// What commands have, or why they have nothing, for people.
    pub(super) fn now(&self) -> Result<Strength, String> {
        if let Some(settled) = self.settled.get() {
            return settled.clone();
        }
        match (self.wanted, self.host, &self.steps) {
            (Landlock::Off, ..) => Err("`sandbox.process.landlock` is \"off\"".to_owned()),
            (_, None, _) => Err("this kernel has no Landlock that keeps files".to_owned()),
            (_, _, None) => Err("nobody here puts it up".to_owned()),
            (_, Some(strength), Some(_)) => Ok(strength),
        }
    }

    /// What a command gets; nothing is run without what is required.
    pub(super) fn of_command(&self) -> Result<Option<(&Steps, Strength)>, SandboxError> {
        let now = self.now();
        if self.wanted == Landlock::Required {
            let lacks = match &now {
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
        Ok(self.steps.as_ref().zip(now.ok()))
    }

    /// It was seen to work.
    pub(super) fn works(&self, strength: Strength) {
        if self.settled.set(Ok(strength)).is_ok() {
            info!(landlock = %strength, "commands have a second wall");
        }
    }

    /// It was seen not to work where a command without it does. Whether commands do without.
    pub(super) fn fails(&self, why: &str) -> bool {
        if self.wanted == Landlock::Required {
            return false;
        }
        if self.settled.set(Err(why.to_owned())).is_ok() {
            warn!(why, "commands have no second wall, though this kernel has Landlock");
        }
        // Somebody else may have seen it work meanwhile.
        self.settled.get().is_some_and(Result::is_err)
    }
}
