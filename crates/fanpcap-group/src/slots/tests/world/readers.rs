//! Members that read, and unread packets.

use super::World;

impl World {
    pub(in super::super) fn read(&mut self, own: u64) {
        self.take(own, usize::MAX);
    }

    /// A member reads one packet, if there is one.
    pub(in super::super) fn read_one(&mut self, own: u64) {
        self.take(own, 1);
    }

    /// The unread packets in a ring.
    pub(in super::super) fn unread(&self, cookie: u64) -> usize {
        self.kernel.sockets[&cookie].ring.len()
    }

    /// A member looks for others that do not read.
    pub(in super::super) fn look_for_silent(&mut self, own: u64) {
        self.change(own, |slots| slots.look_for_silent(own))
            .unwrap();
    }
}
