//! Checks that the signal handlers allocate no memory: a handler may have interrupted a thread
//! inside malloc(3). The test's process does nothing before it, so no earlier call has prepared the
//! handlers.

use fanpcap_linux::wait::hangup::Hangups;
use fanpcap_linux::wait::stop;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, with a count of allocations for each thread.
struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: the system's allocator does all the work, so it meets the requirements of the trait.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller guarantees the requirements of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller guarantees the requirements of `dealloc`.
        unsafe { System.dealloc(block, layout) }
    }
}

#[test]
fn handlers_allocate_nothing() {
    stop::on_signals().unwrap();
    let mut hangups = Hangups::catch().unwrap();
    let before = ALLOCATIONS.get();
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        // SAFETY: raise takes a number; the handlers are set.
        assert_eq!(unsafe { libc::raise(signal) }, 0);
    }
    assert_eq!(ALLOCATIONS.get(), before);
    assert!(stop::is_requested() && hangups.is_new());
    // Checks that the allocator counts.
    drop(vec![stop::signal()]);
    assert_eq!(ALLOCATIONS.get(), before + 1);
}
