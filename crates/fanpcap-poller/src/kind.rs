//! The kinds of sources in this build, by the names of their engines, and how each opens a device.

use crate::afxdp::{self, AfxdpSource};
use crate::packet::{self, PacketSource};
use crate::source::Source;
use fanpcap_linux::netlink::link::{self, Link};
use fanpcap_linux::wait::{ENETDOWN, ENODEV};
use fanpcap_linux::{bpf, ethtool};
use fanpcap_poll::LANES_MAX;
use std::error::Error;
use std::os::fd::OwnedFd;
use std::time::Duration;
use std::{fmt, io, thread};

mod of_netmap;
mod of_zc;

/// A kind of source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// A packet socket.
    Packet,
    /// AF_XDP sockets.
    Afxdp,
    /// Rings of netmap's kernel module.
    Netmap,
    /// Queues of PF_RING ZC.
    Zc,
    /// Devices of DPDK, which [`crate::dpdk`] opens.
    Dpdk,
}

/// The sources of a device's receive queues.
pub struct Opened {
    /// A source for each queue, in the order of the queues' numbers.
    pub sources: Vec<Box<dyn Source + Send>>,
    /// How packets come into the memory of this process, in words.
    pub way: &'static str,
    /// Descriptors to close after the sources, in a thread with the capabilities that opened them.
    pub last: Vec<OwnedFd>,
}

impl SourceKind {
    /// All kinds.
    pub const ALL: [Self; 5] = [
        Self::Packet,
        Self::Afxdp,
        Self::Netmap,
        Self::Zc,
        Self::Dpdk,
    ];

    /// The name of the engine.
    pub fn name(self) -> &'static str {
        match self {
            Self::Packet => "packet",
            Self::Afxdp => "afxdp",
            Self::Netmap => "netmap",
            Self::Zc => "zc",
            Self::Dpdk => "dpdk",
        }
    }

    /// Whether the devices are network interfaces. Others are opened by [`crate::dpdk`].
    pub fn has_interface(self) -> bool {
        self != Self::Dpdk
    }

    /// The kind whose engine has this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether the source takes the packets that the device receives from the host. Such a source
    /// gets frames as the device writes them, without a tag that the device has removed. The host
    /// does not have the devices of DPDK.
    pub fn steals(self) -> bool {
        !matches!(self, Self::Packet | Self::Dpdk)
    }

    /// Checks without privilege whether the source can be on a device. Changes nothing.
    ///
    /// # Errors
    /// See [`OpenError`]. Only an attempt shows whether the device can be opened.
    pub fn check(self, link: &Link) -> Result<(), OpenError> {
        match self {
            Self::Packet => Ok(()),
            Self::Afxdp => check_afxdp(link).map(drop),
            Self::Netmap => of_netmap::check(link).map(drop),
            Self::Zc => ensure_receives(link),
            Self::Dpdk => Err(OpenError::NoInterface),
        }
    }

    /// Opens the receive queues of a device of the calling thread's network namespace. Packets come
    /// from now on. A packet socket gets the packets of all receive queues of the device: `sockets`
    /// is how many of them share these packets.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(self, link: &Link, sockets: u16) -> Result<Opened, OpenError> {
        match self {
            Self::Packet => open_packet(link, sockets),
            Self::Afxdp => {
                let sources = open_afxdp(link)?;
                let mut all = sources.iter().map(|source| source.is_zero_copy());
                let is_zero_copy = all.all(|it| it.unwrap_or(false));
                let sources = sources
                    .into_iter()
                    .map(|source| -> Box<dyn Source + Send> { Box::new(source) });
                Ok(Opened {
                    sources: sources.collect(),
                    way: if is_zero_copy { ZERO_COPY } else { COPIES },
                    last: Vec::new(),
                })
            }
            Self::Netmap => of_netmap::open(link),
            Self::Zc => of_zc::open(link),
            Self::Dpdk => Err(OpenError::NoInterface),
        }
    }
}

const ZERO_COPY: &str = "zero-copy";
const COPIES: &str = "the kernel copies, because the driver has no zero-copy";

