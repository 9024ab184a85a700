//! Why an engine does not serve a handle.

use std::error::Error;
use std::{fmt, io};

/// Why an engine does not serve a handle: the engine's own error, and what follows from it.
pub struct Refusal {
    /// What is wrong, and what to do. Not an [`Error`], whose derived `Debug` would be in the
    /// library (decision 13).
    pub reason: Box<dyn fmt::Display + Send + Sync>,
    /// The reason's section in docs/errors.md.
    pub slug: &'static str,
    /// Whether a BPF program of this engine has the device, for members that are about to leave or
    /// newcomers that no page shows yet.
    pub is_busy: bool,
}

impl Refusal {
    /// A refusal that waiting does not end.
    pub fn new(reason: impl fmt::Display + Send + Sync + 'static, slug: &'static str) -> Self {
        Self {
            reason: Box::new(reason),
            slug,
            is_busy: false,
        }
    }

    /// A refusal because a part of the group or of the member can't be made.
    pub fn of_part(part: &'static str, error: io::Error) -> Self {
        let slug = match error.kind() == io::ErrorKind::PermissionDenied {
            true => "xdp-program-refused",
            false => "system-call-failed",
        };
        Self::new(PartError { part, error }, slug)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl fmt::Debug for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Refusal({}: {})", self.slug, self.reason)
    }
}

impl Error for Refusal {}

/// A part of the group or of the member can't be made. If a privilege is missing, the text names
/// it.
#[derive(Debug)]
pub struct PartError {
    part: &'static str,
    error: io::Error,
}

impl fmt::Display for PartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { part, error } = self;
        write!(f, "{part}: {error}")?;
        if error.kind() == io::ErrorKind::PermissionDenied {
            return f.write_str(
                ": each member of a group on engine xdp needs CAP_BPF and CAP_NET_ADMIN when it \
                 opens the device, which this application lacks or has given up before: have all \
                 members keep them, or all take packet sockets",
            );
        }
        Ok(())
    }
}

impl Error for PartError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.error)
    }
}
