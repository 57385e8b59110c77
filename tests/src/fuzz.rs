//! A small seeded fuzzer: mutates a corpus and feeds a target that must neither panic nor hang.
//!
//! The targets are plain functions over bytes, so coverage-guided fuzzers can drive them as well.

use std::time::{Duration, Instant};

use rand::{Rng, SeedableRng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;

/// Longest input that is made: long enough for every length field to lie.
const LONGEST: usize = 4_096;

/// Mutates samples of a corpus.
#[derive(Debug)]
pub struct Fuzzer {
    corpus: Vec<Vec<u8>>,
    rng: ChaCha8Rng,
}

impl Fuzzer {
    /// A fuzzer that does the same for the same seed.
    pub fn new(corpus: Vec<Vec<u8>>, seed: u64) -> Self {
        Self { corpus, rng: ChaCha8Rng::seed_from_u64(seed) }
    }

    /// The next input, at most four KiB of it.
    pub fn input(&mut self) -> Vec<u8> {
        let mut bytes = self.whole_input();
        bytes.truncate(LONGEST);
        bytes
    }

    /// The next input, however long.
    pub fn whole_input(&mut self) -> Vec<u8> {
        let mut bytes = self.corpus.choose(&mut self.rng).cloned().unwrap_or_default();
        for _ in 0..self.rng.random_range(0..8) {
            self.mutate(&mut bytes);
        }
        bytes
    }

    fn mutate(&mut self, bytes: &mut Vec<u8>) {
        let at = self.rng.random_range(0..=bytes.len());
        match self.rng.random_range(0..6) {
            0 if at < bytes.len() => bytes[at] ^= 1 << self.rng.random_range(0..8),
            1 if at < bytes.len() => bytes[at] = self.rng.random(),
            2 => bytes.insert(at, self.rng.random()),
            3 => bytes.truncate(at),
            4 => {
                let end = self.rng.random_range(at..=bytes.len());
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
            _ => {
                let other = self.corpus.choose(&mut self.rng).cloned().unwrap_or_default();
                let from = self.rng.random_range(0..=other.len());
                bytes.splice(at.., other.into_iter().skip(from));
            }
        }
    }

    /// Feeds `count` inputs.
    pub fn rounds(&mut self, count: usize, mut target: impl FnMut(&[u8])) {
        for _ in 0..count {
            target(&self.input());
        }
    }

    /// Feeds inputs for this long; for the soak profile.
    pub fn soak(&mut self, length: Duration, mut target: impl FnMut(&[u8])) {
        let end = Instant::now() + length;
        while Instant::now() < end {
            target(&self.input());
        }
    }
}
