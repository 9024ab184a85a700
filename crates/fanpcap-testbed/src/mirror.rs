//! A mirror port on one machine: each frame sent on one device arrives at each of several nodes.

use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process;

use anyhow::{Context, Result};

use crate::{netns, veth};

/// The device in the calling thread's namespace on which the mirrored traffic is sent.
pub const WIRE: &str = "wire";

/// The device in each node's namespace on which the traffic arrives. It has no address.
pub const MONITOR: &str = "mon";

/// As [`WIRE`] and [`MONITOR`], of the second leg: see [`Mirror::add_leg`].
pub const WIRE2: &str = "wire2";
/// See [`WIRE2`].
pub const MONITOR2: &str = "mon2";

/// The device in each node's namespace for everything else: control messages, records.
pub const CONTROL: &str = "ctl";

/// The address of the calling thread's namespace on the control network.
pub const HOST: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 254);

/// The other ends of [`WIRE`] and [`WIRE2`].
const INLET: &str = "inlet";
const INLET2: &str = "inlet2";
/// The bridge that joins the control devices of all nodes.
const BRIDGE: &str = "control";
const ADDRESS: &str = "02:00:00:00:00:fe";

/// Nodes behind a mirror port, each in a separate network namespace, and a control network that
/// connects them with the calling thread's namespace.
///
/// tc's mirred action copies the frames, in the softirq that the sender's system call runs. So the
/// copies to all nodes cost the sender time. In a measurement at top speed with four nodes, 260,000
/// frames a second arrived at each node, and none was lost. If a node's CPU is busy, its ring of
/// 256 frames fills up, and further frames wait in the queue of its port ([`veth::queue`]). An XDP
/// program that broadcasts to the nodes would have no such queue, and frames would be lost.
#[derive(Debug)]
pub struct Mirror {
    nodes: Vec<OwnedFd>,
}

impl Mirror {
    /// Moves the calling thread to a new namespace, which has [`WIRE`] and the host's end of the
    /// control network, and creates `count` nodes. The namespaces and devices exist until the
    /// thread has ended, this value is dropped, and all processes started in the namespaces have
    /// ended.
    ///
    /// # Errors
    /// Namespaces or devices can't be created (this needs root).
    pub fn new(count: usize) -> Result<Self> {
        netns::enter_quiet()?;
        // A bridge for which no address is set uses the lowest address of its ports. With each port
        // that joins, this address may change, and nodes would send to the old address for half a
        // minute.
        veth::ip(&format!(
            "link add {BRIDGE} address {ADDRESS} type bridge forward_delay 0 mcast_snooping 0"
        ))?;
        veth::ip(&format!("address add {HOST}/24 dev {BRIDGE}"))?;
        veth::ip(&format!("link set {BRIDGE} up"))?;
        veth::ip(&format!("route add 224.0.0.0/4 dev {BRIDGE}"))?;
        wire(WIRE, INLET)?;
        let mut mirror = Self { nodes: Vec::new() };
        for _ in 0..count {
            mirror.add()?;
        }
        Ok(mirror)
    }

    /// The number of nodes.
    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    /// Adds a node and returns its number, from 0.
    ///
    /// # Errors
    /// The namespace or its devices can't be created.
    pub fn add(&mut self) -> Result<usize> {
        let node = self.nodes.len();
        let own = netns::current()?;
        netns::enter_quiet()?;
        let theirs = netns::current();
        netns::enter(own.as_fd())?;
        let theirs = theirs?;
        let path = format!("/proc/{}/fd/{}", process::id(), theirs.as_raw_fd());
        self.nodes.push(theirs);
        let link = link(node);
        veth::ip(&format!(
            "link add {link} type veth peer name {CONTROL} netns {path}"
        ))?;
        veth::ip(&format!("link set {link} master {BRIDGE} up"))?;
        self.on_node(node, || configure(address(node)))?;
        self.add_port(node, &port(node), MONITOR)?;
        veth::await_up(&link)?;
        self.set_loss(node, 0.0)?;
        Ok(node)
    }

