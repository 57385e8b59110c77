//! The executors of commands: one for each place.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::{Path, PathBuf},
    pin::pin,
    time::Duration,
};

use async_trait::async_trait;
use clawnode_kernel::job_machine::Probe;
use clawnode_proto::{
    AgentName, ErrorChain, ToolName,
    llm::Text,
    session::ToolEnd,
    tool::{ToolFailure, ToolOutcome, ToolSpec},
};
use clawnode_tool::{CallBack, Caller, Executor, ToolRun, append::append};
use futures_util::future::Either;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{
    Docker, Isolation, Processes, SandboxError,
    code::{ProgramEnd, ProgramSession},
    command_output::{CommandEnd, Ran},
    command_tools::{Recipe, recipes},
    dialogue::{Wires, talk},
    options::{SandboxOptions, SandboxPlace, WorkspaceAccess},
    spec::{AgentFiles, Network, SandboxCommand, SandboxPolicy, User},
};
use crate::workspace::DIRECTORY_MODE;

/// How long code that has returned its value may take to end by itself, before it is ended.
const LAST_MOMENT: Duration = Duration::from_secs(1);

/// The exit code of a probe by which it says that the command has not happened.
const NOT_HAPPENED: i64 = 1;
/// Characters of a probe's output that are reported.
const SAID: usize = 300;

/// All tools that are commands, as an agent may be given them, whichever node runs them.
pub fn specs(options: &SandboxOptions) -> Vec<ToolSpec> {
    let specs_in = |place| recipes(options, place).into_iter().map(|recipe| recipe.spec);
    specs_in(SandboxPlace::Docker).chain(specs_in(SandboxPlace::Process)).collect()
}

/// The commands of one place.
#[derive(Debug)]
pub struct Commands {
    recipes: BTreeMap<ToolName, Recipe>,
    place: SandboxStage,
    files: SandboxFiles,
    /// Whether other machines can be reached from there.
    reaches_out: bool,
}

#[derive(Clone, Debug)]
enum SandboxStage {
    Docker(Docker),
    Process(Processes),
}

/// What a command sees of its agent's files, and the user that it runs as.
#[derive(Debug)]
struct AgentAccess {
    workspace: Option<AgentFiles>,
    user: User,
}

/// Where agents' files are, and what commands see of them.
#[derive(Clone, Debug)]
struct SandboxFiles {
    root: Option<PathBuf>,
    access: WorkspaceAccess,
}

// === impl Commands ===

impl Commands {
    /// Those in containers. `root` is where agents' files are, if anywhere.
    pub fn in_docker(options: &SandboxOptions, docker: Docker, root: Option<PathBuf>) -> Self {
        Self::at(options, SandboxPlace::Docker, SandboxStage::Docker(docker), root)
    }

    /// Those that are processes. `root` is where agents' files are, if anywhere.
    pub fn in_processes(
        options: &SandboxOptions,
        processes: Processes,
        root: Option<PathBuf>,
    ) -> Self {
        Self::at(options, SandboxPlace::Process, SandboxStage::Process(processes), root)
    }

    fn at(
        options: &SandboxOptions,
        place: SandboxPlace,
        at: SandboxStage,
        root: Option<PathBuf>,
    ) -> Self {
        let recipes = recipes(options, place);
        let recipes =
            recipes.into_iter().map(|recipe| (recipe.spec.name.clone(), recipe)).collect();
        let reaches_out = match place {
            SandboxPlace::Docker => options.docker.network == Network::Bridge,
            SandboxPlace::Process => options.process.isolation == Isolation::None,
        };
        let files = SandboxFiles { root, access: options.workspace };
        Self { recipes, place: at, files, reaches_out }
    }

