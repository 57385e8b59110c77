//! Runs a command as a process, and ends it with all that it has started.

use std::{
    ffi::OsString,
    io,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use clawnode_proto::ErrorChain;
use rustix::process::Signal;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::{Child, ChildStdin, Command as Start},
    sync::mpsc,
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::{
    Isolation, ProcessOptions,
    argv::{self, Inside, PATH, PRLIMIT, Shown, WORKSPACE},
    enter::Steps,
    outlet::{self, Outlet},
    second::Second,
    tree,
    wall::{Strength, Wall},
};
#[cfg(feature = "test-util")]
use crate::tool::sandbox::planted::Planted;
use crate::tool::{
    RunSink,
    sandbox::{
        SandboxError,
        output::{End, Ran, Stream},
        spec::{Argv, Command, Network, Policy, RUN, User},
        talk::{Ears, Wires},
    },
};

/// How long a command that was asked to end (SIGTERM) may take before it is ended (SIGKILL).
const GRACE: Duration = Duration::from_millis(500);
/// How often it is looked whether it has.
const LOOK: Duration = Duration::from_millis(20);
/// How long what was said before the end may take to be read.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How long the probe may take.
const PROBE_WAIT: Duration = Duration::from_secs(4);
/// Bytes that are read at a time.
const PIECE: usize = 64 << 10;
/// Rounds of the hunt for processes that are not isolated; each may have started another meanwhile.
const ROUNDS: usize = 10;

/// Runs commands as processes of this host.
#[derive(Clone, Debug)]
pub struct Processes {
    options: ProcessOptions,
    is_root: bool,
    second: Arc<Second>,
    #[cfg(feature = "test-util")]
    planted: Planted,
}

/// The second wall of a command: who puts it up, and how much it keeps.
type Around<'a> = Option<(&'a Steps, Strength)>;

