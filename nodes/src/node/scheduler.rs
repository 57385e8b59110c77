//! Who runs tools and serves models, how they fare, and which node would be chosen for some work.
//!
//! No node hands out jobs: a job waits in the queue of its capability, and the best of the nodes that
//! ask for one is given it. The points here say which node that is, by what nodes say of
//! themselves: `diagnose` shows them, and each worker asks at its rank among them.

use std::{cmp::Ordering, collections::BTreeSet};

use clawnode_actors::agent::Agents;
use clawnode_cluster::JOB_RANK_MAX;
use clawnode_proto::{
    AgentName, Capability, ErrorBody, ErrorCode,
    limits::EXECUTION_STEPS,
    node::{Heartbeat, NodeRole},
    provider::{
        CandidateView, DiagnoseParams, DiagnoseView, ExecutionSpec, ProviderKind, ProviderReport,
        ProviderStatus, ScoreView, ScoreWeights,
    },
};
use clawnode_tool::LOCAL;

use super::unknown_action::{of_step, unknown_action};
use crate::config::agents::DEFAULT_AGENT;

/// Workers whose reasons are shown.
const WHYS_TOLD: usize = 8;
/// Work that takes so long has half of the points for being quick, in milliseconds.
const HALF_QUICK_MS: f64 = 1_000.0;

/// Answers `scheduler.diagnose`.
pub(super) fn diagnose(
    agents: &Agents,
    alive: &[Heartbeat],
    params: &DiagnoseParams,
) -> Result<DiagnoseView, ErrorBody> {
    let wanted = capabilities(agents, params.agent.as_deref(), &params.execution_spec)?;
    let view = chosen(alive, wanted, params.fallback.as_deref());
    Ok(view)
}

/// The capabilities that a node needs for all steps, by the tools of an agent.
fn capabilities(
    agents: &Agents,
    agent: Option<&str>,
    spec: &ExecutionSpec,
) -> Result<BTreeSet<Capability>, ErrorBody> {
    let invalid = |what: String| ErrorBody::new(ErrorCode::InvalidParams, what);
    let agent = agent.unwrap_or(DEFAULT_AGENT);
    let agent: AgentName =
        agent.parse().map_err(|error| invalid(format!("parameter `agent`: {error}")))?;
    let profile = agents.profile(&agent).map_err(|error| {
        ErrorBody::new(ErrorCode::NotFound, error.to_string())
            .hint("`clawnode agents list` shows the agents there are")
    })?;
    let steps = &spec.steps;
    if steps.is_empty() || steps.len() > EXECUTION_STEPS {
        let what =
            format!("`execution_spec.steps` has {}, not 1 to {EXECUTION_STEPS}", steps.len());
        return Err(invalid(what));
    }
    let mut wanted = BTreeSet::new();
    for (step, number) in steps.iter().zip(1..) {
        let Some(tool) = profile.tool(&step.action) else {
            return Err(of_step(number, unknown_action(&agent, &profile, &step.action)));
        };
        wanted.extend(tool.capability.clone());
    }
    Ok(wanted)
}

/// Which of these nodes would be chosen for work that needs this: pure.
fn chosen(
    alive: &[Heartbeat],
    capabilities: BTreeSet<Capability>,
    fallback: Option<&str>,
) -> DiagnoseView {
    let workers = alive.iter().filter(|other| other.roles.contains(&NodeRole::Worker));
    let mut candidates: Vec<CandidateView> =
        workers.map(|node| candidate(node, &capabilities)).collect();
    candidates.sort_by(better_first);
    let best = candidates.first().filter(|view| view.eligible).map(|view| view.node.clone());
    let other = candidates.iter().find(|view| fallback == Some(view.node.as_str()));
    let fallback_used = best.is_none() && other.is_some();
    let selected = best.or_else(|| other.map(|view| view.node.clone()));
    let weights = ScoreWeights::ALL;
    DiagnoseView { capabilities, weights, candidates, selected, fallback_used }
}

/// The order in which nodes are chosen.
fn better_first(a: &CandidateView, b: &CandidateView) -> Ordering {
    let by_score = b.score.total_cmp(&a.score);
    let by_name = || (&a.node, a.process).cmp(&(&b.node, b.process));
    b.eligible.cmp(&a.eligible).then(by_score).then_with(by_name)
}

