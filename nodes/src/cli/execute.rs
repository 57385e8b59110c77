//! `execute`: the steps of a plan, run without a model.

use std::{collections::BTreeMap, io::Read as _, path::Path};

use clap::{Args, Subcommand};
use clawnode_proto::{
    api::calls,
    execute::{
        ExecuteParams, ExecutionParams, ExecutionStatus, ExecutionStep, ExecutionView, StepStatus,
    },
    limits::WS_FRAME_BYTES,
    provider::ExecutionSpec,
};
use clawnode_tool::skill::{PIPELINE_FILE, Pipeline};
use serde_json::Value;

use super::{
    command_context::CliContext,
    output::{Output, Tone, clean, cut, span, time},
    reconnection::Link,
};
use crate::{
    failure::{Exit, Failure},
    node::skills,
};

/// How long one question waits for the end, in milliseconds.
const WAIT_MS: u32 = 5_000;
/// Characters of a step's output in a table.
const BRIEF: usize = 60;

/// What `execute --help` ends with.
const EXAMPLES: &str = "\
A plan is JSON:

  {\"steps\":[{\"action\":\"TOOL\",\"params\":{…},\"continue_on_failure\":false},…]}

The steps run in order. Each is a tool call of the agent, under its rules and approvals. The first
step that fails ends the plan, unless it has `continue_on_failure`. An accepted plan continues when
nodes or clients end; a plan sent again with the same key runs once. With `--wait` the exit code is
1 unless the plan succeeds.

A file FILE.yaml is a pipeline: steps with names, references and inputs, which become a plan. A skill
may have one in its folder, as `pipeline.yaml`.

Examples:
  clawnode execute plan.json --wait
  echo '{\"steps\":[{\"action\":\"time_now\"}]}' | clawnode execute - --key nightly-7 --wait
  clawnode execute pipeline.yaml --input version=1.4 --key release-1.4
  clawnode execute show EXECUTION --wait
  clawnode execute cancel EXECUTION";

/// `execute`.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = EXAMPLES
)]
pub(super) struct ExecuteArgs {
    #[command(subcommand)]
    command: Option<ExecuteCommand>,
    /// The file with the plan, or with a pipeline if its name ends in `.yaml` or `.yml`; `-` is a plan
    /// from standard input
    #[arg(required_unless_present = "skill", conflicts_with = "skill", value_name = "FILE")]
    file: Option<String>,
    /// Run the pipeline of this skill of this machine
    #[arg(long, value_name = "SKILL")]
    skill: Option<String>,
    /// An input of the pipeline; once for each
    #[arg(long = "input", value_name = "NAME=VALUE")]
    inputs: Vec<String>,
    /// The agent whose tools and rules apply [default: `default`]
    #[arg(long, value_name = "AGENT")]
    agent: Option<String>,
    /// A name for this request; a plan that is sent again with the same name runs once
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Wait until the plan has ended
    #[arg(long)]
    wait: bool,
}

/// What to do with an execution.
#[derive(Debug, Subcommand)]
enum ExecuteCommand {
    /// Show the state of an execution and of each step
    Show {
        /// The execution's id
        execution: String,
        /// Wait until the execution has ended
        #[arg(long)]
        wait: bool,
    },
    /// Cancel an execution: stop its running step and start no other
    Cancel {
        /// The execution's id
        execution: String,
    },
}

/// `execute`.
pub(super) async fn run(args: ExecuteArgs, context: &CliContext) -> Result<Exit, Failure> {
    let out = context.out;
    let (view, waits) = match args.command {
        None => {
            let asked = asked(&args, context)?;
            let params = ExecuteParams {
                agent: args.agent.or(asked.agent),
                request_id: args.key.or(asked.request_id),
                wait_ms: None,
                ..asked
            };
            let view = context.call(calls::Execute, &params).await?;
            (view, args.wait)
        }
        Some(ExecuteCommand::Show { execution, wait }) => {
            let params = ExecutionParams { execution_id: execution, wait_ms: None };
            (context.call(calls::ExecuteShow, &params).await?, wait)
        }
        Some(ExecuteCommand::Cancel { execution }) => {
            let params = ExecutionParams { execution_id: execution, wait_ms: Some(WAIT_MS) };
            (context.call(calls::ExecuteCancel, &params).await?, false)
        }
    };
    let view = if waits { ended(view, context).await? } else { view };
    out.document(&view, |view| card(out, view))?;
    let failed = waits && view.status != ExecutionStatus::Succeeded;
    Ok(if failed { Exit::Failed } else { Exit::Ok })
}

/// What is to be run. The options of the command line replace what a file says beside the plan.
fn asked(args: &ExecuteArgs, context: &CliContext) -> Result<ExecuteParams, Failure> {
    let file = args.file.as_deref().unwrap_or("-");
    let is_yaml = |ending: &std::ffi::OsStr| ending == "yaml" || ending == "yml";
    if let Some(skill) = &args.skill {
        return pipeline(
            &format!("{skill}/{PIPELINE_FILE}"),
            &of_skill(skill, context)?,
            &args.inputs,
        );
    }
    if Path::new(file).extension().is_some_and(is_yaml) {
        return pipeline(file, &read(file)?, &args.inputs);
    }
    if !args.inputs.is_empty() {
        return Err(invalid(format!("`{file}` is a plan, and only a pipeline has inputs"))
            .hint("leave `--input` out, or name a file that ends in `.yaml`"));
    }
    plan(file)
}

fn invalid(what: String) -> Failure {
    Failure::new(Exit::Failed, "invalid_params", what)
}

