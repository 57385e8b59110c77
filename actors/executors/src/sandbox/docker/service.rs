//! The handle to containers: one for each process that runs tools in them.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use clawnode_proto::ProcessId;
use futures_util::future::BoxFuture;
use tokio::sync::Notify;

use super::{
    ContainerOwner, DockerOptions,
    container_pool::{Container, ContainerPool},
    engine::DockerEngine,
};
use crate::sandbox::SandboxError;
#[cfg(feature = "test-util")]
use crate::sandbox::planted::SandboxBug;

/// Whether a process of the cluster is held dead.
pub type IsDead = Arc<dyn Fn(ProcessId) -> bool + Send + Sync>;

/// Runs commands in containers. Cheap to clone.
#[derive(Clone)]
pub struct Docker(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) engine: DockerEngine,
    pub(super) options: DockerOptions,
    pub(super) owner: ContainerOwner,
    pub(super) is_dead: IsDead,
    shelf: Mutex<ContainerPool>,
    /// There is something to remove, or to make.
    pub(super) wake: Notify,
    /// Whether the engine answered when it was last heard of, and that this has changed.
    answers: AtomicBool,
    changed: Notify,
    #[cfg(feature = "test-util")]
    pub(super) planted: SandboxBug,
}

/// A container in use: it is removed when this is dropped.
pub(super) struct Lease {
    inner: Arc<Inner>,
    key: String,
    /// None while it is being made.
    id: Option<String>,
}

// === impl Docker ===

impl Docker {
    /// Containers of `owner`; those of processes that `is_dead` are removed.
    pub fn new(options: DockerOptions, owner: ContainerOwner, is_dead: IsDead) -> Self {
        Self(Arc::new(Inner {
            engine: DockerEngine::new(&options.socket),
            options,
            owner,
            is_dead,
            shelf: Mutex::default(),
            wake: Notify::new(),
            answers: AtomicBool::new(true),
            changed: Notify::new(),
            #[cfg(feature = "test-util")]
            planted: SandboxBug::None,
        }))
    }

    /// The same with a bug in it; before anything is run.
    #[cfg(feature = "test-util")]
    #[must_use]
    pub fn with_bug(self, planted: SandboxBug) -> Self {
        let Inner { options, owner, is_dead, .. } = &*self.0;
        let new = Self::new(options.clone(), owner.clone(), Arc::clone(is_dead));
        let inner = Arc::into_inner(new.0).map(|inner| Inner { planted, ..inner });
        inner.map_or(self, |inner| Self(Arc::new(inner)))
    }

    /// What holds for its containers.
    pub fn options(&self) -> &DockerOptions {
        &self.0.options
    }

    /// Whether the engine answers.
    pub fn health_check(&self) -> BoxFuture<'_, Result<(), SandboxError>> {
        Box::pin(async move {
            let answered = self.0.engine.ping().await;
            self.0.heard(&answered);
            answered
        })
    }

    /// The engine's own report on itself: names of its parts (`Engine`, `containerd`, `runc`), and
    /// versions.
    pub fn versions(&self) -> BoxFuture<'_, Result<Vec<(String, String)>, SandboxError>> {
        Box::pin(async move { self.0.engine.versions().await })
    }

    /// Returns once it may be that the engine answers and did not, or the other way.
    pub async fn changed(&self) {
        self.0.changed.notified().await;
    }

    /// How many containers stand ready.
    pub fn ready(&self) -> usize {
        self.0.shelf().ready()
    }
}

impl fmt::Debug for Docker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Docker")
            .field("options", &self.0.options)
            .field("owner", &self.0.owner)
            .finish_non_exhaustive()
    }
}

// === impl Inner ===

impl Inner {
    pub(super) fn shelf(&self) -> MutexGuard<'_, ContainerPool> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What an answer of the engine, or none, says about it.
    pub(super) fn heard<T>(&self, answer: &Result<T, SandboxError>) {
        let answers = !matches!(
            answer,
            Err(SandboxError::EngineMissing { .. } | SandboxError::EngineGone(_))
        );
        if self.answers.swap(answers, Ordering::Relaxed) != answers {
            self.changed.notify_one();
        }
        if !answers {
            // All ready containers belonged to the engine that is gone.
            self.shelf().clear();
        }
    }
}

// === impl Lease ===

impl Lease {
    /// Of a container that is about to be made; `None` when nothing is made any more.
    pub(super) fn making(inner: &Arc<Inner>, key: &str, job: Option<&str>) -> Option<Self> {
        let begun = inner.shelf().begin(key, job);
        begun.then(|| Self { inner: Arc::clone(inner), key: key.to_owned(), id: None })
    }

    /// The lease of a container that was ready.
    pub(super) fn of(inner: &Arc<Inner>, container: Container) -> Self {
        Self { inner: Arc::clone(inner), key: container.key, id: Some(container.id) }
    }

    /// It is made.
    pub(super) fn made(&mut self, id: String) {
        self.id = Some(id);
    }

    /// As the engine calls it.
    pub(super) fn id(&self) -> &str {
        self.id.as_deref().unwrap_or_default()
    }

    /// Given back as what it is: ready.
    pub(super) fn into_container(mut self) -> Option<Container> {
        Some(Container { id: self.id.take()?, key: std::mem::take(&mut self.key) })
    }

    /// It has been removed.
    pub(super) fn forget(mut self) {
        self.id = None;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.key.is_empty() {
            let id = self.id.take();
            let is_left = id.is_some();
            self.inner.shelf().done(&self.key, id);
            if is_left {
                self.inner.wake.notify_one();
            }
        }
    }
}
