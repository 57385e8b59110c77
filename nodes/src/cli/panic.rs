//! `panic`: stops what agents do, on every node at once, until it is cleared.

use clap::Args;
use clawnode_proto::{
    AgentName, SwitchId, ToolName,
    api::{Nothing, PanicClear, PanicParams, calls},
    kill_switch::{KillSwitch, PanicView, SwitchAck, SwitchScope},
};

use super::{
    command_context::CliContext,
    id_prefix,
    output::{Output, Tone, count, time},
};
use crate::failure::{Exit, Failure};

/// What `panic --help` ends with.
pub(super) const EXAMPLES: &str = "\
Examples:
  clawnode panic                           stop everything, and see which nodes confirmed it
  clawnode panic --tool run_command --why 'it deletes too much'
  clawnode panic --no-egress
  clawnode panic --list
  clawnode panic --clear                   clear all stops

The exit code is 1 if a node did not confirm in time that it stopped.";

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "one flag each on the command line")]
pub(super) struct PanicArgs {
    /// Stop this tool, for every agent
    #[arg(long, value_name = "NAME", group = "scope")]
    pub tool: Option<ToolName>,
    /// Stop this agent, its model calls and its tools
    #[arg(long, value_name = "NAME", group = "scope")]
    pub agent: Option<AgentName>,
    /// Stop everything that tools send to other machines
    #[arg(long, group = "scope")]
    pub no_egress: bool,
    /// Stop everything: model calls, tools and new messages (the default)
    #[arg(long, group = "scope")]
    pub all: bool,
    /// The reason, shown with the stop
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["clear", "list"])]
    pub why: Option<String>,
    /// Clear the named stop, or all stops
    #[arg(long, conflicts_with = "list")]
    pub clear: bool,
    /// Clear only the stop with this id, as `--list` shows it
    #[arg(long, value_name = "ID", requires = "clear", conflicts_with = "scope")]
    pub id: Option<String>,
    /// List the stops, and stop nothing
    #[arg(long)]
    pub list: bool,
}

/// `panic`.
pub(super) async fn run(args: PanicArgs, context: &CliContext) -> Result<Exit, Failure> {
    let out = context.out;
    if args.list {
        let list = context.call(calls::PanicList, &Nothing {}).await?;
        out.document(&list, |list| switches(out, &list.switches))?;
        return Ok(Exit::Ok);
    }
    if args.clear {
        return clear(&args, context).await;
    }
    let params =
        PanicParams { scope: args.scope(), why: args.why.unwrap_or_default(), wait_ms: None };
    let view = context.call(calls::Panic, &params).await?;
    out.document(&view, |view| shown(out, view))?;
    Ok(exit_of(&view))
}

/// Whether all nodes have said that nothing of it runs there any more.
fn exit_of(view: &PanicView) -> Exit {
    let dead = |ack: &SwitchAck| ack.acknowledged_ms.is_some() && ack.dead_ms.is_some();
    if view.nodes.iter().all(dead) { Exit::Ok } else { Exit::Failed }
}

async fn clear(args: &PanicArgs, context: &CliContext) -> Result<Exit, Failure> {
    let out = context.out;
    let list = context.call(calls::PanicList, &Nothing {}).await?;
    let ids: Vec<SwitchId> = if let Some(id) = &args.id {
        let found = id_prefix::find(id, list.switches.iter().map(|switch| switch.id.to_string()))?;
        let switch = list.switches.iter().find(|switch| Some(switch.id.to_string()) == found);
        vec![switch.ok_or_else(|| id_prefix::none("stop", id, "panic --list"))?.id]
    } else {
        let scope = args.scope();
        let meant =
            |switch: &&KillSwitch| scope.as_ref().is_none_or(|scope| switch.scope == *scope);
        list.switches.iter().filter(meant).map(|switch| switch.id).collect()
    };
    let mut cleared = Vec::new();
    for switch in ids {
        let params = PanicClear { switch, wait_ms: None };
        let view = context.call(calls::PanicClear, &params).await?;
        cleared.push(view);
    }
    let human = |cleared: &Vec<PanicView>| {
        if cleared.is_empty() {
            return "nothing to clear: no such stop".to_owned();
        }
        cleared.iter().map(|view| shown(out, view)).collect::<Vec<_>>().join("\n")
    };
    out.document(&cleared, human)?;
    Ok(Exit::Ok)
}

