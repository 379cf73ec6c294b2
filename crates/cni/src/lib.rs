//! The CNI protocol, plugin side and caller side, and the call log of the plugins.
//!
//! Plugin side: [`serve`] parses environment and stdin once into valid types, negotiates the
//! version, calls a [`Plugin`] and answers on stdout. Caller side: [`Delegate`] finds a plugin in
//! `CNI_PATH`, executes it with a timeout and parses its output. [`call_log`] writes one line per
//! call.
//!
//! Environment, stdin and stdout are injected. The crate is synchronous and platform-independent.
//! Specification: <https://www.cni.dev/docs/spec/>, versions 0.1.0 to 1.1.0.

mod args;
pub mod call_log;
mod conf;
mod delegate;
mod env;
mod error;
mod keys;
mod names;
mod pod;
mod result;
mod serve;
mod verb;
mod version;

pub use args::CniArgs;
pub use conf::{NetConf, ValidAttachment};
pub use delegate::{Delegate, DelegateError};
pub use env::Env;
pub use error::{Error, code};
pub use keys::Keys;
pub use names::{ContainerId, IfName, NetworkName, PluginType};
pub use pod::Pod;
pub use result::{Dns, Interface, IpConfig, NetResult, ResultError, Route};
pub use serve::{Attachment, Call, Plugin, serve, serve_process};
pub use verb::Verb;
pub use version::Version;

/// The largest document that is read from a runtime or from a delegate.
///
/// Real ones are a few kilobytes; a garbage collection that names 60,000 attachments is 6 MB.
pub const MAX_DOCUMENT_BYTES: u64 = 16 * 1024 * 1024;