/// Why a device can't be opened.
#[derive(Debug)]
pub enum OpenError {
    /// The device was removed.
    Gone,
    /// The device is down.
    Down,
    /// The process lacks a capability.
    Privilege {
        /// The capabilities that the source needs.
        capabilities: &'static str,
        /// The kernel's error.
        error: io::Error,
    },
    /// The device is a loopback device, which has no driver.
    Loopback,
    /// The device's frames have no Ethernet header.
    NotEthernet,
    /// The device has more receive queues than a poller can have: the device's name, and the number
    /// of queues.
    Queues(String, u32),
    /// The device has an XDP program of another owner.
    Foreign {
        /// The device's name.
        device: String,
        /// The name of the BPF program, if this process may read it.
        name: Option<String>,
        /// The kernel's id of the BPF program.
        id: u32,
    },
    /// A queue has an AF_XDP socket of another process.
    InUse,
    /// The kernel lacks AF_XDP.
    Kernel,
    /// The devices of this kind are no network interfaces.
    NoInterface,
    /// The process may not lock the memory for the packets.
    Locked,
    /// The driver does not support XDP, or not with the device's present settings.
    Driver(io::Error),
    /// Another error of the kernel.
    System(io::Error),
    /// Another reason, and what to do, in words.
    Told(String),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gone => "the device was removed",
            Self::Down => "the device is down: 'ip link set DEVICE up'",
            Self::Loopback => {
                "a loopback device has no driver that receives: the engine packet captures there"
            }
            Self::NotEthernet => "the device's frames are not Ethernet",
            Self::InUse => {
                "a queue of the device has an AF_XDP socket of another process: end that process"
            }
            Self::NoInterface => "a device of DPDK is no network interface",
            Self::Kernel => "this kernel has no AF_XDP (CONFIG_XDP_SOCKETS)",
            Self::Locked => {
                "this process may not lock the memory for packets, 16 MiB for each queue: raise \
                 that limit (ulimit -l unlimited, LimitMEMLOCK=infinity in a unit)"
            }
            Self::Privilege {
                capabilities,
                error,
            } => {
                return write!(
                    f,
                    "the device can't be opened without {capabilities}: {error}"
                );
            }
            Self::Queues(device, queues) => {
                return write!(
                    f,
                    "the device has {queues} receive queues, but a poller takes {LANES_MAX} at \
                     most: 'ethtool -L {device} combined {LANES_MAX}'"
                );
            }
            Self::Foreign { device, name, id } => {
                let name = name.as_deref().unwrap_or("a BPF program");
                return write!(
                    f,
                    "the device has another XDP program already, {name} (id {id}), and can have \
                     only one: end the process that has attached it, or serve packet:{device}"
                );
            }
            Self::Driver(error) => {
                return write!(
                    f,
                    "the device's driver takes no XDP program (or not with this MTU, LRO or number \
                     of queues): {error}"
                );
            }
            Self::System(error) => return error.fmt(f),
            Self::Told(text) => text.as_str(),
        })
    }
}

impl Error for OpenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Privilege { error, .. } | Self::Driver(error) | Self::System(error) => {
                Some(error)
            }
            Self::Gone
            | Self::Down
            | Self::Loopback
            | Self::NotEthernet
            | Self::Queues(..)
            | Self::Foreign { .. }
            | Self::InUse
            | Self::Kernel
            | Self::NoInterface
            | Self::Locked
            | Self::Told(_) => None,
        }
    }
}

/// The errors that all kinds have.
fn refused(error: io::Error) -> OpenError {
    match error.raw_os_error() {
        Some(ENODEV) => OpenError::Gone,
        Some(ENETDOWN) => OpenError::Down,
        _ => OpenError::System(error),
    }
}

fn of_packet(error: io::Error) -> OpenError {
    let kind = error.kind();
    if kind == io::ErrorKind::Unsupported || error.raw_os_error() == Some(EOPNOTSUPP) {
        return OpenError::NotEthernet;
    }
    if kind != io::ErrorKind::PermissionDenied {
        return refused(error);
    }
    OpenError::Privilege {
        capabilities: "CAP_NET_RAW",
        error,
    }
}

fn of_afxdp(error: io::Error) -> OpenError {
    match (error.kind(), error.raw_os_error()) {
        (io::ErrorKind::PermissionDenied, _) => OpenError::Privilege {
            capabilities: "CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF",
            error,
        },
        (_, Some(EAFNOSUPPORT)) => OpenError::Kernel,
        (_, Some(ENOBUFS)) => OpenError::Locked,
        (io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput, _)
        | (_, Some(ERANGE | EOPNOTSUPP)) => OpenError::Driver(error),
        _ => refused(error),
    }
}

/// The blocks of a packet socket. The kernel begins a new one each millisecond, however few packets
/// come. So a thread that does not run for 128 ms loses no packet.
const BLOCKS: u32 = 128;

fn open_packet(link: &Link, sockets: u16) -> Result<Opened, OpenError> {
    let options = packet::Options {
        blocks: BLOCKS,
        ..packet::Options::default()
    };
    if sockets == 1 {
        let source = PacketSource::open(link.index, options).map_err(of_packet)?;
        return Ok(Opened {
            sources: vec![Box::new(source)],
            way: "a packet socket",
            last: Vec::new(),
        });
    }
    if !link.is_up() {
        // A socket joins a group only if packets can come to it.
        return Err(OpenError::Down);
    }
    let sources = PacketSource::open_shared(link.index, options, sockets);
    let sources = sources.map_err(of_packet)?.into_iter();
    Ok(Opened {
        sources: sources
            .map(|it| -> Box<dyn Source + Send> { Box::new(it) })
            .collect(),
        way: "packet sockets that share its flows",
        last: Vec::new(),
    })
}

