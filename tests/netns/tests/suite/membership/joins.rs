//! Members join. Each newcomer takes its share from all other members, and no other buckets move.

use anyhow::{Result, ensure};
use fanpcap_netns::on_wire;
use fanpcap_testkit::member;

use super::load::Load;
use super::recorder::End;
use super::scene::Scene;

#[test]
#[ignore = "needs root: run by make test"]
fn each_newcomer_takes_its_share_and_nothing_else_moves() -> Result<()> {
    on_wire(1, |wire| {
        let mut scene = Scene::start(wire, 7, 1, &[])?;
        let load = Load::start()?;
        scene.phase()?;
        for _ in 2..=5 {
            scene.join()?;
            scene.phase()?;
        }
        scene.finish(load)
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_newcomer_takes_the_slot_of_one_that_is_gone() -> Result<()> {
    on_wire(1, |wire| {
        let mut scene = Scene::start(wire, 7, 4, &[])?;
        let load = Load::start()?;
        scene.phase()?;
        for gone in [1, 0] {
            scene.end(gone, End::Killed)?;
            scene.phase()?;
            scene.join()?;
            scene.phase()?;
            let newcomer = if gone == 1 { 4 } else { 5 };
            let slots = [scene.slot(gone)?, scene.slot(newcomer)?];
            ensure!(slots[0] == slots[1], "{slots:?}");
            member::wait_for_members(7, 4)?;
        }
        scene.finish(load)
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_newcomer_that_reads_nothing_takes_nothing() -> Result<()> {
    on_wire(1, |wire| {
        let mut scene = Scene::start(wire, 7, 2, &[])?;
        let load = Load::start()?;
        scene.phase()?;
        scene.start_another(&["idle"])?;
        scene.still_phase("a newcomer that does not read")?;
        // The newcomer has no share yet, because it does not read. The signal makes it read.
        scene.member(2).call()?;
        scene.await_share_of_last()?;
        scene.phase()?;
        scene.finish(load)
    })
}
