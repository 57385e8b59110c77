//! A light stemmer for English: it takes endings off, so that `cats` finds `cat` and `painting` finds `painted`.
//!
//! It knows no irregular forms. What it makes of a word need not be a word, as long as forms of one word become the same.

/// Words whose ending is not one.
const KEPT: [&str; 12] = [
    "always",
    "during",
    "evening",
    "morning",
    "nothing",
    "something",
    "anything",
    "everything",
    "spring",
    "string",
    "christmas",
    "news",
];

/// The stem of a lower-case word. Words of other letters than `a` to `z` are kept as they are.
pub(super) fn stem(word: &str) -> String {
    let is_english = word.len() > 2 && word.bytes().all(|byte| byte.is_ascii_lowercase());
    if !is_english || KEPT.contains(&word) {
        return word.to_owned();
    }
    let mut stem = without_plural(word);
    stem = without_tense(&stem);
    for (ending, with) in [("ization", "ize"), ("ational", "ate"), ("fulness", "ful")] {
        if let Some(rest) = stem.strip_suffix(ending).filter(|rest| has_vowel(rest)) {
            stem = format!("{rest}{with}");
        }
    }
    let endings = ["ness", "ment", "ly"];
    let rest = endings.iter().find_map(|ending| stem.strip_suffix(ending)).map(str::len);
    if let Some(length) = rest.filter(|length| *length > 3) {
        stem.truncate(length);
    }
    // `happy` and `happily` meet at `happi`, `move` and `moving` at `mov`.
    if let Some(rest) = stem.strip_suffix('y').filter(|rest| rest.len() > 1 && !ends_in_vowel(rest))
    {
        return format!("{rest}i");
    }
    match stem.strip_suffix('e') {
        Some(rest) if rest.len() > 2 && has_vowel(rest) => rest.to_owned(),
        _ => stem,
    }
}

fn without_plural(word: &str) -> String {
    if let Some(rest) = word.strip_suffix("sses") {
        return format!("{rest}ss");
    }
    if let Some(rest) = word.strip_suffix("ies") {
        return if rest.len() > 1 { format!("{rest}y") } else { format!("{rest}ie") };
    }
    for ending in ["xes", "ches", "shes", "zes", "oes"] {
        if word.len() > ending.len() + 1 && word.ends_with(ending) {
            return word.strip_suffix("es").unwrap_or(word).to_owned();
        }
    }
    let is_plural = !["ss", "us", "is"].iter().any(|ending| word.ends_with(ending));
    match word.strip_suffix('s') {
        Some(rest) if is_plural && rest.len() > 2 => rest.to_owned(),
        _ => word.to_owned(),
    }
}

fn without_tense(word: &str) -> String {
    if let Some(rest) = word.strip_suffix("ied").filter(|rest| rest.len() > 1) {
        return format!("{rest}y");
    }
    if word.ends_with("eed") {
        return word.to_owned();
    }
    for ending in ["ing", "ed"] {
        let Some(rest) = word.strip_suffix(ending) else { continue };
        if rest.len() < 2 || !has_vowel(rest) {
            continue;
        }
        // `planned` is of `plan`, `called` of `call`.
        let mut ends = rest.chars().rev();
        let is_doubled = ends.next() == ends.next();
        let keeps = ["l", "s", "z"].iter().any(|letter| rest.ends_with(letter));
        if is_doubled && !keeps && rest.len() > 3 {
            return rest.chars().take(rest.len() - 1).collect();
        }
        return rest.to_owned();
    }
    word.to_owned()
}

fn has_vowel(word: &str) -> bool {
    word.contains(['a', 'e', 'i', 'o', 'u', 'y'])
}

fn ends_in_vowel(word: &str) -> bool {
    word.ends_with(['a', 'e', 'i', 'o', 'u'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_a_word_have_one_stem() {
        for forms in [
            &["cat", "cats"][..],
            &["paint", "paints", "painted", "painting"],
            &["move", "moves", "moved", "moving"],
            &["plan", "plans", "planned", "planning"],
            &["call", "calls", "called", "calling"],
            &["study", "studies", "studied", "studying"],
            &["box", "boxes", "boxed"],
            &["church", "churches"],
            &["happy", "happily"],
            &["quick", "quickly"],
            &["nice", "nicely"],
            &["enjoy", "enjoys", "enjoyed", "enjoyment"],
            &["like", "likes", "liked"],
        ] {
            let stems: Vec<String> = forms.iter().map(|form| stem(form)).collect();
            assert!(stems.iter().all(|stem| stem == &stems[0]), "{forms:?} become {stems:?}");
        }
    }

    #[test]
    fn words_that_only_look_alike_are_kept_apart() {
        for word in ["red", "bus", "this", "glass", "sing", "bed", "morning", "always", "is"] {
            assert_eq!(stem(word), word);
        }
        assert_ne!(stem("need"), stem("knee"));
        assert_ne!(stem("best"), stem("beast"));
        assert_eq!(stem("naïves"), "naïves", "not of English letters alone");
        assert_eq!(stem("r2d2s"), "r2d2s");
    }
}
