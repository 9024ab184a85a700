//! The errors of reading and changing the settings of a device.

use fanpcap_linux::interface;
use std::path::PathBuf;
use std::{fmt, io};

/// The reason why a setting of a device can't be read or changed. A setting that could not be
/// changed keeps its former value.
#[derive(Debug)]
pub enum DeviceError {
    /// No device has this name.
    Unknown {
        /// The name.
        name: String,
    },
    /// The driver has no channels to set.
    NoChannels,
    /// The caller asked for more channels of a kind than the driver allows.
    TooManyChannels {
        /// The kind: rx, tx, other or combined.
        kind: &'static str,
        /// The requested number.
        asked: u32,
        /// The driver's limit.
        most: u32,
    },
    /// With the requested channels, no channel would receive, or no channel would send.
    NoDirection,
    /// The driver refused the channels.
    Refused(io::Error),
    /// The device has no interrupts: another device in the kernel passes packets to this device.
    NoInterrupts,
    /// The device is down; only a device that is up has interrupts.
    Down,
    /// No interrupt serves a channel with this number.
    NoChannel {
        /// The channel that was asked for.
        channel: u32,
        /// The number of channels that have interrupts.
        channels: u32,
    },
    /// The kernel places the interrupt itself (managed affinity).
    Managed,
    /// The driver has no NAPI instances now. A veth device has them only while GRO is on or an XDP
    /// program is attached.
    NoNapi,
    /// The kernel is older than Linux 5.12, the first version with threaded NAPI.
    OldKernel,
    /// Threaded NAPI is off: the device's queues are polled in interrupts, not by threads.
    NotThreaded,
    /// The kernel does not report which thread polls the queue.
    NoThread {
        /// The queue.
        queue: u32,
        /// The number of threads that the kernel reports.
        threads: usize,
    },
    /// The process's PID namespace shows no kernel threads.
    Hidden,
    /// None of the CPUs is online.
    Offline,
    /// The text is not a value of the setting.
    Value(String),
    /// The device or its driver does not have the setting.
    Absent,
    /// The driver accepted the value, but the setting now has another value.
    Differs {
        /// The present value.
        is: String,
    },
    /// The setting is not among those that this implementation of `Knobs` handles.
    Elsewhere,
    /// Another process wants another value.
    Disagrees {
        /// The other process.
        pid: u32,
        /// The value that the other process wants.
        value: String,
    },
    /// The directory or the files of the journal can't be used.
    Journal(io::Error),
    /// Another process is changing the device.
    Busy,
    /// This file is no journal of this version.
    Malformed(PathBuf),
    /// The kernel reported an error. The fields have the text that says what failed or what right
    /// is missing, and the kernel's error.
    Failed(&'static str, io::Error),
    /// The kernel reported this error.
    System(io::Error),
}

impl DeviceError {
    /// The value that a C function stores in errno for this error.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Unknown { .. } => libc::ENODEV,
            Self::Disagrees { .. } | Self::Busy => libc::EBUSY,
            Self::Differs { .. } | Self::Malformed(_) => libc::EIO,
            Self::Managed => libc::EPERM,
            Self::Down => libc::ENETDOWN,
            Self::NoThread { .. } | Self::Hidden => libc::ESRCH,
            Self::TooManyChannels { .. }
            | Self::NoDirection
            | Self::NoChannel { .. }
            | Self::NotThreaded
            | Self::Offline
            | Self::Value(_) => libc::EINVAL,
            Self::NoChannels
            | Self::NoInterrupts
            | Self::NoNapi
            | Self::OldKernel
            | Self::Absent
            | Self::Elsewhere => libc::EOPNOTSUPP,
            Self::Refused(error)
            | Self::Journal(error)
            | Self::Failed(_, error)
            | Self::System(error) => {
                let without = match error.kind() == io::ErrorKind::PermissionDenied {
                    true => libc::EACCES,
                    false => libc::EIO,
                };
                error.raw_os_error().unwrap_or(without)
            }
        }
    }

    /// Whether the device no longer has the setting, so that there is nothing to put back.
    pub fn is_gone(&self) -> bool {
        matches!(
            self,
            Self::Absent
                | Self::NoInterrupts
                | Self::NoChannel { .. }
                | Self::NoNapi
                | Self::NotThreaded
                | Self::NoThread { .. }
        ) || self.errno() == libc::ENODEV
    }

    /// Whether the journal could not be read or written.
    pub(crate) fn is_of_journal(&self) -> bool {
        matches!(self, Self::Journal(_) | Self::Busy | Self::Malformed(_))
    }
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoChannels => "its driver has no channels to set",
            Self::NoDirection => "at least one channel must receive, and at least one must send",
            Self::NoInterrupts => {
                "it has no interrupts; threads of its NAPI instances (napi@) and receive packet \
                 steering can be placed instead"
            }
            Self::Down => "it is down and has no interrupts until it is up",
            Self::Managed => {
                "the kernel places this interrupt itself; threads of NAPI instances (napi@) can be \
                 placed instead"
            }
            Self::NoNapi => {
                "its driver has no NAPI instances now; a veth device has them while GRO is on \
                 ('ethtool -K DEV gro on') or an XDP program is attached"
            }
            Self::OldKernel => "threaded NAPI needs Linux 5.12",
            Self::NotThreaded => "no threads poll its queues: threaded NAPI is off",
            Self::Hidden => {
                "this PID namespace, perhaps a container's, shows no kernel threads: do it on the \
                 host"
            }
            Self::Offline => "none of these CPUs is online",
            Self::Absent => "the device has no such setting",
            Self::Elsewhere => "'fanpcap tune --restore' puts it back",
            Self::Busy => "another process is still changing the device: try again later",
            Self::Unknown { name } => {
                return f.write_str(&interface::missing(name));
            }
            Self::TooManyChannels { kind, asked, most } => {
                return write!(f, "{asked} {kind} channels, but it takes {most} at most");
            }
            Self::Refused(error) => {
                return write!(
                    f,
                    "its driver refuses these channels ({error}); the indirection table \
                     ('ethtool -x') or AF_XDP sockets may use those that would go"
                );
            }
            Self::NoChannel { channel, channels } => {
                let has = format!("it has {channels} channels, from 0 on");
                return write!(f, "no interrupt of channel {channel}: {has}");
            }
            Self::NoThread { queue, threads } => {
                let known = format!("{threads} threads are known");
                return write!(f, "no thread polls queue {queue}; {known}");
            }
            Self::Value(text) => return write!(f, "'{text}' is no value of this setting"),
            Self::Differs { is } => return write!(f, "its driver set {is} instead"),
            Self::Disagrees { pid, value } => {
                return write!(f, "process {pid} has set {value} and still wants it");
            }
            Self::Malformed(path) => {
                let hint = "is no journal of this version: remove this file to continue";
                return write!(f, "{} {hint}", path.display());
            }
            Self::Journal(error) => {
                return write!(f, "nothing is changed without a journal: {error}");
            }
            Self::Failed(what, error) => return write!(f, "{what}: {error}"),
            Self::System(error) => return error.fmt(f),
        })
    }
}

impl std::error::Error for DeviceError {}
