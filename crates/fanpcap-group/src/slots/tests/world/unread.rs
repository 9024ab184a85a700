//! Members that are read for the first time, and rings that other members read until then.

use super::{StoredFd, World};

impl World {
    /// The application looks for packets of a member for the first time.
    pub(crate) fn look(&mut self, own: u64) {
        self.replace_unread(own);
        self.attend(own);
    }

    /// As [`World::look`], but the member then does nothing for other members.
    pub(crate) fn replace_unread(&mut self, own: u64) {
        self.kernel.read.insert(own);
        self.takers.remove(&own);
        self.begin_share(own);
        self.change(own, |slots| slots.replace_unread(own)).unwrap();
    }

    /// Whether all members still wait for the hang-up of a member.
    pub(crate) fn has_lifeline(&self, cookie: u64) -> bool {
        self.kernel.fd_store.contains(&StoredFd::Lifeline(cookie))
    }

    /// Makes the members that read rings of living members read these rings to the end.
    pub(crate) fn read_borrowed(&mut self) {
        for (cookie, reader) in self.takers.clone() {
            let is_borrowed = self.members().contains(&cookie);
            if is_borrowed && self.members().contains(&reader) {
                self.takers.remove(&cookie);
                self.take(cookie, usize::MAX);
                self.change(reader, |slots| slots.give_back(cookie, reader))
                    .unwrap();
            }
        }
    }

    /// Borrowed rings, each with the member that reads it.
    pub(crate) fn borrowed(&self) -> Vec<(u64, u64)> {
        self.takers
            .iter()
            .map(|(cookie, taker)| (*cookie, *taker))
            .collect()
    }
}
