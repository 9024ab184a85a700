//! DPDK's testpmd on DPDK's drivers for the kernel's sockets.

use anyhow::Result;
use fanpcap_testbed::Member;
use fanpcap_testbed::member::Ended;

use crate::bench::Bench;
use crate::libraries::Side;
use crate::outside::{self, number_after};
use crate::refusal::Tally;

/// DPDK's drivers, with options from its guide.
pub(super) const AF_PACKET: [&str; 2] =
    ["net_af_packet0", ",framesz=2048,framecnt=4096,blocksz=4096"];
pub(super) const AF_XDP: [&str; 2] = ["net_af_xdp0", ""];

/// Starts testpmd on the far device.
pub(super) fn start(bench: &Bench, [driver, options]: [&str; 2]) -> Result<Member> {
    let device = format!("{driver},iface={}{options}", bench.wire.far());
    let cores = format!("{},{}", bench.generator_cpu, bench.reader_cpu);
    let libraries = bench.libraries();
    let program = libraries
        .program(
            Side::System,
            "dpdk-testpmd".as_ref(),
            "Port statistics",
            None,
        )
        .args(["-l", &cores, "--no-huge", "-m", "512", "--no-pci"])
        .args(["--no-telemetry", "--file-prefix", "fanpcap-bench"])
        .args(["--vdev", &device, "--"])
        .args(["--forward-mode=rxonly", "--auto-start", "--nb-cores=1"])
        .args(["--rxq=1", "--txq=1", "--total-num-mbufs=16384"])
        // Without this option testpmd ends as soon as its standard input ends.
        .arg("--stats-period=3600");
    outside::start(bench, None, program)
}

/// The counters that testpmd prints. DPDK's drivers do not report every missed packet: a packet
/// that is neither delivered nor reported as missed counts as dropped. If a driver reports more
/// packets than arrived, its counters disagree with the device's, and the run is refused.
pub(super) fn tally(ended: &Ended, arrived: u64) -> Result<Tally> {
    tally_of(&ended.said, arrived)
}

fn tally_of(said: &str, arrived: u64) -> Result<Tally> {
    let delivered = number_after(said, "RX-packets:")?;
    // testpmd prints the line for errors only if there are some. (RX-nombufs counts attempts, not
    // packets.)
    let missed = number_after(said, "RX-dropped:")? + number_after(said, "RX-error:").unwrap_or(0);
    let dropped = missed.max(arrived.saturating_sub(delivered));
    Ok(Tally {
        received: delivered + dropped,
        dropped,
        delivered,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_testpmd_tells_as_missed_is_used() {
        let tally = |said: &str, arrived| {
            let tally = tally_of(said, arrived).unwrap();
            (tally.received, tally.dropped, tally.delivered)
        };
        let said = "  RX-packets: 60             RX-dropped: 40            RX-total: 100\n";
        assert_eq!(tally(said, 100), (100, 40, 60));
        assert_eq!(tally(said, 110), (110, 50, 60));
        // These are more packets than arrived. A later check refuses such a run.
        assert_eq!(tally(said, 90), (100, 40, 60));
        let errors = format!("{said}  RX-error: 3\n");
        assert_eq!(tally(&errors, 103), (103, 43, 60));
        assert!(tally_of("no counters", 100).is_err());
    }
}
