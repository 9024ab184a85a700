//! Why a handle can't join a group on its engine.

use crate::steered::SteerError;
use fanpcap_engine::{Engine, Refusal};
use std::fmt;
use std::io;

/// Why a handle can't join a group on its engine.
#[derive(Debug)]
pub enum EngineError {
    /// The group's members are on another engine.
    Other {
        /// The group's number.
        group: u16,
        /// The engine of the group's members: `engine xdp`, say, or `packet sockets`.
        has: String,
        /// The engine of the handle, in the same words.
        wants: String,
    },
    /// The group's engine was detached from the device.
    Lost {
        /// The group's number.
        group: u16,
        /// The device.
        device: String,
    },
    /// The application asked for a new group, but another handle has just taken the number.
    Taken {
        /// The group's number.
        group: u16,
    },
    /// The mode is one of the kernel's, which only packet sockets have.
    Unsteered {
        /// The engine's name.
        engine: &'static str,
        /// The group's number.
        group: u16,
        /// The mode.
        mode: String,
    },
    /// The steering program has no classes, but a member of the group has a class.
    Unclassified {
        /// The group's number.
        group: u16,
        /// A member's class.
        class: u8,
    },
    /// Other groups are on the device, and none of their members could hand over the descriptors
    /// that all groups on the device share.
    Unreachable {
        /// The device.
        device: String,
        /// Why, member by member.
        reasons: String,
    },
    /// The handle lacks the privilege to make its rings, and the group's founder has made none.
    NoSpare {
        /// The group's number.
        group: u16,
        /// The founder's process.
        pid: u32,
    },
    /// The engine can't change the BPF program that it runs on the device.
    Serve(io::Error),
    /// The locks of the groups can't be taken.
    Lock(SteerError),
    /// The engine does not serve the handle.
    Refused(Refusal),
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other { group, has, wants } => write!(
                f,
                "fan-out group {group} is on {has}, this handle on {wants}: open it on \
                 the group's engine, or use another group",
            ),
            Self::Lost { group, device } => write!(
                f,
                "fan-out group {group} gets no packets any more, as its BPF program was detached \
                 from {device}: close its members first, or use another group",
            ),
            Self::Taken { group } => write!(
                f,
                "fan-out group {group} was free and has members now: try again"
            ),
            Self::Unsteered {
                engine,
                group,
                mode,
            } => write!(
                f,
                "fan-out group {group} can't run mode {mode} on engine {engine}: \
                 use flow or a steering program",
            ),
            Self::Unclassified { group, class } => write!(
                f,
                "fan-out group {group} has members of class {class}, which would get no packet, \
                 as the new steering program has no 'classify': close these members first",
            ),
            Self::Unreachable { device, reasons } => write!(
                f,
                "other groups are on {device}, and no member hands over the shared \
                 descriptors: {reasons}",
            ),
            Self::NoSpare { group, pid } => write!(
                f,
                "this application lacks CAP_BPF, and the founder of fan-out group {group}, process \
                 {pid}, has made no rings for it: that process is stopped or busy, or its output \
                 says why",
            ),
            Self::Serve(error) => write!(f, "can't change the device's BPF program: {error}"),
            Self::Lock(error) => write!(f, "can't take the device's lock: {error}"),
            Self::Refused(refusal) => refusal.fmt(f),
        }
    }
}

impl std::error::Error for EngineError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Serve(error) => Some(error),
            Self::Lock(error) => Some(error),
            Self::Refused(refusal) => Some(refusal),
            Self::Other { .. }
            | Self::Lost { .. }
            | Self::Taken { .. }
            | Self::Unsteered { .. }
            | Self::Unclassified { .. }
            | Self::NoSpare { .. }
            | Self::Unreachable { .. } => None,
        }
    }
}

impl EngineError {
    /// The error for a handle and a group that are on different engines. `has` and `wants` are the
    /// engines' names; `None`: packet sockets.
    pub(crate) fn other(group: u16, has: Option<&str>, wants: Option<&str>) -> Self {
        let text = |name: Option<&str>| {
            name.map_or_else(|| "packet sockets".to_owned(), |it| format!("engine {it}"))
        };
        Self::Other {
            group,
            has: text(has),
            wants: text(wants),
        }
    }

    /// Returns a function that makes the error for a descriptor store which can't keep the objects
    /// that the members share.
    pub(crate) fn of_store(engine: &dyn Engine) -> impl Fn(io::Error) -> Self + '_ {
        |error| Self::Refused(engine.refusal("the group's descriptor store", error))
    }

    /// Whether the engine can't serve the handle in any group, so that only packet sockets may
    /// work.
    pub fn is_of_engine(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Serve(_) | Self::Lock(_) | Self::Refused(_) => true,
            Self::Other { .. }
            | Self::Lost { .. }
            | Self::Taken { .. }
            | Self::Unsteered { .. }
            | Self::NoSpare { .. }
            | Self::Unclassified { .. } => false,
        }
    }

    /// The error's section in docs/errors.md.
    pub fn slug(&self) -> &'static str {
        match self {
            Self::Other { .. } => "group-on-other-engine",
            Self::Lost { .. } => "group-without-device",
            Self::Unsteered { .. } => "mode-not-on-xdp",
            Self::Unclassified { .. } => "class-without-classify",
            Self::Unreachable { .. } => "xdp-registry-unreachable",
            Self::Serve(_) => "xdp-unavailable",
            Self::Lock(error) => error.slug(),
            Self::NoSpare { .. } => "founder-makes-no-rings",
            Self::Taken { .. } => "system-call-failed",
            Self::Refused(refusal) => refusal.slug,
        }
    }
}

impl From<Refusal> for EngineError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}
