//! `providers` and `diagnose`: executors and model providers with their health, and which node would
//! run a tool.

use clap::Args;
use clawnode_proto::{
    api::{Nothing, calls},
    circuit::{CircuitFailure, CircuitReport, CircuitState},
    provider::{
        CandidateView, DiagnoseParams, DiagnoseView, ExecutionSpec, HOOK_PREFIX, MCP_PREFIX,
        PLUGIN_PREFIX, ProviderKind, ProviderStatus, ProviderView, ProvidersView, StepSpec,
    },
};

use super::{
    command_context::CliContext,
    output::{Output, Tone, clean, time},
};
use crate::failure::{Exit, Failure};

/// What `providers --help` ends with.
pub(super) const EXAMPLES: &str = "\
Examples:
  clawnode providers
  clawnode providers -o wide
  clawnode providers -o json | jq -r '.providers[] | select(.status == \"unhealthy\") | .node'";

/// What `diagnose --help` ends with.
const DIAGNOSE_EXAMPLES: &str = "\
Examples:
  clawnode diagnose run_command
  clawnode diagnose file_read run_python --agent ops
  clawnode diagnose run_command --fallback node-1 -o json";

#[derive(Debug, Args)]
#[command(after_help = DIAGNOSE_EXAMPLES)]
pub(super) struct DiagnoseArgs {
    /// The tools to call
    #[arg(required = true, value_name = "TOOL")]
    tools: Vec<String>,
    /// The agent that has these tools [default: `default`]
    #[arg(long, value_name = "AGENT")]
    agent: Option<String>,
    /// The node to choose if no node can run all tools
    #[arg(long, value_name = "NODE")]
    fallback: Option<String>,
}

/// `providers`.
pub(super) async fn run(context: &CliContext) -> Result<Exit, Failure> {
    let view = context.call(calls::ProvidersHealth, &Nothing {}).await?;
    let out = context.out;
    out.document(&view, |view| table(out, view))?;
    Ok(Exit::Ok)
}

/// The calls that a provider has in hand, and those that wait until it has fewer.
fn in_hand(provider: &ProviderView) -> String {
    match provider.waiting {
        0 => provider.in_hand.to_string(),
        waiting => format!("{} (+{waiting})", provider.in_hand),
    }
}

fn table(out: Output, view: &ProvidersView) -> String {
    let mut head = vec!["provider", "kind", "node", "state", "active", "success", "p50", "p95"];
    if out.wide {
        head.extend(["runs", "failures", "checked", "process"]);
    }
    let row = |provider: &ProviderView| {
        let begins_with = |prefix| provider.provider.starts_with(prefix);
        let kind = match provider.kind {
            ProviderKind::Model => "model",
            ProviderKind::Execution if begins_with(MCP_PREFIX) => "mcp server",
            ProviderKind::Execution if begins_with(PLUGIN_PREFIX) => "plugin",
            ProviderKind::Execution if begins_with(HOOK_PREFIX) => "hook",
            ProviderKind::Execution => "execution",
        };
        let latency = |ms: Option<u32>| ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms} ms"));
        let mut row = vec![
            provider.provider.clone(),
            kind.to_owned(),
            provider.node.to_string(),
            provider.status.as_str().to_owned(),
            in_hand(provider),
            provider
                .success_rate
                .map_or_else(|| "-".to_owned(), |rate| format!("{:.0}%", rate * 100.0)),
            latency(provider.latency_ms.map(|latency| latency.p50)),
            latency(provider.latency_ms.map(|latency| latency.p95)),
        ];
        if out.wide {
            row.extend([
                provider.runs.to_string(),
                provider.consecutive_failures.to_string(),
                provider.last_checked.map_or_else(|| "-".to_owned(), time),
                provider.process.to_string(),
            ]);
        }
        row
    };
    let mut text = out.table(&head, view.providers.iter().map(row));
    for provider in &view.providers {
        let line = || {
            let why = clean(provider.error.as_deref().unwrap_or("no reason given"));
            format!("\n{} on {}: {why}", provider.provider, provider.node)
        };
        match provider.status {
            ProviderStatus::Unhealthy => text.push_str(&out.paint(Tone::Bad, &line())),
            // What is as it should be is for those who want to know.
            ProviderStatus::Standby if out.wide => text.push_str(&line()),
            ProviderStatus::Standby | ProviderStatus::Unknown | ProviderStatus::Healthy => {}
        }
        if let Some(circuit) = &provider.circuit {
            let is_open = circuit.state != CircuitState::Closed;
            if is_open || out.wide {
                let lines = circuit_lines(
                    &format!("{} on {}", provider.provider, provider.node),
                    circuit,
                    out.wide,
                );
                let shown = if is_open { out.paint(Tone::Warn, &lines) } else { lines };
                text.push_str(&shown);
            }
        }
    }
    text
}

