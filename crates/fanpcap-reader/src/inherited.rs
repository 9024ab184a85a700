//! The ring of a dead member, or of a member that does not read, as one more lane of the reader
//! that has taken the ring over.

use crate::borrowed::Claims;
use crate::call::Packet;
use crate::control::Control;
use crate::group_tasks::Takeover;
use crate::lane::Intake;
use crate::rest::Pace;
use fanpcap_bpf::Classic;
use fanpcap_ring::{Layout, Remains, Stamp};
use std::fmt;

/// A ring that was taken over from another member. On the ring's packets, the kernel has run only
/// that member's filter. So the reader that takes over the ring also runs its own member's filter
/// on each packet.
pub(crate) struct Inherited {
    remains: Remains,
    intake: Intake,
    /// The number of frames that were taken from the ring before this reader took it over.
    before: u64,
    /// The means to claim frames before they are read; `None` if the ring's owner is dead.
    claims: Option<Claims>,
    done: Box<dyn FnOnce(u64) + Send>,
}

impl fmt::Debug for Inherited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Inherited");
        debug.field("remains", &self.remains);
        debug.finish_non_exhaustive()
    }
}

impl Inherited {
    #[cold]
    #[inline(never)]
    pub(crate) fn new(takeover: Takeover, filter: Option<&Vec<Classic>>) -> Self {
        let Takeover {
            remains,
            published,
            claims,
            done,
        } = takeover;
        // The reader does not rest while this ring has unread frames.
        let mut intake = Intake::new(Pace::frames(0));
        intake.show(published, &remains);
        let before = remains.taken();
        let mut inherited = Self {
            remains,
            intake,
            before,
            claims,
            done,
        };
        if let Some(filter) = filter {
            inherited.set_filter(filter.clone());
        }
        inherited
    }

    pub(crate) fn set_filter(&mut self, filter: Vec<Classic>) {
        self.intake.set_filter(filter);
    }

    /// The arrival time of the next frame; `None` if no frame is left.
    pub(crate) fn head(&mut self) -> Option<Stamp> {
        let taken = Some(self.remains.taken());
        if self.claims.as_ref().is_some_and(|it| it.count() != taken) {
            // The owner has taken the ring back.
            return None;
        }
        let before = self.remains.mark();
        let head = self.remains.head();
        if self.remains.mark() != before {
            self.intake.show_mark(&self.remains);
        }
        head
    }

    /// Reads the next frame, which must exist. Returns false in three cases: the application does
    /// not want the packet, the ring's owner has taken the ring back, or a dead member has left
    /// garbage. Garbage in another member's ring must not make this read fail.
    #[cold]
    #[inline(never)]
    pub(crate) fn next_packet(&mut self, control: &Control, packet: &mut Packet) -> bool {
        let taken = self.remains.taken();
        if self.claims.as_ref().is_some_and(|it| !it.claim(taken)) {
            return false;
        }
        let read = self.intake.next_packet(&mut self.remains, control, packet);
        read.unwrap_or(false)
    }

    pub(crate) fn end(self) {
        let Self {
            remains,
            before,
            done,
            ..
        } = self;
        let taken = remains.taken().saturating_sub(before);
        // Drop the ring before the call of `done`, because the ring's mapping keeps the socket
        // alive.
        drop(remains);
        done(taken);
    }
}
