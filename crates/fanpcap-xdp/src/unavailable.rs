//! Why XDP can't capture from a device.

use fanpcap_linux::bpf::LoadError;
use std::error::Error;
use std::{fmt, io};

/// Why XDP can't capture from a device.
#[derive(Debug)]
pub enum Unavailable {
    /// The device is `any`, which means all devices. So it has no driver.
    AnyDevice,
    /// The device is a loopback device, which has no driver that could run an XDP program.
    Loopback,
    /// The device's frames are not Ethernet.
    NotEthernet,
    /// The device is a bridge, or another kind without a driver that could run an XDP program.
    Kind(String),
    /// The device takes VLAN tags out of frames before an XDP program gets the frames. The value is
    /// the device's name.
    TakesVlanTags(String),
    /// The device has an XDP program of another application.
    Foreign {
        /// The BPF program's name, if this process may read it.
        name: Option<String>,
        /// The kernel's id of the BPF program.
        id: u32,
    },
    /// The driver does not support XDP, or does not support it with the device's present settings.
    Driver(io::Error),
    /// The kernel is older than Linux 5.18.
    Kernel,
    /// The kernel is fully preemptible (PREEMPT_RT): BPF programs on one CPU may interrupt each
    /// other, but each CPU's block has one writer.
    Realtime,
    /// The machine may have more CPUs than a group has lanes. The value is the number of CPUs.
    Cpus(u32),
    /// The group has no BPF program for packets that the host sends. The value is the reason;
    /// `None` means that the kernel has no hook for such a BPF program.
    Sent(Option<String>),
    /// The kernel refuses a BPF program or a map, usually because a capability is missing.
    Load(LoadError),
    /// The device's properties can't be read.
    Device(io::Error),
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AnyDevice => f.write_str("the device any has no driver: name one device"),
            Self::Loopback => f.write_str("a loopback device has no driver that receives"),
            Self::NotEthernet => f.write_str("the device's frames are not Ethernet"),
            Self::Kind(kind) => write!(
                f,
                "a device of the kind {kind} has no driver that receives: capture on its ports"
            ),
            Self::TakesVlanTags(device) => write!(
                f,
                "the device takes VLAN tags out of frames: \
                 'ethtool -K {device} rxvlan off' leaves them there"
            ),
            Self::Foreign { name, id } => {
                let name = name.as_deref().unwrap_or("a BPF program");
                write!(
                    f,
                    "the device has another XDP program already, {name} (id {id}), \
                     and can have only one"
                )
            }
            Self::Driver(error) => write!(
                f,
                "the device's driver takes no XDP program \
                 (or not with this MTU, LRO or number of queues): {error}"
            ),
            Self::Kernel => f.write_str("the kernel is older than Linux 5.18"),
            Self::Realtime => f.write_str("the kernel is a real-time kernel (PREEMPT_RT)"),
            Self::Cpus(possible) => write!(
                f,
                "the machine may have {possible} CPUs, more than the engine can serve"
            ),
            Self::Sent(reason) => {
                f.write_str("packets that the host sends can't be captured")?;
                match reason {
                    Some(reason) => write!(f, " ({reason})")?,
                    None => f.write_str(" before Linux 6.6")?,
                }
                f.write_str(": 'outgoing@DEVICE = no' leaves them out")
            }
            Self::Load(error) => error.fmt(f),
            Self::Device(error) => write!(f, "the device's properties can't be read: {error}"),
        }
    }
}

impl Error for Unavailable {}
