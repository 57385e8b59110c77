//! The messages of a request: what is new in them, what is past, and which results they bring.

use std::collections::{BTreeMap, BTreeSet};

use clawnode_proto::{
    CallId, EntityId, ErrorBody, ErrorCode,
    limits::ATTACHMENTS,
    llm::{Message, Role},
    session::UserMessage,
    tool::{ToolReply, ToolUse},
};
use serde_json::{Map, Value};

use super::{
    super::{
        attachments::check_count,
        backend::{AttachmentSource, NewAttachment},
        error::OpenAiError,
    },
    message_parts::{MessageContent, PlacedAttachment, about, check_fields},
    tools::{self, short},
};

/// Attachments of all messages of one request: those of eight full messages.
pub(super) const REQUEST_ATTACHMENTS: usize = 8 * ATTACHMENTS;

/// A message of the conversation, by who says it, and its place in the request.
pub(in super::super) struct RequestMessage {
    pub(in super::super) at: usize,
    pub(in super::super) said: Said,
}

pub(in super::super) enum Said {
    System(String),
    User(MessageContent),
    Assistant {
        text: String,
        calls: Vec<ToolUse>,
    },
    /// The result of a tool call.
    Tool {
        id: String,
        content: MessageContent,
        /// The tool has failed.
        is_error: bool,
    },
}

/// A message, and what the node attaches to it.
pub(in super::super) type NewMessage = (UserMessage, Vec<NewAttachment>);

/// The results of tool calls that a request ends with, and the session that waits for them.
#[derive(Debug)]
pub(super) struct BroughtResults {
    pub(super) session: EntityId,
    pub(super) results: Vec<(CallId, String)>,
    pub(super) attachments: Vec<(CallId, AttachmentSource)>,
}

/// The conversation without its system messages, and those, joined.
pub(super) fn conversation(
    fields: &Map<String, Value>,
) -> Result<(Vec<RequestMessage>, Option<String>), OpenAiError> {
    let Some(Value::Array(messages)) = fields.get("messages") else {
        return Err(OpenAiError::invalid("messages", "`messages` is not a list of messages"));
    };
    let (mut said, mut system) = (Vec::new(), Vec::new());
    for (at, message) in messages.iter().enumerate() {
        match said_in(at, message)? {
            Said::System(text) => system.push(text),
            other => said.push(RequestMessage { at, said: other }),
        }
    }
    check_pairs(&said)?;
    let system = (!system.is_empty()).then(|| system.join("\n\n"));
    Ok((said, system))
}

/// Each call of a tool has a result, and each result a call before it.
pub(in super::super) fn check_pairs(said: &[RequestMessage]) -> Result<(), OpenAiError> {
    // The calls without a result, and the place of their message.
    let mut open: BTreeMap<&str, usize> = BTreeMap::new();
    let missing = |open: &BTreeMap<&str, usize>| match open.first_key_value() {
        None => Ok(()),
        Some((id, at)) => {
            let what = format!("the tool call `{}` has no result", short(id));
            Err(OpenAiError::invalid(format!("messages[{at}].tool_calls"), what))
        }
    };
    for RequestMessage { at, said } in said {
        match said {
            Said::Tool { id, .. } => {
                if open.remove(id.as_str()).is_none() {
                    let id = short(id);
                    let what = format!("no message before it has an open tool call `{id}`");
                    let path = format!("messages[{at}].tool_call_id");
                    return Err(OpenAiError::invalid(path, what));
                }
            }
            Said::System(_) => {}
            Said::User(_) => missing(&open)?,
            Said::Assistant { calls, .. } => {
                missing(&open)?;
                for (nth, call) in calls.iter().enumerate() {
                    if open.insert(&call.id, *at).is_some() {
                        let what = format!("two tool calls have the id `{}`", short(&call.id));
                        let path = format!("messages[{at}].tool_calls[{nth}].id");
                        return Err(OpenAiError::invalid(path, what));
                    }
                }
            }
        }
    }
    missing(&open)
}

