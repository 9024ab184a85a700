//! The load: numbered frames, one of each flow in turn, which the crate `fanpcap-gen` sends.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, ensure};
use fanpcap_gen::{Choice, Description, Pace, Plan, Sender, Until};
use fanpcap_netns::{DEVICE, FAR_DEVICE};
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::veth;

use super::records::{Got, now_us};
use super::wires::Wires;

/// Number of flows. Frame `number` belongs to flow `number % FLOWS`.
pub(super) const FLOWS: u32 = 4096;

const RATE: &str = "60kpps";

/// Frames that are due within this many nanoseconds may be sent together. If the sender woke for
/// every few frames, it would use half a CPU.
const BURST: u64 = 500_000;

/// Frames that a separate thread sends.
pub(super) struct Load {
    /// The sending thread; `None` during a pause.
    sending: Option<Sending>,
    sent: Sent,
    rate: &'static str,
}

struct Sending {
    stop: Arc<AtomicBool>,
    /// The thread returns the number of frames sent, and how many nanoseconds that took.
    sender: Option<JoinHandle<Result<(u64, u64)>>>,
    since_us: u64,
    device: &'static str,
    received_before: u64,
}

/// The frames sent, in parts with pauses between them.
#[derive(Clone, Debug, Default)]
pub(super) struct Sent(Vec<Part>);

#[derive(Clone, Debug)]
struct Part {
    /// Start of the part, in microseconds since 1970.
    since_us: u64,
    /// The range of the numbers that the part's frames have among all frames. In the frames
    /// themselves, the numbers of each part begin at 0.
    numbers: Range<u32>,
    /// Number of devices. The frames use the devices in turn: a round of all flows over each.
    devices: u32,
}

impl Load {
    pub(super) fn start() -> Result<Self> {
        Self::start_to(DEVICE)
    }

    /// Starts the load at another rate.
    pub(super) fn start_at(rate: &'static str) -> Result<Self> {
        Self::of(DEVICE, rate)
    }

    /// Starts the load to a device, or to the devices of two wires, `vb^vd`.
    pub(super) fn start_to(device: &'static str) -> Result<Self> {
        Self::of(device, RATE)
    }

    fn of(device: &'static str, rate: &'static str) -> Result<Self> {
        Ok(Self {
            sending: Some(Sending::start(device, rate)?),
            sent: Sent::default(),
            rate,
        })
    }

    /// Waits until two frames of each flow were sent, however slowly a busy machine sends.
    pub(super) fn await_each_flow(&self) -> Result<()> {
        let sending = self.sending.as_ref().context("it pauses")?;
        let before = received(sending.device)?;
        await_for("frames of each flow", LIMIT, || {
            let come = received(sending.device)? - before;
            Ok((come >= 2 * u64::from(FLOWS)).then_some(()))
        })
    }

    /// Stops sending. Returns after all sent frames have reached the packet sockets.
    pub(super) fn pause(&mut self) -> Result<()> {
        let sending = self.sending.take().context("the load is already paused")?;
        let since_us = sending.since_us;
        let devices = u32::try_from(sending.device.split('^').count())?;
        let first = self.sent.end().next_multiple_of(FLOWS * devices);
        let numbers = first..first + sending.stop()?;
        self.sent.0.push(Part {
            since_us,
            numbers,
            devices,
        });
        Ok(())
    }

    /// Continues after a pause. `device` is the capturing device's name, which may have changed
    /// during the pause.
    pub(super) fn go_on(&mut self, device: &'static str) -> Result<()> {
        self.sending = Some(Sending::start(device, self.rate)?);
        Ok(())
    }

    /// The frames sent until the last pause.
    pub(super) fn sent(&self) -> &Sent {
        &self.sent
    }

    /// Ends the load. Returns after all sent frames have reached the packet sockets.
    pub(super) fn stop(mut self) -> Result<Sent> {
        self.pause()?;
        Ok(self.sent)
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Sending {
    fn start(device: &'static str, rate: &str) -> Result<Self> {
        let description = Description {
            flows: FLOWS,
            ..Description::default()
        };
        let pool = description.pool()?;
        ensure!(pool.len() == FLOWS as usize, "{} frames", pool.len());
        let plan = Plan {
            until: Until::Stopped,
            pace: Pace::Bursts(rate.parse()?, BURST),
        };
        let stop = Arc::new(AtomicBool::new(false));
        let ending = Arc::clone(&stop);
        let received_before = received(device)?;
        let since_us = now_us();
        let send: Box<dyn FnOnce() -> Result<(u64, u64)> + Send> = match device.contains('^') {
            true => {
                let mut wires = Wires::open(pool)?;
                Box::new(move || wires.send(&ending))
            }
            false => {
                let mut sender = Sender::open(FAR_DEVICE, pool, Choice::Portable)?;
                let mut send = move || sender.send(&plan, &ending);
                Box::new(move || send().map(|sent| (sent.frames, sent.nanoseconds)))
            }
        };
        Ok(Self {
            stop,
            sender: Some(thread::spawn(send)),
            since_us,
            device,
            received_before,
        })
    }

    /// Stops the thread. Returns the number of frames sent, all of which have reached the packet
    /// sockets.
    fn stop(mut self) -> Result<u32> {
        self.stop.store(true, Ordering::Relaxed);
        let sender = self.sender.take().context("the sender has stopped")?;
        let (sent, nanoseconds) = sender.join().expect("the sender does not panic")?;
        let rate = sent as f64 * 1e6 / nanoseconds as f64;
        print(&format!("{rate:.0} kpps offered"));
        let mut came = 0;
        await_for("the load to arrive", LIMIT, || {
            came = received(self.device)? - self.received_before;
            Ok((came >= sent).then_some(()))
        })
        .with_context(|| format!("{came} of {sent} frames"))?;
        ensure!(came == sent, "{sent} frames sent, {came} received");
        Ok(u32::try_from(sent)?)
    }
}

/// Number of frames that the given device, or several devices, have received.
pub(super) fn received(devices: &str) -> Result<u64> {
    let received = devices
        .split('^')
        .map(|it| Ok(veth::counters(it)?.received));
    received.sum()
}

impl Sent {
    /// Number of frames.
    pub(super) fn count(&self) -> usize {
        self.0.iter().map(|part| part.numbers.len()).sum()
    }

    /// The numbers of all frames, part by part.
    pub(super) fn numbers(&self) -> impl Iterator<Item = Range<u32>> {
        self.0.iter().map(|part| part.numbers.clone())
    }

    /// The number after the last frame's number.
    pub(super) fn end(&self) -> u32 {
        self.0.last().map_or(0, |part| part.numbers.end)
    }

    /// Number of directions of all flows together. A frame's number modulo this number identifies
    /// the frame's flow and direction.
    pub(super) fn directions(&self) -> u32 {
        FLOWS * self.0.last().map_or(1, |part| part.devices)
    }

    /// Replaces a packet's number within its part by its number among all frames.
    pub(super) fn number(&self, got: Got) -> Got {
        let mut parts = self.0.iter().rev();
        let part = parts.find(|part| part.since_us <= got.arrived_us);
        let first = part.map_or(0, |part| part.numbers.start);
        Got {
            number: first.saturating_add(got.number),
            ..got
        }
    }
}

#[expect(clippy::print_stdout, reason = "the figures of a test")]
pub(super) fn print(figures: &str) {
    println!("{figures}");
}