/// How many of the other nodes should be given a job before this one, which has so many in hand: pure.
pub(super) fn rank<'a>(
    mut own: Heartbeat,
    others: impl Iterator<Item = &'a Heartbeat>,
    capability: &Capability,
    in_hand: u32,
) -> u8 {
    let name = capability.to_string();
    let is_it = |report: &&mut ProviderReport| {
        report.kind == ProviderKind::Execution && report.name == name
    };
    // What it said last is old by now.
    own.providers.iter_mut().filter(is_it).for_each(|report| report.in_hand = in_hand);
    let wanted = BTreeSet::from([capability.clone()]);
    let own = candidate(&own, &wanted);
    let others = others
        .filter(|other| other.process != own.process && other.roles.contains(&NodeRole::Worker));
    let others = others.map(|other| candidate(other, &wanted)).filter(|view| view.eligible);
    let before = others.filter(|view| better_first(view, &own).is_lt()).count();
    u8::try_from(before).unwrap_or(u8::MAX).min(JOB_RANK_MAX)
}

fn candidate(node: &Heartbeat, wanted: &BTreeSet<Capability>) -> CandidateView {
    let missing: BTreeSet<Capability> = wanted.difference(&node.capabilities).cloned().collect();
    let reason = match (node.draining, node.cordoned, missing.first()) {
        (true, _, _) => Some("it is draining".to_owned()),
        (false, true, _) => Some("an operator has cordoned it".to_owned()),
        (false, false, Some(_)) => {
            let problem = |capability: &Capability| {
                let name = capability.to_string();
                let known = report(node, &name).and_then(|report| report.problem.clone());
                known
                    .map_or_else(|| format!("it has no `{name}`"), |why| format!("`{name}`: {why}"))
            };
            Some(missing.iter().map(problem).collect::<Vec<_>>().join("; "))
        }
        (false, false, None) => None,
    };
    let breakdown = score(node, wanted);
    CandidateView {
        node: node.node.clone(),
        process: node.process,
        eligible: reason.is_none(),
        reason,
        missing,
        score: rounded(breakdown.total()),
        breakdown,
    }
}

/// Why no node can do some work now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Nowhere {
    /// No process runs sessions.
    #[error("no worker takes work")]
    NoWorker,
    /// None of the workers has what it needs.
    #[error("no node has `{capability}` ({why})")]
    Lacks {
        capability: Capability,
        /// The reason of each worker.
        why: String,
    },
}

/// Whether a node takes work that needs this, or nothing beside a worker: pure.
pub(super) fn available(
    alive: &[Heartbeat],
    capability: Option<&Capability>,
) -> Result<(), Nowhere> {
    let view = chosen(alive, capability.into_iter().cloned().collect(), None);
    if view.selected.is_some() {
        return Ok(());
    }
    let Some(capability) = capability.cloned() else { return Err(Nowhere::NoWorker) };
    let why = |view: &CandidateView| {
        let reason = view.reason.as_deref().unwrap_or("no reason is known");
        format!("{}: {reason}", view.node)
    };
    let mut whys: Vec<String> = view.candidates.iter().take(WHYS_TOLD).map(why).collect();
    let more = view.candidates.len().saturating_sub(WHYS_TOLD);
    match (whys.is_empty(), more) {
        (true, _) => whys.push("there is no worker".to_owned()),
        (false, 0) => {}
        (false, more) => whys.push(format!("and {more} more")),
    }
    Err(Nowhere::Lacks { capability, why: whys.join("; ") })
}

fn report<'a>(node: &'a Heartbeat, name: &str) -> Option<&'a ProviderReport> {
    node.providers
        .iter()
        .find(|report| report.kind == ProviderKind::Execution && report.name == name)
}

/// The points of a node for work that needs this.
fn score(node: &Heartbeat, wanted: &BTreeSet<Capability>) -> ScoreView {
    let weights = ScoreWeights::ALL;
    let mut names: Vec<String> = wanted.iter().map(ToString::to_string).collect();
    if names.is_empty() {
        names.push(LOCAL.to_owned());
    }
    // The mean of values from 0 to 1, over all that is needed.
    let mean = |share: &dyn Fn(&str) -> f64| {
        let sum: f64 = names.iter().map(|name| share(name)).sum();
        sum / f64::from(u32::try_from(names.len()).unwrap_or(u32::MAX).max(1))
    };
    let has = |name: &str| {
        wanted.is_empty()
            || node.capabilities.iter().any(|capability| capability.to_string() == name)
    };
    // What is announced is well, also on a node that tells no more than that.
    let is_well = |name: &str| match report(node, name).map(ProviderReport::status) {
        Some(status) => status == ProviderStatus::Healthy,
        None => has(name),
    };
    let recent = |name: &str| report(node, name).map(|report| report.recent).unwrap_or_default();
    let well = if node.draining { 0.0 } else { mean(&|name| f64::from(u8::from(is_well(name)))) };
    // In tenths: what an idle node uses varies, and its rank must not.
    let idle = 1.0 - f64::from(node.load.cpu_permille.min(1_000) / 100) / 10.0;
    // A node whose work waits for others uses no processor, and is busy all the same.
    let in_hand = |name: &str| report(node, name).map_or(0, |report| report.in_hand);
    let idle = idle * mean(&|name| 1.0 / (1.0 + f64::from(in_hand(name))));
    // Who has not worked yet is given the benefit of the doubt, as far as it can work at all.
    let doubt = |name: &str| f64::from(u8::from(is_well(name)));
    let success = mean(&|name| recent(name).success().unwrap_or_else(|| doubt(name)));
    let quick = mean(&|name| match recent(name) {
        recent if recent.runs > 0 => HALF_QUICK_MS / (HALF_QUICK_MS + f64::from(recent.p50_ms)),
        _ => doubt(name),
    });
    let points = |share: f64, weight: u8| rounded(share.clamp(0.0, 1.0) * f64::from(weight));
    ScoreView {
        health: points(well, weights.health),
        load: points(idle, weights.load),
        capability: points(mean(&|name| f64::from(u8::from(has(name)))), weights.capability),
        success: points(success, weights.success),
        latency: points(quick, weights.latency),
    }
}

