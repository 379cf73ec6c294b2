//! tailscaled in a container of its own: the daemon has to find it, and must start none beside it.

use serde_json::Value;

use super::object::{Rendering, container, list, variable};
use super::shape::DAEMON_SET;

/// Where the daemon's own tailscaled listens.
const SOCKET: &str = api::paths::TAILSCALED_SOCKET;

/// What is wrong with it, in every pod that has one.
pub(super) fn faults(rendering: &Rendering) -> Vec<String> {
    let mut faults = Vec::new();
    for object in &rendering.objects {
        let Some(pod) = object.pod_spec() else {
            continue;
        };
        let (tailscaled, daemon) = (container(pod, "tailscaled"), container(pod, DAEMON_SET));
        if let (Some(tailscaled), Some(daemon)) = (tailscaled, daemon) {
            let found = pair_faults(tailscaled, daemon);
            faults.extend(
                found
                    .iter()
                    .map(|fault| format!("{}: {fault}", object.title())),
            );
        }
    }
    faults
}

fn pair_faults(tailscaled: &Value, daemon: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    let mut must = |holds: bool, what: &str| {
        if !holds {
            faults.push(what.to_owned());
        }
    };
    must(
        tailscaled["restartPolicy"] == "Always",
        "tailscaled ends before the daemon starts",
    );

    let arguments: Vec<_> = list(&tailscaled["args"])
        .filter_map(Value::as_str)
        .collect();
    let said = |name: &str| arguments.iter().find_map(|word| word.strip_prefix(name));
    must(
        arguments.contains(&"--no-logs-no-support"),
        "tailscaled tells Tailscale of itself",
    );
    must(
        said("--socket=") == Some(SOCKET),
        "tailscaled listens where the daemon does not look",
    );
    must(
        said("--tun=").is_some() && said("--port=").is_some(),
        "tailscaled has no link or port",
    );
    must(
        variable(tailscaled, "TS_NO_LOGS_NO_SUPPORT") == Some("true"),
        "tailscaled may tell of itself",
    );
    must(
        said("--statedir=").is_some() && variable(tailscaled, "TS_LOGS_DIR") == said("--statedir="),
        "tailscaled writes elsewhere than into its directory",
    );

    must(
        variable(daemon, "HEADCNID_TAILSCALE_MODE") == Some("container"),
        "the daemon would start a tailscaled beside the other one",
    );
    let shared = |container: &Value, path: &str| {
        list(&container["volumeMounts"])
            .find(|mount| mount["mountPath"] == path)
            .map(|mount| mount["name"].clone())
    };
    for path in ["/run/headcni", "/var/lib/headcni"] {
        let (theirs, ours) = (shared(tailscaled, path), shared(daemon, path));
        must(
            theirs.is_some() && theirs == ours,
            &format!("{path} is not the same for both"),
        );
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_that_would_start_another_tailscaled_is_found() {
        let text = "kind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: headcni-daemon}, {name: tailscaled}]}";
        let told = faults(&Rendering::parse(text).unwrap()).join("\n");
        assert!(told.contains("would start a tailscaled beside"), "{told}");
    }

    #[test]
    fn without_a_container_for_it_nothing_is_asked() {
        let text = "kind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: headcni-daemon}]}";
        assert!(faults(&Rendering::parse(text).unwrap()).is_empty());
    }
}
