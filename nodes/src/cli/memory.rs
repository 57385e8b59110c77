//! `memory`: what agents remember; points that people add, see and forget.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read, Write as _},
    path::{Path, PathBuf},
};

use clap::Subcommand;
use clawnode_proto::{
    ErrorCode,
    api::{ListParams, calls},
    feedback::PointFeedback,
    limits::{MEMORY_PUT_BYTES, MEMORY_PUT_POINTS},
    memory::MemoryKey,
    memory_view::{
        MemoryList, MemoryParams, MemoryPointView, MemoryPutParams, MemoryPutView,
        MemoryShowParams, MemoryStats, PointState, WantedPoint,
    },
};
use serde::Serialize;

use super::{
    command_context::CliContext,
    feedback::{ReflectArgs, reflect},
    memory_forget::{MemoryForgetArgs, forget},
    memory_put::{MemoryPutArgs, params, put},
    memory_search::{self, MemorySearchArgs},
    output::{Output, brief, clean, count, size, time},
};
use crate::{
    client::{ClientError, NodeClient},
    failure::{Exit, Failure},
};

/// Rows of one page: the most that a node gives.
const PAGE: u32 = 1_000;
/// Characters of a text in a table.
const TEXT_SHOWN: usize = 100;
/// A line of a file that is imported. A point is much shorter.
const LINE_BYTES: usize = 64 << 10;
/// The name of standard input.
const STDIN: &str = "-";

/// What `memory --help` ends with.
const EXAMPLES: &str = "\
A memory is `AGENT/all`, `AGENT/peer/CHANNEL:ACCOUNT:PEER` or `shared/NAME`. `forget` masks a point at once
and removes its text within an hour, or at once with `--now`. A file of `export` has a point on each line; a
point that a memory knows is not added again by `import`.

Examples:
  clawnode memory list
  clawnode memory show default/all --all
  clawnode memory put default/all 'Tea is at four.' --subject tea --predicate time --object 16:00
  clawnode memory forget default/all point_02zam1va9ewc6wr7c7g2w6jmx5
  clawnode memory forget default/all point_02zam1va9ewc6wr7c7g2w6jmx5 --now
  clawnode memory forget default/all --all --yes
  clawnode memory export default/all --file points.jsonl
  clawnode memory import shared/handbook points.jsonl
  clawnode memory stats default/all
  clawnode memory search default/all 'When is tea?'
  clawnode memory search --session default:web:bot:ada 'When is tea?'
  clawnode memory reflect default:web:bot:ada
  clawnode memory reindex";

#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(super) enum MemoryCommand {
    /// List the memories, with how much each has
    List,
    /// Show the points of a memory, the first that were learned first
    Show {
        /// The memory
        memory: MemoryKey,
        /// Also show what was superseded, joined with another point, or archived
        #[arg(long)]
        all: bool,
    },
    /// Add a point to a memory
    Put(MemoryPutArgs),
    /// Mask points of a memory, or delete the memory
    Forget(MemoryForgetArgs),
    /// Write the points of a memory, one on each line, as JSON
    Export {
        /// The memory
        memory: MemoryKey,
        /// Also write what was superseded, joined with another point, or archived
        #[arg(long)]
        all: bool,
        /// Write to this file, not to standard output; the file must not exist
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Add the points of a file to a memory: those of an export, or lines with at least a `text`
    Import {
        /// The memory
        memory: MemoryKey,
        /// The file, or `-` for standard input
        file: PathBuf,
    },
    /// Search a memory, or a session and what its agent knows, and show why something was found
    Search(MemorySearchArgs),
    /// Have a model look back at a turn, and write lessons into the memory of its person
    Reflect(ReflectArgs),
    /// Fill the store of the node from journals again
    Reindex {
        /// The memory, or the session (default: everything)
        #[arg(value_name = "KEY")]
        key: Option<String>,
    },
    /// Show how much a memory has, and may have
    Stats {
        /// The memory
        memory: MemoryKey,
    },
}

