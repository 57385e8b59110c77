//! `feedback`: what people, and models, think of the turns of a session. `memory reflect`: has a model say so.

use clap::Args;
use clawnode_proto::{
    Cursor,
    api::calls,
    feedback::{RatedPoints, Thumb},
    feedback_view::{
        FeedbackGive, FeedbackList, FeedbackRow, FeedbackView, MemoryReflectParams, ReflectionRow,
    },
    view::DoneView,
};

use super::{
    command_context::CliContext,
    output::{Output, brief, count, exact, time},
};
use crate::failure::{Exit, Failure};

/// Longest comment in a table; `--json` has it whole.
const COMMENT_CHARS: usize = 60;
/// Rows of one page.
const PAGE: u32 = 1_000;

/// What `feedback --help` ends with.
const EXAMPLES: &str = "\
The points of memories that the turn recalled matter one step more or less from then on. The last
feedback of a turn counts. Without a turn, the command shows all feedback of the session, and
what models that looked back at turns think of them.

Examples:
  clawnode feedback default:cli:local:ada 3 up
  clawnode feedback default:cli:local:ada turn_01kb0e8x0000000000000000m1 down --comment 'Tea is at five'
  clawnode feedback default:cli:local:ada";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct FeedbackArgs {
    /// The session: its key (`agent:channel:account:peer`) or its id
    session: String,
    /// The number of a turn that has ended, from 1, or its id; `clawnode sessions show --json` has it
    #[arg(requires = "thumb")]
    turn: Option<String>,
    /// Whether the turn was good or bad
    #[arg(value_name = "up|down")]
    thumb: Option<Thumb>,
    /// Say why, in at most 1,000 characters
    #[arg(long, value_name = "TEXT", requires = "thumb")]
    comment: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct ReflectArgs {
    /// The session: its key (`agent:channel:account:peer`) or its id
    session: String,
    /// The number of a turn that has ended, from 1, or its id (default: the last one)
    turn: Option<String>,
    /// A name for this request: a repeat under the same name asks for nothing
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
}

/// `memory reflect`.
pub(super) async fn reflect(args: ReflectArgs, context: &CliContext) -> Result<Exit, Failure> {
    let ReflectArgs { session, turn, key: idempotency_key } = args;
    let out = context.out;
    let params = MemoryReflectParams { session: session.clone(), turn, idempotency_key };
    let done = context.call(calls::MemoryReflect, &params).await?;
    let words = format!(
        "a model looks back at the turn; `clawnode feedback {session}` shows the rating and the lessons"
    );
    out.document(&done, |_: &DoneView| words)?;
    Ok(Exit::Ok)
}

/// `feedback`.
pub(super) async fn run(args: FeedbackArgs, context: &CliContext) -> Result<Exit, Failure> {
    let FeedbackArgs { session, turn, thumb, comment } = args;
    let out = context.out;
    let Some((turn, thumb)) = turn.zip(thumb) else {
        let view = read_all(session, context).await?;
        out.document(&view, |view| table(out, view))?;
        return Ok(Exit::Ok);
    };
    let given = FeedbackGive { session, turn, thumb, comment, idempotency_key: None };
    let done = context.call(calls::FeedbackGive, &given).await?;
    out.document(&done, |_: &DoneView| format!("thumb {} is stored", thumb.as_str()))?;
    Ok(Exit::Ok)
}

async fn read_all(session: String, context: &CliContext) -> Result<FeedbackView, Failure> {
    let source = context.source().await?;
    let mut cursor: Option<Cursor> = None;
    let (mut feedback, mut reflections) = (Vec::new(), Vec::new());
    loop {
        let page = FeedbackList { session: session.clone(), cursor, limit: Some(PAGE) };
        let page = source.call(calls::FeedbackList, &page).await?;
        feedback.extend(page.feedback);
        reflections.extend(page.reflections);
        cursor = page.next;
        if cursor.is_none() {
            return Ok(FeedbackView { session: page.session, feedback, reflections, next: None });
        }
    }
}

fn table(out: Output, view: &FeedbackView) -> String {
    if view.feedback.is_empty() && view.reflections.is_empty() {
        return format!("{}: no feedback", exact(&view.session));
    }
    let row = |row: &FeedbackRow| {
        let cells = vec![
            row.turn.to_string(),
            time(row.at),
            row.thumb.as_str().to_owned(),
            moved(row),
            brief(row.comment.as_deref().unwrap_or_default(), COMMENT_CHARS),
        ];
        (row.event, cells)
    };
    let of_people = view.feedback.iter().map(row);
    let mut rows: Vec<_> = of_people.chain(view.reflections.iter().map(reflected)).collect();
    rows.sort_by_key(|(event, _)| *event);
    let head = ["turn", "time", "rating", "moves", "comment"];
    out.table(&head, rows.into_iter().map(|(_, cells)| cells))
}

/// The event of a reflection, and its cells.
fn reflected(row: &ReflectionRow) -> (u64, Vec<String>) {
    let rating = match (row.rating, &row.by) {
        (Some(rating), Some(by)) => format!("{rating}/5 by {by}"),
        _ => "no rating by a model".to_owned(),
    };
    let lessons = u64::try_from(row.lessons.len()).unwrap_or(u64::MAX);
    let moves = if lessons == 0 { "-".to_owned() } else { count(lessons, "lesson") };
    let comment = row.failure.clone().unwrap_or_else(|| row.lessons.join(" | "));
    let comment = brief(&comment, COMMENT_CHARS);
    (row.event, vec![row.turn.to_string(), time(row.at), rating, moves, comment])
}

/// How many points it moves, and where.
fn moved(row: &FeedbackRow) -> String {
    if row.moves.is_empty() {
        return "-".to_owned();
    }
    let words = |RatedPoints { memory, points }: &RatedPoints| {
        let points = u64::try_from(points.len()).unwrap_or(u64::MAX);
        format!("{} of {}", count(points, "point"), exact(&memory.to_string()))
    };
    let all: Vec<String> = row.moves.iter().map(words).collect();
    format!("{:+}: {}", row.step, all.join(", "))
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{MemoryPointId, Timestamp, TurnId};

    use super::*;

    #[test]
    fn a_row_says_what_it_moves() {
        let rated = |memory: &str, points: u128| RatedPoints {
            memory: memory.parse().unwrap(),
            points: (0..points).map(MemoryPointId::from_u128).collect(),
        };
        let mut row = FeedbackRow {
            turn: TurnId::from_u128(1),
            thumb: Thumb::Down,
            comment: None,
            at: Timestamp(0),
            event: 4,
            step: -2,
            moves: vec![rated("default/all", 1), rated("shared/handbook", 2)],
        };
        assert_eq!(moved(&row), "-2: 1 point of default/all, 2 points of shared/handbook");
        (row.step, row.moves) = (1, Vec::new());
        assert_eq!(moved(&row), "-");
    }
}
