//! `recall::quality` and `recall::search`: how well the local store finds what was said, and how long it takes.
//!
//! Quality is measured without a model, on the set that CI measures (40 people, 2,000 messages, 400 questions), and on
//! public sets in the folder `CLAWNODE_BENCH_SETS`, if they are there: `locomo10.json` of snap-research/locomo, and
//! `chats/100K` of mohammadtavakoli78/BEAM, which is BEAM-128K. They are under licences of their own, and never in this
//! repository. Run with `cargo run --release -p clawnode-bench --bin recall`.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use clap::Parser;
use clawnode_bench::{Error, Row, Speech, Table, percentile};
use clawnode_memory::store::{
    Document, DocumentBatch, DocumentId, DocumentKind, LocalStore, RecallQuery, StoreScope,
    passage::{ConversationMessage, passages},
    quality::{QuestionSet, QuestionSort, RecallFigures, SetConversation, SetQuestion, synthetic},
};
use clawnode_proto::{EntityId, SessionKey, Timestamp, id::Kind, memory::MemoryTrust};
use serde_json::Value;

/// The longest that a search of 10^5 documents may take in 99 of 100 cases, in milliseconds.
const SEARCH_MS: f64 = 25.0;
/// What the prototype of the formula reached: recall@10 and nDCG@10.
const LOCOMO: (f64, f64) = (0.64, 0.47);
const BEAM: (f64, f64) = (0.50, 0.40);
/// Conversations of `LoCoMo` on which the formula was chosen; they are not measured.
const SEEN: [&str; 2] = ["conv-26", "conv-30"];
/// `LoCoMo`'s questions without an answer.
const ADVERSARIAL: u64 = 5;
/// Documents of a batch while an index is filled.
const BATCH: usize = 1_000;

/// Measures how well the local store finds what was said, and how fast
#[derive(Debug, Parser)]
struct Args {
    /// Folder with public sets; those that it lacks are left out
    #[arg(long, env = "CLAWNODE_BENCH_SETS")]
    sets: Option<PathBuf>,
    /// Where the indexes go; a real disk
    #[arg(long, default_value = "target")]
    dir: PathBuf,
    /// Documents of the larger index
    #[arg(long, default_value_t = 100_000)]
    documents: usize,
    /// Searches that are timed
    #[arg(long, default_value_t = 1_000)]
    searches: usize,
    /// Numbers of a vector, where there are some
    #[arg(long, default_value_t = 384)]
    dimensions: usize,
}

fn main() -> Result<(), Error> {
    let args = Args::parse();
    let mut table = Table::default();
    synthetic(&args, &mut table)?;
    if let Some(sets) = &args.sets {
        let locomo = sets.join("locomo10.json");
        if locomo.exists() {
            public("locomo", &args, &locomo_set(&locomo)?, LOCOMO, &mut table)?;
        }
        let beam = sets.join("chats").join("100K");
        if beam.exists() {
            public("beam-128k", &args, &beam_set(&beam)?, BEAM, &mut table)?;
        }
    }
    for documents in [2_000, args.documents] {
        for dimensions in [0, args.dimensions] {
            timed(&args, documents, dimensions, &mut table)?;
        }
    }
    Ok(table.json()?)
}

fn synthetic(args: &Args, table: &mut Table) -> Result<(), Error> {
    let folder = tempfile::tempdir_in(&args.dir)?;
    let store = LocalStore::open(folder.path(), None)?;
    let set = synthetic::set();
    set.put(&store)?;
    let found = set.measure(&store)?;
    let row = quality("synthetic/all", found.all);
    table.add(row.figure("no_answer_separation", found.separation));
    for (sort, found) in found.of {
        table.add(quality(&format!("synthetic/{sort:?}"), found));
    }
    Ok(())
}

