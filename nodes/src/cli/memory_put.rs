//! `memory put`: a point that a person writes.

use clap::Args;
use clawnode_proto::{
    memory::{MemoryKey, MemoryLayer, MemoryTrust},
    memory_point::PointRefusal,
    memory_view::{MemoryPutParams, MemoryPutView, WantedPoint},
};
use serde::de::DeserializeOwned;

use crate::failure::{Exit, Failure};

#[derive(Debug, Args)]
pub(super) struct MemoryPutArgs {
    /// The memory
    memory: MemoryKey,
    /// The sentence that a model is shown
    text: String,
    /// `semantic`, `procedural`, `social` or `episode` (default: semantic)
    #[arg(long, value_name = "LAYER", value_parser = word::<MemoryLayer>)]
    layer: Option<MemoryLayer>,
    /// What it is about; it supersedes points with the same subject and predicate
    #[arg(long, value_name = "TEXT", requires = "predicate")]
    subject: Option<String>,
    /// What it says of the subject
    #[arg(long, value_name = "TEXT", requires = "subject")]
    predicate: Option<String>,
    /// The value that it gives
    #[arg(long, value_name = "TEXT")]
    object: Option<String>,
    /// How much it matters, 1 to 10 (default: 5)
    #[arg(long, value_name = "N")]
    importance: Option<u8>,
    /// How certain it is, in percent (default: 100)
    #[arg(long, value_name = "PERCENT")]
    confidence: Option<u8>,
    /// Who said it: `operator`, `person`, `agent` or `tool` (default: operator)
    #[arg(long, value_name = "WHO", value_parser = word::<MemoryTrust>)]
    trust: Option<MemoryTrust>,
    /// A name for this request: a repeat under the same name adds nothing
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
}

/// What a node is asked for, or which argument is wrong.
pub(super) fn params(args: MemoryPutArgs) -> Result<MemoryPutParams, Failure> {
    let MemoryPutArgs {
        memory,
        text,
        layer,
        subject,
        predicate,
        object,
        importance,
        confidence,
        trust,
        key,
    } = args;
    let point = WantedPoint {
        text,
        layer,
        subject,
        predicate,
        object,
        confidence,
        importance,
        trust,
        source: None,
    };
    // A node would name a parameter that the person has not written.
    point.clone().learned().map_err(|problem| {
        Failure::new(Exit::Usage, "usage", format!("argument {}", as_argument(&problem)))
    })?;
    Ok(MemoryPutParams { memory, points: vec![point], key })
}

/// What is wrong with a point, with the names of the command's arguments.
fn as_argument(problem: &str) -> String {
    let flags = ["subject", "predicate", "object", "importance", "confidence"];
    let text = problem.replace("`text`", "`TEXT`");
    flags.iter().fold(text, |text, name| text.replace(&format!("`{name}`"), &format!("`--{name}`")))
}

/// What became of the points, for people.
pub(super) fn put(view: &MemoryPutView) -> String {
    let added = view.added.iter().map(|id| format!("added {id}"));
    let known = view.known.iter().map(|id| format!("{id} was known"));
    let refused = view.refused.iter().map(|refused| match refused.reason {
        PointRefusal::Full => format!("{} has no room", refused.point),
        PointRefusal::Invalid => format!("{} breaks a limit", refused.point),
    });
    let lines: Vec<String> = added.chain(known).chain(refused).collect();
    if lines.is_empty() { "this was done long ago".to_owned() } else { lines.join("\n") }
}

/// A word of the wire, as the wire spells it.
fn word<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_value(text.into()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_point_is_named_as_an_argument() {
        let args = |text: &str, importance| MemoryPutArgs {
            memory: "default/all".parse().unwrap(),
            text: text.to_owned(),
            layer: None,
            subject: None,
            predicate: None,
            object: None,
            importance,
            confidence: None,
            trust: None,
            key: None,
        };
        for (text, importance, says) in
            [(" ", None, "argument `TEXT` is empty"), ("a", Some(11), "argument `--importance` is")]
        {
            let failure = params(args(text, importance)).unwrap_err();
            assert!(failure.message.starts_with(says), "{}", failure.message);
        }
        assert_eq!(params(args("a", Some(10))).unwrap().points.len(), 1);
    }
}
