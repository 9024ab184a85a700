//! Handles whose loop was broken before they had a reader.
//!
//! pcap_breakloop() takes no lock. It may run in a signal handler that has interrupted malloc(3).
//! Another thread may also be forking: that thread holds the table's lock and waits for malloc(3).
//! So each handle in the table has a cell, in which pcap_breakloop() notes the break.
//! pcap_breakloop() finds the cell by atomic loads, and cells are never freed.

use std::iter;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

struct Cell {
    /// The handle's address; 0: the cell is free.
    handle: AtomicUsize,
    broken: AtomicBool,
    /// The previous cell; null for the first one.
    next: *mut Cell,
}

/// The newest cell.
static CELLS: AtomicPtr<Cell> = AtomicPtr::new(null_mut());

fn cells() -> impl Iterator<Item = &'static Cell> {
    // SAFETY: cells are never freed, and were initialized before they could be found.
    let cell = |cell: *mut Cell| unsafe { cell.as_ref() };
    iter::successors(cell(CELLS.load(Ordering::Acquire)), move |found| {
        cell(found.next)
    })
}

fn cell(handle: usize) -> Option<&'static Cell> {
    cells().find(|cell| cell.handle.load(Ordering::Relaxed) == handle)
}

pub(super) fn open(handle: usize) {
    let take = |cell: &Cell| {
        let free = cell
            .handle
            .compare_exchange(0, handle, Ordering::Acquire, Ordering::Relaxed);
        free.is_ok()
    };
    if cells().any(take) {
        return;
    }
    let cell = Box::leak(Box::new(Cell {
        handle: AtomicUsize::new(handle),
        broken: AtomicBool::new(false),
        next: null_mut(),
    }));
    let mut newest = CELLS.load(Ordering::Relaxed);
    loop {
        cell.next = newest;
        match CELLS.compare_exchange(newest, cell, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(other) => newest = other,
        }
    }
}

pub(super) fn close(handle: usize) {
    if let Some(cell) = cell(handle) {
        cell.broken.store(false, Ordering::Relaxed);
        cell.handle.store(0, Ordering::Release);
    }
}

/// Notes that the handle's loop was broken. Async-signal-safe.
pub(crate) fn set(handle: usize) {
    if let Some(cell) = cell(handle) {
        // This thread stores `broken` and then loads the reader. The thread that installs a reader
        // stores the reader and then loads `broken`. With SeqCst at least one thread sees the
        // other's store.
        cell.broken.store(true, Ordering::SeqCst);
    }
}

/// Whether the handle's loop was broken. Resets the note.
pub(crate) fn take(handle: usize) -> bool {
    cell(handle).is_some_and(|cell| cell.broken.swap(false, Ordering::SeqCst))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_break_is_kept_for_its_handle_until_it_is_closed() {
        let [first, second, third] = [0x10, 0x20, 0x30];
        open(first);
        open(second);
        set(first);
        set(third);
        assert!(!take(second) && !take(third));
        assert!(take(first) && !take(first), "once");
        set(second);
        close(second);
        open(third);
        let count = cells().count();
        assert!(!take(second) && !take(third), "the cell has a new owner");
        close(first);
        open(second);
        assert_eq!(cells().count(), count, "the freed cell is used again");
        close(second);
        close(third);
    }
}
