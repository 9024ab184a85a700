//! Members without a mode take their group's own mode. The first member takes `flow`, or `hash` if
//! `flow` can't be loaded.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context, Result, ensure};
use fanpcap_group::roster;
use fanpcap_linux::interface;
use fanpcap_linux::packet::{self, Address, ETH_P_ALL, PacketFanout};
use fanpcap_netns::dialog::Dialog;
use fanpcap_netns::{
    DEVICE, ensure_each_once, ensure_flows_whole, finish, on_wire, wait_for_shares,
};
use fanpcap_testkit::{member, traffic};

use crate::steering::start_with;

/// The command that starts a process without `CAP_BPF`.
const WITHOUT_BPF: [&str; 5] = [
    "setpriv",
    "--bounding-set",
    "-all,+net_raw",
    "--inh-caps",
    "-all",
];

/// The modes of a group's members, in the order of the roster.
fn modes(group: u16) -> Result<Vec<String>> {
    let entries = roster::entries()?.into_iter();
    let of_group = entries.filter(|entry| entry.is_in(group));
    let modes = of_group.map(|entry| Some(entry.page?.shown_mode()));
    let modes: Option<Vec<String>> = modes.collect();
    modes.context("a member without a page")
}

fn ensure_all_run(group: u16, mode: &str, members: usize) -> Result<()> {
    let modes = modes(group)?;
    let is_right = modes.len() == members && modes.iter().all(|it| it == mode);
    ensure!(is_right, "{modes:?}, not {members} times {mode}");
    Ok(())
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_group_without_a_mode_has_flow() -> Result<()> {
    on_wire(1, |wire| {
        let start = |_| {
            let program = wire.tcpdump()?.set("PCAP_GROUP", "7");
            program.start(&wire.scratch)
        };
        let members = (0..3).map(start).collect::<Result<Vec<_>>>()?;
        member::wait_for_members(7, 3)?;
        wait_for_shares()?;
        ensure_all_run(7, "flow", 3)?;
        let frames = traffic::frames(1, &traffic::flows(1, 60), 0..3000)?;
        wire.send(&frames)?;
        let captures = finish(members, frames.len())?;
        ensure_each_once(&captures, &frames)?;
        ensure_flows_whole(&captures)
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn where_flow_cannot_be_loaded_it_is_hash() -> Result<()> {
    on_wire(1, |wire| {
        let mut one = Dialog::behind(wire, 7, &WITHOUT_BPF)?;
        one.expect("open -", "opened 0")?;
        ensure_all_run(7, "hash", 1)?;
        // A newcomer that could load `flow` takes the group's own mode, `hash`.
        let mut two = Dialog::start(wire, 7)?;
        two.expect("open -", "opened 0")?;
        ensure_all_run(7, "hash", 2)?;
        let mut nobody = start_with(wire, "net_raw")?;
        nobody.expect("open -", "opened 0")?;
        // A member that asks for a mode gets this mode, or it is refused with the reason.
        let said = Dialog::behind(wire, 8, &WITHOUT_BPF)?.ask("open flow")?;
        ensure!(said.contains("needs CAP_BPF beside CAP_NET_RAW"), "{said}");
        // The application runs as root, so the message must not advise to run it as root.
        let is_right = said.contains("has given up before") && !said.contains("run as root");
        ensure!(is_right, "{said}");
        let any = wire.tcpdump_on("any")?.set("PCAP_GROUP", "9");
        let _any = any.start(&wire.scratch)?;
        ensure_all_run(9, "hash", 1)
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn newcomers_take_the_groups_own_mode_or_steering_program() -> Result<()> {
    on_wire(1, |wire| {
        let file = wire.scratch.file("steer.pfq");
        let long = "main = do\n  when (has_port 53) (inc 1) -- names\n  \
                    when (has_port 443) (inc 2) -- web\n  unless is_icmp (inc 3)\n  steer_flow\n";
        fs::write(&file, long)?;
        let in_file = format!("file:{}", file.display());
        let sticky = format!("{in_file}+sticky");
        let modes = [
            "lb+defrag",
            "rollover",
            "flow_2_tuple",
            "flow+defrag",
            "flow+sticky=2048",
            "main = tcp >-> steer_rrobin",
            &in_file,
            &sticky,
        ];
        for (group, mode) in (20..).zip(modes) {
            let mut one = Dialog::start(wire, group)?;
            one.expect(&format!("open {mode}"), "opened 0")?;
            one.expect("read 0", "done")?;
            let mut other = Dialog::start(wire, group)?;
            other.expect("open -", "opened 0")?;
            let shown = self::modes(group)?;
            ensure!(
                shown.len() == 2 && shown[0] == shown[1],
                "{mode}: {shown:?}"
            );
            ensure!(mode != "flow+defrag" || shown[0] == mode, "{shown:?}");
        }
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_steering_program_that_was_replaced_is_had_from_the_group() -> Result<()> {
    on_wire(1, |wire| {
        let mut one = Dialog::start(wire, 7)?;
        one.expect("open flow", "opened 0")?;
        let text = "main = par3 (inner steer_flow_5_tuple) (inner steer_p2p) (par steer_link steer_rrobin)";
        one.expect(&format!("fanout 0 {text}"), "done")?;
        one.expect("read 0", "done")?;
        let mut other = Dialog::behind(wire, 7, &WITHOUT_BPF)?;
        other.expect("open -", "opened 0")?;
        let said = Dialog::start(wire, 7)?.ask("open flow")?;
        ensure!(said.contains("runs the program 'main = par3"), "{said}");
        Ok(())
    })
}

/// A member that does not use our library, so no page shows its options.
fn foreign(group: u16, flags: u16) -> Result<OwnedFd> {
    let socket = packet::open()?;
    let ifindex = interface::index(DEVICE).context("no device")?;
    let protocol = ETH_P_ALL;
    packet::bind(socket.as_fd(), Address { ifindex, protocol })?;
    let fanout = PacketFanout {
        id: group,
        mode: 0,
        flags,
    };
    let joined = packet::join(socket.as_fd(), fanout);
    ensure!(joined.is_ok(), "the kernel refuses the member");
    Ok(socket)
}

#[test]
#[ignore = "needs root: run by make test"]
fn beside_members_of_other_libraries_it_is_their_mode() -> Result<()> {
    on_wire(1, |wire| {
        for (group, flags) in [(7, 0), (8, 0x8000), (9, 0x1000)] {
            let _foreign = foreign(group, flags)?;
            let mut own = Dialog::start(wire, group)?;
            own.expect("open -", "opened 0")?;
            member::wait_for_members(group, 2)?;
        }
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn first_members_that_come_at_once_are_in_one_group() -> Result<()> {
    on_wire(1, |wire| {
        for group in 30..36 {
            let start = |number: usize| match number % 2 {
                // In half of the groups, some members can't load `flow`.
                1 if group % 2 == 1 => Dialog::behind(wire, group, &WITHOUT_BPF),
                _ => Dialog::start(wire, group),
            };
            let mut all = (0..6).map(start).collect::<Result<Vec<_>>>()?;
            for one in &mut all {
                // A newcomer that may not copy the group's descriptors gets them from another
                // member, but only from one that reads. So all members read.
                one.tell("open -")?;
                one.tell("read 0")?;
            }
            for one in &mut all {
                let said = one.hear()?;
                ensure!(said == "opened 0", "group {group}: {said}");
                one.hear()?;
            }
            let modes = modes(group)?;
            let first = modes.first().context("no member")?;
            ensure_all_run(group, first, 6)?;
        }
        Ok(())
    })
}
