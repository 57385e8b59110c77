//! What a tutorial has its reader type, and what they see then.
//!
//! There are two terminals. A block `sh` is typed in the second, which has a shell. A block `log` is
//! pasted into the chat of the first. A block `text` is what a terminal shows: its lines `$ COMMAND` are
//! typed at the shell of the first one, `> TEXT` at the prompt of its chat (`Ctrl-D` is that key), and an
//! answer behind a question that begins with `run it?`. Where nothing is typed in it, it is what the last
//! terminal shows. `…` is anything. Other blocks are for the reader alone.

use super::page::{Block, fenced};

/// What begins a question of the chat.
pub(super) const QUESTION: &str = "run it?";
/// What begins the heading of a task: `## 1. Title`.
const HEADING: &str = "## ";

/// One of the two terminals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The one with the chat.
    First,
    /// The one with a shell.
    Second,
}

/// One thing that a reader does or sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// A command at a shell; several lines if it has a here-document.
    Command(Place, String),
    /// A line at the chat's prompt.
    Say(String),
    /// A key at the chat's prompt: `Ctrl-D`.
    Press(char),
    /// Several lines at once, and Enter.
    Paste(String),
    /// An answer to the chat's question.
    Answer(String),
    /// The terminal that was used last shows this, or the first.
    See(Option<Place>, String),
}

/// A task of a tutorial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Its number and what it is: `1. Talk`.
    pub title: String,
    /// Its acts, each with the number of its line.
    pub acts: Vec<(usize, Act)>,
}

// === impl Task ===

impl Task {
    /// How many things are typed or pasted.
    pub fn typed(&self) -> usize {
        self.acts.iter().filter(|(_, act)| !matches!(act, Act::See(..))).count()
    }
}

/// The tasks of a page.
pub fn tasks(page: &str) -> Vec<Task> {
    let mut tasks: Vec<(usize, Task)> = Vec::new();
    let blocks = fenced(page);
    for (number, line) in (1..).zip(page.lines()) {
        let inside =
            |block: &Block| (block.line..block.line + block.text.lines().count()).contains(&number);
        let Some(title) = line.strip_prefix(HEADING) else { continue };
        if title.starts_with(|c: char| c.is_ascii_digit()) && !blocks.iter().any(inside) {
            tasks.push((number, Task { title: title.to_owned(), acts: Vec::new() }));
        }
    }
    for block in &blocks {
        if let Some((_, task)) = tasks.iter_mut().rfind(|(line, _)| *line < block.line) {
            task.acts.extend(acts(block));
        }
    }
    tasks.into_iter().map(|(_, task)| task).collect()
}

/// What the page says of how much is typed: the rows `| 1. Title | typed | seconds |` of its table.
pub fn counted(page: &str) -> Vec<(String, usize)> {
    let row = |line: &str| {
        let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
        let (title, typed) = (cells.next()?, cells.next()?.parse().ok()?);
        Some((title.to_owned(), typed))
    };
    page.lines().filter_map(row).collect()
}

fn acts(block: &Block) -> Vec<(usize, Act)> {
    let numbered = || (block.line..).zip(block.text.lines());
    match block.language.as_str() {
        "sh" => commands(numbered(), Place::Second),
        "log" => vec![(block.line, Act::Paste(block.text.trim_end().to_owned()))],
        "text" => {
            let first = block.text.lines().any(|line| typed(line).is_some());
            let place = first.then_some(Place::First);
            let act = |line: &str| typed(line).unwrap_or_else(|| Act::See(place, line.to_owned()));
            numbered()
                .filter(|(_, line)| !line.trim().is_empty())
                .map(|(number, line)| (number, act(line)))
                .collect()
        }
        _ => Vec::new(),
    }
}

fn typed(line: &str) -> Option<Act> {
    if let Some(command) = line.strip_prefix("$ ") {
        return Some(Act::Command(Place::First, command.to_owned()));
    }
    if let Some(said) = line.strip_prefix("> ") {
        let key = said.strip_prefix("Ctrl-").and_then(|key| key.chars().next());
        return Some(key.map_or_else(|| Act::Say(said.to_owned()), Act::Press));
    }
    let (_, answer) = line.strip_prefix(QUESTION)?.rsplit_once(": ")?;
    Some(Act::Answer(answer.to_owned()))
}

/// The commands of a shell block: a line each, but for here-documents and lines that end with `\`.
fn commands<'a>(lines: impl Iterator<Item = (usize, &'a str)>, place: Place) -> Vec<(usize, Act)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let (mut ends, mut goes_on): (Option<String>, bool) = (None, false);
    for (number, line) in lines {
        match found.last_mut().filter(|_| goes_on || ends.is_some()) {
            Some((_, command)) => {
                command.push('\n');
                command.push_str(line);
            }
            None if line.trim().is_empty() || line.starts_with('#') => continue,
            None => found.push((number, line.to_owned())),
        }
        if ends.as_deref() == Some(line) {
            ends = None;
        } else if ends.is_none() {
            ends =
                line.split_once("<<'").and_then(|(_, rest)| rest.split_once('\'')).map(|ending| {
                    let (end, _) = ending;
                    end.to_owned()
                });
            goes_on = line.ends_with('\\');
        }
    }
    found.into_iter().map(|(number, text)| (number, Act::Command(place, text))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# T\n\n```sh\nbefore any task\n```\n\n## 1. Talk\n\n```text\n$ clawnode up\n> hi\n\
        you said hi\n```\n\n```log\na\nb\n```\n\n```text\nmore\n```\n\n## 2. Do\n\n```sh\ncat >f <<'END'\n## x\n\
        END\n# nothing\necho \\\n  done\n```\n\n```text\ndone\n```\n\n```text\nrun it? y, n: y\n> Ctrl-D\n```\n\n\
        ## Counted\n\n| task | typed | s |\n|---|--:|--:|\n| 1. Talk | 3 | 2 |\n| 2. Do | 4 | 1 |\n";

    #[test]
    fn tasks_have_what_is_typed_and_what_is_seen() {
        let tasks = tasks(PAGE);
        let titles: Vec<&str> = tasks.iter().map(|task| task.title.as_str()).collect();
        assert_eq!(titles, ["1. Talk", "2. Do"]);
        let acts =
            |at: usize| tasks[at].acts.iter().map(|(_, act)| act.clone()).collect::<Vec<_>>();
        let (first, second) = (Place::First, Place::Second);
        let see = |place, text: &str| Act::See(place, text.to_owned());
        assert_eq!(
            acts(0),
            [
                Act::Command(first, "clawnode up".to_owned()),
                Act::Say("hi".to_owned()),
                see(Some(first), "you said hi"),
                Act::Paste("a\nb".to_owned()),
                see(None, "more"),
            ]
        );
        assert_eq!(
            acts(1),
            [
                Act::Command(second, "cat >f <<'END'\n## x\nEND".to_owned()),
                Act::Command(second, "echo \\\n  done".to_owned()),
                see(None, "done"),
                Act::Answer("y".to_owned()),
                Act::Press('D'),
            ]
        );
    }

    #[test]
    fn what_is_typed_is_counted_as_the_table_has_it() {
        let typed: Vec<_> =
            tasks(PAGE).iter().map(|task| (task.title.clone(), task.typed())).collect();
        assert_eq!(counted(PAGE), typed);
    }
}
