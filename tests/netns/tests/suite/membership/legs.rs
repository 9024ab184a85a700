//! One group over two devices, of which each has one direction: both directions of a flow are at
//! one member, whoever comes and goes.

use anyhow::{Result, ensure};
use fanpcap_netns::{DEVICE, Wire, on_wire};

use super::load::Load;
use super::recorder::{End, Recorder};
use super::scene::Scene;
use super::wires::{self, BOTH, SECOND};

fn on_two_wires(test: impl FnOnce(&Wire) -> Result<()> + Send) -> Result<()> {
    on_wire(1, |wire| {
        wires::add_second()?;
        test(wire)
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn both_directions_move_together_when_members_come_and_are_killed() -> Result<()> {
    members_come_and_go(End::Killed, &[])
}

#[test]
#[ignore = "needs root: run by make test"]
fn both_directions_move_together_when_members_hang_and_are_killed() -> Result<()> {
    members_come_and_go(End::HangsFirst, &["immediate"])
}

#[test]
#[ignore = "needs root: run by make test"]
fn both_directions_move_together_when_members_leave() -> Result<()> {
    members_come_and_go(End::Leaves, &["nobody"])
}

fn members_come_and_go(how: End, members: &'static [&'static str]) -> Result<()> {
    on_two_wires(|wire| {
        let mut scene = Scene::start_on(wire, BOTH, 7, 2, members)?;
        let load = Load::start_to(BOTH)?;
        scene.phase()?;
        for _ in 3..=4 {
            scene.join()?;
            scene.phase()?;
        }
        // The first, which made both groups, one of the middle, and a newcomer in a slot of theirs.
        for member in [0, 2] {
            scene.end(member, how)?;
            scene.phase()?;
        }
        scene.join()?;
        scene.phase()?;
        scene.finish(load)
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn both_directions_leave_a_drained_member_and_come_back() -> Result<()> {
    on_two_wires(|wire| {
        let mut scene = Scene::start_on(wire, BOTH, 7, 3, &[])?;
        let load = Load::start_to(BOTH)?;
        scene.phase()?;
        scene.drain(1)?;
        scene.phase()?;
        scene.weigh(1, 1)?;
        scene.phase()?;
        scene.finish(load)
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn one_device_that_was_down_moves_neither_direction() -> Result<()> {
    on_two_wires(|wire| {
        let mut scene = Scene::start_on(wire, BOTH, 7, 4, &[])?;
        let mut load = Load::start_to(BOTH)?;
        scene.phase()?;
        // Members don't stand in the order in which they came.
        scene.end(1, End::Killed)?;
        scene.phase()?;
        scene.join()?;
        scene.phase()?;
        for device in [SECOND[1], DEVICE] {
            scene.flap(&mut load, device)?;
            scene.phase()?;
        }
        scene.end(0, End::Killed)?;
        scene.phase()?;
        scene.join()?;
        scene.phase()?;
        scene.finish(load)
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn members_of_other_devices_are_refused() -> Result<()> {
    on_two_wires(|wire| {
        let refused = |devices: &str, group: u16, reason: &str| -> Result<()> {
            let error = Recorder::start(wire, devices, group, &[])
                .map(drop)
                .unwrap_err();
            let said = format!("{error:#}");
            ensure!(said.contains(reason), "{devices}: {said}");
            Ok(())
        };
        let both = Recorder::start(wire, BOTH, 7, &[])?;
        refused("vb", 7, "has the devices vb^vd, this handle vb:")?;
        refused("vd^vb", 7, "group 7 is on device vb, not on vd")?;
        refused("vd", 65_535, "vd for a group on several devices")?;
        let one = Recorder::start(wire, "vb", 8, &[])?;
        refused(BOTH, 8, "has the devices vb, this handle vb^vd:")?;
        // The number that is next is in use.
        let high = Recorder::start(wire, "vd", 65_534, &[])?;
        let other = Recorder::start(wire, BOTH, 9, &[])?;
        for mut member in [both, one, high, other] {
            member.stop()?;
        }
        Ok(())
    })
}
