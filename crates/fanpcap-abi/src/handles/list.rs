//! The list of entries, each in its own allocation. No function of the list allocates or frees,
//! because callers hold the list's lock.

use super::Entry;
use std::iter;

/// A list of entries, the newest first. A list is fast enough, because processes have few handles.
pub(super) struct List(Option<Box<Entry>>);

impl List {
    pub(super) const fn new() -> Self {
        Self(None)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        iter::successors(self.0.as_deref(), |entry| entry.next.as_deref())
    }

    pub(super) fn get_mut(&mut self, handle: usize) -> Option<&mut Entry> {
        let mut next = self.0.as_deref_mut();
        while let Some(entry) = next {
            if entry.handle == handle {
                return Some(entry);
            }
            next = entry.next.as_deref_mut();
        }
        None
    }

    /// Inserts an entry. If the handle has an entry already, returns the new entry to the caller
    /// instead.
    pub(super) fn insert(&mut self, mut entry: Box<Entry>) -> Option<Box<Entry>> {
        if self.get_mut(entry.handle).is_some() {
            return Some(entry);
        }
        entry.next = self.0.take();
        self.0 = Some(entry);
        None
    }

    pub(super) fn remove(&mut self, handle: usize) -> Option<Box<Entry>> {
        let mut place = &mut self.0;
        while place.as_ref().is_some_and(|entry| entry.handle != handle) {
            place = &mut place.as_mut()?.next;
        }
        let mut removed = place.take()?;
        *place = removed.next.take();
        Some(removed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanpcap::request::Request;

    fn handles(list: &List) -> Vec<usize> {
        list.iter().map(|entry| entry.handle).collect()
    }

    #[test]
    fn entries_come_and_go_in_any_order() {
        let mut list = List::new();
        assert!(list.remove(1).is_none() && list.get_mut(1).is_none());
        for handle in 1..=4 {
            let entry = || Box::new(Entry::new(handle, Request::plain()));
            assert!(list.insert(entry()).is_none());
            assert!(list.insert(entry()).is_some(), "the handle has an entry");
        }
        assert_eq!(list.get_mut(2).map(|entry| entry.handle), Some(2));
        for (gone, left) in [
            (2, vec![4, 3, 1]),
            (4, vec![3, 1]),
            (1, vec![3]),
            (3, vec![]),
        ] {
            let removed = list.remove(gone).unwrap();
            assert!(removed.handle == gone && removed.next.is_none());
            assert_eq!(handles(&list), left);
            assert!(list.get_mut(gone).is_none());
        }
    }
}
