//! One command: a container is had, the command is run in it, and the container goes.

use std::{pin::Pin, sync::Arc, time::Duration};

use bollard::{container::LogOutput, errors::Error, exec::StartExecResults};
use bytes::Bytes;
use clawnode_proto::{Digest, ErrorChain, limits::ARTIFACTS_BYTES};
use clawnode_tool::archive::{
    Collecting,
    artifacts::{self, ArchivedFiles},
};
use futures_util::{Stream, StreamExt};
use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    sync::mpsc,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::{
    container_config,
    engine::{BeginError, CreateError},
    labels::name,
    service::{Docker, Inner, Lease},
};
use crate::sandbox::{
    SandboxError,
    command_output::{Capture, CommandEnd, OutputStream as Of, Ran},
    dialogue::{OutputListener, Wires},
    spec::{Image, SandboxCommand, SandboxPolicy},
};

/// How long the output of an ended container may still come.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How long what a command has made may take to be handed out.
const COLLECT_WAIT: Duration = Duration::from_secs(10);
/// What an archive has beside the files in it (1 MiB): more than as many as are kept need.
const TAR_BYTES: usize = 1 << 20;
/// How often a ready container may turn out not to run.
const STALE: usize = 4;

/// What a container says.
type ContainerOutput = Pin<Box<dyn Stream<Item = Result<LogOutput, Error>> + Send>>;

// === impl Docker ===

impl Docker {
    /// Runs a command in a container of its own, until it ends, takes too long or is cancelled.
    pub(in crate::sandbox) async fn run(
        &self,
        policy: &SandboxPolicy,
        command: &SandboxCommand,
        wires: Option<Wires>,
        cancelled: &CancellationToken,
    ) -> Result<Ran, SandboxError> {
        let ran = tokio::select! {
            began = self.0.have(policy, command) => match began {
                Ok((lease, exec)) => {
                    self.0.follow(lease, &exec, policy, command, wires, cancelled).await
                }
                Err(error) => Err(error),
            },
            // Nothing runs yet: what is under way is dropped, and removed.
            () = cancelled.cancelled() => Ok(Ran { capture: Capture::default(), end: CommandEnd::Cancelled }),
        };
        self.0.heard(&ran);
        ran
    }
}

// === impl Inner ===

impl Inner {
    /// A container with the command prepared in it.
    async fn have(
        self: &Arc<Self>,
        policy: &SandboxPolicy,
        command: &SandboxCommand,
    ) -> Result<(Lease, String), SandboxError> {
        let job = command.idempotency_key.as_str();
        for _ in 0..STALE {
            let taken = self.shelf().take(policy, job, Instant::now());
            // One less is ready, or this is the first of its kind.
            self.wake.notify_one();
            let Some(container) = taken else { break };
            let lease = Lease::of(self, container);
            let (prepared, ()) = tokio::join!(
                self.engine.prepare(lease.id(), container_config::exec(command)),
                self.rename(lease.id(), job),
            );
            match prepared {
                Ok(exec) => return Ok((lease, exec)),
                Err(BeginError::NotRunning(error)) => {
                    debug!(%error, "a prepared container no longer runs");
                }
                Err(BeginError::Failed(error)) => return Err(error),
            }
        }
        let lease = self.make(policy, Some(job)).await?;
        match self.engine.prepare(lease.id(), container_config::exec(command)).await {
            Ok(exec) => Ok((lease, exec)),
            Err(BeginError::NotRunning(source)) => {
                let what = "keep a container running; its image needs a program `sleep`";
                Err(SandboxError::Refused { what, source })
            }
            Err(BeginError::Failed(error)) => Err(error),
        }
    }

