//! What is reported about the mesh: conditions, the ACL's effect on pods, liveness and measurements.

pub mod acl;
pub mod conditions;
pub(crate) mod liveness;
pub(crate) mod measure;
