//! `agents`: list, show, pause and resume agents, and what they have done.

use clap::Subcommand;
use clawnode_proto::{
    AgentName,
    agents::{AgentDetail, AgentLimit, AgentMemoryView, AgentView},
    api::{AgentParams, Nothing, calls},
    context::{ContextMode, ContextSettings},
    policy::{Policy, Rule},
    response::ResponseSchema,
};
use serde::Serialize;

use super::{
    agent_profile,
    command_context::CliContext,
    output::{Output, clean, span},
    tools,
};
use crate::failure::{Exit, Failure};

/// What `agents --help` ends with.
pub(super) const EXAMPLES: &str = "\
Examples:
  clawnode agents list
  clawnode agents show default
  clawnode agents show ops --json | jq -r '.tools[].name'
  clawnode agents profile ops --since 7d
  clawnode agents pause ops
  clawnode agents resume ops";

/// What `agents profile --help` ends with.
const PROFILE: &str = "\
The first worker of the cluster counts what agents do from the journals, some seconds after it happens,
and keeps 100 days (UTC). A turn succeeded if it was completed. Turns that a person cancelled or stopped,
that a hook blocked, or for which a limit of spending had no room, count for no rate. Times leave out
waits for people, clients and providers, and are within 13 % of the exact ones.

Examples:
  clawnode agents profile default
  clawnode agents profile ops --since 7d
  clawnode agents profile ops --json | jq '.success_rate'";

#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(super) enum AgentsCommand {
    /// List all agents
    List,
    /// Show an agent: its model, tools, rules, time limits and hooks
    Show {
        /// The agent's name
        agent: AgentName,
    },
    /// Show what an agent has done: turns, success, times, tools, skills, feedback and models
    #[command(after_help = PROFILE)]
    Profile {
        /// The agent's name
        agent: AgentName,
        /// Only from the day of this time on: `7d` (seven days ago) or `2026-11-23`
        #[arg(long, value_name = "TIME")]
        since: Option<String>,
    },
    /// Start no more turns of an agent, on every node; running turns finish
    Pause {
        /// The agent's name
        agent: AgentName,
    },
    /// Start turns of an agent again
    Resume {
        /// The agent's name
        agent: AgentName,
    },
}

/// `agents`.
pub(super) async fn run(command: AgentsCommand, context: &CliContext) -> Result<Exit, Failure> {
    let out = context.out;
    let one = |view: &AgentView| listed(out, std::slice::from_ref(view));
    match command {
        AgentsCommand::List => {
            let list = context.call(calls::AgentsList, &Nothing {}).await?;
            out.document(&list, |list| listed(out, &list.agents))?;
        }
        AgentsCommand::Show { agent } => {
            let view = context.call(calls::AgentsShow, &params(&agent)).await?;
            out.document(&view, |view| detail(out, view))?;
        }
        AgentsCommand::Profile { agent, since } => {
            return agent_profile::run(agent, since, context).await;
        }
        AgentsCommand::Pause { agent } => {
            out.document(&context.call(calls::AgentsPause, &params(&agent)).await?, one)?;
        }
        AgentsCommand::Resume { agent } => {
            out.document(&context.call(calls::AgentsResume, &params(&agent)).await?, one)?;
        }
    }
    Ok(Exit::Ok)
}

fn params(agent: &AgentName) -> AgentParams {
    AgentParams { agent: agent.to_string() }
}

const fn state(view: &AgentView) -> &'static str {
    match (&view.stopped, view.paused) {
        (Some(_), _) => "stopped",
        (None, true) => "paused",
        (None, false) => "active",
    }
}

/// The agents, and below them why each paused one is paused and how it goes on.
fn listed(out: Output, agents: &[AgentView]) -> String {
    let paused =
        agents.iter().filter(|agent| agent.paused).map(|agent| format!("\n{}", reason(agent)));
    table(out, agents) + &paused.collect::<String>()
}

fn reason(view: &AgentView) -> String {
    let why = view.pause.as_ref().map_or_else(|| "paused".to_owned(), ToString::to_string);
    let agent = &view.agent;
    clean(&format!("`{agent}` is {why}; `clawnode agents resume {agent}` lets it go on"))
}

