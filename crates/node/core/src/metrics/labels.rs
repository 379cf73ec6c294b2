//! Label sets. Each label has few values; docs/metrics.md lists them.

use std::fmt;

use prometheus_client::encoding::{EncodeLabel, EncodeLabelSet, LabelSetEncoder};

/// Empty unless `monitoring.podLabels` is on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PodLabels {
    pub namespace: Option<String>,
    pub pod_name: Option<String>,
}

// By hand, because the derived one writes absent values as empty labels.
impl EncodeLabelSet for PodLabels {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        for (name, value) in [("namespace", &self.namespace), ("pod_name", &self.pod_name)] {
            if let Some(value) = value {
                (name, value.as_str()).encode(encoder.encode_label())?;
            }
        }
        Ok(())
    }
}

macro_rules! labels {
    ($($name:ident { $($(#[$field_doc:meta])* $field:ident),* })*) => {$(
        #[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
        pub struct $name { $($(#[$field_doc])* pub $field: String),* }
    )*};
}

labels! {
    ByStrategy {
        /// Of address allocation.
        strategy
    }
    ByError {
        error_type
    }
    ByCall {
        /// `ADD` or `DEL`.
        verb,
        /// `ok` or `error`.
        outcome
    }
    ByStep {
        /// `ADD` or `DEL`.
        verb,
        step,
        /// `ok` or `error`.
        outcome
    }
    ByOutcome {
        /// `ok` or `error`; of events `accepted`, `dropped` or `invalid`.
        outcome
    }
    ByController {
        /// `hostnet`, `cniconf`, `orphans` or `firewall`.
        controller
    }
    ByCondition {
        condition
    }
    ByFamily {
        /// `ipv4` or `ipv6`.
        family
    }
    ByKind {
        /// `lease`, `link`, `route` or `state`.
        kind
    }
    ByRequest {
        /// The last part of the path, such as `status`.
        request
    }
    ByPath {
        /// `direct`, `relay`, `idle` or `offline`.
        path
    }
    ByTraffic {
        /// `received` or `sent`.
        direction,
        /// `direct` or `relay`.
        path
    }
    ByCredential {
        /// `node-key` or `api-key`.
        credential
    }
    ByRouteState {
        /// `desired`, `advertised`, `approved` or `primary`.
        state
    }
    ByServerCall {
        operation,
        /// `ok`, or the kind of error.
        outcome
    }
    ByRepair {
        /// `join`, `reconnect`, `set`, `approve`, `forget` or `restart`.
        repair
    }
}
