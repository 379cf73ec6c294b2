//! SIGKILL at every system call of a reconcile: files are complete, and the next reconcile finishes.

use serde_json::json;

use crate::child_process::keys;
use crate::fixture::{CONF_DIR, CONFLIST, CniConfNode, KEPT, OTHER, SUBNET_ENV};

const OTHERS: [&str; 2] = ["05-a.conf", "20-b.conflist"];

#[test]
fn a_reconcile_killed_at_any_system_call_leaves_complete_files() {
    let fixture = CniConfNode::new();
    let (old, new) = (fixture.desired(&json!({})), fixture.desired(&keys()));
    let prepare = || {
        fixture.shell("rm -rf /etc/cni /run/headcni /var/lib/headcni");
        node_cniconf::ensure(&old).unwrap();
        for name in OTHERS {
            fixture
                .node
                .write(format!("{CONF_DIR}/{name}"), OTHER)
                .unwrap();
        }
    };
    prepare();
    let moments = fixture.moments();
    fixture.assert_in_place(&new);
    // Three files and the record, each with write, fchmod, fsync, rename and fsync, and two renamed
    // conflists.
    assert!(moments.len() >= 22, "{moments:?}");
    for moment in &moments {
        prepare();
        fixture.kill_at(moment);
        for (path, old, new) in [
            (CONFLIST, &old.conflist_text, &new.conflist_text),
            (SUBNET_ENV, &old.subnet_env_text, &new.subnet_env_text),
            (KEPT, &old.subnet_env_text, &new.subnet_env_text),
        ] {
            let text = fixture.node.read(path).unwrap();
            assert!(text == *old || text == *new, "{moment:?}: {text:?}");
        }
        for name in OTHERS {
            let places = [name.to_owned(), format!("{name}.headcni-aside")];
            let read = |name: &String| fixture.node.read(format!("{CONF_DIR}/{name}")).ok();
            let found: Vec<String> = places.iter().filter_map(read).collect();
            assert_eq!(found, [OTHER], "{moment:?}");
        }
        node_cniconf::ensure(&new).unwrap();
        fixture.assert_in_place(&new);
        let mut listed = fixture.list(CONF_DIR);
        listed.retain(|name| !name.starts_with(".headcni-"));
        let whole = [
            "05-a.conf.headcni-aside",
            "10-headcni.conflist",
            "20-b.conflist.headcni-aside",
        ];
        assert_eq!(listed, whole, "{moment:?}");
    }
}
