//! The tools of one plugin.

use std::{collections::BTreeMap, fmt, sync::Arc};

use async_trait::async_trait;
use clawnode_cluster::Bucket;
use clawnode_guard::kill_switch::SwitchGate;
use clawnode_kernel::job_machine::Probe;
use clawnode_proto::{
    Digest,
    llm::Text,
    timeout::{TimeBound, ToolTime},
    tool::{EffectClass, Risk, ToolFailure, ToolOutcome, ToolSpec},
};
use clawnode_tool::{Egress, Executor, ToolRun, append::append, egress::HostPattern, schema};
use clawnode_wasm::{Call, CallError, Plugin, ToolSpec as Described};
use tokio::{runtime::Handle, sync::Semaphore, task::spawn_blocking, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error};

use super::{
    Manifest, PluginCapability, PluginError, PluginName, PluginOptions, PluginStores, StoreName,
    host::PluginHost,
};

/// How many characters of a tool's name an error contains.
const SHOWN: usize = 80;
/// How many characters of a failed probe's message a result contains.
const SAID: usize = 500;

/// Runs the tools of one plugin, each call in an instance of its own.
#[derive(Clone)]
pub struct PluginExecutor {
    name: PluginName,
    plugin: Plugin,
    specs: Vec<ToolSpec>,
    /// The probe of each tool that has one. Both names are those within the plugin.
    probes: Arc<BTreeMap<String, String>>,
    hosts: Arc<[HostPattern]>,
    egress: Egress,
    stores: Arc<[StoreName]>,
    /// Where they are, on a node that has a cluster's bucket.
    bucket: Option<Arc<dyn Bucket>>,
    /// Of all plugins: as many as there is room for instances.
    room: Arc<Semaphore>,
}

impl PluginExecutor {
    /// The tools of this plugin, as the configuration takes them.
    pub(super) fn new(
        plugin: Plugin,
        options: &PluginOptions,
        manifest: Manifest,
        pin: Digest,
        egress: Egress,
        room: Arc<Semaphore>,
    ) -> Result<Self, PluginError> {
        judge_probes(plugin.tools(), options)?;
        let mut specs: Vec<ToolSpec> = Vec::new();
        for described in plugin.tools() {
            let spec = spec(described, options, pin)?;
            if specs.iter().any(|other| other.name == spec.name) {
                return Err(PluginError::Twice(described.name.clone()));
            }
            specs.push(spec);
        }
        let (mut hosts, mut stores) = (Vec::new(), Vec::new());
        for capability in manifest.capabilities {
            match capability {
                PluginCapability::Http(host) => hosts.push(host),
                PluginCapability::Store(store) => stores.push(store),
            }
        }
        let (hosts, stores) = (hosts.into(), stores.into());
        let (name, probes) = (options.name.clone(), Arc::new(options.probes.clone()));
        Ok(Self { name, plugin, specs, probes, hosts, egress, stores, bucket: None, room })
    }

    /// The same, whose requests need a permit of `switch_gate`.
    pub(super) fn behind(&self, switch_gate: &SwitchGate) -> Self {
        Self { egress: self.egress.clone().behind(switch_gate.clone()), ..self.clone() }
    }

    /// The same, whose stores are in `bucket`.
    pub(super) fn keeping(&self, bucket: &Arc<dyn Bucket>) -> Self {
        Self { bucket: Some(Arc::clone(bucket)), ..self.clone() }
    }

    pub fn name(&self) -> &PluginName {
        &self.name
    }

    /// What its tools are called.
    pub(super) fn names(&self) -> Vec<&str> {
        self.specs.iter().map(|spec| spec.name.as_str()).collect()
    }

    /// Asks the probe of a tool whether an earlier run of this call has happened.
    async fn ask_probe(&self, run: ToolRun) -> Result<Probe, ToolOutcome> {
        let probe = self.name.own(&run.tool).and_then(|tool| self.probes.get(tool));
        let Some(name) = probe.and_then(|probe| self.name.tool(probe)) else {
            let why = format!("`{}` has no probe here", run.tool);
            return Err(ToolOutcome::failed(ToolFailure::Unavailable, why));
        };
        let told = self.run(ToolRun { tool: name, ..run }, CancellationToken::new()).await?;
        let answer = serde_json::from_str(&told).ok();
        Ok(Probe::told(answer.as_ref(), || ToolOutcome::done(told)))
    }

    async fn run(&self, run: ToolRun, cancelled: CancellationToken) -> Result<String, ToolOutcome> {
        let stopped = || ToolOutcome::failed(ToolFailure::Cancelled, "");
        let permit = tokio::select! {
            permit = Arc::clone(&self.room).acquire_owned() => permit,
            () = cancelled.cancelled() => return Err(stopped()),
        };
        let Ok(permit) = permit else { return Err(stopped()) };
        let Some(tool) = self.name.own(&run.tool) else {
            let why = format!("the plugin `{}` has no tool `{}`", self.name, run.tool);
            return Err(ToolOutcome::failed(ToolFailure::Unavailable, why));
        };
        let call = Call {
            tool: tool.to_owned(),
            arguments: serde_json::Value::Object(run.arguments).to_string(),
            idempotency_key: run.idempotency_key,
        };
        let (plugin, longest, limit) = (self.plugin.clone(), run.timeout, run.limit);
        let stores = self.bucket.as_ref().map(|bucket| {
            PluginStores::new(Arc::clone(bucket), self.name.clone(), Arc::clone(&self.stores))
        });
        let mut host = PluginHost {
            egress: self.egress.clone(),
            agent: run.agent,
            hosts: Arc::clone(&self.hosts),
            stores,
            handle: Handle::current(),
            cancelled,
            deadline: Instant::now(),
            requests: 0,
            store_calls: 0,
        };
        let called = spawn_blocking(move || {
            let _permit = permit;
            host.deadline = Instant::now() + longest;
            plugin.call(&call, Box::new(host), longest)
        });
        match called.await {
            Ok(result) => result.map_err(|error| {
                let mut outcome = self.outcome(error);
                if let (Some(ToolFailure::TimedOut), Some(limit), Text::Inline { text }) =
                    (outcome.failure, limit, &mut outcome.content)
                {
                    append(text, format_args!(": {limit}"));
                }
                outcome
            }),
            Err(broken) => {
                error!(plugin = %self.name, %broken, "the plugin engine panicked");
                let why = format!("the plugin engine crashed while it ran `{}`", self.name);
                Err(ToolOutcome::failed(ToolFailure::Crashed, why))
            }
        }
    }

