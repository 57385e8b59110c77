//! A process of its own on a storage backend: the production driver with the kinds that a case wants.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64},
    },
    time::Duration,
};

use async_trait::async_trait;
use clawnode_actors::{
    agent::{AgentOptions, Agents},
    hook::Hooks,
    llm::Models,
    session::{FrameHub, RunnerParts, Session, SessionRunner},
};
use clawnode_budget::{
    Budget, BudgetRunner,
    holder::{HolderHandle, HolderOptions, HolderTasks},
};
use clawnode_cluster::{
    Clock, Feed, Storage, SystemClock, membership::Members, placement::Placement,
};
use clawnode_guard::kill_switch::SwitchGate;
use clawnode_kernel::{
    EntityKind, MachineOptions,
    counter::{Counter, CounterRunner},
    driver::{
        ActiveEntities, AnswerFrames, Kinds, Lacks, Probations, TakeOrders, Worker, WorkerContext,
        WorkerOptions,
    },
    supervise::Supervisor,
};
use clawnode_proto::{
    EntityId, ErrorBody, ErrorCode, Frame, JobId, Kind, Position, ProcessId, TurnId,
    archive::{CleanJobs, CleanView, LogPart},
    budget::ProcessStanding,
    embed::{EmbedTexts, Embedded},
    envelope::VERSIONS,
    kill_switch::SwitchScope,
    node::VersionRange,
    recall::{StoreFound, StoreSearch},
};
use clawnode_tool::{Available, skill::SkillShelf};
use tokio::sync::watch;

use super::Result;

/// Events after which a snapshot replaces a counter's journal here.
const SNAPSHOT_EVERY: u64 = 20;

/// What a process that has no turns and no tools answers.
#[derive(Debug)]
struct Nothing(HolderHandle);

impl AnswerFrames for Nothing {
    fn frames(&self, _: EntityId, _: TurnId) -> (Vec<Frame>, bool) {
        (Vec::new(), false)
    }
}

#[async_trait]
impl TakeOrders for Nothing {
    fn cordon(&self, _: bool) {}
    fn drain(&self) {}
    fn cancel_job(&self, _: JobId) {}
    async fn read_switch(&self, _: SwitchScope, _: Duration) -> Option<(Position, u32)> {
        None
    }
    async fn job_log(&self, _: JobId, _: u64, _: Duration) -> Option<LogPart> {
        None
    }
    async fn clean_jobs(&self, _: CleanJobs) -> Option<CleanView> {
        None
    }
    fn budget_standing(&self, standing: ProcessStanding) {
        self.0.tells(standing);
    }
    async fn embed(&self, _: EmbedTexts) -> std::result::Result<Embedded, ErrorBody> {
        Err(ErrorBody::new(ErrorCode::Unsupported, "nothing asks a provider here"))
    }
    async fn search_store(&self, _: StoreSearch) -> Option<StoreFound> {
        None
    }
}

/// A worker of a process of its own on a storage backend that others may share.
pub(super) struct Process {
    worker: Worker,
    supervisor: Supervisor,
    /// What it misses.
    pub(super) lacks: Lacks,
    /// The others, as it hears of them.
    pub(super) view: watch::Sender<Members>,
    /// From where its calls reserve.
    pub(super) holder: HolderHandle,
}

