//! A ring that another member reads because its owner, which lives, has never read it.
//!
//! A word in the owner's member page (`PublishedCounters::looked_ns`) holds the time at which the
//! owner last looked for packets. While the ring is borrowed, this word instead holds the number of
//! frames that were taken from the ring. A borrower adds 1 to the number before it reads a frame,
//! and so claims the frame. The owner takes its ring back by storing any other value in the word.
//! After that no claim succeeds, and the owner skips the claimed frames. So each frame is delivered
//! once.

use fanpcap_linux::file::shared::Word;

/// Marks the number of claimed frames. No time of `CLOCK_MONOTONIC` has this bit.
const BORROWED: u64 = 1 << 63;

/// The value of the word for a ring that its owner has never read.
const NEVER: u64 = 0;

/// The number of claimed frames, if `value` says that the ring is borrowed. `u64::MAX` does not
/// mean a borrowed ring: it means that the owner waits for packets.
pub fn claimed(value: u64) -> Option<u64> {
    (value & BORROWED != 0 && value != u64::MAX).then_some(value & !BORROWED)
}

/// A borrower's right to the ring's next frame.
#[derive(Clone, Debug)]
pub struct Claims(Word);

impl Claims {
    /// Borrows the ring of a member that has never read it, or continues where an earlier borrower
    /// stopped. Returns `None` if the owner reads the ring.
    pub fn on(looked: &Word) -> Option<Self> {
        let is_new = looked.replace(NEVER, BORROWED);
        (is_new || claimed(looked.get()).is_some()).then(|| Self(looked.clone()))
    }

    /// The number of frames claimed by this borrower and by earlier borrowers; `None` when the
    /// owner has taken its ring back.
    pub fn count(&self) -> Option<u64> {
        claimed(self.0.get())
    }

    /// Claims the frame that comes after `taken` frames. Returns false when the owner has taken its
    /// ring back.
    pub(crate) fn claim(&self, taken: u64) -> bool {
        self.0.replace(BORROWED | taken, BORROWED | (taken + 1))
    }
}

/// Notes that the owner of a ring looks for packets for the first time, at `now_ns`. Returns the
/// number of frames that borrowers have claimed; `None` if the owner has looked for packets before.
pub fn take_back(looked: &Word, now_ns: u64) -> Option<u64> {
    match looked.get() {
        NEVER if looked.replace(NEVER, now_ns) => Some(0),
        // Another thread of the owner, or a borrower, may have been faster.
        value if value == NEVER || claimed(value).is_some() => claimed(looked.swap(now_ns)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanpcap_linux::file::shared;

    fn word(value: u64) -> Word {
        shared::own(&[value])[0].clone()
    }

    #[test]
    fn an_owner_gets_its_ring_back_behind_what_was_claimed() {
        let looked = word(NEVER);
        let claims = Claims::on(&looked).unwrap();
        assert!(claims.claim(0) && claims.claim(1));
        let next = Claims::on(&looked).unwrap();
        assert_eq!(next.count(), Some(2), "a second borrower continues");
        assert!(next.claim(2) && !claims.claim(2));
        assert_eq!(take_back(&looked, 70), Some(3));
        assert!(!next.claim(3) && next.count().is_none());
        assert_eq!((looked.get(), take_back(&looked, 80)), (70, None));
    }

    #[test]
    fn the_ring_of_who_reads_can_not_be_borrowed() {
        for value in [1, 70, u64::MAX] {
            let looked = word(value);
            assert!(Claims::on(&looked).is_none());
            assert_eq!((looked.get(), take_back(&looked, 80)), (value, None));
        }
        let looked = word(NEVER);
        assert_eq!(take_back(&looked, 70), Some(0));
        assert!(Claims::on(&looked).is_none());
    }

    #[test]
    fn whoever_is_faster_each_frame_is_had_once() {
        for _ in 0..200 {
            let looked = word(NEVER);
            let claims = Claims::on(&looked).unwrap();
            let borrower = std::thread::spawn(move || (0..).find(|&taken| !claims.claim(taken)));
            std::thread::yield_now();
            let back = take_back(&looked, 70);
            assert_eq!(borrower.join().unwrap(), back);
        }
    }
}
