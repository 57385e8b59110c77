//! Which conversation the chat is: a new one, the last, or one that is named.
//!
//! Each is a session `AGENT:cli:local:USER~TIME`. The prefix before the time is the user's name, so
//! a binding of that user holds for all their conversations.

use clawnode_proto::{
    AgentName, SessionKey, Timestamp, TurnId,
    api::{CONVERSATION, ChatSend, SendMode, SessionsList, calls},
    llm::Role,
    view::{HistoryView, SessionRow, TurnView},
};

use crate::{
    cli::{history, output::time},
    client::NodeClient,
    config::Env,
    failure::Failure,
};

/// Where the chat's messages come from.
const CHANNEL: &str = "cli";
/// Our side of that.
const ACCOUNT: &str = "local";
/// Longest name of a peer that is made of the user's name.
const PEER_CHARS: usize = 64;
/// Sessions of terminals among which the user's conversations are looked for.
const LOOKED_AT: u32 = 200;
/// Characters of a title.
const TITLE_CHARS: usize = 60;
/// Turns at the end of a session among which open ones are looked for.
const OPEN_TURNS: usize = 64;

/// Where the next message of the chat goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Conversation {
    /// One that no message was stored in yet.
    New { user: String, name: String, agent: Option<AgentName> },
    /// One that there is, or that is named.
    Known(SessionKey),
}

/// A turn that has not ended.
#[derive(Clone, Debug)]
pub(super) struct OpenTurn {
    pub session: SessionKey,
    pub turn: TurnId,
    /// What was said.
    pub said: String,
}

// === impl Conversation ===

impl Conversation {
    /// A new one with the user of this environment.
    pub(super) fn begin(user: &str, agent: Option<AgentName>) -> Self {
        let id = ulid::Ulid::generate();
        // `2026-11-23T19:41:28Z` without its signs.
        let now = time(Timestamp(id.timestamp_ms()));
        let digits: String = now.chars().filter(char::is_ascii_digit).collect();
        let (day, clock) = digits.split_at_checked(8).unwrap_or((&digits, ""));
        let end: String = id.to_string().to_lowercase().chars().rev().take(3).collect();
        Self::New { user: user.to_owned(), name: format!("{day}-{clock}-{end}"), agent }
    }

    /// Its session, once that is known.
    pub(super) const fn key(&self) -> Option<&SessionKey> {
        match self {
            Self::Known(key) => Some(key),
            Self::New { .. } => None,
        }
    }

    /// Its session, also before a message was stored in it, where its agent is known.
    pub(super) fn would_be(&self) -> Option<SessionKey> {
        match self {
            Self::Known(key) => Some(key.clone()),
            Self::New { user, name, agent } => {
                let agent = agent.clone()?;
                format!("{agent}:{CHANNEL}:{ACCOUNT}:{user}{CONVERSATION}{name}").parse().ok()
            }
        }
    }

    /// Its agent, where that is known before the first answer.
    pub(super) const fn agent(&self) -> Option<&AgentName> {
        match self {
            Self::Known(key) => Some(&key.agent),
            Self::New { agent, .. } => agent.as_ref(),
        }
    }

    /// A message in it.
    pub(super) fn say(&self, content: String) -> ChatSend {
        let mut say = ChatSend {
            channel: CHANNEL.to_owned(),
            account: ACCOUNT.to_owned(),
            peer: String::new(),
            conversation: None,
            attachments: Vec::new(),
            content,
            guild: None,
            team: None,
            agent: self.agent().map(ToString::to_string),
            model: None,
            idempotency_key: Some(ulid::Ulid::generate().to_string()),
            mode: SendMode::Turn,
            reasoning: None,
            response_schema: None,
            keep: Vec::new(),
            lane: None,
        };
        match self {
            Self::New { user, name, .. } => {
                say.peer.clone_from(user);
                say.conversation = Some(name.clone());
            }
            Self::Known(key) => {
                say.channel = key.channel.to_string();
                say.account = key.account.to_string();
                let peer = key.peer.as_str();
                let (peer, name) = match peer.split_once(CONVERSATION) {
                    Some((peer, name)) => (peer, Some(name.to_owned())),
                    None => (peer, None),
                };
                peer.clone_into(&mut say.peer);
                say.conversation = name;
            }
        }
        say
    }
}

/// The other side of the chat: the user's name, as far as a session key may hold it.
pub(super) fn user(env: &Env) -> String {
    let name = env.get("USER").or_else(|| env.get("LOGNAME")).unwrap_or_default();
    let safe = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    let peer: String = name.chars().take(PEER_CHARS).map(safe).collect();
    if peer.is_empty() { "user".to_owned() } else { peer }
}

