//! A member that lives and does not read. Other members get its share, and no packet in its ring is
//! lost.

use anyhow::Result;
use fanpcap_netns::on_wire;

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
