//! `sessions context`: what a model was shown by one call, and why.

use clap::Args;
use clawnode_proto::{
    api::calls,
    context::{ContextMode, ContextSettings},
    context_view::{
        ContextGap, ContextPart, ContextPartKind, ContextPlace, ContextStub, ContextView,
        SessionsContext,
    },
    llm::Role,
};
use serde_json::json;

use super::{
    command_context::CliContext,
    history,
    output::{Output, clean},
};
use crate::failure::{Exit, Failure};

/// `sessions context`.
#[derive(Debug, Args)]
pub(super) struct ContextArgs {
    /// The session: its key (`agent:channel:account:peer`) or its id
    session: String,
    /// The model call: the number or id of its turn, and the number of its step; the last call by default
    #[arg(long, value_name = "TURN[.STEP]")]
    at: Option<ContextPlace>,
    /// Compare it with another call of the session: show what the other one has, and has not
    #[arg(long, value_name = "TURN[.STEP]")]
    diff: Option<ContextPlace>,
    /// Show the parts alone, without their text
    #[arg(long)]
    brief: bool,
}

/// `sessions context`.
pub(super) async fn run(args: ContextArgs, context: &CliContext) -> Result<Exit, Failure> {
    let ContextArgs { session, at, diff, brief } = args;
    let (source, out) = (context.source().await?, context.out);
    let params = SessionsContext { session: session.clone(), at };
    let view = source.call(calls::SessionsContext, &params).await?;
    let Some(at) = diff else {
        out.document(&view, |view| shown(out, view, brief))?;
        return Ok(Exit::Ok);
    };
    let params = SessionsContext { session, at: Some(at) };
    let other = source.call(calls::SessionsContext, &params).await?;
    let changes = changes(&view, &other);
    let rows = |difference: &(&'static str, String)| json!({ "change": difference.0, "part": difference.1 });
    let document = json!({
        "context": view,
        "other": other,
        "changes": changes.iter().map(rows).collect::<Vec<_>>(),
    });
    out.document(&document, |_| {
        let heads = [placed("here", &view), placed("there", &other)];
        let rows = changes.iter().map(|(change, part)| vec![(*change).to_owned(), part.clone()]);
        let table = out.table(&["change", "part"], rows);
        [heads.concat(), vec![String::new(), table]].concat().join("\n")
    })?;
    Ok(Exit::Ok)
}

fn shown(out: Output, view: &ContextView, brief: bool) -> String {
    let mut lines = head(view);
    let row = |part: &ContextPart| {
        let before = if part.repeated { "yes" } else { "no" };
        vec![name(part), part.tokens.to_string(), before.to_owned(), part.why.clone()]
    };
    lines.push(String::new());
    lines.push(out.table(&["part", "tokens", "as before", "why"], view.parts.iter().map(row)));
    lines.extend(view.left_out.iter().map(left_out));
    lines.extend(view.parts.iter().flat_map(stubs));
    if !brief {
        lines.extend(view.parts.iter().flat_map(text));
    }
    lines.join("\n")
}

/// The same as `head`, with the word that the table of changes has for it.
fn placed(place: &str, view: &ContextView) -> Vec<String> {
    let mut lines = head(view);
    if let Some(first) = lines.first_mut() {
        *first = format!("{place}: {first}");
    }
    lines
}

/// What a call is, and how large its request was.
fn head(view: &ContextView) -> Vec<String> {
    let ContextView { number, step, turn, call, attempt, model, window_tokens, .. } = view;
    let rules = match view.rules {
        None => "the newest turns that fit into the window".to_owned(),
        Some(ContextSettings { mode, tokens, recent_turns, .. }) => {
            let when = match mode {
                ContextMode::Auto => "once the conversation is long",
                ContextMode::Bounded => "always",
            };
            format!("{tokens} tokens and {recent_turns} recent turns, {when}")
        }
    };
    let percent = view.repeated.saturating_mul(100).checked_div(view.tokens).unwrap_or_default();
    let reported = view.reported.map(|tokens| format!(", {tokens} by the provider's count"));
    let cost = view.cost.map_or_else(
        || "no cost is known: no limit held the call, or it has no end yet".to_owned(),
        |cost| format!("it cost {cost} USD by the prices in the journal"),
    );
    let verified =
        if view.verified { "" } else { "; the journal has another request than this one" };
    vec![
        format!("call {number}.{step}: {turn}, {call}, attempt {attempt}"),
        clean(&format!("model {model}, window of {window_tokens} tokens; context: {rules}")),
        format!(
            "about {} tokens{}; {percent}% of them as in the call before{verified}",
            view.tokens,
            reported.unwrap_or_default(),
        ),
        cost,
    ]
}

fn name(part: &ContextPart) -> String {
    let number = part.number.map(|number| format!(" {number}")).unwrap_or_default();
    match part.kind {
        ContextPartKind::System => "system prompt".to_owned(),
        ContextPartKind::Tools => format!("{} tools", part.tools.len()),
        ContextPartKind::ResponseSchema => "response schema".to_owned(),
        ContextPartKind::Seed => "what it began with".to_owned(),
        ContextPartKind::Summary => "summary of older turns".to_owned(),
        ContextPartKind::Turn => format!("turn{number}"),
        ContextPartKind::Recalled => format!("recalled for turn{number}"),
        ContextPartKind::Running => format!("running turn{number}"),
        ContextPartKind::Hook => "of a hook".to_owned(),
        ContextPartKind::Unknown => "another part".to_owned(),
    }
}

fn left_out(gap: &ContextGap) -> String {
    let turns = match gap.turns {
        Some((first, last)) if first == last => format!("turn {first}"),
        Some((first, last)) => format!("turns {first} to {last}"),
        None => clean(&gap.what),
    };
    format!("left out: {turns}, because {}", clean(&gap.why))
}

/// The model calls of a turn that entries of the ledger take the place of.
fn stubs(part: &ContextPart) -> Vec<String> {
    let stub = |stub: &ContextStub| {
        let calls = match stub.calls {
            (first, last) if first == last => format!("call {first}"),
            (first, last) => format!("calls {first} to {last}"),
        };
        let (entry, name) = (stub.entry, name(part));
        format!("ledger: entry {entry} closed {calls} of {name}, and is shown in their place")
    };
    part.stubs.iter().map(stub).collect()
}

/// A part as the model read it.
fn text(part: &ContextPart) -> Vec<String> {
    let mut lines = vec![String::new(), format!("--- {}", name(part))];
    lines.extend(part.text.iter().map(|text| clean(text)));
    lines.extend(
        part.tools.iter().map(|tool| {
            clean(&format!("{}: {} {}", tool.name, tool.description, tool.input_schema))
        }),
    );
    lines.extend(part.messages.iter().map(|message| {
        let who = match message.role {
            Role::User => "user",
            Role::Assistant => "assistant",
        };
        history::message(who, message)
    }));
    lines
}

/// How the parts of a request differ from those of another one, in the order of both.
fn changes(view: &ContextView, other: &ContextView) -> Vec<(&'static str, String)> {
    // A turn that runs in one request is over in the other; what was recalled for it is a part beside it.
    let is_recalled = |part: &ContextPart| part.kind == ContextPartKind::Recalled;
    let is_same_part = |one: &ContextPart, two: &ContextPart| match (one.turn, two.turn) {
        (None, None) => one.kind == two.kind,
        (one_turn, two_turn) => one_turn == two_turn && is_recalled(one) == is_recalled(two),
    };
    let mut changes = Vec::new();
    for part in &view.parts {
        let found = other.parts.iter().find(|other| is_same_part(other, part));
        let change = match found {
            None => "only here",
            Some(same) if is_equal(same, part) => "same",
            Some(_) => "differs",
        };
        changes.push((change, name(part)));
    }
    let is_new =
        |new_part: &&ContextPart| !view.parts.iter().any(|part| is_same_part(new_part, part));
    let new = other.parts.iter().filter(is_new).map(|part| ("only there", name(part)));
    changes.extend(new);
    changes
}

fn is_equal(one: &ContextPart, two: &ContextPart) -> bool {
    one.text == two.text && one.tools == two.tools && one.messages == two.messages
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{
        Attempt, CallId, TurnId,
        llm::{Message, Text},
    };

    use super::*;

    fn part(kind: ContextPartKind, number: Option<u64>, said: &str) -> ContextPart {
        ContextPart {
            kind,
            turn: number.map(|number| TurnId::from_u128(number.into())),
            number,
            tokens: 9,
            repeated: true,
            why: "so".to_owned(),
            text: None,
            tools: Vec::new(),
            messages: vec![Message::text(Role::User, Text::from(said))],
            stubs: Vec::new(),
        }
    }

    fn view(parts: Vec<ContextPart>) -> ContextView {
        let turn = TurnId::from_u128(3);
        ContextView {
            turn,
            number: 3,
            step: 1,
            call: CallId::derive(turn, 0),
            attempt: Attempt(1),
            model: "demo/echo".parse().unwrap(),
            window_tokens: 1_000,
            rules: None,
            tokens: 200,
            reported: Some(180),
            cost: None,
            repeated: 150,
            verified: true,
            parts,
            left_out: vec![ContextGap {
                what: "turns".to_owned(),
                turns: Some((1, 4)),
                why: "of no room".to_owned(),
            }],
        }
    }

    #[test]
    fn a_turn_that_runs_here_and_is_over_there_is_one_part() {
        use ContextPartKind::{Running, Turn};
        let here = view(vec![part(Turn, Some(1), "a"), part(Running, Some(2), "b")]);
        let there = view(vec![
            part(Turn, Some(2), "b"),
            part(Turn, Some(3), "c"),
            part(Running, Some(4), "d"),
        ]);
        let changes = changes(&here, &there);
        let changes: Vec<_> = changes.iter().map(|(change, part)| (*change, &**part)).collect();
        assert_eq!(
            changes,
            [
                ("only here", "turn 1"),
                ("same", "running turn 2"),
                ("only there", "turn 3"),
                ("only there", "running turn 4"),
            ]
        );
    }

    #[test]
    fn what_was_recalled_is_not_taken_for_its_turn() {
        use ContextPartKind::{Recalled, Running, Turn};
        let here = view(vec![
            part(Turn, Some(1), "a"),
            part(Recalled, Some(2), "tea"),
            part(Running, Some(2), "b"),
        ]);
        let there = view(vec![part(Recalled, Some(1), "jam"), part(Running, Some(1), "a")]);
        let changes = changes(&here, &there);
        let changes: Vec<_> = changes.iter().map(|(change, part)| (*change, &**part)).collect();
        assert_eq!(
            changes,
            [
                ("same", "turn 1"),
                ("only here", "recalled for turn 2"),
                ("only here", "running turn 2"),
                ("only there", "recalled for turn 1"),
            ]
        );
    }

    #[test]
    fn a_request_is_summed_up_in_words() {
        let lines = head(&view(Vec::new())).join("\n");
        assert!(lines.contains("180 by the provider's count; 75% of them as in the call before"));
        assert!(!lines.contains("another request"));
        assert!(lines.contains("no cost is known: no limit held the call"), "{lines}");
        let cost = Some("0.0125".parse().unwrap());
        let view = ContextView { verified: false, cost, ..view(Vec::new()) };
        assert!(
            head(&view).contains(&"it cost 0.0125 USD by the prices in the journal".to_owned())
        );
        assert!(head(&view).join("\n").contains("another request"));
        assert!(
            placed("there", &view)[0].starts_with("there: call "),
            "{:?}",
            placed("there", &view)
        );
        assert_eq!(left_out(&view.left_out[0]), "left out: turns 1 to 4, because of no room");
        let mut part = part(ContextPartKind::Turn, Some(2), "b");
        part.stubs.push(ContextStub { calls: (1, 4), entry: 7 });
        let told = "ledger: entry 7 closed calls 1 to 4 of turn 2, and is shown in their place";
        assert_eq!(stubs(&part), [told]);
    }
}
