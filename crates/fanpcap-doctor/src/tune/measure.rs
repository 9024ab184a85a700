//! Measures what a device receives and loses while a command runs.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fanpcap_linux::netlink::link;

/// The packets that a device received and lost while a command ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Measured {
    received: u64,
    lost: u64,
    time: Duration,
}

/// How much the loss may rise by chance, in packets per thousand.
const BY_CHANCE: u64 = 1;

impl Measured {
    /// Runs a shell command and counts packets during the run.
    ///
    /// # Errors
    /// The command failed.
    pub(super) fn during(command: &str, ifindex: u32) -> Result<Self> {
        let before = counters(ifindex)?;
        let start = Instant::now();
        let status = Command::new("sh").args(["-c", command]).status();
        let status = status.context("starting sh")?;
        ensure!(status.success(), "--for: the command ended with {status}");
        let after = counters(ifindex)?;
        Ok(Self {
            received: after[0].saturating_sub(before[0]),
            lost: after[1].saturating_sub(before[1]),
            time: start.elapsed(),
        })
    }

    /// Lost packets per thousand.
    fn lost_share(&self) -> u64 {
        let all = self.received.saturating_add(self.lost).max(1);
        self.lost.saturating_mul(1000) / all
    }

    pub(super) fn is_worse_than(&self, other: &Self) -> bool {
        self.lost_share() > other.lost_share() + BY_CHANCE
    }

    pub(super) fn text(&self, when: &str) -> String {
        let Self { received, lost, .. } = self;
        let seconds = self.time.as_secs_f64();
        #[allow(clippy::cast_precision_loss, reason = "a rate for people")]
        let rate = *received as f64 / seconds.max(1e-6);
        format!(
            "{when}: {received} packets in {seconds:.1} s ({rate:.0} a second), {lost} lost by the device and the kernel's queues\n"
        )
    }
}

/// Packets that the device received, and packets that the device, its driver or the stack dropped.
fn counters(ifindex: u32) -> Result<[u64; 2]> {
    let counters = link::get(ifindex).context("the device")?.counters;
    Ok([
        counters.rx_packets,
        counters.rx_missed.saturating_add(counters.rx_dropped),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(received: u64, lost: u64) -> Measured {
        Measured {
            received,
            lost,
            time: Duration::from_secs(2),
        }
    }

    #[test]
    fn more_lost_packets_of_a_thousand_are_worse() {
        assert!(of(1000, 20).is_worse_than(&of(5000, 20)));
        assert!(!of(5000, 20).is_worse_than(&of(1000, 20)));
        assert!(!of(0, 0).is_worse_than(&of(1000, 0)));
        assert!(!of(100_000, 10).is_worse_than(&of(100_000, 0)), "by chance");
    }

    #[test]
    fn a_command_is_measured_and_its_failure_told() {
        let lo = fanpcap_linux::interface::index("lo").unwrap();
        let text = Measured::during("true", lo).unwrap().text("before");
        assert!(text.starts_with("before: "), "{text}");
        let failed = Measured::during("exit 3", lo).unwrap_err();
        assert!(failed.to_string().contains("exit status: 3"), "{failed}");
    }
}
