//! One question to one hook.

use std::{
    io,
    path::Path,
    pin::pin,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use clawnode_proto::{
    hook::{HookFault, HookSpec},
    limits::HOOK_TIMEOUT_MAX,
};
use clawnode_tool::orphaned_processes::keeper_arguments;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    process::{Child, Command},
    time::timeout,
};
use tracing::debug;

use super::{
    About, HookKeeper, Hooks, answer::HookAnswer, chain::Unanswered, folder, folder::PATH,
};

/// Bytes that a hook is shown (8 MiB): a model's whole window fits.
const SHOWN_BYTES: usize = 8 << 20;
/// Bytes that a hook writes (2 MiB): a tool's result of the greatest length fits, escaped.
const ANSWER_BYTES: u64 = 2 << 20;
/// Bytes of a hook's standard error that are kept.
const COMPLAINT_BYTES: u64 = 512;
/// How long that is waited for once the hook has ended.
const COMPLAINT_WAIT: Duration = Duration::from_millis(100);
/// The variables that a hook is given beside `PATH`.
const POINT: &str = "HOOK_POINT";
const KEY: &str = "HOOK_KEY";

/// A hook that runs; dropped, nothing of it goes on.
struct RunningHook {
    child: Child,
    /// Whether the child is a keeper, which ends the hook when it is asked to.
    is_keeper: bool,
}

// === impl Hooks ===

impl Hooks {
    /// Asks one hook, within its time.
    pub(super) async fn ask(
        &self,
        spec: &HookSpec,
        about: &About,
        document: &[u8],
    ) -> Result<HookAnswer, Unanswered> {
        let path = self.path(spec).ok_or(HookFault::Missing)?;
        if document.len() > SHOWN_BYTES {
            return Err(HookFault::TooLarge.into());
        }
        // It may have changed since the node began.
        folder::is_safe(path).map_err(|_told_by_name| HookFault::Unsafe)?;
        let Some(_room) = self.room().await else { return Err(HookFault::Stopped.into()) };
        let most = Duration::from_millis(u64::from(spec.timeout_ms)).min(HOOK_TIMEOUT_MAX);
        let mut running = RunningHook::start(path, self.keeper(), about).map_err(|error| {
            debug!(hook = %spec.name, %error, "a hook cannot be started");
            HookFault::NotStarted
        })?;
        match timeout(most, running.talk(document)).await {
            Ok(Ok(said)) => Ok(HookAnswer::parse(&said)?),
            Ok(Err(unanswered)) => Err(unanswered),
            Err(_elapsed) => Err(HookFault::TimedOut.into()),
        }
    }
}

// === impl RunningHook ===

impl RunningHook {
    fn start(path: &Path, keeper: Option<&HookKeeper>, about: &About) -> io::Result<Self> {
        let mut command = match keeper {
            Some(HookKeeper { binary, command: name }) => {
                let mut command = Command::new(binary);
                let line = keeper_arguments(std::process::id(), None, &path.to_string_lossy(), &[]);
                command.arg(name).args(line);
                command
            }
            None => Command::new(path),
        };
        command
            .env_clear()
            .env("PATH", PATH)
            .env(POINT, about.point.as_str())
            .env(KEY, about.call.to_string())
            .current_dir(Path::new("/"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        Ok(Self { child: command.spawn()?, is_keeper: keeper.is_some() })
    }

    /// Shows it what it is asked about, and hears it to its end.
    async fn talk(&mut self, document: &[u8]) -> Result<Vec<u8>, Unanswered> {
        let child = &mut self.child;
        let (Some(mut stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(HookFault::NotStarted.into());
        };
        let tell = async move {
            // One that decides without reading is as good as any.
            if let Err(error) = stdin.write_all(document).await {
                debug!(%error, "a hook did not read all of its input");
            }
            drop(stdin);
        };
        let ends = async {
            let ((), said) = tokio::join!(tell, hear(stdout));
            let said = said?;
            let ended = child.wait().await.map_err(|_gone| HookFault::Failed)?;
            Ok::<_, HookFault>((said, ended))
        };
        // What it has left behind may hold its standard error open.
        let (mut hears, mut ends) = (pin!(complaint(stderr)), pin!(ends));
        let mut complaint = None;
        let (said, ended) = loop {
            tokio::select! {
                ended = &mut ends => break ended?,
                text = &mut hears, if complaint.is_none() => complaint = Some(text),
            }
        };
        if ExitStatus::success(&ended) {
            return Ok(said);
        }
        let complaint = match complaint {
            Some(text) => text,
            None => timeout(COMPLAINT_WAIT, hears).await.unwrap_or_default(),
        };
        Err(Unanswered { fault: HookFault::Failed, complaint })
    }
}

impl Drop for RunningHook {
    fn drop(&mut self) {
        // Without an id it has been waited for.
        let pid = self.child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        let Some(pid) = pid else { return };
        let ended = if self.is_keeper {
            kill_process(pid, Signal::TERM)
        } else {
            kill_process_group(pid, Signal::KILL)
        };
        if let Err(error) = ended {
            debug!(%error, "cannot end the process of a hook");
        }
    }
}

/// The beginning of a hook's standard error, as one line.
async fn complaint(mut stderr: impl AsyncRead + Unpin) -> String {
    let mut said = Vec::new();
    let kept = (&mut stderr).take(COMPLAINT_BYTES).read_to_end(&mut said).await;
    // The rest is read as well: a hook that cannot write would not end.
    if let Err(error) = kept.and(tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await) {
        debug!(%error, "what a hook writes on standard error cannot be read");
    }
    let text = String::from_utf8_lossy(&said);
    let line = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c });
    line.collect()
}

async fn hear(stdout: impl AsyncRead + Unpin) -> Result<Vec<u8>, HookFault> {
    let mut said = Vec::new();
    let read = stdout.take(ANSWER_BYTES + 1).read_to_end(&mut said).await;
    read.map_err(|_broken| HookFault::Failed)?;
    if said.len() as u64 > ANSWER_BYTES { Err(HookFault::TooMuch) } else { Ok(said) }
}