/// The results that the messages end with, if they do.
pub(super) fn brought(said: &[RequestMessage]) -> Result<Option<BroughtResults>, OpenAiError> {
    let (mut session, mut results, mut attachments) = (None, Vec::new(), Vec::new());
    for RequestMessage { at, said } in said.iter().rev() {
        let Said::Tool { id, content, .. } = said else { break };
        let invalid =
            |what: String| Err(OpenAiError::invalid(format!("messages[{at}].tool_call_id"), what));
        let Some((call, call_session)) = tools::call_of(id) else {
            let id = short(id);
            return invalid(format!(
                "`{id}` is not the id of a tool call of this server; send its id unchanged"
            ));
        };
        if *session.get_or_insert(call_session) != call_session {
            return invalid("the results belong to tool calls of two sessions".to_owned());
        }
        results.push((call, content.text.clone()));
        attachments.extend(content.attachments.iter().map(|one| (call, one.source.clone())));
    }
    check_attachments(attachments.len())?;
    results.reverse();
    Ok(session.map(|session| BroughtResults { session, results, attachments }))
}

/// Those of the results that the messages end with whose tools have failed.
pub(super) fn failed(said: &[RequestMessage]) -> BTreeSet<CallId> {
    let results = said.iter().rev().map_while(|message| match &message.said {
        Said::Tool { id, is_error, .. } => Some((id, is_error)),
        _ => None,
    });
    let failed = results.filter(|(_, is_error)| **is_error);
    failed.filter_map(|(id, _)| tools::call_of(id)).map(|(call, _)| call).collect()
}

/// With `user`: the session knows what was said before the last reply.
pub(super) fn message_of_known_session(
    said: Vec<RequestMessage>,
) -> Result<NewMessage, OpenAiError> {
    let mut fresh = Vec::new();
    for RequestMessage { at, said } in said.into_iter().rev() {
        match said {
            Said::User(content) => fresh.push(content),
            Said::Assistant { .. } => break,
            Said::Tool { .. } => {
                let what = "send the results of tools alone, and this message after the reply";
                return Err(OpenAiError::unsupported(format!("messages[{}]", at + 1), what));
            }
            Said::System(_) => {}
        }
    }
    if fresh.is_empty() {
        return Err(not_last());
    }
    fresh.reverse();
    let mut all = MessageContent::default();
    for content in fresh {
        all.append(content);
    }
    check_count(all.attachments.len()).map_err(|error| about("messages", error))?;
    Ok((UserMessage::text(all.text), attached(all.attachments, None).collect()))
}

/// Without `user`: all that was said before the last message is the new session's past.
pub(super) fn message_of_fresh_session(
    mut said: Vec<RequestMessage>,
) -> Result<NewMessage, OpenAiError> {
    let Some(RequestMessage { said: Said::User(last), .. }) = said.pop() else {
        return Err(not_last());
    };
    let (mut history, mut attachments) = (Vec::<Message>::new(), Vec::new());
    for RequestMessage { said, .. } in said {
        match said {
            Said::User(content) => {
                attachments.extend(attached(content.attachments, Some(history.len())));
                history.push(Message::text(Role::User, content.text));
            }
            Said::Assistant { text, calls } => {
                history.push(Message { tool_uses: calls, ..Message::text(Role::Assistant, text) });
            }
            Said::Tool { id, content, is_error } => {
                let (content, sources) = (content.text.into(), content.attachments);
                let reply = ToolReply { id, content, is_error, media: Vec::new() };
                match history.last_mut() {
                    Some(last) if !last.tool_replies.is_empty() => last.tool_replies.push(reply),
                    Some(_) | None => {
                        let tool_replies = vec![reply];
                        history.push(Message { tool_replies, ..Message::text(Role::User, "") });
                    }
                }
                // They follow all results of their message.
                let shown = attached(sources, history.len().checked_sub(1));
                attachments.extend(shown.map(|one| NewAttachment { at: None, ..one }));
            }
            Said::System(_) => {}
        }
    }
    attachments.extend(attached(last.attachments, None));
    check_attachments(attachments.len())?;
    Ok((UserMessage { history, ..UserMessage::text(last.text) }, attachments))
}

