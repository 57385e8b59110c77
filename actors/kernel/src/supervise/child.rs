//! The kinds of children, and what follows from the end of each.

use std::{future::Future, pin::Pin};

use ractor::{ActorCell, SpawnErr};

/// What follows from a child's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildFate {
    /// It is started again, with back-off, for as long as the node lives.
    Restart,
    /// Its own parent decides; used by dispatchers for entities.
    Parent,
}

/// The kinds of children there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChildKind {
    /// A partition's dispatcher: without it the partition's inputs wait.
    Dispatcher,
    /// An agent: without it no turn of its sessions starts.
    Agent,
    /// An entity: its inputs are delivered again, its journal says where it was.
    Entity,
    /// A loop without a mailbox (membership, requests, watches).
    Task,
}

impl ChildKind {
    /// What follows from the end of a child of this kind.
    pub const fn fate(self) -> ChildFate {
        match self {
            Self::Dispatcher | Self::Agent | Self::Task => ChildFate::Restart,
            Self::Entity => ChildFate::Parent,
        }
    }
}

type Starting = Pin<Box<dyn Future<Output = Result<ActorCell, SpawnErr>> + Send>>;

/// Starts a child under the given supervisor; called again for each restart.
pub type Factory = Box<dyn Fn(ActorCell) -> Starting + Send + Sync>;
