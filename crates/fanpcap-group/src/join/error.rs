//! Why a handle can't join a group.

use super::{EngineError, ProgramError};
use fanpcap_config::settings::shell_name;
use std::fmt;
use std::io;

/// Why a handle can't join a group.
#[derive(Debug)]
pub enum JoinError {
    /// The handle has no packet socket: another kind of device, a savefile, a dead handle.
    NotPacket,
    /// The process lacks the privilege to open packet sockets, so the handle has none.
    NotPermitted {
        /// The message of the system's library.
        reason: String,
        /// Whether the mode needs a further capability, for its steering program.
        is_steered: bool,
    },
    /// The handle is in a group already.
    AlreadyIn(u16),
    /// The handle is in that group already, with another mode.
    AlreadyAs {
        /// The group's number.
        group: u16,
        /// The handle's mode.
        has: String,
        /// The mode that was asked for.
        asked: String,
    },
    /// The group runs another mode.
    OtherMode {
        /// The group's number.
        group: u16,
        /// The mode that was asked for.
        asked: String,
        /// What the group runs.
        runs: String,
    },
    /// The group's number is in use on another device.
    OtherDevice {
        /// The group's number.
        group: u16,
        /// The group's device.
        has: String,
        /// The handle's device.
        wants: String,
    },
    /// The group's number is in use on a device that is gone.
    GoneDevice {
        /// The group's number.
        group: u16,
        /// Name and process id of a member there; `None` if the members have no pages.
        member: Option<(String, u32)>,
    },
    /// The handle or the group has several devices, and they can't have the same devices.
    Devices(DevicesError),
    /// The group captures another protocol.
    OtherProtocol {
        /// The group's number.
        group: u16,
        /// The group's protocol, `ETH_P_*`.
        has: u16,
        /// The handle's protocol, `ETH_P_*`.
        wants: u16,
    },
    /// The group has as many members as the kernel allows.
    Full(u16),
    /// A step failed after the socket had entered the group. A socket leaves its group only when it
    /// is closed.
    Stranded {
        /// The group's number.
        group: u16,
        /// What has failed.
        error: Box<JoinError>,
    },
    /// The reason is the group's steering program.
    Program(ProgramError),
    /// The reason is the engine.
    Engine(EngineError),
    /// The kernel refused for another reason.
    Kernel {
        /// The group's number.
        group: u16,
        /// The mode that was asked for.
        mode: String,
        /// The system call or option.
        call: &'static str,
        /// The error of that call.
        error: io::Error,
    },
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPacket => f.write_str(
                "fan-out is for network devices; this handle has no packet socket: open it without a \
                 group (PCAP_GROUP_DEVICE gives one device a group, PCAP_GROUP all)",
            ),
            Self::NotPermitted { reason, is_steered } => {
                let needs = match is_steered {
                    true => "CAP_NET_RAW, and CAP_BPF for its steering program",
                    false => "CAP_NET_RAW",
                };
                write!(
                    f,
                    "{reason}: joining a fan-out group needs {needs}: run as root, or with capabilities \
                     (setpriv --ambient-caps, AmbientCapabilities= in a unit)",
                )
            }
            Self::AlreadyIn(group) => {
                write!(
                    f,
                    "the handle is in fan-out group {group} already; close it to leave"
                )
            }
            Self::AlreadyAs { group, has, asked } => write!(
                f,
                "the handle is in fan-out group {group} already, as {has}, not {asked}: a mode and its \
                 options stay until the handle is closed",
            ),
            Self::OtherMode { group, asked, runs } => write!(
                f,
                "fan-out group {group} runs {runs}, not {asked}: use the group's mode or another \
                 group (all members of a group have one mode)",
            ),
            Self::OtherDevice { group, has, wants } => write!(
                f,
                "fan-out group {group} is on device {has}, not on {wants}: give {wants} another \
                 number, as PCAP_GROUP_{} or group_{wants} in pcap.conf",
                shell_name(wants),
            ),
            Self::GoneDevice { group, member } => on_gone_device(f, *group, member.as_ref()),
            Self::Devices(error) => error.fmt(f),
            Self::OtherProtocol { group, has, wants } => write!(
                f,
                "fan-out group {group} captures protocol {has:#06x}, this handle {wants:#06x}: use \
                 the same pcap_set_protocol_linux() or another group",
            ),
            Self::Full(group) => write!(
                f,
                "fan-out group {group} is full (256 members, the kernel's limit; 255 where they share a \
                 table): start fewer members or another group",
            ),
            Self::Stranded { group, error } => write!(
                f,
                "close the handle: it entered fan-out group {group} before a later step failed: {error}",
            ),
            Self::Program(error) => error.fmt(f),
            Self::Engine(error) => error.fmt(f),
            Self::Kernel {
                group,
                mode,
                call,
                error,
            } => {
                write!(
                    f,
                    "can't join fan-out group {group} ({mode}): {call}: {error}"
                )
            }
        }
    }
}

