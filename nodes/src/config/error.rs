//! What is wrong with a configuration: what, where, and what to do about it.

use std::fmt;

use super::tree::ValueOrigin;

/// A configuration that cannot be used; the process ends with exit code 78.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    pub what: String,
    /// The key it is about, with dots: `gateway.listen`; empty if it is about a whole file.
    pub key: String,
    /// Where it was set.
    pub origin: ValueOrigin,
    pub hint: String,
}

impl ConfigError {
    /// An error about the value of `key`.
    pub fn new(
        key: &str,
        origin: ValueOrigin,
        what: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self { what: what.into(), key: key.to_owned(), origin, hint: hint.into() }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if !self.key.is_empty() {
            write!(f, ", at `{}`", self.key)?;
        }
        match &self.origin {
            ValueOrigin::Default => Ok(()),
            origin => write!(f, ", in {origin}"),
        }
    }
}

impl std::error::Error for ConfigError {}

/// The known word nearest to `word`, if one is near enough to be what was meant.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = plain(word);
    known
        .into_iter()
        .map(|candidate| (distance(&word, &plain(candidate)), candidate))
        .filter(|&(distance, candidate)| distance <= (candidate.len() / 3).max(1))
        .min()
        .map(|(_, candidate)| candidate)
}

/// The `most` known words that are nearest to `word`, the nearest first; the word itself before all others.
pub(crate) fn nearest_names<'a>(
    word: &str,
    known: impl IntoIterator<Item = &'a str>,
    most: usize,
) -> Vec<&'a str> {
    let plain = plain(word);
    let known = known.into_iter();
    let mut ranked: Vec<(usize, bool, &str)> = known
        .map(|candidate| (distance(&plain, &self::plain(candidate)), candidate != word, candidate))
        .collect();
    ranked.sort_unstable();
    ranked.into_iter().take(most).map(|(.., candidate)| candidate).collect()
}

/// A word without what people mix up.
fn plain(word: &str) -> String {
    word.to_ascii_lowercase().replace('-', "_")
}

/// Edits (insert, delete, replace, swap neighbours) from one word to the other.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().take(64).collect();
    let b: Vec<char> = b.chars().take(64).collect();
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for (i, from) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, to) in b.iter().enumerate() {
            let replace = rows[i][j] + usize::from(from != to);
            let mut best = replace.min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *from == b[j - 1] && a[i - 1] == *to {
                best = best.min(rows[i - 1][j - 1] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typo_finds_its_word_and_a_stranger_does_not() {
        let known = ["listen", "tls_cert", "tls_key", "plain_http", "no_auth"];
        for (word, meant) in [
            ("lissten", Some("listen")),
            ("lsiten", Some("listen")),
            ("Listen", Some("listen")),
            ("tls-cert", Some("tls_cert")),
            ("noauth", Some("no_auth")),
            ("colour", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, known), meant, "{word}");
        }
    }

    #[test]
    fn the_nearest_names_begin_with_the_name_itself() {
        let known = ["ops-1", "default", "Ops_1", "ops_1", "billing"];
        assert_eq!(nearest_names("ops_1", known, 2), ["ops_1", "Ops_1"]);
        assert_eq!(nearest_names("defualt", known, 1), ["default"]);
        assert_eq!(nearest_names("gpt-4o", known, 9).len(), known.len());
        assert!(nearest_names("gpt-4o", [], 3).is_empty());
    }
}
