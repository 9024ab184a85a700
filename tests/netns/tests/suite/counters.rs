//! Counters are exact for every reader. A sum is reported only if all its parts are known.

use anyhow::{Context, Result, ensure};
use fanpcap_netns::dialog::Dialog;
use fanpcap_netns::{DEVICE, on_wire};
use fanpcap_testkit::await_for::LIMIT;
use fanpcap_testkit::{Program, await_for, member, traffic};

#[test]
#[ignore = "needs root: run by make test"]
fn threads_that_read_at_once_make_no_packets() -> Result<()> {
    const PACKETS: usize = 100_000;
    on_wire(1, |wire| {
        let program = Program::new(wire.compile("totals")?, "ready")?;
        let totals = program.args([DEVICE, "7"]).start(&wire.scratch)?;
        wire.send(&traffic::frames(
            1,
            &traffic::flows(1, 5),
            0..PACKETS as u64,
        )?)?;
        let said = totals.stop()?.said;
        let received = said.lines().find_map(|line| line.strip_prefix("received "));
        let received: usize = received.with_context(|| said.clone())?.parse()?;
        // The system's library adds without a lock, so concurrent threads may lose counts.
        ensure!(received > 0 && received <= PACKETS, "{said}");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn sums_wait_for_a_member_that_never_read_its_counters() -> Result<()> {
    on_wire(1, |wire| {
        // Neither member reads packets, because a member that reads also publishes its counters.
        let program = wire.compile("sums")?;
        let start = || {
            let sums = Program::new(&program, "ready")?.args([DEVICE, "7", "lb", "200"]);
            sums.start(&wire.scratch)
        };
        let (mut sums, mut asked) = (start()?, start()?);
        member::wait_for_members(7, 2)?;
        wire.send(&traffic::frames(1, &traffic::flows(1, 5), 0..400)?)?;
        sums.signal("USR1")?;
        sums.wait_until_says("round 1: received 200, ")?;
        let said = sums.said()?;
        ensure!(said.contains("the group unknown (0)\n"), "{said}");

        asked.signal("USR1")?;
        asked.wait_until_says("round 1: received 200, the group 400\n")?;
        sums.signal("USR1")?;
        sums.wait_until_says("round 2: ")?;
        let said = sums.stop()?.said;
        ensure!(said.contains("received 200, the group 400\n"), "{said}");
        Ok(())
    })
}

/// The group's sums include the packets that the kernel gave to members that have ended.
#[test]
#[ignore = "needs root: run by make test"]
fn the_sums_of_a_steered_group_have_those_of_the_killed() -> Result<()> {
    on_wire(1, |wire| {
        let start = || {
            let mut dialog = Dialog::start(wire, 7)?;
            dialog.expect("open main = steer_flow", "opened 0")?;
            dialog.count(0)?;
            anyhow::Ok(dialog)
        };
        let (mut first, mut second, third) = (start()?, start()?, start()?);
        let frames = traffic::frames(1, &traffic::flows(1, 60), 0..600)?;
        // Two members are killed: one with packets in its ring, and one that has read its ring.
        wire.send(&frames)?;
        drop(third);
        first.expect("read 0", "done")?;
        second.count(0)?;
        second.expect("read 0", "done")?;
        await_sum(&mut first, frames.len())?;
        drop(second);
        wire.send(&frames)?;
        await_sum(&mut first, 2 * frames.len())
    })
}

/// Waits until a member reports that its group has received `packets` packets.
fn await_sum(member: &mut Dialog, packets: usize) -> Result<()> {
    let sum = format!("0: group {packets}");
    await_for("the sum of all members", LIMIT, || {
        Ok((member.ask("sum 0")? == sum).then_some(()))
    })
}
