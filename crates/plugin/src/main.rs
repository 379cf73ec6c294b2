//! The CNI plugin `headcni`.

fn main() {}
