//! The judge: what must hold after any kill, seen from outside.

use std::collections::{BTreeMap, BTreeSet};

use clawnode_proto::{
    llm::Role,
    session::TurnOutcome,
    view::{EventView, HistoryView, VerifyView},
};

use super::{Client, Home, Message, ProcessError};
use crate::model::Logged;

/// What the judge saw, for a test to say more about.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Turns that have ended.
    pub turns: usize,
    /// Model calls that were recorded.
    pub calls: usize,
    /// Requests to the model server, repeats included.
    pub requests: usize,
    /// Calls that were made again because a process died.
    pub lost: u32,
}

/// Judges the sessions of `messages`, each of which was accepted and is answered by now:
/// every message is in its session exactly once, in the order of `messages`, with exactly one
/// reply; no recorded reply was asked for again; each request was sent once; nothing was asked more
/// than once more than processes died.
pub async fn judge(
    client: &Client,
    messages: &[Message],
    asked: &[Logged],
    kills: u32,
) -> Result<Found, ProcessError> {
    let mut sessions: BTreeMap<String, Vec<&Message>> = BTreeMap::new();
    for message in messages {
        sessions.entry(message.session()).or_default().push(message);
    }
    let mut by_key: BTreeMap<&str, usize> = BTreeMap::new();
    for one in asked {
        *by_key.entry(one.key.as_deref().unwrap_or("none")).or_default() += 1;
    }
    if let Some((key, times)) = by_key.iter().find(|(_, times)| **times > 1) {
        return broken(format!("request `{key}` was sent {times} times"));
    }
    let mut found = Found { requests: asked.len(), ..Found::default() };
    for (session, messages) in &sessions {
        let history = client.history(session).await?;
        transcript(&history, messages)?;
        found.turns += history.turns.len();
        found.lost += history.turns.iter().map(|turn| turn.lost_attempts).sum::<u32>();
        found.calls += calls(client, session, &by_key, kills).await?;
    }
    Ok(found)
}

fn transcript(history: &HistoryView, messages: &[&Message]) -> Result<(), ProcessError> {
    let key = &history.key;
    let mut said = Vec::new();
    for turn in &history.turns {
        if !matches!(turn.outcome, Some(TurnOutcome::Completed { .. })) {
            return broken(format!("`{key}`: turn `{}` ended {:?}", turn.turn, turn.outcome));
        }
        let roles: Vec<Role> = turn.messages.iter().map(|message| message.role).collect();
        if roles != [Role::User, Role::Assistant] {
            return broken(format!("`{key}`: turn `{}` has {roles:?}", turn.turn));
        }
        let text = |at: usize| {
            let message = turn.messages.get(at);
            message.and_then(|one| one.content.inline()).unwrap_or_default()
        };
        if !text(1).starts_with(&format!("reply to: {}", text(0))) {
            return broken(format!("`{key}`: `{}` is answered `{}`", text(0), text(1)));
        }
        said.push(text(0));
    }
    let wanted: Vec<&str> = messages.iter().map(|message| message.content.as_str()).collect();
    if said == wanted {
        Ok(())
    } else {
        broken(format!("`{key}` has {said:?}, it was sent {wanted:?}"))
    }
}

/// The recorded calls of one session against what the server was asked.
async fn calls(
    client: &Client,
    session: &str,
    asked: &BTreeMap<&str, usize>,
    kills: u32,
) -> Result<usize, ProcessError> {
    let mut recorded: BTreeMap<String, u64> = BTreeMap::new();
    let mut begun: BTreeSet<String> = BTreeSet::new();
    let mut gave_way: BTreeMap<String, u64> = BTreeMap::new();
    for event in client.journal::<EventView>(session).await? {
        let call = event.body["call"].as_str().unwrap_or_default();
        let attempt = event.body["attempt"].as_u64().unwrap_or(0);
        match event.kind.as_str() {
            "model_begun" => drop(begun.insert(format!("{call}.{attempt}"))),
            "model_gave_way" => *gave_way.entry(call.to_owned()).or_default() += 1,
            "model_done" | "model_failed"
                if recorded.insert(call.to_owned(), attempt).is_some() =>
            {
                return broken(format!("call `{call}` has two outcomes"));
            }
            _ => {}
        }
    }
    for (call, attempt) in &recorded {
        let gave_way = gave_way.get(call).copied().unwrap_or_default();
        if *attempt > u64::from(kills) + gave_way + 1 {
            return broken(format!("call `{call}` took {attempt} attempts after {kills} kills"));
        }
        if !asked.contains_key(format!("{call}.{attempt}").as_str()) {
            return broken(format!("call `{call}` has an outcome that no model gave"));
        }
        let again = format!("{call}.{}", attempt + 1);
        if asked.contains_key(again.as_str()) || begun.contains(&again) {
            return broken(format!("call `{call}` was recorded, and asked for again"));
        }
    }
    Ok(recorded.len())
}

/// `clawnode journal verify` says that every journal is sound; returns how many there are.
pub async fn sound(home: &Home) -> Result<usize, ProcessError> {
    let ended = home.run(&["journal", "verify", "--json"]).await?;
    if ended.code != 0 {
        return broken(format!("the journals are not sound: {ended:?}"));
    }
    let verdict: VerifyView = serde_json::from_value(ended.json()?)
        .map_err(|error| ProcessError::Protocol(error.to_string()))?;
    if verdict.is_sound() {
        Ok(verdict.journals.len())
    } else {
        broken(format!("exit code 0, but not sound: {verdict:?}"))
    }
}

fn broken<T>(what: String) -> Result<T, ProcessError> {
    Err(ProcessError::Broken(what))
}
