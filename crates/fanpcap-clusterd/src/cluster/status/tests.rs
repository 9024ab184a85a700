//! Tests of the status of a small cluster, as a table and as JSON.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::TcpListener;
use std::thread;

use fanpcap_cluster::reshape::{self, ChangeTarget, Member};
use fanpcap_cluster::{Announcement, DesiredState, Revision, Version, View};
use fanpcap_select::{Key, Selection};
use fanpcap_testkit::Scratch;

use super::*;

fn target(current: Option<&Topology>, nodes: &[u32]) -> ChangeTarget {
    let member = |node: &u32| Member {
        node: NodeId(*node),
        weight: 1,
    };
    let members: Vec<Member> = nodes.iter().map(member).collect();
    ChangeTarget::new(current, &members, Selection::default(), &[], None).unwrap()
}

const SETUP: Setup = Setup {
    version: Version([0, 1, 0]),
    header: None,
    key: Key::Packet,
    devices: Some(2),
};

/// Node 1 follows the topology, node 2 is silent, node 3 gets its first buckets, and node 4 must
/// wait for its buckets and has an earlier version.
fn status() -> ClusterStatus {
    let two = target(None, &[1, 2]).0;
    let union = reshape::begin(
        &two,
        &target(Some(&two), &[1, 2, 3]),
        &BTreeSet::new(),
        |_| true,
    );
    let live = |node, revision: Option<u64>| LiveNode {
        announcement: Announcement {
            node: NodeId(node),
            boot: 1,
            weight: 1,
            address: "10.0.0.1:7001".parse().unwrap(),
            setup: (node != 4).then_some(SETUP),
        },
        acknowledged: revision.map(Revision),
    };
    ClusterStatus {
        unreadable: None,
        view: View {
            leads: false,
            live: vec![live(1, Some(9)), live(3, None), live(4, None)],
            topology: Some((Revision(9), Box::new(union))),
            desired: DesiredState {
                drained: [NodeId(9)].into(),
                ..DesiredState::default()
            },
            is_outrun: false,
        },
        leader: Some("host/7".to_owned()),
        notes: vec!["something is wrong".to_owned()],
        refused: vec![("seal", 5), ("stale", 2)],
    }
}

#[test]
fn the_table_says_what_each_node_does() {
    let expected = "\
cluster lab, coordinator host/7
topology 9, epoch 2, union, select = packet

node      state    weight  buckets  moving  mode          version  address
00000001  current       1     1366     682  distribution  0.1.0    10.0.0.1:7001
00000002  silent        1     1365     683  -             -        -
00000003  behind        1        0    1365  distribution  0.1.0    10.0.0.1:7001
00000004  waiting       -        0       0  -             -        10.0.0.1:7001

control messages refused (seal): 5

something is wrong

node 00000002 is silent and has buckets: if it is dead, packets of these buckets are missed, and \
'fanpcap cluster drain 00000002' gives the buckets to other nodes

node 00000009 is not in the cluster, and an earlier command for it still has effect: undo this by \
'fanpcap cluster drain 00000009 --undo' or 'fanpcap cluster weight 00000009'
";
    assert_eq!(table("lab", &status()), expected);
}

#[test]
fn a_node_that_stays_behind_is_named_with_the_remedy() {
    let mut status = status();
    assert!(!table("lab", &status).contains("is behind"));
    let stable = target(None, &[1, 2, 3]).0;
    status.view.topology = Some((Revision(9), Box::new(stable)));
    let table = table("lab", &status);
    assert!(
        table.contains("node 00000003 is behind the newest topology: if it stays behind"),
        "{table}"
    );
    assert!(!table.contains("node 00000001 is behind"), "{table}");
}

#[test]
fn a_node_with_a_newer_topology_is_named_even_if_it_is_drained() {
    let mut status = status();
    status.view.live[0].acknowledged = Some(Revision(12));
    status.view.desired.drained = [NodeId(1)].into();
    let table = table("lab", &status);
    assert!(table.contains("00000001  ahead"), "{table}");
    assert!(
        table.contains("node 00000001 captures by topology 12"),
        "{table}"
    );
    status.view.topology = None;
    let none = super::table("lab", &status);
    assert!(none.contains("00000001  drained"), "{none}");
}

#[test]
fn nodes_that_differ_in_version_or_settings_are_named() {
    let mut status = status();
    let third = Setup {
        version: Version([0, 2, 0]),
        header: Some(52),
        key: Key::Flow,
        devices: Some(1),
    };
    status.view.live[2].announcement.setup = Some(SETUP);
    status.view.live[1].announcement.setup = Some(third);
    let table = table("lab", &status);
    for line in [
        "00000003  behind        1        0    1365  capture 52    0.2.0    10.0.0.1:7001",
        "nodes differ in mode (distribution, but capture 52 of 00000003):",
        "nodes differ in version (0.1.0, but 0.2.0 of 00000003): install the same version on all",
        "nodes differ in their number of devices (2, but 1 of 00000003):",
        "the settings of node 00000003 say 'select = flow', but the cluster selects by 'packet'",
    ] {
        assert!(table.contains(&format!("\n{line}")), "{line} in {table}");
    }
    assert_eq!(table.matches("select = flow").count(), 1);
    let object = object("lab", &status);
    let third = &object["nodes"][2];
    assert_eq!(
        (&third["mode"], &third["header"]),
        (&json!("capture"), &json!(52))
    );
    // An earlier version does not report its number of devices.
    status.view.live[1].announcement.setup = Some(Setup {
        devices: None,
        ..SETUP
    });
    assert!(!super::table("lab", &status).contains("number of devices"));
}

