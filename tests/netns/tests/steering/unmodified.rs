//! Unmodified applications with a steering program from the environment.

use anyhow::{Result, ensure};
use fanpcap_netns::{ensure_each_once, ensure_flows_whole, finish, on_wire, shares};
use fanpcap_testkit::{Transport, traffic};

#[test]
#[ignore = "needs root: run by make test"]
fn tcpdumps_share_what_a_program_lets_through() -> Result<()> {
    on_wire(1, |wire| {
        let members = wire.start_group(4, 7, "main = do\n    tcp\n    steer_flow")?;
        let frames = traffic::frames(1, &traffic::flows(1, 50), 0..4000)?;
        wire.send(&frames)?;

        let is_tcp = |frame: &traffic::Frame| frame.flow.transport == Transport::Tcp;
        let passed: Vec<traffic::Frame> = frames.into_iter().filter(is_tcp).collect();
        let captures = finish(members, passed.len())?;
        ensure_each_once(&captures, &passed)?;
        ensure_flows_whole(&captures)?;
        let shares = shares(&captures);
        ensure!(shares.iter().all(|&share| share > 0), "{shares:?}");
        Ok(())
    })
}
