//! Beside the real tailscaled, which has a link, rules and a table of its own. It has joined no mesh:
//! what it makes by itself is enough to get in each other's way.

use lab::{Netns, Running, eventually, tools};
use tempfile::TempDir;

use super::{LINK, Meshed, THERE, mesh, wanted, way, ways};
use crate::kept::while_kept;
use crate::scene::SOON;

struct Tailscaled {
    running: Running,
    _state: TempDir,
}

impl Tailscaled {
    /// Starts one, and waits for its link and rules.
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
        // Rules may be left of an earlier one.
        let is_there = || {
            let links = meshed.node().links().unwrap();
            let has_link = links.iter().any(|link| link == LINK);
            (has_link && ways(&meshed.scene).contains("5270:")).then_some(())
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
fn a_restart_of_tailscaled_costs_a_moment_and_leaks_nothing() {
    let meshed = Meshed::without_link();
    while_kept(&meshed.scene, wanted(Some(&mesh())), |kept| {
        for _ in 0..2 {
            let tailscaled = Tailscaled::start(&meshed);
            for there in THERE {
                let is_led = || way(meshed.node(), there, &[]);
                let (link, _) = eventually(SOON, "a way", is_led).unwrap();
                assert_eq!(link, LINK);
                assert_eq!(way(meshed.node(), there, &["mark", "0x80000"]), None);
            }
            // Once for each family.
            let are_there = || {
                let rules = meshed.scene.run("ip rule; ip -6 rule");
                let all = [5190, 5195, 5200, 5210, 5230, 5250, 5270];
                let mut counts = all.iter().map(|p| rules.matches(&format!("{p}:")).count());
                counts.all(|count| count == 2).then_some(())
            };
            eventually(lab::DEADLINE, "rules of both", are_there).unwrap();
            kept.settle();
            // Nobody undoes the other's.
            let passes = kept.passes();
            kept.settle();
            assert_eq!(kept.passes(), passes);
            tailscaled.kill();
            for there in THERE {
                let is_refused = || way(meshed.node(), there, &[]).is_none().then_some(());
                eventually(SOON, "no way", is_refused).unwrap();
            }
        }
    });
}
