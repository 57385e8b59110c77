//! Searches as people ask for them, and what they find. Pure.

use std::time::Duration;

use clawnode_memory::{
    serve::FillProgress,
    store::{
        DocumentKind, FoundDocument, RecallAnswer, RecallQuery, StoreAway, StoreScope,
        score::ScoreParts,
    },
};
use clawnode_proto::{
    ErrorBody, ErrorCode, ProcessId, SessionKey, Timestamp,
    memory::{MemoryKey, MemorySource, MemoryTrust},
    memory_view::{
        FoundInMemory, MemoryReindexParams, MemorySearchParams, MemorySearchView, MemoryStoreView,
        RecallScore,
    },
    node::Heartbeat,
    view::WarningView,
};

/// How long a search waits for the vector of its query: a person sees that it is searched for.
const MEANING_WITHIN: Duration = Duration::from_secs(10);
/// How far the store may be behind before `status` warns.
const BEHIND: Duration = Duration::from_mins(1);

/// The scopes of a search. Those of a session follow from its key alone (MEM-1).
pub(super) fn scopes(params: &MemorySearchParams) -> Result<Vec<StoreScope>, ErrorBody> {
    if let Some(memory) = &params.memory {
        return Ok(vec![StoreScope::of_memory(memory)]);
    }
    let session = session(params.session.as_deref().unwrap_or_default())?;
    Ok(vec![
        StoreScope::of_session(&session),
        StoreScope::of_memory(&MemoryKey::of_peer(&session)),
        StoreScope::of_memory(&MemoryKey::Agent(session.agent)),
    ])
}

/// The scopes that are to be filled again.
pub(super) fn to_refill(params: &MemoryReindexParams) -> Result<Vec<StoreScope>, ErrorBody> {
    let memory = params.memory.as_ref().map(StoreScope::of_memory);
    let session = params.session.as_deref().map(session).transpose()?;
    Ok(memory.into_iter().chain(session.as_ref().map(StoreScope::of_session)).collect())
}

/// Why a scope is not filled again here: another process has its index.
pub(super) fn held_elsewhere(
    scope: &StoreScope,
    holder: ProcessId,
    heartbeat: Option<&Heartbeat>,
) -> ErrorBody {
    let key = key(scope);
    let node = heartbeat.map_or_else(|| holder.to_string(), |heartbeat| heartbeat.node.to_string());
    let url = heartbeat.and_then(|heartbeat| heartbeat.url.as_deref());
    let hint = match url {
        Some(url) => format!("ask that node: `clawnode memory reindex {key} --url {url}`"),
        None => format!(
            "`{node}` has no address for clients: stop it, remove `memory` in its data folder and start it, and it fills \
             everything again"
        ),
    };
    let what = format!("node `{node}` holds the index of `{key}`, and this node has none to fill");
    ErrorBody::new(ErrorCode::Conflict, what).hint(hint)
}

/// What a person looks for: also what tools brought, because they see what each thing is.
pub(super) fn query(text: String) -> RecallQuery {
    let meaning_within = MEANING_WITHIN;
    RecallQuery { least_trust: MemoryTrust::Tool, meaning_within, ..RecallQuery::new(text) }
}

/// What a search in this store found, for people.
pub(super) fn view(answer: RecallAnswer, store: &str) -> MemorySearchView {
    MemorySearchView {
        found: answer.found.into_iter().map(found).collect(),
        store: store.to_owned(),
        degraded: answer.damaged.iter().map(key).collect(),
    }
}

/// How far this store is filled, for people.
pub(super) fn progress(progress: FillProgress, now: Timestamp, store: &str) -> MemoryStoreView {
    let lag = now.since(progress.whole_at).as_millis();
    let lag_ms = (progress.whole_at > Timestamp(0)).then(|| u64::try_from(lag).unwrap_or(u64::MAX));
    let (upto, end, rebuilding) = (progress.upto, progress.end, progress.is_rebuilding);
    MemoryStoreView { store: store.to_owned(), upto, end, lag_ms, rebuilding }
}

/// Warns of a store that cannot be used now.
pub(super) fn away(away: StoreAway) -> WarningView {
    let StoreAway { what, hint } = away;
    WarningView { name: "memory.away".to_owned(), message: what, hint }
}