    /// Gives the mirror a second leg, as a tap has, to each node that there is: each frame sent on
    /// [`WIRE2`] arrives at [`MONITOR2`] of each of these nodes.
    ///
    /// # Errors
    /// The devices can't be created.
    pub fn add_leg(&self) -> Result<()> {
        wire(WIRE2, INLET2)?;
        for node in 0..self.count() {
            let port = port2(node);
            self.add_port(node, &port, MONITOR2)?;
            copy(INLET2, node, &port, 0.0)?;
        }
        Ok(())
    }

    /// Adds a mirror port, with its device in the node's namespace.
    fn add_port(&self, node: usize, port: &str, monitor: &str) -> Result<()> {
        let theirs = self.nodes.get(node).context("no such node")?;
        let path = format!("/proc/{}/fd/{}", process::id(), theirs.as_raw_fd());
        veth::ip(&format!(
            "link add {port} type veth peer name {monitor} netns {path}"
        ))?;
        veth::offloads_off(port)?;
        // Mirrored frames have their tags, as on a wire.
        veth::tags_into_frames(port)?;
        veth::queue(port)?;
        veth::ip(&format!("link set {port} arp off up"))?;
        self.on_node(node, || {
            veth::offloads_off(monitor)?;
            veth::ip(&format!("link set {monitor} arp off up"))
        })?;
        veth::await_up(port)
    }

    /// Runs `work` in a node's network namespace. Processes that `work` starts stay there.
    ///
    /// # Errors
    /// The errors of `work`, or no node has this number.
    pub fn on_node<T>(&self, node: usize, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let theirs = self.nodes.get(node).context("no such node")?;
        let own = netns::current()?;
        netns::enter(theirs.as_fd())?;
        let result = work();
        netns::enter(own.as_fd())?;
        result
    }

    /// Makes the node's mirror port drop the given share of the frames at random: 0 drops none, 1
    /// drops all.
    ///
    /// # Errors
    /// `tc` failed; the message has its output.
    pub fn set_loss(&self, node: usize, share: f64) -> Result<()> {
        copy(INLET, node, &port(node), share)
    }

    /// Cuts a node off the control network, or joins it again. After a join, both ends can send.
    /// The node's mirrored traffic continues.
    ///
    /// # Errors
    /// `ip` failed, the message has its output; or the link doesn't come up.
    pub fn set_control(&self, node: usize, joined: bool) -> Result<()> {
        let state = if joined { "up" } else { "down" };
        veth::ip(&format!("link set {} {state}", link(node)))?;
        if joined {
            veth::await_up(&link(node))?;
            self.on_node(node, || veth::await_up(CONTROL))?;
        }
        Ok(())
    }

    /// Makes a node drop each IPv4 packet that arrives from the control network. What it sends
    /// still arrives elsewhere.
    ///
    /// # Errors
    /// `tc` failed; the message has its output.
    pub fn deafen(&self, node: usize) -> Result<()> {
        self.drop_control(node, &["ingress"], 1.0)
    }

    /// Makes the control network drop the given share of the IPv4 packets that a node sends and
    /// gets, at random.
    ///
    /// # Errors
    /// `tc` or `ethtool` failed; the message has its output.
    pub fn lose_control(&self, node: usize, share: f64) -> Result<()> {
        // Else the packets that a node sends have up to 64 KiB, of many segments.
        self.on_node(node, || veth::offloads_off(CONTROL))?;
        self.drop_control(node, &["ingress", "egress"], share)
    }

    /// The kernel may lack tc's `drop`, so packets leave by the mirror port, at whose other end
    /// nobody listens.
    fn drop_control(&self, node: usize, sides: &[&str], share: f64) -> Result<()> {
        let code = bytecode(1.0 - share);
        let select = ["protocol", "ip", "bpf", "bytecode", &code];
        let action = ["action", "mirred", "egress", "redirect", "dev", MONITOR];
        self.on_node(node, || {
            veth::tc(&["qdisc", "add", "dev", CONTROL, "clsact"])?;
            sides.iter().try_for_each(|side| {
                let filter = ["filter", "add", "dev", CONTROL, side];
                veth::tc(&[&filter[..], &select, &action].concat())
            })
        })
    }

    /// The number of frames given to the node's mirror port, by the device's counter. Packets that
    /// [`Mirror::set_loss`] drops are not included.
    ///
    /// # Errors
    /// No node has this number.
    pub fn forwarded(&self, node: usize) -> Result<u64> {
        Ok(veth::counters(&port(node))?.sent)
    }