impl PanicArgs {
    /// What is named; nothing means all.
    fn scope(&self) -> Option<SwitchScope> {
        let tool = self.tool.clone().map(SwitchScope::Tool);
        let agent = self.agent.clone().map(SwitchScope::Agent);
        let egress = self.no_egress.then_some(SwitchScope::Egress);
        let all = self.all.then_some(SwitchScope::All);
        tool.or(agent).or(egress).or(all)
    }
}

fn shown(out: Output, view: &PanicView) -> String {
    let what = view.switch.scope.stopped();
    let head = match (view.on, view.already) {
        (true, false) => out.paint(Tone::Bad, &format!("{what} is stopped")),
        (true, true) => {
            let since = time(view.switch.at);
            out.paint(Tone::Bad, &format!("{what} was stopped at {since}, by {}", view.switch.by))
        }
        (false, _) => out.paint(Tone::Good, &format!("{what} continues")),
    };
    let mut lines = vec![head, String::new(), acks(out, view)];
    let silent = view.nodes.iter().filter(|ack| ack.acknowledged_ms.is_none()).count();
    if silent > 0 {
        let silent = count(u64::try_from(silent).unwrap_or(u64::MAX), "node");
        lines.push(String::new());
        lines.push(out.paint(
            Tone::Bad,
            &format!(
                "{silent} did not answer: the change takes effect there once the storage backend \
                 can be reached"
            ),
        ));
    }
    if view.on {
        lines.push(String::new());
        lines
            .push(format!("the stop lasts until `clawnode panic --clear --id {}`", view.switch.id));
    }
    lines.join("\n")
}

fn acks(out: Output, view: &PanicView) -> String {
    let millis = |ms: Option<u64>| ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms}ms"));
    let row = |ack: &SwitchAck| {
        let name = ack.node.as_ref().map_or_else(|| ack.process.to_string(), ToString::to_string);
        let state = match (&ack.problem, view.on, ack.running) {
            (Some(problem), ..) => problem.clone(),
            (None, true, running) if running > 0 => format!("{running} still running"),
            (None, true, _) => "stopped".to_owned(),
            (None, false, _) => "continues".to_owned(),
        };
        vec![name, millis(ack.acknowledged_ms), millis(ack.dead_ms), state]
    };
    out.table(&["node", "acknowledged", "all ended", "state"], view.nodes.iter().map(row))
}

fn switches(out: Output, switches: &[KillSwitch]) -> String {
    if switches.is_empty() {
        return "nothing is stopped".to_owned();
    }
    let row = |switch: &KillSwitch| {
        vec![
            switch.scope.to_string(),
            time(switch.at),
            switch.by.clone(),
            switch.id.to_string(),
            switch.why.clone(),
        ]
    };
    out.table(&["stopped", "since", "by", "id", "why"], switches.iter().map(row))
}

#[cfg(test)]
mod tests {
    use clawnode_proto::ProcessId;

    use super::*;
    use crate::config::Env;

    #[test]
    fn who_did_not_answer_is_seen() {
        let ack = |name: &str| SwitchAck {
            process: ProcessId::from_u128(1),
            node: Some(name.parse().unwrap()),
            acknowledged_ms: Some(3),
            dead_ms: Some(40),
            running: 0,
            problem: None,
        };
        let frozen = SwitchAck {
            acknowledged_ms: None,
            dead_ms: None,
            problem: Some("no answer in time".to_owned()),
            ..ack("frozen")
        };
        let busy = SwitchAck { dead_ms: None, running: 2, ..ack("busy") };
        let switch = KillSwitch {
            id: SwitchId::from_u128(7),
            scope: SwitchScope::All,
            by: "the token at a".to_owned(),
            at: clawnode_proto::Timestamp(0),
            why: String::new(),
        };
        let view_of = |nodes| PanicView { switch: switch.clone(), on: true, already: false, nodes };
        assert_eq!(exit_of(&view_of(vec![ack("a"), ack("b")])), Exit::Ok);
        assert_eq!(exit_of(&view_of(vec![ack("a"), frozen.clone()])), Exit::Failed);
        assert_eq!(
            exit_of(&view_of(vec![ack("a"), busy.clone()])),
            Exit::Failed,
            "something runs on"
        );
        let view = view_of(vec![ack("a"), frozen, busy]);
        let text = shown(Output::new(false, false, &Env::default()), &view);
        let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap();
        assert!(line("a ").contains("3ms") && line("a ").contains("40ms"), "{text}");
        assert!(line("frozen").contains("no answer in time"), "{text}");
        assert!(line("busy").contains("2 still running"), "{text}");
        assert!(text.contains("1 node did not answer"), "{text}");
        assert!(text.contains(&view.switch.id.to_string()), "{text}");
    }
}
