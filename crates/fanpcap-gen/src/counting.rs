//! What became of frames: the counters of the device, and of the other end of a veth pair.

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

/// The counters of a device as they were at the beginning.
#[derive(Debug)]
pub struct Counting {
    ifindex: u32,
    before: Counters,
    peer: Option<(End, Counters)>,
}

/// What was counted meanwhile, whoever sent it.
#[derive(Clone, Debug, Serialize)]
pub struct Counted {
    /// Packets that left the device.
    pub left: u64,
    /// Packets that the device counted as dropped.
    pub dropped: u64,
    /// Frames of ours that it counted neither as the one nor as the other: it refused them.
    pub refused: u64,
    /// The other end of a veth pair, if its counters could be read.
    pub peer: Option<Peer>,
}

/// The other end of a veth pair.
#[derive(Clone, Debug, Serialize)]
pub struct Peer {
    /// The device's name, where it is.
    pub name: String,
    /// Where it is, if that is elsewhere: the file that stands for its network namespace.
    pub namespace: Option<PathBuf>,
    /// Packets that arrived there.
    pub received: u64,
    /// Packets that it had no room for, or that nobody there wanted: of a VLAN or a protocol that
    /// it has not. Drivers differ in whether they are among those that arrived.
    pub dropped: u64,
}

/// Where a device is.
#[derive(Debug)]
struct End {
    ifindex: u32,
    elsewhere: Option<(OwnedFd, PathBuf)>,
}

/// After this many nanoseconds without change counters are taken for final; after that many in any
/// case.
const QUIET: u64 = 20_000_000;
const LONGEST: u64 = 1_000_000_000;

impl Counting {
    /// Begins now, for a device of the calling thread's network namespace.
    ///
    /// # Errors
    /// When there is no such device.
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

    /// What was counted until now, of which `sent` frames should be; waits for counters that are
    /// late.
    ///
    /// # Errors
    /// When the device is gone.
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
            // Counters that have not moved at all may come once a second.
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
    /// Asks for the device, in its own namespace.
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

/// The other end of a veth pair: here, in a namespace with a name, or in that of another process.
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
        // Most processes share a namespace, and others' may not be looked at.
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

/// Files that stand for network namespaces, those with names first.
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
