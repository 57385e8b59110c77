//! Public sets of questions, as their files are. They are under licences of their own, and never in this repository.

use std::{collections::BTreeSet, fs, path::Path};

use clawnode_bench::Error;
use clawnode_memory::store::{
    StoreScope,
    passage::{ConversationMessage, passages},
    quality::{QuestionSet, QuestionSort, SetConversation, SetQuestion},
};
use clawnode_proto::{EntityId, SessionKey, Timestamp, id::Kind, memory::MemoryTrust};
use serde_json::Value;

/// Conversations of `LoCoMo` on which the formula was chosen; they are not measured.
const SEEN: [&str; 2] = ["conv-26", "conv-30"];
/// `LoCoMo`'s questions without an answer.
const ADVERSARIAL: u64 = 5;

/// One message of a public set: what it is called there, who said it, whether that is an agent, and what was said.
struct Said {
    name: String,
    speaker: Option<String>,
    trust: MemoryTrust,
    text: String,
    /// Messages of the same part are beside each other.
    part: u64,
}

/// A conversation of a public set. Its messages have numbers from 1.
fn conversation(set: &str, name: &str, said: &[Said]) -> Result<SetConversation, Error> {
    let key: SessionKey = format!("bench:{set}:set:{name}").parse()?;
    let session = EntityId::derive(Kind::SESSION, &key.to_string());
    let (mut documents, mut next, mut part) = (Vec::new(), 0, 0);
    for (event, message) in (1..).zip(said) {
        if message.part != part {
            part = message.part;
            next += 1;
        }
        let message = ConversationMessage {
            event,
            speaker: message.speaker.as_deref(),
            trust: message.trust,
            at: Timestamp(event),
            text: &message.text,
        };
        let new = passages(session, next, &[message]);
        next = new.last().and_then(|last| last.position).map_or(next, |last| last + 1);
        documents.extend(new);
    }
    Ok(SetConversation { scope: StoreScope::of_session(&key), documents, superseded: Vec::new() })
}

/// The numbers of messages by their names in the set.
fn numbers(said: &[Said], names: &[String]) -> BTreeSet<u64> {
    let messages = (1..).zip(said).filter(|(_, message)| names.contains(&message.name));
    messages.map(|(number, _)| number).collect()
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field].as_array().map_or(&[], Vec::as_slice)
}

/// `LoCoMo`: two people over months. Its evidence is a list of names of messages; some have several in one text.
pub(crate) fn locomo_set(path: &Path) -> Result<QuestionSet, Error> {
    let all: Vec<Value> = serde_json::from_slice(&fs::read(path)?)?;
    let mut set = QuestionSet::default();
    for sample in all.iter().filter(|sample| !SEEN.contains(&text(sample, "sample_id"))) {
        let mut said = Vec::new();
        for part in 1.. {
            let session = format!("session_{part}");
            if sample["conversation"][format!("{session}_date_time")].is_null() {
                break;
            }
            said.extend(list(&sample["conversation"], &session).iter().map(|message| Said {
                name: text(message, "dia_id").to_owned(),
                speaker: Some(text(message, "speaker").to_owned()),
                trust: MemoryTrust::Person,
                text: text(message, "text").to_owned(),
                part,
            }));
        }
        let place = set.conversations.len();
        set.conversations.push(conversation("locomo", text(sample, "sample_id"), &said)?);
        for asked in list(sample, "qa").iter().filter(|asked| asked["category"] != ADVERSARIAL) {
            let evidence = list(asked, "evidence").iter().filter_map(Value::as_str);
            let names = evidence.flat_map(|names| names.split([' ', ';'])).map(str::to_owned);
            let relevant = numbers(&said, &names.collect::<Vec<_>>());
            let text = text(asked, "question").to_owned();
            let sort = QuestionSort::Public;
            set.questions.push(SetQuestion { conversation: place, sort, text, relevant });
        }
    }
    Ok(set)
}