/// A plan alone, or with what else `POST /v1/execute` takes.
fn plan(file: &str) -> Result<ExecuteParams, Failure> {
    let text = read(file)?;
    let wrong = |what: String| {
        invalid(format!("`{file}`: {what}"))
            .hint(r#"write `{"steps":[{"action":"TOOL","params":{}}]}`"#)
    };
    let value: Value =
        serde_json::from_str(&text).map_err(|error| wrong(format!("malformed JSON: {error}")))?;
    let params = if value.get("execution_spec").is_some() {
        serde_json::from_value(value)
    } else {
        serde_json::from_value::<ExecutionSpec>(value)
            .map(|execution_spec| ExecuteParams { execution_spec, ..ExecuteParams::default() })
    };
    params.map_err(|error| wrong(error.to_string()))
}

/// The plan of a pipeline with these inputs, each as `NAME=VALUE`.
fn pipeline(file: &str, text: &str, inputs: &[String]) -> Result<ExecuteParams, Failure> {
    let wrong = |what: String| {
        invalid(format!("`{file}`: {what}"))
            .hint("a pipeline has `steps` and may have `inputs`; a step has `name`, `action` and `params`")
    };
    let pipeline = Pipeline::parse(text).map_err(|fault| wrong(fault.to_string()))?;
    let mut given = BTreeMap::new();
    for input in inputs {
        let Some((name, value)) = input.split_once('=') else {
            let what = format!("`--input {input}` has no `=`");
            return Err(invalid(what).hint("write `--input NAME=VALUE`"));
        };
        if given.insert(name.to_owned(), value.to_owned()).is_some() {
            return Err(invalid(format!("`--input {name}` is there twice")));
        }
    }
    let execution_spec = pipeline.plan(&given).map_err(|what| {
        invalid(format!("`{file}`: {what}")).hint("give an input with `--input NAME=VALUE`")
    })?;
    Ok(ExecuteParams { execution_spec, ..ExecuteParams::default() })
}

/// The text of the pipeline of a skill of this machine.
fn of_skill(name: &str, context: &CliContext) -> Result<String, Failure> {
    let missing = |what: String| {
        Failure::new(Exit::Failed, "not_found", what)
            .hint("`clawnode skills list` lists the skills of this machine")
    };
    let found = skills::found(context.settings()?);
    let skill = found.skills.iter().find(|skill| skill.head.name == name);
    let skill = skill.ok_or_else(|| missing(format!("there is no skill `{name}`")))?;
    skill.file(PIPELINE_FILE).map_err(missing)
}

/// A file's text; more than a request may be is not read.
fn read(file: &str) -> Result<String, Failure> {
    let most = WS_FRAME_BYTES as u64;
    let mut text = String::new();
    let done = if file == "-" {
        std::io::stdin().lock().take(most).read_to_string(&mut text)
    } else {
        std::fs::File::open(Path::new(file))
            .and_then(|file| file.take(most).read_to_string(&mut text))
    };
    done.map_err(|error| {
        Failure::new(Exit::Failed, "input", format!("cannot read `{file}`: {error}"))
            .hint("name a file with a plan, or `-` for standard input")
    })?;
    Ok(text)
}

/// Waits for the end, over whichever gateway answers; says what a person is asked meanwhile.
async fn ended(mut view: ExecutionView, context: &CliContext) -> Result<ExecutionView, Failure> {
    let mut link = Link::at(context.out, context.reached().await?);
    let execution_id = view.execution_id.to_string();
    let params = ExecutionParams { execution_id, wait_ms: Some(WAIT_MS) };
    let mut asked = Vec::new();
    while !view.status.is_over() {
        for step in view.steps.iter().filter(|step| step.status == StepStatus::WaitingApproval) {
            if let Some(call) = step.call.filter(|call| !asked.contains(call)) {
                asked.push(call);
                let (number, action) = (step.step, &step.action);
                context.out.aside(&format!(
                    "step {number} (`{action}`) waits for a person: `clawnode approvals show {call}`"
                ));
            }
        }
        view = link.call(calls::ExecuteShow, |_| params.clone()).await?;
    }
    Ok(view)
}

fn card(out: Output, view: &ExecutionView) -> String {
    let mut lines = vec![
        format!("execution  {}", view.execution_id),
        format!("request    {}", clean(view.request_id.as_str())),
        format!("status     {}", view.status.as_str()),
        format!("agent      {}", view.agent),
        format!("session    {}", view.session),
    ];
    if let Some(started) = view.started {
        lines.push(format!("started    {}", time(started)));
    }
    if let Some(took) = view.duration_ms {
        lines.push(format!("duration   {}", span(took)));
    }
    let mut head = vec!["step", "action", "status", "risk", "duration", "output"];
    if out.wide {
        head.extend(["job", "call"]);
    }
    let dash = || "-".to_owned();
    let row = |step: &ExecutionStep| {
        let said = step.error.as_ref().map(|error| &error.message).or(step.output.as_ref());
        let said = said.map_or_else(dash, |text| cut(text, BRIEF));
        let mut row = vec![
            step.step.to_string(),
            step.action.to_string(),
            step.status.as_str().to_owned(),
            step.risk.map_or_else(dash, |risk| risk.as_str().to_owned()),
            step.duration_ms.map_or_else(dash, span),
            said,
        ];
        if out.wide {
            row.push(step.job.map_or_else(dash, |job| job.to_string()));
            row.push(step.call.map_or_else(dash, |call| call.to_string()));
        }
        row
    };
    lines.push(out.table(&head, view.steps.iter().map(row)));
    if let Some(error) = &view.error {
        lines.push(out.paint(Tone::Bad, &clean(&error.message)));
    }
    lines.join("\n")
}
