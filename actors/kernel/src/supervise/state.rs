//! The children of a supervisor, and when each is started again.

use std::{collections::HashMap, time::Duration};

use ractor::{ActorCell, ActorId, ActorRef};
use tracing::{error, warn};

use super::{
    ChildFate, ChildKind, Factory, RESTART_MOST,
    handle::{ChildView, SupervisorMessage},
};

/// The first wait before a child is started again; doubles up to [`RESTART_MOST`].
const RESTART_FIRST: Duration = Duration::from_millis(100);
/// How long a child must have lived for its past ends to be forgotten.
const FORGIVEN_AFTER: Duration = Duration::from_mins(1);

pub(super) struct Child {
    pub(super) kind: ChildKind,
    pub(super) factory: Factory,
    pub(super) cell: Option<ActorCell>,
    pub(super) since: tokio::time::Instant,
    pub(super) ends: u32,
}

#[derive(Default)]
pub(super) struct SupervisorState {
    pub(super) children: HashMap<String, Child>,
    pub(super) names: HashMap<ActorId, String>,
}

// === impl SupervisorState ===

impl SupervisorState {
    pub(super) fn views(&self) -> Vec<ChildView> {
        let view = |(name, child): (&String, &Child)| ChildView {
            name: name.clone(),
            kind: child.kind,
            up: child.cell.is_some(),
            ends: child.ends,
        };
        let mut views: Vec<ChildView> = self.children.iter().map(view).collect();
        views.sort_by(|a, b| a.name.cmp(&b.name));
        views
    }

    pub(super) fn ended(
        &mut self,
        myself: &ActorRef<SupervisorMessage>,
        cell: &ActorCell,
        cause: &str,
    ) {
        let Some(name) = self.names.remove(&cell.get_id()) else { return };
        let Some(child) = self.children.get_mut(&name) else { return };
        child.cell = None;
        if child.kind.fate() == ChildFate::Parent {
            self.children.remove(&name);
            return;
        }
        if child.since.elapsed() >= FORGIVEN_AFTER {
            child.ends = 0;
        }
        let wait = RESTART_FIRST.saturating_mul(1 << child.ends.min(10)).min(RESTART_MOST);
        child.ends = child.ends.saturating_add(1);
        warn!(child = name, cause, wait = ?wait, "a child ended and is started again");
        myself.send_after(wait, move || SupervisorMessage::Restart { name: name.clone() });
    }

    pub(super) fn dismiss(&mut self, name: &str) {
        if let Some(cell) = self.children.remove(name).and_then(|child| child.cell) {
            self.names.remove(&cell.get_id());
            cell.stop(Some("dismissed".to_owned()));
        }
    }

    pub(super) async fn restart(&mut self, myself: &ActorRef<SupervisorMessage>, name: &str) {
        let Some(child) = self.children.get_mut(name) else { return };
        if child.cell.is_some() {
            // The wait was for a child that was dismissed; this is another of its name.
            return;
        }
        match (child.factory)(myself.get_cell()).await {
            Ok(cell) => {
                child.since = tokio::time::Instant::now();
                self.names.insert(cell.get_id(), name.to_owned());
                child.cell = Some(cell);
            }
            Err(cause) => {
                error!(child = name, %cause, "a child cannot be started");
                let name = name.to_owned();
                myself.send_after(RESTART_MOST, move || SupervisorMessage::Restart {
                    name: name.clone(),
                });
            }
        }
    }
}
