//! Joining a group that has a steering program: members without pages, and filters that are too
//! large for a socket.

use std::fs;

use anyhow::{Result, ensure};
use fanpcap_netns::dialog::Dialog;
use fanpcap_netns::on_wire;
use fanpcap_testkit::traffic::{self, Frame};
use fanpcap_testkit::{Transport, member};

use crate::steering::{mixed, start_with};

#[test]
#[ignore = "needs root: run by make test"]
fn a_group_whose_members_nobody_can_find_is_not_joined() -> Result<()> {
    on_wire(1, |wire| {
        // The user nobody can't create pages.
        let mut first = start_with(wire, "net_raw,bpf")?;
        first.expect("open main = steer_to 0", "opened 0")?;
        for program in ["main = steer_to 0", "main = steer_to 1"] {
            let said = Dialog::start(wire, 7)?.ask(&format!("open {program}"))?;
            let is_refused = said.starts_with("refused: ") && said.contains("can be joined");
            ensure!(is_refused, "{said}");
        }
        let frames = traffic::frames(21, &traffic::flows(21, 5), 0..300)?;
        wire.send(&frames)?;
        let count = first.count(0)?;
        ensure!(count == frames.len(), "{count} of {}", frames.len());
        // A process needs no pages to find its own groups.
        first.expect("open main = steer_to 0", "opened 1")
    })
}

/// Limits the option memory of sockets in the test's namespace. Returns false if the kernel is
/// older than Linux 6.8, where the limit would apply to the whole machine.
fn limit(bytes: u32) -> Result<bool> {
    const LIMIT: &str = "/proc/sys/net/core/optmem_max";
    let is_ours = fs::exists(LIMIT)?;
    if is_ours {
        fs::write(LIMIT, bytes.to_string())?;
    }
    Ok(is_ours)
}

const SKIP: &str = "SKIP: net.core.optmem_max is the machine's before Linux 6.8";

/// The default limit since Linux 6.8.
const USUAL: u32 = 131_072;

/// Opens the first handle of a group under the smallest limit of option memory that suffices, or
/// under a slightly larger limit. Returns this limit, or `None` if the test can't set limits.
fn opened_within_least(own: &mut Dialog, program: &str) -> Result<Option<u32>> {
    let mut bytes = 300;
    while limit(bytes)? {
        if own.ask(&format!("open {program}"))? == "opened 0" {
            return Ok(Some(bytes));
        }
        bytes += bytes / 8;
        ensure!(bytes < USUAL);
    }
    Ok(None)
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_program_without_room_is_refused_before_the_group_is_entered() -> Result<()> {
    on_wire(1, |wire| {
        if !limit(300)? {
            println!("{SKIP}");
            return Ok(());
        }
        let mut one = Dialog::start(wire, 7)?;
        one.expect("keep", "done")?;
        one.expect("plain", "opened 0")?;
        for line in [
            "open main = tcp >-> steer_rnd",
            "fanout 0 main = tcp >-> steer_rnd",
        ] {
            let said = one.ask(line)?;
            let names_limit = said.contains("optmem_max is 300, set it to 131072 or more");
            ensure!(said.starts_with("refused: ") && names_limit, "{said}");
        }
        member::wait_for_members(7, 0)?;
        limit(USUAL)?;
        one.expect("fanout 0 main = tcp >-> steer_rnd", "done")?;
        let (frames, tcp) = mixed(22, Transport::Tcp)?;
        wire.send(&frames)?;
        let count = one.count(0)?;
        ensure!(count == tcp.len(), "{count} of {}", tcp.len());
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_program_is_replaced_by_one_that_has_room_but_for_the_old_one() -> Result<()> {
    on_wire(1, |wire| {
        let mut own = Dialog::start(wire, 7)?;
        if opened_within_least(&mut own, "main = inc 0 >-> udp >-> steer_rnd")?.is_none() {
            println!("{SKIP}");
            return Ok(());
        }
        own.expect("fanout 0 main = inc 1 >-> tcp >-> steer_rnd", "done")?;
        let (frames, tcp) = mixed(23, Transport::Tcp)?;
        wire.send(&frames)?;
        let count = own.count(0)?;
        ensure!(count == tcp.len(), "{count} of {}", tcp.len());
        let counted = format!("0: members 1 counters 0 {0} 0 group 0 {0} 0", frames.len());
        own.expect("stats 0", &counted)
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_filter_that_has_no_room_beside_the_program_holds_by_the_reader() -> Result<()> {
    on_wire(1, |wire| {
        let ports: String = (1..40).map(|port| format!(" or tcp port {port}")).collect();
        let (frames, udp) = mixed(24, Transport::Udp)?;
        let is_both = |frame: &&Frame| frame.flow.client.is_ipv6();
        let both = udp.iter().filter(is_both).count();
        ensure!(both > 0 && both < udp.len());
        let program = "main = inc 0 >-> udp >-> steer_to 0";
        let Some(least) = opened_within_least(&mut Dialog::start(wire, 7)?, program)? else {
            println!("{SKIP}");
            return Ok(());
        };
        // The smallest of the limits is too small for the filter alone. The largest is enough for
        // the filter and the program.
        for bytes in [4, 5, 7, 9, 12, 16, 24, 1000].map(|quarters| least / 4 * quarters + 8) {
            member::wait_for_members(7, 0)?;
            limit(USUAL)?;
            let mut one = Dialog::start(wire, 7)?;
            one.expect(&format!("open {program}"), "opened 0")?;
            limit(bytes)?;
            one.expect(&format!("filter 0 ip6 and (udp{ports})"), "done")?;
            wire.send(&frames)?;
            let count = one.count(0)?;
            ensure!(count == both, "within {bytes} bytes: {count} of {both}");
            let counted = format!("0: members 1 counters {0} 0 0 group {0} 0 0", frames.len());
            one.expect("stats 0", &counted)?;
        }
        Ok(())
    })
}
