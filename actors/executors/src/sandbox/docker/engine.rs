//! The Docker engine, as far as it is used here, with errors that say what it means.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use bollard::{
    API_DEFAULT_VERSION, Docker as Client,
    errors::Error,
    exec::{StartExecOptions, StartExecResults},
    models::{ContainerCreateBody, ExecConfig},
    query_parameters::{
        CreateContainerOptionsBuilder, CreateImageOptionsBuilder, EventsOptionsBuilder,
        ListContainersOptionsBuilder, RemoveContainerOptionsBuilder, RenameContainerOptionsBuilder,
    },
};
use futures_util::StreamExt;
use tokio::time::{sleep, timeout};

use super::labels::{ContainerOwner, FoundContainer};
use crate::sandbox::{SandboxError, spec::Image};

/// Seconds that an engine may take to answer; making a container on a busy disk takes a few.
const ANSWER_SECONDS: u64 = 60;
/// How long the engine is asked whether memory ran out: it knows at once, or never.
const OOM_WAIT: Duration = Duration::from_millis(500);
/// How often, and how long after one another, it is asked how a command ended whose output has.
const END_ASKS: (u32, Duration) = (40, Duration::from_millis(50));

/// One engine. It is connected to when it is needed, and again once it was lost.
#[derive(Debug)]
pub(super) struct DockerEngine {
    socket: PathBuf,
    client: Mutex<Option<Client>>,
}

/// Why a container was not made, if more can be done than to report it.
#[derive(Debug)]
pub(super) enum CreateError {
    /// Another one has the name.
    NameTaken,
    /// Nothing can be done.
    Failed(SandboxError),
}

/// Why a command was not begun.
#[derive(Debug)]
pub(super) enum BeginError {
    /// The container does not run, or is not there any more.
    NotRunning(Error),
    /// Nothing can be done.
    Failed(SandboxError),
}

// === impl DockerEngine ===

impl DockerEngine {
    pub(super) fn new(socket: &Path) -> Self {
        Self { socket: socket.to_owned(), client: Mutex::new(None) }
    }

    /// A client that speaks the engine's version.
    async fn client(&self) -> Result<Client, SandboxError> {
        if let Some(client) = &*self.client.lock().unwrap_or_else(PoisonError::into_inner) {
            return Ok(client.clone());
        }
        let missing = |source| SandboxError::EngineMissing { socket: self.socket.clone(), source };
        let socket = self.socket.to_string_lossy();
        let client = Client::connect_with_unix(&socket, ANSWER_SECONDS, API_DEFAULT_VERSION)
            .map_err(missing)?;
        let client = client.negotiate_version().await.map_err(missing)?;
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = Some(client.clone());
        Ok(client)
    }

    /// What an error means before anything ran.
    fn refused(&self, what: &'static str, source: Error) -> SandboxError {
        if !is_lost(&source) {
            return SandboxError::Refused { what, source };
        }
        // The next engine at this socket may be of another version.
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = None;
        SandboxError::EngineMissing { socket: self.socket.clone(), source }
    }

    /// What an error means while a command runs.
    fn broken(&self, source: Error) -> SandboxError {
        if is_lost(&source) {
            *self.client.lock().unwrap_or_else(PoisonError::into_inner) = None;
            SandboxError::EngineGone(source)
        } else {
            SandboxError::ContainerGone(source)
        }
    }

    /// Whether it answers.
    pub(super) async fn ping(&self) -> Result<(), SandboxError> {
        let answered = self.client().await?.ping().await;
        answered.map(drop).map_err(|error| self.refused("answer", error))
    }

    /// What it and its parts are, and their versions.
    pub(super) async fn versions(&self) -> Result<Vec<(String, String)>, SandboxError> {
        let about = self.client().await?.version().await;
        let about = about.map_err(|error| self.refused("tell its version", error))?;
        let parts = about.components.unwrap_or_default();
        Ok(parts.into_iter().map(|part| (part.name, part.version)).collect())
    }

    /// The paths that an image declares to be written.
    pub(super) async fn volumes(&self, image: &Image) -> Result<Vec<String>, SandboxError> {
        match self.client().await?.inspect_image(image.as_str()).await {
            Ok(about) => Ok(about.config.and_then(|config| config.volumes).unwrap_or_default()),
            Err(error) if status(&error) == Some(404) => {
                Err(SandboxError::ImageMissing(image.clone()))
            }
            Err(error) => Err(self.refused("look at an image", error)),
        }
    }

    /// Gets an image from its registry.
    pub(super) async fn pull(&self, image: &Image) -> Result<(), SandboxError> {
        let options = CreateImageOptionsBuilder::new().from_image(&pulled(image)).build();
        let client = self.client().await?;
        let mut told = client.create_image(Some(options), None, None);
        while let Some(step) = told.next().await {
            step.map_err(|source| SandboxError::Pull { image: image.clone(), source })?;
        }
        Ok(())
    }

    /// Makes a container and starts it; its id.
    pub(super) async fn create(
        &self,
        name: &str,
        body: ContainerCreateBody,
    ) -> Result<String, CreateError> {
        let client = self.client().await.map_err(CreateError::Failed)?;
        let options = CreateContainerOptionsBuilder::new().name(name).build();
        match client.create_container(Some(options), body).await {
            Ok(made) => Ok(made.id),
            Err(error) if status(&error) == Some(409) => Err(CreateError::NameTaken),
            Err(error) => Err(CreateError::Failed(self.refused("make a container", error))),
        }
    }