/// To two digits: more is noise.
pub(super) fn rounded(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}

#[cfg(test)]
pub(super) mod tests {
    use clawnode_proto::{
        Digest, ProcessId, Timestamp,
        node::{Load, VersionRange},
        provider::RecentRuns,
    };
    use proptest::prelude::*;

    use super::*;

    pub(in crate::node) fn node(name: &str, capabilities: &[&str]) -> Heartbeat {
        Heartbeat {
            process: ProcessId::from_u128(1),
            node: name.parse().unwrap(),
            version: String::new(),
            roles: vec![NodeRole::Worker],
            started: Timestamp(1),
            draining: false,
            entities: 0,
            config: Digest::of(b""),
            cordoned: false,
            speaks: VersionRange::default(),
            capabilities: capabilities.iter().map(|name| name.parse().unwrap()).collect(),
            load: Load::default(),
            shed: 0,
            first_of: 0,
            knows: BTreeSet::new(),
            lacks: BTreeSet::new(),
            leaving: false,
            server: String::new(),
            url: None,
            time: None,
            agents: Vec::new(),
            spending: None,
            file: clawnode_proto::node::FileState::default(),
            providers: Vec::new(),
        }
    }

    fn docker(problem: Option<&str>, recent: RecentRuns) -> ProviderReport {
        ProviderReport {
            kind: ProviderKind::Execution,
            name: "docker".to_owned(),
            problem: problem.map(str::to_owned),
            checked_ago_ms: Some(7),
            failures: 0,
            in_hand: 0,
            waiting: 0,
            recent,
            circuit: None,
        }
    }

    pub(in crate::node) fn wants(names: &[&str]) -> BTreeSet<Capability> {
        names.iter().map(|name| name.parse().unwrap()).collect()
    }

    #[test]
    fn an_idle_node_that_has_everything_has_all_points() {
        let idle = node("a", &["docker"]);
        assert!((score(&idle, &wants(&["docker"])).total() - 100.0).abs() < 0.01);
        let recent = RecentRuns { runs: 4, ok: 3, p50_ms: 1_000, p95_ms: 2_000 };
        let busy = Heartbeat {
            load: Load { cpu_permille: 500, ..Load::default() },
            providers: vec![docker(None, recent)],
            ..idle
        };
        let wanted = wants(&["docker", "mcp.fs"]);
        let points = score(&busy, &wanted);
        let ScoreView { health, load, capability, success, latency } = points;
        // One of two things is there; of that three of four runs went well, in a second.
        assert_eq!((health, load, capability), (15.0, 12.5, 12.5));
        assert_eq!((success, latency), (5.63, 1.25));
    }

    #[test]
    fn who_cannot_is_not_chosen_and_it_is_said_why() {
        let mut broken = node("broken", &[]);
        broken.providers = vec![docker(Some("no engine"), RecentRuns::default())];
        let cordoned = Heartbeat { cordoned: true, ..node("cordoned", &["docker"]) };
        let gateway = Heartbeat { roles: vec![NodeRole::Gateway], ..node("gateway", &["docker"]) };
        let mut slow = node("slow", &["docker"]);
        slow.load.cpu_permille = 900;
        let all = [broken, cordoned, gateway, slow.clone(), node("well", &["docker"])];
        let view = chosen(&all, wants(&["docker"]), Some("broken"));
        let names: Vec<&str> = view.candidates.iter().map(|view| view.node.as_str()).collect();
        assert_eq!(names, ["well", "slow", "cordoned", "broken"]);
        let chosen_one = view.selected.unwrap();
        assert_eq!((chosen_one.as_str(), view.fallback_used), ("well", false));
        assert!(view.candidates[3].reason.as_ref().unwrap().contains("no engine"));
        let reason = view.candidates[2].reason.clone().unwrap();
        assert!(reason.contains("cordoned"), "{reason}");

        let view = chosen(&all[..3], wants(&["docker"]), Some("broken"));
        let chosen_one = view.selected.unwrap();
        assert_eq!((chosen_one.as_str(), view.fallback_used), ("broken", true));
        // A fallback that is not there is none, and neither is a gateway.
        for fallback in [None, Some("elsewhere"), Some("gateway")] {
            let view = chosen(&all[..3], wants(&["docker"]), fallback);
            assert_eq!((view.selected, view.fallback_used), (None, false), "{fallback:?}");
        }
    }

