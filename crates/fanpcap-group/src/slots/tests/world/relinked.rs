//! The device goes down and up, and members take the error.

use super::World;

impl World {
    /// The device goes down and up: the kernel links the sockets in the order of their creation,
    /// and reports it to all sockets that are bound to the device.
    pub(in super::super) fn flap(&mut self) {
        self.kernel.array.sort_unstable();
        let sockets = self.kernel.sockets.values_mut();
        sockets.for_each(|socket| socket.is_told = true);
    }

    /// As [`World::flap`], but does nothing while a member has not taken the last error. That
    /// member would take two errors as one. If the members that took both errors then died, no
    /// member would renumber the slots for the second error.
    pub(in super::super) fn flap_once(&mut self) {
        let is_told = |cookie: &u64| self.kernel.sockets[cookie].is_told;
        if !self.members().iter().any(is_told) {
            self.flap();
        }
    }

    /// From now on, sets whether the threads that make changes are unable to list the group's
    /// sockets.
    pub(in super::super) fn blind(&mut self, is_blind: bool) {
        self.kernel.is_blind = is_blind;
    }

    /// A member takes the error, and notes it before the member can be killed: perhaps no other
    /// member has this error.
    pub(in super::super) fn hear(&mut self, own: u64) {
        self.change(own, |slots| slots.repair()).unwrap();
        let socket = self.kernel.sockets.get_mut(&own);
        if socket.is_some_and(|socket| std::mem::take(&mut socket.is_told)) {
            self.change(own, |slots| slots.note_downs(own, 1)).unwrap();
        }
    }
}
