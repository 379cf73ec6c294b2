//! The real `noop` plugin.

use lab::{Call, Node, Noop, tools};
use serde_json::json;

#[test]
fn noop_behaves_as_configured_and_records_its_calls() {
    let node = Node::new("n1").unwrap();
    let plugin = tools::test_plugin_dir().join("noop");
    let mut noop = Noop::new().unwrap();
    let mut conf = noop.conf();
    conf["cniVersion"] = "1.0.0".into();
    conf["name"] = "labnet".into();
    conf["extra"] = json!({"kept": [1, 2]});
    let call = |verb| {
        let call = Call::new(verb)
            .container_id("c1")
            .netns("/run/netns/none")
            .ifname("eth7");
        let call = call
            .path("/nowhere:/else")
            .args("K=V")
            .env("CNI_NETNS_OVERRIDE", "1");
        call.conf(&conf).run(&node, &plugin).unwrap()
    };

    let result = json!({"cniVersion": "1.0.0", "ips": [{"address": "10.0.0.2/24"}]});
    noop.report_result(&result).unwrap();
    noop.report_stderr("psst").unwrap();
    let outcome = call("ADD");
    assert_eq!(outcome.ok_json().unwrap(), result);
    assert_eq!(outcome.stderr, "psst");

    noop.report_error(123, "configured").unwrap();
    let outcome = call("DEL");
    assert_eq!(
        (outcome.err_code(), outcome.err_msg()),
        (Some(123), "configured")
    );

    noop.reset().unwrap();
    noop.report_garbage("{").unwrap();
    noop.exit_with(9).unwrap();
    let outcome = call("DEL");
    assert_eq!(
        (outcome.status.code(), outcome.stdout.as_str()),
        (Some(9), "{")
    );

    assert_eq!(noop.verbs().unwrap(), ["ADD", "DEL", "DEL"]);
    let seen = &noop.calls().unwrap()[0];
    assert_eq!(seen.conf, conf);
    assert_eq!(
        (seen.container_id.as_str(), seen.ifname.as_str()),
        ("c1", "eth7")
    );
    assert_eq!(
        (seen.netns.as_str(), seen.args.as_str()),
        ("/run/netns/none", "K=V")
    );
    assert_eq!(
        (seen.path.as_str(), seen.netns_override.as_str()),
        ("/nowhere:/else", "1")
    );
}
