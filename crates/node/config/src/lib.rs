//! The daemon's configuration: a YAML file, overridden by environment variables, then by flags.
//!
//! Each source is parsed into a tree of values with their locations and checked against the schema.
//! The trees are merged, deserialized into [`Config`] and validated, so every error has a location.
//!
//! Loading blocks: call it outside the async runtime.

mod check;
mod dirs;
mod environment;
mod file;
mod keys;
mod load;
mod node_config;
mod path;
mod problem;
mod reload;
mod render;
mod schema;
mod secrets;
mod suggest;
mod tree;
mod validate;
mod values;
mod yaml;

pub use dirs::{CONFLIST, Dirs, SUBNET_ENV};
pub use environment::FlagValue;
pub use keys::{PREFIX as VARIABLE_PREFIX, json_schema};
pub use load::{Loaded, Sources, load};
pub use node_config::NodeConfig;
pub use path::KeyPath;
pub use problem::{ConfigError, Diagnostic, Location, Problem};
pub use reload::{RESTART_KEYS, needs_restart};
pub use render::{example, show};
pub use schema::*;
pub use secrets::{FoundSecret, SecretSource, Secrets};
pub use validate::{validate, warnings};
pub use values::*;
