//! `partitions`: the nodes of each partition, in order, and the inputs that wait.

use std::collections::BTreeMap;

use clawnode_proto::{
    ProcessId,
    api::{Nothing, calls},
    overview::{PartitionList, PartitionView},
};

use super::{
    command_context::CliContext,
    output::{Output, Tone},
};
use crate::failure::{Exit, Failure};

/// Partitions in a row of the short table.
const SHORT: usize = 12;

/// `partitions`.
pub(super) async fn run(context: &CliContext) -> Result<Exit, Failure> {
    let list = context.call(calls::PartitionsList, &Nothing {}).await?;
    let out = context.out;
    out.document(&list, |list| if out.wide { wide(out, list) } else { short(out, list) })?;
    Ok(Exit::Ok)
}

/// The name of a process; its id if the name is unknown.
fn name(list: &PartitionList, process: ProcessId) -> String {
    list.nodes.get(&process).map_or_else(|| process.to_string(), ToString::to_string)
}

fn number(number: Option<u64>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| number.to_string())
}

/// One row a partition.
fn wide(out: Output, list: &PartitionList) -> String {
    let row = |partition: &PartitionView| {
        let mut row = vec![
            partition.partition.to_string(),
            number(partition.waiting),
            number(partition.in_hand),
        ];
        let serve = |rank| {
            partition.serve.get(rank).map_or_else(String::new, |process| name(list, *process))
        };
        row.extend((0..4).map(serve));
        row
    };
    let head = ["partition", "waiting", "active", "first", "second", "third", "fourth"];
    out.table(&head, list.partitions.iter().map(row))
}

/// One row a node: hundreds of partitions are no reading.
fn short(out: Output, list: &PartitionList) -> String {
    let mut by_first: BTreeMap<Option<ProcessId>, Vec<&PartitionView>> =
        list.nodes.keys().map(|process| (Some(*process), Vec::new())).collect();
    for partition in &list.partitions {
        by_first.entry(partition.serve.first().copied()).or_default().push(partition);
    }
    let sum = |them: &[&PartitionView], count: fn(&PartitionView) -> Option<u64>| {
        let known: Option<Vec<u64>> = them.iter().map(|partition| count(partition)).collect();
        number(known.map(|all| all.iter().sum()))
    };
    let mut deaf = 0;
    let rows: Vec<Vec<String>> = by_first
        .iter()
        .filter_map(|(first, them)| {
            let Some(first) = first else {
                deaf = them.len();
                return None;
            };
            let seconds = list
                .partitions
                .iter()
                .filter(|partition| partition.serve.get(1) == Some(first))
                .count();
            let mut shown: Vec<String> =
                them.iter().take(SHORT).map(|partition| partition.partition.to_string()).collect();
            if them.len() > SHORT {
                shown.push("…".to_owned());
            }
            Some(vec![
                name(list, *first),
                them.len().to_string(),
                seconds.to_string(),
                sum(them, |partition| partition.waiting),
                sum(them, |partition| partition.in_hand),
                shown.join(" "),
            ])
        })
        .collect();
    let head = ["node", "first", "second", "waiting", "active", "partitions"];
    let mut text = out.table(&head, rows);
    if deaf > 0 {
        let line = format!("partitions without a node: {deaf}; inputs for them wait");
        text.push('\n');
        text.push_str(&out.paint(Tone::Bad, &line));
    }
    text
}
