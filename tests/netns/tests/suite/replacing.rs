//! Steering programs are replaced while other members replace programs, join, or set filters.

use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use fanpcap_netns::dialog::Dialog;
use fanpcap_netns::{Wire, on_wire};
use fanpcap_testkit::traffic::{self, Frame};
use fanpcap_testkit::{Transport, member};

const ROUNDS: usize = 24;

/// Some frames of all kinds.
fn some_frames() -> Result<Vec<Frame>> {
    traffic::frames(21, &traffic::flows(21, 30), 0..60)
}

fn number(frames: &[Frame], is_one: impl Fn(&Frame) -> bool) -> usize {
    frames.iter().filter(|frame| is_one(frame)).count()
}

fn counts(dialog: &mut Dialog, handles: usize) -> Result<usize> {
    (0..handles).map(|handle| dialog.count(handle)).sum()
}

/// The delay after which the second thread of a race begins its action. Over the rounds, the delays
/// cover the whole of the first thread's action, which takes about a millisecond.
fn moment(round: usize) -> Duration {
    Duration::from_micros((round as u64 * 389) % 4000)
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_filter_that_is_set_while_the_program_is_replaced_holds() -> Result<()> {
    on_wire(1, |wire| {
        let mut own = Dialog::start(wire, 7)?;
        for handle in 0..6 {
            let answer = format!("opened {handle}");
            own.expect("open main = steer_to 1", &answer)?;
        }
        let frames = some_frames()?;
        let mut came = 0;
        for round in 0..ROUNDS {
            let (filter, is_ipv6) = [("ip", false), ("ip6", true)][round % 2];
            let (transport, name) =
                [(Transport::Tcp, "tcp"), (Transport::Udp, "udp")][round / 2 % 2];
            // Every third program drops no packet.
            let (drops, program) = match round % 3 {
                0 => (false, "main = steer_to 1".to_owned()),
                _ => (true, format!("main = {name} >-> steer_to 1")),
            };
            let after = moment(round).as_micros();
            own.expect(&format!("race 1 {after} {filter} ; {program}"), "done")?;
            wire.send(&frames)?;
            came += number(&frames, |frame| {
                let is_steered = !drops || frame.flow.transport == transport;
                is_steered && frame.flow.client.is_ipv6() == is_ipv6
            });
            let count = own.count(1)?;
            ensure!(count == came, "round {round}: {count}, not {came}");
        }
        Ok(())
    })
}

/// Returns that of the two programs with which a newcomer can join.
fn runs<'a>(wire: &Wire, programs: [&'a str; 2]) -> Result<&'a str> {
    let mut newcomer = Dialog::start(wire, 7)?;
    let mut opened = Vec::new();
    for program in programs {
        let said = newcomer.ask(&format!("open {program}"))?;
        if said.starts_with("opened") {
            opened.push(program);
        } else {
            ensure!(said.contains("runs the program"), "{said}");
        }
    }
    ensure!(opened.len() == 1, "{opened:?} of {programs:?}");
    Ok(opened[0])
}

#[test]
#[ignore = "needs root: run by make test"]
fn of_two_threads_that_replace_the_program_one_is_the_last_for_all_members() -> Result<()> {
    const MEMBERS: usize = 4;
    on_wire(1, |wire| {
        let mut own = Dialog::start(wire, 7)?;
        for handle in 0..MEMBERS {
            let answer = format!("opened {handle}");
            own.expect("open main = steer_rrobin", &answer)?;
        }
        let frames = some_frames()?;
        let mut came = 0;
        for round in 0..ROUNDS / 2 {
            let index = round % 2;
            let programs =
                ["tcp", "udp"].map(|it| format!("main = {it} >-> inc {index} >-> steer_rrobin"));
            let [tcp, udp] = &programs;
            let after = moment(round).as_micros();
            own.expect(&format!("race 1 {after} = {tcp} ; {udp}"), "done")?;
            let last = runs(wire, [tcp, udp])?;
            // A member that reads removes the newcomer that has ended.
            counts(&mut own, MEMBERS)?;
            member::wait_for_members(7, MEMBERS)?;
            wire.send(&frames)?;
            let transport = if last == tcp {
                Transport::Tcp
            } else {
                Transport::Udp
            };
            came += number(&frames, |frame| frame.flow.transport == transport);
            let count = counts(&mut own, MEMBERS)?;
            ensure!(count == came, "round {round}, {last}: {count}, not {came}");
        }
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn of_two_processes_that_replace_the_program_one_is_the_last_for_both() -> Result<()> {
    on_wire(1, |wire| {
        let (mut one, mut other) = (Dialog::start(wire, 7)?, Dialog::start(wire, 7)?);
        one.expect("open main = steer_rnd", "opened 0")?;
        other.expect("open main = steer_rnd", "opened 0")?;
        let frames = some_frames()?;
        let mut came = [0, 0];
        for round in 0..ROUNDS / 2 {
            let programs = ["main = steer_to 0", "main = steer_to 1"];
            thread::scope(|scope| {
                let ask = || one.expect(&format!("fanout 0 {}", programs[0]), "done");
                let asked = scope.spawn(ask);
                thread::sleep(moment(round));
                other.expect(&format!("fanout 0 {}", programs[1]), "done")?;
                asked.join().expect("the thread does not panic")
            })?;
            let last = runs(wire, programs)?;
            one.count(0)?;
            member::wait_for_members(7, 2)?;
            wire.send(&frames)?;
            came[usize::from(last == programs[1])] += frames.len();
            let counts = [one.count(0)?, other.count(0)?];
            ensure!(
                counts == came,
                "round {round}, {last}: {counts:?}, not {came:?}"
            );
            one.expect("fanout 0 main = steer_rnd", "done")?;
        }
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn who_joins_while_the_program_is_replaced_is_told_or_refused() -> Result<()> {
    on_wire(1, |wire| {
        let mut first = Dialog::start(wire, 7)?;
        first.expect("open main = steer_to 0", "opened 0")?;
        for round in 0..ROUNDS {
            let [before, after] = match round % 2 {
                0 => ["main = steer_to 0", "main = steer_to 1"],
                _ => ["main = steer_to 1", "main = steer_to 0"],
            };
            let mut newcomer = Dialog::start(wire, 7)?;
            let joined = thread::scope(|scope| {
                let joining = scope.spawn(|| newcomer.ask(&format!("open {before}")));
                // The delay is longer here, because the newcomer creates a ring, which takes longer
                // than to replace a program.
                thread::sleep(moment(round) * 4);
                first.expect(&format!("fanout 0 {after}"), "done")?;
                joining.join().expect("the thread does not panic")
            })?;
            let last = runs(wire, [before, after])?;
            ensure!(
                last == after,
                "round {round}: the group runs {last}, not {after}: {joined}"
            );
            drop(newcomer);
            first.count(0)?;
            member::wait_for_members(7, 1)?;
        }
        Ok(())
    })
}
