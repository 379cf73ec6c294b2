//! The daemon's configuration: a YAML file, then environment variables, then flags.
//!
//! Each source becomes a tree of values that know where they stand. The trees are checked key by key
//! against the schema, laid over each other, given types, and looked at for contradictions. So every
//! complaint has a place, and nothing beside the schema has to know the keys.
//!
//! Reading blocks: the runtime's thread leaves it to another one.

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
pub use environment::Setting;
pub use keys::{PREFIX as VARIABLE_PREFIX, json_schema};
pub use load::{Loaded, Sources, load};
pub use node_config::NodeConfig;
pub use path::KeyPath;
pub use problem::{Complaint, ConfigError, Place, Problem};
pub use reload::{RESTART_KEYS, needs_restart};
pub use render::{example, show};
pub use schema::*;
pub use secrets::{FoundSecret, SecretSource, Secrets};
pub use validate::{advise, validate};
pub use values::*;
