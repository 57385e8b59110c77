//! How all that works for agents fares: what runs tools (sandboxes, MCP servers, plugins, other
//! hosts), the hooks that judge calls, and the providers of models. One list for `providers`,
//! `status`, `doctor`, `mcp` and `agents`: pure, by what nodes say of themselves.

use std::collections::{BTreeMap, BTreeSet};

use clawnode_proto::{
    AgentName, Capability, McpServerName, Timestamp,
    agents::AgentToolView,
    circuit::{CircuitFailure, CircuitState},
    node::{Heartbeat, NodeRole},
    provider::{
        HOOK_PREFIX, LatencyView, MCP_PREFIX, PLUGIN_PREFIX, ProviderKind, ProviderReport,
        ProviderStatus, ProviderView, ProvidersView,
    },
    tool::ToolSpec,
    view::WarningView,
};

use super::scheduler::{available, rounded};

/// Capabilities that no node has that are reported, and others that do not work.
const WARNINGS_TOLD: usize = 8;
/// Tools that need a capability that are reported.
const TOOLS_TOLD: usize = 4;

/// Names of the warnings of this module.
pub const WARNINGS: [&str; 6] = [
    "tools.unserved",
    "mcp.down",
    "plugins.not_loaded",
    "hooks.failing",
    "providers.failing",
    "providers.circuit_open",
];

/// The agents' names and tools.
pub(super) type AgentNeeds = [(AgentName, Vec<ToolSpec>)];

/// Answers `providers.health`.
pub(super) fn health(alive: &[Heartbeat], needs: &AgentNeeds, now: Timestamp) -> ProvidersView {
    // What another node could run is never asked to.
    let workers = alive.iter().filter(|node| node.roles.contains(&NodeRole::Worker));
    let mut providers: Vec<ProviderView> = workers
        .flat_map(|node| node.providers.iter().map(move |report| view(node, report, now)))
        .collect();
    let works = |name: &str| {
        let well = |provider: &&ProviderView| {
            provider.status == ProviderStatus::Healthy && provider.provider == name
        };
        providers.iter().find(well).map(|provider| provider.node.clone())
    };
    let standby: Vec<Option<String>> = providers
        .iter()
        .map(|other| {
            let does_not =
                matches!(other.status, ProviderStatus::Unhealthy | ProviderStatus::Standby);
            if other.kind != ProviderKind::Execution || !does_not {
                return None;
            }
            if is_mcp(&other.provider) {
                return works(&other.provider).map(|node| format!("it runs on {node}"));
            }
            let is_own = other.provider.starts_with(PLUGIN_PREFIX)
                || other.provider.starts_with(HOOK_PREFIX)
                || is_needed(needs, &other.provider);
            (!is_own).then(|| {
                let why = other.error.as_deref().unwrap_or_default();
                format!("no agent has a tool that needs it ({why})")
            })
        })
        .collect();
    for (provider, why) in providers.iter_mut().zip(standby) {
        if let Some(why) = why {
            provider.status = ProviderStatus::Standby;
            provider.error = Some(why);
        }
    }
    providers.sort_by(|a, b| {
        (a.kind, &a.provider, &a.node, a.process).cmp(&(b.kind, &b.provider, &b.node, b.process))
    });
    let count = |status| {
        let count = providers.iter().filter(|provider| provider.status == status).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    };
    ProvidersView {
        healthy: count(ProviderStatus::Healthy),
        unhealthy: count(ProviderStatus::Unhealthy),
        standby: count(ProviderStatus::Standby),
        unknown: count(ProviderStatus::Unknown),
        providers,
    }
}

fn is_mcp(provider: &str) -> bool {
    provider.starts_with(MCP_PREFIX)
}

fn is_needed(needs: &AgentNeeds, provider: &str) -> bool {
    let mut tools = needs.iter().flat_map(|(_, tools)| tools);
    tools.any(|tool| {
        tool.capability.as_ref().is_some_and(|capability| capability.as_str() == provider)
    })
}

