//! Questions with the messages that answer them, and how many of those a store finds.

use std::collections::{BTreeMap, BTreeSet};

use crate::store::{
    contract::MemoryStoreError,
    document::{Document, DocumentBatch, DocumentId, FoundDocument, RecallQuery, StoreScope},
    local::LocalStore,
};

/// Documents that a question asks for: enough for 20 messages of several passages each.
const FOUND: usize = 100;

/// Conversations, and questions about them.
#[derive(Clone, Debug, Default)]
pub struct QuestionSet {
    /// Each in a scope of its own.
    pub conversations: Vec<SetConversation>,
    /// About them.
    pub questions: Vec<SetQuestion>,
}

/// One conversation.
#[derive(Clone, Debug)]
pub struct SetConversation {
    /// Where it is stored.
    pub scope: StoreScope,
    /// What was said. The event of a document's id is the number of its message.
    pub documents: Vec<Document>,
    /// What something newer supersedes.
    pub superseded: Vec<DocumentId>,
}

/// One question.
#[derive(Clone, Debug)]
pub struct SetQuestion {
    /// The place of its conversation in the set.
    pub conversation: usize,
    /// What makes it hard.
    pub sort: QuestionSort,
    /// The question.
    pub text: String,
    /// The numbers of the messages that answer it.
    pub relevant: BTreeSet<u64>,
}

/// What makes a question hard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QuestionSort {
    /// It has the words of its answer.
    SameWords,
    /// It has other words, but the name of who said it.
    OtherWords,
    /// An older message has another answer.
    Updated,
    /// It has a date.
    Dates,
    /// Two messages answer it together.
    TwoHops,
    /// Nothing answers it.
    NoAnswer,
    /// It is of a public set.
    Public,
}

/// Means over questions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RecallFigures {
    /// How many questions.
    pub questions: u32,
    /// The share of the messages that answer which is among the first 5.
    pub recall_5: f64,
    /// The same of the first 10.
    pub recall_10: f64,
    /// The same of the first 20.
    pub recall_20: f64,
    /// How far in front they are among the first 10: 1 if nothing else is before them.
    pub ndcg_10: f64,
    /// One divided by the place of the first of them, among those that were found.
    pub mrr: f64,
}

/// How well searches answered the questions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SetFigures {
    /// Of all questions that have an answer.
    pub all: RecallFigures,
    /// Of those of each sort.
    pub of: BTreeMap<QuestionSort, RecallFigures>,
    /// How well the best BM25 tells questions without an answer from those with the words of theirs: the share of pairs of
    /// one and the other in which the latter has more. 0.5 is chance.
    pub separation: f64,
}

// === impl QuestionSet ===

impl QuestionSet {
    /// Puts the conversations into a store, and masks what is superseded.
    pub fn put(&self, store: &LocalStore) -> Result<(), MemoryStoreError> {
        for SetConversation { scope, documents, superseded } in &self.conversations {
            let upto = documents.iter().map(|document| document.id.event).max().unwrap_or_default();
            store
                .put_now(scope, &DocumentBatch { after: 0, upto, documents: documents.clone() })?;
            store.mask_now(scope, superseded)?;
        }
        Ok(())
    }

    /// What a store finds for a question by its words.
    pub fn ask(
        &self,
        store: &LocalStore,
        question: &SetQuestion,
    ) -> Result<Vec<FoundDocument>, MemoryStoreError> {
        self.ask_by(store, question, &RecallQuery::new(question.text.as_str()))
    }

    /// The questions as queries by their words, in their order.
    pub fn queries(&self) -> Vec<RecallQuery> {
        self.questions.iter().map(|question| RecallQuery::new(question.text.as_str())).collect()
    }

    /// Asks all questions by their words.
    pub fn measure(&self, store: &LocalStore) -> Result<SetFigures, MemoryStoreError> {
        self.measure_by(store, &self.queries())
    }

