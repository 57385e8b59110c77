//! What is said while the steps run, and at their end.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

/// Every step that ran, in order.
#[derive(Debug)]
pub(crate) struct Report {
    began: Instant,
    steps: Vec<Step>,
    again: Vec<String>,
}

/// Lines of a step that are said again at the very end: its last word, and what failed in it.
#[derive(Debug, Default)]
pub(crate) struct Again(Vec<String>);

#[derive(Debug)]
struct Step {
    name: &'static str,
    took: Duration,
    failed: Option<String>,
}

/// Talk goes to standard error, like that of every tool this one calls.
#[expect(clippy::print_stderr, reason = "the one place where this command talks")]
pub(crate) fn say(text: &str) {
    eprintln!("{text}");
}

// === impl Again ===

impl Again {
    /// Lines that one step may say again, and characters of each.
    const MOST: (usize, usize) = (60, 400);

    /// Says this line again at the end.
    pub(crate) fn say(&mut self, line: &str) {
        let (lines, characters) = Self::MOST;
        if self.0.len() < lines {
            self.0.push(line.trim_end().chars().take(characters).collect());
        }
    }
}

// === impl Report ===

impl Default for Report {
    fn default() -> Self {
        Self { began: Instant::now(), steps: Vec::new(), again: Vec::new() }
    }
}

impl Report {
    /// Runs one step; false when it failed.
    pub(crate) fn step(
        &mut self,
        name: &'static str,
        work: impl FnOnce(&mut Again) -> Result<(), String>,
    ) -> bool {
        say(&format!("==> {name}"));
        let began = Instant::now();
        let mut again = Again::default();
        let failed = work(&mut again).err();
        self.again.append(&mut again.0);
        if let Some(why) = &failed {
            say(&format!("error: {name}: {why}"));
        }
        let ok = failed.is_none();
        self.steps.push(Step { name, took: began.elapsed(), failed });
        ok
    }

    /// The table of the steps; what is said again comes last, where scripts look for it.
    pub(crate) fn finish(self) -> ExitCode {
        say("");
        for step in &self.steps {
            let end =
                step.failed.as_deref().map_or("ok".to_owned(), |why| format!("FAILED: {why}"));
            say(&format!("{:>8.1} s  {:<12} {end}", step.took.as_secs_f64(), step.name));
        }
        say(&format!("{:>8.1} s  in all", self.began.elapsed().as_secs_f64()));
        for line in &self.again {
            say(line);
        }
        let failed = self.steps.iter().any(|step| step.failed.is_some());
        if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }
}
