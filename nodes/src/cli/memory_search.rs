//! `memory search` and `memory reindex`.

use std::time::{Duration, Instant};

use clap::Args;
use clawnode_proto::{
    api::calls,
    memory::MemoryKey,
    memory_view::{
        FoundInMemory, IndexBuild, MeaningFill, MemoryReindexParams, MemorySearchParams,
        MemorySearchView, MemoryStoreView, StoredMemory,
    },
};

use super::{
    command_context::CliContext,
    output::{Output, brief, clean},
};
use crate::failure::{Exit, Failure};

/// Characters of a text in a table.
const TEXT_SHOWN: usize = 80;
/// How often it is asked how far the store is.
const LOOK: Duration = Duration::from_millis(500);
/// How long a store may get no further before that is an error.
const STUCK: Duration = Duration::from_mins(2);

#[derive(Debug, Args)]
pub(super) struct MemorySearchArgs {
    /// The memory, then what to look for; with `--session`, what to look for alone
    #[arg(required = true, num_args = 1..=2, value_name = "MEMORY|QUERY")]
    words: Vec<String>,
    /// Search the conversation of this session, and what its agent knows of its peer and in general
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
    /// How many at most, 1 to 100 (default: 10)
    #[arg(long, value_name = "N")]
    limit: Option<u32>,
}

/// `memory search`.
pub(super) async fn search(args: MemorySearchArgs, context: &CliContext) -> Result<Exit, Failure> {
    let view = context.call(calls::MemorySearch, &params(args)?).await?;
    let out = context.out;
    if !view.degraded.is_empty() {
        let keys: Vec<String> = view.degraded.iter().map(|key| clean(key)).collect();
        out.aside(&format!(
            "not searched whole: {}; `clawnode status` says what is wrong",
            keys.join(", ")
        ));
    }
    out.document(&view, |view| shown(out, view))?;
    Ok(Exit::Ok)
}

/// `memory reindex`. Of everything, waits until the store has it, and says how far it is.
pub(super) async fn reindex(key: Option<String>, context: &CliContext) -> Result<Exit, Failure> {
    let out = context.out;
    let client = context.client().await?;
    let mut params = MemoryReindexParams { all: key.is_none(), ..MemoryReindexParams::default() };
    match key.map(|key| (key.parse::<MemoryKey>(), key)) {
        Some((Ok(memory), _)) => params.memory = Some(memory),
        Some((Err(_), session)) => params.session = Some(session),
        None => {}
    }
    let mut view = client.call(calls::MemoryReindex, &params).await?;
    let (mut said, mut moved) = (None, (view.upto, Instant::now()));
    while params.all && view.rebuilding {
        let percent = percent(&view);
        if said.replace(percent) != Some(percent) {
            out.aside(&format!("{percent} % of the journals are read"));
        }
        if view.upto != moved.0 {
            moved = (view.upto, Instant::now());
        } else if moved.1.elapsed() > STUCK {
            return Err(stuck(&view));
        }
        tokio::time::sleep(LOOK).await;
        view = client.call(calls::MemoryReindex, &MemoryReindexParams::default()).await?;
    }
    out.document(&view, |view| format!("store {}: filled to position {}", view.store, view.upto))?;
    Ok(Exit::Ok)
}

/// How much of a memory the store has, in lines for people.
pub(super) fn stored(stored: &StoredMemory) -> Vec<String> {
    let mut lines =
        vec![format!("store {}: event {} of {}", stored.store, stored.upto, stored.end)];
    if let Some(meaning) = &stored.meaning {
        let MeaningFill { model, vectors, documents, failure, building, .. } = meaning;
        lines.push(format!("by meaning, with {}: {vectors} of {documents}", clean(model)));
        if let Some(IndexBuild { done, parts }) = building {
            lines.push(format!("its index is built beside the one before: {done} of {parts}"));
        }
        lines.extend(failure.iter().map(|failure| format!("not now: {}", clean(failure))));
    }
    lines
}

fn stuck(view: &MemoryStoreView) -> Failure {
    let (upto, end, seconds) = (view.upto, view.end, STUCK.as_secs());
    let what =
        format!("the store is filled to position {upto} of {end}, and no further for {seconds} s");
    let hint =
        "the node goes on trying, and its log says what fails; `clawnode status` warns meanwhile";
    Failure::new(Exit::Failed, "memory_stuck", what).hint(hint)
}

fn params(args: MemorySearchArgs) -> Result<MemorySearchParams, Failure> {
    let MemorySearchArgs { words, session, limit } = args;
    let usage = |what: &str| Failure::new(Exit::Usage, "usage", what);
    let hint = "for example `clawnode memory search default/all 'When is tea?'`";
    match (words.as_slice(), session) {
        ([query], Some(session)) => {
            let (session, query) = (Some(session), query.clone());
            Ok(MemorySearchParams { memory: None, session, query, limit })
        }
        ([memory, query], None) => {
            let memory = memory.parse().map_err(|error| usage(&format!("{error}")).hint(hint))?;
            let (memory, query) = (Some(memory), query.clone());
            Ok(MemorySearchParams { memory, session: None, query, limit })
        }
        _ => Err(usage("name either a memory or `--session`, and what to look for").hint(hint)),
    }
}

fn percent(view: &MemoryStoreView) -> u64 {
    let (upto, end) = (view.upto.0, view.end.0.max(1));
    upto.saturating_mul(100).checked_div(end).unwrap_or_default().min(100)
}

fn shown(out: Output, view: &MemorySearchView) -> String {
    if view.found.is_empty() {
        return "nothing fits".to_owned();
    }
    let row = |found: &FoundInMemory| {
        let score = &found.score;
        let number = |part: f64| format!("{part:.2}");
        vec![
            number(score.total),
            number(score.words),
            score.meaning.map_or_else(|| "-".to_owned(), number),
            number(score.neighbours),
            number(score.factor),
            found.point.map_or_else(|| "-".to_owned(), |point| point.to_string()),
            clean(&found.scope),
            brief(&found.text, TEXT_SHOWN),
        ]
    };
    let head = ["score", "words", "meaning", "neighbours", "factor", "point", "in", "text"];
    out.table_of(&head, view.found.iter().map(row).collect(), &["score", "point", "text"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_is_of_a_memory_or_of_a_session() {
        let asked = |words: &[&str], session: Option<&str>| {
            let words = words.iter().map(|word| (*word).to_owned()).collect();
            params(MemorySearchArgs { words, session: session.map(str::to_owned), limit: None })
        };
        let found = asked(&["a/all", "tea"], None).unwrap();
        assert_eq!(
            (found.memory.unwrap().to_string(), found.query),
            ("a/all".into(), "tea".into())
        );
        let found = asked(&["tea"], Some("a:b:c:d")).unwrap();
        assert_eq!((found.session.as_deref(), found.query.as_str()), (Some("a:b:c:d"), "tea"));
        assert!(asked(&["tea"], None).is_err());
        assert!(asked(&["a/all", "tea"], Some("a:b:c:d")).is_err());
        assert!(asked(&["all", "tea"], None).is_err());
    }
}
