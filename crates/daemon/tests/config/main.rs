//! The configuration as users meet it: files, variables and flags for the real binary, and its
//! output.

#![expect(
    clippy::unwrap_used,
    reason = "a failure outside the code under test must fail the test"
)]

mod docs_and_schema;
mod fixture;
mod invalid;
mod secrets;
mod seed_documents;
mod sources;
