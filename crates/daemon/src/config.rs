//! The daemon's configuration: a YAML file, then environment variables, then flags.

mod schema;
mod values;

pub use schema::*;
pub use values::*;