/// Opens all receive queues of a device. Waits for those of a process that has just ended, because
/// the kernel frees them a moment later.
fn open_afxdp(link: &Link) -> Result<Vec<AfxdpSource>, OpenError> {
    let queues = check_afxdp(link)?;
    for attempt in 1.. {
        match afxdp::open(link.index, queues) {
            Ok(sources) => return Ok(sources),
            Err(error) if is_busy(&error) => {
                let other = link::get(link.index).map_err(refused)?;
                ensure_no_foreign(&other)?;
            }
            Err(error) => return Err(of_afxdp(error)),
        }
        if attempt == ATTEMPTS {
            break;
        }
        thread::sleep(BETWEEN);
    }
    Err(OpenError::InUse)
}

const ATTEMPTS: u32 = 40;
const BETWEEN: Duration = Duration::from_millis(50);

fn is_busy(error: &io::Error) -> bool {
    let kinds = [io::ErrorKind::ResourceBusy, io::ErrorKind::AlreadyExists];
    kinds.contains(&error.kind())
}

/// Checks without privilege whether the source can be on a device. Returns the number of queues.
fn check_afxdp(link: &Link) -> Result<u16, OpenError> {
    ensure_receives(link)?;
    ensure_no_foreign(link)?;
    let device = ethtool::Device::find(link.index).map_err(refused)?;
    // A driver that does not report its queues has one.
    ensure_few(link, device.receive_queues().unwrap_or(1))
}

/// Checks that a driver receives Ethernet frames for the device.
fn ensure_receives(link: &Link) -> Result<(), OpenError> {
    if link.flags & IFF_LOOPBACK != 0 {
        return Err(OpenError::Loopback);
    }
    if link.hardware != ARPHRD_ETHER {
        return Err(OpenError::NotEthernet);
    }
    if !link.is_up() {
        return Err(OpenError::Down);
    }
    Ok(())
}

/// The number of a device's receive queues, if a poller can have so many.
fn ensure_few(link: &Link, queues: u32) -> Result<u16, OpenError> {
    let fits = u16::try_from(queues).ok().filter(|_| queues <= LANES_MAX);
    fits.ok_or_else(|| OpenError::Queues(link.name.clone(), queues))
}

/// Checks that the device has no XDP program, except that of a poller that may just have ended.
fn ensure_no_foreign(link: &Link) -> Result<(), OpenError> {
    let Some(xdp) = link.xdp else {
        return Ok(());
    };
    let name = bpf::program_name(xdp.program).ok();
    if name.as_deref() == Some(afxdp::NAME) {
        return Ok(());
    }
    Err(OpenError::Foreign {
        device: link.name.clone(),
        name,
        id: xdp.program,
    })
}

// linux/if.h, linux/if_arp.h, errno(3).
const IFF_LOOPBACK: u32 = 1 << 3;
const ARPHRD_ETHER: u16 = 1;
const ERANGE: i32 = 34;
/// `io::ErrorKind::Unsupported` for newer versions of Rust only.
const EOPNOTSUPP: i32 = 95;
const EAFNOSUPPORT: i32 = 97;
const ENOBUFS: i32 = 105;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_found_by_its_name() {
        for kind in SourceKind::ALL {
            assert_eq!(SourceKind::named(kind.name()), Some(kind));
        }
        assert_eq!(SourceKind::named("eth0"), None);
    }

    #[test]
    fn the_host_loses_packets_of_its_own_devices_only() {
        let stealing = SourceKind::ALL.into_iter().filter(|kind| kind.steals());
        let names: Vec<&str> = stealing.map(SourceKind::name).collect();
        assert_eq!(names, ["afxdp", "netmap", "zc"]);
    }

    #[test]
    fn what_the_source_can_not_be_on_is_told() {
        let link = |change: &dyn Fn(&mut Link)| {
            let mut link = Link {
                flags: 1, // IFF_UP
                hardware: ARPHRD_ETHER,
                ..Link::default()
            };
            change(&mut link);
            check_afxdp(&link).unwrap_err()
        };
        let error = link(&|it| it.flags |= IFF_LOOPBACK);
        assert!(matches!(error, OpenError::Loopback));
        let error = link(&|it| it.hardware = 65_534);
        assert!(matches!(error, OpenError::NotEthernet));
        assert!(matches!(link(&|it| it.flags = 0), OpenError::Down));
    }

    #[test]
    fn an_error_of_the_kernel_is_explained() {
        let told = |number| of_afxdp(io::Error::from_raw_os_error(number)).to_string();
        assert!(told(EAFNOSUPPORT).contains("CONFIG_XDP_SOCKETS"));
        assert!(told(ENOBUFS).contains("LimitMEMLOCK"));
        assert!(told(ERANGE).contains("MTU"));
        assert!(told(1).contains("CAP_NET_ADMIN"));
        assert!(told(ENETDOWN).contains("is down"));
        let many = OpenError::Queues("eth0".to_owned(), 128).to_string();
        assert!(many.contains("128 receive queues") && many.contains("'ethtool -L eth0"));
    }
}
