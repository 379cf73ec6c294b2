//! Client of Headscale's REST API, versions 0.26 to 0.29.
//!
//! [`Client`] makes the calls. It follows no redirects, limits the time and the size of every
//! response, and never shows a key; an [`Error`] names the operation, the server and the remedy.
//! Headscale hashes the API key with bcrypt on every call (0.2 s of CPU), so callers poll rarely and
//! prefer one list to many reads.
//!
//! What the server and its nodes send is parsed here and judged by the caller.

#![allow(missing_docs, reason = "not a library for others")]

mod api_keys;
mod client;
mod clock;
mod error;
mod generation;
mod nodes;
mod options;
mod policy;
mod preauth_keys;
mod request;
mod secret;
mod text;
mod tls;
mod transport;
mod users;
mod wire;

pub use api_keys::ApiKey;
pub use client::{Client, CompletedCall};
pub use clock::ClockSample;
pub use error::{ConnectError, Error, ErrorKind, TlsError};
pub use generation::{Generation, ServerVersion};
pub use nodes::Node;
pub use options::{ClientOptions, ClientSetupError, Proxies};
pub use preauth_keys::{KeyUses, NewPreAuthKey, NodeLifetime, PreAuthKey};
pub use secret::Secret;
pub use users::User;
