//! Many first pods at once.

use lab::{DEADLINE, Netns};

use crate::networks::{call, dual_stack, headcni, ip, plugin_node, used_node};

const CROWD: usize = 40;

#[test]
fn forty_first_pods_at_once_leave_one_set_of_rules_and_all_work() {
    let alone = used_node(&dual_stack()).ruleset();
    let plugin = plugin_node();
    let conf = dual_stack();
    let pods: Vec<_> = (0..CROWD).map(|n| plugin.pod(&format!("p{n}"))).collect();
    let running: Vec<_> = pods
        .iter()
        .map(|pod| {
            let call = call("ADD", &conf).pod(pod);
            call.spawn(&plugin.node, headcni()).unwrap()
        })
        .collect();
    let results: Vec<_> = running
        .into_iter()
        .map(|running| {
            let output = running.wait(DEADLINE).unwrap();
            assert!(output.status.success(), "{output:?}");
            serde_json::from_str(&output.stdout).unwrap()
        })
        .collect();
    assert_eq!(plugin.ruleset(), alone);
    for (index, pod) in pods.iter().enumerate() {
        let next = &results[(index + 1) % CROWD];
        pod.ping(&ip(next, 0)).unwrap();
        pod.ping(&ip(next, 1)).unwrap();
    }
}
