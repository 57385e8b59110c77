//! How a command ends: its exit code, and the error it prints. Exit codes are assigned only here.

use clawnode_proto::{ErrorBody, ErrorCode};
use serde::Serialize;

use crate::{
    client::ClientError,
    config::ConfigError,
    node_file::LocalFileError,
    start_error::{StartError, StartErrorKind},
};

/// What the process tells its caller. Documented in `--help`; never renumbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Ok = 0,
    /// It was tried and failed.
    Failed = 1,
    /// The command line is wrong.
    Usage = 2,
    /// No node, or no server that it needs, can be reached.
    Unreachable = 69,
    /// The node hung, and its watchdog ended it.
    Hung = 70,
    /// The token is missing or wrong, or this may not be done.
    Refused = 77,
    /// The configuration is wrong.
    Config = 78,
}

/// The codes that only commands have, beside those of [`ErrorCode`], and what each means. A test compares
/// them with the code.
pub const COMMAND_CODES: &[(&str, &str)] = &[
    ("ambiguous", "The start of an id is the start of several ids."),
    ("authority_unusable", "The directory with the keys of a cluster is damaged or incomplete."),
    ("backup_failed", "The backup cannot be written or read."),
    ("bundle_conflict", "A bundle of a skill may not replace what is there."),
    ("bundle_invalid", "A file is not a bundle of a skill, or a folder cannot be packed into one."),
    ("bundle_untrusted", "No trusted key has signed the bundle of a skill."),
    ("bus_failed", "The NATS servers did not take a change."),
    ("config_invalid", "The configuration is wrong."),
    ("credential_refused", "The NATS servers do not accept the credential of this node any more."),
    ("data_dir_held", "Another process uses the data directory."),
    ("data_dir_moved", "The sessions of the data directory have been moved to a cluster."),
    ("data_dir_too_new", "A newer build wrote the data directory."),
    ("data_dir_unusable", "A directory cannot be made, read or written."),
    ("disk_failed", "The disk did not keep what was written to it."),
    ("file_unusable", "A file with a key or a credential cannot be read or written."),
    ("input", "Standard input, or a file that the command reads, cannot be read as text."),
    ("interrupted", "A signal interrupted a request of the chat."),
    ("join_failed", "The node cannot join the cluster."),
    ("join_token_invalid", "The text is not a join token, or the file with it cannot be read."),
    ("join_token_refused", "The join token has expired, was revoked, or is of another cluster."),
    ("join_token_used", "Another node has used the join token."),
    (
        "budgets_unreadable",
        "The node cannot read which limits of spending there are, so it does no work.",
    ),
    ("latch_unreadable", "The node cannot read which kill switches are set, so it does no work."),
    ("listen_failed", "The node cannot listen at the address."),
    ("local_file", "A file of this machine cannot be read or written."),
    ("log_damaged", "The log of the data directory is damaged."),
    ("membership_unusable", "The credential of this node is damaged or incomplete."),
    ("memory_stuck", "The store of memories is not filled again within two minutes."),
    ("nats_not_ready", "The NATS servers answer, but their streams cannot be used yet."),
    ("nats_refused", "The NATS servers do not accept the credential."),
    ("nats_unreachable", "The NATS servers do not answer."),
    ("nats_unusable", "The NATS servers cannot be used as they are set up."),
    ("no_authority", "The directory has no keys of a cluster."),
    ("no_node", "The directory is not the data directory of a node."),
    ("node_name_taken", "A node of this name is alive."),
    ("not_a_terminal", "The command needs a terminal."),
    ("not_built", "This build does not include the program that the command runs."),
    ("not_confirmed", "The command changes or deletes data, and `--yes` is missing."),
    ("not_running", "No node is running here."),
    ("other_cluster", "The servers, or the join token, belong to another cluster."),
    ("output", "The output cannot be written."),
    ("protocol", "The answer is not one of a clawnode node of this version."),
    (
        "push_failed",
        "The changes of credentials are saved, but the NATS servers do not have them yet.",
    ),
    (
        "role_alone",
        "A node on its own data directory has only one of the roles `worker` and `gateway`.",
    ),
    ("role_mismatch", "The credential or the join token is for another role."),
    ("signals", "The process cannot handle signals."),
    ("still_draining", "The node has not ended within the time that the command waits."),
    ("store_failed", "The storage of the node has failed."),
    ("terminal", "The terminal cannot be used."),
    ("unreachable", "The node at the address does not answer."),
    ("usage", "The command line is wrong."),
    ("versions_unfit", "The versions of this node and of the cluster cannot work together."),
];

