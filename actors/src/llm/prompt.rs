//! The conversation in the form that every wire accepts: it begins and ends with the user, roles
//! alternate, nothing is empty, and every tool use is answered by the message after it.
//!
//! A turn that failed leaves two user messages in a row, and a model may have said nothing; some
//! vendors and many local chat templates refuse either. What cannot be repaired is not sent: the
//! vendors' own words for it are obscure.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use clawnode_proto::{
    Digest, ToolName,
    llm::{FailureClass, ModelFailure, Role},
    tool::ToolUse,
};
use serde::de::IgnoredAny;

use super::{PlainMedia, PlainMessage};

/// Between two messages of one role that become one.
const SEAM: &str = "\n\n";
/// Bytes of an id of a tool use that every wire takes; `OpenAI` has the lowest bound.
const ID_BYTES: usize = 40;

// === impl PlainMessage ===

impl PlainMessage {
    /// Words alone.
    pub fn text(role: Role, text: impl Into<String>) -> Self {
        let (media, tool_uses) = (Vec::new(), Vec::new());
        let (tool_replies, blocks) = (Vec::new(), Vec::new());
        Self { role, text: text.into(), media, tool_uses, tool_replies, blocks }
    }

    /// Whether it has nothing to say.
    pub fn is_blank(&self) -> bool {
        self.has_no_words()
            && self.media.is_empty()
            && self.tool_uses.is_empty()
            && self.tool_replies.is_empty()
    }

    fn has_no_words(&self) -> bool {
        self.text.trim().is_empty()
    }

    /// Says the other one as well.
    fn merge(&mut self, other: Self) {
        // Two replies in one are not what the model said (LLM-2).
        self.blocks.clear();
        let said = if other.has_no_words() { "" } else { other.text.as_str() };
        if self.has_no_words() {
            self.text.clear();
        }
        // What is no place in its text may not become one in a longer text.
        for media in &mut self.media {
            if media.place_in(&self.text) == 0 {
                media.about.at = None;
            }
        }
        if !(self.text.is_empty() || said.is_empty()) {
            self.text.push_str(SEAM);
        }
        let start = self.text.len();
        self.text.push_str(said);
        // Attachments without a place stay before all of the text, unless those beside them have one.
        let are_placed = other.media.iter().any(|media| media.about.at.is_some());
        let moved = |mut media: PlainMedia| {
            if are_placed {
                media.about.at = Some(start.saturating_add(media.place_in(said)) as u64);
            }
            media
        };
        self.media.extend(other.media.into_iter().map(moved));
        self.tool_uses.extend(other.tool_uses);
        self.tool_replies.extend(other.tool_replies);
    }
}

/// Merges neighbours of one role, leaves out what is blank, and makes ids fit for every wire.
pub(super) fn alternate(messages: Vec<PlainMessage>) -> Result<Vec<PlainMessage>, ModelFailure> {
    let mut kept: Vec<PlainMessage> = Vec::with_capacity(messages.len());
    for message in messages {
        match kept.last_mut() {
            _ if message.is_blank() => {}
            Some(last) if last.role == message.role => last.merge(message),
            Some(_) | None => kept.push(message),
        }
    }
    let is_user = |message: Option<&PlainMessage>| message.is_some_and(|m| m.role == Role::User);
    if !(is_user(kept.first()) && is_user(kept.last())) {
        return Err(not_sent("the conversation does not begin and end with a user's words"));
    }
    pair(&mut kept)?;
    Ok(kept)
}

/// A request that is not sent.
pub(super) fn not_sent(why: impl fmt::Display) -> ModelFailure {
    let message = format!("not sent: {why}");
    ModelFailure::new(FailureClass::Rejected, message)
}

/// Holds tool uses and their replies together, and gives the uses ids that every wire takes.
fn pair(messages: &mut [PlainMessage]) -> Result<(), ModelFailure> {
    let mut taken: BTreeSet<String> = BTreeSet::new();
    // The uses of the message before, and their ids on the wire.
    let mut open: BTreeMap<String, String> = BTreeMap::new();
    for (nth, message) in messages.iter_mut().enumerate() {
        let refuse = |what: &str| Err(not_sent(format_args!("message {} {what}", nth + 1)));
        if message.has_no_words() {
            message.text.clear();
        }
        if message.role == Role::User && !message.tool_uses.is_empty() {
            return refuse("calls a tool, but is from the user");
        }
        for reply in &mut message.tool_replies {
            match open.remove(&reply.id) {
                Some(id) => reply.id = id,
                None => return refuse("has a tool reply without a tool use"),
            }
        }
        if !open.is_empty() {
            return refuse("does not answer each tool use of the previous message");
        }
        for tool_use in &mut message.tool_uses {
            if !is_object(&tool_use.arguments) {
                return refuse("calls a tool with arguments that are not a JSON object");
            }
            let id = fit_id(nth, &tool_use.id, &taken);
            taken.insert(id.clone());
            let given = std::mem::replace(&mut tool_use.id, id.clone());
            if open.insert(given, id).is_some() {
                return refuse("has two tool uses with one id");
            }
            fit_name(tool_use);
        }
    }
    Ok(())
}

