//! Why a handle can't join a group on the XDP engine.

use crate::steered::SteerError;
use fanpcap_linux::process::memory::Limit;
use fanpcap_xdp::{BERTHS, ProgramError, Unavailable};
use std::fmt;
use std::io;

/// Why a handle can't join a group on the XDP engine.
#[derive(Debug)]
pub enum XdpError {
    /// The group's members are on the other engine.
    OtherEngine {
        /// The group's number.
        group: u16,
        /// Whether the group's members are on the XDP engine.
        has_xdp: bool,
    },
    /// The group's BPF program was detached from the device.
    Lost {
        /// The group's number.
        group: u16,
        /// The device.
        device: String,
    },
    /// A new group was asked for, and another handle has just taken its number.
    Taken {
        /// The group's number.
        group: u16,
    },
    /// The mode is one of the kernel's packet sockets.
    Unsteered {
        /// The group's number.
        group: u16,
        /// The mode.
        mode: String,
    },
    /// The steering program has no classes, and members of the group have.
    Unclassified {
        /// The group's number.
        group: u16,
        /// A member's class.
        class: u8,
    },
    /// Other groups are on the device, and none of their members could hand over what all groups on
    /// it share.
    Unreachable {
        /// The device.
        device: String,
        /// Why, member by member.
        reasons: String,
    },
    /// The device has as many groups as it may.
    Crowded {
        /// The device.
        device: String,
    },
    /// The device can't be captured from at XDP.
    Unavailable(Unavailable),
    /// The device's packets can't be given to the group.
    Serve(io::Error),
    /// The group's BPF program can't be loaded.
    Program(ProgramError),
    /// The rings can't be made.
    Rings(io::Error),
    /// The rings take more memory than the process may have.
    Memory {
        /// What they take, in bytes.
        needed: u64,
        /// Bytes of each packet that they keep.
        snaplen: u32,
        /// The limit that leaves the least, of the process's cgroup or of one above it.
        limit: Option<Limit>,
    },
    /// The locks of the groups can't be taken.
    Lock(SteerError),
    /// What the members share can't be kept.
    Locker(io::Error),
}

impl fmt::Display for XdpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherEngine { group, has_xdp } => {
                let (has, wants) = match has_xdp {
                    true => ("engine xdp", "packet sockets"),
                    false => ("packet sockets", "engine xdp"),
                };
                write!(
                    f,
                    "fan-out group {group} is on {has}, this handle on {wants}: all members of a group \
                     take the same engine, or use another group",
                )
            }
            Self::Lost { group, device } => write!(
                f,
                "fan-out group {group} gets no packets any more, as its BPF program was detached \
                 from {device}: close its members first, or use another group",
            ),
            Self::Taken { group } => write!(
                f,
                "fan-out group {group} was free and has members now: try again"
            ),
            Self::Unsteered { group, mode } => write!(
                f,
                "fan-out group {group} can't run mode {mode} on engine xdp: \
                 use flow or a steering program",
            ),
            Self::Unclassified { group, class } => write!(
                f,
                "fan-out group {group} has members of class {class}, which would get no packet: the \
                 new program has no 'classify'; close them first",
            ),
            Self::Unreachable { device, reasons } => write!(
                f,
                "other groups are on {device}, and no member hands over what they share: {reasons}",
            ),
            Self::Crowded { device } => write!(
                f,
                "{device} has {} groups on engine xdp, the most that it may: join one of them",
                BERTHS,
            ),
            Self::Unavailable(reason) => reason.fmt(f),
            Self::Serve(error) => write!(f, "the device's BPF program: {error}"),
            Self::Program(ProgramError::Compile(error)) => error.fmt(f),
            Self::Program(ProgramError::Load(error)) => error.fmt(f),
            Self::Memory {
                needed,
                snaplen,
                limit,
            } => write_memory(f, *needed, *snaplen, limit.as_ref()),
            Self::Rings(error) => write_part(f, "the rings", error),
            Self::Lock(error) => write!(f, "the device's lock: {error}"),
            Self::Locker(error) => write_part(f, "the group's locker", error),
        }
    }
}

