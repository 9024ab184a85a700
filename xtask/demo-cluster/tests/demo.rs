//! Tests the demo of a capture cluster: after each event no packet is unaccounted for.
#![forbid(unsafe_code)]

use std::path::Path;
use std::process::Command;

#[test]
#[ignore = "needs root: namespaces, XDP; and etcd"]
#[allow(
    clippy::print_stdout,
    reason = "the tiers read SKIP in a test's output"
)]
fn every_packet_is_captured_once_or_counted() {
    for program in ["/usr/bin/etcd", "/usr/bin/etcdctl"] {
        if !Path::new(program).exists() {
            println!("SKIP: no {program} here (etcd-server, etcd-client)");
            return;
        }
    }
    let done = Command::new(env!("CARGO_BIN_EXE_fanpcap-demo-cluster"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    let error = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && error.is_empty(), "{said}{error}");
    assert_eq!(said.matches("unaccounted 0").count(), 6, "{said}");
    assert!(said.ends_with("\nEvery packet was captured once, or is counted.\n"));
    // The packets of the killed node are missed until the other nodes have its buckets.
    let (_, killed) = said.rsplit_once("missed ").unwrap();
    assert!(!killed.starts_with("0\n"), "{said}");
}
