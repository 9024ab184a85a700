//! Numbered frames that `fanpcap-gen` sends, and the reader that checks their numbers
//! (`c/order.c`).

use std::fs;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, ensure};
use fanpcap_gen::{Choice, Description, Lengths, Pace, Plan, Sender, Until};
use fanpcap_netns::{DEVICE, FAR_DEVICE, Wire};
use fanpcap_testkit::{Member, Program};

/// Frames that are due within this many nanoseconds may be sent together.
const BURST: u64 = 200_000;

/// Sends numbered frames of `len` bytes at this rate: `frames` of them, or until `stop` is set.
/// `from` names the sender. Returns how many frames were sent.
pub(crate) fn numbered(
    from: [u8; 2],
    len: u16,
    rate: &str,
    frames: Option<u64>,
    stop: &AtomicBool,
) -> Result<u64> {
    let [first, second] = from;
    let description = Description {
        lengths: Lengths::Fixed(len),
        sources4: format!("10.{first}.{second}.0/24").parse()?,
        ..Description::default()
    };
    let plan = Plan {
        until: frames.map_or(Until::Stopped, Until::Frames),
        pace: Pace::Bursts(rate.parse()?, BURST),
    };
    let pool = description.pool()?;
    // Not Choice::Auto, which may send the first frames twice.
    let live = Sender::open(FAR_DEVICE, pool.clone(), Choice::Unwatched);
    let sender = live.or_else(|_| Sender::open(FAR_DEVICE, pool, Choice::Portable));
    Ok(sender?.send(&plan, stop)?.frames)
}

/// A running `c/order.c` on [`DEVICE`], which has the device's packets for itself.
pub(crate) struct Reader(pub(crate) Member);

/// What a reader has counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) packets: u64,
    /// Packets that came after a later packet of the same sender.
    pub(crate) breaks: u64,
    /// The counters of pcap_stats(3PCAP).
    pub(crate) received: u64,
    pub(crate) dropped: u64,
}

impl Reader {
    /// Starts a reader. `how` says whether it `waits` for packets, or `polls` without waiting.
    pub(crate) fn start(wire: &Wire, how: &str) -> Result<Self> {
        let settings = wire.scratch.new_file("settings");
        fs::write(
            &settings,
            format!("driver@{DEVICE} = xdp\nsteal@{DEVICE} = yes\n"),
        )?;
        let program = Program::new(wire.compile("order")?, "reading")?;
        let program = program.args([DEVICE, how]).set("PCAP_CONFIG", settings);
        Ok(Self(program.start(&wire.scratch)?))
    }

    /// Lets the reader read what is left, and ends it.
    pub(crate) fn stop(self) -> Result<Read> {
        let said = self.0.stop()?.said;
        let words = said.split([' ', ',', '\n']).map(str::parse);
        let numbers: Vec<u64> = words.filter_map(Result::ok).collect();
        ensure!(numbers.len() == 4, "{said}");
        let mut numbers = numbers.into_iter();
        let mut next = || numbers.next().context("a count");
        Ok(Read {
            packets: next()?,
            breaks: next()?,
            received: next()?,
            dropped: next()?,
        })
    }
}
