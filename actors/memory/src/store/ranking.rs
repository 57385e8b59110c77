//! Ranks the documents of some scopes for a query. Documents that the query does not admit have no part in it, as if they
//! were not there.

use std::{cmp::Ordering, collections::HashSet};

use super::{
    document::{QUERY_CHARS, QUERY_FOUND, RecallQuery},
    index::{IndexEntry, Posting, ScopeIndex, at},
    score::{self, ScoreParts},
    words,
};

/// Words of a query that count; of more, the rarest.
const QUERY_WORDS: usize = 64;

/// A document that fits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hit {
    /// Which of the indexes it is in.
    pub(super) index: usize,
    /// Its number there.
    pub(super) number: u32,
    pub(super) score: ScoreParts,
}

/// One index in a search. Its lists have an item for each document.
struct Searched<'a> {
    index: &'a ScopeIndex,
    admitted: Vec<bool>,
    admits_all: bool,
    /// How many are admitted, and the words that these have.
    documents: f64,
    length: f64,
    /// The length of each document, and then what it counts in BM25: infinitely much if it is not admitted, so that its
    /// words count nothing.
    norms: Vec<f64>,
    bm25: Vec<f64>,
    /// The score of the document itself.
    own: Vec<f64>,
    /// The scaled similarity.
    meaning: Vec<f64>,
    /// The best score at each position.
    best: Vec<f64>,
}

/// What has to be known of all indexes before one document can be scored.
#[derive(Clone, Copy, Default)]
struct Whole {
    documents: f64,
    mean_length: f64,
    greatest_bm25: f64,
    has_vectors: bool,
}

/// The best `k` documents, best first.
pub(super) fn rank(
    indexes: &[&ScopeIndex],
    query: &RecallQuery,
    vector: Option<&[i8]>,
    k: usize,
) -> Vec<Hit> {
    let mut all: Vec<Searched<'_>> =
        indexes.iter().map(|index| Searched::new(index, query)).collect();
    let mut whole = Whole::of(&all);
    for searched in &mut all {
        searched.measure(whole);
    }
    for (word, rarity) in rarest(&all, query, whole) {
        for searched in &mut all {
            searched.add(word, rarity);
        }
    }
    let bm25 = all.iter().flat_map(|searched| &searched.bm25);
    whole.greatest_bm25 = bm25.copied().fold(0.0, f64::max);
    if let Some(vector) = vector {
        whole.has_vectors = compare(&mut all, vector);
    }
    for searched in &mut all {
        searched.find_best(whole);
    }
    best(&all, whole, k.min(QUERY_FOUND))
}

