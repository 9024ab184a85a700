//! Counters are exact for every reader, and a sum is reported only if all its parts are known.

use anyhow::{Context, Result, ensure};
use fanpcap_netns::{DEVICE, on_wire};
use fanpcap_testkit::{Program, member, traffic};

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
        // The system's library adds without a lock, so that threads may lose packets to each other.
        ensure!(received > 0 && received <= PACKETS, "{said}");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn sums_wait_for_a_member_that_never_read_its_counters() -> Result<()> {
    on_wire(1, |wire| {
        // Neither reads packets, which would publish its counters by the way.
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
