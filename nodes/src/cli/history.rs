//! What was said in a session, in words for people.

use clawnode_proto::{
    api::SessionsHistory,
    block::Block,
    llm::{Message, Role, Text, Usage},
    view::{HistoryView, TurnView},
};

use super::output::{clean, exact};

/// Turns of one page: the most that a node gives.
const PAGE: u32 = 1_000;

/// A whole history, page by page.
pub(super) async fn read_all<E>(
    session: &str,
    mut read: impl AsyncFnMut(SessionsHistory) -> Result<HistoryView, E>,
) -> Result<HistoryView, E> {
    let page = |cursor| SessionsHistory { session: session.to_owned(), cursor, limit: Some(PAGE) };
    let mut all = read(page(None)).await?;
    while let Some(cursor) = all.next.take() {
        let next = read(page(Some(cursor))).await?;
        all.turns.extend(next.turns);
        (all.state, all.next) = (next.state, next.next);
    }
    Ok(all)
}

/// The last `turns` turns.
pub(super) fn human(history: &HistoryView, turns: usize) -> String {
    let from = history.turns.len().saturating_sub(turns);
    let mut lines = vec![format!("{} ({})", exact(&history.key), history.state)];
    lines.extend(tokens(history.turns.iter().skip(from)));
    for turn in history.turns.iter().skip(from) {
        lines.push(String::new());
        lines.extend(messages(turn).map(|(who, said)| message(who, said)));
        lines.extend(node_status(turn, &history.key));
    }
    lines.join("\n")
}

/// What these turns used, if a provider's cache had a part in it.
fn tokens<'a>(turns: impl Iterator<Item = &'a TurnView>) -> Option<String> {
    let used = turns.fold(Usage::default(), |used, turn| used.plus(turn.usage));
    let Usage { input_tokens, output_tokens, .. } = used;
    let cached = used.cached_percent()?;
    Some(format!("tokens: {input_tokens} in, {cached}% of them cached; {output_tokens} out"))
}

/// A turn's messages, each with who said it: a note of the node's own is no word of a person.
pub(super) fn messages(turn: &TurnView) -> impl Iterator<Item = (&'static str, &Message)> {
    (0_u32..).zip(&turn.messages).map(|(at, said)| match said.role {
        Role::User if turn.notes.contains(&at) => ("note", said),
        Role::User => ("user", said),
        Role::Assistant => ("assistant", said),
    })
}

/// How a turn ended, or what it waits for; nothing for one that ended well.
fn node_status(turn: &TurnView, session: &str) -> Vec<String> {
    if let Some(outcome) = &turn.outcome {
        if outcome.name() == "completed" {
            return Vec::new();
        }
        let why = outcome.error().map(|error| format!(": {}", clean(&error.message)));
        return vec![format!("[{}{}]", outcome.name(), why.unwrap_or_default())];
    }
    let asks = turn.asks.iter();
    let mut lines: Vec<String> = asks
        .map(|call| format!("[waits for a person: `clawnode approvals approve {call}` or `deny`]"))
        .collect();
    if turn.wants_steps {
        let session = exact(session);
        lines.push(format!(
            "[has used all its steps and waits for a person: `clawnode sessions continue {session}`]"
        ));
    }
    if let Some(lane) = turn.lane.filter(|lane| !lane.is_usual()) {
        lines.push(format!("[in the lane `{}`]", lane.as_str()));
    }
    if turn.waits_until.is_some() {
        lines.push("[waits for its provider, which is not available]".to_owned());
    }
    if lines.is_empty() {
        lines.push("[running]".to_owned());
    }
    lines
}

/// A message, said by `who`.
pub(super) fn message(who: &str, said: &Message) -> String {
    let mut lines = Vec::new();
    let tools = !said.tool_uses.is_empty() || !said.tool_replies.is_empty();
    lines.extend(said.blocks.iter().flat_map(|blocks| &blocks.list).filter_map(
        |block| match block {
            Block::Thinking { text, .. } if text.bytes() > 0 => {
                Some(format!("thought: {}", words(text)))
            }
            _ => None,
        },
    ));
    // What tools answered has the role of a user, and no words.
    if !tools || said.content.inline() != Some("") {
        lines.push(format!("{who}: {}", words(&said.content)));
    }
    lines.extend(
        said.attachments.iter().map(|media| format!("attached: {}", clean(&media.to_string()))),
    );
    lines.extend(
        said.tool_uses.iter().map(|tool_use| {
            format!("tool: {} {}", exact(&tool_use.name), exact(&tool_use.arguments))
        }),
    );
    for reply in &said.tool_replies {
        let who = if reply.is_error { "failed" } else { "result" };
        lines.push(format!("{who}: {}", words(&reply.content)));
        let shown = reply.media.iter().map(|media| format!("shown: {}", clean(&media.to_string())));
        lines.extend(shown);
    }
    lines.join("\n")
}