fn view(node: &Heartbeat, report: &ProviderReport, now: Timestamp) -> ProviderView {
    let LatencyView { p50, p95 } =
        LatencyView { p50: report.recent.p50_ms, p95: report.recent.p95_ms };
    ProviderView {
        provider: report.name.clone(),
        kind: report.kind,
        node: node.node.clone(),
        process: node.process,
        status: report.status(),
        error: report.problem.clone(),
        last_checked: report.checked_ago_ms.map(|ago| Timestamp(now.0.saturating_sub(ago))),
        consecutive_failures: report.failures,
        in_hand: report.in_hand,
        waiting: report.waiting,
        runs: report.recent.runs,
        success_rate: report.recent.success().map(rounded),
        latency_ms: (report.recent.runs > 0).then_some(LatencyView { p50, p95 }),
        circuit: report.circuit.clone(),
    }
}

/// How an MCP server fares, and why it does not work: on the node that runs it, else on one that
/// should.
pub(super) fn of_mcp(
    alive: &[Heartbeat],
    server: &McpServerName,
) -> Option<(ProviderStatus, Option<String>)> {
    let name = Capability::of_mcp(server).to_string();
    let reports = alive.iter().flat_map(|node| &node.providers);
    let of_it =
        reports.filter(|report| report.kind == ProviderKind::Execution && report.name == name);
    let best = of_it.max_by_key(|report| report.status())?;
    Some((best.status(), best.problem.clone()))
}

/// A tool of an agent, and whether a node takes its calls now.
pub(super) fn tool(alive: &[Heartbeat], spec: &ToolSpec) -> AgentToolView {
    let missing = available(alive, spec.capability.as_ref()).err();
    AgentToolView {
        name: spec.name.clone(),
        description: spec.description.clone(),
        class: spec.class,
        risk: spec.risk,
        capability: spec.capability.clone(),
        timeout_ms: spec.timeout_ms,
        status: match missing {
            Some(_) => ProviderStatus::Unhealthy,
            None => ProviderStatus::Healthy,
        },
        error: missing.map(|why| why.to_string()),
    }
}

/// What does not work and should: what no worker takes of the tools of agents, then MCP servers,
/// plugins, hooks and providers of models.
pub(super) fn warnings(alive: &[Heartbeat], needs: &AgentNeeds) -> Vec<WarningView> {
    if available(alive, None).is_err() {
        // That no worker is there is said by another warning.
        return Vec::new();
    }
    let lacking = unserved(alive, needs);
    let named: BTreeSet<&str> = lacking.keys().map(Capability::as_str).collect();
    let view = health(alive, needs, Timestamp(0));
    let bad = view.providers.iter().filter(|provider| {
        provider.status == ProviderStatus::Unhealthy && !named.contains(provider.provider.as_str())
    });
    let bad = bad.filter_map(warning).take(WARNINGS_TOLD);
    let bad: Vec<WarningView> = bad.collect();
    lacking.into_values().take(WARNINGS_TOLD).chain(bad).collect()
}

/// Why its circuit opened, if that says so. Calls for embeddings and probes fail without an error in the report.
fn why_opened(provider: &ProviderView) -> Option<&'static str> {
    let history = &provider.circuit.as_ref()?.history;
    Some(match history.iter().rev().find_map(|change| change.failure)? {
        CircuitFailure::Unreachable => "it cannot be reached",
        CircuitFailure::Timeout => "it is too slow",
        CircuitFailure::Overloaded => "it reports server errors",
        CircuitFailure::RateLimited => "it limits requests",
        CircuitFailure::BrokenStream => "it breaks off its replies",
        CircuitFailure::Other => return None,
    })
}

