//! From the command line to an exit code.

use std::{ffi::OsString, io::IsTerminal as _, pin::Pin};

use clap::{ArgMatches, FromArgMatches as _};
use clawnode_executors::sandbox;
use clawnode_proto::node::NodeRole;
use clawnode_tool::orphaned_processes::keep;
use futures_util::future::LocalBoxFuture;

#[cfg(feature = "tui")]
use super::top;
use super::{
    agents, approvals,
    args::{Cli, Command},
    backup, budget, chat, clap_command,
    command_context::CliContext,
    config, doctor, events, execute, feedback, help, hooks, import, jobs, journal, ledger,
    man_pages, mcp, memory, models, node, nodes,
    output::Output,
    panic, parked, partitions, providers, quarantine, sessions, skills, status, tools, tree, up,
    usage, verify,
};
use crate::{
    config::{Env, ValueOrigin},
    failure::{Exit, Failure},
    node::{mcp_servers::KEEPER, tool_executors::SANDBOXED_EXEC},
    telemetry::{self, LogTo, Telemetry},
};

/// The log level of commands that are not a node, or that talk in a terminal, unless one is set.
const QUIET: &str = "warn";
/// The file of a node's log in its data directory, where its terminal is a chat's.
const LOG_FILE: &str = "node.log";
/// That of a node with a chat without a terminal, which shows retries of model calls itself.
const CHATTING: &str = "warn,clawnode_actors::llm::attempts=error";

/// A future whose type is forgotten here, so that it is compiled here: a crate that awaits another
/// crate's `async fn` compiles that function and all that it awaits once more.
pub type BoxedFuture<T> = Pin<Box<dyn Future<Output = T>>>;

/// What keeps an MCP server, if that is what this process was started for. It has no command line
/// of people's, and nothing of a node.
pub fn keeper(args: &[OsString]) -> Option<BoxedFuture<u8>> {
    let [_, command, node, hidden, program, args @ ..] = args else { return None };
    if command != KEEPER {
        return None;
    }
    let node = node.to_str()?.parse().ok()?;
    Some(Box::pin(keep(node, hidden.clone(), program.clone(), args.to_vec())))
}

/// Takes a step towards a command in its sandbox, if that is what this process was started for.
/// Returns only if it fails.
pub fn sandboxed_exec(args: &[OsString]) -> Option<u8> {
    let [_, command, args @ ..] = args else { return None };
    (command == SANDBOXED_EXEC).then(|| sandbox::step(args))
}

/// Does what the command line says.
pub fn main(args: Vec<OsString>, env: Env) -> BoxedFuture<Exit> {
    Box::pin(performed(args, env))
}

async fn performed(args: Vec<OsString>, env: Env) -> Exit {
    let parsed = clap_command::command().try_get_matches_from(args);
    let read = |matches: ArgMatches| {
        let cli = Cli::from_arg_matches(&matches)
            .map_err(|error| error.format(&mut clap_command::command()))?;
        Ok((cli, clap_command::unused(&matches), clap_command::asks_a_node(&matches)))
    };
    let (cli, (path, unused), asks_a_node) = match parsed.and_then(read) {
        Ok(read) => read,
        Err(error) => return usage(&error),
    };
    let out = Output::new(cli.flags.is_json(), cli.flags.is_wide(), &env);
    for flag in unused {
        out.aside(&format!(
            "note: `clawnode {path}` does not use `{flag}`; it is a setting of the command that \
             starts the node"
        ));
    }
    match dispatch(cli, asks_a_node, &env, out).await {
        Ok(exit) => exit,
        Err(failure) => {
            if failure.exit != Exit::Ok {
                out.failure(&failure);
            }
            failure.exit
        }
    }
}

/// Help and version go to standard output and are no error.
fn usage(error: &clap::Error) -> Exit {
    if error.print().is_err() {
        return Exit::Failed;
    }
    if error.exit_code() == 0 { Exit::Ok } else { Exit::Usage }
}

async fn dispatch(cli: Cli, asks_a_node: bool, env: &Env, out: Output) -> Result<Exit, Failure> {
    let Cli { role, join, flags, command } = cli;
    let command = match (command, role.is_empty()) {
        (Some(_), true) if join.join.is_some() || join.join_file.is_some() => {
            return Ok(conflict("use `--join` with `--role`, or after `up` or `run`"));
        }
        (Some(command), true) => command,
        (None, false) => Command::Run(up::RunArgs { role, join }),
        (Some(_), false) => {
            return Ok(conflict("use `--role` without a command, or after `run`"));
        }
        (None, true) => return Ok(conflict("give a command, or `--role`")),
    };
    // They do without a configuration, or judge one that may be broken.
    match &command {
        Command::Verify(args) => return verify::run(args).await,
        Command::Help(args) => return help::run(args, out),
        Command::Version => return man_pages::version(out),
        Command::Completions(args) => return man_pages::completions(args, out),
        Command::Man(args) => return man_pages::man(args, out),
        Command::Doctor(args) => return doctor::run(args, &flags, env, out).await,
        Command::Config(config::ConfigCommand::Check(args)) => {
            return config::check(args, &flags, env, out);
        }
        _ => {}
    }
    let mut context = if asks_a_node {
        let stops = matches!(command, Command::Panic(_));
        CliContext::for_asking_a_node(&flags, env, out, stops)?
    } else {
        CliContext::new(&flags, env, out)?
    };
    let is_node = matches!(command, Command::Up(_) | Command::Run(_));
    let talks = matches!(&command, Command::Up(args) if args.chat);
    if talks && is_shared(&context) {
        context.log_file = Some(context.data_dir().join(LOG_FILE));
    }
    let telemetry = start_telemetry(&context, is_node, is_node && !talks)?;
    let done = perform(command, &context).await;
    telemetry.stop().await;
    done
}

