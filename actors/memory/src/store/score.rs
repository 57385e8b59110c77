//! How well a document fits a query. Every store counts in this way, so all give the same order.
//!
//! `0.6 words + 0.4 meaning`, each scaled to 0..1 in one search, or words alone where there are no vectors; then 0.3 of
//! the same of the documents before and after it; then at most 10 % more or less by trust and importance.

use clawnode_proto::memory::MemoryTrust;

/// How much a further occurrence of a word still counts, in BM25.
pub const K1: f64 = 1.2;
/// How much the length of a document counts, in BM25.
pub const B: f64 = 0.75;
/// The part of words where there are vectors.
pub const WORDS: f64 = 0.6;
/// The part of vectors.
pub const MEANING: f64 = 0.4;
/// How much of a neighbour's score a document gets.
pub const NEIGHBOUR: f64 = 0.3;
/// The most that trust moves a score by, up or down. Importance moves it by as much.
pub const SHIFT: f64 = 0.05;

/// How a score came about: what each part adds to it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ScoreParts {
    /// BM25 as it was counted.
    pub bm25: f64,
    /// The same, scaled: 1 is the best document of this search.
    pub words: f64,
    /// How near the vectors are, scaled: 1 is the nearest document of this search; none where there are no vectors.
    pub meaning: Option<f64>,
    /// What the documents before and after it add.
    pub neighbours: f64,
    /// What trust and importance multiply it by: 0.9 to 1.1.
    pub factor: f64,
    /// The score.
    pub total: f64,
}

/// How rare a word is: `found` of `all` documents have it.
pub fn rarity(all: f64, found: f64) -> f64 {
    ((all - found + 0.5) / (found + 0.5)).ln_1p()
}

/// What the length of a document counts: more for long ones.
pub fn norm(length: f64, mean_length: f64) -> f64 {
    K1 * (1.0 - B + B * length / mean_length.max(1.0))
}

/// What one word adds to a document with this [`norm`] that has it so many times.
pub fn bm25(rarity: f64, times: f64, norm: f64) -> f64 {
    rarity * times * (K1 + 1.0) / (times + norm)
}

/// The score of a document itself.
pub fn own(words: f64, meaning: Option<f64>) -> f64 {
    meaning.map_or(words, |meaning| WORDS * words + MEANING * meaning)
}

/// What trust and importance multiply a score by.
pub fn factor(trust: MemoryTrust, importance: u8) -> f64 {
    let trust = match trust {
        MemoryTrust::Tool => -1.0,
        MemoryTrust::Agent => 0.0,
        MemoryTrust::Person => 0.5,
        MemoryTrust::Operator => 1.0,
    };
    let importance = (f64::from(importance.clamp(1, 10)) - 5.5) / 4.5;
    1.0 + SHIFT * trust + SHIFT * importance
}

/// Where a similarity lies between the least and the greatest of a search. If all are the same, they say nothing.
pub fn scaled(similarity: f64, least: f64, greatest: f64) -> f64 {
    if greatest > least { (similarity - least) / (greatest - least) } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trust_and_importance_move_a_score_by_a_tenth_at_most() {
        let trusts =
            [MemoryTrust::Tool, MemoryTrust::Agent, MemoryTrust::Person, MemoryTrust::Operator];
        let mut last = 0.0;
        for trust in trusts {
            for importance in 0..=u8::MAX {
                let factor = factor(trust, importance);
                assert!((0.9 - 1e-9..=1.1 + 1e-9).contains(&factor), "{trust:?} {importance}");
            }
            assert!(factor(trust, 5) > last, "{trust:?} counts more than what is trusted less");
            last = factor(trust, 5);
        }
        assert!(factor(MemoryTrust::Person, 10) > factor(MemoryTrust::Person, 1));
    }

    #[test]
    fn rare_words_in_short_documents_count_most() {
        assert!(rarity(100.0, 1.0) > rarity(100.0, 50.0));
        assert!(rarity(1.0, 1.0) > 0.0, "a word that all have still counts");
        let (short, long) = (bm25(1.0, 1.0, norm(5.0, 10.0)), bm25(1.0, 1.0, norm(20.0, 10.0)));
        assert!(short > long);
        assert!(bm25(1.0, 9.0, norm(10.0, 10.0)) < 2.2, "repeating a word does not help for ever");
    }
}
