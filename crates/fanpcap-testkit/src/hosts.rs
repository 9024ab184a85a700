//! Two hosts, each in a network namespace, joined by a wire that carries only their conversations.

use std::fs;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::await_for::{LIMIT, await_for};
use crate::calls::Calls;
use crate::{conversation, netns, veth};

/// The device of the host on which the calling thread runs. Members capture on this device.
pub const DEVICE: &str = "demo-b";

/// The device at the peer's end of the wire, in the namespace in which [`Hosts::on_peer`] runs its
/// work.
pub const PEER_DEVICE: &str = "demo-a";

const MAC: &str = "02:00:00:00:00:0b";
const PEER_MAC: &str = "02:00:00:00:00:0a";
const HOST: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2)),
];
const PEER_HOST: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
];

/// The two hosts. The calling thread is on the host that runs the servers.
#[derive(Debug)]
pub struct Hosts {
    device: &'static str,
    peer: OwnedFd,
    own: OwnedFd,
}

impl Hosts {
    /// Creates both hosts and moves the calling thread to the serving one. The hosts exist until
    /// the thread has ended, this value is dropped, and all processes started on the hosts have
    /// ended.
    ///
    /// # Errors
    /// Namespaces or devices can't be created (this needs root).
    pub fn new() -> Result<Self> {
        Self::on(DEVICE)
    }

    /// Works like [`Hosts::new`], but gives the device of the serving host the name `device`.
    ///
    /// # Errors
    /// As [`Hosts::new`].
    pub fn on(device: &'static str) -> Result<Self> {
        netns::enter_quiet()?;
        let peer = netns::current()?;
        netns::enter_quiet()?;
        let own = netns::current()?;
        let path = format!("/proc/{}/fd/{}", process::id(), peer.as_raw_fd());
        veth::ip(&format!(
            "link add {device} address {MAC} type veth peer name {PEER_DEVICE} address {PEER_MAC} netns {path}"
        ))?;
        let hosts = Self { device, peer, own };
        configure(device, HOST, (PEER_HOST, PEER_MAC))?;
        hosts.on_peer(|| configure(PEER_DEVICE, PEER_HOST, (HOST, MAC)))?;
        veth::await_up(device)?;
        hosts.on_peer(|| veth::await_up(PEER_DEVICE))?;
        // Wait until the hosts have sent the reports of their IPv6 multicast groups, which are no
        // part of the conversations.
        await_silence(device)?;
        Ok(hosts)
    }

    /// Holds `each` conversations by TCP and UDP over IPv4 and IPv6. Returns the packets that the
    /// device counted in that time, in both directions.
    ///
    /// # Errors
    /// A conversation failed.
    pub fn talk(&self, each: usize) -> Result<usize> {
        let before = packets_on_wire(self.device)?;
        let servers = conversation::serve(&HOST, each)?;
        self.on_peer(|| conversation::hold(&HOST, each))?;
        servers.finish()?;
        // Wait for the last acknowledgements, which TCP delays by 40 ms or more.
        let after = await_silence(self.device)?;
        Ok(usize::try_from(after - before)?)
    }

    /// Starts `count` flows, which stay open until the returned value is dropped.
    ///
    /// # Errors
    /// A socket can't be created.
    pub fn calls(&self, count: usize) -> Result<Calls> {
        let mut calls = Calls::serve(HOST[0])?;
        self.on_peer(|| calls.call(count))?;
        Ok(calls)
    }

    /// Connects the hosts by TCP. Returns this host's end, then the peer's end.
    ///
    /// # Errors
    /// The peer can't connect.
    pub fn connect(&self) -> Result<[TcpStream; 2]> {
        let listener = TcpListener::bind((HOST[0], 0))?;
        let address = listener.local_addr()?;
        let peers = self.on_peer(|| Ok(TcpStream::connect_timeout(&address, LIMIT)?))?;
        Ok([listener.accept()?.0, peers])
    }

    /// Fills the current block of each ring in a group of `members` members in mode `hash`, so that
    /// their applications get the block's packets. An application that opens its handle with a
    /// timeout of 0 gets packets only in complete blocks. The packets belong to no conversation.
    ///
    /// A block has 256 KiB. With a snapshot length of 160 bytes, as softflowd sets, a packet takes
    /// 248 bytes, so 1,056 packets fill the block. Each member gets 2,048 packets on average. There
    /// are so many small flows that no member gets less than half of its average share by chance.
    ///
    /// # Errors
    /// A packet can't be sent.
    pub fn fill_blocks(&self, members: usize) -> Result<()> {
        let sink = UdpSocket::bind((HOST[0], 0))?;
        self.on_peer(|| conversation::babble(&sink, 256 * members, 8))
    }

    /// Runs `work` in the peer's network namespace.
    ///
    /// # Errors
    /// The errors of `work`.
    pub fn on_peer<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        netns::enter(self.peer.as_fd())?;
        let result = work();
        netns::enter(self.own.as_fd())?;
        result
    }
}

/// Configures a device so that only the conversations are on the wire: no offloads, a static
/// neighbour, no duplicate address detection, no router solicitation, no link-local address.
fn configure(device: &str, own: [IpAddr; 2], neighbour: ([IpAddr; 2], &str)) -> Result<()> {
    veth::offloads_off(device)?;
    let settings = [
        ("addr_gen_mode", "1"),
        ("accept_dad", "0"),
        ("accept_ra", "0"),
        ("mldv1_unsolicited_report_interval", "1"),
        ("mldv2_unsolicited_report_interval", "1"),
        ("disable_ipv6", "0"),
    ];
    for (name, value) in settings {
        let path = format!("/proc/sys/net/ipv6/conf/{device}/{name}");
        fs::write(&path, value).with_context(|| format!("writing {path}"))?;
    }
    veth::ip(&format!("link set {device} up"))?;
    for (own, other) in own.into_iter().zip(neighbour.0) {
        let (prefix, nodad) = if own.is_ipv4() {
            (24, "")
        } else {
            (64, "nodad")
        };
        veth::ip(&format!("address add {own}/{prefix} dev {device} {nodad}"))?;
        let mac = neighbour.1;
        veth::ip(&format!(
            "neighbour replace {other} lladdr {mac} dev {device} nud permanent"
        ))?;
    }
    Ok(())
}

/// Waits until no more packets pass the device. Returns the number of packets that have passed.
fn await_silence(device: &str) -> Result<u64> {
    let mut before = packets_on_wire(device)?;
    await_for("the end of all traffic on the wire", LIMIT, || {
        thread::sleep(Duration::from_millis(250));
        let now = packets_on_wire(device)?;
        Ok((mem::replace(&mut before, now) == now).then_some(now))
    })
}

fn packets_on_wire(device: &str) -> Result<u64> {
    let counters = veth::counters(device)?;
    Ok(counters.received + counters.sent)
}
