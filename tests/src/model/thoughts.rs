//! Thoughts, as vendors sign them and want them back.

use clawnode_proto::Digest;

use super::{
    book::WireName,
    check::Asked,
    script::{Act, Step},
};

/// The signature of block `index` of a reply that has so many thoughts: it holds the thought, its place
/// and that none is left out.
pub(super) fn sign(index: usize, thoughts: usize, text: &str) -> String {
    let digest = Digest::of(format!("{index}/{thoughts}/{text}").as_bytes()).to_string();
    format!("{index}.{thoughts}.{}", digest.get(..32).unwrap_or_default())
}

/// A thought that only this server can read.
pub(super) fn seal(index: usize, thoughts: usize, data: &str) -> String {
    format!("{data}.{}", sign(index, thoughts, data))
}

/// Holds block `index` of a message that has so many thoughts to its signature.
pub(super) fn check_signed(
    (index, thoughts): (usize, usize),
    text: &str,
    signature: &str,
) -> Result<(), String> {
    if signature == sign(index, thoughts, text) {
        return Ok(());
    }
    Err(format!(
        "content.{index}: Invalid `signature` in `thinking` block: it is of another thought, of another \
         place, or another thought of the message is missing"
    ))
}

/// The same for a sealed one.
pub(super) fn check_sealed((index, thoughts): (usize, usize), data: &str) -> Result<(), String> {
    let text = data.rsplitn(4, '.').nth(3).unwrap_or_default();
    if data == seal(index, thoughts, text) {
        return Ok(());
    }
    Err(format!("content.{index}: Invalid `data` in `redacted_thinking` block"))
}

/// How many blocks of thoughts a reply has.
pub(super) fn count(steps: &[Step]) -> usize {
    let (mut count, mut open) = (0, false);
    for step in steps {
        match step {
            Step::Thinking { .. } => {
                count += usize::from(!open);
                open = true;
            }
            Step::Redacted { .. } => {
                count += 1;
                open = false;
            }
            Step::Text { .. }
            | Step::Split { .. }
            | Step::Refusal { .. }
            | Step::Clock
            | Step::Tools { .. } => open = false,
            _ => {}
        }
    }
    count
}

/// What a reply thinks.
fn thought(act: &Act) -> String {
    let Act::Reply(reply) = act else { return String::new() };
    let text = |step: &Step| match step {
        Step::Thinking { text } => Some(text.clone()),
        _ => None,
    };
    reply.steps.iter().filter_map(text).collect()
}

/// Holds a request to what this turn's replies, as they are scripted, have thought.
pub(super) fn check_turn(wire: WireName, asked: &Asked, acts: &[Act]) -> Result<(), String> {
    if wire == WireName::Anthropic && !asked.thinks {
        return Ok(());
    }
    for (round, (sent, act)) in asked.thoughts.iter().zip(acts).enumerate() {
        if *sent != thought(act) {
            return Err(match wire {
                WireName::Anthropic => format!(
                    "round {round}: Expected `thinking` or `redacted_thinking`: the thoughts of a round \
                     of tools cannot be left out or modified"
                ),
                WireName::Openai => format!(
                    "round {round}: thinking is enabled but reasoning_content is missing, or is another"
                ),
            });
        }
    }
    Ok(())
}