    /// Asks all questions, each with the query in its place.
    pub fn measure_by(
        &self,
        store: &LocalStore,
        queries: &[RecallQuery],
    ) -> Result<SetFigures, MemoryStoreError> {
        let mut figures = SetFigures::default();
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for (question, query) in self.questions.iter().zip(queries) {
            let found = self.ask_by(store, question, query)?;
            let best = found.iter().map(|found| found.score.bm25).fold(0.0, f64::max);
            match question.sort {
                QuestionSort::SameWords => with.push(best),
                QuestionSort::NoAnswer => without.push(best),
                _ => {}
            }
            if !question.relevant.is_empty() {
                let messages = messages(&found);
                figures.all.add(&messages, &question.relevant);
                figures.of.entry(question.sort).or_default().add(&messages, &question.relevant);
            }
        }
        figures.all = figures.all.mean();
        for sum in figures.of.values_mut() {
            *sum = sum.mean();
        }
        figures.separation = separation(&with, &without);
        Ok(figures)
    }

    fn ask_by(
        &self,
        store: &LocalStore,
        question: &SetQuestion,
        query: &RecallQuery,
    ) -> Result<Vec<FoundDocument>, MemoryStoreError> {
        let Some(conversation) = self.conversations.get(question.conversation) else {
            return Ok(Vec::new());
        };
        let scopes = [conversation.scope.clone()];
        Ok(store.search_now(&scopes, query, FOUND)?.found)
    }
}

/// In how many of all pairs of one and the other the first has more.
fn separation(with: &[f64], without: &[f64]) -> f64 {
    let more = with.iter().map(|one| without.iter().filter(|other| one > other).count());
    count(more.sum::<usize>()) / count(with.len() * without.len()).max(1.0)
}

/// The messages that were found, each at its best place.
fn messages(found: &[FoundDocument]) -> Vec<u64> {
    let mut seen = BTreeSet::new();
    let numbers = found.iter().map(|found| found.document.id.event);
    numbers.filter(|number| seen.insert(*number)).collect()
}

// === impl RecallFigures ===

impl RecallFigures {
    /// Adds a question: what was found, best first, and what answers it.
    pub fn add(&mut self, found: &[u64], relevant: &BTreeSet<u64>) {
        let is_relevant = |message: &&u64| relevant.contains(message);
        let answers = count(relevant.len());
        let recall =
            |k: usize| count(found.iter().take(k).filter(is_relevant).count()) / answers.max(1.0);
        let gain = |place: usize| 1.0 / (count(place) + 2.0).log2();
        let hits = found.iter().take(10).enumerate().filter(|(_, found)| relevant.contains(found));
        let gained: f64 = hits.map(|(place, _)| gain(place)).sum();
        let ideal: f64 = (0..relevant.len().min(10)).map(gain).sum();
        let first = found.iter().position(|message| relevant.contains(message));
        self.questions += 1;
        self.recall_5 += recall(5);
        self.recall_10 += recall(10);
        self.recall_20 += recall(20);
        self.ndcg_10 += if ideal > 0.0 { gained / ideal } else { 0.0 };
        self.mrr += first.map_or(0.0, |place| 1.0 / (count(place) + 1.0));
    }

    /// Sums become means.
    #[must_use]
    pub fn mean(mut self) -> Self {
        let questions = f64::from(self.questions.max(1));
        for sum in [
            &mut self.recall_5,
            &mut self.recall_10,
            &mut self.recall_20,
            &mut self.ndcg_10,
            &mut self.mrr,
        ] {
            *sum /= questions;
        }
        self
    }
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_of_the_textbook() {
        let mut figures = RecallFigures::default();
        figures.add(&[9, 1, 8, 7, 6, 5, 2], &[1, 2].into());
        figures.add(&[], &[1].into());
        let found = figures.mean();
        assert_eq!(found.questions, 2);
        assert!((found.recall_5 - 0.25).abs() < 1e-12);
        assert!((found.recall_10 - 0.5).abs() < 1e-12);
        assert!((found.mrr - 0.25).abs() < 1e-12);
        // Places 2 and 7 of an ideal 1 and 2.
        let expected = (1.0 / 3.0_f64.log2() + 1.0 / 8.0_f64.log2()) / (1.0 + 1.0 / 3.0_f64.log2());
        assert!((found.ndcg_10 - expected / 2.0).abs() < 1e-12);
    }
}
