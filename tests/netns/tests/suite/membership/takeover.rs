//! Members that have a name end, and successors with these names take over their buckets and rings.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fanpcap_linux::wait::clock;
use fanpcap_netns::{Wire, on_wire};

use super::load::Load;
use super::recorder::End;
use super::scene::{GRACE, Scene, on_wire_of, until_in_time};
use super::table;

#[test]
#[ignore = "needs root: run by make test"]
fn the_successor_of_one_that_was_killed_has_its_flows_and_what_it_had_not_read() -> Result<()> {
    members_come_back(End::Killed, &[])
}

#[test]
#[ignore = "needs root: run by make test"]
fn the_successor_of_one_that_hung_has_its_flows_and_what_it_had_not_read() -> Result<()> {
    members_come_back(End::HangsFirst, &[])
}

#[test]
#[ignore = "needs root: run by make test"]
fn the_successor_of_one_that_left_has_its_flows_and_what_it_had_not_read() -> Result<()> {
    members_come_back(End::Leaves, &[])
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_successor_in_another_network_namespace_reads_what_was_left() -> Result<()> {
    members_come_back(End::HangsFirst, &["away"])
}

#[test]
#[ignore = "needs root: run by make test"]
fn without_a_successor_others_have_it_all_after_the_grace_period() -> Result<()> {
    on_wire(1, |wire| {
        let mut scene = Scene::start(wire, 7, 3, &[])?;
        scene.join_as("name=one")?;
        let load = Load::start()?;
        scene.phase()?;
        scene.end(3, End::Killed)?;
        scene.phase()?;
        // A member that comes after the grace period is an ordinary newcomer.
        scene.join_as("name=one")?;
        scene.phase()?;
        scene.finish(load)
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn nobody_waits_for_a_successor_longer_than_the_ring_has_room() -> Result<()> {
    on_wire(1, |wire| {
        let mut scene = Scene::start(wire, 7, 2, &["small"])?;
        scene.join_as("name=one")?;
        // At this rate, half of a ring of 4 MiB is full after a second, and all of it after two
        // seconds.
        let load = Load::start_at("50kpps")?;
        scene.phase()?;
        let killed_ns = clock::monotonic_ns();
        scene.end(2, End::Killed)?;
        let moved = table::view(7)?.moved.context("no buckets moved")?;
        let after = Duration::from_nanos(moved.at_ns - killed_ns);
        ensure!(after < GRACE, "{after:?}");
        scene.phase()?;
        scene.finish(load)
    })
}

/// Of four members, two have names. The named members end and successors join, two of them one
/// after the other for the same name.
pub(super) fn members_come_back(how: End, members: &'static [&'static str]) -> Result<()> {
    let test = |wire: &Wire| {
        let mut scene = Scene::start(wire, 7, 2, members)?;
        scene.join_as("name=one")?;
        scene.join_as("name=two")?;
        let load = Load::start()?;
        scene.phase()?;
        for (member, name) in [(2, "name=one"), (3, "name=two"), (4, "name=one")] {
            if !scene.end_and_succeed(member, how, name)? {
                return Ok(false);
            }
            scene.phase()?;
        }
        scene.finish(load).map(|()| true)
    };
    until_in_time(|| on_wire_of(members, test))
}
