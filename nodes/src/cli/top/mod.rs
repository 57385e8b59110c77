//! `top`: the cluster at the terminal, refreshed each second; it only reads.
//!
//! `run` owns the terminal and asks the node, `screen` is what is known and what keys do to it,
//! `draw` is how that looks.

mod draw;
mod run;
mod screen;
#[cfg(test)]
mod tests;

pub(super) use run::{TopArgs, run};