/// An error as it is printed: what and where, a stable code, and what to do next.
#[derive(Clone, Debug, Serialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// How the process ends.
    #[serde(skip)]
    pub exit: Exit,
    /// For scripts: a word that does not change.
    pub code: &'static str,
    /// What happened, where.
    pub message: String,
    /// What to do next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Failure {
    /// An error with a code of the command line's own.
    pub fn new(exit: Exit, code: &'static str, message: impl Into<String>) -> Self {
        Self { exit, code, message: message.into(), hint: None }
    }

    /// Something that was tried and failed, with a code that clients of the API know as well.
    pub fn of(code: ErrorCode, message: impl Into<String>) -> Self {
        StartError::of(code, message).into()
    }

    /// The same, saying what to do next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The reader of our output has gone: nothing to say, and nothing wrong.
    pub(crate) fn output_closed() -> Self {
        Self::new(Exit::Ok, "output_closed", "standard output is closed")
    }
}

/// The exit code that goes with a kind of error.
const fn exit_of(kind: StartErrorKind) -> Exit {
    match kind {
        StartErrorKind::Failed => Exit::Failed,
        StartErrorKind::Usage => Exit::Usage,
        StartErrorKind::Unreachable => Exit::Unreachable,
        StartErrorKind::Refused => Exit::Refused,
        StartErrorKind::Config => Exit::Config,
    }
}

impl From<StartError> for Failure {
    fn from(StartError { kind, code, message, hint }: StartError) -> Self {
        Self { exit: exit_of(kind), code, message, hint }
    }
}

impl From<ErrorBody> for Failure {
    fn from(body: ErrorBody) -> Self {
        StartError::from(body).into()
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::new(Exit::Config, "config_invalid", error.to_string()).hint(error.hint)
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let message = clawnode_proto::ErrorChain(&error).to_string();
        match error {
            ClientError::NotRunning { .. } => Self::new(Exit::Unreachable, "not_running", message)
                .hint("start one with `clawnode up`, or name one with `--url URL`"),
            ClientError::Address { .. } => {
                Self::new(Exit::Usage, "usage", message).hint("correct `--url`, or `CLAWNODE_URL`")
            }
            ClientError::Unreachable { .. } => Self::new(Exit::Unreachable, "unreachable", message)
                .hint("check the address, and that the node runs: `clawnode doctor`"),
            ClientError::Answered(body) => {
                let failure = Self::from(body);
                let refused = failure.exit == Exit::Refused && failure.hint.is_none();
                if refused { failure.hint(TOKEN_HINT) } else { failure }
            }
            ClientError::Protocol { .. } => Self::new(Exit::Failed, "protocol", message)
                .hint("check that the address is a clawnode of this version"),
            ClientError::Local { .. } => Self::new(Exit::Failed, "local_file", message)
                .hint("check the file's owner and permissions, or name another with a flag"),
        }
    }
}

impl From<ractor::SpawnErr> for Failure {
    fn from(error: ractor::SpawnErr) -> Self {
        Self::new(Exit::Failed, "internal", format!("an actor cannot be started: {error}"))
    }
}

impl From<LocalFileError> for Failure {
    fn from(error: LocalFileError) -> Self {
        Self::from(ClientError::from(error))
    }
}

/// What to do about a missing or wrong token.
const TOKEN_HINT: &str = "set `CLAWNODE_TOKEN`, or `--token-file FILE`; a node keeps its token in \
                          the file `token` of its data directory";
