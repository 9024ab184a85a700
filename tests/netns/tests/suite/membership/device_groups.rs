//! One group over two devices, one device for each direction. Both directions of a flow stay at one
//! member while members join and end.

use anyhow::{Result, ensure};
use fanpcap_netns::remains::leaves_nothing;
use fanpcap_netns::{DEVICE, Wire, on_wire};

use super::drained;
use super::load::Load;
use super::recorder::{End, Recorder};
use super::scene::{ON_XDP, Scene, until_in_time};
use super::wires::{self, BOTH, SECOND};

fn on_two_wires(test: impl FnOnce(&Wire) -> Result<()> + Send) -> Result<()> {
    on_two_wires_of(&[], test)
}

/// Runs a test with two wires, and checks that members on the XDP engine leave nothing behind.
fn on_two_wires_of<T: Send>(
    how: &[&str],
    test: impl FnOnce(&Wire) -> Result<T> + Send,
) -> Result<T> {
    on_wire(1, |wire| {
        wires::add_second()?;
        match how.contains(&ON_XDP) {
            true => leaves_nothing(|| test(wire)),
            false => test(wire),
        }
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn both_directions_move_together_when_members_come_and_are_killed() -> Result<()> {
    members_come_and_go([End::Killed; 2], &[])
}

#[test]
#[ignore = "needs root: run by make test"]
fn on_xdp_both_directions_move_together_when_members_come_leave_and_are_killed() -> Result<()> {
    members_come_and_go([End::Killed, End::Leaves], &[ON_XDP, "nobody"])
}

#[test]
#[ignore = "needs root: run by make test"]
fn on_xdp_a_successor_has_both_directions_and_what_was_not_read() -> Result<()> {
    let test = |wire: &Wire| {
        let mut scene = Scene::start_on(wire, BOTH, 7, 1, &[ON_XDP, "immediate"])?;
        scene.join_as("name=one")?;
        let load = Load::start_to(BOTH)?;
        scene.phase()?;
        for (member, how) in [(1, End::HangsFirst), (2, End::Killed)] {
            if !scene.end_and_succeed(member, how, "name=one")? {
                return Ok(false);
            }
            scene.phase()?;
        }
        scene.finish(load).map(|()| true)
    };
    until_in_time(|| on_two_wires_of(&[ON_XDP], test))
}

fn members_come_and_go(how: [End; 2], members: &'static [&'static str]) -> Result<()> {
    on_two_wires_of(members, |wire| {
        let mut scene = Scene::start_on(wire, BOTH, 7, 2, members)?;
        let load = Load::start_to(BOTH)?;
        scene.phase()?;
        for _ in 3..=4 {
            scene.join()?;
            scene.phase()?;
        }
        // Ends the first member, which created the kernel's groups on both devices, and then a
        // middle member. A newcomer gets the slot of an ended member.
        for (member, how) in [0, 2].into_iter().zip(how) {
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
    on_two_wires(|wire| drained::one_gets_its_share_back(wire, BOTH, &[]))
}

#[test]
#[ignore = "needs root: run by make test"]
fn one_device_that_was_down_moves_neither_direction() -> Result<()> {
    one_device_was_down(&[])
}

fn one_device_was_down(members: &'static [&'static str]) -> Result<()> {
    on_two_wires_of(members, |wire| {
        let mut scene = Scene::start_on(wire, BOTH, 7, 4, members)?;
        let mut load = Load::start_to(BOTH)?;
        scene.phase()?;
        // The killed member and the newcomer make the members' order differ from the order in which
        // they joined.
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
        // The group number that a group on two devices would use next, 65534, is in use. So the
        // following group must use another number.
        let high = Recorder::start(wire, "vd", 65_534, &[])?;
        let other = Recorder::start(wire, BOTH, 9, &[])?;
        for mut member in [both, one, high, other] {
            member.stop()?;
        }
        Ok(())
    })
}

/// Tests that last too long for the usual runs.
mod long {
    use super::*;

    #[test]
    #[ignore = "needs root: run by make test"]
    fn both_directions_move_together_when_members_hang_and_are_killed() -> Result<()> {
        members_come_and_go([End::HangsFirst; 2], &["immediate"])
    }

    #[test]
    #[ignore = "needs root: run by make test"]
    fn both_directions_move_together_when_members_leave() -> Result<()> {
        members_come_and_go([End::Leaves; 2], &["nobody"])
    }

    #[test]
    #[ignore = "needs root: run by make test"]
    fn on_xdp_one_device_that_was_down_moves_neither_direction() -> Result<()> {
        one_device_was_down(&[ON_XDP])
    }
}
