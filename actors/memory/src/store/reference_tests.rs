//! The index beside a naive search that reads every document, word by word.
#![expect(clippy::cast_precision_loss, reason = "numbers of words are far below 2^52")]

use std::collections::{BTreeMap, BTreeSet};

use clawnode_proto::memory::{MemoryLayer, MemoryTrust};
use proptest::{collection::vec, option, prelude::*, sample::select};

use super::{
    conformance::{DIMENSIONS, memory, point},
    vectors::in_bytes,
    *,
};

const WORDS: [&str; 12] = [
    "red",
    "blue",
    "house",
    "houses",
    "garden",
    "river",
    "boat",
    "柏林",
    "住在柏林",
    "the",
    "Ada's",
    "walking",
];
/// Keys that begin alike, or that are parts of each other.
const KEYS: [&str; 5] =
    ["a/peer/web:bot:ada", "a/peer/web:bot:ad", "a/all", "shared/a", "shared/ada"];

#[derive(Clone, Debug)]
enum Change {
    Put(usize, Box<Document>),
    Mask(usize, u64),
    Reopen,
}

/// What the naive search knows.
#[derive(Default)]
struct Model {
    documents: BTreeMap<(usize, u64), Document>,
    masked: BTreeSet<(usize, u64)>,
}

fn text() -> impl Strategy<Value = String> {
    vec(select(&WORDS[..]), 1..8).prop_map(|words| words.join(" "))
}

fn vector() -> impl Strategy<Value = Option<Vec<f32>>> {
    option::of(vec(-1.0_f32..1.0, DIMENSIONS))
}

fn trust() -> impl Strategy<Value = MemoryTrust> {
    select(&[MemoryTrust::Tool, MemoryTrust::Agent, MemoryTrust::Person, MemoryTrust::Operator][..])
}

fn change() -> impl Strategy<Value = Change> {
    let kind = select(
        &[
            DocumentKind::Passage,
            DocumentKind::Point(MemoryLayer::Semantic),
            DocumentKind::Point(MemoryLayer::Episode),
        ][..],
    );
    let rest = (option::of(0_u64..8), option::of(Just("Ada".to_owned())), vector());
    let document = (1_u64..20, text(), kind, trust(), 0_u8..12, rest).prop_map(
        |(event, text, kind, trust, importance, (position, speaker, embedding))| Document {
            kind,
            speaker,
            position,
            importance,
            trust,
            embedding,
            ..point(event, &text)
        },
    );
    prop_oneof![
        20 => (0..KEYS.len(), document).prop_map(|(key, document)| Change::Put(key, Box::new(document))),
        2 => (0..KEYS.len(), 1_u64..20).prop_map(|(key, event)| Change::Mask(key, event)),
        1 => Just(Change::Reopen),
    ]
}

fn query() -> impl Strategy<Value = RecallQuery> {
    let layers = select(vec![vec![], vec![MemoryLayer::Semantic], vec![MemoryLayer::Episode]]);
    (text(), vector(), layers, any::<bool>(), trust(), any::<bool>()).prop_map(
        |(text, embedding, layers, passages, least_trust, all)| {
            let query = RecallQuery { embedding, ..RecallQuery::new(text) };
            if all {
                return query;
            }
            RecallQuery { layers: layers.into_iter().collect(), passages, least_trust, ..query }
        },
    )
}

