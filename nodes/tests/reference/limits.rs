//! `limits.md`: the hard limits.

use clawnode_proto::{
    limits::{self, Amount},
    units::format_duration,
};

use super::page;

const INTRO: &str = "\
The contract between nodes and with clients has these limits. No setting changes them, and each is a maximum unless its
text says otherwise. [Configuration](configuration.md) has the limits that you can change.";

#[test]
fn reference_of_limits() {
    let mut text = format!("{INTRO}\n\n");
    let mut left = limits::ALL;
    while let Some(first) = left.first() {
        let end = left.iter().position(|limit| limit.group != first.group).unwrap_or(left.len());
        let (group, rest) = left.split_at(end);
        let rows: Vec<_> = group
            .iter()
            .map(|limit| [page::code(limit.name), shown(limit.amount), page::plain(limit.about)])
            .collect();
        text += &format!(
            "## {}\n\n{}",
            first.group,
            page::table(["limit", "value", "what it limits"], &rows)
        );
        left = rest;
    }
    page::compare("limits", "Limits", &text);
}

/// A value with its unit: bytes in the largest unit that leaves a whole number.
fn shown(amount: Amount) -> String {
    match amount {
        Amount::Time(time) if time.as_secs().is_multiple_of(86_400) => {
            format!("{} days", time.as_secs() / 86_400)
        }
        Amount::Time(time) => format_duration(time),
        Amount::Number(bytes, "bytes") => {
            let (size, unit) = [(1 << 20, "MiB"), (1 << 10, "KiB"), (1, "bytes")]
                .into_iter()
                .find(|(size, _)| bytes.is_multiple_of(*size))
                .unwrap();
            format!("{} {unit}", bytes / size)
        }
        Amount::Number(number, unit) if number >= 1_000 => {
            format!("{},{:03} {unit}", number / 1_000, number % 1_000)
        }
        Amount::Number(number, unit) => format!("{number} {unit}"),
    }
}
