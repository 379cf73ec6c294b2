//! Many Pods are created and deleted.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use lab::kubernetes::IMAGE;
use lab::scenario::{KubeCluster, fetch_from, object_name, pod_ips, pod_object, web_spec_on};
use lab::{Netns, Node, eventually_slowly};
use serde_json::{Value, json};

/// Per node.
const PODS: usize = 200;
/// Per node and wave.
const WAVE: usize = 40;
const API_OUTAGE: Duration = Duration::from_mins(1);
/// For a wave on a busy machine.
const WAVE_TIMEOUT: Duration = Duration::from_mins(6);

#[test]
#[expect(clippy::print_stdout, reason = "how long ADD took is to be recorded")]
fn waves_of_pods_leave_no_links_leases_or_records() {
    let mut cluster = KubeCluster::prepare(2);
    cluster.install();
    cluster.await_nodes();
    for node in &cluster.topology.nodes {
        let spec = web_spec_on(node.name());
        cluster.apply(&pod_object(
            &format!("stable-{}", node.name()),
            "stable",
            &spec,
        ));
    }
    let stable = cluster.await_pods("stable", 2);
    let before: Vec<_> = cluster.topology.nodes.iter().map(remains).collect();

    let waves = PODS / WAVE;
    for wave in 0..waves {
        let app = format!("wave-{wave}");
        create(&cluster, &app);
        if wave == waves / 2 {
            api_outage(&mut cluster, &stable);
        }
        let pods = await_running(&cluster, &app);
        let all: Vec<_> = pods.iter().chain(&stable).flat_map(pod_ips).collect();
        let unique: BTreeSet<_> = all.iter().collect();
        assert_eq!(
            unique.len(),
            2 * (2 * WAVE + 2),
            "two unique addresses for each Pod"
        );
        let path = format!("/api/v1/namespaces/default/pods?labelSelector=app%3D{app}");
        cluster.plane.admin().delete(&path).unwrap();
        eventually_slowly(WAVE_TIMEOUT, &format!("{app} is gone"), || {
            cluster.pods(&app).is_empty().then_some(())
        })
        .unwrap_or_else(|error| panic!("{error:#}\n{}", cluster.diagnostics()));
    }

    for (node, before) in cluster.topology.nodes.iter().zip(before) {
        let same = || (remains(node) == before).then_some(());
        eventually_slowly(WAVE_TIMEOUT, "nothing remains of them", same).unwrap_or_else(|error| {
            panic!("{error:#}: {before} before, and now {}", remains(node))
        });
        println!("{}: {}", node.name(), latency(node));
    }
    let same = cluster.await_pods("stable", 2);
    let restarts = |pod: &Value| pod["status"]["containerStatuses"][0]["restartCount"].clone();
    assert!(same.iter().all(|pod| restarts(pod) == 0), "{same:#?}");
}

fn create(cluster: &KubeCluster, app: &str) {
    for node in &cluster.topology.nodes {
        for number in 0..WAVE {
            let spec = json!({
                "nodeName": node.name(),
                "terminationGracePeriodSeconds": 0,
                "containers": [{ "name": "c", "image": IMAGE }],
            });
            cluster.apply(&pod_object(
                &format!("{app}-{}-{number}", node.name()),
                app,
                &spec,
            ));
        }
    }
}

fn await_running(cluster: &KubeCluster, app: &str) -> Vec<Value> {
    let running = || {
        let pods = cluster.pods(app);
        let is_running = |pod: &Value| pod["status"]["phase"] == "Running";
        (pods.len() == 2 * WAVE && pods.iter().all(is_running)).then_some(pods)
    };
    eventually_slowly(WAVE_TIMEOUT, &format!("{app} runs"), running).unwrap_or_else(|error| {
        let pods = cluster.pods(app);
        let waiting = pods
            .iter()
            .filter(|pod| pod["status"]["phase"] != "Running");
        let waiting: Vec<_> = waiting.map(|pod| &pod["status"]).collect();
        panic!("{error:#}: {waiting:#?}\n{}", cluster.diagnostics())
    })
}

/// While Pods are created. Running Pods are not affected.
fn api_outage(cluster: &mut KubeCluster, stable: &[Value]) {
    cluster.plane.stop().unwrap();
    thread::sleep(API_OUTAGE);
    let [one, two] = stable else {
        panic!("one Pod on each node")
    };
    for (from, to) in [(one, two), (two, one)] {
        for ip in pod_ips(to) {
            let reply = cluster.fetch(from, &ip, 8080).unwrap();
            assert_eq!(reply.pod, object_name(to));
            assert!(
                pod_ips(from).contains(&reply.source.to_string()),
                "{reply:?}"
            );
        }
    }
    for node in &cluster.topology.nodes {
        fetch_from(node, &pod_ips(one)[0], 8080).unwrap();
    }
    cluster.plane.resume().unwrap();
}

/// Counts of links, leases, records, netns and neighbours on a node.
fn remains(node: &Node) -> String {
    let count = "
        echo links $(ip -o link show type veth | wc -l)
        echo leases and records $(find /var/lib/cni/headcni -type f ! -name 'new.*' | wc -l)
        echo namespaces $(ls /run/netns | wc -l)
        echo neighbours $(ip neigh show nud permanent | wc -l)";
    node.run(["sh", "-c", count]).unwrap().stdout
}

/// ADD latency from the daemon's histogram.
fn latency(node: &Node) -> String {
    let ask = "busybox wget -q -O - http://127.0.0.1:9844/metrics";
    let metrics = node.run(["sh", "-c", ask]).unwrap().stdout;
    let buckets: Vec<(&str, f64)> = metrics.lines().filter_map(bucket).collect();
    let all = buckets.last().unwrap().1;
    let within = |share: f64| {
        let mut buckets = buckets.iter();
        let found = buckets.find(|(_, count)| *count >= share * all);
        found.unwrap().0
    };
    format!(
        "{all} ADDs: half within {} s, 90 % within {} s, 99 % within {} s",
        within(0.5),
        within(0.9),
        within(0.99)
    )
}

/// Limit and count of a bucket of ADD.
fn bucket(line: &str) -> Option<(&str, f64)> {
    let rest = line.strip_prefix("headcni_cni_call_duration_seconds_bucket{le=\"")?;
    let (limit, rest) = rest.split_once("\",verb=\"ADD\",outcome=\"ok\"} ")?;
    Some((limit, rest.parse().ok()?))
}
