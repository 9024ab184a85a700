//! Loads a member's filters for a steering program, and attaches them to its socket.

use super::SteerError;
use super::loading;
use fanpcap_config::steering::Steering;
use fanpcap_linux::bpf::Loaded;
use fanpcap_linux::packet::optmem::{self, NoRoom};
use fanpcap_linux::packet::{self, Filter};
use std::os::fd::{AsFd, BorrowedFd};

/// A member's loaded filters for one steering program.
#[derive(Debug, Default)]
pub(super) struct Filters {
    /// The filtering part; `None` if the steering program neither drops nor counts.
    pub(super) bare: Option<Loaded>,
    /// The filtering part together with the handle's own filter.
    pub(super) combined: Option<Loaded>,
}

impl Filters {
    pub(super) fn load(
        steering: &Steering,
        own: Option<&Filter>,
        table: BorrowedFd<'_>,
    ) -> Result<Self, SteerError> {
        let bare = loading::load_filter(steering, table)?;
        let both = own.zip(bare.as_ref());
        let combined = both.and_then(|(own, bare)| loading::load_filter_with(steering, own, bare));
        Ok(Self { bare, combined })
    }

    /// Whether the reader must run the handle's own filter.
    pub(super) fn lack_own(&self) -> bool {
        self.bare.is_some() && self.combined.is_none()
    }

    pub(super) fn attach(&self, socket: BorrowedFd<'_>) -> Result<(), SteerError> {
        let filter = self.combined.as_ref().or(self.bare.as_ref());
        let attach = |filter: &Loaded| match packet::attach_program(socket, filter.as_fd()) {
            // The kernel charges the new filter while the old one, which may be as long, is still
            // attached. So replace the old filter by a short one that rejects all packets, and then
            // attach the new filter. Packets are lost in that moment, but no packet comes in
            // unfiltered.
            Err(error) if optmem::is_no_room(&error) => {
                Filter::reject_all().attach(socket)?;
                let attached = packet::attach_program(socket, filter.as_fd());
                attached.inspect_err(|_| _ = packet::detach_filter(socket))
            }
            attached => attached,
        };
        let refused = |error| match filter.filter(|_| optmem::is_no_room(&error)) {
            Some(filter) => SteerError::NoRoom(NoRoom::new(filter.charged())),
            None => SteerError::Attach(error),
        };
        filter.map_or(Ok(()), attach).map_err(refused)
    }
}
