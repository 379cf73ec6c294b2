//! Installs the tables, also concurrently.

use std::thread;

use lab::{Netns as _, Node};
use ruleset::{Installed, Table};

use crate::harness::{install, node_with_tables, socket};

/// The script in the form in which `nft` lists the table.
fn as_listed(table: Table) -> String {
    let script = table.script();
    let lines = script.lines().filter(|line| !line.trim().starts_with('#'));
    let mut lines = lines.map(str::to_owned).collect::<Vec<_>>();
    let comment = lines.remove(0);
    let comment = comment.split_once("{ ").unwrap().1;
    lines.insert(1, format!("\t{}", comment.trim_end_matches("; }")));
    lines.join("\n") + "\n"
}

fn table_as_listed(node: &Node, table: Table) -> String {
    let line = ["nft", "list", "table", "inet", table.name()];
    node.run(line).unwrap().stdout
}

#[test]
fn nft_lists_the_tables_as_in_the_scripts() {
    let (node, _) = node_with_tables();
    for table in Table::ALL {
        assert_eq!(table_as_listed(&node, table), as_listed(table));
    }
}

#[test]
fn nft_check_accepts_the_scripts() {
    let node = Node::new("n1").unwrap();
    for table in Table::ALL {
        let mut command = node.command("nft");
        command.args(["--check", "-f", "-"]);
        let running = lab::Running::spawn(&mut command, table.script().as_bytes()).unwrap();
        let output = running.wait(lab::DEADLINE).unwrap();
        assert!(output.status.success(), "{}", output.stderr);
    }
    assert_eq!(ruleset::missing(&socket(&node)).unwrap(), Table::ALL);
}

#[test]
fn only_missing_tables_are_installed() {
    let (node, socket) = node_with_tables();
    assert_eq!(ruleset::missing(&socket).unwrap(), []);
    for table in Table::ALL {
        node.run(["nft", "delete", "table", "inet", table.name()])
            .unwrap();
        assert_eq!(ruleset::missing(&socket).unwrap(), [table]);
        assert_eq!(ruleset::installed(&socket, table).unwrap(), None);
        // With and without the table that exists.
        let tables = match table {
            Table::Pods => vec![table],
            Table::Ports => Table::ALL.to_vec(),
        };
        node.enter(|| ruleset::install(&tables, &[]))
            .unwrap()
            .unwrap();
        assert_eq!(ruleset::missing(&socket).unwrap(), []);
    }
    install(&node);
    for table in Table::ALL {
        assert_eq!(table_as_listed(&node, table), as_listed(table));
    }
}

#[test]
fn the_version_is_in_the_comment_of_the_table() {
    let (node, socket) = node_with_tables();
    for table in Table::ALL {
        let version = Some(table.version());
        let installed = ruleset::installed(&socket, table).unwrap();
        assert_eq!(installed, Some(Installed { version }));
    }
    node.run(["nft", "delete", "table", "inet", "headcni"])
        .unwrap();
    node.run(["nft", "add", "table", "inet", "headcni"])
        .unwrap();
    let foreign = ruleset::installed(&socket, Table::Pods).unwrap();
    assert_eq!(foreign, Some(Installed { version: None }));
}

#[test]
fn one_of_forty_concurrent_installers_succeeds() {
    let node = Node::new("n1").unwrap();
    thread::scope(|scope| {
        for _ in 0..40 {
            scope.spawn(|| install(&node));
        }
    });
    for table in Table::ALL {
        assert_eq!(table_as_listed(&node, table), as_listed(table));
    }
}