impl Model {
    /// The score of every document that fits, counted as the book says.
    #[expect(clippy::too_many_lines, reason = "one formula, to be read from the top down")]
    fn search(&self, keys: &BTreeSet<usize>, query: &RecallQuery) -> BTreeMap<(usize, u64), f64> {
        let admits = |document: &Document| {
            let kind = match document.kind {
                DocumentKind::Passage => query.passages,
                DocumentKind::Point(layer) => query.layers.contains(&layer),
            };
            kind && document.trust >= query.least_trust
        };
        let all: Vec<(&(usize, u64), &Document, Vec<String>)> = (self.documents.iter())
            .filter(|((key, _), document)| keys.contains(key) && admits(document))
            .map(|(id, document)| {
                let said =
                    format!("{} {}", document.speaker.clone().unwrap_or_default(), document.text);
                (id, document, words::words(&said))
            })
            .collect();
        let n = all.len() as f64;
        let mean = all.iter().map(|(_, _, words)| words.len() as f64).sum::<f64>() / n.max(1.0);
        let mut asked: Vec<String> = Vec::new();
        for word in words::words(&query.text) {
            if !asked.contains(&word) {
                asked.push(word);
            }
        }
        let bm25 = |words: &Vec<String>| -> f64 {
            let each = asked.iter().map(|word| {
                let having = all.iter().filter(|(_, _, other)| other.contains(word)).count() as f64;
                let idf = (1.0 + (n - having + 0.5) / (having + 0.5)).ln();
                let times = words.iter().filter(|other| *other == word).count() as f64;
                let length = words.len() as f64 / mean.max(1.0);
                idf * times * 2.2 / (times + 1.2 * (0.25 + 0.75 * length))
            });
            each.sum()
        };
        let cosine = |document: &Document| -> Option<f64> {
            let one = in_bytes(query.embedding.as_ref()?);
            let other = in_bytes(document.embedding.as_ref()?);
            let dot = |a: &[i8], b: &[i8]| -> f64 {
                a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
            };
            let lengths = (dot(&one, &one) * dot(&other, &other)).sqrt();
            (lengths > 0.0).then(|| dot(&one, &other) / lengths)
        };
        let lexical: Vec<f64> = all.iter().map(|(_, _, words)| bm25(words)).collect();
        let most = lexical.iter().copied().fold(0.0, f64::max);
        let dense: Vec<Option<f64>> = all.iter().map(|(_, document, _)| cosine(document)).collect();
        let least = dense.iter().flatten().copied().fold(f64::INFINITY, f64::min);
        let greatest = dense.iter().flatten().copied().fold(f64::NEG_INFINITY, f64::max);
        let own = |at: usize| -> f64 {
            let words = if most > 0.0 { lexical[at] / most } else { 0.0 };
            if !greatest.is_finite() {
                return words;
            }
            let flat = greatest - least <= 0.0;
            let meaning = dense[at].map_or(0.0, |cosine| {
                if flat { 1.0 } else { (cosine - least) / (greatest - least) }
            });
            0.6 * words + 0.4 * meaning
        };
        let beside = |at: usize| -> f64 {
            let Some(position) = all[at].1.position else { return 0.0 };
            let best = |wanted: Option<u64>| {
                let is_it = |other: &usize| {
                    wanted.is_some()
                        && all[*other].1.position == wanted
                        && all[*other].0.0 == all[at].0.0
                };
                (0..all.len()).filter(is_it).map(own).fold(0.0, f64::max)
            };
            0.3 * (best(position.checked_sub(1)) + best(position.checked_add(1)))
        };
        let factor = |document: &Document| -> f64 {
            let trust = match document.trust {
                MemoryTrust::Tool => -0.05,
                MemoryTrust::Agent => 0.0,
                MemoryTrust::Person => 0.025,
                MemoryTrust::Operator => 0.05,
            };
            1.0 + trust + 0.05 * (f64::from(document.importance.clamp(1, 10)) - 5.5) / 4.5
        };
        let scored = |at: usize| (*all[at].0, (own(at) + beside(at)) * factor(all[at].1));
        (0..all.len()).map(scored).filter(|(_, score)| *score > 1e-9).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn the_index_finds_what_a_naive_search_finds(
        changes in vec(change(), 1..60),
        queries in vec((query(), select(&[1, 2, 3, 7, 24, 31][..])), 1..6),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let open = || LocalStore::open(folder.path(), Some(("test", DIMENSIONS))).unwrap();
        let scope = |key: usize| memory(KEYS[key]).unwrap();
        let (mut store, mut model) = (open(), Model::default());
        for change in changes {
            match change {
                Change::Put(key, document) => {
                    let id = (key, document.id.event);
                    let upto = store.upto_now(&scope(key)).unwrap();
                    let documents = vec![*document.clone()];
                    let batch = DocumentBatch { after: upto, upto: upto + 1, documents };
                    store.put_now(&scope(key), &batch).unwrap();
                    if !model.masked.contains(&id) {
                        model.documents.insert(id, *document);
                    }
                }
                Change::Mask(key, event) => {
                    store.mask_now(&scope(key), &[point(event, "").id]).unwrap();
                    model.documents.remove(&(key, event));
                    model.masked.insert((key, event));
                }
                Change::Reopen => store = open(),
            }
        }
        for (query, chosen) in queries {
            let keys: BTreeSet<usize> = (0..KEYS.len()).filter(|key| chosen & (1 << key) != 0).collect();
            let scopes: Vec<StoreScope> = keys.iter().map(|key| scope(*key)).collect();
            let found = store.search_now(&scopes, &query, 200).unwrap().found;
            let expected = model.search(&keys, &query);
            for found in &found {
                let key = KEYS.iter().position(|key| memory(key).unwrap() == found.scope).unwrap();
                prop_assert!(keys.contains(&key), "MEM-1: {:?}", found.scope);
                let id = (key, found.document.id.event);
                let score = expected.get(&id).copied().unwrap_or_default();
                prop_assert!((found.score.total - score).abs() < 1e-9, "{:?}, not {}", found, score);
                let put = Document { embedding: None, ..model.documents[&id].clone() };
                prop_assert_eq!(&found.document, &put);
            }
            prop_assert_eq!(found.len(), expected.len());
            prop_assert!(found.is_sorted_by(|one, other| one.score.total >= other.score.total));
            let best = store.search_now(&scopes, &query, 3).unwrap().found;
            prop_assert_eq!(&best[..], &found[..found.len().min(3)]);
        }
    }
}
