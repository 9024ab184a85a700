//! The network of a run: two namespaces, a veth pair between them, and the packets sent on it.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use fanpcap_testkit::traffic::{self, Frame};
use fanpcap_testkit::{Injector, netns, veth};

use crate::suite::Traffic;

/// The device where suites capture; it is up and has an address.
pub(crate) const DEVICE: &str = "wire0";
const PEER: &str = "wire1";
const ADDRESS: &str = "192.0.2.2/24";
const PEER_ADDRESS: &str = "192.0.2.1/24";
/// The destination address of the testkit's frames. With this address, the host accepts the frames
/// as its own.
const MAC: &str = "02:00:00:00:00:0b";

/// Runs `work` in a new network namespace with [`DEVICE`], while a sender at the wire's other end,
/// in another namespace, sends the traffic. Both namespaces end when `work` returns.
pub(crate) fn within<T: Send>(
    traffic: Traffic,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    netns::within_new(|| {
        let peer = netns::current()?;
        netns::enter_quiet()?;
        let own = netns::current()?;
        let path = format!("/proc/{}/fd/{}", process::id(), peer.as_raw_fd());
        veth::ip(&format!(
            "link add {DEVICE} address {MAC} type veth peer name {PEER} netns {path}"
        ))?;
        configure(DEVICE, ADDRESS)?;
        netns::enter(peer.as_fd())?;
        let configured = configure(PEER, PEER_ADDRESS);
        netns::enter(own.as_fd())?;
        configured?;
        veth::await_up(DEVICE)?;
        during(traffic, peer.as_fd(), work)
    })
}

fn configure(device: &str, address: &str) -> Result<()> {
    veth::offloads_off(device)?;
    veth::ip(&format!("address add {address} dev {device}"))?;
    veth::ip(&format!("link set {device} up"))
}

fn during<T>(
    traffic: Traffic,
    peer: BorrowedFd<'_>,
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    if traffic == Traffic::Silent {
        return work();
    }
    let frames = traffic::frames(SEED, &traffic::flows(SEED, 8), 0..FRAMES)?;
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let sender = scope.spawn(|| send_until(&done, peer, &frames));
        let result = work();
        // Relaxed: the flag need not order other accesses, and the join below does.
        done.store(true, Ordering::Relaxed);
        let sent = sender.join().expect("the sender does not panic");
        let result = result?;
        sent.context("sending the traffic")?;
        Ok(result)
    })
}

fn send_until(done: &AtomicBool, peer: BorrowedFd<'_>, frames: &[Frame]) -> Result<()> {
    netns::enter(peer)?;
    let injector = Injector::open(PEER)?;
    for batch in frames.chunks(BATCH).cycle() {
        if done.load(Ordering::Relaxed) {
            break;
        }
        injector.send_all(batch)?;
        thread::sleep(PAUSE);
    }
    Ok(())
}

const SEED: u64 = 1;
const FRAMES: u64 = 960;
/// Frames in one system call. About 6000 packets and 1.3 MB a second are sent, so a block of the
/// default ring fills in 0.2 s.
const BATCH: usize = 32;
const PAUSE: Duration = Duration::from_millis(5);
