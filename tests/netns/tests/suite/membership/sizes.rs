//! Groups of two, four and eight members. Each member in turn ends, and another member takes its
//! slot. For comparison, the same is done in a group of the kernel's mode `hash`.

use std::ops::Range;

use anyhow::{Result, ensure};
use fanpcap_netns::{DEVICE, Wire, on_wire};

use super::load::{FLOWS, Load, print};
use super::recorder::{End, Recorder};
use super::records;
use super::scene::{self, Scene};
use super::story::Story;

#[test]
#[ignore = "needs root: run by make test"]
fn of_four_each_ends_in_turn() -> Result<()> {
    each_ends_in_turn(4)
}

/// The members join one by one. Then the member of each slot leaves or is killed. The first member
/// is included; it has attached the group's program.
fn each_ends_in_turn(count: usize) -> Result<()> {
    for how in [End::Leaves, End::Killed] {
        on_wire(1, |wire| {
            let mut scene = Scene::start(wire, 7, 1, &[])?;
            let load = Load::start()?;
            scene.phase()?;
            for _ in 1..count {
                scene.join()?;
                scene.phase()?;
            }
            for member in 0..count {
                scene.end(member, how)?;
                scene.phase()?;
                scene.join()?;
                scene.phase()?;
            }
            scene.finish(load)
        })?;
    }
    on_wire(1, |wire| kernels(wire, count))
}

/// Prints how many flows the kernel's mode `hash` moves when another member joins, and when the
/// first member is killed.
fn kernels(wire: &Wire, count: usize) -> Result<()> {
    let mut members: Vec<Recorder> = Vec::new();
    let mut phases = Vec::new();
    for _ in 0..count {
        start(wire, &mut members)?;
    }
    let load = Load::start()?;
    phase(&members, &mut phases)?;
    start(wire, &mut members)?;
    phase(&members, &mut phases)?;
    members[0].end(End::Killed)?;
    phase(&members, &mut phases)?;
    let sent = load.stop()?;
    members.iter_mut().try_for_each(Recorder::stop)?;
    let all = members.iter().map(|it| records::read(&it.file));
    let story = Story::new(&sent, all.collect::<Result<_>>()?, &phases);
    let percent = |phase, member| {
        let moved = story.moved(phase, Some(member));
        let of_all = |flows: usize| 100.0 * flows as f64 / f64::from(FLOWS);
        (of_all(moved.flows), of_all(moved.of_others))
    };
    let (join, death) = (percent(1, count), percent(2, 0));
    print(&format!(
        "the kernel's hash, {count} members: one comes: {:.1} % of all flows moved, {:.1} % from \
         others to others; the first is killed: {:.1} %, {:.1} %",
        join.0, join.1, death.0, death.1
    ));
    ensure!(join.0 > 0.0 && death.0 > 0.0);
    Ok(())
}

fn start(wire: &Wire, members: &mut Vec<Recorder>) -> Result<()> {
    let mut member = Recorder::start_as(wire, DEVICE, 8, "hash", &[])?;
    // `phase_of` waits only for members with a slot (`Recorder::reads`), so set one. In the
    // kernel's mode its number has no meaning.
    member.slot = Some(0);
    members.push(member);
    Ok(())
}

fn phase(members: &[Recorder], phases: &mut Vec<Range<u64>>) -> Result<()> {
    phases.push(scene::phase_of(DEVICE, members, false)?);
    Ok(())
}

/// Tests that last too long for the usual runs.
mod long {
    use super::*;

    #[test]
    #[ignore = "needs root: run by make test"]
    fn of_two_each_ends_in_turn() -> Result<()> {
        each_ends_in_turn(2)
    }

    #[test]
    #[ignore = "needs root: run by make test"]
    fn of_eight_each_ends_in_turn() -> Result<()> {
        each_ends_in_turn(8)
    }
}
