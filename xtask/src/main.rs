//! What the Makefile calls.

fn main() {}
