//! Why the engine does not serve a handle.

use crate::layout::GROUP_SLOTS;
use crate::load::ProgramError;
use crate::unavailable::Unavailable;
use fanpcap_engine::Refusal;
use fanpcap_linux::process::memory::Limit;
use std::{fmt, io};

/// Why the engine does not serve a handle.
#[derive(Debug)]
pub enum XdpError {
    /// The device already has the maximum number of groups.
    Crowded {
        /// The device's name.
        device: String,
    },
    /// XDP can't capture from the device.
    Unavailable(Unavailable),
    /// The device can't give its packets to the group.
    Serve(io::Error),
    /// The group's BPF program can't be loaded.
    Program(ProgramError),
    /// A part of the group or of the member can't be created.
    Part {
        /// The part, in words for the message.
        part: &'static str,
        /// The system's error.
        error: io::Error,
    },
    /// A pool needs more memory than the process may have.
    Memory {
        /// Bytes that the pool needs.
        needed: u64,
        /// The limit of the process's cgroup or of a parent cgroup. Of several limits, it is the
        /// one that leaves the least memory.
        limit: Option<Limit>,
    },
}

impl fmt::Display for XdpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Crowded { device } => write!(
                f,
                "{device} has {GROUP_SLOTS} groups on engine xdp, the most that it may: join one of \
                 them",
            ),
            Self::Unavailable(reason) => reason.fmt(f),
            Self::Serve(error) => write!(f, "the device's BPF program: {error}"),
            Self::Program(ProgramError::Compile(error)) => error.fmt(f),
            Self::Program(ProgramError::Load(error)) => error.fmt(f),
            Self::Part { part, error } => {
                write!(f, "{part}: {error}")?;
                match error.kind() == io::ErrorKind::PermissionDenied {
                    true => f.write_str(UNPRIVILEGED),
                    false => Ok(()),
                }
            }
            Self::Memory { needed, limit } => write_memory(f, *needed, limit.as_ref()),
        }
    }
}

/// End of an error message: which privilege is missing.
const UNPRIVILEGED: &str = ": without a founder, each member of a group on engine xdp needs CAP_BPF \
     and CAP_NET_ADMIN when it opens the device, which this application lacks or has given up \
     before: found the group by 'fanpcap run' or 'fanpcap serve'";

fn write_memory(f: &mut fmt::Formatter<'_>, needed: u64, limit: Option<&Limit>) -> fmt::Result {
    write!(f, "the rings take {} MiB", needed >> 20)?;
    match limit {
        Some(Limit { bytes, used }) => {
            let (used, bytes) = (used >> 20, bytes >> 20);
            write!(
                f,
                ", but of the memory limit of {bytes} MiB, {used} MiB are in use"
            )?;
        }
        None => f.write_str(", but the kernel does not have enough memory")?,
    }
    f.write_str(": set a smaller ring ('ring@DEVICE = SIZE', tcpdump -B), or raise the limit")
}

impl From<XdpError> for Refusal {
    fn from(error: XdpError) -> Self {
        let lacks_privilege = matches!(
            &error,
            XdpError::Part { error, .. } if error.kind() == io::ErrorKind::PermissionDenied
        );
        let slug = match &error {
            XdpError::Crowded { .. } => "xdp-device-is-crowded",
            XdpError::Unavailable(_) | XdpError::Serve(_) => "xdp-unavailable",
            XdpError::Part { .. } if !lacks_privilege => "system-call-failed",
            XdpError::Program(_) | XdpError::Part { .. } => "xdp-program-refused",
            XdpError::Memory { .. } => "xdp-memory",
        };
        // A BPF program whose name can't be read may belong to this engine. In this case, the
        // device is busy only until the engine's members on it end.
        let is_own = |name: &Option<String>| name.as_ref().is_none_or(|it| it.starts_with(PREFIX));
        let is_busy = matches!(
            &error,
            XdpError::Unavailable(Unavailable::Foreign { name, .. }) if is_own(name)
        );
        Self {
            is_busy,
            lacks_privilege,
            ..Self::new(error, slug)
        }
    }
}

/// Returns the error for an entry that can't be put into the descriptor store of a group or of a
/// device.
pub(crate) fn of_store(error: io::Error) -> XdpError {
    let part = "the group's descriptor store";
    XdpError::Part { part, error }
}

/// The prefix of the names of the engine's BPF programs.
const PREFIX: &str = "fanpcap_";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_lacks_a_privilege_is_told_which_members_need() {
        for (kind, slug) in [
            (io::ErrorKind::PermissionDenied, "xdp-program-refused"),
            (io::ErrorKind::OutOfMemory, "system-call-failed"),
        ] {
            let (part, error) = ("the rings", kind.into());
            let refusal = Refusal::from(XdpError::Part { part, error });
            let (text, is_told) = (refusal.to_string(), kind == io::ErrorKind::PermissionDenied);
            assert_eq!(
                (text.contains("CAP_BPF and CAP_NET_ADMIN"), refusal.slug),
                (is_told, slug)
            );
            assert!(text.starts_with(&format!("the rings: {kind}")), "{text}");
        }
    }
}