/// Warns if the store lacks what journals have for a while.
pub(super) fn behind(progress: FillProgress, now: Timestamp) -> Option<WarningView> {
    let is_first = progress.whole_at == Timestamp(0);
    let lag = now.since(if is_first { progress.began_at } else { progress.whole_at });
    (lag > BEHIND).then(|| {
        let (upto, end, seconds) = (progress.upto, progress.end, lag.as_secs());
        let what = if progress.is_rebuilding { "is being filled" } else { "cannot be filled now" };
        let lacks = if is_first {
            format!("searches may lack what was said before this node started {seconds} s ago")
        } else {
            format!("searches may lack what was said in the last {seconds} s")
        };
        WarningView {
            name: "memory.behind".to_owned(),
            message: format!("the store of memories {what}: {lacks} (position {upto} of {end})"),
            hint: "the log of this node says why; journals have everything".to_owned(),
        }
    })
}

fn session(key: &str) -> Result<SessionKey, ErrorBody> {
    key.parse().map_err(|error| {
        ErrorBody::new(ErrorCode::InvalidParams, format!("parameter `session`: {error}"))
    })
}

fn key(scope: &StoreScope) -> String {
    let memory = scope.memory().map(|key| key.to_string());
    let session = scope.session().map(|key| key.to_string());
    memory.or(session).unwrap_or_else(|| scope.to_string())
}

fn found(found: FoundDocument) -> FoundInMemory {
    let FoundDocument { scope, document, score } = found;
    let (entity, event, part) = (document.id.entity, document.id.event, document.id.part);
    let source = MemorySource { entity, event, part, at: document.at };
    let (point, layer) = match document.kind {
        DocumentKind::Point(layer) => (Some(source.point()), Some(layer)),
        DocumentKind::Passage => (None, None),
    };
    let ScoreParts { bm25, words, meaning, neighbours, factor, total } = score;
    FoundInMemory {
        scope: key(&scope),
        point,
        layer,
        text: document.text,
        trust: document.trust,
        source,
        score: RecallScore { total, words, bm25, meaning, neighbours, factor },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_warns_of_a_store_that_is_far_behind() {
        let filled = |began_at, whole_at| FillProgress {
            began_at: Timestamp(began_at),
            whole_at: Timestamp(whole_at),
            ..FillProgress::default()
        };
        let now = Timestamp(61_001);
        assert!(
            behind(filled(500, 1_000), now).is_some_and(|warning| warning.name == "memory.behind")
        );
        assert!(behind(filled(500, 1_001), now).is_none());
        assert!(behind(filled(1_001, 0), now).is_none(), "it has just begun");
        let first = behind(filled(1_000, 0), now).unwrap();
        assert!(first.message.contains("before this node started 60 s ago"), "{first:?}");
    }

    #[test]
    fn who_cannot_fill_an_index_says_who_can() {
        let scope = StoreScope::of_memory(&"a/peer/web:bot:ada".parse().unwrap());
        let process = ProcessId::from_u128(7);
        let heartbeat = |url: Option<&str>| -> Heartbeat {
            let heartbeat = serde_json::json!({
                "process": process, "node": "b", "version": "0", "roles": ["worker"], "started": 0,
                "draining": false, "entities": 0, "config": clawnode_proto::Digest::ZERO, "url": url,
            });
            serde_json::from_value(heartbeat).unwrap()
        };
        for (known, node, hint) in [
            (Some(heartbeat(Some("http://b:7410"))), "`b`".to_owned(), "ada --url http://b:7410"),
            (Some(heartbeat(None)), "`b`".to_owned(), "remove `memory`"),
            (None, process.to_string(), "remove `memory`"),
        ] {
            let error = held_elsewhere(&scope, process, known.as_ref());
            assert_eq!(error.code, ErrorCode::Conflict);
            assert!(error.message.contains(&node), "{error:?}");
            assert!(error.message.contains("a/peer/web:bot:ada"), "{error:?}");
            assert!(error.hint.as_ref().unwrap().contains(hint), "{error:?}");
        }
    }

    #[test]
    fn a_session_is_searched_with_the_memories_of_its_own_agent_and_peer() {
        let asked = |session: &str| {
            let session = Some(session.to_owned());
            let query = "tea".to_owned();
            let params = MemorySearchParams { memory: None, session, query, limit: None };
            scopes(&params).map(|found| found.iter().map(key).collect::<Vec<_>>())
        };
        let expected = ["a:web:bot:ada~1", "a/peer/web:bot:ada", "a/all"];
        assert_eq!(asked("a:web:bot:ada~1").unwrap(), expected, "MEM-1");
        for hostile in ["a:web:bot", "a/all", "session/a:web:bot:ada", "a:web:bot:ada:b", ""] {
            let error = asked(hostile).unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidParams, "{hostile}");
        }
    }
}