    /// The number of frames that the machine dropped between the sender and each node. These drops
    /// happen before the node's kernel receives the frames.
    ///
    /// # Errors
    /// A device is gone.
    pub fn dropped(&self) -> Result<Vec<u64>> {
        let inlet = veth::counters(WIRE)?.send_dropped;
        let of = |node| Ok(inlet + veth::counters(&port(node))?.send_dropped);
        (0..self.count()).map(of).collect()
    }
}

/// The node's address on the control network.
///
/// # Panics
/// The number is 253 or more: the network has no address for such a node.
pub fn address(node: usize) -> Ipv4Addr {
    let last = u8::try_from(node + 1).expect("a node's number is below 253");
    Ipv4Addr::new(192, 0, 2, last)
}

/// The host's end of a node's mirror port.
fn port(node: usize) -> String {
    format!("port{node}")
}

/// The host's end of a node's second mirror port.
pub fn port2(node: usize) -> String {
    format!("port{node}b")
}

/// Creates a device on which frames are sent, and the other end, from which they are copied.
fn wire(name: &'static str, inlet: &'static str) -> Result<()> {
    veth::Veth::new(name, inlet, 1)?;
    veth::tc(&["qdisc", "add", "dev", inlet, "clsact"])
}

/// Copies frames to a node's mirror port, but for a share that is dropped at random.
fn copy(inlet: &str, node: usize, port: &str, share: f64) -> Result<()> {
    let (preference, code) = ((node + 1).to_string(), bytecode(share));
    let filter = ["filter", "replace", "dev", inlet, "ingress"];
    let place = ["pref", &preference, "handle", "1", "protocol", "all"];
    let select = ["bpf", "bytecode", &code];
    // After `continue` the next node's filter gets the frame.
    let copy = [
        "action", "mirred", "egress", "mirror", "dev", port, "continue",
    ];
    veth::tc(&[&filter[..], &place, &select, &copy].concat())
}

/// The host's end of a node's control link.
fn link(node: usize) -> String {
    format!("link{node}")
}

/// Configures the control device of a node, in its namespace.
fn configure(address: Ipv4Addr) -> Result<()> {
    veth::ip(&format!("address add {address}/24 dev {CONTROL}"))?;
    veth::ip(&format!("link set {CONTROL} up"))?;
    veth::ip(&format!("route add 224.0.0.0/4 dev {CONTROL}"))
}

/// A classic BPF program, in the syntax of tc(8), that rejects this share of frames at random.
fn bytecode(share: f64) -> String {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "`as` saturates"
    )]
    let least = (share * f64::from(u32::MAX)) as u32;
    let accept = format!("6 0 0 {}", u32::MAX);
    if least == 0 {
        return format!("1,{accept},");
    }
    // Load the random number, jump by `A >= least`, accept, reject.
    format!("4,32 0 0 {RANDOM},53 0 1 {least},{accept},6 0 0 0,")
}