fn table(out: Output, agents: &[AgentView]) -> String {
    let head =
        ["agent", "model", "state", "running", "waiting", "max turns", "max steps", "system"];
    let row = |agent: &AgentView| {
        vec![
            agent.agent.to_string(),
            agent.model.to_string(),
            state(agent).to_owned(),
            agent.running.to_string(),
            agent.waiting.to_string(),
            agent.max_turns.to_string(),
            agent.step_limit.to_string(),
            agent.system.clone(),
        ]
    };
    out.table(&head, agents.iter().map(row))
}

fn detail(out: Output, detail: &AgentDetail) -> String {
    let view = &detail.view;
    let limit = |ms: u32| if ms == 0 { "none".to_owned() } else { span(u64::from(ms)) };
    let mut facts = vec![
        ("agent", view.agent.to_string()),
        ("model", view.model.to_string()),
        ("state", state(view).to_owned()),
        ("turns", format!("{} running, {} waiting", view.running, view.waiting)),
        ("lane", format!("{}, weight {}", view.lane.as_str(), view.weight)),
        ("system", clean(&view.system)),
        (
            "limits",
            format!(
                "turn {}, step {}, {} steps per turn, {} turns per node, {} tokens of context, {} \
                 tool calls at a time",
                limit(detail.time.global_ms),
                limit(detail.time.step_ms),
                view.step_limit,
                view.max_turns,
                detail.window_tokens,
                detail.max_parallel_tools,
            ),
        ),
    ];
    facts.push(("context", context(detail)));
    facts.extend(knows(detail));
    if view.paused {
        facts.push(("paused", reason(view)));
    }
    let pauses =
        |limit: AgentLimit| Some(format!("{} {}", detail.limits.of(limit)?, limit.counted()));
    let pauses: Vec<String> = AgentLimit::ALL.into_iter().filter_map(pauses).collect();
    if !pauses.is_empty() {
        facts.push(("pauses", format!("after more than {}", pauses.join(", "))));
    }
    if let Some(ResponseSchema { name, schema }) = &detail.response_schema {
        facts.push(("reply", clean(&format!("JSON that fits `{name}`: {schema}"))));
    }
    let hooks = detail.hooks.iter().map(|hook| format!("{}/{}", hook.point, hook.name));
    let hooks: Vec<String> = hooks.collect();
    if !hooks.is_empty() {
        facts.push(("hooks", hooks.join(", ")));
    }
    facts.extend(rules(&detail.policy).into_iter().map(|rule| ("rule", rule)));
    facts.extend(detail.warnings.iter().map(|warning| ("warning", clean(warning))));
    let facts = facts.into_iter().filter(|(_, value)| !value.is_empty());
    let mut lines: Vec<String> = facts.map(|(name, value)| format!("{name:<8} {value}")).collect();
    lines.push(String::new());
    if detail.tools.is_empty() && detail.missing.is_empty() {
        lines.push("no tools: name them in `tools` of the agent's configuration".to_owned());
        return lines.join("\n");
    }
    lines.push(tools::table(out, &detail.tools, &detail.missing));
    lines.extend(tools::reasons(out, detail.tools.iter(), detail.missing.iter()));
    lines.join("\n")
}

