//! Members are drained before they end, so no flow moves when they end.

use anyhow::{Result, ensure};
use fanpcap_netns::{DEVICE, Wire, on_wire};

use super::load::Load;
use super::recorder::End;
use super::scene::Scene;

#[test]
#[ignore = "needs root: run by make test"]
fn a_drained_members_flows_alone_move_and_none_at_its_end() -> Result<()> {
    on_wire(1, |wire| {
        let mut scene = Scene::start(wire, 7, 4, &[])?;
        let load = Load::start()?;
        scene.phase()?;
        for (member, how) in [(0, End::Leaves), (2, End::Killed)] {
            let unread = scene.drain(member)?;
            ensure!(unread == Some(0), "{unread:?} packets are unread");
            scene.phase()?;
            scene.end_drained(member, how)?;
            scene.still_phase("the end of a drained member")?;
        }
        scene.finish(load)
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_drained_member_gets_its_share_back() -> Result<()> {
    on_wire(1, |wire| one_gets_its_share_back(wire, DEVICE, &[]))
}

/// A member gets no packets while it is drained. It gets a share again when it gets a weight.
pub(super) fn one_gets_its_share_back(
    wire: &Wire,
    device: &'static str,
    members: &'static [&'static str],
) -> Result<()> {
    let mut scene = Scene::start_on(wire, device, 7, 3, members)?;
    let load = Load::start_to(device)?;
    scene.phase()?;
    let unread = scene.drain(1)?;
    ensure!(unread == Some(0), "{unread:?} packets are unread");
    scene.phase()?;
    scene.weigh(1, 1)?;
    scene.phase()?;
    scene.finish(load)
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_drained_member_of_a_sticky_group_keeps_no_flow() -> Result<()> {
    on_wire(1, |wire| {
        let mut scene = Scene::start(wire, 7, 3, &["mode=flow+sticky"])?;
        let load = Load::start()?;
        scene.phase()?;
        scene.drain(1)?;
        scene.phase()?;
        scene.end_drained(1, End::Leaves)?;
        scene.still_phase("the end of a drained member")?;
        scene.finish(load)
    })
}

/// The member is stopped and reads nothing, so its packets stay in its ring.
#[test]
#[ignore = "needs root: run by make test"]
fn what_a_hung_member_has_in_its_ring_when_it_is_drained_is_not_lost() -> Result<()> {
    on_wire(1, |wire| {
        let mut scene = Scene::start(wire, 7, 3, &[])?;
        let load = Load::start()?;
        scene.phase()?;
        let unread = scene.drain_and_kill_hung(2)?;
        ensure!(unread > Some(0), "{unread:?} packets are unread");
        scene.phase()?;
        scene.finish(load)
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn the_last_member_is_not_drained() -> Result<()> {
    on_wire(1, |wire| {
        let mut scene = Scene::start(wire, 7, 2, &[])?;
        scene.drain(0)?;
        let refused = scene.drain(1).unwrap_err().to_string();
        ensure!(refused.contains("no other member"), "{refused}");
        // When the only other member dies, the remaining member gets all buckets, although it was
        // drained.
        scene.end_drained(1, End::Killed)?;
        scene.await_share_of(0)
    })
}
