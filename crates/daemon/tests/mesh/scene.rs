//! Where a test of this target happens: machines and cables, watched from the beginning to the end.
//! Nothing of a pod is ever seen on a wire in clear, whatever a test is about.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use lab::{Account, Grounds, Netns, Site, Sniffer};

/// How an account is judged.
type Look = fn(&Account) -> anyhow::Result<()>;
const NOTHING_IN_CLEAR: &[Look] = &[Account::check_nothing_in_clear];
const NO_STRAYS_EITHER: &[Look] = &[Account::check_nothing_in_clear, Account::check_no_strays];

/// Grounds that are watched. When it is dropped, what was seen is judged: no test can forget that.
pub(crate) struct Scene {
    pub(crate) grounds: Grounds,
    sniffers: Vec<Sniffer>,
    looks: &'static [Look],
}

impl Scene {
    /// A server, and a node at each of these sites.
    pub(crate) fn new(sites: &[Site]) -> Self {
        Self::looked_at(sites, NOTHING_IN_CLEAR)
    }

    /// The same for a test in which nobody calls anybody outside of the lab either.
    pub(crate) fn without_strays(sites: &[Site]) -> Self {
        Self::looked_at(sites, NO_STRAYS_EITHER)
    }

    fn looked_at(sites: &[Site], looks: &'static [Look]) -> Self {
        let grounds = Grounds::new(sites).unwrap();
        let sniffers = grounds.watch().unwrap();
        Self {
            grounds,
            sniffers,
            looks,
        }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // Ending them is enough where something else failed already: two panics are one too many.
        let sniffers = mem::take(&mut self.sniffers);
        if thread::panicking() {
            return;
        }
        for sniffer in sniffers {
            let account = sniffer.end().unwrap();
            for look in self.looks {
                look(&account).unwrap();
            }
        }
    }
}

#[test]
fn whoever_sends_in_clear_fails_on_either_side_of_a_router() {
    for leaky in [None, Some(0), Some(1)] {
        let scene = Scene::new(&[Site::Open, Site::BehindNat]);
        let server = scene.grounds.server_port.v4.to_string();
        for node in &scene.grounds.nodes {
            node.ping(&server).unwrap();
        }
        if let Some(leaky) = leaky {
            let node = &scene.grounds.nodes[leaky];
            node.run(["ip", "address", "add", "10.244.9.9/32", "dev", "lo"])
                .unwrap();
            // Only one side of the router sees this source. Whether there is an answer is no matter.
            let ping = ["ping", "-n", "-c", "1", "-W", "0.2", "-I", "10.244.9.9"];
            let ping = ping.into_iter().chain([server.as_str()]);
            node.attempt(ping).unwrap();
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| drop(scene)));
        let said = outcome.map_err(|panic| *panic.downcast::<String>().unwrap());
        match (leaky, said) {
            (None, Ok(())) => {}
            (Some(_), Err(said)) if said.contains("in clear") => {}
            (leaky, said) => panic!("{leaky:?}: {said:?}"),
        }
    }
}