    /// Makes a container and starts it.
    pub(super) async fn make(
        self: &Arc<Self>,
        policy: &SandboxPolicy,
        job: Option<&str>,
    ) -> Result<Lease, SandboxError> {
        let key = ulid::Ulid::generate().to_string().to_lowercase();
        let closed = || SandboxError::EngineMissing {
            socket: self.options.socket.clone(),
            source: Error::RequestTimeoutError,
        };
        let mut lease = Lease::making(self, &key, job).ok_or_else(closed)?;
        let volumes = match &policy.image {
            Some(image) => self.image(image, job.is_some()).await?,
            None => Vec::new(),
        };
        let kind = Digest::of(format!("{policy:?}").as_bytes()).to_string();
        let kind: String = kind.chars().take(16).collect();
        let body = || {
            container_config::container(
                policy,
                &volumes,
                self.owner.labels(&key, &kind, job),
                #[cfg(feature = "test-util")]
                self.planted,
            )
        };
        let id = match self.engine.create(&name(job.unwrap_or(&key)), body()).await {
            Ok(id) => id,
            Err(CreateError::Failed(error)) => return Err(error),
            Err(CreateError::NameTaken) => {
                // An earlier run of the job, which this run replaces; or a container of another
                // program.
                self.supersede(job.unwrap_or_default()).await;
                match self.engine.create(&name(&key), body()).await {
                    Ok(id) => id,
                    Err(CreateError::Failed(error)) => return Err(error),
                    Err(CreateError::NameTaken) => return Err(closed()),
                }
            }
        };
        lease.made(id);
        self.engine.start(lease.id()).await?;
        Ok(lease)
    }

    /// The paths that an image declares to be written, once it is there.
    async fn image(&self, image: &Image, may_pull: bool) -> Result<Vec<String>, SandboxError> {
        match self.engine.volumes(image).await {
            Err(SandboxError::ImageMissing(_)) if may_pull && self.options.auto_pull => {
                self.engine.pull(image).await?;
                self.engine.volumes(image).await
            }
            looked => looked,
        }
    }

    /// The name says for which job it is, for people and for cleaning up.
    async fn rename(&self, id: &str, job: &str) {
        match self.engine.rename(id, &name(job)).await {
            Ok(true) => {}
            Ok(false) => self.supersede(job).await,
            Err(error) => debug!(%error, "cannot rename a container"),
        }
    }

    /// Removes what earlier runs of a job have left.
    async fn supersede(&self, job: &str) {
        let Ok(found) = self.engine.list(&self.owner).await else { return };
        for container in found.into_iter().filter(|container| container.job.as_deref() == Some(job))
        {
            let is_own = container.process == Some(self.owner.process());
            if !is_own && let Err(error) = self.engine.remove(&container.id).await {
                debug!(%error, "cannot remove the container of an earlier run now");
            }
        }
    }

    /// Follows a command to its end.
    async fn follow(
        self: &Arc<Self>,
        lease: Lease,
        exec: &str,
        policy: &SandboxPolicy,
        command: &SandboxCommand,
        wires: Option<Wires>,
        cancelled: &CancellationToken,
    ) -> Result<Ran, SandboxError> {
        let deadline = Instant::now() + command.timeout;
        let StartExecResults::Attached { mut output, input } = self.engine.begin(exec).await?
        else {
            return Err(self.engine.cut_off(Error::RequestTimeoutError));
        };
        let (mut ears, told) = OutputListener::new(wires, &command.sink);
        let mut feeding = Box::pin(feed(input, &command.stdin, told));
        let mut is_fed = false;
        let end = loop {
            tokio::select! {
                biased;
                () = cancelled.cancelled() => break CommandEnd::Cancelled,
                () = sleep_until(deadline) => break CommandEnd::TimedOut(command.timeout),
                () = &mut feeding, if !is_fed => is_fed = true,
                () = ears.open(), if !ears.are_open() => {}
                said = output.next(), if ears.are_open() => match said {
                    Some(Ok(said)) => keep(&mut ears, &said),
                    Some(Err(error)) => return Err(self.engine.cut_off(error)),
                    None => {
                        let code = self.engine.end(exec).await?;
                        break if code == 137 && self.engine.ran_out_of_memory(lease.id()).await {
                            CommandEnd::OutOfMemory(policy.limits.memory)
                        } else {
                            CommandEnd::Exited(code)
                        };
                    }
                },
            }
        };
        if matches!(end, CommandEnd::Cancelled | CommandEnd::TimedOut(_)) {
            self.end(lease, &mut output, &mut ears).await;
        } else if let Some(collecting) = command.sink.collect() {
            // The call does not wait for it. Detached: it is bounded, and the container goes with it.
            drop(tokio::spawn(Arc::clone(self).collect(lease, collecting)));
        }
        Ok(Ran { capture: ears.into_capture(), end })
    }

