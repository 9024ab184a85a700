//! Traffic that verify sends itself: conversations of many flows, on a device that the user names.

use std::sync::atomic::AtomicBool;
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, anyhow};
use fanpcap_gen::{Choice, Description, Families, Pace, Plan, Sender, Transports, Until, guard};

/// Number of flows: IPv4 and IPv6, UDP and TCP, each in both directions. The number is a prime.
/// Otherwise a mode that gives packets to members in turn could give all packets of a flow to the
/// same member.
const FLOWS: u32 = 1021;

/// Frames a second. Any machine receives this rate without loss.
const RATE: &str = "20kpps";

/// A thread that sends.
pub(super) struct Traffic(JoinHandle<Result<u64>>);

impl Traffic {
    /// Sends on `device` until `stop` is set.
    ///
    /// # Errors
    /// - `guard` refuses the device, because traffic there could reach other machines or
    ///   applications.
    /// - The frames or the sending thread can't be prepared.
    pub(super) fn start(device: &str, stop: &'static AtomicBool) -> Result<Self> {
        guard(device, false)?;
        let description = Description {
            flows: FLOWS,
            families: Families::Both,
            transports: Transports::Both,
            answers: true,
            ..Description::default()
        };
        let pool = description.pool().context("making the frames")?;
        let mut sender = Sender::open(device, pool, Choice::Portable)?;
        let plan = Plan {
            until: Until::Stopped,
            pace: Pace::Even(RATE.parse()?),
        };
        let named = thread::Builder::new().name("verify-sends".to_owned());
        let running = named.spawn(move || Ok(sender.send(&plan, stop)?.frames));
        Ok(Self(running.context("starting a thread")?))
    }

    /// Waits until the sender has ended. Returns how many frames it sent.
    ///
    /// # Errors
    /// Sending failed.
    pub(super) fn finish(self) -> Result<u64> {
        self.0.join().map_err(|_| anyhow!("the sender panicked"))?
    }
}
