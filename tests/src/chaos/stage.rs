//! The stage of a scenario: hosts, NATS servers, the model server, gateways and workers.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use clawnode_proto::{
    ProcessId,
    view::{EventView, VerifyView},
};
use serde_json::json;

use super::{
    ChaosError, budget,
    bus::Bus,
    client::Entrance,
    daemon::sibling,
    engine::Containers,
    errands::{ASKED, COMMAND, TOOLS},
    evidence::{Evidence, Stored},
    hosts::{HostKind, Network},
    models::ModelServers,
    nodes::{Role, Slot},
    transcript::Transcript,
    wait::eventually,
};
use crate::{effects::EffectCounter, nats, process::Client};

/// The token of the gateways.
const TOKEN: &str = "token-of-the-chaos-stage";
/// A tool's effect happens this long after it was asked for, and is answered so long after that.
const PACE: Duration = Duration::from_millis(100);
/// What all subjects begin with.
const PREFIX: &str = "chaos";
/// The inbox's stream.
const INBOX: &str = "CHAOS_INBOX";
/// The journal's stream.
pub(super) const JOURNAL: &str = "CHAOS_JOURNAL";
/// The port of a gateway that has its host for itself.
const GATEWAY_PORT: u16 = 3_100;
/// How long inputs may wait for their acknowledgement after the last answer: redelivery takes
/// 30 s, and may be needed twice.
const INBOX_EMPTIES_IN: Duration = Duration::from_secs(100);
/// What an owner's log says when it finds itself fenced.
const FENCED: &str = "entity is owned elsewhere now";

/// What a scenario runs on.
#[derive(Clone, Debug)]
pub struct Shape {
    /// What hosts are made of.
    pub kind: HostKind,
    /// NATS servers; none for one node alone on its own disk.
    pub servers: usize,
    pub gateways: usize,
    pub workers: usize,
    /// Providers of models, in the order in which they are asked: one, or two.
    pub providers: usize,
    /// Pieces of each reply.
    pub tokens: u32,
    /// Milliseconds before each piece.
    pub delay_ms: u64,
    /// Whether a limit in money holds for all calls.
    pub budget: bool,
    /// Whether the counts of usage must be those of the journals in the end.
    pub audited: bool,
    /// Where the servers, or the node alone, store what they keep, if not in the stage's folder.
    pub store: Option<PathBuf>,
    /// Further variables of nodes: whose names begin so, the variable, its value.
    pub vars: Vec<(&'static str, String, String)>,
    /// The program of the nodes, if not the one beside this.
    pub program: Option<PathBuf>,
}

/// A running stage.
#[derive(Debug)]
pub struct Stage {
    /// What it was made from.
    pub shape: Shape,
    /// Its folder: logs, homes, stores.
    pub dir: PathBuf,
    /// Its hosts.
    pub network: Network,
    /// The NATS servers.
    pub bus: Option<Bus>,
    /// Who counts the effects of tools.
    pub counter: EffectCounter,
    /// The engine of the workers' containers, if there is one.
    pub containers: Option<Containers>,
    /// Gateways first, then workers.
    pub nodes: Vec<Slot>,
    /// What is left at the end and should not be.
    pub leftovers: Vec<String>,
    /// The servers of the providers.
    pub(super) models: ModelServers,
}

// === impl Stage ===

impl Stage {
    /// Starts everything, and waits until it serves.
    pub async fn start(
        shape: Shape,
        dir: &Path,
        containers: Option<Containers>,
    ) -> Result<Self, ChaosError> {
        fs::create_dir_all(dir).map_err(ChaosError::io(format!("make `{}`", dir.display())))?;
        let mut network = Network::new(shape.kind)?;
        let store = shape.store.as_deref();
        let bus = match shape.servers {
            0 => None,
            count => Some(Bus::start(&mut network, shape.kind, count, dir, store).await?),
        };
        let models = ModelServers::start(network.own(), &shape, dir).await?;
        let counter = EffectCounter::at(network.own(), dir, PACE).await;
        let counter = counter.map_err(ChaosError::io("count effects"))?;
        let mut stage = Self {
            shape,
            dir: dir.to_owned(),
            network,
            bus,
            counter,
            containers,
            nodes: Vec::new(),
            leftovers: Vec::new(),
            models,
        };
        if stage.bus.is_none() {
            stage.add(Role::Alone, 1)?;
        } else {
            for number in 1..=stage.shape.gateways {
                stage.add(Role::Gateway, number)?;
            }
            for number in 1..=stage.shape.workers {
                stage.add(Role::Worker, number)?;
            }
        }
        for node in &mut stage.nodes {
            node.spawn()?;
        }
        for node in &mut stage.nodes {
            node.ready().await?;
        }
        Ok(stage)
    }