impl Process {
    /// One that serves these kinds, and pulls everything or nothing.
    pub(super) async fn start(
        storage: &Storage,
        id: u128,
        kinds: &[Kind],
        pulls: bool,
    ) -> Result<Self> {
        let (view, peers) = watch::channel(Members::default());
        let supervisor = Supervisor::spawn().await?;
        let process = ProcessId::from_u128(id);
        let mut served = Kinds::default();
        if kinds.contains(&Counter::KIND) {
            let clock: Arc<dyn Clock> = Arc::new(SystemClock);
            let feed = Feed::new(process, "n".parse()?, Arc::clone(&clock));
            let runner = CounterRunner { storage: storage.clone(), clock, feed };
            let snapshot_every = SNAPSHOT_EVERY;
            let options = MachineOptions { snapshot_every, ..MachineOptions::default() };
            served = served.with::<Counter>(Arc::new(runner), options);
        }
        let holder = HolderHandle::new(process, HolderOptions::default());
        if kinds.contains(&Kind::BUDGET) {
            let runner = budgets(storage, &holder, &supervisor).await?;
            served = served.with::<Budget>(Arc::new(runner), MachineOptions::default());
        }
        if kinds.contains(&Kind::SESSION) {
            let runner = sessions(storage, &holder, &supervisor, peers.clone()).await?;
            served = served.with::<Session>(Arc::new(runner), MachineOptions::default());
        }
        let lacks = Lacks::default();
        let context = WorkerContext {
            process,
            storage: storage.clone(),
            clock: Arc::new(SystemClock) as Arc<dyn Clock>,
            kinds: served,
            version: env!("CARGO_PKG_VERSION").parse()?,
            activations: AtomicU64::new(1),
            resident: AtomicU64::new(0),
            speaks: VersionRange::from(VERSIONS),
            peers,
            lacks: lacks.clone(),
            probations: Probations::default(),
            places: ActiveEntities::new(1_000),
            cordoned: Arc::new(AtomicBool::new(false)),
        };
        let (context, options) = (Arc::new(context), WorkerOptions::default());
        let (frames, orders) =
            (Arc::new(Nothing(holder.clone())), Arc::new(Nothing(holder.clone())));
        let worker = Worker::spawn(context, frames, orders, options, &supervisor).await?;
        let partitions = storage.partitions;
        let placement =
            if pulls { Placement::alone(partitions) } else { Placement::nowhere(partitions) };
        worker.place(Arc::new(placement));
        Ok(Self { worker, supervisor, lacks, view, holder })
    }

    pub(super) async fn stop(self) {
        self.worker.drain().await;
        self.supervisor.stop().await;
    }
}

/// What runs accounts here, and the tasks of a process that spends.
async fn budgets(
    storage: &Storage,
    holder: &HolderHandle,
    supervisor: &Supervisor,
) -> Result<BudgetRunner> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let (storage, holder) = (storage.clone(), holder.clone());
    let feed = Feed::new(holder.process(), "n".parse()?, Arc::clone(&clock));
    // Before its tasks: they tell accounts what is configured here.
    holder.configure(super::budgets::configured(), HolderOptions::default());
    let tasks =
        HolderTasks { holder: holder.clone(), storage: storage.clone(), clock: Arc::clone(&clock) };
    let (follow, announce) = (tasks.clone(), tasks.clone());
    supervisor.adopt_task("budget.follow", move || follow.clone().follow()).await?;
    supervisor.adopt_task("budget.announce", move || announce.clone().announce()).await?;
    supervisor.adopt_task("budget.holder", move || tasks.clone().send()).await?;
    Ok(BudgetRunner { holder, storage, clock, feed })
}

/// What runs sessions here: the demo model answers, and there are no tools.
async fn sessions(
    storage: &Storage,
    holder: &HolderHandle,
    supervisor: &Supervisor,
    peers: watch::Receiver<Members>,
) -> Result<SessionRunner> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let agent = AgentOptions::new("default".parse()?, "demo/echo".parse()?);
    let (bucket, switch_gate) = (Arc::clone(&storage.bucket), SwitchGate::default());
    let budgets = holder.clone();
    Ok(SessionRunner::new(RunnerParts {
        storage: storage.clone(),
        agents: Agents::spawn(
            vec![agent],
            bucket,
            switch_gate,
            budgets.clone(),
            supervisor.clone(),
        )
        .await?,
        hooks: Hooks::new(Vec::new(), None),
        models: Arc::new(Models::new(BTreeMap::new(), &|_| None, &clock)),
        available: watch::channel(Available::default()).1,
        job_wait: Duration::from_mins(1),
        peers,
        memory: None,
        skills: SkillShelf::default(),
        hub: FrameHub::default(),
        link: Arc::new(|_, _| {}),
        feed: Feed::new(holder.process(), "n".parse()?, Arc::clone(&clock)),
        clock,
        budgets,
    }))
}
