//! Members end in different ways. Only flows of the ended members move, and other members read the
//! packets that are left in the ended members' rings.

use anyhow::Result;

use super::load::Load;
use super::recorder::End;
use super::scene::{Scene, on_wire_of};

#[test]
#[ignore = "needs root: run by make test"]
fn members_that_leave_lose_nothing() -> Result<()> {
    members_end(End::Leaves, &[])
}

#[test]
#[ignore = "needs root: run by make test"]
fn members_that_are_killed_lose_nothing() -> Result<()> {
    members_end(End::Killed, &[])
}

#[test]
#[ignore = "needs root: run by make test"]
fn members_that_hang_and_are_killed_lose_nothing() -> Result<()> {
    members_end(End::HangsFirst, &[])
}

#[test]
#[ignore = "needs root: run by make test"]
fn members_that_leave_in_immediate_mode_lose_nothing() -> Result<()> {
    members_end(End::Leaves, &["immediate"])
}

#[test]
#[ignore = "needs root: run by make test"]
fn members_that_are_killed_in_immediate_mode_lose_nothing() -> Result<()> {
    members_end(End::Killed, &["immediate"])
}

#[test]
#[ignore = "needs root: run by make test"]
fn members_that_hang_and_are_killed_in_immediate_mode_lose_nothing() -> Result<()> {
    members_end(End::HangsFirst, &["immediate"])
}

#[test]
#[ignore = "needs root: run by make test"]
fn what_is_left_of_members_that_leave_is_in_order() -> Result<()> {
    members_end(End::LeavesMuch, &[])
}

#[test]
#[ignore = "needs root: run by make test"]
fn members_in_another_network_namespace_look_after_their_group() -> Result<()> {
    members_end(End::HangsFirst, &["away"])
}

#[test]
#[ignore = "needs root: run by make test"]
fn members_without_privileges_look_after_their_group() -> Result<()> {
    members_end(End::HangsFirst, &["nobody"])
}

/// Of four members, the first one, which attached the group's BPF program, ends first. Then a
/// middle member ends, and then the last one.
pub(super) fn members_end(how: End, members: &'static [&'static str]) -> Result<()> {
    on_wire_of(members, |wire| {
        let mut scene = Scene::start(wire, 7, 4, members)?;
        let load = Load::start()?;
        scene.phase()?;
        for member in [0, 2, 3] {
            scene.end(member, how)?;
            scene.phase()?;
        }
        scene.finish(load)
    })
}
