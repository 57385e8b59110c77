//! Flags that commands share.

use std::{net::SocketAddr, path::PathBuf};

use clap::{ArgAction, Args, ValueEnum};
use clawnode_proto::{llm::ModelRef, node::NodeRole, subject::Prefix};

use crate::config::Flag;

/// Settings. Every command takes them, so that a script may set them once; the help of each shows
/// those that it uses ([`super::clap_command`]).
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Settings")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(super) struct GlobalFlags {
    /// Read this configuration file instead of the default one
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Use this data directory
    #[arg(long, global = true, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Serve clients on this address
    #[arg(long, global = true, value_name = "ADDR:PORT")]
    pub listen: Option<SocketAddr>,
    /// Join the other nodes over these NATS servers
    #[arg(long, global = true, value_name = "URL")]
    // Text, so that a wrong one, which may hold a password, is not quoted: settings judge it.
    pub nats: Option<String>,
    /// Prefix of all NATS subjects
    #[arg(long, global = true, value_name = "NAME")]
    pub prefix: Option<Prefix>,
    /// Model of the agent `default`
    #[arg(long, global = true, value_name = "PROVIDER/MODEL")]
    pub model: Option<ModelRef>,
    /// Serve clients without a token (on loopback addresses only)
    #[arg(long, global = true, action = ArgAction::SetTrue)]
    pub no_auth: bool,
    /// Do not limit what the cluster may spend where the configuration has no limit ($5 a day, and 50
    /// model calls an hour in the background)
    #[arg(long, global = true, action = ArgAction::SetTrue)]
    pub no_budget: bool,
    /// Serve TLS with this certificate chain
    #[arg(long, global = true, value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of the certificate
    #[arg(long, global = true, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// Serve beyond loopback without TLS, because a proxy in front provides TLS
    #[arg(long, global = true, action = ArgAction::SetTrue)]
    pub plain_http: bool,
    /// Use the node at this address, not the one on this machine; from several comma-separated
    /// addresses, use the first that answers
    #[arg(long, global = true, value_name = "URL")]
    pub url: Option<String>,
    /// Read the node's token from this file
    #[arg(long, global = true, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Print JSON: documents to standard output, errors and logs to standard error
    #[arg(long, global = true, action = ArgAction::SetTrue)]
    pub json: bool,
    /// Format of documents: a table, a table with more columns, or JSON (same as `--json`)
    #[arg(short, long, global = true, value_enum, value_name = "FORMAT", conflicts_with = "json")]
    pub output: Option<Format>,
    /// Level of the log on standard error: error, warn, info, debug, trace, or a filter
    #[arg(long, global = true, value_name = "LEVEL")]
    pub log: Option<String>,
}

/// How documents are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    // For people.
    Table,
    // For people with wide screens.
    Wide,
    // For programs.
    Json,
}

/// What a node does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(super) enum RoleArg {
    // Serves clients.
    Gateway,
    // Owns sessions.
    Worker,
}

impl From<RoleArg> for NodeRole {
    fn from(role: RoleArg) -> Self {
        match role {
            RoleArg::Gateway => Self::Gateway,
            RoleArg::Worker => Self::Worker,
        }
    }
}

impl GlobalFlags {
    /// Whether documents and errors are JSON.
    pub(super) fn is_json(&self) -> bool {
        self.json || self.output == Some(Format::Json)
    }

    /// Whether tables have all their columns.
    pub(super) fn is_wide(&self) -> bool {
        self.output == Some(Format::Wide)
    }

    /// The settings that were made on the command line.
    pub(super) fn settings(&self) -> Vec<Flag> {
        let path = |path: &PathBuf| path.to_string_lossy().into_owned();
        let if_set = |flag: bool| flag.then(|| "true".to_owned());
        let all: [(_, &[&str], _); 11] = [
            ("--data-dir", &["node", "data_dir"], self.data_dir.as_ref().map(path)),
            ("--listen", &["gateway", "listen"], self.listen.map(|address| address.to_string())),
            ("--nats", &["cluster", "nats"], self.nats.clone()),
            ("--prefix", &["cluster", "prefix"], self.prefix.as_ref().map(ToString::to_string)),
            (
                "--model",
                &["agents", "default", "model"],
                self.model.as_ref().map(ToString::to_string),
            ),
            ("--no-auth", &["gateway", "no_auth"], if_set(self.no_auth)),
            ("--no-budget", &["budgets", "default"], self.no_budget.then(|| "false".to_owned())),
            ("--tls-cert", &["gateway", "tls_cert"], self.tls_cert.as_ref().map(path)),
            ("--tls-key", &["gateway", "tls_key"], self.tls_key.as_ref().map(path)),
            ("--plain-http", &["gateway", "plain_http"], if_set(self.plain_http)),
            ("--log", &["telemetry", "log"], self.log.clone()),
        ];
        all.into_iter()
            .filter_map(|(name, path, value)| Some(Flag { name, path, value: value? }))
            .collect()
    }
}