/// Whether this is a conversation of the user at a terminal.
fn is_of(key: &SessionKey, user: &str, agent: Option<&AgentName>) -> bool {
    let here = key.channel.as_str() == CHANNEL && key.account.as_str() == ACCOUNT;
    let peer = key.peer.as_str();
    // No user's name has the sign in it.
    let theirs =
        peer == user || peer.strip_prefix(user).is_some_and(|rest| rest.starts_with(CONVERSATION));
    here && theirs && agent.is_none_or(|agent| *agent == key.agent)
}

/// The user's conversations, the latest first; among the latest [`LOOKED_AT`] that terminals have.
pub(super) async fn recent(
    client: &NodeClient,
    user: &str,
    agent: Option<&AgentName>,
) -> Result<Vec<(SessionKey, SessionRow)>, Failure> {
    let wanted = SessionsList {
        limit: Some(LOOKED_AT),
        channel: Some(CHANNEL.to_owned()),
        agent: agent.map(ToString::to_string),
        ..SessionsList::default()
    };
    let page = client.call(calls::SessionsList, &wanted).await?;
    let of_user = |row: SessionRow| {
        let key = row.key.as_ref()?.parse::<SessionKey>().ok()?;
        is_of(&key, user, agent).then_some((key, row))
    };
    Ok(page.sessions.into_iter().filter_map(of_user).collect())
}

/// What was said in a session.
pub(super) async fn history(client: &NodeClient, session: &str) -> Result<HistoryView, Failure> {
    let read = async |page| client.call(calls::SessionsHistory, &page).await;
    Ok(history::read_all(session, read).await?)
}

/// The turns of a session that have not ended, in order.
pub(super) fn open(session: &SessionKey, history: &HistoryView) -> Vec<OpenTurn> {
    let from = history.turns.len().saturating_sub(OPEN_TURNS);
    let turns = history.turns.iter().skip(from).filter(|turn| turn.outcome.is_none());
    turns
        .map(|open| OpenTurn {
            session: session.clone(),
            turn: open.turn,
            said: said(open).to_owned(),
        })
        .collect()
}

/// What a person said in a turn.
pub(super) fn said(turn: &TurnView) -> &str {
    let by_user = turn
        .messages
        .iter()
        .find(|message| message.role == Role::User && message.tool_replies.is_empty());
    by_user.and_then(|message| message.content.inline()).unwrap_or_default()
}

/// The reply of a turn.
pub(super) fn reply(turn: &TurnView) -> &str {
    let last = turn.messages.iter().rev().find(|message| message.role == Role::Assistant);
    last.and_then(|message| message.content.inline()).unwrap_or_default()
}

/// The beginning of a message, in a line.
pub(super) fn title(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().take(TITLE_CHARS).collect();
    let line = words.join(" ");
    match line.char_indices().nth(TITLE_CHARS) {
        Some((at, _)) => format!("{}…", line.get(..at).unwrap_or_default()),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_a_part_of_a_session_key() {
        for (name, expected) in
            [("ada", "ada"), ("", "user"), ("a:b c\n", "a_b_c_"), ("jos\u{e9}", "jos_")]
        {
            let user = user(&Env::from([("USER", name)]));
            assert_eq!(user, expected);
            assert!(user.parse::<clawnode_proto::id::KeyPart>().is_ok());
        }
        assert_eq!(user(&Env::default()), "user");
    }

    #[test]
    fn a_new_conversation_is_its_users_and_no_others() {
        let new = Conversation::begin("ada", None);
        let say = new.say("hi".to_owned());
        assert_eq!((say.peer.as_str(), say.agent), ("ada", None));
        let name = say.conversation.unwrap();
        let key = format!("default:cli:local:ada~{name}").parse::<SessionKey>().unwrap();
        assert!(is_of(&key, "ada", None), "{key}");
        assert!(
            !is_of(&key, "ad", None)
                && !is_of(&key, &format!("ada~{name}"), Some(&"ops".parse().unwrap()))
        );
        for (key, is) in [
            ("default:cli:local:ada", true),
            ("default:cli:local:ada.lovelace", false),
            ("default:web:local:ada", false),
        ] {
            assert_eq!(is_of(&key.parse().unwrap(), "ada", None), is, "{key}");
        }
        let agent = Some("default".parse().unwrap());
        assert_eq!(new.would_be(), None, "bindings choose its agent");
        let named = Conversation::New { user: "ada".to_owned(), name: name.clone(), agent };
        assert_eq!(named.would_be(), Some(key.clone()));
        let say = Conversation::Known(key).say("on".to_owned());
        assert_eq!((say.peer.as_str(), say.conversation), ("ada", Some(name)));
        assert_eq!(say.agent.as_deref(), Some("default"), "a binding that changed moves nothing");
    }

    #[test]
    fn a_title_is_a_line() {
        assert_eq!(title("  what\n is\tthis? "), "what is this?");
        assert_eq!(title(&"x".repeat(100)).chars().count(), TITLE_CHARS + 1);
    }
}
