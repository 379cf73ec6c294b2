//! Headscale by its REST API, versions 0.26 to 0.29.
//!
//! [`Client`] makes the calls. It follows no redirect, waits for no answer longer than it was told,
//! reads none that is too long, and shows no key to anybody: an [`Error`] says what was tried, where,
//! and what a person should do. Every call costs the server some 0.2 s of CPU, so it is for the caller
//! to ask rarely; one list is better than many questions.
//!
//! What the server and other members say is parsed here, and judged elsewhere.

mod apikeys;
mod ask;
mod client;
mod clock;
mod connect;
mod error;
mod fault;
mod generation;
mod node;
mod policy;
mod preauth;
mod problem;
mod refusal;
mod secret;
mod selfsigned;
mod settings;
mod transport;
mod trust;
mod user;
mod wire;

pub use apikeys::ApiKey;
pub use client::{Client, Observation};
pub use clock::Clock;
pub use error::Error;
pub use generation::{Generation, Version};
pub use node::Node;
pub use preauth::{Lifetime, NewKey, PreAuthKey, Uses};
pub use problem::{Problem, TlsFault, Unreachable};
pub use secret::Secret;
pub use settings::{Proxies, Settings, SetupError};
pub use user::User;
