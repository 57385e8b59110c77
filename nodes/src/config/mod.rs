//! Configuration: a file below the environment below flags, read once into types.
//!
//! Each layer becomes a [`tree`] whose every value knows where it came from ([`ValueOrigin`]); the
//! layers are merged, and one deserializer turns the result into [`Config`]. So an error can name
//! the file, line and key (or the variable, or the flag), and `config show` can say where each
//! value was set. [`validate`] then refuses what is well-formed and wrong.
//!
//! Nothing here reads the process environment: [`Env`] is a value.

pub mod agent_memory;
pub mod agents;
pub mod budgets;
pub mod context;
mod decode;
pub mod env;
mod error;
mod file;
mod json;
mod kept_conversations;
mod line_positions;
pub mod load;
pub mod mcp;
pub mod memory;
pub mod model_routes;
pub mod models;
pub mod needs_restart;
pub mod options;
pub mod paths;
pub mod prices;
pub mod qdrant;
pub mod rules;
pub mod schema_source;
pub mod secret;
pub mod show;
pub mod skills;
pub mod tools;
mod tree;
mod usd;
mod validate;
mod validate_budgets;
mod validate_models;
mod validate_qdrant;

pub use agents::{AgentSection, BindingSection, ProviderSection};
pub use clawnode_proto::units::{self, parse_duration};
pub use env::Env;
pub use error::ConfigError;
pub(crate) use error::{nearest, nearest_names};
pub use load::{Flag, LoadedConfig, Sources, load, load_node_location};
pub use options::{
    ClusterOptions, Config, GatewaySection, NodeOptions, SessionOptions, TelemetryOptions,
};
pub use secret::ServerUrl;
pub use tree::ValueOrigin;
