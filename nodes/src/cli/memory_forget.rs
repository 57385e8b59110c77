//! `memory forget`: masks points, has their texts removed, and deletes memories.

use clap::Args;
use clawnode_proto::{
    MemoryPointId,
    api::calls,
    memory::MemoryKey,
    memory_view::{MemoryForgetParams, MemoryForgetView},
};

use super::{
    command_context::CliContext,
    output::{clean, count, time},
};
use crate::failure::{Exit, Failure};

/// What no answer of a node says: which sessions were shown a point is in their journals alone.
const SHOWN: &str = "\
sessions whose turns were shown the text keep it, in `recalled` events and in replies that repeat it. This command does not \
look for them: `clawnode journal show SESSION --full` has the ids of points in `recalled`, and `clawnode sessions delete \
SESSION --yes` removes the text";

/// What is said if `--sources` comes too late: a memory keeps no source of a point that is forgotten.
const NO_SOURCES: &str = "\
a point was forgotten before, and the memory does not know any more where it was learned: no session was deleted for it. \
`clawnode sessions delete SESSION --yes` deletes one";

/// What is said with `--now` alone: a script may have named no point by mistake.
const NO_POINT: &str = "no point was named: nothing more was forgotten";

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(super) struct MemoryForgetArgs {
    /// The memory
    memory: MemoryKey,
    /// The ids of the points
    #[arg(value_name = "POINT", required_unless_present_any = ["all", "now"], conflicts_with = "all")]
    points: Vec<MemoryPointId>,
    /// Delete the memory with its journal
    #[arg(long)]
    all: bool,
    /// Remove the texts from the journal at once, also of points that were forgotten before; needs no point
    #[arg(long, conflicts_with = "all")]
    now: bool,
    /// Delete the sessions that the points were learned from; what else was learned there is forgotten, too
    #[arg(long)]
    sources: bool,
    /// Confirm that the memory or the sessions are deleted
    #[arg(long)]
    yes: bool,
}

/// Runs `memory forget`.
pub(super) async fn forget(args: MemoryForgetArgs, context: &CliContext) -> Result<Exit, Failure> {
    let MemoryForgetArgs { memory, points, all, now, sources, yes } = args;
    if all && !yes {
        let what = format!("`{memory}` was not deleted: its points would be lost");
        return Err(Failure::new(Exit::Usage, "not_confirmed", what)
            .hint("add `--yes` to delete it; `clawnode memory export` writes a copy"));
    }
    if sources && !all && points.is_empty() {
        let what = "`--sources` needs the points whose sessions are deleted, or `--all`";
        return Err(Failure::new(Exit::Usage, "usage", what)
            .hint(format!("`clawnode memory show {memory}` shows the points that it has")));
    }
    if sources && !yes {
        let what = "nothing was forgotten: `--sources` deletes the sessions that the points were learned from";
        return Err(Failure::new(Exit::Usage, "not_confirmed", what)
            .hint("add `--yes` to delete them, or leave out `--sources`: the answer names them"));
    }
    let client = context.client().await?;
    let points: Vec<Option<MemoryPointId>> =
        if all { vec![None] } else { points.into_iter().map(Some).collect() };
    let forget = async |point: Option<MemoryPointId>, now: bool| {
        let params = MemoryForgetParams { memory: memory.clone(), point, all, now, sources };
        client.call(calls::MemoryForget, &params).await
    };
    // Before all of them are forgotten, nothing is purged: one purge is enough.
    let mut views = Vec::new();
    for point in points.iter().copied() {
        views.push(forget(point, false).await?);
    }
    match (now, points.last().copied()) {
        (true, Some(last)) => {
            let purged = forget(last, true).await?;
            for view in &mut views {
                (view.purged, view.purges) = (purged.purged, purged.purges);
            }
        }
        (true, None) => views.push(forget(None, true).await?),
        (false, _) => {}
    }
    context.out.document(&views, |views| {
        let mut lines: Vec<String> = views.iter().map(forgotten).collect();
        if points.is_empty() {
            lines.push(NO_POINT.to_owned());
        } else if sources && views.iter().any(has_no_source_left) {
            lines.push(NO_SOURCES.to_owned());
        }
        lines.push(SHOWN.to_owned());
        context.out.paragraph(&lines.join("\n"))
    })?;
    Ok(Exit::Ok)
}

fn forgotten(view: &MemoryForgetView) -> String {
    let MemoryForgetView { memory, forgotten, deleted, purged, purges, .. } = view;
    let MemoryForgetView { sources, deleted_sources, forgotten_with_sources, .. } = view;
    let memory = clean(&memory.to_string());
    let mut lines = vec![if *deleted {
        let points = count(u64::from(*forgotten), "live point");
        format!("`{memory}` is deleted, with {points} and its journal")
    } else if *purged {
        format!("the journal of `{memory}` is purged: that journal has no text that was forgotten")
    } else {
        let until = purges.map_or_else(|| "it is purged".to_owned(), time);
        format!(
            "the point is not recalled any more; its text stays in the journal of `{memory}` until {until}, \
             or until `--now`"
        )
    }];
    lines.extend(deleted_sources.iter().map(|session| format!("`{}` is deleted", clean(session))));
    if *forgotten_with_sources > 0 {
        let also = count(u64::from(*forgotten_with_sources), "other point");
        lines.push(format!(
            "{also} of `{memory}` went with the deleted sessions that had taught them"
        ));
    }
    lines.extend(sources.iter().map(|session| {
        let session = clean(session);
        format!("it was learned from `{session}`, which still has it: `clawnode sessions delete {session} --yes`")
    }));
    lines.extend(view.sources_elsewhere.iter().map(|source| {
        let source = clean(source);
        format!("its source is not here: that of `{source}` was deleted, or is of another cluster")
    }));
    lines.join("\n")
}

/// Whether it was forgotten before, so that nothing says where it was learned.
const fn has_no_source_left(view: &MemoryForgetView) -> bool {
    let names_none = view.sources.is_empty() && view.sources_elsewhere.is_empty();
    view.forgotten == 0 && !view.deleted && names_none && view.deleted_sources.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_says_what_went_and_what_is_left_of_a_text() {
        let view = MemoryForgetView {
            memory: "default/all".parse().unwrap(),
            forgotten: 1,
            deleted: false,
            purged: true,
            purges: None,
            sources: vec!["default:web:bot:ben".to_owned()],
            deleted_sources: vec!["default:web:bot:ada".to_owned()],
            forgotten_with_sources: 2,
            sources_elsewhere: vec!["default:web:bot:cy".to_owned()],
        };
        let said = forgotten(&view);
        for part in [
            "that journal has no text that was forgotten",
            "`default:web:bot:ada` is deleted",
            "2 other points of `default/all` went with",
            "`default:web:bot:ben`, which still has it",
            "its source is not here: that of `default:web:bot:cy`",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(!has_no_source_left(&view));
        let before = MemoryForgetView {
            forgotten: 0,
            sources: Vec::new(),
            deleted_sources: Vec::new(),
            sources_elsewhere: Vec::new(),
            ..view.clone()
        };
        assert!(has_no_source_left(&before), "`--sources` found none to delete");
        // An operator's own point has no source, and is forgotten now.
        assert!(!has_no_source_left(&MemoryForgetView { forgotten: 1, ..before }));
        let none = MemoryForgetView { forgotten_with_sources: 0, ..view };
        assert!(!forgotten(&none).contains("other point"), "{}", forgotten(&none));
    }
}
