//! The device goes down and up. The kernel links the group's sockets again, and no flow moves.

use anyhow::{Result, ensure};
use fanpcap_netns::{DEVICE, on_wire};

use super::load::Load;
use super::recorder::End;
use super::scene::Scene;

#[test]
#[ignore = "needs root: run by make test"]
fn a_device_that_was_down_moves_no_flow() -> Result<()> {
    the_device_was_down(&[])
}

#[test]
#[ignore = "needs root: run by make test"]
fn members_without_privileges_see_to_a_device_that_was_down() -> Result<()> {
    the_device_was_down(&["nobody"])
}

#[test]
#[ignore = "needs root: run by make test"]
fn members_in_another_network_namespace_see_to_a_device_that_was_down() -> Result<()> {
    the_device_was_down(&["away"])
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_device_that_gets_another_name_moves_no_flow() -> Result<()> {
    on_wire(1, |wire| {
        let (mut scene, mut load) = (Scene::start(wire, 7, 5, &[])?, Load::start()?);
        mix(&mut scene)?;
        ensure!(scene.relink(&mut load, "vc")? > 0);
        scene.phase()?;
        // The newcomer names the device by its new name, and must join the same group.
        scene.join()?;
        scene.phase()?;
        ensure!(scene.relink(&mut load, DEVICE)? > 0);
        scene.phase()?;
        scene.finish(load)
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_newcomer_sees_to_a_device_that_was_down_while_all_others_were_busy() -> Result<()> {
    on_wire(1, |wire| {
        let (mut scene, mut load) = (Scene::start(wire, 7, 5, &[])?, Load::start()?);
        mix(&mut scene)?;
        scene.relink_asleep(&mut load)?;
        scene.phase()?;
        scene.end(4, End::Killed)?;
        scene.phase()?;
        scene.finish(load)
    })
}

/// A member that joins or ends after the device was down moves only the flows that it must move.
fn the_device_was_down(members: &'static [&'static str]) -> Result<()> {
    on_wire(1, |wire| {
        let mut scene = Scene::start(wire, 7, 5, members)?;
        let mut load = Load::start()?;
        mix(&mut scene)?;
        ensure!(scene.relink(&mut load, DEVICE)? > 0);
        scene.phase()?;
        // The members are now in the order in which they joined, so the second time no slot gets
        // another number.
        ensure!(scene.relink(&mut load, DEVICE)? == 0);
        scene.phase()?;
        scene.end(3, End::Killed)?;
        scene.phase()?;
        scene.join()?;
        scene.phase()?;
        scene.end(4, End::Leaves)?;
        scene.phase()?;
        ensure!(scene.relink(&mut load, DEVICE)? > 0);
        scene.phase()?;
        scene.finish(load)
    })
}

/// Makes a newcomer in the slot of an ended member, and a placeholder. Then the members' order
/// differs from the order in which they joined.
pub(super) fn mix(scene: &mut Scene<'_>) -> Result<()> {
    scene.phase()?;
    scene.end(2, End::Killed)?;
    scene.phase()?;
    scene.join()?;
    scene.phase()?;
    scene.end(1, End::Killed)?;
    scene.phase()
}

/// Tests that last too long for the usual runs.
mod long {
    use super::*;

    #[test]
    #[ignore = "needs root: run by make test"]
    fn flows_that_keep_their_member_keep_it_when_the_device_was_down() -> Result<()> {
        the_device_was_down(&["mode=flow+sticky"])
    }
}
