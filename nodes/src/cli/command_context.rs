//! What every command is given: settings, output, and ways to data.

use std::path::PathBuf;

use clawnode_proto::api::Call;

use super::{flags::GlobalFlags, output::Output};
use crate::{
    client::{ClientError, Gateways, NodeClient, NodeTarget},
    config::{ConfigError, Env, LoadedConfig, Sources, ValueOrigin, env, load, load_node_location},
    failure::Failure,
    node::offline::DataDirectory,
    offline_commands,
};

/// What every command is given.
#[derive(Debug)]
pub(super) struct CliContext {
    pub out: Output,
    /// The settings; of a configuration that is wrong, only where the node is. See [`Self::settings`].
    pub loaded: LoadedConfig,
    /// Why `loaded` has only that.
    fault: Option<ConfigError>,
    /// Where the log of this process goes, if it does not go to standard error.
    pub log_file: Option<PathBuf>,
    url: Option<String>,
    token_file: Option<PathBuf>,
}

/// Where a command reads: a running node, or the directory itself.
pub(super) enum DataSource {
    Node(NodeClient),
    Directory(Box<DataDirectory>),
}

/// Where the configuration comes from, given the command line.
pub(super) fn sources(flags: &GlobalFlags, env: &Env) -> Sources {
    Sources { env: env.clone(), file: flags.config.clone(), flags: flags.settings() }
}

impl CliContext {
    pub(super) fn new(flags: &GlobalFlags, env: &Env, out: Output) -> Result<Self, Failure> {
        let loaded = load(&sources(flags, env))?;
        Ok(Self::with(loaded, flags, env, out))
    }

    /// The same for a command that asks a node. It has to reach the node also if the configuration is wrong: a node
    /// that runs goes on with the one that it read before. It fails if the fault may be in what says where the node is, and
    /// another one would be asked, unless it is to stop a node.
    pub(super) fn for_asking_a_node(
        flags: &GlobalFlags,
        env: &Env,
        out: Output,
        stops: bool,
    ) -> Result<Self, Failure> {
        let sources = sources(flags, env);
        let fault = match load(&sources) {
            Ok(loaded) => return Ok(Self::with(loaded, flags, env, out)),
            Err(fault) => fault,
        };
        let loaded = load_node_location(&sources).map_err(|_also| fault.clone())?;
        // A key misspelt there may be `data_dir`.
        let is_unknown_section = !fault.key.contains('.') && fault.what.starts_with("unknown key");
        let is_default = loaded.origin_of(&["node", "data_dir"]) == ValueOrigin::Default;
        let is_named = flags.url.is_some() || env.get(env::URL).is_some();
        let may_be_another = fault.key.starts_with("node.") || is_unknown_section;
        if !stops && is_default && !is_named && may_be_another {
            return Err(fault.into());
        }
        out.aside(&format!(
            "warning: the configuration is wrong ({}); this command ignores all of it but where the node is",
            fault.to_string().replace('\n', " ")
        ));
        Ok(Self { fault: Some(fault), ..Self::with(loaded, flags, env, out) })
    }

    fn with(loaded: LoadedConfig, flags: &GlobalFlags, env: &Env, out: Output) -> Self {
        let url = flags.url.clone().or_else(|| env.get(env::URL).map(str::to_owned));
        let token_file = flags.token_file.clone();
        Self { out, loaded, fault: None, log_file: None, url, token_file }
    }

    /// All settings, for what a command does without a node; fails if the configuration is wrong.
    pub(super) fn settings(&self) -> Result<&LoadedConfig, Failure> {
        match &self.fault {
            Some(fault) => Err(fault.clone().into()),
            None => Ok(&self.loaded),
        }
    }

    /// The data directory.
    pub(super) fn data_dir(&self) -> &PathBuf {
        &self.loaded.config.node.data_dir
    }

    /// Whether another node than this machine's own was named.
    pub(super) const fn names_a_node(&self) -> bool {
        self.url.is_some()
    }

    /// The gateways that are meant; they need not be there.
    pub(super) fn gateways(&self) -> Result<Gateways, ClientError> {
        Gateways::find(&NodeTarget {
            data_dir: self.data_dir().clone(),
            url: self.url.clone(),
            token: self.loaded.token.clone(),
            token_file: self.token_file.clone(),
            certificate: self.loaded.config.gateway.tls_cert.clone(),
        })
    }

    /// The node that is meant, if it answers; `None` if none runs on the data directory.
    pub(super) async fn running(&self) -> Result<Option<NodeClient>, Failure> {
        let found = match self.gateways() {
            Ok(mut gateways) => gateways.reach().await.cloned(),
            Err(error) => Err(error),
        };
        match found {
            Ok(client) => Ok(Some(client)),
            // A node that is gone leaves its address behind.
            Err(error) if error.is_lost() && !self.names_a_node() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The running node; without one, the data directory, opened read-only.
    pub(super) async fn source(&self) -> Result<DataSource, Failure> {
        if let Some(client) = self.running().await? {
            return Ok(DataSource::Node(client));
        }
        let directory = offline_commands::open_read_only(&self.settings()?.config).await?;
        Ok(DataSource::Directory(Box::new(directory)))
    }

    /// The gateways that are meant, at the first that answers if there are several.
    pub(super) async fn reached(&self) -> Result<Gateways, ClientError> {
        let mut gateways = self.gateways()?;
        if self.url.as_ref().is_some_and(|url| url.contains(',')) {
            gateways.reach().await?;
        }
        Ok(gateways)
    }

    /// The node that is meant; of several, the first that answers.
    pub(super) async fn client(&self) -> Result<NodeClient, ClientError> {
        Ok(self.reached().await?.current().clone())
    }

    /// Calls a method of the node that is meant.
    pub(super) async fn call<C: Call>(
        &self,
        call: C,
        params: &C::Params,
    ) -> Result<C::Answer, Failure> {
        Ok(self.client().await?.call(call, params).await?)
    }
}

impl DataSource {
    /// Calls a method of whichever it is.
    pub(super) async fn call<C: Call>(
        &self,
        call: C,
        params: &C::Params,
    ) -> Result<C::Answer, Failure> {
        match self {
            Self::Node(client) => Ok(client.call(call, params).await?),
            Self::Directory(directory) => Ok(Box::pin(directory.call(call, params)).await?),
        }
    }
}
