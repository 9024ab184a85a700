//! Several groups on one device, and members that continue in a child.

use anyhow::Result;
use fanpcap_netns::on_wire;

use super::load::Load;
use super::recorder::End;
use super::scene::Scene;

#[test]
#[ignore = "needs root: run by make test"]
fn what_happens_in_a_group_is_nothing_to_another() -> Result<()> {
    on_wire(1, |wire| {
        let mut one = Scene::start(wire, 7, 2, &[])?;
        let mut other = Scene::start(wire, 8, 2, &[])?;
        let load = Load::start()?;
        one.phase()?;
        other.phase()?;
        one.end(0, End::Killed)?;
        one.phase()?;
        other.still_phase("a death in another group")?;
        one.join()?;
        one.phase()?;
        other.still_phase("a join in another group")?;
        other.end(1, End::Leaves)?;
        other.phase()?;
        one.still_phase("a leave in another group")?;
        let sent = load.stop()?;
        one.check(&sent)?;
        other.check(&sent)
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_daemon_whose_parent_ends_keeps_its_share_and_looks_after_the_group() -> Result<()> {
    on_wire(1, |wire| {
        let mut scene = Scene::start(wire, 7, 1, &[])?;
        scene.start_another(&["daemon"])?;
        scene.await_share_of_last()?;
        let load = Load::start()?;
        scene.phase()?;
        scene.member(1).end_parent()?;
        scene.still_phase("the parent's end")?;
        scene.end(0, End::Killed)?;
        scene.phase()?;
        scene.finish(load)
    })
}