/// The words of the query that some document has, each once, with how rare it is; in the order of the query.
fn rarest(all: &[Searched<'_>], query: &RecallQuery, whole: Whole) -> Vec<(u64, f64)> {
    let end = query.text.char_indices().nth(QUERY_CHARS).map_or(query.text.len(), |(end, _)| end);
    let mut found = Vec::new();
    words::numbers(query.text.get(..end).unwrap_or_default(), &mut found);
    let mut seen = HashSet::new();
    found.retain(|word| seen.insert(*word));
    let rarity = |word: u64| {
        let documents: u32 = all.iter().map(|searched| searched.having(word)).sum();
        (documents > 0).then(|| (word, score::rarity(whole.documents, f64::from(documents))))
    };
    let mut rarities: Vec<(u64, f64)> = found.into_iter().filter_map(rarity).collect();
    if rarities.len() > QUERY_WORDS {
        rarities.sort_by(|one, other| other.1.total_cmp(&one.1));
        rarities.truncate(QUERY_WORDS);
    }
    rarities
}

/// Compares the vectors of all documents, and scales how near they are. Says whether any has one.
fn compare(all: &mut [Searched<'_>], vector: &[i8]) -> bool {
    let (mut least, mut greatest) = (f64::INFINITY, f64::NEG_INFINITY);
    for searched in all.iter_mut() {
        let cosines = searched.index.vectors().cosines(vector);
        let known = |(cosine, admitted): (Option<f64>, &bool)| cosine.filter(|_| *admitted);
        let found = cosines.zip(&searched.admitted).map(known);
        // What has no vector is below all that have one, and is set to 0 when the others are scaled.
        searched.meaning = found.map(|cosine| cosine.unwrap_or(f64::NEG_INFINITY)).collect();
        for cosine in searched.meaning.iter().filter(|cosine| cosine.is_finite()) {
            least = least.min(*cosine);
            greatest = greatest.max(*cosine);
        }
    }
    for searched in all {
        for meaning in &mut searched.meaning {
            let is_known = meaning.is_finite();
            *meaning = if is_known { score::scaled(*meaning, least, greatest) } else { 0.0 };
        }
    }
    greatest.is_finite()
}

/// The best of all. Of the same score, the one with the lower id comes first.
fn best(all: &[Searched<'_>], whole: Whole, k: usize) -> Vec<Hit> {
    if k == 0 {
        return Vec::new();
    }
    let id = |index: usize, number: u32| {
        let entry = all.get(index).and_then(|resident| resident.index.entries().get(at(number)));
        entry.map(|entry| entry.id)
    };
    let order = |one: &(f64, usize, u32), other: &(f64, usize, u32)| -> Ordering {
        let by_score = other.0.total_cmp(&one.0);
        let by_id = || id(one.1, one.2).cmp(&id(other.1, other.2));
        by_score.then_with(by_id).then(one.1.cmp(&other.1))
    };
    let mut totals: Vec<(f64, usize, u32)> = Vec::new();
    // The score of the last of the best so far: a list of all documents would be megabytes.
    let mut least = 0.0;
    for (index, searched) in all.iter().enumerate() {
        for (number, entry) in (0_u32..).zip(searched.index.entries()) {
            let total = searched.total(number, entry);
            if total <= 0.0 || total < least {
                continue;
            }
            totals.push((total, index, number));
            if totals.len() > 2 * k {
                let (_, worst, _) = totals.select_nth_unstable_by(k - 1, order);
                least = worst.0;
                totals.truncate(k);
            }
        }
    }
    totals.sort_unstable_by(order);
    totals.truncate(k);
    let hit = |(_, index, number): (f64, usize, u32)| {
        let searched = all.get(index)?;
        let entry = searched.index.entries().get(at(number))?;
        Some(Hit { index, number, score: searched.parts(number, entry, whole) })
    };
    totals.into_iter().filter_map(hit).collect()
}

// === impl Whole ===

impl Whole {
    fn of(all: &[Searched<'_>]) -> Self {
        let (mut documents, mut length) = (0.0, 0.0);
        for searched in all {
            documents += searched.documents;
            length += searched.length;
        }
        let mean_length = if documents > 0.0 { length / documents } else { 1.0 };
        Self { documents, mean_length, ..Self::default() }
    }
}

// === impl Searched ===

impl<'a> Searched<'a> {
    fn new(index: &'a ScopeIndex, query: &RecallQuery) -> Self {
        // Whole numbers, so the sums are exact in any order.
        let (mut documents, mut length) = (0.0, 0.0);
        let mut admits_all = true;
        let mut norms = Vec::with_capacity(index.entries().len());
        let admits = |entry: &IndexEntry| {
            let admits = entry.place.is_some() && query.admits(entry.kind, entry.trust);
            if admits {
                documents += 1.0;
                length += f64::from(entry.length);
            }
            admits_all &= admits;
            norms.push(if admits { f64::from(entry.length) } else { f64::INFINITY });
            admits
        };
        let admitted: Vec<bool> = index.entries().iter().map(admits).collect();
        let bm25 = vec![0.0; admitted.len()];
        let [own, meaning, best] = [const { Vec::new() }; 3];
        Self { index, admitted, admits_all, documents, length, norms, bm25, own, meaning, best }
    }

    fn entries(&self) -> impl Iterator<Item = (&IndexEntry, bool)> {
        self.index.entries().iter().zip(self.admitted.iter().copied())
    }

    fn is_admitted(&self, number: u32) -> bool {
        self.admitted.get(at(number)).copied().unwrap_or_default()
    }

    /// Finds out what the lengths of documents count.
    fn measure(&mut self, whole: Whole) {
        for norm in &mut self.norms {
            *norm = score::norm(*norm, whole.mean_length);
        }
    }

    /// How many documents have a word.
    fn having(&self, word: u64) -> u32 {
        let postings = self.index.postings(word);
        let having = if self.admits_all {
            postings.len()
        } else {
            postings.iter().filter(|posting| self.is_admitted(posting.number)).count()
        };
        u32::try_from(having).unwrap_or(u32::MAX)
    }

    /// Adds what a word counts to the documents that have it.
    fn add(&mut self, word: u64, rarity: f64) {
        for Posting { number, times } in self.index.postings(word) {
            let number = at(*number);
            if let (Some(bm25), Some(norm)) = (self.bm25.get_mut(number), self.norms.get(number)) {
                *bm25 += score::bm25(rarity, f64::from(*times), *norm);
            }
        }
    }

    fn words(&self, number: u32, whole: Whole) -> f64 {
        let bm25 = self.bm25.get(at(number)).copied().unwrap_or_default();
        if whole.greatest_bm25 > 0.0 { bm25 / whole.greatest_bm25 } else { 0.0 }
    }

    fn meaning(&self, number: u32, whole: Whole) -> Option<f64> {
        let meaning = || self.meaning.get(at(number)).copied().unwrap_or_default();
        whole.has_vectors.then(meaning)
    }

    fn own(&self, number: u32) -> f64 {
        self.own.get(at(number)).copied().unwrap_or_default()
    }

    /// Finds the score of each document itself, and the best at each position, for the neighbours.
    fn find_best(&mut self, whole: Whole) {
        let mut best = vec![0.0; self.index.positions().len()];
        let mut own = Vec::with_capacity(self.admitted.len());
        for (number, (entry, admitted)) in (0_u32..).zip(self.entries()) {
            let score = if admitted {
                score::own(self.words(number, whole), self.meaning(number, whole))
            } else {
                0.0
            };
            own.push(score);
            if let Some(best) = entry.rank.and_then(|rank| best.get_mut(at(rank))) {
                *best = f64::max(*best, score);
            }
        }
        (self.own, self.best) = (own, best);
    }

    /// What the documents at the positions before and after add.
    fn neighbours(&self, entry: &IndexEntry) -> f64 {
        let positions = self.index.positions();
        let (Some(position), Some(rank)) = (entry.position, entry.rank.map(at)) else { return 0.0 };
        let best_at = |rank: Option<usize>, position: Option<u64>| {
            let is_there = |rank: &usize| positions.get(*rank).copied() == position;
            let rank = rank.filter(|rank| position.is_some() && is_there(rank));
            rank.and_then(|rank| self.best.get(rank)).copied().unwrap_or_default()
        };
        let before = best_at(rank.checked_sub(1), position.checked_sub(1));
        let after = best_at(rank.checked_add(1), position.checked_add(1));
        score::NEIGHBOUR * (before + after)
    }

    fn total(&self, number: u32, entry: &IndexEntry) -> f64 {
        if !self.is_admitted(number) {
            return 0.0;
        }
        let fits = self.own(number) + self.neighbours(entry);
        fits * score::factor(entry.trust, entry.importance)
    }

    fn parts(&self, number: u32, entry: &IndexEntry, whole: Whole) -> ScoreParts {
        ScoreParts {
            bm25: self.bm25.get(at(number)).copied().unwrap_or_default(),
            words: self.words(number, whole),
            meaning: self.meaning(number, whole),
            neighbours: self.neighbours(entry),
            factor: score::factor(entry.trust, entry.importance),
            total: self.total(number, entry),
        }
    }
}
