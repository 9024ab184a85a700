//! Copies join in the order of their numbers, even if some are slow to start.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use fanpcap_testkit::await_for::within;
use fanpcap_testkit::member;

use crate::captures::{frames, on_wire};
use crate::{FAR, GROUP, Running};

/// Starts three copies. Each copy runs the script `before`, in which `$0` is the copy's number, and
/// then tcpdump.
fn three(device: &str, fanout: &str, before: &str) -> Result<Running> {
    let group = GROUP.to_string();
    let options = [
        "-n", "3", "--group", &group, "--cpus", "none", "--fanout", fanout,
    ];
    let line = format!("{before}exec tcpdump -n -U -Z root -i {device} -w $0.pcap");
    Running::start(&options, &["sh", "-c", &line, "%i"])
}

/// Checks that copy 0 gets all packets if the mode gives all packets to the first member. Copies
/// with lower numbers start more slowly.
fn first_is_copy_0(device: &str, fanout: &str) -> Result<()> {
    on_wire(|injector| {
        let running = three(device, fanout, "sleep 0.$(((2 - $0) * 2)); ")?;
        running.wait_until_says("tcpdump: listening", 3)?;
        member::wait_for_members(GROUP, 3)?;
        running.wait_until_says(&format!("on {FAR}: 3 copies"), 1)?;
        injector.send_all(&frames(100)?)?;
        running.wait_for_packets(&["0.pcap"], 100)?;
        let ended = running.stop()?;
        let copies = &ended.summary()["copies"];
        ensure!(copies[0]["taken"] == 100, "{copies:#}");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn the_member_of_rank_0_is_copy_0() {
    first_is_copy_0(FAR, "main = steer_to 0").unwrap();
}

#[test]
#[ignore = "needs root: eBPF, packet sockets in a namespace"]
fn the_member_of_rank_0_is_copy_0_on_xdp() {
    first_is_copy_0(&format!("xdp:{FAR}"), "main = steer_to 0").unwrap();
}

/// The kernel's mode `rollover` gives all packets to the first member as long as this member's ring
/// has room.
#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn the_kernels_first_member_is_copy_0() {
    first_is_copy_0(FAR, "rollover").unwrap();
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn copies_that_end_or_never_join_hold_up_the_others_for_a_moment() {
    on_wire(|_| {
        let began = Instant::now();
        let running = three(
            FAR,
            "flow",
            "[ $0 = 0 ] && exit; [ $0 = 1 ] && exec sleep 600; ",
        )?;
        running.wait_until_says("2: tcpdump: listening", 1)?;
        let taken = began.elapsed();
        ensure!(taken >= Duration::from_secs(1), "copy 1 was not waited for");
        ensure!(taken < within(Duration::from_secs(2)), "{taken:?}");
        Ok(())
    })
    .unwrap();
}

#[test]
fn of_copies_that_never_capture_one_alone_is_waited_for() {
    let began = Instant::now();
    let running =
        Running::start(&["-n", "32"], &["sh", "-c", "echo up >&2; exec sleep 600"]).unwrap();
    running.wait_until_says("up\n", 32).unwrap();
    let taken = began.elapsed();
    assert!(taken < within(Duration::from_secs(3)), "{taken:?}");
}
