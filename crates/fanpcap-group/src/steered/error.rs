//! Why a member can't use the steering program of its group.

use fanpcap_linux::bpf::LoadError;
use fanpcap_linux::packet::optmem::NoRoom;
use fanpcap_linux::process::stat::Stat;
use std::{fmt, io};

/// Why a member can't use the steering program of its group.
#[derive(Debug)]
pub enum SteerError {
    /// The kernel refused to load a BPF program.
    Load(LoadError),
    /// A socket has no room for the filter.
    NoRoom(NoRoom),
    /// The kernel refused to attach a filter or the steering part.
    Attach(io::Error),
    /// The socket's filter can't be read.
    Read(io::Error),
    /// The filtering part can't be loaded together with the handle's own filter.
    Beside,
    /// The locks of the groups can't be taken.
    Pages(io::Error),
    /// Another thread or process is changing the steering program, or was changing it when this
    /// process forked.
    Busy,
    /// As [`SteerError::Busy`]. Holds the process that has the lock.
    BusyBy(Stat),
}

impl fmt::Display for SteerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load(error) => error.fmt(f),
            Self::NoRoom(no_room) => no_room.fmt(f),
            Self::Attach(error) => write!(f, "SO_ATTACH_BPF: {error}"),
            Self::Read(error) => write!(f, "SO_GET_FILTER: {error}"),
            Self::Beside => f.write_str(
                "it can't be loaded together with a member's own filter: write shorter ones, or set \
                 net.core.optmem_max higher",
            ),
            Self::Pages(error) => write!(f, "can't lock the group's pages: {error}"),
            Self::Busy => f.write_str("another thread or process is changing it: try again"),
            Self::BusyBy(process) => {
                let (pid, is_stopped) = (process.pid, process.is_stopped());
                let [state, remedy] = match is_stopped {
                    true => [", which is stopped,", "continue or end that process"],
                    false => ["", "try again"],
                };
                write!(f, "process {pid}{state} is changing it: {remedy}")
            }
        }
    }
}

impl std::error::Error for SteerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Load(error) => Some(error),
            Self::Attach(error) | Self::Read(error) | Self::Pages(error) => Some(error),
            Self::NoRoom(_) | Self::Beside | Self::Busy | Self::BusyBy(_) => None,
        }
    }
}

impl SteerError {
    /// Whether the process lacks the privilege to load BPF programs.
    pub(crate) fn is_of_privilege(&self) -> bool {
        matches!(self, Self::Load(LoadError::Privilege { .. }))
    }

    /// The error's section in docs/errors.md.
    pub fn slug(&self) -> &'static str {
        match self {
            Self::Load(LoadError::Privilege { .. }) => "program-needs-cap-bpf",
            Self::Load(LoadError::Locked { .. }) => "program-and-locked-memory",
            Self::Load(LoadError::Refused(_)) => "program-refused",
            Self::NoRoom(_) => "program-without-room",
            Self::Load(LoadError::Map(_)) | Self::Attach(_) | Self::Read(_) => "system-call-failed",
            Self::Beside => "program-and-own-filter",
            Self::Pages(_) => "pages-not-locked",
            Self::Busy | Self::BusyBy(_) => "program-is-busy",
        }
    }
}