/// What is known of a circuit: a line, and if `is_wide` its changes and the provider's limits.
fn circuit_lines(subject: &str, circuit: &CircuitReport, is_wide: bool) -> String {
    let mut facts = vec![format!(
        "{subject}: circuit {} since {}",
        circuit.state.as_str(),
        time(circuit.since)
    )];
    facts.extend(circuit.next_try.map(|next| format!("next try {}", time(next))));
    let failures: Vec<String> = circuit
        .failures
        .iter()
        .map(|failure| format!("{} {}", failure.count, failure.kind.as_str()))
        .collect();
    if !failures.is_empty() {
        facts.push(format!("failed attempts: {}", failures.join(", ")));
    }
    if circuit.refused > 0 {
        facts.push(format!("calls not sent: {}", circuit.refused));
    }
    facts.extend(circuit.probe.map(|probe| {
        let found = probe.failure.map_or("reached", CircuitFailure::as_str);
        format!("last probe {}: {found}", time(probe.at))
    }));
    let mut lines = vec![String::new(), facts.join("; ")];
    if is_wide {
        lines.extend(circuit.history.iter().map(|change| {
            let why = change
                .failure
                .map(|failure| format!(" ({})", failure.as_str()))
                .unwrap_or_default();
            let by = if change.by_probe { ", by a probe" } else { "" };
            format!("  {} {}{why}{by}", time(change.at), change.state.as_str())
        }));
        lines.extend(circuit.limits.iter().map(|limit| {
            let all = limit.limit.map(|all| format!(" of {all}")).unwrap_or_default();
            let (model, what) = (clean(&limit.model), limit.resource.as_str());
            let left = limit.remaining;
            format!("  {model}: {left}{all} {what} left, resets {}", time(limit.resets))
        }));
    }
    lines.join("\n")
}

pub(super) async fn diagnose(args: DiagnoseArgs, context: &CliContext) -> Result<Exit, Failure> {
    let step = |action| StepSpec { action, ..StepSpec::default() };
    let steps = args.tools.into_iter().map(step).collect();
    let params = DiagnoseParams {
        execution_spec: ExecutionSpec { steps },
        fallback: args.fallback,
        agent: args.agent,
    };
    let view = context.call(calls::SchedulerDiagnose, &params).await?;
    let out = context.out;
    out.document(&view, |view| verdict(out, view))?;
    Ok(if view.selected.is_some() { Exit::Ok } else { Exit::Failed })
}

fn verdict(out: Output, view: &DiagnoseView) -> String {
    let head = ["node", "score", "health", "load", "capability", "success", "latency", "why not"];
    let row = |candidate: &CandidateView| {
        let points = candidate.breakdown;
        let all = [
            candidate.score,
            points.health,
            points.load,
            points.capability,
            points.success,
            points.latency,
        ];
        let mut row = vec![candidate.node.to_string()];
        row.extend(all.iter().map(|points| format!("{points:.2}")));
        row.push(clean(candidate.reason.as_deref().unwrap_or("-")));
        row
    };
    let text = out.table(&head, view.candidates.iter().map(row));
    let names: Vec<String> = view.capabilities.iter().map(ToString::to_string).collect();
    let needs = if names.is_empty() {
        "any worker can run this".to_owned()
    } else {
        format!("needed: {}", names.join(", "))
    };
    let chosen = match (&view.selected, view.fallback_used) {
        (Some(node), false) => format!("{node} is the best choice"),
        (Some(node), true) => format!("no node can run all tools; the fallback is {node}"),
        (None, _) => "no node can run all tools".to_owned(),
    };
    text + &format!("\n{needs}; {chosen}")
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{
        Timestamp,
        circuit::{CircuitChange, CircuitFailures, LimitedResource, ProviderLimit, ProviderProbe},
    };

    use super::*;

    #[test]
    fn a_circuit_has_a_line_and_its_past_if_asked_for() {
        let (since, next) = (Timestamp(1_700_000_004_000), Timestamp(1_700_000_014_000));
        let kind = CircuitFailure::Overloaded;
        let circuit = CircuitReport {
            state: CircuitState::Open,
            since,
            next_try: Some(next),
            refused: 2,
            failures: vec![CircuitFailures { kind, count: 5, last: since }],
            history: vec![CircuitChange {
                at: since,
                state: CircuitState::Open,
                failure: Some(kind),
                by_probe: true,
            }],
            probe: Some(ProviderProbe { at: next, failure: None }),
            limits: vec![ProviderLimit {
                model: "m\u{1b}[31m".to_owned(),
                resource: LimitedResource::InputTokens,
                limit: Some(50),
                remaining: 7,
                resets: next,
            }],
        };
        let line = format!(
            "\nlab on w: circuit open since {}; next try {}; failed attempts: 5 overloaded; \
             calls not sent: 2; last probe {}: reached",
            time(since),
            time(next),
            time(next)
        );
        assert_eq!(circuit_lines("lab on w", &circuit, false), line);
        let wide = circuit_lines("lab on w", &circuit, true);
        let past = wide.strip_prefix(&line).unwrap();
        let change = format!("\n  {} open (overloaded), by a probe\n", time(since));
        assert!(past.starts_with(&change), "{past}");
        let limit = format!(": 7 of 50 input tokens left, resets {}", time(next));
        assert!(past.ends_with(&limit) && !past.contains('\u{1b}'), "{past}");
    }
}
