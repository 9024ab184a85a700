//! The network namespace of a member's device, which the member's threads may leave. A packet diag
//! socket reads the namespace in which it was opened. So a process keeps one such socket for each
//! namespace.

use crate::roster::Roster;
use fanpcap_linux::netlink::diag::Diag;
use fanpcap_linux::process::lock::Lock;
use fanpcap_linux::process::netns;
use std::io;
use std::sync::{Arc, Weak};

/// A network namespace.
#[derive(Clone, Debug)]
pub(crate) struct Namespace {
    /// `None` if the kernel gave no socket: then the calling thread's namespace is read.
    diag: Option<Arc<Diag>>,
}

/// The namespaces of this process's members, by inode number.
static KEPT: Lock<Vec<(u64, Weak<Diag>)>> = Lock::new(Vec::new());

impl Namespace {
    pub(crate) fn here() -> Self {
        let diag = netns::inode().ok().and_then(kept);
        Self { diag }
    }

    /// Reads the namespace's roster.
    ///
    /// # Errors
    /// As [`Roster::look`].
    pub(crate) fn roster(&self) -> io::Result<Roster> {
        let diag = self.diag.as_ref();
        diag.map_or_else(Roster::look, |diag| Roster::by(diag))
    }
}

fn kept(inode: u64) -> Option<Arc<Diag>> {
    let find = |kept: &mut Vec<(u64, Weak<Diag>)>| {
        kept.retain(|(_, diag)| diag.strong_count() > 0);
        let mut here = kept.iter().filter(|(it, _)| *it == inode);
        let known = here.find_map(|(_, diag)| diag.upgrade().filter(|it| it.is_own()));
        if known.is_some() {
            return known;
        }
        let diag = Arc::new(Diag::open().ok()?);
        kept.push((inode, Arc::downgrade(&diag)));
        Some(diag)
    };
    // If a thread had the list locked when the process forked, the list stays locked in the child.
    // Then open a socket that the list does not keep.
    KEPT.try_with(find)
        .unwrap_or_else(|| Some(Arc::new(Diag::open().ok()?)))
}