fn public(
    name: &str,
    args: &Args,
    set: &QuestionSet,
    (recall, ndcg): (f64, f64),
    table: &mut Table,
) -> Result<(), Error> {
    let folder = tempfile::tempdir_in(&args.dir)?;
    let store = LocalStore::open(folder.path(), None)?;
    set.put(&store)?;
    let found = set.measure(&store)?.all;
    let row = quality(name, found).at_least("recall@10", found.recall_10, recall);
    table.add(row.at_least("nDCG@10", found.ndcg_10, ndcg));
    Ok(())
}

fn quality(name: &str, found: RecallFigures) -> Row {
    Row::new(format!("recall::quality/{name}"))
        .figure("questions", f64::from(found.questions))
        .figure("recall_5", found.recall_5)
        .figure("recall_10", found.recall_10)
        .figure("recall_20", found.recall_20)
        .figure("ndcg_10", found.ndcg_10)
        .figure("mrr", found.mrr)
}

// === speed ===

/// Fills an index of so many passages, opens it again, and searches it.
fn timed(args: &Args, documents: usize, dimensions: usize, table: &mut Table) -> Result<(), Error> {
    let folder = tempfile::tempdir_in(&args.dir)?;
    let open =
        || LocalStore::open(folder.path(), (dimensions > 0).then_some(("bench", dimensions)));
    let session: SessionKey = "bench:speed:set:person".parse()?;
    let scope = StoreScope::of_session(&session);
    let entity = EntityId::derive(Kind::SESSION, &session.to_string());
    let mut speech = Speech::default();
    let store = open()?;
    let mut filling = Duration::ZERO;
    let numbers: Vec<u64> = (1..).take(documents).collect();
    for numbers in numbers.chunks(BATCH) {
        let document = |number: &u64| Document {
            id: DocumentId { entity, event: *number, part: 0 },
            kind: DocumentKind::Passage,
            text: speech.text(120),
            speaker: None,
            position: Some(*number),
            at: Timestamp(*number),
            importance: 5,
            trust: MemoryTrust::Person,
            embedding: speech.vector(dimensions),
        };
        let documents: Vec<Document> = numbers.iter().map(document).collect();
        let (after, upto) = (numbers[0] - 1, numbers[numbers.len() - 1]);
        let began = Instant::now();
        store.put_now(&scope, &DocumentBatch { after, upto, documents })?;
        filling += began.elapsed();
    }
    drop(store);
    let store = open()?;
    let began = Instant::now();
    store.upto_now(&scope)?;
    let loading = began.elapsed();
    let mut times = Vec::with_capacity(args.searches);
    for _ in 0..args.searches {
        let query = RecallQuery {
            embedding: speech.vector(dimensions),
            ..RecallQuery::new(speech.text(12))
        };
        let began = Instant::now();
        store.search_now(std::slice::from_ref(&scope), &query, 10)?;
        times.push(began.elapsed());
    }
    times.sort_unstable();
    let ms = |of_1000| percentile(&times, of_1000).as_secs_f64() * 1_000.0;
    let row = Row::new(format!("recall::search/documents={documents}/dimensions={dimensions}"))
        .figure("least_ms", ms(0))
        .figure("p50_ms", ms(500))
        .figure("p99_ms", ms(990))
        .figure("rebuild_s", filling.as_secs_f64())
        .figure("load_s", loading.as_secs_f64());
    table.add(row.at_most("p99", ms(990), SEARCH_MS));
    Ok(())
}

// === public sets ===

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
fn locomo_set(path: &Path) -> Result<QuestionSet, Error> {
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

/// BEAM: a person and a model, about a project. Sources of its questions are numbers of messages, in lists and tables.
fn beam_set(path: &Path) -> Result<QuestionSet, Error> {
    let mut set = QuestionSet::default();
    for number in 1.. {
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
        let set = beam_set(folder.path()).unwrap();
        assert_eq!(set.conversations[0].documents.len(), 3);
        assert_eq!(set.questions[1].relevant, BTreeSet::from([1, 2]));
        assert!(set.questions[0].relevant.is_empty());
    }
}
