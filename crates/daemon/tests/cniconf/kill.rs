//! kill -9 at every moment of a pass: what is there is whole, and the next pass finishes.

use serde_json::json;

use crate::inside::keys;
use crate::scene::{CONF_DIR, CONFLIST, KEPT, OTHER, SUBNET_ENV, Scene};

const OTHERS: [&str; 2] = ["05-a.conf", "20-b.conflist"];

#[test]
fn a_pass_that_is_killed_at_any_moment_leaves_whole_files_and_loses_nothing() {
    let scene = Scene::new();
    let (old, new) = (scene.desired(&json!({})), scene.desired(&keys()));
    let prepare = || {
        scene.shell("rm -rf /etc/cni /run/headcni /var/lib/headcni");
        node_cniconf::ensure(&old).unwrap();
        for name in OTHERS {
            scene
                .node
                .write(format!("{CONF_DIR}/{name}"), OTHER)
                .unwrap();
        }
    };
    prepare();
    let moments = scene.moments();
    scene.assert_in_place(&new);
    // Three files and the ledger, each with write, fchmod, fsync, rename and fsync, and two more
    // that are set aside.
    assert!(moments.len() >= 22, "{moments:?}");
    for moment in &moments {
        prepare();
        scene.kill_at(moment);
        for (path, old, new) in [
            (CONFLIST, &old.conflist_text, &new.conflist_text),
            (SUBNET_ENV, &old.subnet_env_text, &new.subnet_env_text),
            (KEPT, &old.subnet_env_text, &new.subnet_env_text),
        ] {
            let text = scene.node.read(path).unwrap();
            assert!(text == *old || text == *new, "{moment:?}: {text:?}");
        }
        for name in OTHERS {
            let places = [name.to_owned(), format!("{name}.headcni-aside")];
            let read = |name: &String| scene.node.read(format!("{CONF_DIR}/{name}")).ok();
            let found: Vec<String> = places.iter().filter_map(read).collect();
            assert_eq!(found, [OTHER], "{moment:?}");
        }
        node_cniconf::ensure(&new).unwrap();
        scene.assert_in_place(&new);
        let mut listed = scene.list(CONF_DIR);
        listed.retain(|name| !name.starts_with(".headcni-"));
        let whole = [
            "05-a.conf.headcni-aside",
            "10-headcni.conflist",
            "20-b.conflist.headcni-aside",
        ];
        assert_eq!(listed, whole, "{moment:?}");
    }
}