    fn add(&mut self, role: Role, number: usize) -> Result<(), ChaosError> {
        let name = match role {
            Role::Gateway => format!("gateway{number}"),
            Role::Worker => format!("worker{number}"),
            Role::Alone => "node".to_owned(),
        };
        let host = self.network.add(&name)?;
        let home = self.dir.join(&name);
        let stores_here = self.shape.store.as_ref().filter(|_| role == Role::Alone);
        let data = stores_here.cloned().unwrap_or_else(|| home.join("data"));
        for folder in [&home, &data] {
            let what = format!("make `{}`", folder.display());
            fs::create_dir_all(folder).map_err(ChaosError::io(what))?;
        }
        let port = match (self.shape.kind, role) {
            (_, Role::Worker) => 0,
            (HostKind::Loopback, _) => nats::free_port()?,
            (HostKind::Namespaces, _) => GATEWAY_PORT,
        };
        let mut slot = Slot::new(&name, role, host, port, home.clone());
        slot.program = match &self.shape.program {
            Some(program) => program.clone(),
            None => program()?,
        };
        let text = |path: &Path| path.display().to_string();
        let own = self.shape.vars.iter().filter(|(whose, _, _)| name.starts_with(whose));
        let own: Vec<(String, String)> =
            own.map(|(_, variable, value)| (variable.clone(), value.clone())).collect();
        self.settings(&home)?;
        let effects = format!("{}/{name}", self.counter.url());
        let vars = [
            ("HOME", text(&home)),
            ("CLAWNODE_TEST_EFFECTS", effects),
            ("USER", "chaos".to_owned()),
            ("CLAWNODE_TOKEN", TOKEN.to_owned()),
            ("CLAWNODE_NODE__NAME", name),
            ("CLAWNODE_NODE__DATA_DIR", text(&data)),
            // Fewer than usual, so that a cluster is born sooner; and snapshots within a run.
            ("CLAWNODE_CLUSTER__PARTITIONS", "16".to_owned()),
            ("CLAWNODE_SESSION__SNAPSHOT_EVERY", "60".to_owned()),
        ];
        slot.vars.extend(vars.map(|(name, value)| (name.to_owned(), value)));
        slot.vars.extend(self.models.vars());
        slot.vars.extend(own);
        slot.nats = self.bus.as_ref().map(|bus| (bus.urls(), PREFIX.to_owned()));
        self.nodes.push(slot);
        Ok(())
    }

    /// Writes a node's configuration: what its agent may use.
    fn settings(&self, home: &Path) -> Result<(), ChaosError> {
        let mut tools = TOOLS.to_vec();
        tools.push(ASKED);
        tools.extend(self.containers.as_ref().map(|_| COMMAND));
        let engine = self.containers.as_ref().map(Containers::settings).unwrap_or_default();
        let (tools, chain) = (json!(tools), self.models.chain());
        let budget = if self.shape.budget { budget::SETTINGS } else { "" };
        let text = format!(
            "[tools]\nmax_jobs = 16\n[agents.default]\ntools = {tools}\n{chain}{engine}{budget}"
        );
        let folder = home.join(".config/clawnode");
        fs::create_dir_all(&folder)
            .and_then(|()| fs::write(folder.join("config.toml"), text))
            .map_err(ChaosError::io("write a node's configuration"))
    }

    /// What clients know.
    pub fn entrance(&self) -> Arc<Entrance> {
        let gateways = self.nodes.iter().filter(|node| node.role != Role::Worker);
        let gateways = gateways.map(Slot::url).collect();
        Arc::new(Entrance { gateways, token: TOKEN.to_owned() })
    }

    /// The places of nodes with this role.
    pub fn of(&self, role: Role) -> Vec<usize> {
        (0..self.nodes.len()).filter(|at| self.nodes[*at].role == role).collect()
    }

    /// The bus; a scenario that needs one has it.
    pub fn bus(&mut self) -> Result<&mut Bus, ChaosError> {
        self.bus.as_mut().ok_or_else(|| ChaosError::Missing("this stage has no bus".to_owned()))
    }

    /// Starts those nodes again that ended by themselves; says which.
    pub async fn revive(&mut self) -> Result<Vec<String>, ChaosError> {
        let mut revived = Vec::new();
        for node in &mut self.nodes {
            if node.is_running() {
                continue;
            }
            match node.start().await {
                // It may end again at once; then it is started again the next time.
                Ok(()) | Err(ChaosError::Ended { .. }) => revived.push(node.name.clone()),
                Err(error) => return Err(error),
            }
        }
        Ok(revived)
    }

    /// A way to the first gateway that answers.
    pub async fn gateway(&self) -> Result<Client, ChaosError> {
        let home = self.dir.join("client");
        fs::create_dir_all(&home).map_err(ChaosError::io("make a client's home"))?;
        fs::write(home.join("token"), TOKEN).map_err(ChaosError::io("write a client's token"))?;
        let entrance = self.entrance();
        eventually("a gateway that answers", Duration::from_secs(30), async || {
            let mut last = "no gateway".to_owned();
            for url in &entrance.gateways {
                let client = Client::new(url, &home).map_err(|error| error.to_string())?;
                match client.call::<serde_json::Value>("ping", json!({})).await {
                    Ok(_) => return Ok(client),
                    Err(error) => last = error.to_string(),
                }
            }
            Err(last)
        })
        .await
    }

