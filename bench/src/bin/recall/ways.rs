//! What a search counts. Nothing of the store is changed for it: without their positions documents have no neighbours,
//! without vectors no meaning, and a query without a text has no words.

use std::path::Path;

use clawnode_bench::Error;
use clawnode_memory::store::{
    LocalStore, RecallQuery,
    quality::{QuestionSet, SetFigures},
};

/// A set, and a query for each of its questions, with vectors if there is a model.
#[derive(Clone, Debug)]
pub(crate) struct AskedSet {
    pub(crate) set: QuestionSet,
    pub(crate) queries: Vec<RecallQuery>,
}

/// What a search counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecallWay {
    pub(crate) words: bool,
    pub(crate) meaning: bool,
    pub(crate) neighbours: bool,
}

/// All ways; the first one is that of a node without a model, and the last one that of a node with one.
pub(crate) const WAYS: [RecallWay; 6] = [
    RecallWay { words: true, meaning: false, neighbours: true },
    RecallWay { words: true, meaning: false, neighbours: false },
    RecallWay { words: false, meaning: true, neighbours: false },
    RecallWay { words: false, meaning: true, neighbours: true },
    RecallWay { words: true, meaning: true, neighbours: false },
    RecallWay { words: true, meaning: true, neighbours: true },
];

// === impl RecallWay ===

impl RecallWay {
    /// Its parts.
    pub(crate) fn name(self) -> String {
        let parts =
            [(self.words, "words"), (self.meaning, "meaning"), (self.neighbours, "neighbours")];
        let parts: Vec<&str> =
            parts.into_iter().filter_map(|(counts, part)| counts.then_some(part)).collect();
        parts.join("+")
    }

    /// Puts the set into a store of its own in this folder, and asks it.
    pub(crate) fn measure(self, dir: &Path, asked: &AskedSet) -> Result<SetFigures, Error> {
        let AskedSet { set, queries } = self.cut(asked.clone());
        let folder = tempfile::tempdir_in(dir)?;
        let vector = queries.iter().find_map(|query| query.embedding.as_ref());
        let store = LocalStore::open(folder.path(), vector.map(|vector| ("bench", vector.len())))?;
        set.put(&store)?;
        Ok(set.measure_by(&store, &queries)?)
    }

    /// The set without what does not count.
    fn cut(self, mut asked: AskedSet) -> AskedSet {
        let conversations = asked.set.conversations.iter_mut();
        for document in conversations.flat_map(|conversation| &mut conversation.documents) {
            document.position = document.position.filter(|_| self.neighbours);
            document.embedding = document.embedding.take().filter(|_| self.meaning);
        }
        for query in &mut asked.queries {
            query.embedding = query.embedding.take().filter(|_| self.meaning);
            if !self.words {
                query.text.clear();
            }
        }
        asked
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use clawnode_memory::store::{
        Document, DocumentId, DocumentKind, StoreScope,
        quality::{QuestionSort, SetConversation, SetQuestion},
    };
    use clawnode_proto::{EntityId, SessionKey, Timestamp, id::Kind, memory::MemoryTrust};

    use super::*;

    /// Two messages, the first of which has the words of the question, and the second one its vector. Two questions ask
    /// the same: one is answered by the first message, the other by the second.
    fn asked() -> AskedSet {
        let session: SessionKey = "bench:ways:set:person".parse().unwrap();
        let entity = EntityId::derive(Kind::SESSION, &session.to_string());
        let document = |event: u64, text: &str, embedding: [f32; 2]| Document {
            id: DocumentId { entity, event, part: 0 },
            kind: DocumentKind::Passage,
            text: text.to_owned(),
            speaker: None,
            position: Some(event),
            at: Timestamp(event),
            importance: 5,
            trust: MemoryTrust::Person,
            embedding: Some(embedding.to_vec()),
        };
        let documents = vec![
            document(1, "My car is red.", [1.0, 0.0]),
            document(2, "Tea is late.", [0.0, 1.0]),
        ];
        let question = |sort: QuestionSort, message: u64| SetQuestion {
            conversation: 0,
            sort,
            text: "the red car".to_owned(),
            relevant: [message].into(),
        };
        let scope = StoreScope::of_session(&session);
        let set = QuestionSet {
            conversations: vec![SetConversation { scope, documents, superseded: Vec::new() }],
            questions: vec![
                question(QuestionSort::SameWords, 1),
                question(QuestionSort::OtherWords, 2),
            ],
        };
        let mut queries = set.queries();
        for query in &mut queries {
            query.embedding = Some(vec![0.0, 1.0]);
        }
        AskedSet { set, queries }
    }

    #[test]
    fn each_way_counts_its_parts_and_nothing_else() {
        let (folder, asked) = (tempfile::tempdir().unwrap(), asked());
        let found = WAYS.map(|way| {
            let figures = way.measure(folder.path(), &asked).unwrap();
            let mrr = |sort: QuestionSort| figures.of[&sort].mrr;
            (way.name(), [mrr(QuestionSort::SameWords), mrr(QuestionSort::OtherWords)])
        });
        // One divided by the place of each message; 0 if it is not found.
        let expected = [
            ("words+neighbours", [1.0, 0.5]),
            ("words", [1.0, 0.0]),
            ("meaning", [0.0, 1.0]),
            ("meaning+neighbours", [0.5, 1.0]),
            ("words+meaning", [1.0, 0.5]),
            ("words+meaning+neighbours", [1.0, 0.5]),
        ];
        let expected = expected.map(|(name, places)| (name.to_owned(), places));
        assert_eq!(BTreeMap::from(found), BTreeMap::from(expected));
    }
}