fn check_attachments(found: usize) -> Result<(), OpenAiError> {
    if found <= REQUEST_ATTACHMENTS {
        return Ok(());
    }
    let what = format!("the messages have {found} attachments, the limit is {REQUEST_ATTACHMENTS}");
    Err(about("messages", ErrorBody::new(ErrorCode::InvalidParams, what)))
}

fn attached(
    placed: Vec<PlacedAttachment>,
    history: Option<usize>,
) -> impl Iterator<Item = NewAttachment> {
    placed.into_iter().map(move |PlacedAttachment { at, source }| NewAttachment {
        history,
        at,
        source,
    })
}

fn not_last() -> OpenAiError {
    OpenAiError::invalid("messages", "the last of `messages` is not from `user` or `tool`")
}

/// The fields of a message that are read, and those that clients send back as they got them.
fn fields_of(role: &str) -> &'static [&'static str] {
    match role {
        // The session has the thoughts of its own turns, and a model gets those of no other conversation.
        "assistant" => &[
            "role",
            "content",
            "tool_calls",
            "reasoning_content",
            "annotations",
            "function_call",
            "audio",
        ],
        // `name` is the tool's, which the call names too.
        "tool" => &["role", "content", "tool_call_id", "name"],
        _ => &["role", "content"],
    }
}

fn said_in(at: usize, message: &Value) -> Result<Said, OpenAiError> {
    let path = |field: &str| format!("messages[{at}].{field}");
    let is_empty = |value: &Value| value.as_array().is_some_and(Vec::is_empty);
    for field in ["function_call", "audio"] {
        if message.get(field).is_some_and(|value| !value.is_null() && !is_empty(value)) {
            return Err(OpenAiError::unsupported(path(field), format!("`{field}` is not offered")));
        }
    }
    let content = || MessageContent::read(&path("content"), message.get("content"));
    let text = || {
        let MessageContent { text, attachments } = content()?;
        if attachments.is_empty() {
            return Ok(text);
        }
        let message = "only messages of role `user` and `tool` have attachments";
        Err(OpenAiError::unsupported(path("content"), message))
    };
    let role = message.get("role").and_then(Value::as_str);
    if let Some(role @ ("system" | "developer" | "user" | "assistant" | "tool")) = role {
        check_fields(&format!("messages[{at}]"), message, fields_of(role))?;
    }
    match role {
        Some("system" | "developer") => Ok(Said::System(text()?)),
        Some("user") => {
            let content = content()?;
            if content.text.is_empty() && content.attachments.is_empty() {
                return Err(OpenAiError::invalid(path("content"), "a user message is empty"));
            }
            Ok(Said::User(content))
        }
        Some("assistant") => {
            let calls = tools::made(at, message)?;
            // What only calls says nothing.
            let is_silent = message.get("content").is_none_or(Value::is_null);
            let text = if is_silent && !calls.is_empty() { String::new() } else { text()? };
            Ok(Said::Assistant { text, calls })
        }
        Some("tool") => {
            let id = message.get("tool_call_id").and_then(Value::as_str);
            let missing =
                || OpenAiError::invalid(path("tool_call_id"), "`tool_call_id` is missing");
            let id = id.ok_or_else(missing)?.to_owned();
            Ok(Said::Tool { id, content: content()?, is_error: false })
        }
        Some(role @ "function") => {
            let what = format!("messages of role `{role}` are not offered, send `tool`");
            Err(OpenAiError::unsupported(path("role"), what))
        }
        Some(role) => {
            let role = short(role);
            Err(OpenAiError::invalid(path("role"), format!("there is no role `{role}`")))
        }
        None => Err(OpenAiError::invalid(path("role"), "`role` is missing")),
    }
}