/// A command that runs; what is left of it is ended when this is dropped.
struct Running {
    child: Child,
    /// What all its processes have in their environment, where they are not isolated.
    mark: Option<String>,
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
        outlet::sweep();
        let second = Arc::new(Second::new(options.landlock, None));
        Self {
            options,
            second,
            is_root: rustix::process::geteuid().is_root(),
            #[cfg(feature = "test-util")]
            planted: Planted::None,
        }
    }

    /// The same, with a second wall that this program puts up.
    #[must_use]
    pub fn walled_by(mut self, steps: Steps) -> Self {
        self.second = Arc::new(Second::new(self.options.landlock, Some(steps)));
        self
    }

    /// What the second wall keeps, or why there is none, for people.
    pub fn second_wall(&self) -> Result<Strength, String> {
        self.second.now()
    }

    /// The same with a bug in it.
    #[cfg(feature = "test-util")]
    #[must_use]
    pub const fn with_bug(mut self, planted: Planted) -> Self {
        self.planted = planted;
        self
    }

    /// What holds for its commands.
    pub const fn options(&self) -> &ProcessOptions {
        &self.options
    }

    /// Whether commands can be isolated here, by isolating one that does nothing.
    pub async fn health_check(&self) -> Result<(), SandboxError> {
        if self.options.isolation == Isolation::None {
            return Ok(());
        }
        let around = self.second.of_command()?;
        let Some((_, strength)) = around else { return self.probe(None).await?.map_err(no) };
        match self.probe(around).await? {
            Ok(()) => {
                self.second.works(strength);
                Ok(())
            }
            // Which of the walls does not stand?
            Err(why) => match self.probe(None).await? {
                Ok(()) if self.second.fails(&why) => Ok(()),
                Ok(()) => Err(SandboxError::NoSecondWall(format!("it does not work here: {why}"))),
                Err(first) => Err(no(first)),
            },
        }
    }

    /// Runs a command that does nothing; the inner error is what it said instead.
    async fn probe(&self, around: Around<'_>) -> Result<Result<(), String>, SandboxError> {
        let nothing = Argv::new(vec!["true".to_owned()]).map_err(|error| no(error.to_string()))?;
        let command = Command {
            argv: nothing,
            stdin: Vec::new(),
            idempotency_key: "probe".to_owned(),
            timeout: PROBE_WAIT,
            sink: RunSink::default(),
        };
        let policy = Policy {
            image: None,
            limits: self.options.limits(),
            network: Network::None,
            workspace: None,
            user: User::nobody(),
        };
        let never = CancellationToken::new();
        let ran = match self.run_within(around, (&policy, &command), None, &never).await {
            Ok(ran) => ran,
            // What puts the second wall up cannot even be started.
            Err(error @ SandboxError::Io { .. }) if around.is_some() => {
                return Ok(Err(ErrorChain(&error).to_string()));
            }
            Err(error) => return Err(error),
        };
        if ran.end == End::Exited(0) {
            return Ok(Ok(()));
        }
        let is_late = matches!(ran.end, End::TimedOut(_));
        let said = ran.outcome().content.inline().unwrap_or_default().replace('\n', " ");
        let said = said.chars().take(300).collect();
        // That it takes long says nothing of any wall.
        if is_late { Err(no(said)) } else { Ok(Err(said)) }
    }

    /// Runs a command until it ends, takes too long or is cancelled; nothing of it is left.
    pub(in crate::tool::sandbox) async fn run(
        &self,
        policy: &Policy,
        command: &Command,
        wires: Option<Wires>,
        cancelled: &CancellationToken,
    ) -> Result<Ran, SandboxError> {
        let around = match self.options.isolation {
            Isolation::Bubblewrap => self.second.of_command()?,
            Isolation::None => None,
        };
        self.run_within(around, (policy, command), wires, cancelled).await
    }

    async fn run_within(
        &self,
        around: Around<'_>,
        (policy, command): (&Policy, &Command),
        wires: Option<Wires>,
        cancelled: &CancellationToken,
    ) -> Result<Ran, SandboxError> {
        let deadline = Instant::now() + command.timeout;
        let outlet = self.outlet(policy, command);
        let mut running = self.start(around, (policy, command), outlet.as_ref())?;
        let (stdout, stderr, stdin) =
            (running.child.stdout.take(), running.child.stderr.take(), running.child.stdin.take());
        let (Some(mut stdout), Some(mut stderr)) = (stdout, stderr) else {
            return Err(SandboxError::Io {
                what: "read a command's output",
                source: io::ErrorKind::BrokenPipe.into(),
            });
        };
        let (mut ears, told) = Ears::new(wires, &command.sink);
        let mut feeding = Box::pin(feed(stdin, &command.stdin, told));
        let mut is_fed = false;
        let mut listening = Listening::new();
        let end = loop {
            tokio::select! {
                biased;
                () = cancelled.cancelled() => break End::Cancelled,
                () = sleep_until(deadline) => break End::TimedOut(command.timeout),
                () = &mut feeding, if !is_fed => is_fed = true,
                ended = running.child.wait() => break End::Exited(code(ended)?),
                () = listening.next(&mut stdout, &mut stderr, &mut ears),
                    if !(ears.are_open() && listening.is_over()) => {}
            }
        };
        match end {
            End::Cancelled | End::TimedOut(_) => running.end().await,
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
            && matches!(end, End::Exited(_))
        {
            // The call does not wait for it.
            drop(tokio::task::spawn_blocking(move || collecting.made(outlet.read())));
        }
        Ok(Ran { capture: ears.into_capture(), end })
    }

    /// Where the command's files leave its sandbox, if somebody wants them and they can.
    fn outlet(&self, policy: &Policy, command: &Command) -> Option<Outlet> {
        let is_isolated = self.options.isolation == Isolation::Bubblewrap;
        if !is_isolated || !command.sink.is_read() || !outlet::is_possible(&self.options.paths) {
            return None;
        }
        Outlet::make(policy.user, self.is_root)
            .inspect_err(|error| warn!(%error, "files that commands leave cannot be collected"))
            .ok()
    }

    fn start(
        &self,
        around: Around<'_>,
        (policy, command): (&Policy, &Command),
        outlet: Option<&Outlet>,
    ) -> Result<Running, SandboxError> {
        let is_isolated = self.options.isolation == Isolation::Bubblewrap;
        let mut argv = argv::limits(&policy.limits, policy.limits.tmp.bytes());
        let mut program = OsString::from(PRLIMIT);
        if is_isolated {
            let wall = around.map(|(steps, strength)| {
                let inside = (WORKSPACE, outlet);
                (steps, Wall::new(strength, &self.options.paths, policy, inside))
            });
            let wall = wall.as_ref().map(|(steps, wall)| (*steps, wall));
            let isolated = argv::isolated(
                &self.options,
                &shown(&self.options.paths),
                policy,
                Inside { command, outlet, wall },
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
        let child = start.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound if around.is_none() => {
                no(format!("`{PRLIMIT}` is not installed (util-linux)"))
            }
            _ => SandboxError::Io { what: "start a command", source: error },
        })?;
        Ok(Running { child, mark })
    }
}

