//! Ids that people write by their first characters, as with commits in git.

use clawnode_proto::ErrorCode;

use crate::failure::{Exit, Failure};

/// Characters of a whole id after its kind and `_`.
const WHOLE: usize = 26;
/// Candidates that an error lists.
const SHOWN: usize = 8;

/// Whether something is too short for a whole id.
pub(super) fn is_short(given: &str) -> bool {
    bare(given).chars().count() < WHOLE
}

/// The id among `candidates` that begins with `given`, with or without its kind (`call_`).
pub(super) fn find(
    given: &str,
    candidates: impl IntoIterator<Item = String>,
) -> Result<Option<String>, Failure> {
    let fits = |id: &String| id.starts_with(given) || bare(id).starts_with(given);
    let mut found: Vec<String> = candidates.into_iter().filter(fits).collect();
    found.sort();
    found.dedup();
    match found.len() {
        0 | 1 => Ok(found.pop()),
        all => {
            let more = if all > SHOWN { ", …" } else { "" };
            found.truncate(SHOWN);
            let what = format!("`{given}` is ambiguous: {all} ids begin with it");
            let hint = format!("write more of one of these: {}{more}", found.join(", "));
            Err(Failure::new(Exit::Usage, "ambiguous", what).hint(hint))
        }
    }
}

/// No row that `list` shows is meant.
pub(super) fn none(what: &str, given: &str, list: &str) -> Failure {
    let what = format!("no {what} has an id that begins with `{given}`");
    Failure::of(ErrorCode::NotFound, what).hint(format!("`clawnode {list}` lists them"))
}

/// An id without its kind.
fn bare(id: &str) -> &str {
    id.split_once('_').map_or(id, |(_, rest)| rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [&str; 3] =
        ["call_0yd00000000000000000000001", "call_0ye00000000000000000000002", "call_1aa"];

    fn found(given: &str) -> Result<Option<String>, Failure> {
        find(given, ALL.map(str::to_owned))
    }

    #[test]
    fn the_first_characters_name_an_id_with_and_without_its_kind() {
        for given in ["call_0yd", "0yd", ALL[0]] {
            assert_eq!(found(given).unwrap().as_deref(), Some(ALL[0]), "{given}");
        }
        assert_eq!(found("call_9").unwrap(), None);
        assert!(is_short("call_0yd") && is_short("0yd") && is_short(""));
        assert!(!is_short(ALL[0]));
    }

    #[test]
    fn what_fits_several_is_refused_with_the_candidates() {
        let refused = found("call_0y").unwrap_err();
        assert_eq!((refused.exit, refused.code), (Exit::Usage, "ambiguous"));
        assert_eq!(refused.message, "`call_0y` is ambiguous: 2 ids begin with it");
        let hint = format!("write more of one of these: {}, {}", ALL[0], ALL[1]);
        assert_eq!(refused.hint.unwrap(), hint);
        let many = (0..20).map(|n| format!("job_0{n}"));
        let hint = find("job_0", many).unwrap_err().hint.unwrap();
        assert_eq!(hint.matches("job_").count(), SHOWN);
        assert!(hint.ends_with(", …"), "{hint}");
    }
}
