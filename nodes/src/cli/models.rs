//! `models`: list and show what is known of models, test one, and say which one a call asks.

use clap::Subcommand;
use clawnode_proto::{
    AgentName, ErrorCode,
    api::{Nothing, calls},
    llm::ModelRef,
    model::{ModelParams, ModelPrice, ModelTest, ModelView},
};
use serde::Serialize;

use super::{
    command_context::CliContext,
    model_route::{self, RouteArgs},
    output::{Output, Tone, clean},
};
use crate::failure::{Exit, Failure};

/// What `models --help` ends with.
pub(super) const EXAMPLES: &str = "\
Examples:
  clawnode models list
  clawnode models show anthropic/claude-sonnet-4-5
  clawnode models test ollama/llama3.2
  clawnode models test ollama/llama3.2 --json | jq .tool_call
  clawnode models route --explain --tokens 50000 --input image
  clawnode models route --explain --session default:web:site:ada";

#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(super) enum ModelsCommand {
    /// List the models of all agents, with their limits and prices
    List,
    /// Show what clawnode knows of a model, and where it knows it from
    Show {
        /// The model, as PROVIDER/MODEL
        #[arg(id = "MODEL")]
        model: ModelRef,
    },
    /// Call a model once, and say whether text, tool calls and streaming work; costs a few hundred tokens
    Test {
        /// The model, as PROVIDER/MODEL
        #[arg(id = "MODEL")]
        model: ModelRef,
    },
    /// Say which model a call asks, by the routes of the configuration or for a session
    Route(RouteArgs),
}

/// `models`.
pub(super) async fn run(command: ModelsCommand, context: &CliContext) -> Result<Exit, Failure> {
    let out = context.out;
    match command {
        ModelsCommand::List => {
            let list = context.call(calls::ModelsList, &Nothing {}).await?;
            out.document(&list, |list| table(out, &list.models))?;
        }
        ModelsCommand::Show { model } => {
            let view = context.call(calls::ModelsShow, &ModelParams { model }).await;
            let view = view.map_err(mistyped)?;
            out.document(&view, detail)?;
        }
        ModelsCommand::Test { model } => {
            out.aside(&format!("one real call of {model}: it costs a few hundred tokens"));
            let test = context.call(calls::ModelsTest, &ModelParams { model }).await;
            let test = test.map_err(mistyped)?;
            out.document(&test, |test| tested(out, test))?;
            let works = test.error.is_none() && test.text && test.tool_call != Some(false);
            return Ok(if works { Exit::Ok } else { Exit::Failed });
        }
        ModelsCommand::Route(args) => return model_route::run(args, context).await,
    }
    Ok(Exit::Ok)
}

/// A provider that the configuration does not have is a wrong argument like others.
fn mistyped(failure: Failure) -> Failure {
    if failure.code == ErrorCode::NotFound.as_str() {
        Failure { exit: Exit::Usage, ..failure }
    } else {
        failure
    }
}

fn table(out: Output, models: &[ModelView]) -> String {
    let head = ["model", "window", "reply", "input", "tools", "reasoning", "price", "agents"];
    let row = |view: &ModelView| {
        let agents: Vec<&str> = view.agents.iter().map(AgentName::as_str).collect();
        vec![
            clean(&view.model.to_string()),
            view.used_tokens.to_string(),
            view.max_output_tokens.map_or_else(|| "-".to_owned(), |tokens| tokens.to_string()),
            input(view),
            yes(view.tools).to_owned(),
            word(&view.reasoning),
            view.price.map_or_else(|| "-".to_owned(), price),
            agents.join(", "),
        ]
    };
    let mut text = out.table(&head, models.iter().map(row));
    for model in models {
        if let Some(error) = &model.error {
            let line = format!("\n{}: {}", clean(&model.model.to_string()), clean(error));
            text.push_str(&out.paint(Tone::Bad, &line));
        }
    }
    text
}