#[test]
fn the_object_has_the_same() {
    let object = object("lab", &status());
    let one = json!({
        "node": "00000001", "state": "current", "weight": 1, "buckets": 1366, "moving": 682,
        "drained": false, "acknowledged": 9, "address": "10.0.0.1:7001", "version": "0.1.0",
        "mode": "distribution", "header": null, "select": "packet", "devices": 2,
    });
    assert_eq!(object["nodes"][0], one);
    let topology = json!({
        "revision": 9, "epoch": 2, "phase": "union", "select": "packet", "filter": null,
    });
    assert_eq!(object["topology"], topology);
    assert_eq!(object["nodes"][3]["state"], "waiting");
    assert_eq!(object["notes"][0], "something is wrong");
    assert_eq!(object["refused"], json!({ "seal": 5, "stale": 2 }));
    let empty = ClusterStatus::default();
    assert!(table("lab", &empty).contains("no topology yet"));
    let later = ClusterStatus {
        unreadable: Some(Revision(7)),
        ..empty
    };
    assert!(!table("lab", &later).contains("no topology yet"));
}

/// In etcd, a coordinator's name and its notes may contain any characters.
#[test]
fn names_and_notes_have_no_lines_of_their_own() {
    let row = "\n00000009  current       1     4096";
    let status = ClusterStatus {
        leader: Some(format!("host/7{row}")),
        notes: vec![format!("a note{row}")],
        ..status()
    };
    assert!(!table("lab", &status).contains(row));
}

#[test]
fn several_clusters_are_summed_over() {
    let leaderless = ClusterStatus {
        leader: None,
        ..status()
    };
    let sums = Sums {
        clusters: vec![
            ("east".to_owned(), status()),
            ("west".to_owned(), leaderless),
        ],
        unseen: Vec::new(),
    };
    let table = sums.table();
    assert!(table.contains("cluster east, ") && table.contains("cluster west, "));
    let sum = "\
2 clusters, 8 nodes: 2 behind, 2 current, 2 silent, 2 waiting
without a coordinator: west
";
    assert!(table.ends_with(sum), "{table}");
    let object = sums.object();
    assert_eq!(object["clusters"][1]["cluster"], "west");
    let states = json!({"behind": 2, "current": 2, "silent": 2, "waiting": 2});
    assert_eq!(object["states"], states);
    assert_eq!(object["without_coordinator"], json!(["west"]));
    assert_eq!(object["unseen"], json!([]));
}

/// Of four clusters, two do not reply, one has its nodes in its settings, and the settings of one
/// are missing.
#[test]
fn clusters_that_do_not_reply_are_named() {
    let scratch = Scratch::new().unwrap();
    let conf = |name: &str, more: &str| {
        let file = scratch.file(name);
        fs::write(&file, format!("cluster = {name}\n{more}\n")).unwrap();
        file
    };
    let etcd = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = etcd.local_addr().unwrap();
    let silent = format!("engine = etcd\netcd = http://{url}");
    // Accepts requests, but never replies. Returns whether the second request comes while the first
    // one still waits.
    let asked = thread::spawn(move || {
        let (mut first, _) = etcd.accept().unwrap();
        let _second = etcd.accept().unwrap();
        first.set_nonblocking(true).unwrap();
        let ended = io::copy(&mut first, &mut io::sink());
        ended.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    });
    let missing = scratch.file("missing");
    let files = [
        conf("north", &silent),
        conf("east", "engine = fixed\nnodes = a1, a2\nkey_file = /k"),
        conf("south", &silent),
        missing.clone(),
    ];
    let sums = Sums::of(&files);
    assert!(asked.join().unwrap(), "one after the other");
    let table = sums.table();
    assert!(
        table.contains("4 clusters, 3 not seen, 2 nodes: "),
        "{table}"
    );
    let lines: Vec<&str> = table
        .lines()
        .filter(|line| line.starts_with("not seen: "))
        .collect();
    assert_eq!(lines.len(), 3);
    assert!(
        lines[2].starts_with(&format!("not seen: {}: ", missing.display())),
        "{table}"
    );
    let object = sums.object();
    assert_eq!(object["clusters"][0]["cluster"], "east");
    assert_eq!(object["unseen"][2]["config"], missing.display().to_string());
    assert!(object["unseen"][0]["error"].is_string());
}
