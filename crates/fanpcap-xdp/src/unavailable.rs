//! Why XDP can't capture from a device, and why the engine does not serve a handle.

use crate::layout::GROUP_SLOTS;
use fanpcap_engine::Refusal;
use fanpcap_linux::bpf::LoadError;
use fanpcap_linux::process::memory::Limit;
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

impl From<Unavailable> for Refusal {
    fn from(reason: Unavailable) -> Self {
        // A BPF program whose name can't be read may belong to this engine, whose BPF programs have
        // this prefix. In this case, the device is busy only until the engine's members on it end.
        let is_own = |it: &Option<String>| it.as_ref().is_none_or(|it| it.starts_with("fanpcap_"));
        let is_busy = matches!(&reason, Unavailable::Foreign { name, .. } if is_own(name));
        Self {
            is_busy,
            ..Self::new(reason, "xdp-unavailable")
        }
    }
}

/// Returns the refusal for a device that already has the most groups.
pub fn crowded(device: &str) -> Refusal {
    let text = format!(
        "{device} has {GROUP_SLOTS} groups on engine xdp, the most that it may: join one of them"
    );
    Refusal::new(text, "xdp-device-is-crowded")
}

/// Returns the refusal for a device that can't give its packets to the group.
pub(crate) fn unserved(error: &io::Error) -> Refusal {
    let text = format!("the device's BPF program: {error}");
    Refusal::new(text, "xdp-unavailable")
}

/// Returns the refusal for a part of the group or of the member that can't be created.
pub(crate) fn of_part(part: &str, error: &io::Error) -> Refusal {
    if error.kind() != io::ErrorKind::PermissionDenied {
        return Refusal::new(format!("{part}: {error}"), "system-call-failed");
    }
    let text = format!("{part}: {error}{UNPRIVILEGED}");
    Refusal {
        lacks_privilege: true,
        ..Refusal::new(text, "xdp-program-refused")
    }
}

/// Returns the refusal for an entry that can't be put into the descriptor store of a group or of a
/// device.
pub(crate) fn of_store(error: io::Error) -> Refusal {
    of_part("the group's descriptor store", &error)
}

/// End of an error message: which privilege is missing.
const UNPRIVILEGED: &str = ": without a founder, each member of a group on engine xdp needs CAP_BPF \
     and CAP_NET_ADMIN when it opens the device, which this application lacks or has given up \
     before: found the group by 'fanpcap run' or 'fanpcap serve'";

/// Returns the refusal for a pool of `needed` bytes, which is more than the process may have.
/// `limit` is the limit of the process's cgroup or of a parent cgroup. Of several limits, it is the
/// one that leaves the least memory.
pub fn no_memory(needed: u64, limit: Option<Limit>) -> Refusal {
    let reason = match limit {
        Some(Limit { bytes, used }) => {
            let (bytes, used) = (bytes >> 20, used >> 20);
            format!("of the memory limit of {bytes} MiB, {used} MiB are in use")
        }
        None => "the kernel does not have enough memory".to_owned(),
    };
    let text = format!(
        "the rings take {} MiB, but {reason}: set a smaller ring ('ring@DEVICE = SIZE', \
         tcpdump -B), or raise the limit",
        needed >> 20
    );
    Refusal::new(text, "xdp-memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_lacks_a_privilege_is_told_which_members_need() {
        for (kind, slug) in [
            (io::ErrorKind::PermissionDenied, "xdp-program-refused"),
            (io::ErrorKind::OutOfMemory, "system-call-failed"),
        ] {
            let refusal = of_part("the rings", &kind.into());
            let (text, is_told) = (refusal.to_string(), kind == io::ErrorKind::PermissionDenied);
            assert_eq!(
                (text.contains("CAP_BPF and CAP_NET_ADMIN"), refusal.slug),
                (is_told, slug)
            );
            assert_eq!(refusal.lacks_privilege, is_told);
            assert!(text.starts_with(&format!("the rings: {kind}")), "{text}");
        }
    }
}