    /// A worker asks for jobs at the place that `diagnose` shows it at, once all have told what they
    /// have in hand; what it has begun since counts at once.
    #[test]
    fn a_worker_ranks_itself_where_diagnose_shows_it() {
        let busy = |name: &str, process: u128, in_hand: u32, cpu: u16| {
            let mut heartbeat = node(name, &["docker"]);
            heartbeat.process = ProcessId::from_u128(process);
            heartbeat.load.cpu_permille = cpu;
            let report =
                serde_json::json!({ "kind": "execution", "name": "docker", "in_hand": in_hand });
            heartbeat.providers = vec![serde_json::from_value(report).unwrap()];
            heartbeat
        };
        let mut cordoned = busy("e", 5, 0, 0);
        cordoned.cordoned = true;
        let alive = vec![
            busy("a", 1, 2, 0),
            busy("b", 2, 0, 300),
            busy("c", 3, 0, 0),
            busy("d", 4, 1, 0),
            cordoned,
            node("f", &["egress"]),
        ];
        let docker: Capability = "docker".parse().unwrap();
        let view = chosen(&alive, BTreeSet::from([docker.clone()]), None);
        let ranks = |in_hand: &dyn Fn(u128) -> u32| -> Vec<u8> {
            let rows_of = |own: &Heartbeat| {
                let in_hand = in_hand(own.process.as_u128());
                rank(own.clone(), alive.iter(), &docker, in_hand)
            };
            alive.iter().take(4).map(rows_of).collect()
        };
        let told = ranks(&|me| [2, 0, 0, 1][usize::try_from(me).unwrap() - 1]);
        assert_eq!(told, [3, 1, 0, 2]);
        for (at, one) in view.candidates.iter().enumerate().take(4) {
            let me = alive.iter().position(|other| other.process == one.process).unwrap();
            assert_eq!(usize::from(told[me]), at, "{one:?}");
        }
        // The idle one has begun three jobs since it was heard.
        assert_eq!(ranks(&|me| if me == 3 { 3 } else { 0 })[2], 3);
    }

    proptest! {
        #[test]
        fn no_points_beyond_their_weights_and_worse_is_never_more(
            cpu in 0_u16..2_000,
            (runs, ok) in (0_u16..65, 0_u16..65),
            (p50_ms, worse) in (0_u32..100_000, 1_u32..100_000),
            has in any::<bool>(),
            sick in any::<bool>(),
        ) {
            let ok = ok.min(runs);
            let recent = RecentRuns { runs, ok, p50_ms, p95_ms: p50_ms };
            let mut one = node("a", if has { &["docker"] } else { &[] });
            one.load.cpu_permille = cpu;
            one.providers = vec![docker(sick.then_some("sick"), recent)];
            let wanted = wants(&["docker"]);
            let points = score(&one, &wanted);
            let weights = ScoreWeights::ALL;
            for (points, most) in [
                (points.health, weights.health),
                (points.load, weights.load),
                (points.capability, weights.capability),
                (points.success, weights.success),
                (points.latency, weights.latency),
            ] {
                prop_assert!((0.0..=f64::from(most)).contains(&points), "{points} of {most}");
            }
            let mut other = one.clone();
            other.load.cpu_permille = cpu.saturating_add(100);
            prop_assert!(score(&other, &wanted).total() <= points.total());
            let mut other = one.clone();
            other.providers[0].recent.p50_ms = p50_ms + worse;
            prop_assert!(score(&other, &wanted).total() <= points.total());
            let mut other = one.clone();
            other.providers[0].recent.ok = ok.saturating_sub(1);
            prop_assert!(score(&other, &wanted).total() <= points.total());
            let mut other = one;
            other.providers[0].problem = Some("sick".to_owned());
            prop_assert!(score(&other, &wanted).total() <= points.total());
        }
    }
}
