//! Packets that the kernel drops before the poller sees them: pcap_stats(3PCAP) counts them as a
//! device's drops.

use anyhow::{Result, ensure};
use fanpcap_netns::on_wire;
use fanpcap_poller::packet::Options;
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::traffic;

use crate::scene::{Poller, tcpdump};

#[test]
#[ignore = "needs root: run by make test"]
fn drops_before_the_poller_are_drops_of_the_interface_for_each_member() -> Result<()> {
    on_wire(1, |wire| {
        // A ring of 1 MiB.
        let options = Options {
            blocks: 4,
            ..Options::default()
        };
        let poller = Poller::start_with("packet", options)?;
        let members = [(); 2].map(|()| tcpdump(wire, "packet")?.start(&wire.scratch));
        let members = members.into_iter().collect::<Result<Vec<_>>>()?;
        let stall = poller.stall();
        let frames = traffic::frames(1, &traffic::flows(1, 20), 0..20_000)?;
        wire.send_as_tap(&frames)?;
        drop(stall);
        let dropped = poller.dropped()?;
        ensure!(dropped > 0, "the ring was not full");
        let expected = format!("{dropped} packets dropped by interface");
        for member in &members {
            await_for(&expected, LIMIT, || {
                member.signal("USR1")?;
                Ok(member.said()?.contains(&expected).then_some(()))
            })?;
        }
        for member in members {
            let ended = member.stop()?;
            // The member itself was not late.
            ensure!(
                ended.count(" packets dropped by kernel")? == 0,
                "{}",
                ended.said
            );
            ensure!(ended.count(" packets dropped by interface")? as u64 == dropped);
        }
        Ok(())
    })
}
