//! Members that live and do not read. Other members get the shares of these members, and no packet
//! in their rings is lost.

use anyhow::Result;
use fanpcap_netns::{Wire, on_wire};

use super::load::Load;
use super::scene::Scene;

#[test]
#[ignore = "needs root: run by make test"]
fn others_get_the_share_of_one_that_a_child_merely_holds_and_its_ring_when_that_ends() -> Result<()>
{
    on_wire(1, |wire| {
        let mut scene = Scene::start(wire, 7, 2, &[])?;
        scene.start_another(&["holds"])?;
        scene.await_share_of_last()?;
        let mut load = Load::start()?;
        scene.phase()?;
        scene.silence(2, &mut load, true)?;
        scene.phase()?;
        scene.member(2).stop()?;
        scene.still_phase("the end of the child")?;
        scene.finish(load)
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn one_that_is_stopped_loses_its_share_and_gets_it_back_when_it_goes_on() -> Result<()> {
    on_wire(1, |wire| one_is_stopped_and_goes_on(wire, &[]))
}

/// While the member is stopped, other members have its share.
pub(super) fn one_is_stopped_and_goes_on(
    wire: &Wire,
    members: &'static [&'static str],
) -> Result<()> {
    let mut scene = Scene::start(wire, 7, 3, members)?;
    let mut load = Load::start()?;
    scene.phase()?;
    scene.silence(2, &mut load, false)?;
    scene.phase()?;
    scene.member(2).signal("CONT")?;
    scene.await_share_of_last()?;
    scene.phase()?;
    scene.finish(load)
}