    async fn run(
        &self,
        run: ToolRun,
        back: CallBack,
        cancelled: &CancellationToken,
    ) -> Result<ToolOutcome, ToolOutcome> {
        let Some(recipe) = self.recipes.get(&run.tool) else {
            let why = format!("there is no tool `{}` here", run.tool);
            return Err(ToolOutcome::failed(ToolFailure::Invalid, why));
        };
        let access = self.files.of(&run.agent)?;
        let caller = Caller { call: run.call, agent: run.agent.clone() };
        let limit = recipe.limit(&run);
        let command = recipe.command(run)?;
        if recipe.calls() {
            return self.code(recipe, access, command, back, caller, cancelled).await;
        }
        let ran = self.place.run(recipe, access, &command, None, cancelled).await?;
        if ran.end == CommandEnd::Cancelled && ran.capture.is_empty() {
            return Err(ToolOutcome::failed(ToolFailure::Cancelled, ""));
        }
        let is_late = matches!(ran.end, CommandEnd::TimedOut(_));
        let mut outcome = ran.outcome();
        if is_late && let Text::Inline { text } = &mut outcome.content {
            append(text, format_args!("\n[{limit}]"));
        }
        Ok(outcome)
    }

    /// Asks a tool's probe whether an earlier run has happened.
    async fn ask_probe(&self, run: ToolRun) -> Result<Probe, ToolOutcome> {
        let recipe = self.recipes.get(&run.tool);
        let Some((recipe, command)) = recipe.and_then(|recipe| Some((recipe, recipe.probe(&run)?)))
        else {
            let why = format!("`{}` has no probe here", run.tool);
            return Err(ToolOutcome::failed(ToolFailure::Unavailable, why));
        };
        let (command, access) = (command?, self.files.of(&run.agent)?);
        let never = CancellationToken::new();
        let ran = self.place.run(recipe, access, &command, None, &never).await?;
        Ok(match ran.end {
            CommandEnd::Exited(0) => Probe::Happened(ran.outcome()),
            CommandEnd::Exited(NOT_HAPPENED) => Probe::Absent,
            _ => Probe::Unclear(format!("its probe could not tell: {}", said(&ran.outcome()))),
        })
    }

    /// Runs code, and what it calls.
    async fn code(
        &self,
        recipe: &Recipe,
        access: AgentAccess,
        mut command: SandboxCommand,
        back: CallBack,
        caller: Caller,
        cancelled: &CancellationToken,
    ) -> Result<ToolOutcome, ToolOutcome> {
        let (talk, wires) = talk();
        let mut code = ProgramSession::new(back, caller, talk, command.timeout, cancelled);
        let text = String::from_utf8_lossy(&command.stdin).into_owned();
        command.stdin = code.begin(&text).into();
        let stop = cancelled.child_token();
        let mut running = pin!(self.place.run(recipe, access, &command, Some(wires), &stop));
        let ran = tokio::select! {
            biased;
            ran = &mut running => Either::Left(ran),
            verdict = code.verdict() => Either::Right(verdict),
        };
        let (verdict, end) = match ran {
            // What it said last may not have been heard yet.
            Either::Left(ran) => {
                let is_cancelled = ran.as_ref().is_ok_and(|ran| ran.end == CommandEnd::Cancelled);
                let verdict = code.close(is_cancelled).await;
                (verdict, ran?.end)
            }
            Either::Right(verdict) => {
                let moment = if matches!(verdict, ProgramEnd::Broke(_)) {
                    Duration::ZERO
                } else {
                    LAST_MOMENT
                };
                let ran = {
                    let mut ending = pin!(async {
                        tokio::select! {
                            biased;
                            ran = &mut running => ran,
                            never = code.hear_out() => match never {},
                        }
                    });
                    match timeout(moment, &mut ending).await {
                        Ok(ran) => ran,
                        Err(_elapsed) => {
                            stop.cancel();
                            ending.await
                        }
                    }
                };
                code.close(true).await;
                // What it said counts, however its sandbox ended.
                (verdict, ran.map_or(CommandEnd::Cancelled, |ran| ran.end))
            }
        };
        Ok(code.outcome(verdict, end))
    }
}

#[async_trait]
impl Executor for Commands {
    fn tools(&self) -> Vec<ToolSpec> {
        self.recipes.values().map(|recipe| recipe.spec.clone()).collect()
    }

    async fn execute(&self, run: ToolRun, cancelled: CancellationToken) -> ToolOutcome {
        self.run(run, CallBack::default(), &cancelled).await.unwrap_or_else(|failed| failed)
    }