fn words(content: &Text) -> String {
    match content {
        Text::Inline { text } => clean(text),
        Text::Blob { bytes, digest } => format!("[{bytes} bytes in blob {digest}]"),
    }
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{
        CallId, EntityId, Timestamp, TurnId,
        block::Blocks,
        session::TurnOutcome,
        tool::{ToolReply, ToolUse},
    };

    use super::*;

    #[test]
    fn what_tools_were_asked_and_said_is_shown() {
        let mut asking = Message::text(Role::Assistant, "I look.");
        asking.tool_uses.push(ToolUse {
            id: "1".to_owned(),
            name: "look".to_owned(),
            arguments: r#"{"at":1}"#.to_owned(),
        });
        assert_eq!(message("assistant", &asking), "assistant: I look.\ntool: look {\"at\":1}");
        let thought = Block::Thinking { text: "hm\u{1b}[2J".into(), signature: None };
        let model = "p/m".parse().unwrap();
        asking.blocks = Some(Blocks { model, list: vec![thought, Block::ToolUse {}] });
        let shown = message("assistant", &asking);
        assert!(shown.starts_with("thought: hm") && shown.contains("\nassistant: I look.\n"));
        assert!(!shown.contains('\u{1b}'), "{shown:?}");
        let mut answering = Message::text(Role::User, "");
        let reply = |text: &str, is_error| ToolReply {
            id: "1".to_owned(),
            content: text.into(),
            is_error,
            media: Vec::new(),
        };
        answering.tool_replies = vec![reply("a cat", false), reply("no\u{1b}[2J dog", true)];
        let shown = message("user", &answering);
        assert!(shown.starts_with("result: a cat\nfailed: no"), "{shown}");
        assert!(!shown.contains('\u{1b}'), "{shown:?}");
        assert_eq!(message("user", &Message::text(Role::User, "")), "user: ");
    }

    fn shown(turn: TurnView) -> String {
        human(
            &HistoryView {
                id: EntityId::from_u128(1),
                key: "default:cli:local:ada".to_owned(),
                state: "waiting".to_owned(),
                turns: vec![turn],
                next: None,
            },
            9,
        )
    }

    fn turn(outcome: Option<TurnOutcome>) -> TurnView {
        TurnView {
            turn: TurnId::from_u128(1),
            messages: vec![Message::text(Role::User, "hi"), Message::text(Role::User, "Not so.")],
            outcome,
            usage: Usage::default(),
            lost_attempts: 0,
            asks: Vec::new(),
            wants_steps: false,
            waits_until: None,
            lane: None,
            notes: vec![1],
            structured: None,
        }
    }

    #[test]
    fn a_note_to_the_model_is_no_word_of_the_person() {
        let text = shown(turn(None));
        assert!(text.ends_with("\nuser: hi\nnote: Not so.\n[running]"), "{text}");
    }

    #[test]
    fn the_share_of_a_provider_s_cache_is_shown_where_there_is_one() {
        let used = |cache_read_tokens, cache_write_tokens| Usage {
            input_tokens: 1_000,
            output_tokens: 7,
            cache_read_tokens,
            cache_write_tokens,
            ..Usage::default()
        };
        let second = |usage| {
            let text = shown(TurnView { usage, ..turn(None) });
            text.lines().nth(1).unwrap().to_owned()
        };
        assert_eq!(second(used(915, 80)), "tokens: 1000 in, 91% of them cached; 7 out");
        assert_eq!(second(used(0, 80)), "tokens: 1000 in, 0% of them cached; 7 out");
        assert_eq!(second(used(0, 0)), "", "not every provider has a cache");
    }

    #[test]
    fn a_turn_that_waits_names_the_command_it_waits_for() {
        let call = CallId::from_u128(7);
        let text = shown(TurnView { asks: vec![call], ..turn(None) });
        let line = format!("[waits for a person: `clawnode approvals approve {call}` or `deny`]");
        assert!(text.ends_with(&line) && !text.contains("[running]"), "{text}");
        let text = shown(TurnView { waits_until: Some(Timestamp(1)), ..turn(None) });
        assert!(text.ends_with("[waits for its provider, which is not available]"), "{text}");
        let text = shown(TurnView { wants_steps: true, ..turn(None) });
        assert!(text.ends_with("`clawnode sessions continue default:cli:local:ada`]"), "{text}");
    }

    #[test]
    fn a_turn_that_failed_says_why() {
        let stopped = TurnOutcome::Stopped { detail: "by\u{1b} ada".to_owned() };
        let text = shown(turn(Some(stopped)));
        assert!(text.ends_with("[stopped: the turn was stopped: by\\u{1b} ada]"), "{text}");
        assert!(shown(turn(Some(TurnOutcome::Cancelled))).ends_with("[cancelled]"));
    }
}
