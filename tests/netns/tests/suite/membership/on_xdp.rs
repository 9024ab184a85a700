//! Members of a group on the XDP engine join, leave, hang and die. The flows of other members do
//! not move, and no BPF program remains.

use anyhow::{Result, ensure};
use fanpcap_netns::DEVICE;
use fanpcap_netns::remains::on_wire_that_ends_clean;

use super::deaths::members_end;
use super::drained;
use super::load::Load;
use super::recorder::End;
use super::relinked;
use super::scene::{ON_XDP, Scene};
use super::takeover;

#[test]
#[ignore = "needs root: run by make test"]
fn each_newcomer_takes_its_share_and_nothing_is_left() -> Result<()> {
    on_wire_that_ends_clean(1, |wire| {
        let mut scene = Scene::start(wire, 7, 1, &[ON_XDP])?;
        let load = Load::start()?;
        scene.phase()?;
        for _ in 2..=4 {
            scene.join()?;
            scene.phase()?;
        }
        // Ends the first member, which has claimed the device. Then a newcomer takes the ended
        // member's slot.
        scene.end(0, End::Killed)?;
        scene.phase()?;
        scene.join()?;
        scene.phase()?;
        scene.finish(load)
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn members_that_are_killed_lose_nothing() -> Result<()> {
    members_end(End::Killed, &[ON_XDP])
}

#[test]
#[ignore = "needs root: run by make test"]
fn members_that_hang_and_are_killed_lose_nothing() -> Result<()> {
    members_end(End::HangsFirst, &[ON_XDP])
}

#[test]
#[ignore = "needs root: run by make test"]
fn what_is_left_of_members_that_leave_is_in_order() -> Result<()> {
    members_end(End::LeavesMuch, &[ON_XDP])
}

#[test]
#[ignore = "needs root: run by make test"]
fn members_without_privileges_look_after_their_group() -> Result<()> {
    members_end(End::HangsFirst, &[ON_XDP, "nobody"])
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_successor_has_the_flows_of_one_that_hung_and_what_it_had_not_read() -> Result<()> {
    takeover::members_come_back(End::HangsFirst, &[ON_XDP])
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_drained_member_gets_nothing_until_it_has_a_weight_again() -> Result<()> {
    on_wire_that_ends_clean(1, |wire| {
        drained::one_gets_its_share_back(wire, DEVICE, &[ON_XDP])
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_device_that_was_down_moves_no_flow() -> Result<()> {
    on_wire_that_ends_clean(1, |wire| {
        let mut scene = Scene::start(wire, 7, 5, &[ON_XDP])?;
        let mut load = Load::start()?;
        relinked::mix(&mut scene)?;
        // On XDP, slots are not positions in the kernel's group, so no slot gets another number.
        ensure!(scene.relink(&mut load, DEVICE)? == 0);
        scene.phase()?;
        scene.join()?;
        scene.phase()?;
        scene.end(4, End::Leaves)?;
        scene.phase()?;
        scene.finish(load)
    })
}

/// Tests that last too long for the usual runs.
mod long {
    use super::*;

    #[test]
    #[ignore = "needs root: run by make test"]
    fn members_that_leave_lose_nothing() -> Result<()> {
        members_end(End::Leaves, &[ON_XDP])
    }

    #[test]
    #[ignore = "needs root: run by make test"]
    fn members_in_immediate_mode_lose_nothing() -> Result<()> {
        members_end(End::Killed, &[ON_XDP, "immediate"])
    }
}
