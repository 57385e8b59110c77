//! Texts for stores of memories, the same in every run.

/// Words that look like those of a language: few are frequent, many are rare.
#[derive(Clone, Debug)]
pub struct Speech(u64);

// === impl Speech ===

impl Speech {
    fn draw(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A text of so many words.
    pub fn text(&mut self, words: usize) -> String {
        let word = |speech: &mut Self| {
            // Word number n has a frequency near 1/n, of some 60,000; stop words are left out.
            let bits = 5 + speech.draw() % 12;
            format!("w{}", speech.draw() % (1 << bits))
        };
        (0..words).map(|_| word(self)).collect::<Vec<_>>().join(" ")
    }

    /// A vector of so many numbers; none of none.
    pub fn vector(&mut self, dimensions: usize) -> Option<Vec<f32>> {
        let number =
            |speech: &mut Self| f32::from(i8::from_le_bytes([speech.draw().to_le_bytes()[3]]));
        (dimensions > 0).then(|| (0..dimensions).map(|_| number(self)).collect())
    }
}

impl Default for Speech {
    fn default() -> Self {
        Self(0x2545_f491_4f6c_dd1d)
    }
}