/// Each command is compiled as a function of its own, and not all as one.
fn perform(command: Command, context: &CliContext) -> LocalBoxFuture<'_, Result<Exit, Failure>> {
    match command {
        Command::Up(args) => Box::pin(up::up(args, context)),
        Command::Run(args) => {
            let roles: Vec<NodeRole> = args.role.into_iter().map(NodeRole::from).collect();
            Box::pin(up::run(roles, args.join, context))
        }
        Command::Chat(args) => Box::pin(chat::run(args, context)),
        Command::Status => Box::pin(status::run(context)),
        Command::Nodes => Box::pin(nodes::run(context)),
        Command::Providers => Box::pin(providers::run(context)),
        Command::Execute(args) => Box::pin(execute::run(args, context)),
        Command::Diagnose(args) => Box::pin(providers::diagnose(args, context)),
        Command::Partitions => Box::pin(partitions::run(context)),
        Command::Usage(args) => Box::pin(usage::run(args, context)),
        Command::Budget(command) => Box::pin(budget::run(command, context)),
        Command::Memory(command) => Box::pin(memory::run(command, context)),
        Command::Tree(args) => Box::pin(tree::run(args, context)),
        Command::Events(args) => Box::pin(events::run(args, context)),
        #[cfg(feature = "tui")]
        Command::Top(args) => Box::pin(top::run(args, context)),
        Command::Sessions(command) => Box::pin(sessions::run(command, context)),
        Command::Quarantine(command) => Box::pin(quarantine::run(command, context)),
        Command::Parked(args) => Box::pin(parked::run(args, context)),
        Command::Agents(command) => Box::pin(agents::run(command, context)),
        Command::Models(command) => Box::pin(models::run(command, context)),
        Command::Approvals(command) => Box::pin(approvals::run(command, context)),
        Command::Jobs(command) => Box::pin(jobs::run(command, context)),
        Command::Panic(args) => Box::pin(panic::run(args, context)),
        Command::Tools(command) => Box::pin(tools::run(command, context)),
        Command::Mcp(command) => Box::pin(mcp::run(command, context)),
        Command::Hooks(command) => Box::pin(std::future::ready(hooks::run(&command, context))),
        Command::Skills(command) => Box::pin(std::future::ready(skills::run(command, context))),
        Command::Node(command) => Box::pin(node::run(command, context)),
        Command::Journal(command) => Box::pin(journal::run(command, context)),
        Command::Feedback(args) => Box::pin(feedback::run(args, context)),
        Command::Ledger(command) => Box::pin(ledger::run(command, context)),
        Command::Backup(args) => Box::pin(backup::backup(args, context)),
        Command::Restore(args) => Box::pin(backup::restore(args, context)),
        Command::Import(args) => Box::pin(import::run(args, context)),
        #[cfg(feature = "nats")]
        Command::Cluster(command) => Box::pin(super::cluster::run(command, context)),
        Command::Config(config::ConfigCommand::Show) => {
            Box::pin(std::future::ready(config::show(context)))
        }
        // Done before the configuration was read.
        Command::Verify(_)
        | Command::Help(_)
        | Command::Version
        | Command::Completions(_)
        | Command::Man(_)
        | Command::Doctor(_)
        | Command::Config(config::ConfigCommand::Check(_)) => {
            Box::pin(std::future::ready(Ok(Exit::Ok)))
        }
    }
}

/// Whether log lines would be written between those of a chat: at a terminal, unless a log was asked
/// for.
fn is_shared(context: &CliContext) -> bool {
    chat::is_at_terminal(context) && std::io::stderr().is_terminal() && !asks_for_log(context)
}

fn asks_for_log(context: &CliContext) -> bool {
    context.loaded.origin_of(&["telemetry", "log"]) != ValueOrigin::Default
}

fn start_telemetry(context: &CliContext, is_node: bool, logs: bool) -> Result<Telemetry, Failure> {
    let mut options = context.loaded.config.telemetry.clone();
    if !logs && !asks_for_log(context) && context.log_file.is_none() {
        let level = if is_node { CHATTING } else { QUIET };
        level.clone_into(&mut options.log);
    }
    if context.out.json {
        options.format = crate::config::options::LogFormat::Json;
    }
    let to = context.log_file.as_deref().map_or(LogTo::Stderr, LogTo::File);
    telemetry::start(&options, context.loaded.env(), is_node, to).map_err(|error| {
        Failure::new(Exit::Config, "config_invalid", error.to_string())
            .hint("write `--log info`, or a filter such as `--log info,clawnode=debug`")
    })
}

fn conflict(message: &str) -> Exit {
    usage(&clap_command::command().error(clap::error::ErrorKind::ArgumentConflict, message))
}
