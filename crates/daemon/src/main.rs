//! headcni-daemon.

fn main() {}
