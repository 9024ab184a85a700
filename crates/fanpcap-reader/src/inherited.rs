//! The ring of a dead member, or of a member that does not read, as one more lane of the reader
//! that has taken the ring over.

use crate::call::Packet;
use crate::control::Control;
use crate::group_tasks::Takeover;
use crate::lane::Intake;
use crate::rest::Pace;
use fanpcap_bpf::Classic;
use fanpcap_ring::{Layout, OffsetReading, Stamp};

/// A ring that was taken over from another member. On the ring's packets, the kernel has run that
/// member's filter at most. So the reader that takes over the ring also runs its own member's
/// filter on each packet.
pub(crate) struct Inherited {
    takeover: Takeover,
    pub(crate) intake: Intake,
    /// The number of frames that were taken from the ring before this reader took it over.
    before: u64,
}

impl Inherited {
    #[cold]
    #[inline(never)]
    pub(crate) fn new(takeover: Takeover, filter: Option<&Vec<Classic>>) -> Self {
        // The reader does not rest while this ring has unread frames.
        let mut intake = Intake::new(Pace::frames(0));
        intake.show(takeover.published.clone(), &takeover.remains);
        intake.rejected = takeover.rejected.clone();
        if let Some(filter) = filter {
            intake.set_filter(filter.clone());
        }
        Self {
            before: takeover.remains.taken(),
            takeover,
            intake,
        }
    }

    /// As [`fanpcap_ring::Ring::offset`].
    pub(crate) fn offset(&self) -> Option<OffsetReading> {
        self.takeover.remains.offset()
    }

    /// As [`fanpcap_ring::Ring::adopt_offset`].
    pub(crate) fn adopt_offset(&mut self, reading: OffsetReading) {
        self.takeover.remains.adopt_offset(reading);
    }

    /// The arrival time of the next frame; `None` if no frame is left.
    pub(crate) fn head(&mut self) -> Option<Stamp> {
        let (remains, claims) = (&mut self.takeover.remains, &self.takeover.claims);
        let taken = Some(remains.taken());
        if claims.as_ref().is_some_and(|it| it.count() != taken) {
            // The owner has taken the ring back.
            return None;
        }
        let before = remains.mark();
        let head = remains.head();
        if remains.mark() != before {
            self.intake.show_mark(remains);
        }
        head
    }

    /// Reads the next frame, which must exist. Returns false in three cases: the application does
    /// not want the packet, the ring's owner has taken the ring back, or a dead member has left
    /// garbage. Garbage in another member's ring must not make this read fail.
    #[cold]
    #[inline(never)]
    pub(crate) fn next_packet(&mut self, control: &Control, packet: &mut Packet) -> bool {
        let (remains, claims) = (&mut self.takeover.remains, &self.takeover.claims);
        let taken = remains.taken();
        if claims.as_ref().is_some_and(|it| !it.claim(taken)) {
            return false;
        }
        let read = self.intake.next_packet(remains, control, packet);
        read.unwrap_or(false)
    }

    pub(crate) fn end(self) {
        let Takeover { remains, done, .. } = self.takeover;
        let taken = remains.taken().saturating_sub(self.before);
        // Drop the ring before the call of `done`, because the ring's mapping keeps the socket
        // alive.
        drop(remains);
        done(taken);
    }
}