/// What `memory import` did.
#[derive(Debug, Default, Serialize)]
struct ImportedPoints {
    /// Points that were added.
    added: usize,
    /// Points that the memory knew.
    known: usize,
    /// Points for which there was no room.
    refused: usize,
    /// Lines with points that are not live any more.
    skipped: usize,
}

/// `memory`.
pub(super) async fn run(command: MemoryCommand, context: &CliContext) -> Result<Exit, Failure> {
    let out = context.out;
    match command {
        MemoryCommand::List => {
            out.document(&read_all(context).await?, |list| table(out, &list.memories))?;
        }
        MemoryCommand::Show { memory, all } => {
            let points = points(&context.client().await?, &memory, all).await?;
            out.document(&points, |points| shown(out, points))?;
        }
        MemoryCommand::Put(args) => {
            let view = context.call(calls::MemoryPut, &params(args)?).await?;
            out.document(&view, put)?;
        }
        MemoryCommand::Forget(args) => return forget(args, context).await,
        MemoryCommand::Export { memory, all, file } => {
            let points = points(&context.client().await?, &memory, all).await?;
            export(out, &points, file.as_deref())?;
        }
        MemoryCommand::Import { memory, file } => {
            let view = import(&context.client().await?, &memory, &file).await?;
            let words = |imported: &ImportedPoints| {
                let ImportedPoints { added, known, refused, skipped } = imported;
                format!(
                    "{added} added, {known} known, {refused} refused, {skipped} not live any more"
                )
            };
            out.document(&view, words)?;
            if view.refused > 0 {
                let what =
                    format!("the memory `{memory}` is full: {} were not added", view.refused);
                return Err(Failure::new(Exit::Failed, "conflict", what).hint(format!(
                    "forget some of it: `clawnode memory show {memory}`, then `clawnode memory forget {memory} POINT`"
                )));
            }
        }
        MemoryCommand::Search(args) => return memory_search::search(args, context).await,
        MemoryCommand::Reflect(args) => return reflect(args, context).await,
        MemoryCommand::Reindex { key } => return memory_search::reindex(key, context).await,
        MemoryCommand::Stats { memory } => {
            let view = context.call(calls::MemoryStats, &MemoryParams { memory }).await?;
            out.document(&view, |view| stats(out, view))?;
        }
    }
    Ok(Exit::Ok)
}

async fn read_all(context: &CliContext) -> Result<MemoryList, Failure> {
    let client = context.client().await?;
    let mut all = MemoryList::default();
    loop {
        let page = ListParams { cursor: all.next.take(), limit: Some(PAGE) };
        let page = client.call(calls::MemoryList, &page).await?;
        all.memories.extend(page.memories);
        all.next = page.next;
        if all.next.is_none() {
            return Ok(all);
        }
    }
}

/// All points of a memory.
async fn points(
    client: &NodeClient,
    memory: &MemoryKey,
    all: bool,
) -> Result<Vec<MemoryPointView>, Failure> {
    let (mut points, mut cursor) = (Vec::new(), None);
    loop {
        let params = MemoryShowParams { memory: memory.clone(), all, cursor, limit: Some(PAGE) };
        let page = client.call(calls::MemoryShow, &params).await?;
        points.extend(page.points);
        cursor = page.next;
        if cursor.is_none() {
            return Ok(points);
        }
    }
}

// === Changing ===