/// The address at which classic BPF loads a random number: `SKF_AD_OFF + SKF_AD_RANDOM`.
const RANDOM: u32 = 0xffff_f038;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use anyhow::ensure;
    use fanpcap_linux::packet::inject::Injector;

    use super::*;
    use crate::await_for::{LIMIT, await_for};

    const FRAMES: usize = 100_000;

    #[test]
    #[ignore = "needs root: network namespaces"]
    fn every_frame_arrives_at_every_node() {
        netns::within_new(|| {
            let mut mirror = Mirror::new(3)?;
            let each = send(&mirror)?;
            assert_eq!(each, [FRAMES; 3]);
            mirror.add()?;
            mirror.set_loss(1, 0.01)?;
            mirror.set_loss(2, 1.0)?;
            let each = send(&mirror)?;
            assert_eq!([each[0], each[2], each[3]], [FRAMES, 0, FRAMES]);
            let lost = FRAMES - each[1];
            assert!((800..1200).contains(&lost), "{lost} lost of 1 %");
            Ok(())
        })
        .unwrap();
    }

    /// The node's kernel polls for frames only every five milliseconds. Frames that do not fit into
    /// the device's ring must wait in the queue.
    #[test]
    #[ignore = "needs root: network namespaces, sysfs"]
    fn a_node_that_takes_frames_now_and_then_gets_all() {
        const NOW_AND_THEN: &str = "mount -t sysfs none /sys && cd /sys/class/net/mon && \
             echo 100 >napi_defer_hard_irqs && echo 5000000 >gro_flush_timeout";
        netns::within_new(|| {
            let mirror = Mirror::new(1)?;
            mirror.on_node(0, || {
                // With offloads on, the device has a ring of 256 frames, as with an XDP program.
                veth::offloads_on(MONITOR)?;
                let unshare = ["-m", "sh", "-c", NOW_AND_THEN];
                let done = Command::new("unshare").args(unshare).status()?;
                ensure!(done.success(), "{NOW_AND_THEN}");
                Ok(())
            })?;
            let each = send(&mirror)?;
            if is_before(6, 16)? {
                println!("SKIP: before Linux 6.16 veth drops frames where a ring is full");
                return Ok(());
            }
            assert_eq!((each, mirror.dropped()?), (vec![FRAMES], vec![0]));
            Ok(())
        })
        .unwrap();
    }

    #[test]
    #[ignore = "needs root: network namespaces"]
    fn nodes_talk_over_the_control_network() {
        use std::net::UdpSocket;
        netns::within_new(|| {
            let mirror = Mirror::new(2)?;
            let host = UdpSocket::bind((HOST, 0))?;
            host.set_read_timeout(Some(LIMIT))?;
            let there = mirror.on_node(1, || Ok(UdpSocket::bind((address(1), 0))?))?;
            there.send_to(b"hello", host.local_addr()?)?;
            assert_eq!(host.recv_from(&mut [0; 16])?.1, there.local_addr()?);
            mirror.set_control(1, false)?;
            there.send_to(b"hello", host.local_addr()?)?;
            host.set_read_timeout(Some(LIMIT / 50))?;
            assert!(host.recv_from(&mut [0; 16]).is_err());
            mirror.set_control(1, true)?;
            host.set_read_timeout(Some(LIMIT / 1000))?;
            // A link that has just come up may drop a datagram.
            await_for("a datagram", LIMIT, || {
                there.send_to(b"again", host.local_addr()?)?;
                Ok(host.recv_from(&mut [0; 16]).ok())
            })?;
            Ok(())
        })
        .unwrap();
    }

    fn is_before(major: u32, minor: u32) -> Result<bool> {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
        let mut numbers = release.split(|sign: char| !sign.is_ascii_digit());
        let mut number = || numbers.next().and_then(|it| it.parse().ok()).unwrap_or(0);
        Ok((number(), number()) < (major, minor))
    }

    /// Sends the frames as fast as possible. Returns how many arrived at each node.
    fn send(mirror: &Mirror) -> Result<Vec<usize>> {
        let frames: Vec<Vec<u8>> = (0..1000).map(frame).collect();
        let before = arrived(mirror)?;
        let injector = Injector::open(WIRE)?;
        for _ in 0..FRAMES / frames.len() {
            injector.send_all(&frames)?;
        }
        let mut last = before.clone();
        let after = await_for("the frames to arrive", LIMIT, || {
            let now = arrived(mirror)?;
            let is_still = std::mem::replace(&mut last, now.clone()) == now;
            std::thread::sleep(std::time::Duration::from_millis(50));
            Ok(is_still.then_some(now))
        })?;
        let each = after
            .iter()
            .zip(before)
            .map(|(after, before)| after - before);
        each.map(|count| Ok(usize::try_from(count)?)).collect()
    }

    /// A broadcast frame of 60 to 271 bytes, with the EtherType for local experiments (IEEE 802).
    fn frame(number: usize) -> Vec<u8> {
        let mut frame = [0xff; 6].to_vec();
        frame.extend([0x02, 0, 0, 0, 0, 0x0a, 0x88, 0xb5]);
        frame.resize(60 + number % 212, 0x5a);
        frame
    }

    fn arrived(mirror: &Mirror) -> Result<Vec<u64>> {
        let count = |node| mirror.on_node(node, || Ok(veth::counters(MONITOR)?.received));
        (0..mirror.count()).map(count).collect()
    }
}
