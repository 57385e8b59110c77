//! `recall::quality` and `recall::search`: how well the local store finds what was said, and how long it takes.
//!
//! Quality is measured on the set that CI measures (40 people, 2,000 messages, 400 questions), and on public sets in the
//! folder `CLAWNODE_BENCH_SETS`, if they are there: `locomo10.json` of snap-research/locomo, and `chats/100K` of
//! mohammadtavakoli78/BEAM, which is BEAM-128K. With `--embeddings-dir` also by a model, as a node has it in its process,
//! and how long that takes for a text (`recall::embed`). With the feature `qdrant`, `--qdrant` asks a server the searches
//! that are timed. Run with `cargo run --release -p clawnode-bench --bin recall`.
//!
//! - `sets` reads the public sets.
//! - `ways` is what a search counts: words, meaning, neighbours.
//! - `model` makes vectors of the sets.
//! - `speed` times searches, and `server` those of a Qdrant server.

mod model;
#[cfg(feature = "qdrant")]
mod server;
mod sets;
mod speed;
mod ways;

use std::path::PathBuf;

use clap::Parser;
use clawnode_bench::{Error, Row, Table};
use clawnode_memory::store::quality::{QuestionSet, RecallFigures, synthetic};

use model::{ModelSort, SetModel};
use ways::{AskedSet, RecallWay, WAYS};

/// recall@10 and nDCG@10 that a set has to reach: with words and neighbours alone, with a static model, and with `MiniLM`.
/// A prototype of the formula reached them.
type SetTargets = [(f64, f64); 3];
const LOCOMO: SetTargets = [(0.64, 0.47), (0.65, 0.48), (0.68, 0.50)];
const BEAM: SetTargets = [(0.50, 0.40), (0.52, 0.42), (0.52, 0.42)];

/// Measures how well the local store finds what was said, and how fast
#[derive(Debug, Parser)]
struct Args {
    /// Folder with public sets; those that it lacks are left out
    #[arg(long, env = "CLAWNODE_BENCH_SETS")]
    sets: Option<PathBuf>,
    /// Chats of BEAM that are measured
    #[arg(long, default_value_t = 20)]
    chats: usize,
    /// Folder with the files of a model, to measure quality with its vectors
    #[arg(long)]
    embeddings_dir: Option<PathBuf>,
    /// What that model is; `local` needs the feature `embed-local`
    #[arg(long, value_enum, default_value_t = ModelSort::Static)]
    embeddings: ModelSort,
    /// Where the indexes go; a real disk
    #[arg(long, default_value = "target")]
    dir: PathBuf,
    /// Documents of the larger index
    #[arg(long, default_value_t = 100_000)]
    documents: usize,
    /// Searches that are timed
    #[arg(long, default_value_t = 1_000)]
    searches: usize,
    /// Numbers of a vector, where there are some
    #[arg(long, default_value_t = 384)]
    dimensions: usize,
    /// The gRPC interface of a Qdrant server, to time the same searches there
    #[cfg(feature = "qdrant")]
    #[arg(long, value_name = "URL")]
    qdrant: Option<String>,
}

fn main() -> Result<(), Error> {
    let args = Args::parse();
    let folder = args.embeddings_dir.as_deref();
    let model = folder.map(|folder| SetModel::open(folder, args.embeddings)).transpose()?;
    let mut quality = Quality { args: &args, model, table: Table::default() };
    quality.measure("synthetic", synthetic::set(), None)?;
    if let Some(sets) = &args.sets {
        let locomo = sets.join("locomo10.json");
        if locomo.exists() {
            quality.measure("locomo", sets::locomo_set(&locomo)?, Some(LOCOMO))?;
        }
        let beam = sets.join("chats").join("100K");
        if beam.exists() {
            quality.measure("beam-128k", sets::beam_set(&beam, args.chats)?, Some(BEAM))?;
        }
    }
    let mut table = quality.table;
    for documents in [2_000, args.documents] {
        for dimensions in [0, args.dimensions] {
            table.add(speed::timed(&args.dir, documents, dimensions, args.searches)?);
        }
    }
    #[cfg(feature = "qdrant")]
    if let Some(url) = &args.qdrant {
        for documents in [2_000, args.documents] {
            for row in server::timed(url, documents, args.dimensions, args.searches)? {
                table.add(row);
            }
        }
    }
    Ok(table.json()?)
}

/// What quality is measured with, and the rows so far.
struct Quality<'a> {
    args: &'a Args,
    model: Option<SetModel>,
    table: Table,
}

// === impl Quality ===

impl Quality<'_> {
    /// Asks a set in all ways that can be asked.
    fn measure(
        &mut self,
        name: &str,
        set: QuestionSet,
        targets: Option<SetTargets>,
    ) -> Result<(), Error> {
        let mut asked = AskedSet { queries: set.queries(), set };
        if let Some(model) = &self.model {
            self.table.add(model.embed(name, &mut asked)?);
        }
        let has_model = self.model.is_some();
        for way in WAYS.into_iter().filter(|way| has_model || !way.meaning) {
            let found = way.measure(&self.args.dir, &asked)?;
            let name = format!("{name}/{}", way.name());
            let mut row = quality(&name, found.all);
            let target = targets.and_then(|targets| target_of(targets, way, self.args.embeddings));
            if let Some((recall, ndcg)) = target {
                row = row.at_least("recall@10", found.all.recall_10, recall);
                row = row.at_least("nDCG@10", found.all.ndcg_10, ndcg);
            }
            // The questions of a public set are of one sort.
            if found.of.len() < 2 {
                self.table.add(row);
                continue;
            }
            self.table.add(row.figure("no_answer_separation", found.separation));
            for (sort, found) in found.of {
                self.table.add(quality(&format!("{name}/{sort:?}"), found));
            }
        }
        Ok(())
    }
}

/// What a way has to reach; none if it is none of a node.
fn target_of(targets: SetTargets, way: RecallWay, model: ModelSort) -> Option<(f64, f64)> {
    let [words, with_static, with_local] = targets;
    let with_model = match model {
        ModelSort::Static => with_static,
        ModelSort::Local => with_local,
    };
    let found = if way.meaning { with_model } else { words };
    (way.words && way.neighbours).then_some(found)
}

fn quality(name: &str, found: RecallFigures) -> Row {
    Row::new(format!("recall::quality/{name}"))
        .figure("questions", f64::from(found.questions))
        .figure("recall_5", found.recall_5)
        .figure("recall_10", found.recall_10)
        .figure("recall_20", found.recall_20)
        .figure("ndcg_10", found.ndcg_10)
        .figure("mrr", found.mrr)
}