fn export(out: Output, points: &[MemoryPointView], file: Option<&Path>) -> Result<(), Failure> {
    let Some(path) = file else {
        return points.iter().try_for_each(|point| out.json_line(point));
    };
    let mut text = String::new();
    for point in points {
        let line = serde_json::to_string(point).map_err(|error| {
            Failure::new(Exit::Failed, "internal", format!("cannot write JSON: {error}"))
        })?;
        text += &line;
        text.push('\n');
    }
    // `create_new`: an export never replaces a file.
    let written = File::create_new(path).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.map_err(|error| {
        let what = format!("cannot write `{}`: {error}", path.display());
        Failure::new(Exit::Failed, "local_file", what).hint("name another file")
    })?;
    out.aside(&format!("{} written to `{}`", count(points.len() as u64, "point"), path.display()));
    Ok(())
}

async fn import(
    client: &NodeClient,
    memory: &MemoryKey,
    path: &Path,
) -> Result<ImportedPoints, Failure> {
    let (lines, skipped) = wanted_lines(path)?;
    let mut done = ImportedPoints { skipped, ..ImportedPoints::default() };
    for points in batches(lines) {
        let params = MemoryPutParams { memory: memory.clone(), points, key: None };
        let asked = params.points.len();
        match client.call(calls::MemoryPut, &params).await {
            Ok(MemoryPutView { added, known, refused }) => {
                done.added += added.len();
                done.known += known.len();
                done.refused += refused.len();
            }
            // Smaller points of a later batch may have room.
            Err(ClientError::Answered(body)) if body.code == ErrorCode::Conflict => {
                done.refused += asked;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(done)
}

/// The points of a file that are live, and how many others it has.
fn wanted_lines(path: &Path) -> Result<(Vec<WantedPoint>, usize), Failure> {
    let unread = |error: std::io::Error| {
        let what = format!("cannot read `{}`: {error}", path.display());
        Failure::new(Exit::Failed, "local_file", what)
    };
    let input: Box<dyn Read> = if path == Path::new(STDIN) {
        Box::new(std::io::stdin())
    } else {
        Box::new(File::open(path).map_err(unread)?)
    };
    let (mut input, mut wanted, mut skipped) = (BufReader::new(input), Vec::new(), 0);
    // One more than a line may have tells that it has too many.
    let most = u64::try_from(LINE_BYTES + 1).unwrap_or(u64::MAX);
    for number in 1.. {
        let mut line = Vec::new();
        input.by_ref().take(most).read_until(b'\n', &mut line).map_err(unread)?;
        if line.is_empty() {
            break;
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        match wanted_line(&line) {
            Ok(Some(point)) => wanted.push(point),
            Ok(None) => skipped += 1,
            Err(problem) => {
                let what = format!("line {number} of `{}`: {problem}", path.display());
                return Err(Failure::new(Exit::Usage, "malformed", what)
                    .hint("nothing was imported; a line is JSON with at least `text`"));
            }
        }
    }
    Ok((wanted, skipped))
}

/// A line of an export, or what a person wrote. Nothing if it says that its point is not live.
fn wanted_line(line: &[u8]) -> Result<Option<WantedPoint>, String> {
    if line.len() > LINE_BYTES {
        return Err(format!("it has more than {}", size(LINE_BYTES as u64)));
    }
    let line = str::from_utf8(line).map_err(|_invalid| "it is not UTF-8 text".to_owned())?;
    let value = clawnode_proto::json::read(line).map_err(|error| error.to_string())?;
    if !value.is_object() {
        return Err("it is not a JSON object".to_owned());
    }
    let point: WantedPoint = if value.get("id").is_none() {
        serde_json::from_value(value).map_err(|error| error.to_string())?
    } else {
        let exported: MemoryPointView =
            serde_json::from_value(value).map_err(|error| error.to_string())?;
        if exported.state != PointState::Live {
            return Ok(None);
        }
        exported.wanted()
    };
    // Before any of them is sent, so that a wrong line keeps out all.
    point.clone().learned()?;
    Ok(Some(point))
}

/// The points in the order of the file, as many as one request takes.
fn batches(points: Vec<WantedPoint>) -> Vec<Vec<WantedPoint>> {
    let bytes = |point: &WantedPoint| {
        let names = [&point.subject, &point.predicate, &point.object];
        point.text.len() + names.into_iter().flatten().map(String::len).sum::<usize>()
    };
    let (mut all, mut batch, mut taken) = (Vec::new(), Vec::new(), 0);
    for point in points {
        let next = bytes(&point);
        if batch.len() == MEMORY_PUT_POINTS || taken + next > MEMORY_PUT_BYTES {
            all.push(std::mem::take(&mut batch));
            taken = 0;
        }
        taken += next;
        batch.push(point);
    }
    all.push(batch);
    all.retain(|batch| !batch.is_empty());
    all
}

// === Tables ===

fn table(out: Output, memories: &[MemoryStats]) -> String {
    if memories.is_empty() {
        return "no memories: add a point with `clawnode memory put default/all TEXT`".to_owned();
    }
    let row = |stats: &MemoryStats| {
        vec![
            clean(&stats.memory.to_string()),
            format!("{} of {}", stats.points, stats.points_most),
            format!("{} of {}", size(stats.bytes), size(stats.bytes_most)),
            stats.kept.to_string(),
            stats.past.to_string(),
        ]
    };
    let head = ["memory", "points", "text", "said by people", "not live"];
    out.table(&head, memories.iter().map(row))
}

fn shown(out: Output, points: &[MemoryPointView]) -> String {
    if points.is_empty() {
        return "no points".to_owned();
    }
    let row = |point: &MemoryPointView| {
        vec![
            point.id.to_string(),
            time(point.source.at),
            name(&point.layer),
            name(&point.trust),
            format!("{}.{}", point.weight / 1_000, point.weight / 100 % 10),
            importance(point),
            name(&point.state),
            brief(&point.text, TEXT_SHOWN),
        ]
    };
    let head = ["point", "learned", "layer", "trust", "weight", "importance", "state", "text"];
    let are_live = points.iter().all(|point| point.state == PointState::Live);
    let main = ["point", if are_live { "layer" } else { "state" }, "trust", "text"];
    out.table_of(&head, points.iter().map(row).collect(), &main)
}

/// How much a point matters by itself, and why.
fn importance(point: &MemoryPointView) -> String {
    let moved = point
        .feedback
        .map(|PointFeedback { given, sum }| format!(" (given {given}, feedback {sum:+})"));
    format!("{}{}", point.importance, moved.unwrap_or_default())
}

fn stats(out: Output, stats: &MemoryStats) -> String {
    let layers = &stats.layers;
    let mut lines = vec![
        String::new(),
        format!(
            "semantic {}, procedural {}, social {}, episode {}; masked so far: {}",
            layers.semantic, layers.procedural, layers.social, layers.episode, stats.masked
        ),
    ];
    // Turns that find no room for what they learned say so nowhere else.
    if stats.kept >= stats.points_most {
        lines.push(format!(
            "it is full, and people said all of it: nothing more is learned; forget some of it with `clawnode memory forget {} \
             POINT`, or raise `[memory] points`",
            clean(&stats.memory.to_string())
        ));
    }
    lines.extend(stats.consolidates.map(|at| format!("consolidates at {}", time(at))));
    lines.extend(
        stats.purges.map(|at| format!("what was forgotten leaves its journal at {}", time(at))),
    );
    lines.extend(stats.stored.iter().flat_map(memory_search::stored));
    // A table is as wide as it has to be.
    format!("{}\n{}", table(out, std::slice::from_ref(stats)), out.paragraph(&lines.join("\n")))
}

fn name(word: &impl Serialize) -> String {
    let value = serde_json::to_value(word).unwrap_or_default();
    value.as_str().unwrap_or("-").to_owned()
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{
        Timestamp,
        memory::{MemoryLayer, MemoryTrust},
        memory_view::MemoryLayers,
    };

    use super::*;
    use crate::config::Env;

    #[test]
    fn lines_of_an_export_and_of_a_person_are_read() {
        let written = wanted_line(br#"{"text": "Tea is at four.", "trust": "person"}"#);
        let written = written.unwrap().unwrap();
        assert_eq!((written.trust, written.source), (Some(MemoryTrust::Person), None));
        let exported = |state: &str| {
            format!(
                r#"{{"id":"point_00000000000000000000000001","layer":"social","text":"a","confidence":90,
                "importance":7,"weight":7000,"trust":"tool","state":"{state}",
                "source":{{"entity":"ent_00000000000000000000000002","event":4,"part":1,"at":9}}}}"#
            )
        };
        let live = wanted_line(exported("live").as_bytes()).unwrap().unwrap();
        assert_eq!((live.layer, live.trust), (Some(MemoryLayer::Social), Some(MemoryTrust::Tool)));
        assert_eq!((live.confidence, live.importance), (Some(90), Some(7)));
        let source = live.source.unwrap();
        assert_eq!((source.event, source.part), (4, 1), "its id stays the same");
        assert_eq!(wanted_line(exported("superseded").as_bytes()), Ok(None));
        assert!(wanted_line(br#"{"text": "a", "text": "b"}"#).is_err(), "it says two things");
    }

    #[test]
    fn a_wrong_line_is_found_before_anything_is_sent() {
        let long = format!(r#"{{"text": "{}"}}"#, "x".repeat(1_001));
        let huge = "x".repeat(LINE_BYTES + 1);
        for (line, says) in [
            (&br#"{"text": "a", "trsut": "tool"}"#[..], "trsut"),
            (&br#"{"text": "a", "importance": 11}"#[..], "`importance` is 11"),
            (&br#"{"text": " "}"#[..], "`text` is empty"),
            (long.as_bytes(), "longer than 1000 characters"),
            (huge.as_bytes(), "more than 64.0 KiB"),
            (&b"[]"[..], "not a JSON object"),
            (&b"\xff"[..], "not UTF-8"),
        ] {
            let problem = wanted_line(line).unwrap_err();
            assert!(problem.contains(says), "{problem}");
        }
    }

    #[test]
    fn stats_say_when_forgotten_texts_are_gone() {
        let memory: MemoryKey = "default/all".parse().unwrap();
        let mut view = MemoryStats {
            entity: memory.entity(),
            memory,
            points: 1,
            points_most: 2_000,
            bytes: 5,
            bytes_most: 2 << 20,
            kept: 1,
            layers: MemoryLayers::default(),
            past: 0,
            masked: 1,
            consolidates: None,
            purges: Some(Timestamp(0)),
            stored: None,
        };
        let out = Output::new(false, false, &Env::default());
        let text = stats(out, &view);
        assert!(text.ends_with("journal at 1970-01-01T00:00:00Z"), "{text}");
        view.purges = None;
        let text = stats(out, &view);
        assert!(text.ends_with("masked so far: 1"), "{text}");
        // Points of agents and tools make room.
        (view.points, view.kept) = (2_000, 1_999);
        assert!(!stats(out, &view).contains("full"));
        view.kept = 2_000;
        let text = stats(out, &view);
        assert!(text.ends_with("or raise `[memory] points`"), "{text}");
    }

    #[test]
    fn a_file_becomes_requests_within_their_limits() {
        let point = |bytes: usize| WantedPoint {
            text: "x".repeat(bytes),
            layer: None,
            subject: None,
            predicate: None,
            object: None,
            confidence: None,
            importance: None,
            trust: None,
            source: None,
        };
        let sizes = |points: Vec<WantedPoint>| -> Vec<usize> {
            batches(points).iter().map(Vec::len).collect()
        };
        assert_eq!(sizes(Vec::new()), [0; 0]);
        assert_eq!(sizes(vec![point(1); 130]), [64, 64, 2]);
        assert_eq!(sizes(vec![point(4_000); 40]), [32, 8]);
    }
}