fn detail(view: &ModelView) -> String {
    let tokens = |tokens: u32| format!("{tokens} tokens");
    let agents: Vec<&str> = view.agents.iter().map(AgentName::as_str).collect();
    let from = match view.patterns.as_slice() {
        [] => format!("nothing is known of it (table of {}); see `[models]`", view.table),
        patterns => format!("{} (table of {})", clean(&patterns.join(", ")), view.table),
    };
    let used = if view.used_tokens == view.window_tokens {
        String::new()
    } else {
        format!(", of which {} are used unless `window_tokens` says more", view.used_tokens)
    };
    let reply = view.max_output_tokens.map(|most| format!("at most {}", tokens(most)));
    let mut facts = vec![
        ("model", clean(&view.model.to_string())),
        ("agents", if agents.is_empty() { "none".to_owned() } else { agents.join(", ") }),
        ("window", format!("{}{used}", tokens(view.window_tokens))),
        ("reply", reply.unwrap_or_else(|| "not known".to_owned())),
        ("input", input(view)),
        ("tools", yes(view.tools).to_owned()),
        ("reasoning", word(&view.reasoning)),
        ("cache", word(&view.cache)),
        ("schema", word(&view.schema)),
        ("sampling", yes(view.sampling).to_owned()),
        ("price", view.price.map_or_else(|| "not known".to_owned(), long_price)),
        ("from", from),
    ];
    facts.extend(view.error.iter().map(|error| ("error", clean(error))));
    let lines = facts.into_iter().map(|(name, value)| format!("{name:<9} {value}"));
    lines.collect::<Vec<String>>().join("\n")
}

fn tested(out: Output, tested: &ModelTest) -> String {
    let check = |name: &str, works: Option<bool>| {
        let (tone, word) = match works {
            Some(true) => (Tone::Good, "works"),
            Some(false) => (Tone::Bad, "not seen"),
            None => (Tone::Warn, "not tested: the model takes no tools"),
        };
        format!("{name:<10} {}", out.paint(tone, word))
    };
    if let Some(error) = &tested.error {
        return out.paint(Tone::Bad, &format!("the call failed: {}", clean(error)));
    }
    let usage = tested.usage;
    [
        check("text", Some(tested.text)),
        check("tool call", tested.tool_call),
        check("streaming", Some(tested.streaming)),
        format!(
            "`{}` answered in {} ms, and read {} and wrote {} tokens",
            clean(&tested.answered),
            tested.took_ms,
            usage.input_tokens,
            usage.output_tokens
        ),
    ]
    .join("\n")
}

fn input(view: &ModelView) -> String {
    let kinds = view.input.iter().map(word);
    ["text".to_owned()].into_iter().chain(kinds).collect::<Vec<_>>().join(", ")
}

const fn yes(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}

/// The word of a kind or a style, as it is in JSON.
fn word(value: &impl Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_str().unwrap_or_default().replace('_', " ")
}

/// What a million tokens cost, read and written.
fn price(price: ModelPrice) -> String {
    format!("{} / {}", dollars(price.input), dollars(price.output))
}

fn long_price(price: ModelPrice) -> String {
    format!(
        "for a million tokens: input {}, output {}, cache read {}, cache write {}",
        dollars(price.input),
        dollars(price.output),
        dollars(price.cache_read),
        dollars(price.cache_write)
    )
}

fn dollars(micro: u64) -> String {
    let (whole, rest) = (micro / 1_000_000, micro % 1_000_000);
    let digits = format!("{rest:06}");
    let digits = digits.trim_end_matches('0');
    format!("${whole}.{digits:0<2}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_dollars() {
        for (micro, text) in
            [(3_000_000, "$3.00"), (1_250_000, "$1.25"), (75_000, "$0.075"), (0, "$0.00")]
        {
            assert_eq!(dollars(micro), text);
        }
    }
}
