//! Veth pairs, and the counters of their devices.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use fanpcap_linux::interface;
use fanpcap_linux::netlink::link;

use crate::await_for::{LIMIT, await_for};

/// Two devices in the calling thread's namespace. Every frame sent on one arrives at the other.
#[derive(Clone, Copy, Debug)]
pub struct Veth {
    /// One end: tests send here.
    pub near: &'static str,
    /// The other end: tests capture here.
    pub far: &'static str,
}

/// A device's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters {
    /// Packets received.
    pub received: u64,
    /// Packets dropped on receipt, before any packet socket got them.
    pub receive_dropped: u64,
    /// Packets sent.
    pub sent: u64,
    /// Packets dropped on their way to the other end because the other end's ring was full.
    pub send_dropped: u64,
}

impl Veth {
    /// Creates the pair. Each device has `queues` transmit and receive queues, no offloads and no
    /// ARP, and is up. Frames wait while the other end's ring is full ([`queue`]).
    ///
    /// # Errors
    /// `ip`, `ethtool` or `tc` failed; the message has its output.
    pub fn new(near: &'static str, far: &'static str, queues: usize) -> Result<Self> {
        let queues = format!("numtxqueues {queues} numrxqueues {queues}");
        ip(&format!(
            "link add {near} {queues} type veth peer name {far} {queues}"
        ))?;
        for device in [near, far] {
            offloads_off(device)?;
            queue(device)?;
            ip(&format!("link set {device} arp off up"))?;
        }
        await_up(near)?;
        await_up(far)?;
        Ok(Self { near, far })
    }
}

/// Turns off offloads that would merge, split or complete frames between the wire and a packet
/// socket.
///
/// # Errors
/// `ethtool` failed; the message has its output.
pub fn offloads_off(device: &str) -> Result<()> {
    offloads(device, "off")
}

/// Makes frames wait while the other end's ring of 256 frames is full. The ring fills up while the
/// CPU of the other end does something else. Since Linux 6.16, such frames wait in the device's
/// queueing discipline, which this function sets; without one, veth drops them (drivers/net/veth.c,
/// `veth_xmit`). An older veth always drops them.
///
/// # Errors
/// `tc` failed; the message has its output.
pub fn queue(device: &str) -> Result<()> {
    let queue = ["root", "pfifo", "limit", "100000"];
    tc(&[&["qdisc", "replace", "dev", device][..], &queue].concat())
}

/// Turns on those offloads of a device that are usually on.
///
/// # Errors
/// `ethtool` failed; the message has its output.
pub fn offloads_on(device: &str) -> Result<()> {
    offloads(device, "on")
}

fn offloads(device: &str, to: &str) -> Result<()> {
    let all = ["gro", "gso", "tso", "tx", "rx"].map(|name| format!("{name} {to}"));
    run("ethtool", &format!("-K {device} {}", all.join(" ")))
}

/// Sets the number of queues that the device uses. `which` is `rx` for receive queues, or `tx` for
/// transmit queues.
///
/// # Errors
/// `ethtool` failed; the message has its output.
pub fn set_queues(device: &str, which: &str, count: usize) -> Result<()> {
    run("ethtool", &format!("-L {device} {which} {count}"))
}

/// Makes the device insert the VLAN tags into sent frames. Without this call, the tags travel
/// beside the frames, as metadata.
///
/// # Errors
/// `ethtool` failed; the message has its output.
pub fn tags_into_frames(device: &str) -> Result<()> {
    run("ethtool", &format!("-K {device} txvlan off"))
}

/// Waits until the device can send: a link that has just come up drops frames at first.
///
/// # Errors
/// The device doesn't come up.
pub fn await_up(device: &str) -> Result<()> {
    await_for(&format!("{device} to come up"), LIMIT, || {
        let state = output("ip", &format!("-o link show {device}"))?;
        Ok(state.contains("state UP").then_some(()))
    })
}

/// The counters of a device in the calling thread's namespace.
///
/// # Errors
/// The device does not exist.
pub fn counters(device: &str) -> Result<Counters> {
    let index = interface::index(device).with_context(|| format!("no counters of {device}"))?;
    let counted = link::get(index)?.counters;
    Ok(Counters {
        received: counted.rx_packets,
        receive_dropped: counted.rx_dropped + counted.rx_missed,
        sent: counted.tx_packets,
        send_dropped: counted.tx_dropped,
    })
}

/// Whether the driver runs an XDP program for the device.
///
/// # Errors
/// The device does not exist.
pub fn has_xdp(device: &str) -> Result<bool> {
    let state = output("ip", &format!("-o link show {device}"))?;
    // `xdp` stands for the driver's hook, `xdpgeneric` for the stack's.
    Ok(state.contains(" xdp "))
}

/// Runs `ip` with space-separated arguments in the calling thread's namespace.
///
/// # Errors
/// `ip` failed; the message has its output.
pub fn ip(arguments: &str) -> Result<()> {
    run("ip", arguments)
}

/// Runs `tc` in the calling thread's namespace.
///
/// # Errors
/// `tc` failed; the message has its output.
pub fn tc(arguments: &[&str]) -> Result<()> {
    outcome("tc", arguments).map(drop)
}

fn run(program: &str, arguments: &str) -> Result<()> {
    output(program, arguments).map(drop)
}

fn output(program: &str, arguments: &str) -> Result<String> {
    let words: Vec<&str> = arguments.split_whitespace().collect();
    outcome(program, &words)
}

fn outcome(program: &str, arguments: &[&str]) -> Result<String> {
    let done = Command::new(program)
        .args(arguments)
        .output()
        .with_context(|| format!("running {program}"))?;
    let complaint = String::from_utf8_lossy(&done.stderr);
    ensure!(
        done.status.success(),
        "{program} {}: {}",
        arguments.join(" "),
        complaint.trim()
    );
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}
