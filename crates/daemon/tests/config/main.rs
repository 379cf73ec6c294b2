//! The configuration as users meet it: files, variables and flags into the real binary, and its
//! answers.

#![expect(
    clippy::unwrap_used,
    reason = "whatever fails outside the code under test shall end the test"
)]

mod bad;
mod canaries;
mod documents;
mod scene;
mod seeds;
mod sources;