    /// Collects what a command has left in its directory, and lets its container go.
    async fn collect(self: Arc<Self>, lease: Lease, collecting: Collecting) {
        let found = match timeout(COLLECT_WAIT, self.files(lease.id())).await {
            Ok(found) => found,
            Err(_elapsed) => Err("its container did not hand them out in time".to_owned()),
        };
        collecting.made(found.unwrap_or_else(|why| {
            debug!(why, "cannot collect the files of a command");
            ArchivedFiles { left_out: vec![why], ..ArchivedFiles::default() }
        }));
    }

    async fn files(&self, id: &str) -> Result<ArchivedFiles, String> {
        let no = |why: SandboxError| ErrorChain(&why).to_string();
        let exec = match self.engine.prepare(id, container_config::collect()).await {
            Ok(exec) => exec,
            // Nothing of it is left, as after it has used up its memory.
            Err(BeginError::NotRunning(_)) => return Err("its container is gone".to_owned()),
            Err(BeginError::Failed(error)) => return Err(no(error)),
        };
        let began = self.engine.begin(&exec).await.map_err(no)?;
        let StartExecResults::Attached { mut output, .. } = began else {
            return Err("its container hands out nothing".to_owned());
        };
        let (mut tar, mut is_cut) = (Vec::new(), false);
        while let Some(said) = output.next().await {
            if let LogOutput::StdOut { message } =
                said.map_err(|error| ErrorChain(&error).to_string())?
            {
                let room = (ARTIFACTS_BYTES + TAR_BYTES).saturating_sub(tar.len());
                is_cut = message.len() > room;
                tar.extend_from_slice(message.get(..room).unwrap_or(&message));
                if is_cut {
                    break;
                }
            }
        }
        // An archive has an end of zeros at least; a program that is not there says nothing.
        if tar.is_empty() {
            return Err("its image has no program `tar` that hands them out".to_owned());
        }
        Ok(artifacts::read(&tar.into(), is_cut))
    }

    /// Ends what runs, with all that it has started, and keeps its last words.
    async fn end(&self, lease: Lease, output: &mut ContainerOutput, ears: &mut OutputListener) {
        match self.engine.remove(lease.id()).await {
            Ok(()) => lease.forget(),
            Err(error) => debug!(%error, "cannot remove a container now; trying again later"),
        }
        let last_words = async {
            while let Some(Ok(said)) = output.next().await {
                ears.open().await;
                keep(ears, &said);
            }
            ears.open().await;
        };
        // Output that has not come by then never will.
        drop(timeout(LAST_WORDS, last_words).await);
    }
}

fn keep(ears: &mut OutputListener, said: &LogOutput) {
    match said {
        LogOutput::StdErr { message } => ears.add(Of::Stderr, message),
        LogOutput::StdOut { message }
        | LogOutput::Console { message }
        | LogOutput::StdIn { message } => ears.add(Of::Stdout, message),
    }
}

/// Hands a command what it reads; one that does not want it is no error.
async fn feed(
    mut input: Pin<Box<dyn AsyncWrite + Send>>,
    stdin: &[u8],
    mut told: Option<mpsc::Receiver<Bytes>>,
) {
    if stdin.is_empty() {
        return;
    }
    let fed = async {
        input.write_all(stdin).await?;
        while let Some(told) = &mut told
            && let Some(bytes) = told.recv().await
        {
            input.write_all(&bytes).await?;
            input.flush().await?;
        }
        input.shutdown().await
    };
    if let Err(error) = fed.await {
        debug!(%error, "a command did not read all of its input");
    }
}
