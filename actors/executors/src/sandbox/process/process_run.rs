//! Runs a command as a process, and ends it with all that it has started.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use rustix::process::Signal;
use tokio::{
    process::{Child, Command as Start},
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{
    Isolation, ProcessOptions,
    bubblewrap_args::{self, Inside, PATH, PRLIMIT, VisiblePath, WORKSPACE},
    cgroups::{self, CommandGroup, GroupLimits, Groups},
    landlock_rules::{LandlockRules, Strength},
    output_files::{self, Outlet},
    process_tree,
    sandboxed_exec::{GO, Steps, Walls},
    second_layer::{Around, SecondLayer},
    streams::{Listening, feed},
};
#[cfg(feature = "test-util")]
use crate::sandbox::planted::SandboxBug;
use crate::sandbox::{
    SandboxError,
    command_output::{CommandEnd, Ran},
    dialogue::{OutputListener, Wires},
    spec::{RUN, SandboxCommand, SandboxPolicy},
};

/// How long a command that was asked to end (SIGTERM) may take before it is ended (SIGKILL).
const GRACE: Duration = Duration::from_millis(500);
/// How often it is looked whether it has.
const LOOK: Duration = Duration::from_millis(20);
/// How long what was said before the end may take to be read.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Files of `/proc` that show the keys of this host, if it has them.
const HIDDEN: [&str; 2] = ["/proc/keys", "/proc/key-users"];
/// What makes the kernel end commands before the node when the host's memory ends.
const FIRST_TO_GO: &str = "1000";
/// Rounds of the hunt for processes that are not isolated; each may have started another meanwhile.
const ROUNDS: usize = 10;

/// Runs commands as processes of this host.
#[derive(Clone, Debug)]
pub struct Processes {
    pub(super) options: ProcessOptions,
    is_root: bool,
    pub(super) second: Arc<SecondLayer>,
    /// Where limits hold for all processes of a command together.
    groups: Option<Arc<Groups>>,
    #[cfg(feature = "test-util")]
    planted: SandboxBug,
}

/// A command that runs; what is left of it is ended when this is dropped.
struct RunningCommand {
    child: Child,
    /// What all its processes have in their environment, where they are not isolated.
    mark: Option<String>,
    /// What its processes may use together.
    group: Option<CommandGroup>,
    /// What the first step waits for.
    go: &'static [u8],
}

// === impl Processes ===

impl Processes {
    /// By these settings.
    pub fn new(options: ProcessOptions) -> Self {
        if options.isolation == Isolation::None {
            warn!(
                "`sandbox.process.isolation` is \"none\": commands of agents run on this host with \
                 all rights of the node, its files, network and secrets included"
            );
        }
        output_files::sweep();
        let second = Arc::new(SecondLayer::new(options.landlock, None));
        Self {
            options,
            second,
            groups: None,
            is_root: rustix::process::geteuid().is_root(),
            #[cfg(feature = "test-util")]
            planted: SandboxBug::None,
        }
    }

    /// The same, with a second wall that this program puts up.
    #[must_use]
    pub fn walled_by(mut self, steps: Steps) -> Self {
        self.second = Arc::new(SecondLayer::new(self.options.landlock, Some(steps)));
        self
    }

    /// The same, with limits for all processes of a command together, where this process may divide
    /// a control group; it moves into a part of that group.
    #[must_use]
    pub fn in_groups(mut self) -> Self {
        if self.options.isolation == Isolation::Bubblewrap {
            match Groups::open(self.options.cgroup.as_deref()) {
                Ok(groups) => {
                    info!(limits = %groups.held(), "commands are limited as a whole");
                    self.groups = Some(Arc::new(groups));
                }
                // A person named it, and relies on it.
                Err(why) if self.options.cgroup.is_some() => {
                    warn!(why, "commands are limited process by process only");
                }
                Err(why) => debug!(why, "commands are limited process by process only"),
            }
        }
        self
    }

    /// What control groups hold for the commands of process `pid`, or why they hold nothing.
    pub fn limits_of(&self, pid: u32) -> Result<GroupLimits, String> {
        let group = cgroups::delegated(self.options.cgroup.as_deref(), pid)?;
        cgroups::look(&group)
    }

    /// What the second wall keeps, or why there is none, for people.
    pub fn second_wall(&self) -> Result<Strength, String> {
        self.second.wall()
    }

    /// Whether system calls are filtered, or why not, for people.
    pub fn filter(&self) -> Result<(), String> {
        self.second.filter()
    }

    /// The same with a bug in it.
    #[cfg(feature = "test-util")]
    #[must_use]
    pub const fn with_bug(mut self, planted: SandboxBug) -> Self {
        self.planted = planted;
        self
    }

    /// What holds for its commands.
    pub const fn options(&self) -> &ProcessOptions {
        &self.options
    }

    /// Runs a command until it ends, takes too long or is cancelled; nothing of it is left.
    pub(in crate::sandbox) async fn run(
        &self,
        policy: &SandboxPolicy,
        command: &SandboxCommand,
        wires: Option<Wires>,
        cancelled: &CancellationToken,
    ) -> Result<Ran, SandboxError> {
        let around = match self.options.isolation {
            Isolation::Bubblewrap => self.second.of_command()?,
            Isolation::None => None,
        };
        self.run_within(around, policy, command, wires, cancelled).await
    }

    pub(super) async fn run_within(
        &self,
        around: Around<'_>,
        policy: &SandboxPolicy,
        command: &SandboxCommand,
        wires: Option<Wires>,
        cancelled: &CancellationToken,
    ) -> Result<Ran, SandboxError> {
        let deadline = Instant::now() + command.timeout;
        let outlet = self.outlet(policy, command);
        let mut running = self.start(around, policy, command, outlet.as_ref())?;
        let (stdout, stderr, stdin) =
            (running.child.stdout.take(), running.child.stderr.take(), running.child.stdin.take());
        let (Some(mut stdout), Some(mut stderr)) = (stdout, stderr) else {
            return Err(SandboxError::Io {
                what: "read a command's output",
                source: io::ErrorKind::BrokenPipe.into(),
            });
        };
        let (mut ears, told) = OutputListener::new(wires, &command.sink);
        let mut feeding = Box::pin(feed(stdin, running.go, &command.stdin, told));
        let mut is_fed = false;
        let mut listening = Listening::new();
        let end = loop {
            tokio::select! {
                biased;
                () = cancelled.cancelled() => break CommandEnd::Cancelled,
                () = sleep_until(deadline) => break CommandEnd::TimedOut(command.timeout),
                () = &mut feeding, if !is_fed => is_fed = true,
                ended = running.child.wait() => break CommandEnd::Exited(code(ended)?),
                () = listening.next(&mut stdout, &mut stderr, &mut ears),
                    if !(ears.are_open() && listening.is_over()) => {}
            }
        };
        let end = match end {
            CommandEnd::Exited(_) if running.is_out_of_memory() => {
                CommandEnd::OutOfMemory(policy.limits.memory)
            }
            end => end,
        };
        match end {
            CommandEnd::Cancelled | CommandEnd::TimedOut(_) => running.end().await,
            // It has ended; what it left behind has not, where nothing isolates it.
            _ => running.hunt().await,
        }
        let rest = async {
            while !listening.is_over() {
                listening.next(&mut stdout, &mut stderr, &mut ears).await;
            }
            ears.open().await;
        };
        drop(timeout(LAST_WORDS, rest).await);
        if let (Some(outlet), Some(collecting)) = (outlet, command.sink.collect())
            && matches!(end, CommandEnd::Exited(_))
        {
            // The call does not wait for it.
            drop(tokio::task::spawn_blocking(move || collecting.made(outlet.read())));
        }
        Ok(Ran { capture: ears.into_capture(), end })
    }

    /// Where the command's files leave its sandbox, if they are wanted and they can.
    fn outlet(&self, policy: &SandboxPolicy, command: &SandboxCommand) -> Option<Outlet> {
        let is_isolated = self.options.isolation == Isolation::Bubblewrap;
        if !is_isolated
            || !command.sink.is_read()
            || !output_files::is_possible(&self.options.paths)
        {
            return None;
        }
        Outlet::make(policy.user, self.is_root)
            .inspect_err(|error| warn!(%error, "files that commands leave cannot be collected"))
            .ok()
    }

    fn start(
        &self,
        around: Around<'_>,
        policy: &SandboxPolicy,
        command: &SandboxCommand,
        outlet: Option<&Outlet>,
    ) -> Result<RunningCommand, SandboxError> {
        let is_isolated = self.options.isolation == Isolation::Bubblewrap;
        let mut argv = bubblewrap_args::limits(&policy.limits, policy.limits.tmp.bytes());
        let mut program = OsString::from(PRLIMIT);
        if is_isolated {
            let walls = around.map(|(steps, shut)| {
                let paths = &self.options.paths;
                let wall =
                    |strength| LandlockRules::new(strength, paths, policy, WORKSPACE, outlet);
                let filter = shut.filter;
                #[cfg(feature = "test-util")]
                let filter = filter && self.planted != SandboxBug::NoFilter;
                (steps, Walls { files: shut.wall.map(wall), filter })
            });
            let walls = walls.as_ref().map(|(steps, walls)| (*steps, walls));
            let isolated = bubblewrap_args::isolated(
                &self.options,
                &shown(&self.options.paths),
                policy,
                Inside { command, outlet, walls },
                #[cfg(feature = "test-util")]
                self.planted,
            );
            argv.extend(isolated.map_err(|error| no(error.to_string()))?);
        } else {
            argv.extend(command.argv.items().iter().map(OsString::from));
        }
        if let Some((steps, _)) = around {
            let [step, begin] = steps.begin();
            argv.splice(
                0..0,
                [step, begin, std::mem::replace(&mut program, steps.binary.clone().into())],
            );
        }
        let mut start = Start::new(program);
        start
            .args(argv)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_else(|| PATH.into()));
        start.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        start.process_group(0).kill_on_drop(true).current_dir(Path::new("/"));
        let mut mark = None;
        if is_isolated {
            if self.is_root {
                start.uid(policy.user.uid()).gid(policy.user.gid());
            }
        } else {
            start.envs(command.environment());
            let run = ulid::Ulid::generate().to_string();
            start.env(RUN, &run);
            mark = Some(format!("{RUN}={run}"));
            if let Some(files) = &policy.workspace {
                start.current_dir(&files.directory);
            }
        }
        let group = self.group(policy)?;
        let child = start.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound if around.is_none() => {
                no(format!("`{PRLIMIT}` is not installed (util-linux)"))
            }
            _ => SandboxError::Io { what: "start a command", source: error },
        })?;
        // If an error drops it, it is killed. It does nothing yet: it waits for a signal to begin.
        let running =
            RunningCommand { child, mark, group, go: if around.is_some() { GO } else { b"" } };
        running.limit()?;
        Ok(running)
    }

    /// A group for a command, where there are any.
    fn group(&self, policy: &SandboxPolicy) -> Result<Option<CommandGroup>, SandboxError> {
        let Some(groups) = &self.groups else { return Ok(None) };
        let made = groups.make(&policy.limits);
        let made = made.map_err(|source| SandboxError::Io { what: "limit a command", source })?;
        Ok(Some(made))
    }
}