    /// The process that claimed a session last.
    pub async fn owner(&self, session: &str) -> Result<Option<ProcessId>, ChaosError> {
        let events: Vec<EventView> = match self.gateway().await?.journal(session).await {
            // Its first message waits still.
            Err(error) if error.refusal().is_some() => return Ok(None),
            events => events?,
        };
        let claim = events.iter().rev().find(|event| event.kind == "claim");
        Ok(claim.map(|event| event.incarnation.process))
    }

    /// The place of the node with this process.
    pub fn place_of(&self, process: ProcessId) -> Option<usize> {
        self.nodes.iter().position(|node| node.process() == Some(process))
    }

    /// The place of the node of this name, if it runs a process.
    pub fn place_named(&self, name: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.name == name)
    }

    /// Owners that found themselves fenced so far, as the logs have it.
    pub fn fenced(&self) -> u64 {
        let count = |node: &Slot| {
            let log = fs::read_to_string(node.log()).unwrap_or_default();
            log.matches(FENCED).count() as u64
        };
        self.nodes.iter().map(count).sum()
    }

    /// Gathers what the judge is shown; then everything is stopped in good order.
    pub async fn close(mut self, mut evidence: Evidence) -> Result<Evidence, ChaosError> {
        self.inbox_empties().await;
        if self.shape.audited {
            evidence.complaints.extend(self.audit(&evidence.faults).await?);
        }
        // Workers first, so that what they give up is in the journals that are read.
        for role in [Role::Worker, Role::Gateway, Role::Alone] {
            if role == Role::Gateway || (role == Role::Alone && self.bus.is_none()) {
                self.read_all(&mut evidence).await?;
            }
            for at in self.of(role) {
                self.stop(at).await?;
            }
        }
        evidence.fenced = self.fenced().saturating_sub(evidence.fenced_before);
        evidence.tokens = self.shape.tokens;
        evidence.effects =
            self.counter.counts().map_err(ChaosError::io("read the count of effects"))?;
        if let Some(containers) = self.containers.take() {
            evidence.effects.extend(containers.effects()?);
            self.leftovers.extend(containers.left().await);
            containers.stop().await?;
        }
        evidence.asked = self.models.close().await?;
        if let Some(bus) = &mut self.bus {
            for server in 0..bus.count() {
                bus.kill(server).await?;
            }
        }
        self.leftovers.extend(self.network.processes());
        evidence.leftovers.append(&mut self.leftovers);
        Ok(evidence)
    }

    /// Waits until all work is done.
    async fn inbox_empties(&mut self) {
        let Some(bus) = &self.bus else { return };
        let empty = eventually("an empty inbox", INBOX_EMPTIES_IN, async || {
            match bus.messages(INBOX).await? {
                0 => Ok(()),
                left => Err(format!("{left} inputs")),
            }
        });
        if let Err(error) = empty.await {
            self.leftovers.push(error.to_string());
        }
    }

    async fn stop(&mut self, at: usize) -> Result<(), ChaosError> {
        let Some(node) = self.nodes.get_mut(at) else { return Ok(()) };
        let name = node.name.clone();
        if let Some(what) = node.stop().await?.complaint(&name) {
            self.leftovers.push(what);
        }
        Ok(())
    }

    async fn read_all(&self, evidence: &mut Evidence) -> Result<(), ChaosError> {
        let client = self.gateway().await?;
        let sessions: BTreeSet<String> =
            evidence.transcripts.iter().map(Transcript::session).collect();
        let errands = evidence.errands.iter().map(|errand| errand.session.clone());
        let sessions: BTreeSet<String> = sessions.into_iter().chain(errands).collect();
        for key in sessions.into_iter().chain(evidence.excused.clone()) {
            let history = match client.history(&key).await {
                Ok(history) => history,
                // It has no history; the judge knows whether it should have one.
                Err(error) if error.refusal().is_some() => continue,
                Err(error) => return Err(error.into()),
            };
            let events: Vec<EventView> = client.journal(&key).await?;
            evidence.sessions.insert(key, Stored { history, events });
        }
        let verdict: VerifyView = client.call("journal.verify", json!({})).await?;
        let unsound = verdict.journals.into_iter().filter_map(|row| {
            row.problem.map(|problem| format!("`{}`: {problem}", row.key.unwrap_or_default()))
        });
        evidence.unsound.extend(unsound);
        Ok(())
    }
}

/// The node's program: the one that is named, or that beside this one.
pub(super) fn program() -> Result<PathBuf, ChaosError> {
    match std::env::var_os("CLAWNODE_BIN") {
        Some(named) => Ok(PathBuf::from(named)),
        None => sibling("clawnode", "cargo build -p clawnode --features test-util"),
    }
}
