//! What is left of applications on the XDP engine: nothing.

use anyhow::{Result, ensure};
use fanpcap_netns::on_wire;
use fanpcap_testkit::traffic;

use crate::scene::{ensure_nothing_left, program, start};

#[test]
#[ignore = "needs root: run by make test"]
fn nothing_is_left_of_one_that_is_killed() -> Result<()> {
    on_wire(1, |wire| {
        for _ in 0..3 {
            let member = start(wire)?;
            let loaded = program()?;
            ensure!(loaded.is_some(), "no XDP program");
            wire.send_as_tap(&traffic::frames(1, &traffic::flows(1, 5), 0..100)?)?;
            member.signal("KILL")?;
            member.wait()?;
            ensure_nothing_left(loaded)?;
        }
        Ok(())
    })
}