/// What it is reminded of, and which instructions it can read; empty where there are none.
fn knows(detail: &AgentDetail) -> [(&'static str, String); 5] {
    let memory = detail.memory.as_ref().map(|memory| {
        let layers: Vec<String> = memory.layers.iter().map(wire_name).collect();
        let tools = if memory.recall_untrusted { "with" } else { "without" };
        let (most, layers) = (memory.top_facts, layers.join(", "));
        format!("{most} points a turn at most, of {layers}; {tools} what tools brought")
    });
    let setting = |field: fn(&AgentMemoryView) -> &String| {
        detail.memory.as_ref().map(|memory| clean(field(memory))).unwrap_or_default()
    };
    let shared = detail.memory.as_ref().map(|memory| clean(&memory.shared.join(", ")));
    [
        ("memory", memory.unwrap_or_default()),
        ("shared", shared.unwrap_or_default()),
        ("extract", setting(|memory| &memory.extract)),
        ("reflect", setting(|memory| &memory.reflect)),
        ("skills", clean(&detail.skills.join(", "))),
    ]
}

/// A word of the wire, as the wire spells it.
fn wire_name(word: &impl Serialize) -> String {
    let value = serde_json::to_value(word).unwrap_or_default();
    value.as_str().unwrap_or("-").to_owned()
}

/// How much of a conversation its model is shown.
fn context(detail: &AgentDetail) -> String {
    let Some(ContextSettings { mode, tokens, recent_turns, .. }) = detail.context else {
        return "window: the newest turns that fit".to_owned();
    };
    let bounded = format!("{tokens} tokens beside the running turn, {recent_turns} recent turns");
    match mode {
        ContextMode::Auto => format!("auto: all while it is short, then {bounded}"),
        ContextMode::Bounded => format!("bounded: {bounded}"),
    }
}

/// The rules about its tool calls, in the order in which they apply.
fn rules(policy: &Policy) -> Vec<String> {
    let rule = |rule: &Rule| {
        let tool = rule.tool.as_deref().unwrap_or("any tool");
        let risk = rule.risk.map_or_else(String::new, |risk| format!(" of risk {}", risk.as_str()));
        let arguments = rule.arguments.iter().map(|(name, value)| format!("{name} = {value}"));
        let arguments: Vec<String> = arguments.collect();
        let with = match (arguments.is_empty(), rule.exact) {
            (true, false) => "",
            (true, true) => " without arguments",
            (false, false) => " with ",
            (false, true) => " with only ",
        };
        let why = rule.reason.as_deref().map_or_else(String::new, |why| format!(" ({why})"));
        clean(&format!(
            "{}: {tool}{risk}{with}{}{why}",
            rule.verdict.as_str(),
            arguments.join(", ")
        ))
    };
    let asks = format!(
        "otherwise: tools that only read are allowed, other calls wait up to {} for a person",
        span(policy.approval_wait_ms)
    );
    policy.rules.iter().map(rule).chain([asks]).collect()
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{
        agents::AgentLimits, lane::Lane, llm::Sampling, memory::MemoryLayer, timeout::TurnTime,
    };

    use super::*;
    use crate::config::Env;

    #[test]
    fn an_agent_says_what_it_is_reminded_of_and_has_no_empty_rows() {
        let view = AgentView {
            agent: "ops".parse().unwrap(),
            model: "demo/demo".parse().unwrap(),
            system: String::new(),
            step_limit: 1,
            max_turns: 1,
            lane: Lane::default(),
            weight: 1,
            running: 0,
            waiting: 0,
            paused: false,
            pause: None,
            stopped: None,
        };
        let mut agent = AgentDetail {
            view,
            models: Vec::new(),
            response_schema: None,
            sampling: Sampling::default(),
            window_tokens: 1,
            context: None,
            memory: None,
            skills: Vec::new(),
            time: TurnTime::default(),
            limits: AgentLimits::default(),
            max_parallel_tools: 1,
            policy: Policy::default(),
            hooks: Vec::new(),
            tools: Vec::new(),
            missing: Vec::new(),
            warnings: Vec::new(),
        };
        let out = Output::new(false, false, &Env::default());
        let text = detail(out, &agent);
        for row in ["system", "memory", "shared", "extract", "reflect", "skills"] {
            assert!(!text.lines().any(|line| line.starts_with(row)), "{row}: {text}");
        }
        agent.view.system = "You mend.".to_owned();
        agent.skills = vec!["notes".to_owned(), "pdf-forms".to_owned()];
        let layers = vec![MemoryLayer::Semantic, MemoryLayer::Episode];
        let shared = vec!["team".to_owned()];
        let (extract, reflect) = ("patterns".to_owned(), "off".to_owned());
        agent.memory = Some(AgentMemoryView {
            layers,
            top_facts: 5,
            shared,
            recall_untrusted: false,
            extract,
            reflect,
        });
        let text = detail(out, &agent);
        for row in [
            "system   You mend.",
            "memory   5 points a turn at most, of semantic, episode; without what tools brought",
            "shared   team",
            "extract  patterns",
            "reflect  off",
            "skills   notes, pdf-forms",
        ] {
            assert!(text.lines().any(|line| line == row), "{row}: {text}");
        }
    }
}