fn on_gone_device(
    f: &mut fmt::Formatter<'_>,
    group: u16,
    member: Option<&(String, u32)>,
) -> fmt::Result {
    let process = match member {
        Some((program, pid)) => format!("process {pid} ({program})"),
        None => "a process".to_owned(),
    };
    write!(
        f,
        "fan-out group {group} is on a device that is gone, because {process} still has a handle \
         in it: close that handle, or use another group",
    )
}

impl std::error::Error for JoinError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Stranded { error, .. } => Some(error),
            Self::Program(error) => Some(error),
            Self::Engine(error) => Some(error),
            Self::Devices(error) => Some(error),
            Self::Kernel { error, .. } => Some(error),
            Self::NotPacket
            | Self::NotPermitted { .. }
            | Self::AlreadyIn(_)
            | Self::AlreadyAs { .. }
            | Self::OtherMode { .. }
            | Self::OtherDevice { .. }
            | Self::GoneDevice { .. }
            | Self::OtherProtocol { .. }
            | Self::Full(_) => None,
        }
    }
}

impl JoinError {
    /// Whether the group's steering program can't be loaded, or can't read the device's frames. In
    /// these cases a mode of the kernel's may work.
    pub fn is_of_loading(&self) -> bool {
        matches!(self, Self::Program(error) if error.is_of_loading())
    }

    /// Whether the engine can't serve the handle, so that packet sockets may work instead.
    pub fn is_of_engine(&self) -> bool {
        matches!(self, Self::Engine(error) if error.is_of_engine())
    }

    /// Whether the group's number belongs to another group.
    pub(super) fn is_of_other(&self) -> bool {
        matches!(
            self,
            Self::OtherDevice { .. }
                | Self::GoneDevice { .. }
                | Self::Devices(_)
                | Self::OtherMode { .. }
                | Self::OtherProtocol { .. }
                | Self::Engine(EngineError::Other { .. } | EngineError::Taken { .. })
        )
    }

    /// The error's section in docs/errors.md.
    pub fn slug(&self) -> &'static str {
        match self {
            Self::NotPacket => "not-a-packet-socket",
            Self::NotPermitted { .. } => "group-needs-cap-net-raw",
            Self::AlreadyIn(_) => "already-in-a-group",
            Self::AlreadyAs { .. } => "already-in-by-another-mode",
            Self::OtherMode { .. } => "group-has-other-mode",
            Self::OtherDevice { .. } | Self::GoneDevice { .. } => "group-on-other-device",
            Self::Devices(error) => error.slug(),
            Self::OtherProtocol { .. } => "group-has-other-protocol",
            Self::Full(_) => "group-is-full",
            Self::Stranded { error, .. } => error.slug(),
            Self::Program(error) => error.slug(),
            Self::Engine(error) => error.slug(),
            Self::Kernel { .. } => "system-call-failed",
        }
    }
}

/// Why a handle and a group can't have the same devices.
#[derive(Debug)]
pub enum DevicesError {
    /// The group is on other devices than the handle, or in another order.
    Other {
        /// The group's number.
        group: u16,
        /// The group's devices.
        has: String,
        /// The handle's devices.
        wants: String,
    },
    /// A group of this mode has one device, but the handle has several.
    One {
        /// The group's number.
        group: u16,
        /// The mode.
        mode: String,
        /// The handle's device that would be the group's second device.
        second: String,
    },
}

impl fmt::Display for DevicesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other { group, has, wants } => write!(
                f,
                "fan-out group {group} has the devices {has}, this handle {wants}: name the \
                 same devices in the same order, or use another group",
            ),
            Self::One {
                group,
                mode,
                second,
            } => write!(
                f,
                "fan-out group {group}, of mode {mode}, is of one device: use mode flow for several, or give \
                 {second} another number, as PCAP_GROUP_{} or group_{second} in pcap.conf",
                shell_name(second),
            ),
        }
    }
}

impl std::error::Error for DevicesError {}

impl DevicesError {
    /// The error's section in docs/errors.md.
    pub fn slug(&self) -> &'static str {
        match self {
            Self::Other { .. } => "group-on-other-devices",
            Self::One { .. } => "group-on-one-device",
        }
    }
}

impl From<DevicesError> for JoinError {
    fn from(error: DevicesError) -> Self {
        Self::Devices(error)
    }
}

impl From<EngineError> for JoinError {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}

impl From<ProgramError> for JoinError {
    fn from(error: ProgramError) -> Self {
        Self::Program(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_failed_in_the_group_is_told_to_close_the_handle_first() {
        let error = Box::new(JoinError::NotPacket);
        let said = JoinError::Stranded { group: 7, error }.to_string();
        let begins = "close the handle: it entered fan-out group 7 before a later step failed: ";
        assert!(said.starts_with(begins), "{said}");
    }
}