/// The warning about a provider that does not work; none about those that `unserved` is for.
fn warning(provider: &ProviderView) -> Option<WarningView> {
    let why =
        provider.error.as_deref().or_else(|| why_opened(provider)).unwrap_or("no reason is known");
    let node = &provider.node;
    let told = |name: &str, what: String, hint: String| {
        let message = format!("{what} on {node}: {why}");
        Some(WarningView { name: name.to_owned(), message, hint })
    };
    if provider.kind == ProviderKind::Model {
        let what = format!("provider `{}`", provider.provider);
        if provider.circuit.as_ref().is_some_and(|circuit| circuit.state != CircuitState::Closed) {
            let message = format!("{what} on {node}: calls are not sent for now, because {why}");
            let hint = "clawnode tries it again by itself; `clawnode providers` shows when";
            let name = "providers.circuit_open".to_owned();
            return Some(WarningView { name, message, hint: hint.to_owned() });
        }
        let hint = "check its key and address with `clawnode doctor` and `clawnode config show`";
        return told("providers.failing", what, hint.to_owned());
    }
    if let Some(server) = provider.provider.strip_prefix(MCP_PREFIX) {
        let hint = format!(
            "correct `[[mcp_servers]]` `{server}` in that node's configuration; the node keeps \
             trying"
        );
        return told("mcp.down", format!("MCP server `{server}`"), hint);
    }
    if let Some(plugin) = provider.provider.strip_prefix(PLUGIN_PREFIX) {
        let hint = format!("correct `[[plugins]]` `{plugin}`, and start that node again");
        return told("plugins.not_loaded", format!("plugin `{plugin}`"), hint);
    }
    let hook = provider.provider.strip_prefix(HOOK_PREFIX)?;
    let hint = "`clawnode hooks list` shows where it is; its next answer ends this warning";
    told("hooks.failing", format!("hook `{hook}`"), hint.to_owned())
}

