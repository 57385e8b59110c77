//! `file_search`: lines that have a text, or fit a regular expression.
//!
//! The engine is linear in the text, the pattern's size and each line's length are bounded, and the
//! time is looked at after every line.

use std::{
    io::Read,
    ops::ControlFlow,
    path::Path,
    time::{Duration, Instant},
};

use cap_std::fs::File;
use clawnode_tool::workspace_path::WorkspacePath;
use regex::bytes::{Regex, RegexBuilder};
use tokio_util::sync::CancellationToken;

use super::{
    WorkspaceError,
    agent_directory::AgentDirectory,
    walk::{FileKind, Walk},
};

/// Lines that one call finds.
const HITS: usize = 200;
/// Bytes that one call reads (64 MiB).
const SCANNED: u64 = 64 << 20;
/// Bytes that are read of one file (8 MiB).
const FILE_BYTES: u64 = 8 << 20;
/// How deep directories are entered.
const DEPTH: usize = 32;
pub(super) const PATTERN_BYTES: usize = 1_000;
/// Bytes of a compiled pattern.
const COMPILED_BYTES: usize = 512 << 10;
/// Bytes of a line that are searched (16 KiB): with a pattern of that size, a moment at most.
const LINE_BYTES: usize = 16 << 10;
/// Characters of a line that are shown.
const SHOWN_CHARS: usize = 300;
/// How far a zero byte is looked for.
const SNIFFED: usize = 8 << 10;

/// What is looked for.
pub(super) struct SearchTarget<'a> {
    pub(super) pattern: &'a str,
    pub(super) is_regex: bool,
    pub(super) ignore_case: bool,
}

struct TextSearch<'a> {
    regex: Regex,
    until: Instant,
    cancelled: &'a CancellationToken,
    hits: Vec<String>,
    scanned: u64,
    files: usize,
    stopped: Option<&'static str>,
}

/// The lines that were found, each with its path, number and offset.
pub(super) fn search(
    place: &AgentDirectory,
    path: &WorkspacePath,
    wanted: &SearchTarget<'_>,
    longest: Duration,
    cancelled: &CancellationToken,
) -> Result<String, WorkspaceError> {
    let mut search = TextSearch {
        regex: wanted.compile()?,
        until: Instant::now() + longest,
        cancelled,
        hits: Vec::new(),
        scanned: 0,
        files: 0,
        stopped: None,
    };
    if !place.is_dir(path)? {
        let (file, _) = place.open_file(path)?;
        let shown = path.given().to_owned();
        return match search.file(file, &shown) {
            ControlFlow::Break(()) | ControlFlow::Continue(()) => Ok(search.tell(None)),
        };
    }
    let dir = place.open_dir(path)?;
    let mut walk = Walk::new(DEPTH);
    let prefix = match path.as_str() {
        "" => String::new(),
        clean => format!("{clean}/"),
    };
    walk.run(&dir, path.given(), &mut |entry| {
        if entry.kind != FileKind::File {
            return ControlFlow::Continue(());
        }
        let shown = format!("{prefix}{}", entry.path);
        match place.open_in(entry.dir, Path::new(&entry.name), &shown) {
            Ok((file, _)) => search.file(file, &shown),
            // It went away, or may not be read: the others may.
            Err(_) => ControlFlow::Continue(()),
        }
    })?;
    Ok(search.tell(Some(&walk)))
}

impl SearchTarget<'_> {
    fn compile(&self) -> Result<Regex, WorkspaceError> {
        let escaped = if self.is_regex { None } else { Some(regex::escape(self.pattern)) };
        RegexBuilder::new(escaped.as_deref().unwrap_or(self.pattern))
            .case_insensitive(self.ignore_case)
            .size_limit(COMPILED_BYTES)
            .dfa_size_limit(COMPILED_BYTES)
            .build()
            .map_err(|error| {
                let why = error.to_string().chars().take(SHOWN_CHARS).collect();
                WorkspaceError::Pattern(why)
            })
    }
}

impl TextSearch<'_> {
    fn file(&mut self, file: File, shown: &str) -> ControlFlow<()> {
        let room = SCANNED - self.scanned;
        let mut bytes = Vec::new();
        if file.take(FILE_BYTES.min(room)).read_to_end(&mut bytes).is_err() {
            return ControlFlow::Continue(());
        }
        self.scanned += bytes.len() as u64;
        self.files += 1;
        if !bytes.iter().take(SNIFFED).any(|byte| *byte == 0) {
            self.lines(&bytes, shown)?;
        }
        if self.scanned == SCANNED { self.stop("64 MiB were searched") } else { self.in_time() }
    }

    fn lines(&mut self, bytes: &[u8], shown: &str) -> ControlFlow<()> {
        let mut offset = 0;
        for (at, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            let searched = line.get(..LINE_BYTES).unwrap_or(line);
            if self.regex.is_match(searched) {
                if self.hits.len() == HITS {
                    return self.stop("200 lines were found");
                }
                let text = String::from_utf8_lossy(searched);
                let text: String = text.trim_end().chars().take(SHOWN_CHARS).collect();
                self.hits.push(format!("{shown}:{} (offset {offset}): {text}", at + 1));
            }
            offset += line.len() + 1;
            self.in_time()?;
        }
        ControlFlow::Continue(())
    }

    fn in_time(&mut self) -> ControlFlow<()> {
        if self.cancelled.is_cancelled() {
            return self.stop("it was cancelled");
        }
        if Instant::now() > self.until {
            return self.stop("it took too long");
        }
        ControlFlow::Continue(())
    }

    fn stop(&mut self, why: &'static str) -> ControlFlow<()> {
        self.stopped = Some(why);
        ControlFlow::Break(())
    }

    fn tell(self, walk: Option<&Walk>) -> String {
        let mut lines = self.hits;
        if lines.is_empty() {
            lines.push(format!("[nothing found in {} files]", self.files));
        }
        if let Some(why) = self.stopped {
            lines.push(format!("[stopped: {why}; narrow the path or the pattern]"));
        }
        if walk.is_some_and(|walk| walk.is_cut || walk.unreadable > 0) {
            lines.push("[some files could not be read]".to_owned());
        }
        lines.join("\n")
    }
}
