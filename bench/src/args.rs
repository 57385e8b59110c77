//! What benches with nodes of their own are asked in common.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::{Error, node_binary, serve_model};

/// Which node is measured, and where it keeps its data.
#[derive(Debug, Args)]
pub struct Place {
    /// The node's binary
    #[arg(long)]
    node: Option<PathBuf>,
    /// Where data directories are made: a real disk
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// What the other processes of a bench do.
#[derive(Debug, Subcommand)]
pub enum Role {
    /// Be the scripted model
    Model {
        /// Pieces of a reply
        #[arg(long)]
        tokens: u32,
        /// Milliseconds before each of them
        #[arg(long, default_value_t = 0)]
        delay_ms: u64,
    },
}

impl Place {
    /// The node's binary; the one of the `release` profile unless another is named.
    pub fn binary(&self) -> Result<PathBuf, Error> {
        node_binary(self.node.clone())
    }

    /// Where data directories are made.
    pub fn dir(&self) -> PathBuf {
        self.dir.clone().unwrap_or_else(std::env::temp_dir)
    }
}

impl Role {
    /// Does it, for as long as the bench runs.
    pub async fn play(&self) -> Result<(), Error> {
        let Self::Model { tokens, delay_ms } = *self;
        serve_model(tokens, delay_ms).await
    }
}
