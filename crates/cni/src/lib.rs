//! The CNI protocol, both sides.
