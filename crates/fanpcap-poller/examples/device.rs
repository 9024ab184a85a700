//! Measures a whole poller on a pair of devices in a network namespace of its own (as root): a
//! generator floods one device, a queue's thread takes the packets from the other one and writes
//! them into a pool, and a thread reads the pool.
//!
//!     cargo run --release -p fanpcap-poller --example device -- ENGINE [FRAME_LEN] [SECONDS]
#![allow(
    clippy::print_stdout,
    reason = "an example's output is for the terminal"
)]

use anyhow::{Context, Result, ensure};
use fanpcap_gen::{Choice, Description, Lengths, Pace, Plan, Sender, Until};
use fanpcap_linux::interface;
use fanpcap_linux::netlink::link;
use fanpcap_linux::process::cpu::pin;
use fanpcap_linux::unix::Peer;
use fanpcap_linux::wait::clock::{monotonic_ns, realtime_offset_ns, thread_cpu_ns};
use fanpcap_poll::message::{Hello, Steering};
use fanpcap_poller::access::Grant;
use fanpcap_poller::device::Device;
use fanpcap_poller::kind::SourceKind;
use fanpcap_poller::queue::{Idle, Queue};
use fanpcap_poller::{Policy, Source};
use fanpcap_ring::{Layout as _, Pool, PoolClocks};
use fanpcap_testkit::Veth;
use fanpcap_testkit::netns::within_new;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let engine = arguments.next().context("the name of an engine")?;
    let len: u16 = arguments.next().map_or(Ok(60), |it| it.parse())?;
    let seconds: u64 = arguments.next().map_or(Ok(2), |it| it.parse())?;
    within_new(|| measure(&engine, len, seconds))
}

fn source(engine: &str, ifindex: u32) -> Result<Box<dyn Source + Send>> {
    let kind = SourceKind::named(engine).context("no such engine")?;
    let mut sources = kind.open(&link::get(ifindex)?, 1)?.sources;
    ensure!(sources.len() == 1, "{} queues", sources.len());
    Ok(sources.remove(0))
}

fn measure(engine: &str, len: u16, seconds: u64) -> Result<()> {
    Veth::new("va", "vb", 1)?;
    let ifindex = interface::index("vb").context("no device vb")?;
    let queue = Queue::start(source(engine, ifindex)?, Idle::Sleep, || _ = pin(1))?;
    let mut device = Device::new(vec![queue], ifindex, 1, Policy::default())?;
    let hello = Hello {
        group: Some(1),
        steering: Steering::Any,
        name: None,
        weight: 1,
        class: 0,
        snaplen: 262_144,
        memory: None,
        wants_sent: false,
        wants_number: false,
        pair: 0,
        poller: 0,
    };
    let peer = Peer {
        pid: 0,
        user: 0,
        group: 0,
    };
    let entered = device.enter(&hello, (peer, Grant::default()), monotonic_ns());
    let entered = entered.map_err(|refused| anyhow::anyhow!(refused.text))?;
    device.reads(entered.member, monotonic_ns());
    let clocks = PoolClocks {
        now: monotonic_ns,
        offset: realtime_offset_ns,
    };
    let mut pool = Pool::new(entered.pool.map()?, ifindex, clocks);
    let description = Description {
        flows: 4096,
        lengths: Lengths::Fixed(len),
        ..Description::default()
    };
    let mut sender = Sender::open("va", description.pool()?, Choice::Auto)?;
    let is_over = AtomicBool::new(false);
    let (sent, (read, reader_ns)) = thread::scope(|scope| {
        let reader = scope.spawn(|| read(&mut pool, &is_over));
        pin(0)?;
        let plan = Plan {
            until: Until::Elapsed(Duration::from_secs(seconds)),
            pace: Pace::Top,
        };
        let sent = sender.send(&plan, &AtomicBool::new(false));
        thread::sleep(Duration::from_millis(200));
        is_over.store(true, Ordering::Relaxed);
        anyhow::Ok((sent?, reader.join().ok().context("the reader")??))
    })?;
    let (_, counts) = device.look(Some(1), 0).context("the group")?;
    let per_second = |packets: u64| packets as f64 * 1e3 / sent.nanoseconds as f64;
    println!(
        "{engine}, {len} B, {}: {:.2} Mpps sent, {:.2} offered to the group, {:.2} read; {} of the \
         group's packets had no room; reader {:.1} ns a packet",
        sender.way(),
        per_second(sent.frames),
        per_second(counts.offered),
        per_second(read),
        counts.dropped,
        reader_ns as f64 / read.max(1) as f64,
    );
    Ok(())
}

fn read(pool: &mut Pool, is_over: &AtomicBool) -> Result<(u64, u64)> {
    pin(1)?;
    let (mut packets, begin) = (0, thread_cpu_ns());
    let mut idle_ns = 0;
    while !is_over.load(Ordering::Relaxed) {
        if pool.unread() < 256 << 10 {
            let before = thread_cpu_ns();
            thread::sleep(Duration::from_micros(200));
            idle_ns += thread_cpu_ns() - before;
        }
        while pool.open() {
            while let Some(frame) = pool.next_frame()? {
                packets += u64::from(frame.captured() > 0);
            }
            pool.release();
        }
    }
    Ok((packets, thread_cpu_ns() - begin - idle_ns))
}
