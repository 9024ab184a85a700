//! How a newcomer to a steered group gets the group's descriptors: by pidfd_getfd(2), or at the
//! group's rendezvous. Some tests prevent both ways.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use fanpcap_group::roster;
use fanpcap_netns::dialog::Dialog;
use fanpcap_netns::{Wire, on_wire};
use fanpcap_testkit::{member, mounts, traffic};

use crate::steering::{start_with, with};
use crate::trust::Volume;

const PROGRAM: &str = "open main = steer_flow";

/// Starts a member as the user nobody. Other processes of the user can't get its descriptors.
fn start_locked(wire: &Wire, volume: &Volume) -> Result<Dialog> {
    let user = with("net_raw,bpf");
    let user: Vec<&str> = user.iter().map(String::as_str).collect();
    let mut dialog = Dialog::behind(wire, 7, &[&volume.over_run()[..], &user].concat())?;
    dialog.expect("undumpable", "done")?;
    Ok(dialog)
}

/// Checks that both members get some of a few flows, and that together they get all packets.
fn ensure_both_get_packets(wire: &Wire, mut one: Dialog, mut other: Dialog) -> Result<()> {
    // The newcomer owns buckets from its first read on.
    other.count(0)?;
    let frames = traffic::frames(21, &traffic::flows(21, 40), 0..400)?;
    wire.send(&frames)?;
    let count = other.count(0)?;
    ensure!(count > 0 && count < 400, "{count}");
    let stats = one.ask("stats 0")?;
    ensure!(stats.starts_with("0: members 2 "), "{stats}");
    Ok(())
}

#[test]
#[ignore = "needs root: run by make test"]
fn the_rendezvous_alone_is_enough() -> Result<()> {
    mounts::where_possible(|| {
        on_wire(1, |wire| {
            let volume = Volume::of("door", 65534)?;
            let mut one = start_locked(wire, &volume)?;
            let mut other = start_locked(wire, &volume)?;
            one.expect(PROGRAM, "opened 0")?;
            one.expect("read 0", "done")?;
            other.expect(PROGRAM, "opened 0")?;
            ensure_both_get_packets(wire, one, other)
        })
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_member_that_waits_by_its_descriptor_answers_at_the_rendezvous() -> Result<()> {
    mounts::where_possible(|| {
        on_wire(1, |wire| {
            let volume = Volume::of("poll", 65534)?;
            let mut one = start_locked(wire, &volume)?;
            one.expect(PROGRAM, "opened 0")?;
            one.expect("poll 0", "done")?;
            // Each newcomer must get an answer: the answer to the first newcomer must not use up
            // the descriptor.
            for _ in 0..2 {
                let mut other = start_locked(wire, &volume)?;
                other.expect(PROGRAM, "opened 0")?;
            }
            Ok(())
        })
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_members_descriptors_alone_are_enough() -> Result<()> {
    on_wire(1, |wire| {
        let mut one = Dialog::start(wire, 7)?;
        let mut other = Dialog::start(wire, 7)?;
        // No member reads, so no member answers newcomers at the rendezvous.
        one.expect(PROGRAM, "opened 0")?;
        other.expect(PROGRAM, "opened 0")?;
        ensure_both_get_packets(wire, one, other)
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn containers_with_one_volume_meet_at_the_door_of_a_member_without_privileges() -> Result<()> {
    mounts::where_possible(|| {
        on_wire(1, |wire| {
            let volume = Volume::new("door-of-two")?;
            let mut one = Dialog::behind(wire, 7, &volume.behind())?;
            let mut other = Dialog::behind(wire, 7, &volume.behind())?;
            one.expect(PROGRAM, "opened 0")?;
            one.expect("nobody", "done")?;
            one.expect("read 0", "done")?;
            other.expect(PROGRAM, "opened 0")?;
            ensure_both_get_packets(wire, one, other)
        })
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn another_user_is_refused_with_both_reasons() -> Result<()> {
    on_wire(1, |wire| {
        let mut one = Dialog::start(wire, 7)?;
        one.expect(PROGRAM, "opened 0")?;
        one.expect("read 0", "done")?;
        let mut stranger = start_with(wire, "net_raw,bpf")?;
        let said = stranger.ask(PROGRAM)?;
        let by_descriptor = "(steered): pidfd_getfd: Operation not permitted";
        ensure!(said.contains(by_descriptor), "{said}");
        let at_the_socket = "the group's socket: Permission denied";
        ensure!(said.contains(at_the_socket), "{said}");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn who_gets_nothing_either_way_is_told_both_reasons() -> Result<()> {
    mounts::where_possible(|| {
        on_wire(1, |wire| {
            let volume = Volume::of("neither", 65534)?;
            let mut one = start_locked(wire, &volume)?;
            let mut other = start_locked(wire, &volume)?;
            one.expect(PROGRAM, "opened 0")?;
            let said = other.ask(PROGRAM)?;
            let by_descriptor = "(steered): pidfd_getfd: Operation not permitted";
            ensure!(said.contains(by_descriptor), "{said}");
            ensure!(
                said.contains("no member answers: no application of the group reads its handle"),
                "{said}"
            );
            one.expect("read 0", "done")?;
            other.expect(PROGRAM, "opened 0")
        })
    })
}

/// The rendezvous sockets in a volume.
fn sockets(volume: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(volume)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(sockets(&path)?);
        } else if path.extension() == Some(OsStr::new("door")) {
            found.push(path);
        }
    }
    Ok(found)
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_door_lasts_as_long_as_its_group() -> Result<()> {
    mounts::where_possible(|| {
        on_wire(1, |wire| {
            let volume = Volume::new("lasts")?;
            let start = || {
                let mut dialog = Dialog::behind(wire, 7, &volume.behind())?;
                dialog.expect(PROGRAM, "opened 0")?;
                dialog.expect("read 0", "done")?;
                anyhow::Ok(dialog)
            };
            let one = start()?;
            let of_one = sockets(volume.path())?;
            let other = start()?;
            ensure!(of_one.len() == 1 && sockets(volume.path())? == of_one);
            // The process that opened the rendezvous socket is killed, but the socket still
            // listens, because another member has it, too.
            drop(one);
            let third = start()?;
            ensure!(sockets(volume.path())? == of_one);
            drop((other, third));
            member::wait_for_members(7, 0)?;
            let _again = start()?;
            let now = sockets(volume.path())?;
            ensure!(now.len() == 1 && now != of_one, "{now:?}");
            Ok(())
        })
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_group_that_got_its_number_from_the_kernel_has_a_rendezvous() -> Result<()> {
    mounts::where_possible(|| {
        on_wire(1, |wire| {
            let volume = Volume::new("new")?;
            let mut one = Dialog::behind(wire, -1, &volume.behind())?;
            one.expect(PROGRAM, "opened 0")?;
            one.expect("read 0", "done")?;
            ensure!(sockets(volume.path())?.len() == 1);
            let fanouts = roster::entries()?.into_iter();
            let mut fanouts = fanouts.filter_map(|entry| entry.socket.fanout);
            let group = fanouts.next().context("a member")?.id;
            let mut other = Dialog::behind(wire, group, &volume.behind())?;
            other.expect(PROGRAM, "opened 0")?;
            ensure_both_get_packets(wire, one, other)
        })
    })
}
