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
    /// The test runner's own last word, said again at the very end.
    pub(crate) summary: Option<String>,
}

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

// === impl Report ===

impl Default for Report {
    fn default() -> Self {
        Self { began: Instant::now(), steps: Vec::new(), summary: None }
    }
}

impl Report {
    /// Runs one step; false when it failed.
    pub(crate) fn step(
        &mut self,
        name: &'static str,
        work: impl FnOnce(&mut Option<String>) -> Result<(), String>,
    ) -> bool {
        say(&format!("==> {name}"));
        let began = Instant::now();
        let failed = work(&mut self.summary).err();
        if let Some(why) = &failed {
            say(&format!("error: {name}: {why}"));
        }
        let ok = failed.is_none();
        self.steps.push(Step { name, took: began.elapsed(), failed });
        ok
    }

    /// The table of the steps; the runner's summary comes last, where scripts look for it.
    pub(crate) fn finish(self) -> ExitCode {
        say("");
        for step in &self.steps {
            let end =
                step.failed.as_deref().map_or("ok".to_owned(), |why| format!("FAILED: {why}"));
            say(&format!("{:>8.1} s  {:<12} {end}", step.took.as_secs_f64(), step.name));
        }
        say(&format!("{:>8.1} s  in all", self.began.elapsed().as_secs_f64()));
        if let Some(summary) = &self.summary {
            say(summary);
        }
        let failed = self.steps.iter().any(|step| step.failed.is_some());
        if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }
}
