//! Why a handle can't join a group with a steering program, or why the steering program can't be
//! replaced.

use super::EngineError;
use crate::steered::SteerError;
use fanpcap_config::report::quote;
use fanpcap_engine::root;
use fanpcap_linux::bpf::LoadError;
use std::fmt;
use std::io;

/// Why a handle can't join with a steering program, or why the steering program can't be replaced.
#[derive(Debug)]
pub enum ProgramError {
    /// The group runs another steering program.
    Other {
        /// The group's number.
        group: u16,
        /// Title of the steering program that was asked for.
        asked: String,
        /// Title of the group's steering program.
        runs: String,
    },
    /// The device's frames are not Ethernet frames. Steering programs read only Ethernet frames.
    NotEthernet {
        /// The device.
        device: String,
    },
    /// The device is `any`, which also has frames that are not Ethernet frames. Steering programs
    /// read only Ethernet frames.
    AllDevices,
    /// The process lacks the privilege to load BPF programs. Holds the group's number.
    NotPermitted(u16),
    /// The group has a founder and no member. The newcomer asks for another steering program or
    /// for several devices, and lacks the privilege to begin the group so.
    Founded {
        /// The group's number.
        group: u16,
        /// Title of the founder's steering program.
        runs: String,
    },
    /// The group is another user's: root has founded it for this user's members.
    Served {
        /// The group's number.
        group: u16,
        /// The device.
        device: String,
        /// The number of the user.
        user: u32,
    },
    /// The steering program can't be loaded or attached.
    Steer {
        /// The group's number.
        group: u16,
        /// Why.
        error: SteerError,
    },
    /// The new steering program drops or counts differently, and other processes have members in
    /// the group. This process can't change the filters of these members.
    OthersJudge {
        /// The group's number.
        group: u16,
        /// How many members other processes have.
        members: usize,
    },
    /// The group's engine can't replace the steering program that it runs.
    Engine {
        /// The group's number.
        group: u16,
        /// Why.
        error: EngineError,
    },
    /// Packet diag does not show the group's members to this thread.
    Unseen {
        /// The group's number.
        group: u16,
    },
    /// A member of another process has no page, so the new steering program can't be announced to
    /// this member.
    Pageless {
        /// The group's number.
        group: u16,
    },
    /// The group has members, but none of them could hand over the objects that the members share.
    Unreachable {
        /// The group's number.
        group: u16,
        /// Why, in words.
        reasons: String,
    },
    /// A member's page can't be written.
    Untold {
        /// The group's number.
        group: u16,
        /// Why.
        error: io::Error,
    },
}

impl fmt::Display for ProgramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other { group, asked, runs } => write!(
                f,
                "fan-out group {group} runs the program {}, not {}: bring the same program or use another \
                 group (pcap_fanout() on a member replaces it)",
                quote(runs),
                quote(asked),
            ),
            Self::NotEthernet { device } => write!(
                f,
                "steering programs read Ethernet frames, but {device} has other frames: use a mode of the kernel's, \
                 such as hash",
            ),
            Self::AllDevices => f.write_str(
                "steering programs, mode flow too, read Ethernet frames, but the device any also has other frames: \
                 name Ethernet devices (eth0, or eth0^eth1 for several), or use a mode of the kernel's, such as hash",
            ),
            Self::NotPermitted(group) => write!(
                f,
                "the steering program of fan-out group {group} needs CAP_BPF beside CAP_NET_RAW, which \
                 this application lacks or has given up before: let it keep both, found the group by \
                 'fanpcap run' or 'fanpcap serve', or use a mode such as hash",
            ),
            Self::Founded { group, runs } => write!(
                f,
                "fan-out group {group} was founded with {} on one device: set the same, or let this application keep CAP_BPF",
                quote(runs),
            ),
            Self::Served {
                group,
                device,
                user,
            } => write!(
                f,
                "fan-out group {group} on {device} is served for user {user}: join as that user, or use another group",
            ),
            Self::Steer { group, error } => {
                write!(f, "the steering program of fan-out group {group}: {error}")
            }
            Self::Engine { group, error } => {
                write!(f, "the steering program of fan-out group {group}: {error}")
            }
            Self::OthersJudge { group, members } => write!(
                f,
                "the program of fan-out group {group} can't be replaced by one that drops or counts otherwise: \
                 {members} of its members are other processes', whose filters can't be changed from here",
            ),
            Self::Unseen { group } => write!(
                f,
                "the program of fan-out group {group} can't be replaced: packet diag does not show this thread the members of \
                 the group; call from the network namespace of its device",
            ),
            Self::Pageless { group } => write!(
                f,
                "the program of fan-out group {group} can't be replaced: members of other processes have no page, \
                 so the new one can't be announced to them{}",
                root::distrust(),
            ),
            Self::Unreachable { group, reasons } => write!(
                f,
                "fan-out group {group} has members, but none of them can be joined: {reasons}{}; run as their user \
                 or as root, or use another group",
                root::distrust(),
            ),
            Self::Untold { group, error } => write!(
                f,
                "the program of fan-out group {group} can't be replaced: the new one can't be announced on the page of \
                 another process's member: {error}",
            ),
        }
    }
}

impl std::error::Error for ProgramError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Steer { error, .. } => Some(error),
            Self::Untold { error, .. } => Some(error),
            Self::Engine { error, .. } => Some(error),
            Self::Other { .. }
            | Self::NotEthernet { .. }
            | Self::AllDevices
            | Self::NotPermitted(_)
            | Self::Founded { .. }
            | Self::Served { .. }
            | Self::OthersJudge { .. }
            | Self::Unseen { .. }
            | Self::Unreachable { .. }
            | Self::Pageless { .. } => None,
        }
    }
}

impl ProgramError {
    /// See [`super::JoinError::is_of_loading`].
    pub(super) fn is_of_loading(&self) -> bool {
        matches!(
            self,
            Self::NotEthernet { .. }
                | Self::AllDevices
                | Self::NotPermitted(_)
                | Self::Steer {
                    error: SteerError::Load(_),
                    ..
                }
        )
    }

    /// The error's section in docs/errors.md.
    pub fn slug(&self) -> &'static str {
        match self {
            Self::Other { .. } | Self::Founded { .. } => "group-has-other-program",
            Self::NotEthernet { .. } => "program-needs-ethernet",
            Self::AllDevices => "program-on-all-devices",
            Self::NotPermitted(_) => "program-needs-cap-bpf",
            Self::Steer { error, .. } => error.slug(),
            Self::Engine { error, .. } => error.slug(),
            Self::OthersJudge { .. } => "program-of-others",
            Self::Unseen { .. } => "program-of-members-unseen",
            Self::Unreachable { .. } | Self::Served { .. } => "group-unreachable",
            Self::Pageless { .. } => "program-of-members-without-page",
            Self::Untold { .. } => "program-of-members-of-another-user",
        }
    }

    /// Wraps the error of a group's steering program.
    pub fn of(group: u16, error: SteerError) -> Self {
        match error {
            SteerError::Load(LoadError::Privilege { .. }) => Self::NotPermitted(group),
            SteerError::Load(_)
            | SteerError::NoRoom(_)
            | SteerError::Attach(_)
            | SteerError::Read(_)
            | SteerError::Beside
            | SteerError::Pages(_)
            | SteerError::Busy
            | SteerError::BusyBy(_) => Self::Steer { group, error },
        }
    }
}
