//! The largest number of members of a steered group, under the limits of the kernel and of a user.

use std::fs;

use anyhow::{Context, Result, ensure};
use fanpcap_netns::dialog::Dialog;
use fanpcap_netns::{Wire, on_wire};
use fanpcap_testkit::await_for::LIMIT;
use fanpcap_testkit::member::signal;
use fanpcap_testkit::{await_for, mounts, traffic};

use crate::steering::with;
use crate::trust::Volume;

const FRAMES: u64 = 2000;

/// Checks that all members of the crowd together get each frame once.
fn ensure_all_arrive(wire: &Wire, crowd: &mut Dialog, seed: u64) -> Result<()> {
    let frames = traffic::frames(seed, &traffic::flows(seed, 400), 0..FRAMES)?;
    wire.send(&frames)?;
    crowd.expect("look", &format!("{FRAMES} packets"))
}

/// Checks that a group of 255 members refuses another member until one member leaves.
fn ensure_places_come_back(wire: &Wire, crowd: &mut Dialog) -> Result<()> {
    for (seed, gone) in [(1, 100), (2, 0), (3, 254)] {
        let refused = crowd.ask("join 256")?;
        ensure!(refused.starts_with("255 members: "), "{refused}");
        ensure!(refused.contains("fan-out group 7 is full"), "{refused}");
        ensure_all_arrive(wire, crowd, seed)?;
        crowd.expect(&format!("close {gone}"), "254 members")?;
        await_for("a place", LIMIT, || {
            crowd.expect("look", "0 packets")?;
            let said = crowd.ask("join 255")?;
            Ok((said == "255 members").then_some(()))
        })?;
    }
    ensure_all_arrive(wire, crowd, 4)
}

/// A user that no other test uses. The kernel counts for each user the descriptors in queues of
/// sockets, so other tests must not add to this user's count.
const USER: &str = "64997";
const OTHER: &str = "64998";

/// The command that starts a program as `user`, with `volume` at `/run/fanpcap/v7`, with two
/// capabilities, and with `files`, a limit of open descriptors.
fn limited(volume: &Volume, user: &str, files: &str) -> Vec<String> {
    let mut words: Vec<String> = volume.over_run().into_iter().map(str::to_owned).collect();
    words.extend(["prlimit", files].map(str::to_owned));
    words.extend(
        with("net_raw,bpf")
            .into_iter()
            .map(|word| match word.as_str() {
                "65534" => user.to_owned(),
                _ => word,
            }),
    );
    words
}

fn borrowed(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

/// The default of net.core.wmem_max is enough for the descriptor store of 255 members.
#[test]
#[ignore = "needs root: run by make test"]
fn who_is_not_root_has_255_members_and_their_places_or_is_told_which_limit_is_too_low() -> Result<()>
{
    mounts::where_possible(|| {
        on_wire(1, |wire| {
            let volume = Volume::of("store", OTHER.parse()?)?;
            let words = limited(&volume, OTHER, "--nofile=16384");
            let mut crowd = Dialog::of(wire, "crowd", 7, &borrowed(&words))?;
            let said = crowd.ask("join 255")?;
            let limit = fs::read_to_string("/proc/sys/net/core/wmem_max")?;
            let is_told = said.contains("its limit is net.core.wmem_max");
            let is_low = limit.trim().parse::<u32>()? < 212_992;
            if is_low && is_told {
                return ensure_all_arrive(wire, &mut crowd, 6);
            }
            ensure!(said == "255 members", "{said}");
            ensure_places_come_back(wire, &mut crowd)
        })
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn who_has_too_many_descriptors_in_queues_is_refused_with_the_reason() -> Result<()> {
    mounts::where_possible(|| {
        on_wire(1, |wire| {
            let volume = Volume::of("queues", USER.parse()?)?;
            let words = limited(&volume, USER, "--nofile=64");
            let start = || Dialog::behind(wire, 7, &borrowed(&words));
            let open = |member: &mut Dialog| member.ask("open main = steer_flow");
            let mut members = Vec::new();
            let refused = loop {
                let mut member = start()?;
                let said = open(&mut member)?;
                if said != "opened 0" {
                    break said;
                }
                ensure!(members.len() < 40, "no member was refused");
                members.push(member);
            };
            ensure!(refused.contains("(ulimit -n)"), "{refused}");
            ensure!(members.len() > 10, "{} members: {refused}", members.len());
            // A member that has joined has all descriptors that it needs to remove another member.
            drop(members.pop());
            await_for("a place", LIMIT, || {
                members.first_mut().context("the first")?.count(0)?;
                let mut member = start()?;
                let said = open(&mut member)?;
                Ok((said == "opened 0").then_some(()))
            })?;
            let frames = traffic::frames(5, &traffic::flows(5, 400), 0..FRAMES)?;
            wire.send(&frames)?;
            await_for("each frame", LIMIT, || {
                let counts = members.iter_mut().map(|member| member.count(0));
                let sum = counts.sum::<Result<usize>>()?;
                ensure!(sum <= frames.len(), "{sum}");
                Ok((sum == frames.len()).then_some(()))
            })
        })
    })
}

/// Tests that last too long for the usual runs.
mod long {
    use super::*;

    /// Like `who_is_not_root_has_255_members_...` above, but as root with all capabilities.
    #[test]
    #[ignore = "needs root: run by make test"]
    fn a_steered_group_has_255_members_and_a_place_again_when_one_leaves() -> Result<()> {
        on_wire(1, |wire| {
            let mut crowd = Dialog::of(wire, "crowd", 7, &[])?;
            crowd.expect("join 255", "255 members")?;
            ensure_places_come_back(wire, &mut crowd)
        })
    }

    /// The kernel closes the sockets of a killed process one after another. A newcomer that finds
    /// some of them still in the group must wait for their end.
    #[test]
    #[ignore = "needs root: run by make test"]
    fn a_newcomer_waits_for_the_sockets_of_a_crowd_that_was_killed() -> Result<()> {
        on_wire(1, |wire| {
            for engine in ["PCAP_DRIVER=tpacket", "PCAP_DRIVER=xdp"] {
                let mut crowd = Dialog::of(wire, "crowd", 7, &["env", engine])?;
                crowd.expect("join 100", "100 members")?;
                signal(crowd.pid(), "KILL")?;
                let mut next = Dialog::of(wire, "crowd", 7, &["env", engine])?;
                next.expect("join 1", "1 members")?;
            }
            Ok(())
        })
    }
}