    async fn end(&self, run: ToolRun, back: CallBack, cancelled: CancellationToken) -> ToolEnd {
        let outcome = self.run(run, back, &cancelled).await.unwrap_or_else(|failed| failed);
        ToolEnd::Known { outcome }
    }

    async fn probe(&self, run: ToolRun) -> Probe {
        let unclear = |failed: ToolOutcome| {
            Probe::Unclear(format!("its probe could not be asked: {}", said(&failed)))
        };
        self.ask_probe(run).await.unwrap_or_else(unclear)
    }

    fn reaches_out(&self, _tool: &ToolName) -> bool {
        self.reaches_out
    }

    async fn health_check(&self) -> Result<(), String> {
        let health = match &self.place {
            SandboxStage::Docker(docker) => docker.health_check().await,
            SandboxStage::Process(processes) => processes.health_check().await,
        };
        health.map_err(|error| ErrorChain(&error).to_string())
    }

    async fn changed(&self) {
        match &self.place {
            SandboxStage::Docker(docker) => docker.changed().await,
            SandboxStage::Process(_) => std::future::pending().await,
        }
    }
}

/// The end of an outcome's text, for people.
fn said(outcome: &ToolOutcome) -> String {
    let text = outcome.content.inline().unwrap_or_default();
    let skipped = text.chars().count().saturating_sub(SAID);
    text.chars().skip(skipped).collect()
}

// === impl SandboxStage ===

impl SandboxStage {
    async fn run(
        &self,
        recipe: &Recipe,
        access: AgentAccess,
        command: &SandboxCommand,
        wires: Option<Wires>,
        cancelled: &CancellationToken,
    ) -> Result<Ran, SandboxError> {
        let AgentAccess { workspace, user } = access;
        match self {
            Self::Docker(docker) => {
                let options = docker.options();
                let (limits, network) = (options.limits(), options.network);
                let image = recipe.image.clone();
                let policy = SandboxPolicy { image, limits, network, workspace, user };
                docker.run(&policy, command, wires, cancelled).await
            }
            Self::Process(processes) => {
                let limits = processes.options().limits();
                let network = Network::None;
                let policy = SandboxPolicy { image: None, limits, network, workspace, user };
                processes.run(&policy, command, wires, cancelled).await
            }
        }
    }
}

// === impl SandboxFiles ===

impl SandboxFiles {
    /// What a command of an agent sees of its files, and who it is.
    fn of(&self, agent: &AgentName) -> Result<AgentAccess, SandboxError> {
        let is_read_only = match self.access {
            WorkspaceAccess::None => {
                return Ok(AgentAccess { workspace: None, user: User::nobody() });
            }
            WorkspaceAccess::ReadOnly => true,
            WorkspaceAccess::ReadWrite => false,
        };
        let no =
            |why: &str| SandboxError::Workspace { agent: agent.to_string(), why: why.to_owned() };
        let root = self.root.as_ref().ok_or_else(|| no("this node has no `workspace.root`"))?;
        // A name of dots alone would be another directory.
        if agent.as_str().chars().all(|c| c == '.') {
            return Err(no("its name cannot be the name of a directory"));
        }
        let root = root.canonicalize().map_err(|error| no(&error.to_string()))?;
        let directory = root.join(agent.as_str());
        let about = match directory.symlink_metadata() {
            Ok(about) => about,
            Err(_none) => {
                make(&directory, &root).map_err(|error| no(&error.to_string()))?;
                directory.symlink_metadata().map_err(|error| no(&error.to_string()))?
            }
        };
        // Only the node can make something else of it; still, nothing else is mounted.
        if !about.is_dir() {
            return Err(no("it is not a directory"));
        }
        let user = User::owner(about.uid(), about.gid());
        Ok(AgentAccess { workspace: Some(AgentFiles { directory, is_read_only }), user })
    }
}

/// Makes an agent's directory, as `file_write` does: it belongs to the owner of the root.
fn make(directory: &Path, root: &Path) -> io::Result<()> {
    fs::create_dir(directory)?;
    if rustix::process::geteuid().is_root() {
        let about = fs::metadata(root)?;
        chown(directory, Some(about.uid()), Some(about.gid()))?;
    }
    fs::set_permissions(directory, fs::Permissions::from_mode(DIRECTORY_MODE))
}
