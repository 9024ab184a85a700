//! Several groups on one device: each group gets all the traffic, and shares it under its own mode.

use anyhow::{Result, ensure};
use fanpcap_netns::{DEVICE, ensure_each_once, ensure_flows_whole, finish, on_wire, shares};
use fanpcap_testkit::traffic;

#[test]
#[ignore = "needs root: run by make test"]
fn each_group_sees_everything_under_its_own_mode() -> Result<()> {
    on_wire(1, |wire| {
        let by_flow = wire.start_group(2, 11, "hash")?;
        let in_turn = wire.start_group(2, 23, "lb")?;
        let alone = wire.tcpdump()?.start(&wire.scratch)?;
        let frames = traffic::frames(1, &traffic::flows(1, 50), 0..3000)?;
        wire.send(&frames)?;

        let by_flow = finish(by_flow, frames.len())?;
        ensure_each_once(&by_flow, &frames)?;
        ensure_flows_whole(&by_flow)?;
        let in_turn = finish(in_turn, frames.len())?;
        ensure_each_once(&in_turn, &frames)?;
        ensure!(shares(&in_turn) == [1500, 1500], "{:?}", shares(&in_turn));
        let alone = finish(vec![alone], frames.len())?;
        ensure_each_once(&alone, &frames)
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_virtual_device_is_the_same_device_in_another_group() -> Result<()> {
    on_wire(1, |wire| {
        let config = wire.scratch.write(
            "pcap.conf",
            "group_vb   = 11\ngroup_vb:1 = 23   # the same device\nfanout@11  = hash\nfanout@23  = lb\n",
        )?;
        let start_two = |device: &str| {
            let start = || {
                wire.tcpdump_on(device)?
                    .set("PCAP_CONFIG", &config)
                    .start(&wire.scratch)
            };
            Ok::<_, anyhow::Error>(vec![start()?, start()?])
        };
        let real = start_two(DEVICE)?;
        let aliased = start_two("vb:1")?;
        let frames = traffic::frames(2, &traffic::flows(2, 50), 0..3000)?;
        wire.send(&frames)?;

        let real = finish(real, frames.len())?;
        ensure_each_once(&real, &frames)?;
        ensure_flows_whole(&real)?;
        let aliased = finish(aliased, frames.len())?;
        ensure_each_once(&aliased, &frames)?;
        ensure!(shares(&aliased) == [1500, 1500], "{:?}", shares(&aliased));
        Ok(())
    })
}
