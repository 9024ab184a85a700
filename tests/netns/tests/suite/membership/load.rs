//! The load: numbered frames of many flows in turn, from the test's own generator.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use anyhow::{Result, ensure};
use fanpcap_gen::{Choice, Description, Pace, Plan, Sender, Sent, Until};
use fanpcap_netns::{DEVICE, FAR_DEVICE};
use fanpcap_testkit::veth;

/// Frame `number` is of flow `number % FLOWS`.
pub(super) const FLOWS: u32 = 4096;

const RATE: &str = "200kpps";

/// Frames, sent by a thread of their own.
pub(super) struct Load {
    stop: Arc<AtomicBool>,
    sender: JoinHandle<Result<Sent>>,
    received_before: u64,
}

impl Load {
    pub(super) fn start() -> Result<Self> {
        let description = Description {
            flows: FLOWS,
            ..Description::default()
        };
        let pool = description.pool()?;
        ensure!(pool.len() == FLOWS as usize, "{} frames", pool.len());
        let plan = Plan {
            until: Until::Stopped,
            pace: Pace::Even(RATE.parse()?),
        };
        let stop = Arc::new(AtomicBool::new(false));
        let ending = Arc::clone(&stop);
        let mut sender = Sender::open(FAR_DEVICE, pool, Choice::Portable)?;
        let received_before = veth::counters(DEVICE)?.received;
        let send = move || sender.send(&plan, &ending);
        Ok(Self {
            stop,
            sender: thread::spawn(send),
            received_before,
        })
    }

    /// Returns the number of frames sent, all of which have reached the packet sockets.
    pub(super) fn stop(self) -> Result<u32> {
        self.stop.store(true, Ordering::Relaxed);
        let ran = self.sender.join().expect("the sender does not panic")?;
        let sent = ran.frames;
        let rate = sent as f64 * 1e6 / ran.nanoseconds as f64;
        print(&format!("{rate:.0} kpps offered"));
        let received = veth::counters(DEVICE)?.received - self.received_before;
        ensure!(received == sent, "{sent} frames sent, {received} received");
        Ok(u32::try_from(sent)?)
    }
}

#[expect(clippy::print_stdout, reason = "the figures of a test")]
pub(super) fn print(figures: &str) {
    println!("{figures}");
}