/// Hands a command what it reads; one that does not want it is no error.
async fn feed(stdin: Option<ChildStdin>, first: &[u8], mut told: Option<mpsc::Receiver<Bytes>>) {
    let Some(mut stdin) = stdin else { return };
    let fed = async {
        stdin.write_all(first).await?;
        while let Some(told) = &mut told
            && let Some(bytes) = told.recv().await
        {
            stdin.write_all(&bytes).await?;
        }
        Ok::<(), io::Error>(())
    };
    if let Err(error) = fed.await {
        debug!(%error, "a command did not read all that it was given");
    }
}

fn no(why: String) -> SandboxError {
    SandboxError::NoIsolation(why)
}

/// As shells tell it: 128 and the signal for one that was killed.
fn code(ended: io::Result<ExitStatus>) -> Result<i64, SandboxError> {
    let ended = ended.map_err(|source| SandboxError::Io { what: "wait for a command", source })?;
    let code = ended.code().or_else(|| ended.signal().map(|signal| 128 + signal));
    Ok(i64::from(code.unwrap_or(-1)))
}

fn shown(paths: &[PathBuf]) -> Vec<Shown> {
    let shown = |path: &PathBuf| match std::fs::read_link(path) {
        Ok(target) => Shown::Link(path.clone(), target),
        Err(_no_link) => Shown::Tree(path.clone()),
    };
    paths.iter().map(shown).collect()
}

// === impl Running ===

impl Running {
    /// Asks all processes of the command to end, and ends those that do not.
    async fn end(&mut self) {
        tree::signal(&self.all(), Signal::TERM);
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
            let left = tree::marked(mark);
            if left.is_empty() {
                return;
            }
            tree::signal(&left, Signal::KILL);
            sleep(LOOK).await;
        }
        warn!("processes of a command that is not isolated cannot be ended");
    }

    /// The command's processes, without those that only hold it.
    fn all(&self) -> Vec<rustix::process::Pid> {
        let root = self.child.id();
        match &self.mark {
            Some(mark) => tree::marked(mark),
            None => root.map(tree::descendants).unwrap_or_default(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The child itself is killed by its own drop.
        if let Some(mark) = &self.mark {
            tree::signal(&tree::marked(mark), Signal::KILL);
        }
    }
}

/// Reading both streams of a command, each to its end.
struct Listening {
    buffers: [Vec<u8>; 2],
    over: [bool; 2],
}

// === impl Listening ===

impl Listening {
    fn new() -> Self {
        Self { buffers: [vec![0; PIECE], vec![0; PIECE]], over: [false; 2] }
    }

    const fn is_over(&self) -> bool {
        self.over[0] && self.over[1]
    }

    /// Reads the next piece of either.
    async fn next(
        &mut self,
        stdout: &mut (impl AsyncRead + Unpin),
        stderr: &mut (impl AsyncRead + Unpin),
        ears: &mut Ears,
    ) {
        if !ears.are_open() {
            return ears.open().await;
        }
        let [out, err] = &mut self.buffers;
        let (stream, at, bytes) = tokio::select! {
            read = stdout.read(out), if !self.over[0] => (Stream::Stdout, 0, said(out, read)),
            read = stderr.read(err), if !self.over[1] => (Stream::Stderr, 1, said(err, read)),
            else => return,
        };
        if bytes.is_empty() {
            self.over[at] = true;
        } else {
            ears.add(stream, bytes);
        }
    }
}

/// What was read; nothing at the end, and where nothing can be read any more.
fn said(buffer: &[u8], read: io::Result<usize>) -> &[u8] {
    read.ok().and_then(|count| buffer.get(..count)).unwrap_or_default()
}
