//! What series differ by. Each label has few values: pods are told apart only on request.

use std::fmt;

use prometheus_client::encoding::{EncodeLabel, EncodeLabelSet, LabelSetEncoder};

/// The labels of a call's duration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PodLabels {
    /// The pod's namespace, if labels of pods are asked for.
    pub namespace: Option<String>,
    /// The pod's name, likewise.
    pub pod_name: Option<String>,
}

// By hand, because the derived one writes what is absent as empty labels.
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
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident),* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
        pub struct $name { $($(#[$field_doc])* pub $field: String),* }
    };
}

labels!(
    /// By strategy.
    ByStrategy {
        /// How addresses are chosen.
        strategy
    }
);
labels!(
    /// By type of error.
    ByError {
        /// What went wrong.
        error_type
    }
);
labels!(
    /// By verb and outcome.
    ByCall {
        /// `ADD` or `DEL`.
        verb,
        /// `ok` or `error`.
        outcome
    }
);
labels!(
    /// By verb, step and outcome.
    ByStep {
        /// `ADD` or `DEL`.
        verb,
        /// A step of the call.
        step,
        /// `ok` or `error`.
        outcome
    }
);
labels!(
    /// By outcome.
    ByOutcome {
        /// `ok` or `error`.
        outcome
    }
);
labels!(
    /// By what is reconciled.
    ByController {
        /// `hostnet`, `cniconf`, `orphans`, `firewall`.
        controller
    }
);
labels!(
    /// By condition.
    ByCondition {
        /// Its name.
        condition
    }
);
labels!(
    /// By IP family.
    ByFamily {
        /// `ipv4` or `ipv6`.
        family
    }
);
labels!(
    /// By kind of left-over.
    ByKind {
        /// `lease`, `link`, `route` or `state`.
        kind
    }
);
labels!(
    /// By request of the socket.
    ByRequest {
        /// What was asked.
        request
    }
);
labels!(
    /// By the way to another node.
    ByPath {
        /// `direct`, `relay`, `idle` or `offline`.
        path
    }
);
labels!(
    /// By direction and way.
    ByTraffic {
        /// `received` or `sent`.
        direction,
        /// `direct` or `relay`.
        path
    }
);
labels!(
    /// By key.
    ByCredential {
        /// `node-key` or `api-key`.
        credential
    }
);
labels!(
    /// By how far this node's networks have come.
    ByRouteState {
        /// `desired`, `advertised`, `approved` or `primary`.
        state
    }
);
labels!(
    /// By what Headscale was asked, and how that went.
    ByServerCall {
        /// What it was asked.
        operation,
        /// `ok`, or the kind of error.
        outcome
    }
);
labels!(
    /// By what was done.
    ByRepair {
        /// `join`, `set`, `approve`, `forget` or `restart`.
        repair
    }
);
