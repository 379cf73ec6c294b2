//! Beside a real tailscaled with its own interface, rules and route table. It has not joined, which is enough
//! for conflicts.

use lab::{Netns, Running, eventually, tools};
use tempfile::TempDir;

use super::{LINK, Meshed, REMOTE_PODS, mesh, route_to, rules_and_routes, wanted};
use crate::controller::with_controller;
use crate::fixture::SOON;

struct Tailscaled {
    running: Running,
    _state: TempDir,
}

impl Tailscaled {
    /// Waits for its interface and rules.
    fn start(meshed: &Meshed) -> Self {
        let state = TempDir::new().unwrap();
        let mut command = meshed.node().command("sh");
        command
            .env("TS_NO_LOGS_NO_SUPPORT", "true")
            .args(["-c", "exec \"$0\" \"$@\" >/dev/null 2>&1"])
            .arg(tools::TAILSCALE.program("tailscaled"))
            .args(["--no-logs-no-support", "--port=0", "--tun", LINK])
            .arg("--statedir")
            .arg(state.path())
            .arg("--socket")
            .arg(state.path().join("socket"));
        let running = Running::spawn(&mut command, b"").unwrap();
        // Rules may remain from an earlier one.
        let is_there = || {
            let links = meshed.node().links().unwrap();
            let has_link = links.iter().any(|link| link == LINK);
            (has_link && rules_and_routes(&meshed.fixture).contains("5270:")).then_some(())
        };
        eventually(lab::DEADLINE, "tailscaled's link and rules", is_there).unwrap();
        Self {
            running,
            _state: state,
        }
    }

    fn kill(self) {
        self.running.kill_group();
        self.running.wait(lab::DEADLINE).unwrap();
    }
}

#[test]
fn routes_follow_a_restarted_tailscaled_and_leak_nothing() {
    let meshed = Meshed::without_link();
    with_controller(&meshed.fixture, wanted(Some(&mesh())), |controller| {
        for _ in 0..2 {
            let tailscaled = Tailscaled::start(&meshed);
            for there in REMOTE_PODS {
                let is_routed = || route_to(meshed.node(), there, &[]);
                let (link, _) = eventually(SOON, "a route", is_routed).unwrap();
                assert_eq!(link, LINK);
                assert_eq!(route_to(meshed.node(), there, &["mark", "0x80000"]), None);
            }
            // One for each family.
            let are_there = || {
                let rules = meshed.fixture.run("ip rule; ip -6 rule");
                let all = [5190, 5195, 5200, 5210, 5230, 5250, 5270];
                let mut counts = all.iter().map(|p| rules.matches(&format!("{p}:")).count());
                counts.all(|count| count == 2).then_some(())
            };
            eventually(lab::DEADLINE, "rules of both", are_there).unwrap();
            controller.settle();
            // Neither removes the other's rules.
            let reconciles = controller.reconciles();
            controller.settle();
            assert_eq!(controller.reconciles(), reconciles);
            tailscaled.kill();
            for there in REMOTE_PODS {
                let is_refused = || route_to(meshed.node(), there, &[]).is_none().then_some(());
                eventually(SOON, "no route", is_refused).unwrap();
            }
        }
    });
}
