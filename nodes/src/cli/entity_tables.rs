//! Entities of any kind in tables. The kind is shown only where not all are sessions.

use clawnode_proto::{EntityId, Kind};

/// Whether a table has something else than sessions.
pub(super) fn has_others(mut kinds: impl Iterator<Item = Option<Kind>>) -> bool {
    kinds.any(is_other)
}

/// The name of an entity: its key, or its id. Commands take the keys of sessions only, so others are
/// shown with their ids.
pub(super) fn name(key: Option<&str>, kind: Option<Kind>, id: EntityId) -> String {
    match key {
        Some(key) if is_other(kind) => format!("{key} ({id})"),
        Some(key) => key.to_owned(),
        None => id.to_string(),
    }
}

/// The kind of an entity in a table.
pub(super) fn text(kind: Option<Kind>) -> String {
    kind.map_or_else(|| "-".to_owned(), |kind| kind.to_string())
}

fn is_other(kind: Option<Kind>) -> bool {
    kind.is_some_and(|kind| !kind.is_named_by_key())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_is_told_where_not_all_are_sessions() {
        let (id, other) = (EntityId::from_u128(1), Some(Kind::of("counter")));
        let session = Some(Kind::SESSION);
        assert!(!has_others([session, None].into_iter()));
        assert!(has_others([session, other].into_iter()));
        let key = Some("default:cli:local:ada");
        assert_eq!(name(key, session, id), "default:cli:local:ada");
        assert_eq!(name(key, None, id), "default:cli:local:ada", "an older node tells no kind");
        assert_eq!(name(Some("team/one"), other, id), format!("team/one ({id})"));
        assert_eq!(name(None, other, id), id.to_string());
        assert_eq!((text(other), text(None)), ("counter".to_owned(), "-".to_owned()));
    }
}