/// The capabilities that tools of agents need and no worker has.
fn unserved(alive: &[Heartbeat], needs: &AgentNeeds) -> BTreeMap<Capability, WarningView> {
    let mut needed: BTreeMap<Capability, BTreeSet<String>> = BTreeMap::new();
    for (agent, tools) in needs {
        for tool in tools {
            let Some(capability) = tool.capability.clone() else { continue };
            needed.entry(capability).or_default().insert(format!("`{}` of `{agent}`", tool.name));
        }
    }
    let lacking = needed.into_iter().filter_map(|(capability, tools)| {
        let why = available(alive, Some(&capability)).err()?;
        let mut told: Vec<&str> = tools.iter().take(TOOLS_TOLD).map(String::as_str).collect();
        let more = format!("{} more", tools.len().saturating_sub(TOOLS_TOLD));
        if tools.len() > TOOLS_TOLD {
            told.push(&more);
        }
        let takes = capability.takes().map(|takes| format!("start a worker with {takes}; "));
        let warning = WarningView {
            name: "tools.unserved".to_owned(),
            message: format!("{why}: calls of {} wait for such a node, then fail", told.join(", ")),
            hint: format!(
                "{}`clawnode providers` shows what each worker has",
                takes.unwrap_or_default()
            ),
        };
        Some((capability, warning))
    });
    lacking.collect()
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{
        circuit::{CircuitChange, CircuitReport},
        provider::{RecentRuns, STANDING_BY},
        tool::{EffectClass, Risk},
    };

    use super::{
        super::scheduler::tests::{node, wants},
        *,
    };

    fn spec(name: &str, capability: Option<&str>) -> ToolSpec {
        ToolSpec {
            name: name.parse().unwrap(),
            description: String::new(),
            input_schema: "{}".to_owned(),
            class: EffectClass::Safe,
            risk: Risk::ReadOnly,
            capability: capability.map(|name| name.parse().unwrap()),
            timeout_ms: 1_000,
            pin: None,
            time: None,
        }
    }

    fn report(name: &str, problem: Option<&str>) -> ProviderReport {
        ProviderReport {
            kind: ProviderKind::Execution,
            name: name.to_owned(),
            problem: problem.map(str::to_owned),
            checked_ago_ms: Some(7),
            failures: 0,
            in_hand: 0,
            waiting: 0,
            recent: RecentRuns::default(),
            circuit: None,
        }
    }

    fn needs(tools: &[ToolSpec]) -> Vec<(AgentName, Vec<ToolSpec>)> {
        vec![("ada".parse().unwrap(), tools.to_vec())]
    }

    #[test]
    fn what_no_worker_takes_is_told_with_the_tools_that_wait_for_it() {
        let tools =
            vec![spec("shell", Some("docker")), spec("add", None), spec("dbt", Some("ssh.db"))];
        let needs = needs(&tools);
        let mut worker = node("w", &["ssh.db"]);
        worker.providers = vec![report("docker", Some("no engine"))];
        let told = warnings(&[worker.clone()], &needs);
        let [only] = &told[..] else { panic!("{told:?}") };
        assert_eq!(only.name, "tools.unserved");
        for part in ["no node has `docker`", "w: `docker`: no engine", "`shell` of `ada`"] {
            assert!(only.message.contains(part), "{only:?}");
        }
        assert!(only.hint.contains("a Docker engine"), "{only:?}");
        let states = tools.iter().map(|tool| super::tool(&[worker.clone()], tool));
        let states: Vec<_> =
            states.map(|provider| (provider.status, provider.error.is_some())).collect();
        let (well, bad) = ((ProviderStatus::Healthy, false), (ProviderStatus::Unhealthy, true));
        assert_eq!(states, [bad, well, well]);
        worker.capabilities = wants(&["docker", "ssh.db"]);
        worker.providers.clear();
        assert_eq!(warnings(&[worker.clone()], &needs), []);
        // That no worker is there is said elsewhere.
        worker.roles = vec![NodeRole::Gateway];
        assert_eq!(warnings(&[worker], &needs), []);
    }

    /// Findings 16 and 17: nothing of this was to be seen anywhere.
    #[test]
    fn what_does_not_work_is_told_once_by_name_with_its_reason() {
        let mut worker = node("w", &[]);
        let mut model = report("openai", Some("it does not accept the key"));
        model.kind = ProviderKind::Model;
        worker.providers = vec![
            report("mcp.nope", Some("it cannot be started: no such file")),
            report("plugin.echo", Some("it asks for `store:notes`")),
            report("hook.before_tool_call.10-cards", Some("it took too long")),
            report("mcp.files", None),
            model,
        ];
        let told = warnings(&[worker.clone()], &[]);
        let expected = [
            ("hooks.failing", "hook `before_tool_call.10-cards` on w: it took too long"),
            ("mcp.down", "MCP server `nope` on w: it cannot be started: no such file"),
            ("plugins.not_loaded", "plugin `echo` on w: it asks for `store:notes`"),
            ("providers.failing", "provider `openai` on w: it does not accept the key"),
        ];
        let found: Vec<_> =
            told.iter().map(|warning| (warning.name.as_str(), warning.message.as_str())).collect();
        assert_eq!(found, expected);
        // A tool that needs it says the same, and more: only that is reported.
        let needs = needs(&[spec("nope__a", Some("mcp.nope"))]);
        let told = warnings(&[worker], &needs);
        let of_it: Vec<_> =
            told.iter().filter(|warning| warning.message.contains("no such file")).collect();
        assert_eq!(of_it.len(), 1, "{told:?}");
        assert_eq!(of_it[0].name, "tools.unserved");
    }

    #[test]
    fn an_open_circuit_has_one_warning_of_its_own() {
        let mut worker = node("w", &[]);
        let model =
            ProviderReport { kind: ProviderKind::Model, ..report("lab", Some("it is slow")) };
        let circuit_in =
            |state| Some(Box::new(CircuitReport { state, ..CircuitReport::default() }));
        let closed = ProviderReport { circuit: circuit_in(CircuitState::Closed), ..model.clone() };
        for (state, name) in [
            (CircuitState::Closed, "providers.failing"),
            (CircuitState::Open, "providers.circuit_open"),
            (CircuitState::HalfOpen, "providers.circuit_open"),
        ] {
            worker.providers = vec![ProviderReport { circuit: circuit_in(state), ..model.clone() }];
            let told = warnings(std::slice::from_ref(&worker), &[]);
            let [warning] = &told[..] else { panic!("{told:?}") };
            assert_eq!(warning.name, name, "{state:?}");
            assert!(warning.message.contains("`lab` on w") && warning.message.contains("slow"));
        }
        // Also if no session has called it.
        let tried =
            ProviderReport { problem: None, circuit: circuit_in(CircuitState::Open), ..model };
        worker.providers = vec![tried];
        let told = warnings(std::slice::from_ref(&worker), &[]);
        assert_eq!(told[0].name, "providers.circuit_open");
        // Calls for embeddings leave no error; what opened the circuit says why.
        let (at, failure) = (Timestamp(0), Some(CircuitFailure::Unreachable));
        let opened = CircuitChange { at, state: CircuitState::Open, failure, by_probe: false };
        let half_open = CircuitChange { state: CircuitState::HalfOpen, failure: None, ..opened };
        let (state, history) = (CircuitState::HalfOpen, vec![opened, half_open]);
        let circuit = Some(Box::new(CircuitReport { state, history, ..CircuitReport::default() }));
        worker.providers = vec![ProviderReport { problem: None, circuit, ..closed.clone() }];
        let told = warnings(std::slice::from_ref(&worker), &[]);
        assert!(told[0].message.ends_with("because it cannot be reached"), "{told:?}");
        worker.providers = vec![ProviderReport { problem: None, ..closed }];
        assert_eq!(warnings(&[worker], &[]), []);
    }

    /// Finding 36: what is as it should be was called unhealthy.
    #[test]
    fn what_works_elsewhere_or_is_not_needed_stands_by() {
        let (mut one, mut two) = (node("one", &["mcp.files"]), node("two", &[]));
        one.providers = vec![report("mcp.files", None), report("docker", Some("no engine"))];
        two.providers = vec![report("mcp.files", Some(STANDING_BY))];
        let alive = [one, two];
        let state = |needs: &AgentNeeds, provider: &str, node: &str| {
            let view = health(&alive, needs, Timestamp(100));
            let is_it =
                |view: &&ProviderView| view.provider == provider && view.node.as_str() == node;
            let provider = view.providers.iter().find(is_it).unwrap();
            (provider.status, provider.error.clone().unwrap_or_default())
        };
        let (standby, bad) = (ProviderStatus::Standby, ProviderStatus::Unhealthy);
        assert_eq!(state(&[], "mcp.files", "two"), (standby, "it runs on one".to_owned()));
        let unneeded = "no agent has a tool that needs it (no engine)".to_owned();
        assert_eq!(state(&[], "docker", "one"), (standby, unneeded));
        assert_eq!(warnings(&alive, &[]), []);
        let needs = needs(&[spec("shell", Some("docker"))]);
        assert_eq!(state(&needs, "docker", "one"), (bad, "no engine".to_owned()));
        let files = "files".parse().unwrap();
        assert_eq!(of_mcp(&alive, &files), Some((ProviderStatus::Healthy, None)));
        let why = Some(STANDING_BY.to_owned());
        assert_eq!(of_mcp(&alive[1..], &files), Some((standby, why)));
        // While the node that runs it starts, or is down, only that node is reported.
        assert_eq!(state(&[], "docker", "one").0, standby);
        assert_eq!(warnings(&alive[1..], &[]), []);
        assert_eq!(of_mcp(&alive, &"other".parse().unwrap()), None);
    }

    #[test]
    fn who_can_work_and_who_cannot_is_counted() {
        let mut one = node("b", &["docker"]);
        let model = ProviderReport {
            kind: ProviderKind::Model,
            checked_ago_ms: None,
            ..report("lab", None)
        };
        one.providers = vec![model, report("hook.a", Some("gone")), report("docker", None)];
        let view = health(&[one], &[], Timestamp(100));
        assert_eq!((view.healthy, view.unhealthy, view.unknown), (1, 1, 1));
        let names: Vec<&str> =
            view.providers.iter().map(|provider| provider.provider.as_str()).collect();
        assert_eq!(names, ["docker", "hook.a", "lab"]);
        assert_eq!(view.providers[0].last_checked, Some(Timestamp(93)));
        assert_eq!(view.providers[1].error.as_deref(), Some("gone"));
        assert_eq!(view.providers[2].status, ProviderStatus::Unknown);
    }
}
