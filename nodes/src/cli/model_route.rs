//! `models route`: which model a call asks, and why.

use clap::Args;
use clawnode_actors::llm::{discover, ollama_models, profile::LongestReply};
use clawnode_proto::{
    AgentName,
    api::{SessionParams, calls},
    llm::Sampling,
    model_route::{InputKind, ModelRoute, PromptFacts, RouteRow, RouteView},
};

use super::{
    command_context::CliContext,
    output::{Output, clean},
};
use crate::{
    config::{AgentSection, agents::DEFAULT_AGENT, nearest},
    failure::{Exit, Failure},
    node::agents_and_models,
};

/// `models route`.
#[derive(Debug, Args)]
pub(super) struct RouteArgs {
    /// The agent of the configuration (default: `default`); needs no running node
    #[arg(long, value_name = "NAME", conflicts_with = "session")]
    agent: Option<AgentName>,
    /// The tokens of the prompt: the conversation with the system prompt
    #[arg(long, value_name = "N", default_value_t, conflicts_with = "session")]
    tokens: u64,
    /// What is attached; may be given several times
    #[arg(long, value_name = "image|document|audio", value_parser = input, conflicts_with = "session")]
    input: Vec<InputKind>,
    /// The key or id of a session of the running node: what its next call asks
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
    /// Compare the call with each row
    #[arg(long)]
    explain: bool,
}

fn input(name: &str) -> Result<InputKind, String> {
    let known = InputKind::ALL.into_iter().find(|kind| kind.to_string() == name);
    known.ok_or_else(|| "write `image`, `document`, `audio` or `text`".to_owned())
}

/// `models route`.
pub(super) async fn run(args: RouteArgs, context: &CliContext) -> Result<Exit, Failure> {
    let RouteArgs { agent, tokens, input, session, explain } = args;
    let view = if let Some(session) = session {
        context.call(calls::ModelsRoute, &SessionParams { session }).await?
    } else {
        let media = input.into_iter().filter_map(InputKind::media).collect();
        configured(agent, PromptFacts { tokens, media, ..PromptFacts::default() }, context).await?
    };
    let out = context.out;
    out.document(&view, |view| {
        if explain { explained(out, view) } else { clean(&view.model.to_string()) }
    })?;
    Ok(Exit::Ok)
}

/// By the configuration alone.
async fn configured(
    agent: Option<AgentName>,
    mut prompt: PromptFacts,
    context: &CliContext,
) -> Result<RouteView, Failure> {
    let loaded = context.settings()?;
    let agents = &loaded.config.agents;
    let name = agent
        .map_or_else(|| DEFAULT_AGENT.parse(), Ok)
        .map_err(|error| Failure::new(Exit::Failed, "internal", format!("{error}")))?;
    let usual = AgentSection::default();
    let section = match agents.get(&name) {
        Some(section) => section,
        None if name.as_str() == DEFAULT_AGENT => &usual,
        None => {
            let names: Vec<&str> = agents.keys().map(AgentName::as_str).collect();
            let near = nearest(name.as_str(), names.iter().copied());
            let meant = near.map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
            let what = format!("the configuration has no agent `{name}`");
            return Err(Failure::new(Exit::Usage, "usage", what)
                .hint(format!("{meant}it has {}", names.join(", "))));
        }
    };
    let env = loaded.env();
    let lookup = |name: &str| env.get(name).map(str::to_owned);
    let own = match &section.model {
        Some(model) => model.clone(),
        None => discover(&lookup, ollama_models).await.model,
    };
    let routes: Vec<ModelRoute> = section.routes.iter().cloned().map(Into::into).collect();
    let profiles = agents_and_models::profiles(&loaded.config, &lookup)?;
    let sampling: Sampling = section.sampling.clone().into();
    let longest = LongestReply { max_tokens: sampling.max_tokens, reasoning: section.reasoning };
    prompt.costs = profiles.route_costs(&routes, prompt.tokens, longest);
    prompt.refusals = profiles.route_refusals(&routes, &sampling);
    let mut view = RouteView::of(name, &own, &section.fallback, &routes, prompt);
    view.fallback.retain(|model| profiles.refused(model, &sampling).is_none());
    Ok(view)
}

fn explained(out: Output, view: &RouteView) -> String {
    let kinds = InputKind::ALL.into_iter();
    let attached =
        |kind: &InputKind| kind.media().is_some_and(|media| view.prompt.media.contains(&media));
    let attached: Vec<String> = kinds.filter(attached).map(|kind| kind.to_string()).collect();
    let attached =
        if attached.is_empty() { "nothing attached".to_owned() } else { attached.join(", ") };
    let mut lines = Vec::new();
    if view.rows.is_empty() {
        lines.push(format!("agent {} has no `routes`", view.agent));
    } else {
        let taken = view.rows.iter().find(|row| row.fits).map(|row| row.row);
        let row = |route: &RouteRow| {
            let most = view.prompt.cost(route.row).map(|most| format!(" (at most {most} USD)"));
            let most = most.unwrap_or_default();
            let fits = match (&route.misfit, taken == Some(route.row)) {
                (Some(why), _) => clean(why),
                (None, true) => format!("fits, and decides{most}"),
                (None, false) => format!("fits, after one that decides{most}"),
            };
            vec![
                route.row.to_string(),
                clean(&route.route.model.to_string()),
                asks(&route.route),
                fits,
            ]
        };
        lines.push(out.table(&["row", "model", "for", "this call"], view.rows.iter().map(row)));
    }
    lines.push(format!("prompt: {} tokens, {attached}", view.prompt.tokens));
    lines.push(format!("model:  {} ({})", clean(&view.model.to_string()), view.reason));
    if !view.fallback.is_empty() {
        let after: Vec<String> =
            view.fallback.iter().map(|model| clean(&model.to_string())).collect();
        lines.push(format!("then:   {}", after.join(", ")));
    }
    lines.join("\n")
}

/// What a row asks of a prompt.
fn asks(route: &ModelRoute) -> String {
    let tokens = match (route.min_prompt_tokens, route.max_prompt_tokens) {
        (Some(min), Some(max)) => Some(format!("{min} to {max} tokens")),
        (Some(min), None) => Some(format!("from {min} tokens")),
        (None, Some(max)) => Some(format!("up to {max} tokens")),
        (None, None) => None,
    };
    let input: Vec<String> = route.input.iter().map(ToString::to_string).collect();
    let input = (!input.is_empty()).then(|| input.join(" or "));
    let cost = route.max_usd.map(|max| format!("up to {max} USD"));
    tokens.into_iter().chain(input).chain(cost).collect::<Vec<String>>().join(", ")
}