pub(super) fn no(why: String) -> SandboxError {
    SandboxError::NoIsolation(why)
}

/// The exit code as shells have it: 128 and the signal for a killed command.
fn code(ended: io::Result<ExitStatus>) -> Result<i64, SandboxError> {
    let ended = ended.map_err(|source| SandboxError::Io { what: "wait for a command", source })?;
    let code = ended.code().or_else(|| ended.signal().map(|signal| 128 + signal));
    Ok(i64::from(code.unwrap_or(-1)))
}

fn shown(paths: &[PathBuf]) -> Vec<VisiblePath> {
    let shown = |path: &PathBuf| match std::fs::read_link(path) {
        Ok(target) => VisiblePath::Link(path.clone(), target),
        Err(_no_link) => VisiblePath::Tree(path.clone()),
    };
    let hidden = HIDDEN.iter().map(PathBuf::from).filter(|path| path.exists());
    paths.iter().map(shown).chain(hidden.map(VisiblePath::Hidden)).collect()
}

// === impl RunningCommand ===

impl RunningCommand {
    /// Holds it within its limits, before it has started anything.
    fn limit(&self) -> Result<(), SandboxError> {
        // Without an id it has ended already.
        let Some(pid) = self.child.id() else { return Ok(()) };
        if let Err(error) = fs::write(format!("/proc/{pid}/oom_score_adj"), FIRST_TO_GO) {
            debug!(%error, "the kernel may not end a command first when memory is short");
        }
        let taken = self.group.as_ref().map_or(Ok(()), |group| group.take(pid));
        taken.map_err(|source| SandboxError::Io { what: "limit a command", source })
    }

