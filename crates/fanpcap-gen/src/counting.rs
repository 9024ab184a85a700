//! Counts the frames that a device sent, dropped and refused, by the device's counters and those of
//! a veth's peer.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::thread;

use fanpcap_linux::interface;
use fanpcap_linux::netlink::link::{self, Counters, Link};
use fanpcap_linux::process::netns;
use fanpcap_linux::wait::clock::{monotonic_ns, sleep_until};
use serde::Serialize;

/// A device's counters, and those of a veth's peer, at the time of [`Counting::start`].
#[derive(Debug)]
pub struct Counting {
    ifindex: u32,
    before: Counters,
    peer: Option<(End, Counters)>,
}

/// Packets counted since [`Counting::start`], from all senders.
#[derive(Clone, Debug, Serialize)]
pub struct Counted {
    /// Packets that the device sent.
    pub left: u64,
    /// Packets that the device dropped.
    pub dropped: u64,
    /// Our frames that the device refused: by its own counters, it neither sent nor dropped them.
    pub refused: u64,
    /// The peer of a veth device, if its counters are readable.
    pub peer: Option<Peer>,
}

/// The peer of a veth device.
#[derive(Clone, Debug, Serialize)]
pub struct Peer {
    /// The device's name in its namespace.
    pub name: String,
    /// The file of the peer's network namespace, if the peer is in another namespace than the
    /// device.
    pub namespace: Option<PathBuf>,
    /// Packets that the peer received.
    pub received: u64,
    /// Packets for which the peer had no room, or which no protocol or VLAN there accepts. It
    /// depends on the driver whether `received` includes these packets.
    pub dropped: u64,
}

/// A device and its namespace.
#[derive(Debug)]
struct End {
    ifindex: u32,
    elsewhere: Option<(OwnedFd, PathBuf)>,
}

/// [`Counting::finish`] takes the counters as final when they have not changed for [`QUIET`]
/// nanoseconds, and in any case after [`LONGEST`] nanoseconds.
const QUIET: u64 = 20_000_000;
const LONGEST: u64 = 1_000_000_000;

impl Counting {
    /// Starts to count, for a device of the calling thread's network namespace.
    ///
    /// # Errors
    /// The device does not exist.
    pub fn start(device: &str) -> io::Result<Self> {
        let ifindex = interface::find(device)?.ok_or(io::ErrorKind::NotFound)?;
        let link = link::get(ifindex)?;
        let peer = peer_of(&link).and_then(|end| {
            let before = end.ask().ok()?.counters;
            Some((end, before))
        });
        Ok(Self {
            ifindex,
            before: link.counters,
            peer,
        })
    }

    /// The packets counted until now. `sent` is the number of frames that the counters should
    /// include. Waits for counters that lag behind.
    ///
    /// # Errors
    /// The device is gone.
    pub fn finish(self, sent: u64) -> io::Result<Counted> {
        let accounted = |counters: &Counters| {
            let left = counters.tx_packets.saturating_sub(self.before.tx_packets);
            let dropped = counters.tx_dropped.saturating_sub(self.before.tx_dropped);
            (left, dropped)
        };
        let begin = monotonic_ns();
        let mut changed = begin;
        let mut counters = link::get(self.ifindex)?.counters;
        loop {
            let (left, dropped) = accounted(&counters);
            let now = monotonic_ns();
            if left + dropped >= sent || now > begin + LONGEST {
                break;
            }
            // Counters that have not changed at all may belong to a driver that updates them only
            // once a second.
            if left + dropped > 0 && now > changed + QUIET {
                break;
            }
            sleep_until(now + 1_000_000);
            let next = link::get(self.ifindex)?.counters;
            if next != counters {
                changed = monotonic_ns();
            }
            counters = next;
        }
        let (left, dropped) = accounted(&counters);
        Ok(Counted {
            left,
            dropped,
            refused: sent.saturating_sub(left + dropped),
            peer: self.peer.and_then(|(end, before)| end.since(&before)),
        })
    }
}

impl End {
    /// Queries the device in its own namespace.
    fn ask(&self) -> io::Result<Link> {
        let Some((namespace, _)) = &self.elsewhere else {
            return link::get(self.ifindex);
        };
        let within = || {
            netns::enter(namespace.as_fd())?;
            link::get(self.ifindex)
        };
        thread::scope(|scope| scope.spawn(within).join())
            .unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
    }

    fn since(self, before: &Counters) -> Option<Peer> {
        let link = self.ask().ok()?;
        let now = link.counters;
        Some(Peer {
            name: link.name,
            namespace: self.elsewhere.map(|(_, path)| path),
            received: now.rx_packets.saturating_sub(before.rx_packets),
            dropped: now.rx_dropped.saturating_sub(before.rx_dropped),
        })
    }
}

/// Finds a veth's peer in this namespace, in a namespace with a name, or in the namespace of a
/// process.
fn peer_of(link: &Link) -> Option<End> {
    let ifindex = link.peer.filter(|_| link.kind == "veth")?;
    let Some(number) = link.peer_namespace else {
        return Some(End {
            ifindex,
            elsewhere: None,
        });
    };
    let mut seen = BTreeSet::new();
    for path in namespaces() {
        // Skip namespaces that this process may not access, such as those of other users'
        // processes. Also skip namespaces that were seen before, because most processes share one.
        let Ok(metadata) = fs::metadata(&path) else {
            continue;
        };
        if !seen.insert(metadata.ino()) {
            continue;
        }
        let Ok(file) = File::open(&path) else {
            continue;
        };
        if link::namespace_number(file.as_fd()).ok().flatten() == Some(number) {
            return Some(End {
                ifindex,
                elsewhere: Some((file.into(), path)),
            });
        }
    }
    None
}

/// The files of all network namespaces. Namespaces with names come first.
fn namespaces() -> Vec<PathBuf> {
    let entries = |directory: &str| {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let mut all = entries("/run/netns");
    let processes = entries("/proc").into_iter().filter(|path| {
        let name = path.file_name().unwrap_or_default();
        name.as_encoded_bytes().iter().all(u8::is_ascii_digit)
    });
    all.extend(processes.map(|path| path.join("ns/net")));
    all
}
