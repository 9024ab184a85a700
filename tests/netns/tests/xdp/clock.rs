//! Time stamps in a time namespace, whose monotonic clock is not the kernel's.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use fanpcap_netns::{DEVICE, on_wire};
use fanpcap_testkit::traffic;
use fanpcap_testkit::{Capture, Program};

/// A time that is longer than the test.
const SOON: Duration = Duration::from_secs(60);

/// Offsets of the clock in seconds, longer than [`SOON`]. The kernel refuses an offset that makes
/// the clock negative (time_namespaces(7)). So the machine must have run for at least 120 seconds.
const OFFSETS: [&str; 2] = ["86400", "-120"];

#[test]
#[ignore = "needs root: run by make test"]
fn stamps_are_the_time_of_day_in_a_time_namespace() -> Result<()> {
    on_wire(1, |wire| {
        for offset in OFFSETS {
            let options = ["--time", "--fork", "--monotonic", offset];
            let tried = Program::new("unshare", "")?.args(options).arg("true");
            let tried = tried.run(&wire.scratch)?;
            if !tried.status.success() {
                println!("SKIP: no time namespaces: {}", tried.said.trim());
                return Ok(());
            }
            let frames = traffic::frames(1, &traffic::flows(1, 5), 0..50)?;
            let file = wire.scratch.file(offset);
            let tcpdump = [
                "tcpdump", "-n", "-U", "-Z", "root", "-c", "50", "-i", DEVICE, "-w",
            ];
            let member = Program::new("unshare", "listening on")?
                .args(options)
                .args(tcpdump)
                .arg(&file)
                .set("PCAP_DRIVER", "xdp")
                .start(&wire.scratch)?;
            ensure!(!member.said()?.contains("packet sockets"));
            wire.send_as_tap(&frames)?;
            member.wait()?;
            let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
            for packet in Capture::read(&file)?.packets {
                let apart = packet.stamp.abs_diff(now);
                ensure!(apart < SOON, "{offset}: {apart:?} apart");
            }
        }
        Ok(())
    })
}