/// Says what the rings take, and what to set.
fn write_memory(
    f: &mut fmt::Formatter<'_>,
    needed: u64,
    snaplen: u32,
    limit: Option<&Limit>,
) -> fmt::Result {
    write!(f, "the rings take {} MiB", needed >> 20)?;
    match limit {
        Some(Limit { bytes, used }) => {
            let (used, bytes) = (used >> 20, bytes >> 20);
            write!(
                f,
                ", of a memory limit of {bytes} MiB, of which {used} are in use"
            )?;
        }
        None => f.write_str(", and the kernel has no such memory")?,
    }
    f.write_str(": set ")?;
    if snaplen > SHORT {
        write!(f, "'caplen = {SHORT}' (a quarter of it) or ")?;
    }
    f.write_str("less by pcap_set_buffer_size() (tcpdump -B), or raise the limit")
}

/// With so many bytes of each packet the rings take a quarter.
const SHORT: u32 = 256;

/// Says why a part of the group can't be made. Where that is a privilege, names it.
fn write_part(f: &mut fmt::Formatter<'_>, part: &str, error: &io::Error) -> fmt::Result {
    write!(f, "{part}: {error}")?;
    if error.kind() == io::ErrorKind::PermissionDenied {
        return f.write_str(
            ": each member of a group on engine xdp needs CAP_BPF and CAP_NET_ADMIN when it opens \
             the device, which this application lacks or has given up before: have all members \
             keep them, or all take packet sockets",
        );
    }
    Ok(())
}

impl std::error::Error for XdpError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unavailable(reason) => Some(reason),
            Self::Lock(error) => Some(error),
            Self::Serve(error) | Self::Rings(error) | Self::Locker(error) => Some(error),
            Self::Program(ProgramError::Compile(error)) => Some(error),
            Self::Program(ProgramError::Load(error)) => Some(error),
            Self::OtherEngine { .. }
            | Self::Lost { .. }
            | Self::Taken { .. }
            | Self::Unsteered { .. }
            | Self::Unclassified { .. }
            | Self::Unreachable { .. }
            | Self::Crowded { .. }
            | Self::Memory { .. } => None,
        }
    }
}

impl XdpError {
    /// Whether the engine can't serve the handle, whatever its group: packet sockets may do.
    pub fn is_of_engine(&self) -> bool {
        !matches!(
            self,
            Self::OtherEngine { .. }
                | Self::Lost { .. }
                | Self::Taken { .. }
                | Self::Unsteered { .. }
                | Self::Unclassified { .. }
        )
    }

    /// The error's section in docs/errors.md.
    pub fn slug(&self) -> &'static str {
        match self {
            Self::OtherEngine { .. } => "group-on-other-engine",
            Self::Lost { .. } => "group-without-device",
            Self::Unsteered { .. } => "mode-not-on-xdp",
            Self::Unclassified { .. } => "class-without-classify",
            Self::Unreachable { .. } => "xdp-dock-unreachable",
            Self::Crowded { .. } => "xdp-device-is-crowded",
            Self::Unavailable(_) | Self::Serve(_) => "xdp-unavailable",
            Self::Program(_) => "xdp-program-refused",
            Self::Memory { .. } => "xdp-memory",
            Self::Rings(error) | Self::Locker(error)
                if error.kind() == io::ErrorKind::PermissionDenied =>
            {
                "xdp-program-refused"
            }
            Self::Lock(error) => error.slug(),
            Self::Taken { .. } | Self::Rings(_) | Self::Locker(_) => "system-call-failed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_keeps_few_bytes_of_each_packet_is_not_told_to_keep_fewer() {
        for (snaplen, is_told) in [(262_144, true), (257, true), (256, false), (96, false)] {
            let needed = 24 << 20;
            let limit = None;
            let memory = XdpError::Memory {
                needed,
                snaplen,
                limit,
            };
            let text = memory.to_string();
            assert_eq!(text.contains("caplen = 256"), is_told, "{text}");
            assert!(text.contains("less by pcap_set_buffer_size()"), "{text}");
        }
    }
}