    /// Starts a container.
    pub(super) async fn start(&self, id: &str) -> Result<(), SandboxError> {
        let started = self.client().await?.start_container(id, None).await;
        started.map_err(|error| self.refused("start a container", error))
    }

    /// Calls a container so; false if another one has the name.
    pub(super) async fn rename(&self, id: &str, name: &str) -> Result<bool, SandboxError> {
        let options = RenameContainerOptionsBuilder::new().name(name).build();
        match self.client().await?.rename_container(id, options).await {
            Ok(()) => Ok(true),
            Err(error) if status(&error) == Some(409) => Ok(false),
            Err(error) => Err(self.refused("name a container", error)),
        }
    }

    /// Prepares a command in a container; the command's id.
    pub(super) async fn prepare(&self, id: &str, exec: ExecConfig) -> Result<String, BeginError> {
        let client = self.client().await.map_err(BeginError::Failed)?;
        match client.create_exec(id, exec).await {
            Ok(made) => Ok(made.id),
            Err(error) if matches!(status(&error), Some(404 | 409)) => {
                Err(BeginError::NotRunning(error))
            }
            Err(error) => Err(BeginError::Failed(self.refused("prepare a command", error))),
        }
    }

    /// Begins a command that was prepared.
    pub(super) async fn begin(&self, exec: &str) -> Result<StartExecResults, SandboxError> {
        let began = self.client().await?.start_exec(exec, None::<StartExecOptions>).await;
        began.map_err(|error| self.broken(error))
    }

    /// How a command ended whose output has.
    pub(super) async fn end(&self, exec: &str) -> Result<i64, SandboxError> {
        let client = self.client().await?;
        for _ in 0..END_ASKS.0 {
            let about = client.inspect_exec(exec).await.map_err(|error| self.broken(error))?;
            if let (Some(false), Some(code)) = (about.running, about.exit_code) {
                return Ok(code);
            }
            sleep(END_ASKS.1).await;
        }
        Err(SandboxError::EngineGone(Error::RequestTimeoutError))
    }

    /// An error in the middle of a command's output.
    pub(super) fn cut_off(&self, error: Error) -> SandboxError {
        // Nothing but the connection to the engine can break there.
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = None;
        SandboxError::EngineGone(error)
    }

    /// Whether the kernel ended something in this container for want of memory.
    pub(super) async fn ran_out_of_memory(&self, id: &str) -> bool {
        let filters: HashMap<&str, Vec<&str>> =
            [("event", vec!["oom"]), ("container", vec![id])].into();
        // The container is as old as its call: all that is remembered of it is of interest.
        let options = EventsOptionsBuilder::new().since("1").filters(&filters).build();
        let Ok(client) = self.client().await else { return false };
        let mut events = Box::pin(client.events(Some(options)));
        matches!(timeout(OOM_WAIT, events.next()).await, Ok(Some(Ok(_event))))
    }

    /// Ends a container and all that is in it, and removes it.
    pub(super) async fn remove(&self, id: &str) -> Result<(), SandboxError> {
        let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
        match self.client().await?.remove_container(id, Some(options)).await {
            Ok(()) => Ok(()),
            // It is gone, or another process is removing it.
            Err(error) if matches!(status(&error), Some(404 | 409)) => Ok(()),
            Err(error) => Err(self.refused("remove a container", error)),
        }
    }

    /// All containers of the owner's cluster.
    pub(super) async fn list(
        &self,
        owner: &ContainerOwner,
    ) -> Result<Vec<FoundContainer>, SandboxError> {
        let options =
            ListContainersOptionsBuilder::new().all(true).filters(&owner.filters()).build();
        let listed = self.client().await?.list_containers(Some(options)).await;
        let listed = listed.map_err(|error| self.refused("list containers", error))?;
        let found = listed.into_iter().filter_map(|container| {
            owner.found(
                container.id?,
                &container.names.unwrap_or_default(),
                &container.labels.unwrap_or_default(),
            )
        });
        Ok(found.collect())
    }
}

/// An image as a registry is asked for it: without a tag, all of its tags would come.
fn pulled(image: &Image) -> String {
    let last = image.as_str().rsplit('/').next().unwrap_or_default();
    let tag = if last.contains([':', '@']) { "" } else { ":latest" };
    format!("{image}{tag}")
}

const fn status(error: &Error) -> Option<u16> {
    match error {
        Error::DockerResponseServerError { status_code, .. } => Some(*status_code),
        _ => None,
    }
}

/// Whether the engine is not there, rather than refusing.
const fn is_lost(error: &Error) -> bool {
    matches!(
        error,
        Error::SocketNotFoundError(_)
            | Error::HyperLegacyError { .. }
            | Error::HyperResponseError { .. }
            | Error::IOError { .. }
            | Error::RequestTimeoutError
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_without_a_tag_is_its_latest() {
        for (name, wanted) in [
            ("busybox", "busybox:latest"),
            ("a.example:5000/b", "a.example:5000/b:latest"),
            ("a.example:5000/b:1", "a.example:5000/b:1"),
            ("b@sha256:0f", "b@sha256:0f"),
        ] {
            assert_eq!(pulled(&name.parse().unwrap()), wanted);
        }
    }

    #[tokio::test]
    async fn an_engine_that_is_not_there_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("none");
        let error = DockerEngine::new(&socket).ping().await.unwrap_err();
        assert!(matches!(error, SandboxError::EngineMissing { .. }), "{error:?}");
        assert!(error.to_string().contains(&socket.display().to_string()));
        assert!(error.to_string().starts_with("sandbox_unavailable"));
    }
}
