//! Nodes and pods as network namespaces, for tests.

pub mod tools;
