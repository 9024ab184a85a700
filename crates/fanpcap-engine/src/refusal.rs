//! Why an engine does not serve a handle.

use std::error::Error;
use std::fmt;

/// Why an engine does not serve a handle: the engine's own error, and its consequence for the
/// caller.
pub struct Refusal {
    /// The problem, and what to do. The type is not `dyn` [`Error`], because then the derived
    /// `Debug` of each error would be in the library (decision 13).
    pub reason: Box<dyn fmt::Display + Send + Sync>,
    /// The reason's section in docs/errors.md.
    pub slug: &'static str,
    /// Whether a BPF program of this engine is already on the device. Its owners are members that
    /// are about to leave, or newcomers that no page shows yet.
    pub is_busy: bool,
    /// Whether the process lacks the privilege to make its rings. The group's founder may make them
    /// ([`crate::OnDevice::open`]).
    pub lacks_privilege: bool,
}

impl Refusal {
    /// Returns a refusal that lasts: waiting does not help.
    pub fn new(reason: impl fmt::Display + Send + Sync + 'static, slug: &'static str) -> Self {
        Self {
            reason: Box::new(reason),
            slug,
            is_busy: false,
            lacks_privilege: false,
        }
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
