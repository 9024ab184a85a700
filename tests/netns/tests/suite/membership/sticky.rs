//! Groups in which flows stay at their member. A newcomer moves no flow that has traffic.

use anyhow::{Result, ensure};
use fanpcap_netns::dialog::Dialog;
use fanpcap_netns::{DEVICE, Wire, on_wire};
use fanpcap_testkit::traffic;

use super::load::Load;
use super::recorder::{End, Recorder};
use super::scene::{Scene, until_in_time};

const STICKY: &[&str] = &["mode=flow+sticky"];

#[test]
#[ignore = "needs root: run by make test"]
fn newcomers_move_no_flow_and_those_that_go_their_own() -> Result<()> {
    on_wire(1, |wire| {
        let mut scene = Scene::start(wire, 7, 3, STICKY)?;
        let load = Load::start()?;
        scene.phase()?;
        for _ in 0..2 {
            scene.join()?;
            scene.phase()?;
        }
        for (member, how) in [(0, End::Killed), (2, End::Leaves)] {
            scene.end(member, how)?;
            scene.phase()?;
            scene.join()?;
            scene.phase()?;
        }
        scene.finish(load)
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_successor_has_the_flows_that_its_predecessor_has_kept() -> Result<()> {
    let test = |wire: &Wire| {
        let mut scene = Scene::start(wire, 7, 2, STICKY)?;
        scene.join_as("name=one")?;
        let load = Load::start()?;
        scene.phase()?;
        // The newcomer now owns a quarter of the named member's buckets, but none of its flows.
        scene.join()?;
        scene.phase()?;
        if !scene.end_and_succeed(2, End::Killed, "name=one")? {
            return Ok(false);
        }
        scene.phase()?;
        scene.finish(load).map(|()| true)
    };
    until_in_time(|| on_wire(1, test))
}

#[test]
#[ignore = "needs root: run by make test"]
fn one_that_does_not_read_loses_the_flows_that_it_has_kept() -> Result<()> {
    on_wire(1, |wire| {
        let mut scene = Scene::start(wire, 7, 3, STICKY)?;
        let mut load = Load::start()?;
        scene.phase()?;
        scene.join()?;
        scene.phase()?;
        scene.silence(2, &mut load, false)?;
        scene.phase()?;
        // The member reads the packets that were in its ring when it was stopped.
        scene.member(2).signal("CONT")?;
        scene.finish(load)
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn all_members_of_a_group_are_sticky_or_none() -> Result<()> {
    on_wire(1, |wire| {
        for (group, runs, asked) in [
            (7, "flow+sticky", "flow"),
            (8, "flow", "flow+sticky"),
            (9, "flow+sticky", "flow+sticky=1024"),
        ] {
            let mut first = Recorder::start_as(wire, DEVICE, group, runs, &[])?;
            let refused = Recorder::start_as(wire, DEVICE, group, asked, &[]);
            let said = refused
                .err()
                .map_or_else(String::new, |it| format!("{it:#}"));
            let reason = format!("group {group} runs the program '{runs}', not '{asked}'");
            ensure!(said.contains(&reason), "{said}");
            let mut second = Recorder::start_as(wire, DEVICE, group, runs, &[])?;
            second.stop()?;
            first.stop()?;
        }
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_group_becomes_sticky_when_its_program_is_replaced() -> Result<()> {
    on_wire(1, |wire| {
        let frames = traffic::frames(21, &traffic::flows(21, 60), 0..120)?;
        let mut own = Dialog::start(wire, 7)?;
        let come = |own: &mut Dialog, handles: usize| -> Result<Vec<usize>> {
            let count = |own: &mut Dialog| -> Result<Vec<usize>> {
                (0..handles).map(|handle| own.count(handle)).collect()
            };
            let before = count(own)?;
            wire.send(&frames)?;
            let all = count(own)?.into_iter().zip(before);
            Ok(all.map(|(after, before)| after - before).collect())
        };
        own.expect("open flow", "opened 0")?;
        own.expect("open flow", "opened 1")?;
        let by_table = come(&mut own, 2)?;
        own.expect("fanout 0 flow+sticky", "done")?;
        ensure!(come(&mut own, 2)? == by_table);
        let refused = own.ask("open flow")?;
        ensure!(refused.contains("'flow+sticky', not 'flow'"), "{refused}");
        own.expect("open flow+sticky", "opened 2")?;
        let kept = come(&mut own, 3)?;
        ensure!(kept == [by_table[0], by_table[1], 0], "{kept:?}");
        own.expect("fanout 1 flow", "done")?;
        let moved = come(&mut own, 3)?;
        ensure!(moved[2] > 0, "{moved:?}");
        Ok(())
    })
}
