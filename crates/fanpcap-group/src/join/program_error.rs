//! Why a handle can't be in a group with a program, or the program can't be replaced.

use crate::root;
use crate::steered::SteerError;
use fanpcap_config::report::quote;
use fanpcap_linux::bpf::LoadError;
use std::fmt;
use std::io;

/// What is in the way of a group's program.
#[derive(Debug)]
pub enum ProgramError {
    /// The group runs another program.
    Other {
        /// The group's number.
        group: u16,
        /// How the program begins that was asked for.
        asked: String,
        /// How the group's begins.
        runs: String,
    },
    /// Programs read Ethernet frames, and the device has none.
    NotEthernet {
        /// The device.
        device: String,
    },
    /// Programs read Ethernet frames, and all devices together have others too.
    AllDevices,
    /// The process may not load programs.
    NotPermitted(u16),
    /// The program can't be loaded or put in its place.
    Steer {
        /// The group's number.
        group: u16,
        /// Why.
        error: SteerError,
    },
    /// The program can't be replaced, as members of other processes drop and count by it.
    OthersJudge {
        /// The group's number.
        group: u16,
        /// How many of them there are.
        members: usize,
    },
    /// The program can't be replaced, as the kernel does not tell who is in the group.
    Unseen {
        /// The group's number.
        group: u16,
    },
    /// The program is replaced, but another process has joined with the old one meanwhile, and
    /// drops and counts by that.
    CameBetween {
        /// The group's number.
        group: u16,
    },
    /// The program can't be replaced, as members have no page on which they could be told.
    Pageless {
        /// The group's number.
        group: u16,
    },
    /// The program can't be replaced, as the page of a member can't be written.
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
                "steering programs read Ethernet frames, and {device} has others: use a mode of the kernel's, \
                 such as hash",
            ),
            Self::AllDevices => f.write_str(
                "steering programs, mode flow too, read Ethernet frames, and the device any has others among them: \
                 name Ethernet devices (eth0, or eth0^eth1 for several), or use a mode of the kernel's, such as hash",
            ),
            Self::NotPermitted(group) => write!(
                f,
                "the steering program of fan-out group {group} needs CAP_BPF beside CAP_NET_RAW: run as root, \
                 or with both (setpriv --ambient-caps, AmbientCapabilities= in a unit); modes such as hash \
                 need CAP_NET_RAW only",
            ),
            Self::Steer { group, error } => {
                write!(f, "the steering program of fan-out group {group}: {error}")
            }
            Self::OthersJudge { group, members } => write!(
                f,
                "the program of fan-out group {group} can't be replaced by one that drops or counts otherwise: \
                 {members} of its members are other processes', whose filters can't be changed from here",
            ),
            Self::Unseen { group } => write!(
                f,
                "the program of fan-out group {group} can't be replaced: packet diag does not tell this thread who is in \
                 the group; call from the network namespace of its device",
            ),
            Self::CameBetween { group } => write!(
                f,
                "the program of fan-out group {group} is replaced, but another process has joined with the old one \
                 meanwhile, which drops and counts by that: start it anew",
            ),
            Self::Pageless { group } => write!(
                f,
                "the program of fan-out group {group} can't be replaced: members of other processes have no page \
                 that would tell them{}",
                root::distrust(),
            ),
            Self::Untold { group, error } => write!(
                f,
                "the program of fan-out group {group} can't be replaced: a member of another process can't be told on its \
                 page: {error}",
            ),
        }
    }
}

impl std::error::Error for ProgramError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Steer { error, .. } => Some(error),
            Self::Untold { error, .. } => Some(error),
            Self::Other { .. }
            | Self::NotEthernet { .. }
            | Self::AllDevices
            | Self::NotPermitted(_)
            | Self::OthersJudge { .. }
            | Self::Unseen { .. }
            | Self::CameBetween { .. }
            | Self::Pageless { .. } => None,
        }
    }
}

impl ProgramError {
    /// The error's section in docs/errors.md.
    pub fn slug(&self) -> &'static str {
        match self {
            Self::Other { .. } => "group-has-other-program",
            Self::NotEthernet { .. } => "program-needs-ethernet",
            Self::AllDevices => "program-on-all-devices",
            Self::NotPermitted(_) => "program-needs-cap-bpf",
            Self::Steer { error, .. } => error.slug(),
            Self::OthersJudge { .. } => "program-of-others",
            Self::Unseen { .. } => "program-of-members-unseen",
            Self::CameBetween { .. } => "program-of-a-newcomer",
            Self::Pageless { .. } => "program-of-members-without-page",
            Self::Untold { .. } => "program-of-members-of-another-user",
        }
    }

    /// Why the steering program of this group has failed.
    pub fn of(group: u16, error: SteerError) -> Self {
        match error {
            SteerError::Load(LoadError::Privilege { .. }) => Self::NotPermitted(group),
            SteerError::Load(_)
            | SteerError::NoRoom(_)
            | SteerError::Attach(_)
            | SteerError::Read(_)
            | SteerError::Beside
            | SteerError::Pages(_)
            | SteerError::Busy => Self::Steer { group, error },
        }
    }
}