    /// What a call that has no result means for a model.
    fn outcome(&self, error: CallError) -> ToolOutcome {
        let failure = match &error {
            CallError::Tool(_) => ToolFailure::Failed,
            CallError::TimedOut(_) => ToolFailure::TimedOut,
            CallError::Cancelled => return ToolOutcome::failed(ToolFailure::Cancelled, ""),
            CallError::Trapped(why) => {
                debug!(plugin = %self.name, why, "trapped");
                ToolFailure::Crashed
            }
            CallError::Busy => ToolFailure::Unavailable,
        };
        match error {
            CallError::Tool(said) => ToolOutcome::failed(failure, said),
            other => ToolOutcome::failed(failure, format!("the plugin `{}`: {other}", self.name)),
        }
    }
}

#[async_trait]
impl Executor for PluginExecutor {
    fn tools(&self) -> Vec<ToolSpec> {
        self.specs.clone()
    }

    async fn execute(&self, run: ToolRun, cancelled: CancellationToken) -> ToolOutcome {
        self.run(run, cancelled).await.map_or_else(|failed| failed, ToolOutcome::done)
    }

    async fn probe(&self, run: ToolRun) -> Probe {
        self.ask_probe(run).await.unwrap_or_else(|failed| {
            let said = failed.content.inline().unwrap_or_default();
            Probe::Unclear(format!(
                "its probe failed: {}",
                said.chars().take(SAID).collect::<String>()
            ))
        })
    }

    async fn health_check(&self) -> Result<(), String> {
        // It was tried when it was loaded, and has no part that could end since.
        Ok(())
    }
}

impl fmt::Debug for PluginExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PluginExecutor").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Refuses a configured probe that does not exist, changes something itself, or would never be asked.
fn judge_probes(tools: &[Described], options: &PluginOptions) -> Result<(), PluginError> {
    let class = |name: &str| tools.iter().find(|tool| tool.name == name).map(|tool| tool.class);
    for (tool, probe) in &options.probes {
        let why = match (class(tool), class(probe)) {
            (None, _) => "the plugin has no tool of this name",
            (_, None) => "the plugin has no tool of the probe's name",
            (Some(clawnode_wasm::EffectClass::Once), Some(clawnode_wasm::EffectClass::Safe)) => {
                if !options.once {
                    continue;
                }
                "`once = true` means that no call runs again, so the probe is never asked: remove one of the two"
            }
            (_, Some(clawnode_wasm::EffectClass::Safe)) => {
                "the tool is not of class `once`, so it may run again without a probe: remove the probe"
            }
            _ => "the probe must be a tool of class `safe`",
        };
        return Err(PluginError::Probe { tool: tool.chars().take(SHOWN).collect(), why });
    }
    Ok(())
}

/// A tool as an agent may be given it: what the configuration says can only be stricter.
fn spec(
    described: &Described,
    options: &PluginOptions,
    pin: Digest,
) -> Result<ToolSpec, PluginError> {
    let shown = || described.name.chars().take(SHOWN).collect::<String>();
    let name = options.name.tool(&described.name);
    let name = name.ok_or_else(|| PluginError::ToolName(shown()))?;
    let probe = options.probes.get(&described.name);
    let class = match described.class {
        _ if options.once => EffectClass::Once,
        clawnode_wasm::EffectClass::Safe => EffectClass::Safe,
        clawnode_wasm::EffectClass::Idempotent => EffectClass::Idempotent,
        clawnode_wasm::EffectClass::Once if probe.is_some() => EffectClass::Check,
        clawnode_wasm::EffectClass::Once => EffectClass::Once,
    };
    let risk = match described.risk {
        clawnode_wasm::Risk::ReadOnly => Risk::ReadOnly,
        clawnode_wasm::Risk::Write => Risk::Write,
        clawnode_wasm::Risk::Admin => Risk::Admin,
    };
    let longest = u32::try_from(options.timeout.as_millis()).unwrap_or(u32::MAX);
    let spec = ToolSpec {
        name,
        description: described.description.clone(),
        input_schema: described.input_schema.clone(),
        class,
        risk: options.risk.map_or(risk, |least| least.max(risk)),
        capability: options.name.capability(),
        timeout_ms: longest,
        // An approval holds for this plugin and this probe, not for another plugin of the same name.
        pin: Some(match probe {
            Some(probe) => Digest::of(format!("{pin} probe {probe}").as_bytes()),
            None => pin,
        }),
        time: Some(ToolTime {
            command: TimeBound { ms: longest, set_in: format!("plugins.{}.timeout", options.name) },
            ..ToolTime::of_tool(&described.name, longest)
        }),
    };
    schema::check(&spec).map_err(|source| PluginError::Tool { tool: shown(), source })?;
    Ok(spec)
}
