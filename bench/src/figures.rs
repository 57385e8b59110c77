//! Figures for people (a table) and for scripts (JSON).
#![expect(clippy::print_stdout, reason = "figures are a bench's output")]

use std::time::Duration;

use serde::Serialize;

/// One line: what was measured, and each figure with its name.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// `operation/key=value`.
    pub name: String,
    /// Names and figures, in order.
    pub figures: Vec<(&'static str, f64)>,
    /// The target and whether it is met, if there is one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<Verdict>,
}

/// A target and what became of it.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    what: String,
    met: bool,
}

/// What a bench prints.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Table {
    rows: Vec<Row>,
}

/// The figure below which a share `of_1000` of the sorted `all` lies.
pub fn percentile(all: &[Duration], of_1000: usize) -> Duration {
    let last = all.len().saturating_sub(1);
    all.get((all.len() * of_1000 / 1000).min(last)).copied().unwrap_or_default()
}

// === impl Row ===

impl Row {
    /// A line without figures yet.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), figures: Vec::new(), targets: Vec::new() }
    }

    /// Adds a figure.
    #[must_use]
    pub fn figure(mut self, name: &'static str, value: f64) -> Self {
        self.figures.push((name, value));
        self
    }

    /// Says whether a figure is at most `limit`.
    #[must_use]
    pub fn at_most(mut self, what: &str, value: f64, limit: f64) -> Self {
        self.targets.push(Verdict { what: format!("{what} <= {limit}"), met: value <= limit });
        self
    }

    /// Says whether a figure is at least `limit`.
    #[must_use]
    pub fn at_least(mut self, what: &str, value: f64, limit: f64) -> Self {
        self.targets.push(Verdict { what: format!("{what} >= {limit}"), met: value >= limit });
        self
    }
}

// === impl Table ===

impl Table {
    /// Prints a line at once, and keeps it for the JSON.
    pub fn add(&mut self, row: Row) {
        let figures: Vec<String> =
            row.figures.iter().map(|(name, value)| format!("{name} {value:.3}")).collect();
        println!("{:<36} {}", row.name, figures.join("  "));
        for Verdict { what, met } in &row.targets {
            println!("{:<36} target {what}: {}", "", if *met { "met" } else { "missed" });
        }
        self.rows.push(row);
    }

    /// Prints everything once more as one line of JSON.
    pub fn json(&self) -> Result<(), serde_json::Error> {
        println!("{}", serde_json::to_string(self)?);
        Ok(())
    }
}