fn is_object(arguments: &str) -> bool {
    arguments.trim_start().starts_with('{') && serde_json::from_str::<IgnoredAny>(arguments).is_ok()
}

/// The id on the wire: the same if it can be. Another vendor's may be too long, and a local
/// server's may come again in each reply.
fn fit_id(nth: usize, id: &str, taken: &BTreeSet<String>) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let fits = (1..=ID_BYTES).contains(&id.len()) && id.bytes().all(plain);
    if fits && !taken.contains(id) {
        return id.to_owned();
    }
    let digest = Digest::of(format!("{nth}\0{id}").as_bytes()).to_string();
    format!("call_{}", digest.get(..32).unwrap_or(&digest))
}

/// A name on the wire: a model may have made one up that vendors refuse.
fn fit_name(tool_use: &mut ToolUse) {
    if tool_use.name.parse::<ToolName>().is_err() {
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
        let name: String = tool_use.name.chars().map(plain).take(ToolName::MAX).collect();
        tool_use.name = if name.is_empty() { "_".to_owned() } else { name };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::{PlainReply, media::tests::picture_at, ordered_parts::HeardPart};

    fn said(role: Role, text: &str) -> PlainMessage {
        PlainMessage::text(role, text)
    }

    /// An assistant that asks for tools with these ids.
    fn asks(ids: &[&str]) -> PlainMessage {
        let ask = |id: &&str| ToolUse {
            id: (*id).to_owned(),
            name: "get".to_owned(),
            arguments: "{}".to_owned(),
        };
        PlainMessage { tool_uses: ids.iter().map(ask).collect(), ..said(Role::Assistant, "") }
    }

    /// A user that answers them.
    fn answers(ids: &[&str], text: &str) -> PlainMessage {
        let answer = |id: &&str| PlainReply {
            id: (*id).to_owned(),
            text: "ok".to_owned(),
            is_error: false,
            media: Vec::new(),
        };
        PlainMessage { tool_replies: ids.iter().map(answer).collect(), ..said(Role::User, text) }
    }

    #[test]
    fn roles_alternate_and_nothing_is_lost() {
        let (user, model) = (Role::User, Role::Assistant);
        let merged = alternate(vec![
            said(user, "a"),
            said(model, " \n"),
            said(user, "b"),
            said(model, "c"),
            said(user, "d"),
        ]);
        assert_eq!(merged.unwrap(), [said(user, "a\n\nb"), said(model, "c"), said(user, "d")]);
    }

    #[test]
    fn attachments_keep_their_places_in_messages_that_become_one() {
        let with = |text: &str, places: &[Option<u64>]| {
            let media = places.iter().map(|at| {
                let mut picture = picture_at(0);
                picture.about.at = *at;
                picture
            });
            PlainMessage { media: media.collect(), ..said(Role::User, text) }
        };
        let merged = |messages: Vec<PlainMessage>| {
            let mut merged = alternate(messages).unwrap();
            assert_eq!(merged.len(), 1);
            let message = merged.remove(0);
            let show = |part: &HeardPart<'_>| match part {
                HeardPart::Text(text) => (*text).to_owned(),
                HeardPart::Media(_) => "picture".to_owned(),
            };
            message.heard().iter().map(show).collect::<Vec<_>>()
        };
        let one = || with("one", &[Some(3)]);
        let both = merged(vec![one(), with("two", &[None, Some(3)])]);
        assert_eq!(both, ["one", "picture", "picture", "two", "picture"]);
        // As before there were places.
        assert_eq!(
            merged(vec![said(Role::User, "one"), with("two", &[None])]),
            ["picture", "one\n\ntwo"]
        );
        // Those of a blank text, before and after.
        let (first, second) = (with(" ", &[Some(1)]), with("two", &[Some(3)]));
        assert_eq!(merged(vec![first.clone(), second]), ["picture", "two", "picture"]);
        assert_eq!(merged(vec![one(), first]), ["one", "picture", "picture"]);
        let past_the_end = with("one", &[Some(6)]);
        assert_eq!(merged(vec![past_the_end, said(Role::User, "two")]), ["picture", "one\n\ntwo"]);
    }

    #[test]
    fn a_conversation_without_a_question_is_not_sent() {
        for messages in [
            vec![],
            vec![said(Role::User, " ")],
            vec![said(Role::Assistant, "a"), said(Role::User, "b")],
            vec![said(Role::User, "a"), said(Role::Assistant, "b")],
            vec![said(Role::User, "a"), asks(&["1"])],
        ] {
            assert_eq!(alternate(messages).unwrap_err().class, FailureClass::Rejected);
        }
    }

    #[test]
    fn tool_parts_are_no_blanks_and_survive_a_merge() {
        let merged = alternate(vec![
            said(Role::User, "a"),
            said(Role::Assistant, "let me see"),
            asks(&["1"]),
            asks(&["2"]),
            answers(&["2"], " "),
            said(Role::User, "and?"),
            answers(&["1"], "well?"),
        ])
        .unwrap();
        let two = PlainMessage { text: "let me see".to_owned(), ..asks(&["1", "2"]) };
        assert_eq!(merged, [said(Role::User, "a"), two, answers(&["2", "1"], "and?\n\nwell?")]);
        let kept = alternate(vec![said(Role::User, "a"), asks(&["1"]), answers(&["1"], " ")]);
        assert_eq!(kept.unwrap()[2], answers(&["1"], ""), "and blank words are none");
    }

    #[test]
    fn tool_uses_and_replies_that_do_not_pair_are_not_sent() {
        let user = || said(Role::User, "a");
        let mut no_object = asks(&["1"]);
        no_object.tool_uses[0].arguments = r#"{"a":"#.to_owned();
        let not_the_users = PlainMessage { role: Role::User, ..asks(&["1"]) };
        for (messages, says) in [
            (vec![user(), asks(&["1"]), user()], "message 3 does not answer"),
            (vec![user(), asks(&["1", "2"]), answers(&["1"], "")], "message 3 does not answer"),
            (vec![answers(&["1"], "a")], "message 1 has a tool reply"),
            (vec![user(), asks(&["1"]), answers(&["1", "1"], "")], "message 3 has a tool reply"),
            (vec![user(), asks(&["1"]), answers(&["2"], "")], "message 3 has a tool reply"),
            (vec![user(), asks(&["1", "1"]), answers(&["1"], "")], "two tool uses with one id"),
            (vec![user(), no_object, answers(&["1"], "")], "not a JSON object"),
            (vec![not_the_users], "is from the user"),
        ] {
            let failure = alternate(messages).unwrap_err();
            assert_eq!(failure.class, FailureClass::Rejected);
            assert!(failure.message.starts_with("not sent: message "), "{}", failure.message);
            assert!(failure.message.contains(says), "{}", failure.message);
        }
    }

    #[test]
    fn ids_and_names_fit_every_wire_and_the_rest_stays() {
        let long = "x".repeat(41);
        let mut first = asks(&["call_0", &long, "a:b", ""]);
        for (tool_use, name) in first.tool_uses.iter_mut().zip(["get", "get weather", "", "é"]) {
            tool_use.name = name.to_owned();
        }
        let messages = vec![
            said(Role::User, "a"),
            first,
            answers(&["call_0", &long, "a:b", ""], ""),
            asks(&["call_0"]),
            answers(&["call_0"], ""),
        ];
        let sent = alternate(messages.clone()).unwrap();
        assert_eq!(alternate(messages).unwrap(), sent, "the same each time");
        let ids = |n: usize| sent[n].tool_uses.iter().map(|tool_use| tool_use.id.as_str());
        let all: BTreeSet<&str> = ids(1).chain(ids(3)).collect();
        assert_eq!(all.len(), 5, "ids do not repeat: {all:?}");
        assert!(all.iter().all(|id| fit_id(0, id, &BTreeSet::new()) == *id), "{all:?}");
        assert!(all.contains("call_0"), "a good id stays");
        for n in [1, 3] {
            let answered = sent[n + 1].tool_replies.iter().map(|reply| reply.id.as_str());
            assert!(answered.eq(ids(n)), "replies follow their ids");
        }
        let names = sent[1].tool_uses.iter().map(|tool_use| tool_use.name.as_str());
        assert!(names.eq(["get", "get_weather", "_", "_"]));
    }
}