/// The first chats of BEAM: a person and a model, about a project. Sources of its questions are numbers of messages, in
/// lists and tables.
pub(crate) fn beam_set(path: &Path, chats: usize) -> Result<QuestionSet, Error> {
    let mut set = QuestionSet::default();
    for number in 1..=chats {
        let folder = path.join(number.to_string());
        if !folder.exists() {
            break;
        }
        // Its questions are about the shorter one, where there are two.
        let cut = folder.join("chat_trunecated.json");
        let chat = if cut.exists() { cut } else { folder.join("chat.json") };
        let parts: Vec<Value> = serde_json::from_slice(&fs::read(chat)?)?;
        let turns = parts.iter().flat_map(|part| list(part, "turns"));
        let said: Vec<Said> = turns
            .filter_map(Value::as_array)
            .flatten()
            .map(|message| Said {
                name: message["id"].to_string(),
                speaker: None,
                trust: match text(message, "role") {
                    "user" => MemoryTrust::Person,
                    _ => MemoryTrust::Agent,
                },
                text: text(message, "content").to_owned(),
                part: 0,
            })
            .collect();
        set.conversations.push(conversation("beam", &number.to_string(), &said)?);
        let questions = folder.join("probing_questions").join("probing_questions.json");
        let questions: Value = serde_json::from_slice(&fs::read(questions)?)?;
        let kinds = questions.as_object().into_iter().flat_map(|kinds| kinds.values());
        for asked in kinds.filter_map(Value::as_array).flatten() {
            let mut names = Vec::new();
            sources(&asked["source_chat_ids"], &mut names);
            let relevant = numbers(&said, &names);
            let (conversation, sort) = (set.conversations.len() - 1, QuestionSort::Public);
            let text = text(asked, "question").to_owned();
            set.questions.push(SetQuestion { conversation, sort, text, relevant });
        }
    }
    Ok(set)
}

/// All numbers in a value, however deep.
fn sources(value: &Value, into: &mut Vec<String>) {
    match value {
        Value::Number(number) => into.push(number.to_string()),
        Value::Array(values) => values.iter().for_each(|value| sources(value, into)),
        Value::Object(values) => values.values().for_each(|value| sources(value, into)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sets_are_read_in_their_public_forms() {
        let folder = tempfile::tempdir().unwrap();
        let message = |id: &str, text: &str| json!({"dia_id": id, "speaker": "Ada", "text": text});
        let sample = |id: &str| {
            json!({
                "sample_id": id,
                "conversation": {
                    "session_1_date_time": "1 May", "session_2_date_time": "2 May",
                    "session_1": [message("D1:1", "one"), message("D1:2", "two")],
                    "session_2": [message("D2:1", "three")],
                },
                "qa": [
                    {"question": "q", "evidence": ["D1:2; D2:1"], "category": 1},
                    {"question": "none", "evidence": ["D1:1"], "category": 5},
                ],
            })
        };
        let path = folder.path().join("locomo10.json");
        fs::write(&path, json!([sample("conv-26"), sample("conv-41")]).to_string()).unwrap();
        let set = locomo_set(&path).unwrap();
        let positions: Vec<Option<u64>> =
            set.conversations[0].documents.iter().map(|document| document.position).collect();
        assert_eq!(positions, [Some(1), Some(2), Some(4)], "sessions are not beside each other");
        let relevant: Vec<&BTreeSet<u64>> =
            set.questions.iter().map(|question| &question.relevant).collect();
        assert_eq!(relevant, [&BTreeSet::from([2, 3])]);

        let chat = folder.path().join("1");
        fs::create_dir_all(chat.join("probing_questions")).unwrap();
        let turn = json!([{"id": 0, "role": "user", "content": "one"},
            {"id": 1, "role": "assistant", "content": "two ".repeat(200)}]);
        fs::write(chat.join("chat.json"), json!([{"turns": [turn]}]).to_string()).unwrap();
        let asked = json!({"abstention": [{"question": "a"}],
            "updates": [{"question": "b", "source_chat_ids": {"first": [0], "second": [[1]]}}]});
        let questions = chat.join("probing_questions").join("probing_questions.json");
        fs::write(questions, asked.to_string()).unwrap();
        let set = beam_set(folder.path(), 20).unwrap();
        assert_eq!(set.conversations[0].documents.len(), 3);
        assert_eq!(set.questions[1].relevant, BTreeSet::from([1, 2]));
        assert!(set.questions[0].relevant.is_empty());
        assert_eq!(beam_set(folder.path(), 0).unwrap().conversations.len(), 0);
    }
}