    /// Whether the kernel ended a part of it for want of memory.
    fn is_out_of_memory(&self) -> bool {
        self.group.as_ref().is_some_and(CommandGroup::is_out_of_memory)
    }

    /// Asks all processes of the command to end, and ends those that do not.
    async fn end(&mut self) {
        process_tree::signal(&self.all(), Signal::TERM);
        let until = Instant::now() + GRACE;
        while Instant::now() < until {
            if let Ok(Some(_)) = self.child.try_wait() {
                break;
            }
            sleep(LOOK).await;
        }
        // With bubblewrap the process namespace goes with its first process, which dies with this.
        if let Err(error) = self.child.start_kill() {
            debug!(%error, "a command has ended by itself");
        }
        if let Err(error) = self.child.wait().await {
            debug!(%error, "a command cannot be waited for");
        }
        self.hunt().await;
    }

    /// Ends what is left where nothing isolates it.
    async fn hunt(&self) {
        let Some(mark) = &self.mark else { return };
        for _ in 0..ROUNDS {
            let left = process_tree::marked(mark);
            if left.is_empty() {
                return;
            }
            process_tree::signal(&left, Signal::KILL);
            sleep(LOOK).await;
        }
        warn!("processes of a command that is not isolated cannot be ended");
    }

    /// The command's processes, without those that only hold it.
    fn all(&self) -> Vec<rustix::process::Pid> {
        let root = self.child.id();
        match &self.mark {
            Some(mark) => process_tree::marked(mark),
            None => root.map(process_tree::descendants).unwrap_or_default(),
        }
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        // The child itself is killed by its own drop.
        if let Some(mark) = &self.mark {
            process_tree::signal(&process_tree::marked(mark), Signal::KILL);
        }
    }
}
